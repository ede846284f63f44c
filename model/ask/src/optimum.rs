//! Which of several operating points is best, which are as good, which are worth a look, and a clock for every layer.

use crate::metric::{Metric, Reference};
use joulecast_model::base::units::{Joules, Seconds};

/// Points whose metrics differ by less are tied: predicted curves of time and energy under limits are off by 2 to 4 % on
/// average (reports/published/power.md).
pub const TIED: f64 = 0.02;

/// What a choice costs, per step or per sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Time.
    pub time: Seconds,
    /// Energy.
    pub energy: Joules,
}

/// What comparing came to; indices into the costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optimum {
    /// The least metric.
    pub best: usize,
    /// All whose metric is within [`TIED`] of it, fastest first.
    pub tied: Vec<usize>,
    /// Those that no other beats in both time and energy, fastest first.
    pub front: Vec<usize>,
}

/// Compares costs that may be chosen; `None` where none may. `limit`: the longest time allowed.
pub fn choose(costs: &[Cost], metric: Metric, reference: &Reference, limit: Option<Seconds>) -> Option<Optimum> {
    let allowed = |i: &usize| limit.is_none_or(|limit| costs[*i].time <= limit);
    let value = |i: usize| metric.of(costs[i].time, costs[i].energy, reference);
    let candidates: Vec<usize> = (0..costs.len()).filter(allowed).collect();
    let best = candidates.iter().copied().min_by(|&a, &b| value(a).total_cmp(&value(b)))?;
    let fastest = |list: &mut Vec<usize>| list.sort_by(|&a, &b| costs[a].time.get().total_cmp(&costs[b].time.get()));
    let mut tied: Vec<usize> = candidates.iter().copied().filter(|&i| value(i) <= value(best) * (1.0 + TIED)).collect();
    fastest(&mut tied);
    let points: Vec<(f64, f64)> = costs.iter().map(|c| (c.time.get(), c.energy.get())).collect();
    Some(Optimum { best, tied, front: front(&points) })
}

/// Points that no other is below in both of their figures, by rising first.
pub fn front(points: &[(f64, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|&a, &b| points[a].0.total_cmp(&points[b].0).then(points[a].1.total_cmp(&points[b].1)));
    let mut front: Vec<usize> = Vec::new();
    for i in order {
        if front.last().is_none_or(|&j| points[i].1 < points[j].1) {
            front.push(i);
        }
    }
    front
}

/// A choice per layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Index of the clock of every layer.
    pub clocks: Vec<usize>,
    /// Changes of clock in a step, that from the last layer to the first of the next step included.
    pub switches: usize,
    /// Of the step, its changes included.
    pub cost: Cost,
}

/// Rounds of looking for the weight of time.
const ROUNDS: usize = 40;

/// The clock of every layer with which a step's metric is least. `costs[c][l]`: layer l at clock c. A change of clock takes
/// `switch` of time and energy. `None` without clocks or layers.
///
/// For energy plus a weight times time, the best plan is found exactly, layer by layer (dynamic programming); products of
/// energy and time are followed by the weight at which they have that plan's slope; a limit on time by a larger weight.
pub fn per_layer(
    costs: &[Vec<Cost>],
    switch: Cost,
    metric: Metric,
    reference: &Reference,
    limit: Option<Seconds>,
) -> Option<Plan> {
    let layers = costs.first()?.len();
    if layers == 0 || costs.iter().any(|c| c.len() != layers) {
        return None;
    }
    let value = |plan: &Plan| metric.of(plan.cost.time, plan.cost.energy, reference);
    let slope = |plan: &Plan| match metric {
        Metric::Energy => 0.0,
        Metric::Time => f64::INFINITY,
        Metric::Edp => (plan.cost.energy / plan.cost.time).get(),
        Metric::Ed2p => 2.0 * (plan.cost.energy / plan.cost.time).get(),
        Metric::Eds(k) => (reference.energy / reference.time).get() / (k - 1.0),
    };
    let thriftiest = singles(costs).min_by(|a, b| a.cost.energy.get().total_cmp(&b.cost.energy.get()))?;
    let mut best = weighted(costs, switch, slope(&thriftiest));
    for _ in 0..ROUNDS {
        let next = weighted(costs, switch, slope(&best));
        if value(&next) >= value(&best) {
            break;
        }
        best = next;
    }
    // Weights find plans on the convex hull; one clock for all may lie between them.
    let allowed = |plan: &Plan| limit.is_none_or(|l| plan.cost.time <= l);
    let or_single = |plan: Option<Plan>| {
        plan.into_iter().chain(singles(costs)).filter(&allowed).min_by(|a, b| value(a).total_cmp(&value(b)))
    };
    let Some(limit) = limit.filter(|l| best.cost.time > *l) else { return or_single(Some(best)) };
    let power = (reference.energy / reference.time).get();
    let (mut low, mut high) = (slope(&best).min(1e6 * power), 1e6 * power);
    let mut within = weighted(costs, switch, f64::INFINITY);
    for _ in 0..ROUNDS {
        let middle = (low * high).sqrt().max(low + 1e-9 * power).max(1e-6 * power);
        let plan = weighted(costs, switch, middle);
        if plan.cost.time <= limit { (within, high) = (plan, middle) } else { low = middle }
    }
    or_single(Some(within))
}

/// The plans with one clock for all.
fn singles(costs: &[Vec<Cost>]) -> impl Iterator<Item = Plan> {
    costs.iter().enumerate().map(|(c, layers)| Plan {
        clocks: vec![c; layers.len()],
        switches: 0,
        cost: Cost { time: layers.iter().map(|l| l.time).sum(), energy: layers.iter().map(|l| l.energy).sum() },
    })
}

/// The plan with the least energy plus `weight` (W) times time. The step repeats: its first clock is tried in turn, and
/// coming back to it costs a change.
fn weighted(costs: &[Vec<Cost>], switch: Cost, weight: f64) -> Plan {
    let score = |cost: &Cost| {
        if weight.is_finite() { cost.energy.get() + weight * cost.time.get() } else { cost.time.get() }
    };
    let change = score(&switch);
    let layers = costs[0].len();
    let at: Vec<Vec<f64>> = (0..layers).map(|l| costs.iter().map(|c| score(&c[l])).collect()).collect();
    let mut best: Option<(f64, Vec<usize>)> = None;
    for first in 0..costs.len() {
        let mut total: Vec<f64> =
            at[0].iter().enumerate().map(|(c, s)| if c == first { *s } else { f64::INFINITY }).collect();
        let mut from: Vec<Vec<usize>> = Vec::with_capacity(layers);
        for scores in &at[1..] {
            let cheapest = (0..total.len()).min_by(|&a, &b| total[a].total_cmp(&total[b])).unwrap_or(0);
            let came: Vec<usize> =
                (0..total.len()).map(|c| if total[c] <= total[cheapest] + change { c } else { cheapest }).collect();
            let next = came
                .iter()
                .zip(scores)
                .enumerate()
                .map(|(c, (&came, score))| total[came] + if came == c { 0.0 } else { change } + score);
            total = next.collect();
            from.push(came);
        }
        let closed = |c: usize| total[c] + if c == first { 0.0 } else { change };
        let mut clock = (0..total.len()).min_by(|&a, &b| closed(a).total_cmp(&closed(b))).unwrap_or(0);
        if best.as_ref().is_some_and(|(s, _)| closed(clock) >= *s) {
            continue;
        }
        let end = closed(clock);
        let mut clocks = vec![clock];
        for came in from.iter().rev() {
            clock = came[clock];
            clocks.push(clock);
        }
        clocks.reverse();
        best = Some((end, clocks));
    }
    let clocks = best.map_or_else(|| vec![0; layers], |(_, clocks)| clocks);
    let switches = (0..layers).filter(|&l| clocks[l] != clocks[(l + 1) % layers]).count();
    let each = || clocks.iter().enumerate().map(|(l, &c)| costs[c][l]);
    let cost = Cost {
        time: each().map(|c| c.time).sum::<Seconds>() + switch.time * switches as f64,
        energy: each().map(|c| c.energy).sum::<Joules>() + switch.energy * switches as f64,
    };
    Plan { clocks, switches, cost }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(time: f64, energy: f64) -> Cost {
        Cost { time: Seconds::new(time), energy: Joules::new(energy) }
    }

    const REFERENCE: Reference = Reference { time: Seconds::new(1.0), energy: Joules::new(10.0) };

    #[test]
    fn the_front_holds_what_nothing_beats_and_ties_come_fastest_first() {
        let costs = [cost(1.0, 10.0), cost(1.2, 7.05), cost(1.1, 12.0), cost(1.5, 7.0), cost(2.0, 8.0)];
        let found = choose(&costs, Metric::Energy, &REFERENCE, None).expect("a choice");
        assert_eq!(found, Optimum { best: 3, tied: vec![1, 3], front: vec![0, 1, 3] });
        let quick = choose(&costs, Metric::Energy, &REFERENCE, Some(Seconds::new(1.3))).expect("a choice");
        assert_eq!(quick.best, 1);
        assert_eq!(choose(&costs, Metric::Energy, &REFERENCE, Some(Seconds::new(0.5))), None);
    }

    #[test]
    fn the_front_is_what_no_other_point_beats() {
        let fleets = [(10.0, 5.0), (8.0, 6.0), (9.0, 6.5), (12.0, 5.0), (8.0, 7.0), (4.0, 9.0)];
        let fleets = fleets.map(|(gpus, kw)| (1e3 * kw, gpus));
        assert_eq!(front(&fleets), [0, 1, 5]);
        assert!(front(&[]).is_empty());
    }

    /// Two clocks; the middle layer saves energy at the slow one, the others lose.
    fn layers() -> Vec<Vec<Cost>> {
        vec![vec![cost(1.0, 10.0); 3], vec![cost(1.5, 12.0), cost(1.0, 4.0), cost(1.5, 12.0)]]
    }

    /// Every plan there is.
    fn by_hand(costs: &[Vec<Cost>], switch: Cost, metric: Metric) -> f64 {
        let layers = costs[0].len();
        (0..costs.len().pow(layers as u32))
            .map(|mut code| {
                let clocks: Vec<usize> = (0..layers)
                    .map(|_| {
                        let c = code % costs.len();
                        code /= costs.len();
                        c
                    })
                    .collect();
                let switches = (0..layers).filter(|&l| clocks[l] != clocks[(l + 1) % layers]).count() as f64;
                let time: Seconds = clocks.iter().enumerate().map(|(l, &c)| costs[c][l].time).sum();
                let energy: Joules = clocks.iter().enumerate().map(|(l, &c)| costs[c][l].energy).sum();
                metric.of(time + switch.time * switches, energy + switch.energy * switches, &REFERENCE)
            })
            .fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn a_plan_is_as_good_as_the_best_of_all_plans() {
        for switch in [cost(0.0, 0.0), cost(0.1, 1.0), cost(0.2, 4.0)] {
            for metric in [Metric::Energy, Metric::Time, Metric::Edp, Metric::Eds(1.5)] {
                let plan = per_layer(&layers(), switch, metric, &REFERENCE, None).expect("a plan");
                let found = metric.of(plan.cost.time, plan.cost.energy, &REFERENCE);
                assert!((found - by_hand(&layers(), switch, metric)).abs() < 1e-9, "{metric} {switch:?}: {plan:?}");
            }
        }
        let free = per_layer(&layers(), cost(0.0, 0.0), Metric::Energy, &REFERENCE, None).expect("a plan");
        assert_eq!((free.clocks.as_slice(), free.switches), (&[0, 1, 0][..], 2));
        let dear = per_layer(&layers(), cost(0.2, 4.0), Metric::Energy, &REFERENCE, None).expect("a plan");
        assert_eq!(dear.switches, 0);
    }

    #[test]
    fn a_limit_on_time_is_kept() {
        let costs = vec![vec![cost(1.0, 10.0); 2], vec![cost(1.5, 5.0), cost(1.2, 9.0)]];
        let within = per_layer(&costs, cost(0.0, 0.0), Metric::Energy, &REFERENCE, Some(Seconds::new(2.55)));
        assert_eq!(within.expect("a plan").clocks, [1, 0]);
        assert_eq!(per_layer(&costs, cost(0.0, 0.0), Metric::Energy, &REFERENCE, Some(Seconds::new(1.0))), None);
    }
}
