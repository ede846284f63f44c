//! Requests: when they come, how long their prompts and answers are.

use super::ServingError;
use joulecast_model::base::random::Random;
use joulecast_model::base::text::shown;
use joulecast_model::base::units::Seconds;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// No prompt and no answer has more tokens: models are made for no more, and attention was measured to far fewer.
pub const MOST_TOKENS: u64 = 1 << 20;
/// Seconds of a trace, beyond which microseconds between requests are lost: some thirty thousand years.
const LATEST: f64 = 1e12;
/// Spreads beyond this draw lengths that say nothing.
const MOST_SPREAD: f64 = 3.0;

/// A request to a language model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// When it comes.
    pub at: Seconds,
    /// Tokens of its prompt, at least one.
    pub prompt: u64,
    /// Tokens of its answer, at least one.
    pub answer: u64,
}

/// How many tokens a prompt or an answer has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lengths {
    /// Always so many.
    Constant(u64),
    /// From the first to the second, all alike likely.
    Uniform(u64, u64),
    /// Log-normal with this median and this deviation of the logarithm.
    LogNormal(u64, f64),
}

impl Lengths {
    fn draw(self, random: &mut Random) -> u64 {
        match self {
            Self::Constant(n) => n,
            Self::Uniform(low, high) => {
                let width = (high - low + 1) as f64;
                // Uniform numbers are above 0 and may be 1.
                high - ((random.uniform() * width).ceil() as u64 - 1).min(high - low)
            }
            Self::LogNormal(median, spread) => {
                let drawn = median as f64 * (spread * random.normal()).exp();
                drawn.round().clamp(1.0, MOST_TOKENS as f64) as u64
            }
        }
    }
}

impl Display for Lengths {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(n) => write!(f, "{n}"),
            Self::Uniform(low, high) => write!(f, "{low}..{high}"),
            Self::LogNormal(median, spread) => write!(f, "lognormal:{median}:{spread}"),
        }
    }
}

impl FromStr for Lengths {
    type Err = String;

    /// `1024`; `512..1536`; `lognormal:1024:0.5`.
    fn from_str(text: &str) -> Result<Self, String> {
        let tokens = |part: &str| {
            let number = part.parse::<u64>().ok().filter(|n| (1..=MOST_TOKENS).contains(n));
            number.ok_or_else(|| format!("\"{part}\" is not a whole number of tokens from 1 to {MOST_TOKENS}"))
        };
        if let Some(rest) = text.strip_prefix("lognormal:") {
            let (median, spread) =
                rest.split_once(':').ok_or("write lognormal:MEDIAN:SPREAD, as in lognormal:1024:0.5")?;
            let known = spread.parse::<f64>().ok().filter(|s| (0.0..=MOST_SPREAD).contains(s));
            let spread =
                known.ok_or_else(|| format!("the spread \"{spread}\" is not a number from 0 to {MOST_SPREAD}"))?;
            return Ok(Self::LogNormal(tokens(median)?, spread));
        }
        if let Some((low, high)) = text.split_once("..") {
            let (low, high) = (tokens(low)?, tokens(high)?);
            return if low <= high { Ok(Self::Uniform(low, high)) } else { Err(format!("{low} is above {high}")) };
        }
        match tokens(text) {
            Ok(n) => Ok(Self::Constant(n)),
            Err(why) => Err(format!("{why}; also LOW..HIGH and lognormal:MEDIAN:SPREAD")),
        }
    }
}

/// A cell of a trace without the quotes that some programs write around each.
fn bare(cell: &str) -> &str {
    let cell = cell.trim();
    cell.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).map_or(cell, str::trim)
}

/// Requests of one kind of load, to be asked for at any rate: the same draw, faster or slower.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// In order of time, one a second in the mean.
    requests: Vec<Request>,
    /// Requests per second as it was recorded, where it was.
    recorded: Option<f64>,
    /// Where more may come than these: their gaps, and how many there are at most.
    further: Option<(Random, usize)>,
}

/// Of a demand that may have more requests than were drawn, so many times as many at most.
const MOST_FURTHER: usize = 20;

impl Demand {
    /// So many requests, at least one, that come independently of each other (a Poisson process).
    pub fn poisson(requests: usize, prompt: Lengths, answer: Lengths, seed: u64) -> Self {
        // Sequences of their own, so that another distribution of lengths changes no arrival.
        let mut seeds = Random::new(seed);
        let [mut gaps, mut prompts, mut answers] = std::array::from_fn(|_| seeds.split());
        let mut at = Seconds::ZERO;
        let mut draw = || {
            at += Seconds::new(gaps.exponential());
            Request { at, prompt: prompt.draw(&mut prompts), answer: answer.draw(&mut answers) }
        };
        Self { requests: (0..requests.max(1)).map(|_| draw()).collect(), recorded: None, further: None }
    }

    /// The same, and more of them where a replica is not full before they are over: with the same lengths again, in their order.
    pub fn at_least(requests: usize, prompt: Lengths, answer: Lengths, seed: u64) -> Self {
        // Of no draw above.
        let mut seeds = Random::new(seed);
        let gaps = (0..4).map(|_| seeds.split()).last();
        let most = requests.max(1).saturating_mul(MOST_FURTHER);
        Self { further: gaps.map(|gaps| (gaps, most)), ..Self::poisson(requests, prompt, answer, seed) }
    }

    /// A trace: CSV with the columns `time` (in seconds, rising), `prompt` and `answer` (tokens) in any order; blank lines say
    /// nothing. `name` is that of its file.
    ///
    /// # Errors
    /// One line with the file, the line and what is wrong there.
    pub fn trace(name: &str, text: &str) -> Result<Self, ServingError> {
        let wrong = |line: usize, why: String| ServingError::Trace { file: name.to_string(), line, why };
        let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim_end_matches('\r')));
        let (_, header) = lines.next().ok_or_else(|| wrong(1, "the file is empty".into()))?;
        let columns: Vec<&str> = header.trim_start_matches('\u{feff}').split(',').map(bare).collect();
        let place = |wanted: &str| {
            let missing = || wrong(1, format!("the header has no column {wanted}; it needs time,prompt,answer"));
            let mut places = columns.iter().enumerate().filter(|(_, column)| **column == wanted).map(|(i, _)| i);
            let first = places.next().ok_or_else(missing)?;
            match places.next() {
                Some(_) => {
                    Err(wrong(1, format!("the header has several columns {wanted}: which one? Rename the others")))
                }
                None => Ok(first),
            }
        };
        let (time, prompt, answer) = (place("time")?, place("prompt")?, place("answer")?);
        let mut requests: Vec<Request> = Vec::new();
        for (line, row) in lines.filter(|(_, row)| !row.trim().is_empty()) {
            let cells: Vec<&str> = row.split(',').map(bare).collect();
            if cells.len() != columns.len() {
                return Err(wrong(line, format!("{} cells where the header has {}", cells.len(), columns.len())));
            }
            let tokens = |place: usize| {
                let number = cells[place].parse::<u64>().ok().filter(|n| (1..=MOST_TOKENS).contains(n));
                let (column, cell) = (columns[place], shown(cells[place]));
                number.ok_or_else(|| {
                    wrong(line, format!("{column} is \"{cell}\", not a number of tokens from 1 to {MOST_TOKENS}"))
                })
            };
            let number = cells[time].parse::<f64>().ok().filter(|t| (0.0..=LATEST).contains(t));
            let typed = shown(cells[time]);
            let at = number.ok_or_else(|| {
                wrong(line, format!("time is \"{typed}\", not a number of seconds from 0 to {LATEST:e}"))
            })?;
            if requests.last().is_some_and(|before| at < before.at.get()) {
                return Err(wrong(line, format!("time {at} is before that of the line above")));
            }
            requests.push(Request { at: Seconds::new(at), prompt: tokens(prompt)?, answer: tokens(answer)? });
        }
        let (Some(first), Some(last)) = (requests.first(), requests.last()) else {
            return Err(wrong(1, "there is no request after the header".into()));
        };
        let (start, span) = (first.at, last.at - first.at);
        let rate = if span > Seconds::ZERO { (requests.len() - 1) as f64 / span.get() } else { f64::INFINITY };
        requests.iter_mut().for_each(|r| r.at = if rate.is_finite() { (r.at - start) * rate } else { Seconds::ZERO });
        Ok(Self { requests, recorded: Some(rate), further: None })
    }

    /// As many again, so often all together, for replicas that share them; a trace as it is, and where there may be more so
    /// many times as many.
    #[must_use]
    pub fn repeated(&self, times: usize) -> Self {
        if self.recorded.is_some() || times <= 1 {
            return self.clone();
        }
        if let Some((gaps, most)) = &self.further {
            return Self { further: Some((gaps.clone(), most.saturating_mul(times))), ..self.clone() };
        }
        let last = self.requests.last().map_or(Seconds::ZERO, |r| r.at);
        let again = |i: usize| self.requests.iter().map(move |r| Request { at: r.at + last * i as f64, ..*r });
        Self { requests: (0..times).flat_map(again).collect(), recorded: None, further: None }
    }

    /// The requests as they come at so many a second.
    pub fn at_rate(&self, rate: f64) -> Vec<Request> {
        self.requests.iter().map(|r| Request { at: r.at / rate, ..*r }).collect()
    }

    /// How many there may be.
    pub fn most(&self) -> usize {
        self.further.as_ref().map_or(self.requests.len(), |(_, most)| *most)
    }

    /// So many of them, of [`Self::most`] at most, as they come at so many a second.
    pub fn many_at_rate(&self, many: usize, rate: f64) -> Vec<Request> {
        let mut requests = self.at_rate(rate);
        let (Some((mut gaps, most)), Some(last)) = (self.further.clone(), requests.last()) else { return requests };
        let mut at = last.at;
        let beyond = self.requests.iter().cycle().take(many.min(most).saturating_sub(requests.len()));
        requests.extend(beyond.map(|r| {
            at += Seconds::new(gaps.exponential()) / rate;
            Request { at, ..*r }
        }));
        requests
    }

    /// The requests in their order, whatever their times: one a second in the mean.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// The first of them, at most so many, at least one.
    #[must_use]
    pub fn first(&self, requests: usize) -> Self {
        let count = requests.clamp(1, self.requests.len());
        Self { requests: self.requests[..count].to_vec(), recorded: self.recorded, further: None }
    }

    /// Requests per second of a trace as it was recorded; infinitely many where all come at one time.
    pub fn recorded(&self) -> Option<f64> {
        self.recorded
    }

    /// The longest sequence: prompt and answer.
    pub fn longest(&self) -> u64 {
        self.requests.iter().map(|r| r.prompt + r.answer).max().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_comes_as_often_for_longer() {
        let demand = Demand::poisson(50, Lengths::Uniform(1, 90), Lengths::Constant(7), 3);
        let more = demand.repeated(3);
        let (first, all) = (demand.requests(), more.requests());
        assert_eq!((all.len(), &all[..50], demand.repeated(1).requests()), (150, first, first));
        assert_eq!((all[100].prompt, all[149].prompt), (first[0].prompt, first[49].prompt));
        assert!(all.windows(2).all(|w| w[0].at < w[1].at));
        assert!((all[149].at / first[49].at - 3.0).abs() < 1e-12);
        let trace = Demand::trace("t", "time,prompt,answer\n0,1,1\n2,1,1\n").expect("a trace");
        assert_eq!(trace.repeated(4).requests().len(), 2);
    }

    #[test]
    fn lengths_are_written_as_they_are_read() {
        for text in ["1024", "512..1536", "lognormal:1024:0.5"] {
            assert_eq!(text.parse::<Lengths>().map(|l| l.to_string()).as_deref(), Ok(text));
        }
        for (text, why) in [
            ("0", "from 1 to"),
            ("many", "lognormal:MEDIAN:SPREAD"),
            ("9..3", "9 is above 3"),
            ("lognormal:1024", "lognormal:1024:0.5"),
            ("lognormal:1024:-1", "from 0 to 3"),
            ("lognormal:1024:NaN", "from 0 to 3"),
            ("1..", "\"\" is not"),
        ] {
            let error = text.parse::<Lengths>().expect_err(text);
            assert!(error.contains(why) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn draws_have_the_means_of_their_distributions() {
        for (lengths, mean, least, most) in [
            (Lengths::Constant(7), 7.0, 7, 7),
            (Lengths::Uniform(3, 6), 4.5, 3, 6),
            (Lengths::LogNormal(1000, 0.5), 1000.0 * (0.125f64).exp(), 1, MOST_TOKENS),
        ] {
            let demand = Demand::poisson(100_000, lengths, Lengths::Constant(1), 3);
            let drawn = || demand.requests().iter().map(|r| r.prompt);
            let found = drawn().sum::<u64>() as f64 / 1e5;
            assert!((found / mean - 1.0).abs() < 0.01, "{lengths}: {found}");
            assert!(drawn().all(|n| (least..=most).contains(&n)), "{lengths}");
            if let Lengths::Uniform(low, high) = lengths {
                assert!((low..=high).all(|n| drawn().any(|d| d == n)), "{lengths}");
            }
            let rate = 1e5 / demand.requests().last().map_or(0.0, |r| r.at.get());
            assert!((rate - 1.0).abs() < 0.02, "{rate}");
        }
    }

    #[test]
    fn a_trace_keeps_its_rate_and_may_be_run_at_another() {
        let text = "answer,time,prompt\n5,10,100\n6,10.5,200\n7,14,300\n";
        let demand = Demand::trace("a.csv", text).expect("a trace");
        assert_eq!(demand.recorded(), Some(0.5));
        let times = |rate| demand.at_rate(rate).iter().map(|r| r.at.get()).collect::<Vec<_>>();
        assert_eq!((times(0.5), times(5.0)), (vec![0.0, 0.5, 4.0], vec![0.0, 0.05, 0.4]));
        assert_eq!((demand.longest(), demand.requests()[1].prompt), (307, 200));
    }

    #[test]
    fn quotes_and_blank_lines_of_a_trace_say_nothing() {
        let plain = Demand::trace("a.csv", "time,prompt,answer\n1,10,2\n3,20,3\n");
        let written = "\u{feff}\"time\",\"prompt\", \"answer\"\r\n\"1\",\"10\",\"2\"\r\n\r\n\"3\",20,3\r\n\r\n";
        assert!(plain.is_ok());
        assert_eq!(Demand::trace("a.csv", written), plain);
    }

    #[test]
    fn further_requests_come_as_often_with_the_same_lengths() {
        let lengths = (Lengths::Uniform(1, 9000), Lengths::LogNormal(100, 0.5));
        let (few, many) =
            (Demand::poisson(500, lengths.0, lengths.1, 3), Demand::at_least(500, lengths.0, lengths.1, 3));
        assert_eq!((many.requests(), many.most(), few.most()), (few.requests(), 500 * MOST_FURTHER, 500));
        assert_eq!(few.many_at_rate(900, 2.0), few.at_rate(2.0));
        assert_eq!(many.many_at_rate(300, 2.0), few.at_rate(2.0), "those that were drawn are");
        let all = many.many_at_rate(usize::MAX, 4.0);
        assert_eq!((all.len(), &all[..500]), (500 * MOST_FURTHER, &few.at_rate(4.0)[..]));
        assert!(
            (0..1000).all(|i| (all[500 + i].prompt, all[500 + i].answer) == (all[i % 500].prompt, all[i % 500].answer))
        );
        assert!(all.windows(2).all(|w| w[0].at < w[1].at));
        let rate = 9500.0 / (all[9999].at - all[499].at).get();
        assert!((rate / 4.0 - 1.0).abs() < 0.03, "{rate}");
        // Gaps of their own, not the first ones again.
        assert!((0..499).all(|i| all[501 + i].at - all[500 + i].at != all[i + 1].at - all[i].at));
        assert_eq!((many.repeated(3).most(), many.repeated(3).requests()), (1500 * MOST_FURTHER, many.requests()));
        assert_eq!(many.first(20).most(), 20);
    }

    #[test]
    fn a_burst_comes_at_once_unless_a_rate_is_asked_for() {
        let burst = Demand::trace("b.csv", "time,prompt,answer\n7,10,2\n7,20,3\n7,30,4\n").expect("a trace");
        assert_eq!(burst.recorded(), Some(f64::INFINITY));
        assert!(burst.at_rate(f64::INFINITY).iter().all(|r| r.at == Seconds::ZERO));
        assert!(burst.at_rate(2.0).iter().all(|r| r.at == Seconds::ZERO));
    }

    #[test]
    fn a_bad_line_of_a_trace_is_named() {
        for (text, expected) in [
            ("", "a.csv, line 1: the file is empty"),
            ("time,prompt\n", "a.csv, line 1: the header has no column answer; it needs time,prompt,answer"),
            ("time,prompt,answer\n", "a.csv, line 1: there is no request after the header"),
            ("time,prompt,answer\n0,1,1\n1\n2,1,1\n", "a.csv, line 3: 1 cells where the header has 3"),
            (
                "time,prompt,answer\n0,1,1\n1,,1\n",
                "a.csv, line 3: prompt is \"\", not a number of tokens from 1 to 1048576",
            ),
            (
                "time,prompt,answer\n0,1,1\nx,1,1\n",
                "a.csv, line 3: time is \"x\", not a number of seconds from 0 to 1e12",
            ),
            (
                "time,prompt,answer\n0,1,1\n2e12,1,1\n",
                "a.csv, line 3: time is \"2e12\", not a number of seconds from 0 to 1e12",
            ),
            ("time,prompt,answer\n\n \n", "a.csv, line 1: there is no request after the header"),
            ("time,prompt,answer\n2,1,1\n1,1,1\n", "a.csv, line 3: time 1 is before that of the line above"),
            (
                "time,prompt,answer,time\n2,1,1,2\n",
                "a.csv, line 1: the header has several columns time: which one? Rename the others",
            ),
        ] {
            assert_eq!(Demand::trace("a.csv", text).expect_err(expected).to_string(), expected);
        }
    }
}
