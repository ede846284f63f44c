//! What a simulation says to who runs the service.

use super::simulate::{Counted, Run, Served, Split};
use joulecast_model::base::units::{Joules, Seconds, Watts};

/// How times are distributed over requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantiles {
    /// Mean.
    pub mean: Seconds,
    /// Half of them take no longer.
    pub p50: Seconds,
    /// Nine of ten.
    pub p90: Seconds,
    /// 99 of 100.
    pub p99: Seconds,
}

impl Quantiles {
    /// Of times in any order; `None` where there are none.
    pub fn of(times: impl Iterator<Item = Seconds>) -> Option<Self> {
        let mut sorted: Vec<f64> = times.map(Seconds::get).collect();
        if sorted.is_empty() {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let mean = Seconds::new(sorted.iter().sum::<f64>() / sorted.len() as f64);
        let at = |share: f64| Seconds::new(quantile(&sorted, share));
        Some(Self { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99) })
    }

    /// One of them.
    pub fn at(&self, which: Which) -> Seconds {
        match which {
            Which::Mean => self.mean,
            Which::P50 => self.p50,
            Which::P90 => self.p90,
            Which::P99 => self.p99,
        }
    }
}

/// Which of [`Quantiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Mean.
    Mean,
    /// Half.
    P50,
    /// Nine of ten.
    P90,
    /// 99 of 100.
    P99,
}

impl Which {
    /// All, with the names that they have on the command line.
    pub const ALL: [(Self, &'static str); 4] =
        [(Self::Mean, "mean"), (Self::P50, "p50"), (Self::P90, "p90"), (Self::P99, "p99")];

    /// Of so many sorted values the mean or quantile lies above whatever so many of the largest do; `None` where no number of
    /// them says so.
    pub(super) fn too_many(self, values: usize) -> Option<usize> {
        let share = match self {
            Self::Mean => return None,
            Self::P50 => 0.5,
            Self::P90 => 0.9,
            Self::P99 => 0.99,
        };
        // As `quantile`, which lies no lower than its lower neighbour.
        let below = (share * values.checked_sub(1)? as f64).floor() as usize;
        Some(values - below)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(which, _)| *which == self).map_or("", |(_, name)| name)
    }
}

/// The value below which a share of sorted values lies, straight between neighbours.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// Requests that count come for so many times as long as one takes, at least: then what grows after them is little beside what
/// grew before.
pub const SPANS: u32 = 8;
/// Before them others come for so many times as long: they fill the replica, which takes longer for each while it fills.
pub const FILLINGS: u32 = 3;

/// A queue grows where requests of the second half wait so many times as long as those of the first, in the mean. One that grows
/// evenly makes them wait 2.3 times as long, what is counted beginning after a tenth, 1.8 times after a quarter; of 2000 requests of a server that is busy for
/// four fifths of the time one run in fifty looks so by chance.
const GROWS: f64 = 1.5;
/// And where at least so much of what comes is not carried: by chance it is a fifth of that on such a server.
const BEYOND: f64 = 0.01;
/// Fewer requests say nothing of their halves.
const HALVES: usize = 20;

/// Whether the time until the first token grows between the halves of what counts, which came in so long a time, and is as long
/// at the end.
fn grows(counted: &[Served], span: Seconds) -> bool {
    let mean = |part: &[Served]| part.iter().map(|s| s.to_first().get()).sum::<f64>() / part.len().max(1) as f64;
    let (first, second) = counted.split_at(counted.len() / 2);
    let (before, last) = (mean(first), mean(&second[second.len() / 2..]));
    // Between the middles of the halves lies half of the time; in each second of it so much of a second is queued.
    let queued = (mean(second) - before) / (span.get() / 2.0);
    counted.len() >= HALVES && mean(second).min(last) > GROWS * before && queued > BEYOND
}

/// Latencies, rates and energy of the requests that count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Requests that count.
    pub requests: usize,
    /// Requests that were simulated.
    pub simulated: usize,
    /// Between the arrivals of the first of them and of the first one after them: of what rates, power and energy are.
    pub span: Seconds,
    /// Until the first token.
    pub to_first: Quantiles,
    /// For each token after the first; none where every answer has one.
    pub per_token: Option<Quantiles>,
    /// Until the last token.
    pub to_last: Quantiles,
    /// Requests that came.
    pub requests_per_s: f64,
    /// Tokens of answers.
    pub tokens_per_s: f64,
    /// Tokens of prompts that were computed.
    pub prompt_tokens_per_s: f64,
    /// Share of the time in steps, in the mean over replicas.
    pub busy: f64,
    /// Sequences of a step, in the mean over the time in steps.
    pub batch: f64,
    /// Sequences that wait, in the mean, for all replicas.
    pub queue: f64,
    /// Blocks in use, in the mean, of all replicas.
    pub blocks: f64,
    /// Mean power of all replicas.
    pub power: Watts,
    /// Energy of a second, by what it was for, in joules.
    pub energy_per_s: Split,
    /// Energy for each token of an answer; prompts and waiting are in it.
    pub per_answer_token: Joules,
    /// Energy for each request.
    pub per_request: Joules,
    /// Sequences that gave their cache back, for each request.
    pub preemptions: f64,
    /// Whether the queue still grows between the halves of the run.
    pub grows: bool,
}

impl Summary {
    /// Whether requests come for so short a time that many answers to those that count grow after it: tokens in that time are
    /// too few then, and energy and cost of each too high.
    pub fn is_short(&self) -> bool {
        self.span < self.to_last.mean * f64::from(SPANS)
    }

    /// Requests that are under way, in the mean (Little's law).
    pub(super) fn under_way(&self) -> f64 {
        self.requests_per_s * self.to_last.mean.get()
    }

    /// So many requests come before the replica is full.
    pub(super) fn filling(&self) -> usize {
        (f64::from(FILLINGS) * self.under_way()).ceil() as usize
    }

    /// So many have to come so that enough count after those.
    pub(super) fn enough(&self) -> usize {
        (f64::from(FILLINGS + SPANS) * self.under_way() / Counted::SHARE_BEFORE_LAST).ceil() as usize
    }

    /// Of a simulation; `None` where nothing counts or no time passed.
    pub fn of(run: &Run) -> Option<Self> {
        let counted = run.served.get(run.of.from..run.of.until)?;
        let book = &run.counted;
        let span = book.span.get();
        if span.is_nan() || span <= 0.0 {
            return None;
        }
        let total = book.energy.total();
        let rate = counted.len() as f64 / span;
        let each = |energy: Joules| energy / span;
        Some(Self {
            requests: counted.len(),
            simulated: run.served.len(),
            span: book.span,
            to_first: Quantiles::of(counted.iter().map(|s| s.to_first()))?,
            per_token: Quantiles::of(counted.iter().filter_map(|s| s.per_token())),
            to_last: Quantiles::of(counted.iter().map(|s| s.to_last()))?,
            requests_per_s: rate,
            tokens_per_s: book.answer_tokens / span,
            prompt_tokens_per_s: book.prompt_tokens / span,
            busy: book.busy / book.span / run.replicas as f64,
            batch: if book.busy > Seconds::ZERO { book.running / book.busy.get() } else { 0.0 },
            queue: book.waiting / span,
            blocks: book.blocks / span,
            power: total / book.span,
            energy_per_s: Split {
                prefill: each(book.energy.prefill),
                decode: each(book.energy.decode),
                idle: each(book.energy.idle),
            },
            per_answer_token: total / book.answer_tokens,
            per_request: total / counted.len() as f64,
            preemptions: run.preemptions as f64 / run.served.len() as f64,
            grows: grows(counted, book.span),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_that_are_too_long_make_a_quantile_too_long() {
        for (n, which) in (1..400).flat_map(|n| Which::ALL.map(|(which, _)| (n, which))) {
            let Some(many) = which.too_many(n) else {
                assert_eq!(which, Which::Mean);
                continue;
            };
            let of = |long: usize| {
                let times = (0..n).map(|i| Seconds::new(if i < long { 1.001 } else { 0.5 }));
                Quantiles::of(times).expect("some").at(which).get()
            };
            assert!(of(many) > 1.0, "{many} of {n}");
            assert!(many == 1 || of(many - 2) < 1.0, "{many} of {n} are more than it takes");
        }
        assert_eq!(Which::P90.too_many(0), None);
    }

    #[test]
    fn quantiles_lie_straight_between_neighbours() {
        let of = |n: u64| Quantiles::of((0..n).rev().map(|i| Seconds::new(i as f64))).expect("some");
        let hundred = of(101);
        let values = Which::ALL.map(|(which, _)| hundred.at(which).get());
        assert!(values.iter().zip([50.0, 50.0, 90.0, 99.0]).all(|(a, b)| (a - b).abs() < 1e-9), "{values:?}");
        assert!((of(2).p90.get() - 0.9).abs() < 1e-12);
        assert_eq!(of(1).p99, Seconds::ZERO);
        assert_eq!(Quantiles::of(std::iter::empty()), None);
    }

    /// A wave that is over before the end, and waits that are nothing beside the time in which requests come, are no queue that
    /// grows.
    #[test]
    fn a_queue_grows_where_it_does_not_go_again() {
        let of = |wait: &dyn Fn(usize) -> f64| {
            let served = |i: usize| {
                let arrived = Seconds::new(0.1 * i as f64);
                let first = arrived + Seconds::new(wait(i));
                Served { arrived, first, last: first, answer: 1 }
            };
            grows(&(0..400).map(served).collect::<Vec<_>>(), Seconds::new(40.0))
        };
        assert!(of(&|i| 0.01 * i as f64));
        assert!(!of(&|i| if (200..290).contains(&i) { 4.0 } else { 0.1 }));
        assert!(!of(&|i| 1e-4 * i as f64));
        assert!(!of(&|_| 3.0));
    }
}
