//! A pool of replicas of a language model: what one carries within its targets, how many a rate needs, what they draw.
//!
//! Requests are divided among replicas by chance, so that each meets a Poisson stream of its part of the rate; what a replica
//! does of that is simulated ([`crate::serving`]) at a few shares of the highest rate that keeps the targets, and read
//! straight between them. Power bends downwards over the rate, as sequences share steps: between two rates rather less is said.

use super::fleet::Scenario;
use super::pool::{Limit, ROUNDING};
use crate::serving::{Demand, Group, Limits, Replica, ServingError, Split, StepCost, StepWork, Steps, Summary, Target};
use joulecast_model::base::units::{Joules, Seconds, Watts};
use joulecast_model::net::share::Layout;

/// A replica at a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplicaAt {
    /// Requests per second.
    pub rate_per_s: f64,
    /// Share of the time in steps.
    pub busy: f64,
    /// Until the first token, of the requests that the target speaks of.
    pub to_first: Seconds,
    /// For each token after it, of these; nothing where every answer has one.
    pub per_token: Option<Seconds>,
    /// Energy of a second of all GPUs, by what it was for, in joules.
    pub energy_per_s: Split,
}

impl ReplicaAt {
    fn of(rate_per_s: f64, summary: &Summary, target: &Target) -> Self {
        Self {
            rate_per_s,
            busy: summary.busy,
            to_first: summary.to_first.at(target.which),
            per_token: summary.per_token.map(|q| q.at(target.which)),
            energy_per_s: summary.energy_per_s,
        }
    }

    /// So far on the way to another one.
    fn towards(&self, other: &Self, share: f64) -> Self {
        let between = |a: f64, b: f64| a + (b - a) * share;
        let seconds = |a: Seconds, b: Seconds| Seconds::new(between(a.get(), b.get()));
        let joules = |of: fn(&Split) -> Joules| {
            Joules::new(between(of(&self.energy_per_s).get(), of(&other.energy_per_s).get()))
        };
        Self {
            rate_per_s: between(self.rate_per_s, other.rate_per_s),
            busy: between(self.busy, other.busy),
            to_first: seconds(self.to_first, other.to_first),
            per_token: self.per_token.zip(other.per_token).map(|(a, b)| seconds(a, b)),
            energy_per_s: Split {
                prefill: joules(|s| s.prefill),
                decode: joules(|s| s.decode),
                idle: joules(|s| s.idle),
            },
        }
    }

    /// Mean power of all its GPUs.
    pub fn power(&self) -> Watts {
        Watts::new(self.energy_per_s.total().get())
    }
}

/// Shares of the highest rate at which a replica is simulated beside that, and half of the least of them, and so on, so often or until it
/// is busy for no more than this share of the time: below power goes straight to that of waiting.
const SHARES: [f64; 4] = [0.125, 0.25, 0.5, 0.75];
const HALVED: usize = 8;
const QUIET: f64 = 0.25;
/// Requests of such lone times, in which one takes as many steps as hundreds otherwise take together.
const FEW: usize = 500;
/// The highest rate is found to this share of what is carried.
const RESOLUTION: f64 = 1.0 / 256.0;

/// A replica on a layout, at rates up to the highest that keeps its target.
#[derive(Clone, Debug, PartialEq)]
pub struct Carrier {
    /// GPUs that share it.
    pub layout: Layout,
    /// Requests per second that it carries at most, whatever they wait.
    pub most_per_s: f64,
    /// At rising rates, nothing first; at least two.
    at: Vec<ReplicaAt>,
}

impl Carrier {
    /// Simulates a replica on a layout; `None` where not even a lone request keeps the target, or where the replica carries no
    /// more than `least` requests a second, whatever they wait.
    ///
    /// # Errors
    /// When a request does not fit in the cache.
    pub fn of(
        layout: Layout,
        steps: &Steps<'_, impl Replica>,
        target: &Target,
        least: f64,
    ) -> Result<Option<Self>, ServingError> {
        let most_per_s = steps.most()?;
        if most_per_s <= least {
            return Ok(None);
        }
        let Some((highest, there)) = steps.highest_kept(target, most_per_s, RESOLUTION)? else { return Ok(None) };
        let mut at: Vec<ReplicaAt> = Vec::new();
        for share in SHARES {
            if let Some(summary) = steps.at(share * highest, most_per_s)? {
                at.push(ReplicaAt::of(share * highest, &summary, target));
            }
        }
        at.push(ReplicaAt::of(highest, &there, target));
        let few = steps.demand.first(FEW);
        let lone = Steps { demand: &few, ..*steps };
        for _ in 0..HALVED {
            let Some(rate) = at.first().filter(|at| at.busy > QUIET).map(|at| at.rate_per_s / 2.0) else { break };
            let Some(summary) = lone.at(rate, most_per_s)? else { break };
            at.insert(0, ReplicaAt::of(rate, &summary, target));
        }
        // Of a request that comes now and then: what the least rate says, but for power.
        let idle = Joules::new(steps.replica.waiting().get());
        let Some(first) = at.first() else { return Ok(None) };
        let energy_per_s = Split { idle, ..Split::default() };
        at.insert(0, ReplicaAt { rate_per_s: 0.0, busy: 0.0, energy_per_s, ..*first });
        Ok(Some(Self { layout, most_per_s, at }))
    }

    /// The highest rate that keeps the target, requests per second.
    pub fn highest(&self) -> f64 {
        self.at.last().map_or(0.0, |at| at.rate_per_s)
    }

    /// Mean power of a GPU while it computes, at the highest rate.
    pub fn busy_power(&self) -> Watts {
        let computing = |at: &ReplicaAt| (at.energy_per_s.prefill + at.energy_per_s.decode).get() / at.busy;
        Watts::new(self.at.last().map_or(0.0, computing) / self.layout.gpus() as f64)
    }

    /// At a rate, no higher than the highest.
    pub fn at(&self, rate: f64) -> ReplicaAt {
        let above = self.at.partition_point(|at| at.rate_per_s < rate).min(self.at.len() - 1);
        let Some(below) = above.checked_sub(1) else { return self.at[above] };
        let (low, high) = (&self.at[below], &self.at[above]);
        low.towards(high, ((rate - low.rate_per_s) / (high.rate_per_s - low.rate_per_s)).min(1.0))
    }

    /// What so many of these carry as have the GPUs of one on another layout; `None` where that is no multiple of theirs.
    fn instead_of(&self, layout: Layout) -> Option<f64> {
        let (own, other) = (self.layout.gpus(), layout.gpus());
        (other > own && other.is_multiple_of(own)).then(|| self.highest() * (other / own) as f64)
    }
}

/// The same steps, each so many times as long at the same power.
#[derive(Clone, Copy, Debug)]
pub struct Slower<'a, R> {
    /// Whose steps.
    pub replica: &'a R,
    /// So many times.
    pub factor: f64,
}

impl<R> Slower<'_, R> {
    fn slowed(&self, StepCost { time, prefill, decode, waiting }: StepCost) -> StepCost {
        let by = self.factor;
        StepCost { time: time * by, prefill: prefill * by, decode: decode * by, waiting: waiting * by }
    }
}

impl<R: Replica> Replica for Slower<'_, R> {
    fn step(&self, work: &StepWork) -> StepCost {
        self.slowed(self.replica.step(work))
    }

    fn stages(&self) -> usize {
        self.replica.stages()
    }

    fn stage(&self, stage: usize, work: &StepWork) -> StepCost {
        self.slowed(self.replica.stage(stage, work))
    }

    fn growing(&self, work: &StepWork, mut each: impl FnMut(StepCost) -> bool) {
        self.replica.growing(work, |cost| each(self.slowed(cost)));
    }

    fn waiting(&self) -> Watts {
        self.replica.waiting()
    }
}

/// What is asked of replicas on every layout.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// What comes.
    pub demand: &'a Demand,
    /// What it may take.
    pub target: &'a Target,
}

impl Wanted<'_> {
    /// Replicas that are of use, of layouts with rising GPUs: one of more GPUs carries more for each of them than all of fewer
    /// do, by whose number its own divides.
    ///
    /// # Errors
    /// When a request does not fit in the cache of one.
    pub fn carriers<'r, R: Replica + 'r>(
        &self,
        replicas: impl Iterator<Item = (Layout, Limits, &'r R)>,
    ) -> Result<Vec<Carrier>, ServingError> {
        let mut found: Vec<Carrier> = Vec::new();
        for (layout, limits, replica) in replicas {
            let least = found.iter().filter_map(|known| known.instead_of(layout)).fold(0.0, f64::max);
            let steps = Steps { replica, limits: &limits, demand: self.demand, group: Group::ONE };
            let carrier = Carrier::of(layout, &steps, self.target, least)?;
            found.extend(carrier.filter(|carrier| carrier.highest() > least));
        }
        Ok(found)
    }
}

/// A language model's replicas on a board, of all layouts that are of use; none where no layout keeps the target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Carriers {
    /// All steps at the 5 % quantiles of time and energy.
    pub low: Vec<Carrier>,
    /// Most likely.
    pub value: Vec<Carrier>,
    /// All at the 95 % quantiles.
    pub high: Vec<Carrier>,
    /// Most likely, with targets a tenth tighter and looser; none where that was not asked for.
    pub targets: Option<[Vec<Carrier>; 2]>,
    /// Most likely, with steps a tenth shorter and longer; none where that was not asked for.
    pub steps: Option<[Vec<Carrier>; 2]>,
}

impl Carriers {
    /// Those at an end of the predictions' intervals.
    pub(super) fn of(&self, scenario: Scenario) -> &[Carrier] {
        match scenario {
            Scenario::Low => &self.low,
            Scenario::Value => &self.value,
            Scenario::High => &self.high,
        }
    }

    /// All of them, changed.
    pub(super) fn each(&mut self, change: impl Fn(&mut Split)) {
        for list in [&mut self.low, &mut self.value, &mut self.high] {
            list.iter_mut().flat_map(|carrier| &mut carrier.at).for_each(|at| change(&mut at.energy_per_s));
        }
    }
}

/// What comes of a language model's requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Requests {
    /// Per second at the worst moment.
    pub peak_per_s: f64,
    /// Per second through the day, in equal parts of it.
    pub profile_per_s: Vec<f64>,
}

/// Replicas that serve a language model.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaPool {
    /// GPUs that share each.
    pub layout: Layout,
    /// So many.
    pub replicas: u64,
    /// The highest rate that one keeps the target at, requests per second.
    pub highest_per_s: f64,
    /// Each of them at the peak.
    pub peak: ReplicaAt,
    /// Energy of a second of all of them, in the mean over the day, in joules.
    pub energy_per_s: Split,
    /// What keeps it from being smaller.
    pub limit: Limit,
}

impl ReplicaPool {
    /// Its GPUs.
    pub fn gpus(&self) -> u64 {
        self.replicas * self.layout.gpus()
    }

    /// Mean power of all its boards at the peak.
    pub fn power(&self) -> Watts {
        self.peak.power() * self.replicas as f64
    }
}

/// Replicas through the day.
pub(super) struct Sized {
    pub pool: ReplicaPool,
    /// Each replica in every part of the day.
    pub day: Vec<ReplicaAt>,
}

/// A replica that is bound by its target carries less than this share of what it could.
const BOUND: f64 = 0.98;

/// The smallest pool for requests; among equally small ones the thriftiest at the peak. `None` where no replica keeps the
/// target. `busiest`: share of the highest rate that comes to each at most.
pub(super) fn size(carriers: &[Carrier], requests: &Requests, busiest: f64) -> Option<Sized> {
    let rate = requests.peak_per_s;
    let sized = carriers.iter().filter(|carrier| carrier.highest() > 0.0).map(|carrier| {
        // What a rounding leaves over is no replica.
        let replicas = ((rate / (busiest * carrier.highest()) * (1.0 - ROUNDING)).ceil() as u64).max(1);
        (carrier, replicas, carrier.at(rate / replicas as f64))
    });
    let gpus = |(carrier, replicas, _): &(&Carrier, u64, ReplicaAt)| replicas * carrier.layout.gpus();
    let watts = |(_, replicas, at): &(&Carrier, u64, ReplicaAt)| at.power().get() * *replicas as f64;
    let best = sized.min_by(|a, b| gpus(a).cmp(&gpus(b)).then(watts(a).total_cmp(&watts(b))));
    let (carrier, replicas, peak) = best?;
    let limit = match replicas * carrier.layout.gpus() {
        1 => Limit::OneGpu,
        _ if replicas == 1 => Limit::OneReplica,
        _ if carrier.highest() < BOUND * carrier.most_per_s => Limit::Latency,
        _ => Limit::Throughput,
    };
    let day: Vec<ReplicaAt> = requests.profile_per_s.iter().map(|r| carrier.at(r / replicas as f64)).collect();
    let mean = |of: fn(&Split) -> Joules| {
        day.iter().map(|at| of(&at.energy_per_s)).sum::<Joules>() * (replicas as f64 / day.len() as f64)
    };
    let energy_per_s = Split { prefill: mean(|s| s.prefill), decode: mean(|s| s.decode), idle: mean(|s| s.idle) };
    let highest_per_s = carrier.highest();
    let pool = ReplicaPool { layout: carrier.layout, replicas, highest_per_s, peak, energy_per_s, limit };
    Some(Sized { pool, day })
}

#[cfg(test)]
mod tests {
    use super::super::fleet::testing::{board, load};
    use super::super::{Assumptions, Board, CHANGES, Fleet, Input, Misfit, plan_fleet, sensitivity};
    use super::*;
    use crate::serving::{Lengths, Load, Which, simulate};
    use proptest::prelude::*;

    /// Steps of a cost that a pencil gives, on so many GPUs at so many times the speed.
    #[derive(Clone, Copy)]
    struct Toy {
        gpus: f64,
        speed: f64,
    }

    impl Replica for Toy {
        fn step(&self, work: &StepWork) -> StepCost {
            let prompts = 1e-4 * work.prompt_tokens() as f64 / self.speed;
            let decodes = (5e-3 * f64::from(u8::from(work.decodes > 0)) + 1e-4 * work.decodes as f64) / self.speed;
            StepCost {
                time: Seconds::new(prompts + decodes),
                prefill: Joules::new(500.0 * self.gpus * prompts),
                decode: Joules::new(300.0 * self.gpus * decodes),
                waiting: Joules::ZERO,
            }
        }

        fn waiting(&self) -> Watts {
            Watts::new(100.0 * self.gpus)
        }
    }

    const ONE: Toy = Toy { gpus: 1.0, speed: 1.0 };
    const LIMITS: Limits = Limits { tokens: 2048, sequences: 64, blocks: 100_000, ..Limits::AMPLE };

    fn target(to_first_ms: f64, per_token_ms: Option<f64>) -> Target {
        let per_token = per_token_ms.map(Seconds::from_ms);
        Target { to_first: Some(Seconds::from_ms(to_first_ms)), per_token, which: Which::P90 }
    }

    fn demand(answer: u64) -> Demand {
        Demand::poisson(1500, Lengths::Uniform(100, 300), Lengths::Constant(answer), 7)
    }

    fn carriers(toys: &[(u64, Toy)], demand: &Demand, target: &Target) -> Vec<Carrier> {
        let replica = |(gpus, toy): &'_ (u64, Toy)| (Layout::new(*gpus, 1, 1, None).expect("a layout"), LIMITS, *toy);
        let replicas: Vec<(Layout, Limits, Toy)> = toys.iter().map(replica).collect();
        let all = replicas.iter().map(|(layout, limits, toy)| (*layout, *limits, toy));
        Wanted { demand, target }.carriers(all).expect("fits")
    }

    fn of(toys: &[(u64, Toy)], target: &Target) -> Carriers {
        let demand = demand(20);
        let at = |time: f64| {
            let slower: Vec<(u64, Toy)> =
                toys.iter().map(|(gpus, toy)| (*gpus, Toy { speed: toy.speed / time, ..*toy })).collect();
            carriers(&slower, &demand, target)
        };
        Carriers { low: at(0.8), value: at(1.0), high: at(1.25), ..Carriers::default() }
    }

    fn near(found: f64, expected: f64, share: f64, what: &str) {
        assert!((found / expected - 1.0).abs() < share, "{what}: {found}, expected {expected}");
    }

    /// A fleet of a language model alone.
    fn alone(carriers: &Carriers, peak_per_s: f64, profile_per_s: &[f64]) -> Result<Fleet, Misfit> {
        let languages = vec![Requests { peak_per_s, profile_per_s: profile_per_s.to_vec() }];
        let load = Assumptions {
            peak_per_s: 0.0,
            profile_per_s: vec![0.0; profile_per_s.len()],
            target: None,
            shares: Vec::new(),
            languages,
            ..load()
        };
        plan_fleet(&just(carriers), &load, Scenario::Value)
    }

    fn just(carriers: &Carriers) -> Board {
        Board { services: Vec::new(), more_fit: Vec::new(), languages: vec![carriers.clone()], ..board() }
    }

    /// Prompts of one length, served one at a time, are M/D/1: mean wait r t / (2 (1 - r)) (Pollaczek 1930, Khinchine 1932), so
    /// that a mean of 1.5 t until the first token is kept up to r = 1/2; energy is of the share of time that is busy.
    #[test]
    fn replicas_of_prompts_alone_are_as_many_as_a_queue_of_one_server_says() {
        let (tokens, time) = (200, 0.02);
        let demand = Demand::poisson(60_000, Lengths::Constant(tokens), Lengths::Constant(1), 3);
        let target = Target { to_first: Some(Seconds::new(1.5 * time)), per_token: None, which: Which::Mean };
        let single = Limits { tokens: u64::MAX, sequences: 1, blocks: u64::MAX / 16, chunked: false, ..Limits::AMPLE };
        let all = [(Layout::ALONE, single, &ONE)];
        let found = Wanted { demand: &demand, target: &target }.carriers(all.into_iter()).expect("fits");
        let [carrier] = &found[..] else { panic!("one") };
        near(carrier.highest(), 0.5 / time, 0.02, "the highest rate");
        near(carrier.most_per_s, 1.0 / time, 0.02, "what it carries");
        // Ten times what one carries within the target, and a bit.
        let rate = 10.2 * carrier.highest();
        let carriers = Carriers { value: found.clone(), ..Carriers::default() };
        let fleet = alone(&carriers, rate, &[rate / 2.0, 0.0]).expect("a fleet");
        let pool = &fleet.languages[0];
        assert_eq!((pool.replicas, fleet.gpus, pool.limit), (11, 11, Limit::Latency));
        let busy = rate / 11.0 * time;
        near(pool.peak.busy, busy, 0.02, "busy");
        near(pool.peak.to_first.get(), time + busy * time / (2.0 * (1.0 - busy)), 0.02, "first token");
        near(pool.power().get(), 11.0 * (500.0 * busy + 100.0 * (1.0 - busy)), 0.02, "power");
        // Through a day: half of it at half of the peak, half of it with nothing to do.
        let mean = pool.energy_per_s;
        near(mean.prefill.get(), 500.0 * (rate / 2.0) * time / 2.0, 0.02, "prompts");
        near(mean.idle.get(), 100.0 * (11.0 - (rate / 2.0) * time / 2.0), 0.02, "idle");
        assert!(mean.decode.get().abs() < 1e-9 && pool.peak.per_token.is_none());
        let servers = fleet.servers as f64;
        near(fleet.facility_mean.get(), 1.4 * (mean.total().get() + 400.0 * servers), 1e-9, "the facility");
        near(fleet.day[0].busy, (rate / 2.0) * time, 0.02, "busy GPUs");
        assert_eq!((fleet.day[1].busy, fleet.day[1].rate_per_s), (0.0, 0.0));
        near(fleet.requests_per_year, rate / 4.0 * 31_536_000.0, 1e-12, "requests");
    }

    #[test]
    fn replicas_are_no_busier_than_they_may_be() {
        let carriers = of(&[(1, ONE)], &target(300.0, Some(20.0)));
        let rate = 7.5 * carriers.value[0].highest();
        let requests = Requests { peak_per_s: rate, profile_per_s: vec![rate] };
        let replicas = |busiest| size(&carriers.value, &requests, busiest).map(|sized| sized.pool.replicas);
        assert_eq!([1.0, 0.75, 0.5].map(replicas), [Some(8), Some(10), Some(15)]);
    }

    #[test]
    fn between_the_rates_that_are_simulated_is_what_simulations_say() {
        let (demand, target) = (demand(60), target(300.0, Some(20.0)));
        let found = carriers(&[(1, ONE)], &demand, &target);
        let carrier = &found[0];
        for share in [0.01, 0.05, 0.18, 0.4, 0.6, 0.9] {
            let rate = share * carrier.highest();
            let run = simulate(&ONE, &demand.at_rate(rate), Load::Open, &LIMITS).expect("runs");
            let summary = Summary::of(&run).expect("counts");
            let found = carrier.at(rate);
            near(found.power().get(), summary.power.get(), 0.03, "power");
            near(found.busy, summary.busy, 0.06, "busy");
            assert!(found.to_first >= summary.to_first.p90 * 0.97 && found.per_token <= Some(Seconds::from_ms(20.0)));
        }
        let nothing = carrier.at(0.0);
        assert_eq!((nothing.power(), nothing.busy), (Watts::new(100.0), 0.0));
        let (last, beyond) = (carrier.at(carrier.highest()), carrier.at(2.0 * carrier.highest()));
        assert!(last == beyond && last.to_first <= Seconds::from_ms(300.0));
    }

    #[test]
    fn replicas_of_more_gpus_are_taken_where_they_save_some_or_where_alone_they_keep_the_target() {
        // Two GPUs are 1.6 times as fast, four 2.2 times.
        let toys =
            [1, 2, 4].map(|gpus| (gpus, Toy { gpus: gpus as f64, speed: [0.0, 1.0, 1.6, 0.0, 2.2][gpus as usize] }));
        let layouts =
            |target: &Target| -> Vec<u64> { of(&toys, target).value.iter().map(|c| c.layout.gpus()).collect() };
        assert_eq!(layouts(&target(2000.0, None)), [1], "the others carry less for each GPU");
        assert_eq!(layouts(&target(2000.0, Some(4.0)))[0], 2, "one GPU takes 5 ms for a token");
        assert_eq!(layouts(&target(2000.0, Some(2.5))), [4]);
        assert!(layouts(&target(2000.0, Some(1.0))).is_empty());
        let none = of(&toys, &target(2000.0, Some(1.0)));
        assert_eq!(alone(&none, 5.0, &[5.0]).map(|f| f.gpus), Err(Misfit::Latency));
        let four = alone(&of(&toys, &target(2000.0, Some(2.5))), 0.5, &[0.5]).expect("a fleet");
        assert_eq!((four.gpus, four.languages[0].limit), (4, Limit::OneReplica));
        let one = alone(&of(&toys, &target(2000.0, None)), 0.5, &[0.5]).expect("a fleet");
        assert_eq!((one.gpus, one.languages[0].limit), (1, Limit::OneGpu));
        let many = alone(&of(&toys, &target(60_000.0, None)), 500.0, &[500.0]).expect("a fleet");
        assert_eq!(many.languages[0].limit, Limit::Throughput, "nobody waits for long");
    }

    #[test]
    fn networks_and_language_models_share_servers_power_and_cost() {
        let carriers = of(&[(1, ONE)], &target(300.0, Some(20.0)));
        let requests = Requests { peak_per_s: 400.0, profile_per_s: vec![100.0, 300.0] };
        let both = Board { languages: vec![carriers.clone()], ..board() };
        let of_both = Assumptions { languages: vec![requests], ..load() };
        for scenario in [Scenario::Low, Scenario::Value, Scenario::High] {
            let mixed = plan_fleet(&both, &of_both, scenario).expect("a fleet");
            let networks = plan_fleet(&board(), &load(), scenario).expect("a fleet");
            let pool = &mixed.languages[0];
            assert_eq!((mixed.gpus, &mixed.pools), (networks.gpus + pool.gpus(), &networks.pools));
            assert_eq!(mixed.servers, mixed.gpus.div_ceil(4));
            let boards = networks.it_peak - Watts::new(400.0) * networks.servers as f64 + pool.power();
            near(mixed.it_peak.get(), (boards + Watts::new(400.0) * mixed.servers as f64).get(), 1e-12, "at peak");
            near(mixed.requests_per_year, networks.requests_per_year * 600.0 / 400.0, 1e-12, "requests");
            let busy = |fleet: &Fleet| fleet.day.iter().map(|part| part.busy).collect::<Vec<_>>();
            assert!(busy(&mixed).iter().zip(busy(&networks)).all(|(a, b)| *a > b + 1.0));
        }
        let at = |scenario| plan_fleet(&both, &of_both, scenario).map_or(0, |f| f.languages[0].gpus());
        assert!(at(Scenario::Low) <= at(Scenario::Value) && at(Scenario::Value) <= at(Scenario::High));
        assert!(at(Scenario::Low) < at(Scenario::High));
    }

    #[test]
    fn an_input_that_changes_changes_replicas_too() {
        let (demand, kept) = (demand(20), target(200.0, Some(12.0)));
        let mut carriers = of(&[(1, ONE)], &kept);
        let otherwise = |of: &dyn Fn(f64) -> Vec<Carrier>| Some(CHANGES.map(of));
        let by = |factor: f64| target(200.0 * factor, Some(12.0 * factor));
        carriers.targets = otherwise(&|factor| super::tests::carriers(&[(1, ONE)], &demand, &by(factor)));
        carriers.steps = otherwise(&|factor| {
            let slower = Slower { replica: &ONE, factor };
            let all = [(Layout::ALONE, LIMITS, &slower)].into_iter();
            Wanted { demand: &demand, target: &kept }.carriers(all).expect("fits")
        });
        let languages = vec![Requests { peak_per_s: 3000.0, profile_per_s: vec![500.0, 2000.0] }];
        let load = Assumptions {
            target: None,
            shares: Vec::new(),
            peak_per_s: 0.0,
            profile_per_s: vec![0.0; 2],
            languages,
            ..load()
        };
        let base = plan_fleet(&just(&carriers), &load, Scenario::Value).expect("a fleet");
        for change in sensitivity(&just(&carriers), &load, [None, None]) {
            let Some((less, more)) = change.less.zip(change.more) else {
                assert_eq!(change.input, Input::Setting);
                continue;
            };
            let rises = |value: fn(&Fleet) -> f64| value(&less) < value(&base) && value(&base) < value(&more);
            match change.input {
                Input::Load | Input::StepTime => assert!(rises(|f| f.gpus as f64), "{}", change.input),
                Input::Latency => assert!(less.gpus > base.gpus && base.gpus > more.gpus),
                Input::StepEnergy => {
                    assert!(rises(|f| f.languages[0].energy_per_s.decode.get()) && base.gpus == more.gpus);
                    assert_eq!(less.languages[0].energy_per_s.idle, more.languages[0].energy_per_s.idle);
                }
                Input::WaitingPower => {
                    assert!(rises(|f| f.languages[0].energy_per_s.idle.get()));
                    assert_eq!(less.languages[0].energy_per_s.prefill, more.languages[0].energy_per_s.prefill);
                }
                _ => assert!(less.gpus == base.gpus && base.gpus == more.gpus),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// More requests need no fewer GPUs, and no less power; a looser target no more GPUs.
        #[test]
        fn more_requests_need_no_fewer_gpus_and_looser_targets_no_more(
            rate in 1.0f64..300.0, more in 1.0f64..3.0, ms in 100.0f64..400.0, looser in 1.0f64..3.0,
        ) {
            let toys = [(1, ONE), (2, Toy { gpus: 2.0, speed: 1.8 })];
            let demand = Demand::poisson(400, Lengths::Uniform(100, 300), Lengths::Constant(20), 5);
            let within = |ms: f64| {
                let value = carriers(&toys, &demand, &target(ms, Some(ms / 20.0)));
                Carriers { value, ..Carriers::default() }
            };
            let (tight, loose) = (within(ms), within(ms * looser));
            let at = |carriers: &Carriers, rate: f64| alone(carriers, rate, &[0.3 * rate, rate]);
            if let Ok(few) = at(&tight, rate) {
                let many = at(&tight, rate * more).expect("as well");
                prop_assert!(many.gpus >= few.gpus && many.facility_peak.get() >= few.facility_peak.get() * 0.98);
                let free = at(&loose, rate).expect("as well");
                prop_assert!(free.gpus <= few.gpus && free.cost_per_year <= few.cost_per_year * 1.02);
            }
        }
    }
}
