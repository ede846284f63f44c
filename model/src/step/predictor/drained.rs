//! A step that begins with an empty queue, as each does whose scaled loss was looked at: from every kernel on it lasts as long as
//! launches until then and all kernels from there.

use super::kernel::Kernel;
use super::step::Step;
use crate::base::precision::{Mode, Phase};
use crate::base::units::Seconds;
use crate::step::framework::{Cut, Host, Launch};
use std::collections::HashMap;

/// Where in the network a kernel is launched, and what the host takes for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    layer: usize,
    host: Seconds,
}

/// The host, and the share of a layer's launches that its forward pass has, of a step that begins so.
fn host<'s>(step: &'s Step<'_>) -> Option<(&'s Host, f64)> {
    let setup = &step.setup;
    let host =
        setup.framework.host.as_ref().filter(|_| setup.launch == Launch::Eager && setup.mode == Mode::Training)?;
    let share = host.scaled_loss.filter(|_| setup.framework.scales_loss_in(step.network.precision()))?;
    Some((host, share))
}

/// The places of a step's kernels, in turn; none where the queue is never empty. `kernels`: all of them.
pub(super) fn places(step: &Step<'_>) -> Vec<Place> {
    let Some((host, _)) = host(step) else { return Vec::new() };
    let layers = step.network.layers();
    let by_name: HashMap<&str, usize> = layers.iter().enumerate().map(|(i, layer)| (&layer.name[..], i)).collect();
    let mut last = 0;
    let mut places: Vec<Place> = Vec::with_capacity(step.kernels.len());
    for kernel in &step.kernels {
        // What is computed of learned values alone has a name of its own, and lies beside the layer before it.
        last = by_name.get(kernel.name.as_str()).copied().unwrap_or(last);
        places.push(Place { layer: last, host: kernel.host });
    }
    // A phase's views are launched with its last kernel as sums count them; here each where it is.
    let forward = |kernel: &Kernel<'_>| kernel.phase == Phase::Forward;
    let Some(behind) = step.kernels.iter().rposition(forward) else { return places };
    let mut runs = vec![false; layers.len()];
    for (kernel, place) in step.kernels.iter().zip(&places).filter(|(kernel, _)| forward(kernel)) {
        runs[place.layer] |= kernel.host > Seconds::ZERO;
    }
    let (mode, precision) = (step.setup.mode, step.network.precision());
    for (i, layer) in layers.iter().enumerate().filter(|(i, layer)| !runs[*i] && layer.case.layer.is_view(mode)) {
        let view = host.viewing(&layer.case.layer, mode, precision).min(places[behind].host);
        places[behind].host = places[behind].host - view;
        places.push(Place { layer: i, host: view });
    }
    places
}

/// The places in a step that holds all of its kernels from which it may last longest.
pub(super) fn cuts_of(step: &Step<'_>) -> Vec<Cut> {
    cuts(step, &places(step), step.kernels.iter())
}

/// The places in a step from which it may last longest, whatever clocks and however slow the host; `turns`: its kernels, in turn.
pub(super) fn cuts<'k>(step: &Step<'_>, places: &[Place], turns: impl Iterator<Item = &'k Kernel<'k>>) -> Vec<Cut> {
    let Some((_, share)) = host(step).filter(|_| !places.is_empty()) else { return Vec::new() };
    let layers = step.network.layers().len();
    let mut launched = vec![[Seconds::ZERO; 2]; layers];
    let mut ran = vec![[Seconds::ZERO; 2]; layers];
    let mut counted = 0;
    for (kernel, place) in turns.zip(places) {
        counted += 1;
        let [forward, backward] = &mut launched[place.layer];
        match kernel.phase {
            Phase::Forward => {
                (*forward, *backward) = (*forward + place.host * share, *backward + place.host * (1.0 - share));
                ran[place.layer][0] += kernel.time.value;
            }
            Phase::BackwardData | Phase::BackwardWeights => {
                *backward += place.host;
                ran[place.layer][1] += kernel.time.value;
            }
            Phase::Update => {}
        }
    }
    for view in &places[counted..] {
        launched[view.layer][0] += view.host * share;
        launched[view.layer][1] += view.host * (1.0 - share);
    }
    let total = |pass: usize| ran.iter().map(|ran| ran[pass]).sum::<Seconds>();
    let (all, order) = ([total(0), total(1)], (0..layers).map(|i| (i, 0)).chain((0..layers).rev().map(|i| (i, 1))));
    let (mut until, mut left, mut cuts) = (Seconds::ZERO, all, Vec::new());
    for (layer, pass) in order {
        until += launched[layer][pass];
        let share = |pass: usize| if all[pass] > Seconds::ZERO { (left[pass] / all[pass]).max(0.0) } else { 0.0 };
        let cut = Cut { launched: until, forward: share(0), backward: share(1) };
        if ran[layer][pass] > Seconds::ZERO {
            add(&mut cuts, cut, all);
        }
        left[pass] = (left[pass] - ran[layer][pass]).max(Seconds::ZERO);
    }
    cuts
}

/// Keeps those that are the longest for a host of some speed: launches grow along them and kernels shrink, so that these bend one way.
fn add(cuts: &mut Vec<Cut>, cut: Cut, [forward, backward]: [Seconds; 2]) {
    let at = |cut: &Cut| (cut.launched, forward * cut.forward + backward * cut.backward);
    while let [.., before, last] = &cuts[..] {
        let ((x0, y0), (x1, y1), (x2, y2)) = (at(before), at(last), at(&cut));
        let bends = (x1 - x0).get() * (y2 - y0).get() - (y1 - y0).get() * (x2 - x0).get();
        if bends < 0.0 {
            break;
        }
        cuts.pop();
    }
    cuts.push(cut);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Precision;
    use crate::catalog;
    use crate::step::predict::Predictor;

    fn longest(cuts: &[Cut], slower: f64, [forward, backward]: [Seconds; 2]) -> f64 {
        let of = |cut: &Cut| (cut.launched * slower + forward * cut.forward + backward * cut.backward).get();
        cuts.iter().map(of).fold(0.0, f64::max)
    }

    #[test]
    fn those_that_are_kept_are_the_longest_for_every_host() {
        let all = [Seconds::from_ms(4.0), Seconds::from_ms(9.0)];
        let (mut kept, mut every) = (Vec::new(), Vec::new());
        let mut seed = 7u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as f64 / (1u64 << 31) as f64
        };
        let (mut launched, mut left) = (Seconds::ZERO, 2.0);
        for _ in 0..400 {
            launched += Seconds::from_ms(0.05 * random());
            let cut = Cut { launched, forward: (left - 1.0f64).max(0.0), backward: left.min(1.0) };
            add(&mut kept, cut, all);
            every.push(cut);
            left = (left - 0.01 * random()).max(0.0);
        }
        assert!(kept.len() < 60, "{}", kept.len());
        for slower in [0.1, 0.3, 0.7, 1.0, 1.4, 2.0, 5.0] {
            let (few, many) = (longest(&kept, slower, all), longest(&every, slower, all));
            assert!((few / many - 1.0).abs() < 1e-12, "{slower}: {few} {many}");
        }
    }

    #[test]
    fn launches_are_those_of_the_kernels_wherever_they_lie() {
        let framework = catalog::framework("pytorch").expect("shipped");
        let predictor = Predictor::shipped(catalog::gpu("h100").expect("shipped"), framework);
        for net in ["resnet50", "vit_b_16", "mobilenet_v2"] {
            let network = catalog::network(net).expect("shipped");
            let shaped = |precision| predictor.shape(&network, 64, precision, &[]).expect("fits");
            let network = shaped(Precision::Fp16);
            let step = predictor.step(&network, Mode::Training).expect("runs");
            let places = places(&step);
            let sum = |hosts: &mut dyn Iterator<Item = Seconds>| hosts.sum::<Seconds>().get();
            let (kernels, placed) =
                (sum(&mut step.kernels.iter().map(|k| k.host)), sum(&mut places.iter().map(|p| p.host)));
            assert!((kernels / placed - 1.0).abs() < 1e-12, "{net}");
            assert!(places.iter().all(|place| place.host >= Seconds::ZERO), "{net}");
            let found = cuts(&step, &places, step.kernels.iter());
            assert!(found.len() > 3 && found.windows(2).all(|two| two[0].launched <= two[1].launched), "{net}");
            // The forward pass has its share of the launches, and behind the last kernel all are done.
            let all = step.kernels.iter().filter(|k| k.phase != Phase::Update).map(|k| k.host).sum::<Seconds>();
            let share = host(&step).expect("drained").1;
            let in_forward = found.iter().filter(|cut| cut.backward == 1.0).map(|cut| cut.launched / all);
            let most = in_forward.fold(0.0, f64::max);
            assert!(most <= share + 1e-9 && most > 0.0, "{net}: {most}");
            let end = found.last().map_or(0.0, |cut| cut.launched / all);
            assert!(end > 0.9 && end < 1.0 + 1e-9, "{net}: {end}");
            let left = |cut: &Cut| cut.forward + cut.backward;
            assert!(found.windows(2).all(|two| left(&two[0]) >= left(&two[1])), "{net}");
            // Before the first kernel all of them are left; behind all launches of a pass none but the last.
            assert_eq!((found[0].forward, found[0].backward), (1.0, 1.0), "{net}");
            assert!(found.last().is_some_and(|cut| cut.forward < 1e-9 && cut.backward < 0.2), "{net}");
            // A queue that is never empty has none.
            let network = shaped(Precision::Bf16);
            let step = predictor.step(&network, Mode::Training).expect("runs");
            assert!(super::places(&step).is_empty() && cuts(&step, &[], step.kernels.iter()).is_empty(), "{net}");
        }
    }
}
