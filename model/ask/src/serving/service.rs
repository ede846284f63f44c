//! A replica and what is asked of it: latencies and energy at a rate or of so many users, and the highest rate that keeps a
//! target.

use super::ServingError;
use super::copies::{saturated_copies, simulate_copies, simulate_filled, simulate_kept};
use super::pools::Pools;
use super::replica::Replica;
use super::requests::{Demand, Request};
use super::scheduler::Limits;
use super::simulate::{Counted, Load, Run};
use super::summary::{Summary, Which};
use super::times::{StepTimes, Times};
use joulecast_model::base::units::Seconds;
use joulecast_model::step::predictor::Estimate;

/// Latencies that are to be kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Until the first token.
    pub to_first: Option<Seconds>,
    /// For each token after it.
    pub per_token: Option<Seconds>,
    /// By which requests.
    pub which: Which,
}

impl Target {
    /// Whether it is kept; answers of one token have no time for each further one.
    pub fn is_kept(&self, summary: &Summary) -> bool {
        let within = |limit: Option<Seconds>, found: Option<Seconds>| match (limit, found) {
            (Some(limit), Some(found)) => found <= limit,
            _ => true,
        };
        within(self.to_first, Some(summary.to_first.at(self.which)))
            && within(self.per_token, summary.per_token.map(|q| q.at(self.which)))
    }
}

/// A replica under a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// Requests that come in a second; none of users, who wait for their answers.
    pub rate: Option<f64>,
    /// Requests a second that it carries at most: the least, where all steps take as long as their 95 % quantiles.
    pub most: Estimate<f64>,
    /// What is most likely; nothing where more comes than it carries, for then waits grow as long as requests come. Of a trace,
    /// what came of it.
    pub value: Option<Summary>,
    /// The same if all steps take time and energy of their 5 % quantiles.
    pub low: Option<Summary>,
    /// And of their 95 % quantiles.
    pub high: Option<Summary>,
}

impl Outlook {
    /// Whether more comes than it carries, most likely: the queue grows as long as requests come.
    pub fn is_overloaded(&self) -> bool {
        self.rate.is_some_and(|rate| self.value.map_or(rate >= self.most.value, |value| value.grows))
    }
}

/// Replicas that share what comes.
#[derive(Clone, Copy, Debug)]
pub enum Group<'a> {
    /// So many that are alike, in turn, at least one.
    Alike(usize),
    /// Some for prompts and others for answers.
    Apart(&'a Pools),
}

impl Group<'_> {
    /// One does everything.
    pub const ONE: Self = Self::Alike(1);
}

/// A replica, and requests to be asked for at any rate.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// What its steps take.
    pub times: &'a StepTimes,
    /// Its scheduler's.
    pub limits: Limits,
    /// What comes.
    pub demand: &'a Demand,
    /// Which replicas there are.
    pub group: Group<'a>,
    /// Requests a second that one of those that are alike carries ([`Self::carries`]), where that is known.
    pub alone: Option<Estimate<f64>>,
}

/// Steps that always take as long, and requests to be asked for at any rate.
#[derive(Clone, Copy, Debug)]
pub struct Steps<'a, R> {
    /// What takes them.
    pub replica: &'a R,
    /// Its scheduler's.
    pub limits: &'a Limits,
    /// What comes.
    pub demand: &'a Demand,
    /// Which replicas there are.
    pub group: Group<'a>,
}

/// Rates are found to this share of what a replica carries.
const RESOLUTION: f64 = 1e-3;
/// The same of the ends of an interval.
const RESOLUTION_OF_ENDS: f64 = 5e-3;
/// A load is simulated again so often at most, with requests that fill the replica, and by so much more than they seemed to be.
const AGAIN: u32 = 3;
const MARGIN: f64 = 1.1;
/// A trace is tried at so many times what is carried of its mean lengths, at most; faster ones are bursts.
const FASTEST: f64 = 64.0;
/// A share of what it carries at which hardly a request meets another.
const LONELY: f64 = 1e-3;

impl<R: Replica> Steps<'_, R> {
    /// Requests a second that are carried at most.
    ///
    /// # Errors
    /// When a request does not fit in the cache.
    pub fn most(&self) -> Result<f64, ServingError> {
        let requests = self.demand.requests();
        match self.group {
            Group::Apart(pools) => pools.saturated(self.replica, requests, self.limits),
            Group::Alike(copies) => saturated_copies(self.replica, requests, self.limits, copies),
        }
    }

    /// What comes of so many requests a second; nothing where that is no less than `most`, what is carried. A trace is
    /// simulated as it came: it ends, and its mean lengths say little of when its queue grows.
    ///
    /// # Errors
    /// As [`Self::most`].
    pub fn at(&self, rate: f64, most: f64) -> Result<Option<Summary>, ServingError> {
        if rate >= most && self.demand.recorded().is_none() {
            return Ok(None);
        }
        self.filled(rate, |requests, filling| self.summary(requests, filling))
    }

    fn summary(&self, requests: &[Request], filling: usize) -> Result<Option<Summary>, ServingError> {
        let (replica, limits) = (self.replica, self.limits);
        let run = match self.group {
            Group::Apart(pools) => pools.simulate_filled(replica, requests, limits, filling)?,
            Group::Alike(copies) => simulate_filled(replica, requests, Load::Open, limits, (copies, filling))?,
        };
        Ok(Summary::of(&run))
    }

    /// What comes of all requests at one time.
    fn burst(&self) -> Result<Option<Summary>, ServingError> {
        let requests = self.demand.at_rate(f64::INFINITY);
        let run = match self.group {
            Group::Apart(pools) => pools.simulate(self.replica, &requests, self.limits)?,
            Group::Alike(copies) => simulate_copies(self.replica, &requests, Load::Open, self.limits, copies)?,
        };
        let run = Run { of: Counted { from: 0, until: requests.len() }, counted: run.whole, ..run };
        // Whoever comes later waits longer, as long as there is anybody.
        Ok(Summary::of(&run).map(|summary| Summary { grows: false, ..summary }))
    }

    /// What comes of a rate once the replica is full: as many requests as that takes, where the demand has as many, of which
    /// none counts before.
    fn filled(
        &self,
        rate: f64,
        summary: impl Fn(&[Request], usize) -> Result<Option<Summary>, ServingError>,
    ) -> Result<Option<Summary>, ServingError> {
        let (few, most) = (self.demand.requests().len(), self.demand.most());
        let (mut many, mut filling) = (few, 0);
        for round in 0.. {
            let Some(found) = summary(&self.demand.many_at_rate(many, rate), filling)? else { return Ok(None) };
            let enough = Counted::of(many, Load::Open).from.max(filling);
            if round == AGAIN || (found.enough() <= many || many == most) && found.filling() <= enough {
                return Ok(Some(found));
            }
            // How many are under way is known the better the more there were.
            let more = |requests: usize| (requests as f64 * MARGIN).ceil() as usize;
            (many, filling) = (more(found.enough()).clamp(many, most), more(found.filling()));
        }
        Ok(None)
    }

    /// The highest rate that keeps a target, by halving, to a share of `most`, what is carried; `None` where not even a lone
    /// request keeps it. No rate is taken at which the queue still grows between the halves of the run: of more requests more
    /// would miss the target. A trace comes faster or slower as a whole, each request with its own lengths: what a replica
    /// carries of its mean lengths bounds nothing, and up to [`FASTEST`] times that is tried.
    ///
    /// # Errors
    /// As [`Self::most`].
    pub fn highest(&self, target: &Target, most: f64, resolution: f64) -> Result<Option<f64>, ServingError> {
        Ok(self.highest_kept(target, most, resolution)?.map(|(rate, _)| rate))
    }

    /// The same with what comes of that rate.
    pub(crate) fn highest_kept(
        &self,
        target: &Target,
        most: f64,
        resolution: f64,
    ) -> Result<Option<(f64, Summary)>, ServingError> {
        let (mut low, mut high) = (LONELY * most, most);
        let Some(mut kept) = self.kept(target, low, most)? else { return Ok(None) };
        while self.demand.recorded().is_some()
            && let Some(summary) = self.kept(target, high, most)?
        {
            (low, kept) = (high, summary);
            if high >= FASTEST * most {
                return Ok(Some((low, kept)));
            }
            high *= 2.0;
        }
        while high - low > resolution * most.max(low) {
            let middle = low + (high - low) / 2.0;
            match self.kept(target, middle, most)? {
                Some(summary) => (low, kept) = (middle, summary),
                None => high = middle,
            }
        }
        Ok(Some((low, kept)))
    }

    /// As [`Self::at`]; nothing where a target is not kept.
    fn kept(&self, target: &Target, rate: f64, most: f64) -> Result<Option<Summary>, ServingError> {
        let summary = match self.group {
            Group::Alike(copies) if rate < most || self.demand.recorded().is_some() => {
                self.filled(rate, |requests, filling| {
                    let run = simulate_kept(self.replica, requests, self.limits, (target, filling), copies)?;
                    Ok(run.as_ref().and_then(Summary::of))
                })?
            }
            _ => self.at(rate, most)?,
        };
        Ok(summary.filter(|summary| target.is_kept(summary) && !summary.grows))
    }
}

impl Service<'_> {
    fn with<'s>(&'s self, times: &'s Times) -> Steps<'s, Times> {
        Steps { replica: times, limits: &self.limits, demand: self.demand, group: self.group }
    }

    /// Requests a second that are carried at most: the least, where all steps take as long as their 95 % quantiles.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn carries(&self) -> Result<Estimate<f64>, ServingError> {
        if let (Group::Alike(copies), Some(Estimate { value, p05, p95 })) = (self.group, self.alone) {
            let all = |rate: f64| rate * copies.max(1) as f64;
            return Ok(Estimate { value: all(value), p05: all(p05), p95: all(p95) });
        }
        let most = |times| self.with(times).most();
        let StepTimes { low, value, high, .. } = self.times;
        Ok(within_ends(most(value)?, most(high)?, most(low)?))
    }

    /// Requests that come at so many a second, whatever the replica does.
    ///
    /// # Errors
    /// When one does not fit in the cache.
    pub fn open(&self, rate: f64) -> Result<Outlook, ServingError> {
        let most = self.carries()?;
        let value = self.with(&self.times.value).at(rate, most.value)?;
        self.with_ends(rate, most, value)
    }

    /// At a rate at which it is known what is most likely.
    fn with_ends(&self, rate: f64, most: Estimate<f64>, value: Option<Summary>) -> Result<Outlook, ServingError> {
        let StepTimes { low, high, .. } = self.times;
        let (low, high) = (self.with(low).at(rate, most.p95)?, self.with(high).at(rate, most.p05)?);
        Ok(Outlook { rate: Some(rate), most, value, low, high })
    }

    /// All requests at one time: every one of them counts, and so does the time until the last token.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn burst(&self) -> Result<Outlook, ServingError> {
        let StepTimes { low, value, high, .. } = self.times;
        let summary = |times| self.with(times).burst();
        let most = self.carries()?;
        Ok(Outlook { rate: None, most, value: summary(value)?, low: summary(low)?, high: summary(high)? })
    }

    /// So many users of replicas that are alike, each of whom sends the next request when the last one is answered.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn closed(&self, users: usize) -> Result<Outlook, ServingError> {
        let copies = match self.group {
            Group::Alike(copies) => copies,
            Group::Apart(_) => return Err(ServingError::Apart),
        };
        let requests = met_midway(self.demand.requests(), users);
        let summary = |times: &Times| {
            let run = simulate_copies(times, &requests, Load::Closed(users), &self.limits, copies)?;
            // No more than all of them wait.
            Ok::<_, ServingError>(Summary::of(&run).map(|summary| Summary { grows: false, ..summary }))
        };
        let StepTimes { low, value, high, .. } = self.times;
        let most = self.carries()?;
        Ok(Outlook { rate: None, most, value: summary(value)?, low: summary(low)?, high: summary(high)? })
    }

    /// The highest rate that keeps a target, by halving, the same with all steps at their 95 and 5 % quantiles, 0 where not
    /// even a lone request keeps it then, and what comes of that rate; `None` where none does as is most likely.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn within(&self, target: &Target) -> Result<Option<(Estimate<f64>, Outlook)>, ServingError> {
        let (StepTimes { low, value, high, .. }, most) = (self.times, self.carries()?);
        let Some((rate, kept)) = self.with(value).highest_kept(target, most.value, RESOLUTION)? else {
            return Ok(None);
        };
        let end = |times, most| {
            let highest = self.with(times).highest(target, most, RESOLUTION_OF_ENDS)?;
            Ok::<_, ServingError>(highest.unwrap_or(0.0))
        };
        let highest = within_ends(rate, end(high, most.p05)?, end(low, most.p95)?);
        Ok(Some((highest, self.with_ends(rate, most, Some(kept))?)))
    }
}

/// A value with the ends of its interval, none of which it lies beyond: halving finds one border of several.
fn within_ends(value: f64, low: f64, high: f64) -> Estimate<f64> {
    Estimate { value, p05: low.min(value), p95: high.max(value) }
}

/// How far into an answer the next user is met, in answers: multiples of the golden ratio lie apart from each other.
const APART: f64 = 0.618_033_988_749_895;

/// The same requests, but users are met while they are answered: who all began at once with answers of one length would stay in
/// step, and what counts would end within a wave.
fn met_midway(requests: &[Request], users: usize) -> Vec<Request> {
    let left = |i: usize, answer: u64| (answer as f64 * ((i as f64 + 0.5) * APART).fract()).ceil().max(1.0) as u64;
    let met = |(i, request): (usize, &Request)| match i < users {
        true => Request { answer: left(i, request.answer), ..*request },
        false => *request,
    };
    requests.iter().enumerate().map(met).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::{FILLINGS, Lengths, StepCost, StepWork};
    use joulecast_model::base::units::{Joules, Watts};

    /// Steps of a prompt's tokens alone.
    struct Prompts;

    impl Replica for Prompts {
        fn step(&self, work: &StepWork) -> StepCost {
            let time = Seconds::new(1e-5 * work.prompt_tokens() as f64);
            StepCost { time, prefill: Joules::ZERO, decode: Joules::ZERO, waiting: Joules::ZERO }
        }
        fn waiting(&self) -> Watts {
            Watts::new(1.0)
        }
    }

    /// One after the other, of 10 ms each: 100 a second are carried, whatever the target says.
    #[test]
    fn no_rate_is_taken_at_which_the_queue_grows() {
        let limits = Limits { tokens: u64::MAX, sequences: 1, chunked: false, ..Limits::AMPLE };
        let target = Target { to_first: Some(Seconds::new(60.0)), per_token: None, which: Which::P50 };
        for seed in 0..6 {
            let demand = Demand::poisson(4000, Lengths::Constant(1000), Lengths::Constant(1), seed);
            let steps = Steps { replica: &Prompts, limits: &limits, demand: &demand, group: Group::ONE };
            // Who believes that more is carried.
            let found = steps.highest(&target, 130.0, 1e-3).expect("runs").expect("kept");
            assert!((60.0..106.0).contains(&found), "{found}");
            let grows = steps.at(125.0, 130.0).expect("runs").expect("counts").grows;
            assert!(grows && !steps.at(70.0, 130.0).expect("runs").expect("counts").grows);
        }
    }

    /// One prompt of 1 s after nineteen of 10 ms: 17 of them a second are carried. Who waits for a second for the first token is
    /// nearly everybody where they come at one time, and nobody but those behind the long one where the trace has it last.
    #[test]
    fn a_trace_is_searched_by_its_own_times_and_lengths() {
        let limits = Limits { tokens: u64::MAX, sequences: 1, chunked: false, ..Limits::AMPLE };
        let target = Target { to_first: Some(Seconds::new(0.5)), per_token: None, which: Which::P90 };
        let trace = |long: usize| {
            let row = |i: usize| format!("{},{},1\n", 0.1 * i as f64, if i == long { 100_000 } else { 1000 });
            let rows: String = (0..20).map(row).collect();
            Demand::trace("t", &format!("time,prompt,answer\n{rows}")).expect("a trace")
        };
        let highest = |demand: &Demand| {
            let steps = Steps { replica: &Prompts, limits: &limits, demand, group: Group::ONE };
            let most = steps.most().expect("runs");
            assert!((10.0..25.0).contains(&most), "{most}");
            let found = steps.highest(&target, most, 1e-3).expect("runs").expect("kept");
            let at = |rate: f64| steps.at(rate, most).expect("runs").expect("counts").to_first.p90;
            assert!(at(found) <= Seconds::new(0.5), "{found}");
            (found, most)
        };
        let ((early, most), (late, _)) = (highest(&trace(1)), highest(&trace(19)));
        assert!(early < most && late > 4.0 * most, "{early} and {late} of {most}");
    }

    /// Steps of answers, each of which takes longer with all that run.
    struct Answers;

    impl Replica for Answers {
        fn step(&self, work: &StepWork) -> StepCost {
            let time = Seconds::new(1e-2 + 2e-5 * work.tokens() as f64);
            StepCost { time, prefill: Joules::ZERO, decode: Joules::new(1.0), waiting: Joules::ZERO }
        }
        fn waiting(&self) -> Watts {
            Watts::new(1.0)
        }
    }

    fn answers<'a>(limits: &'a Limits, demand: &'a Demand, copies: usize) -> Steps<'a, Answers> {
        Steps { replica: &Answers, limits, demand, group: Group::Alike(copies) }
    }

    /// Some 700 are under way: of 2000 the first tenth fills nothing.
    #[test]
    fn a_replica_is_full_before_any_request_counts() {
        let limits = Limits { sequences: 1024, ..Limits::AMPLE };
        let (prompt, answer) = (Lengths::Constant(10), Lengths::Constant(300));
        let of = |demand: &Demand, rate| answers(&limits, demand, 1).at(rate, 1e9).expect("runs").expect("counts");
        let (fixed, enough) = (Demand::poisson(2000, prompt, answer, 3), Demand::at_least(2000, prompt, answer, 3));
        let (short, found) = (of(&fixed, 100.0), of(&enough, 100.0));
        assert!(found.under_way() > 500.0, "{}", found.under_way());
        // As many tokens as requests ask for, which comes of nothing else.
        let share = |s: &Summary| s.tokens_per_s / (300.0 * s.requests_per_s);
        assert!((share(&found) - 1.0).abs() < 0.02 && share(&short) < 0.97, "{} {}", share(&found), share(&short));
        assert!(!found.is_short() && short.is_short(), "{} {}", found.span, short.span);
        let before = found.simulated as f64 * Counted::SHARE_BEFORE_LAST - found.requests as f64;
        let many = f64::from(FILLINGS) * found.under_way();
        assert!((0.9 * many..1.5 * many).contains(&before), "{before} of {}", found.simulated);
        assert_eq!((short.simulated, short.requests), (2000, 1300), "a quarter and a tenth do not count");
        // A light load stays as it is.
        let (few, light) = (of(&fixed, 5.0), of(&enough, 5.0));
        assert_eq!((few, light.requests), (light, 1600));
    }

    /// Long prompts come last, where none counts any more: not even of a replica that has every third request.
    #[test]
    fn what_does_not_count_ends_no_run_early() {
        let limits = Limits { sequences: 64, ..Limits::AMPLE };
        let row = |i: u32| format!("{},{},1\n", 0.1 * f64::from(i), if i < 550 { 10 } else { 5000 });
        let rows: String = (0..600).map(row).collect();
        let demand = Demand::trace("t.csv", &format!("time,prompt,answer\n{rows}")).expect("a trace");
        let target = Target { to_first: Some(Seconds::from_ms(40.0)), per_token: None, which: Which::P99 };
        for copies in [1, 3] {
            let kept = answers(&limits, &demand, copies).kept(&target, 10.0, 1e9).expect("runs");
            assert_eq!(kept.map(|summary| summary.requests), Some(480), "{copies}");
        }
    }

    /// By Little's law, and by tokens, what answers of one length come to; users in step count a wave more or less.
    #[test]
    fn rates_of_users_agree_with_their_latencies() {
        let limits = Limits { sequences: 1024, ..Limits::AMPLE };
        let demand = Demand::poisson(2700, Lengths::Constant(1024), Lengths::Constant(256), 1);
        for users in [200, 256] {
            let requests = met_midway(demand.requests(), users);
            let of = |requests: &[Request]| {
                let run = simulate_copies(&Answers, requests, Load::Closed(users), &limits, 1).expect("runs");
                let summary = Summary::of(&run).expect("counts");
                let rate = summary.requests_per_s;
                [users as f64 / summary.to_last.mean.get() / rate, summary.tokens_per_s / 256.0 / rate]
            };
            assert!(of(&requests).iter().all(|ratio| (ratio - 1.0).abs() < 0.005), "{:?}", of(&requests));
            assert!(
                of(demand.requests()).iter().any(|ratio| (ratio - 1.0).abs() > 0.015),
                "{:?}",
                of(demand.requests())
            );
            let shortened = requests.iter().filter(|request| request.answer < 256).count();
            assert!((users - 1..=users).contains(&shortened) && requests.len() == 2700);
        }
    }

    /// What a tight cache carries with a queue, not before: answers that are sent back are computed again.
    #[test]
    fn what_is_carried_at_most_lasts_with_a_queue() {
        let limits = Limits { sequences: 1024, tokens: 512, blocks: 500, ..Limits::AMPLE };
        let demand = Demand::poisson(9000, Lengths::Constant(40), Lengths::Constant(200), 3);
        let steps = answers(&limits, &demand, 1);
        let most = steps.most().expect("runs");
        let run = simulate_copies(&Answers, demand.requests(), Load::Closed(700), &limits, 1).expect("runs");
        let queued = Summary::of(&run).expect("counts");
        assert!(queued.preemptions > 0.05 && queued.queue > 100.0, "{} {}", queued.preemptions, queued.queue);
        assert!((most / queued.requests_per_s - 1.0).abs() < 0.03, "{most} {}", queued.requests_per_s);
        let grows = |share: f64| steps.at(share * most, 1e9).expect("runs").expect("counts").grows;
        assert!(grows(1.1) && !grows(0.95));
    }

    #[test]
    fn a_queue_that_grows_is_an_overload() {
        let limits = Limits { sequences: 1, ..Limits::AMPLE };
        let demand = Demand::poisson(2000, Lengths::Constant(1000), Lengths::Constant(1), 3);
        let steps = Steps { replica: &Prompts, limits: &limits, demand: &demand, group: Group::ONE };
        let most = Estimate { value: 130.0, p05: 130.0, p95: 130.0 };
        let of = |rate| {
            let value = steps.at(rate, most.value).expect("runs");
            Outlook { rate: Some(rate), most, value, low: None, high: None }.is_overloaded()
        };
        // Who believes that more is carried than the 100 that are.
        assert_eq!([70.0, 120.0, 140.0].map(of), [false, true, true]);
    }

    /// Whatever its mean lengths say is carried.
    #[test]
    fn a_trace_is_simulated_as_it_came() {
        let limits = Limits { sequences: 24, ..Limits::AMPLE };
        let of = |answer: u32| {
            let rows: String = (0..600).map(|i| format!("{},10,{answer}\n", 0.03 * f64::from(i))).collect();
            let demand = Demand::trace("t.csv", &format!("time,prompt,answer\n{rows}")).expect("a trace");
            let rate = demand.recorded().expect("a trace");
            let most = Estimate { value: rate / 2.0, p05: rate / 2.0, p95: rate / 2.0 };
            let value = answers(&limits, &demand, 1).at(rate, most.value).expect("runs");
            Outlook { rate: Some(rate), most, value, low: None, high: None }
        };
        // Seven of 24 sequences are busy with the first, some seventy were with the second.
        let (light, heavy) = (of(20), of(200));
        assert!(!light.is_overloaded() && light.value.expect("counts").to_first.p99 < Seconds::new(0.1));
        assert!(heavy.is_overloaded() && heavy.value.is_some());
    }

    #[test]
    fn of_a_burst_all_counts() {
        let limits = Limits { sequences: 50, ..Limits::AMPLE };
        let trace: String = (0..200).map(|_| "7,10,30\n").collect();
        let demand = Demand::trace("b.csv", &format!("time,prompt,answer\n{trace}")).expect("a trace");
        for copies in [1, 2] {
            let found = answers(&limits, &demand, copies).burst().expect("runs").expect("counts");
            assert_eq!((found.requests, found.simulated, found.grows), (200, 200, false));
            // Four waves of fifty, or two on each of two, of a step of prompts and 29 of a token each.
            let wave = 1e-2 + 2e-5 * 500.0 + 29.0 * (1e-2 + 2e-5 * 50.0);
            let span = 4.0 / copies as f64 * wave;
            assert!((found.span.get() / span - 1.0).abs() < 1e-9, "{} {span}", found.span);
            assert!((found.tokens_per_s * span / 6000.0 - 1.0).abs() < 1e-9 && found.busy > 0.999);
            assert!((found.to_last.p99.get() / span - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn what_may_end_early_finds_what_whole_runs_find() {
        let limits = Limits { sequences: 64, ..Limits::AMPLE };
        let demand = Demand::at_least(600, Lengths::Uniform(1, 200), Lengths::Uniform(1, 60), 3);
        for (copies, which) in [(1, Which::P90), (3, Which::P90), (3, Which::P50), (4, Which::Mean)] {
            let steps = answers(&limits, &demand, copies);
            let target =
                Target { to_first: Some(Seconds::from_ms(40.0)), per_token: Some(Seconds::from_ms(14.0)), which };
            let (mut kept, most) = (0, steps.most().expect("runs"));
            for share in 1..20 {
                let rate = most * f64::from(share) / 20.0;
                let whole = steps.at(rate, most).expect("runs").filter(|s| target.is_kept(s) && !s.grows);
                assert_eq!(steps.kept(&target, rate, most).expect("runs"), whole, "{copies} at {share}");
                kept += usize::from(whole.is_some());
            }
            assert!((1..19).contains(&kept), "{copies}: {kept}");
        }
    }

    #[test]
    fn a_value_lies_within_its_interval() {
        assert_eq!(within_ends(5.0, 6.0, 4.0), Estimate { value: 5.0, p05: 5.0, p95: 5.0 });
        assert_eq!(within_ends(5.0, 3.0, 8.0), Estimate { value: 5.0, p05: 3.0, p95: 8.0 });
    }
}
