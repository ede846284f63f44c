//! Settings that are tried beside the one that is asked for.

use super::replica::layouts;
use super::serve::Beside;
use super::settings::{caps, clocks};
use crate::cluster::Cluster;
use crate::failure::Failure;
use joulecast_ask::serving::Summary;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::net::network::Network;
use joulecast_model::net::share::Layout;
use joulecast_model::step::predictor::OperatingPoint;
use joulecast_reports::serving::At;

/// So many other limits, and clocks, are tried.
const TRIED: usize = 6;

/// A few of a list, evenly, its last one among them.
fn few<T: Copy>(list: &[T]) -> Vec<T> {
    let count = list.len().min(TRIED);
    (1..=count).map(|i| list[i * list.len() / count - 1]).collect()
}

/// The points that are tried, the one that is asked for first.
pub(super) fn points(gpu: &Gpu, base: OperatingPoint, over: Beside) -> Vec<OperatingPoint> {
    let mut points = vec![base];
    if over.caps && base.power_cap.is_none() {
        points.extend(few(&caps(gpu)).into_iter().map(|cap| OperatingPoint { power_cap: Some(cap), ..base }));
    }
    if over.clocks && base.core_clock.is_none() {
        let all = clocks(gpu, 4 * TRIED);
        points.extend(few(&all).into_iter().map(|clock| OperatingPoint { core_clock: Some(clock), ..base }));
    }
    points
}

/// The largest batch, and the most tokens of a step, are halved so often.
const HALVED: u32 = 3;
/// Budgets of fewer tokens are not tried: weights are read for hardly more than a decode step's.
const FEWEST_TOKENS: u64 = 256;

/// A layout with limits of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tried {
    pub layout: Layout,
    pub sequences: u64,
    pub tokens: u64,
}

/// Layouts and limits of a step that are tried, those that are asked for first.
pub(super) fn replicas(
    cluster: &Cluster,
    network: &Network,
    asked: Tried,
    over: Beside,
) -> Result<Vec<Tried>, Failure> {
    let mut all = vec![asked.layout];
    if over.on_others() {
        let node = layouts(cluster, network, over.stages)?;
        let most = node.iter().map(Layout::gpus).max().unwrap_or(1);
        let divided = |layout: &Layout| (layout.tensor(), layout.expert());
        for one in node.into_iter().filter(|one| over.layouts || divided(one) == divided(&asked.layout)) {
            let powers = (0..).map(|i| 1 << i).take_while(|n| n * one.gpus() <= most && (over.copies || *n == 1));
            let copied = powers.filter_map(|n| one.copied(n).ok());
            all.extend(copied.filter(|layout| *layout != asked.layout));
        }
    }
    let halved = |most: u64, least: u64| (1..=HALVED).map(move |i| most >> i).filter(move |n| *n >= least);
    let (mut sequences, mut tokens) = (vec![asked.sequences], vec![asked.tokens]);
    if over.sequences {
        sequences.extend(halved(asked.sequences, 1));
    }
    if over.tokens {
        tokens.extend(halved(asked.tokens, FEWEST_TOKENS));
    }
    let mut tried = Vec::new();
    for layout in all {
        for &sequences in &sequences {
            tried.extend(tokens.iter().map(|&tokens| Tried { layout, sequences, tokens }));
        }
    }
    // Copies of a replica, and smaller steps of it, one after the other: its steps are predicted once.
    if let Some(others) = tried.get_mut(1..) {
        let of = |tried: &Tried| {
            let one = tried.layout.of_replica();
            let less = std::cmp::Reverse((tried.sequences, tried.tokens));
            (one.gpus(), one.pipeline(), one.expert(), less, tried.layout.data())
        };
        others.sort_by_key(of);
    }
    Ok(tried)
}

/// Whether smaller steps change nothing that anybody would see: their limit decides nowhere.
pub(super) fn is_same(a: &At, b: &At) -> bool {
    let near = |(a, b): (f64, f64)| (a - b).abs() <= SAME * a.abs().max(b.abs());
    let (first, second) = (figures(a), figures(b));
    let alike = a.layout == b.layout && a.point == b.point && first.len() == second.len();
    alike && first.into_iter().zip(second).all(near)
}

/// Figures are the same within this.
const SAME: f64 = 5e-3;

/// What is shown of a setting.
fn figures(at: &At) -> Vec<f64> {
    let of = |s: &Summary| {
        let per_token = s.per_token.map_or(0.0, |q| q.p90.get());
        [s.requests_per_s, s.to_first.p90.get(), per_token, s.busy, s.power.get(), s.per_answer_token.get()]
    };
    let Some(outlook) = &at.outlook else { return Vec::new() };
    let summaries = [&outlook.value, &outlook.low, &outlook.high].into_iter().flatten();
    summaries.flat_map(of).chain([outlook.most.value]).collect()
}
