//! Near which batches a library is expected to run other engines, so that times jump.

use super::predict::Predictor;
use super::predictor::{NetworkPrediction, Warning};
use crate::base::precision::Mode;
use crate::base::units::Seconds;
use crate::kernel::sizes::ConvSizes;
use crate::kernel::work::Work;
use crate::law::calibration::engine_alone;
use crate::law::choice::foreseen;
use crate::net::network::{ShapedLayer, ShapedNetwork};
use std::collections::HashMap;

/// How far batches are asked about, as a share of the batch, and at least one sample.
const NEAR: u64 = 8;
/// Of them so many to either side, evenly, beside the next one.
const STEPS: u64 = 8;
/// Share of a step's time in convolutions that are expected to change their engine that is worth a warning.
const WORTH_A_WARNING: f64 = 0.1;
/// Share of it that a kernel takes at least that is asked about.
const ASKED: f64 = 0.01;

impl Predictor {
    /// How much of a step's time is in convolutions for which the library is expected to choose another engine at a batch up to
    /// an eighth of the batch away, up or down; `None` where that is little, or choices are not known. Kernels of less than a
    /// hundredth of the step are not asked about.
    pub fn engines_beside(&self, network: &ShapedNetwork, mode: Mode, step: &NetworkPrediction) -> Option<Warning> {
        let precision = network.precision();
        let basis = self.basis(precision, mode).ok()?;
        let choices = &basis.chip.as_deref().filter(|chip| !chip.choices.is_empty())?.choices;
        let batch = network.batch();
        let far = (batch / NEAR).max(1);
        // The next ones, the ends of what is near and some between: some engines are chosen for a batch or two alone.
        let (below, above) = (|far: u64| batch.saturating_sub(far).max(1), |far: u64| batch + far);
        let steps = (1..=STEPS).map(|step| (far * step).div_ceil(STEPS)).chain([1]);
        let mut beside: Vec<u64> =
            steps.flat_map(|far| [below(far), above(far)]).filter(|other| *other != batch).collect();
        beside.sort_unstable();
        beside.dedup();
        let layers: HashMap<&str, &ShapedLayer> = network.layers().iter().map(|l| (l.name.as_ref(), l)).collect();
        let mut time = Seconds::ZERO;
        for kernel in step.layers.iter().filter(|kernel| kernel.time.value >= step.time.value * ASKED) {
            let (Some(engine), Some(layer)) = (&kernel.engine, layers.get(&*kernel.name)) else { continue };
            let own = engine_alone(engine);
            let at = |batch| foreseen(choices, &ConvSizes::of(&Work::of(layer, kernel.phase, batch, precision, mode))?);
            if beside.iter().copied().filter_map(at).any(|other| engine_alone(other) != own) {
                time += kernel.time.value;
            }
        }
        let share = time / step.time.value;
        (share >= WORTH_A_WARNING).then_some(Warning::EnginesBeside { share, batches: [below(far), above(far)] })
    }
}
