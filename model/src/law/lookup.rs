//! Which model predicts a kernel: its own, or the nearest that there is.

use crate::base::precision::{Phase, Precision};
use crate::kernel::family::Family;
use crate::kernel::key::{ConvClass, ModelKey};
use crate::kernel::setting::Algorithm;
use crate::law::calibration::{Calibration, LayerModel, Tier};

/// A model, and how far it is from the kernel's own.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The model whose polynomial and floor are taken.
    pub model: &'a LayerModel,
    /// Whose residuals make the interval.
    pub residuals: &'a LayerModel,
    /// Added to the model's ln(t / t_ref).
    pub correction: f64,
    /// In place of the model's polynomial and residuals.
    pub stated: Option<Stated>,
    /// What a prediction by it rests on.
    pub tier: Tier,
    /// Why it is not the kernel's own model.
    pub substitute: Option<Substitute>,
    /// Whether it is of the framework's own kernels.
    pub framework: bool,
    /// Whether the residuals are of this very substitution, so that the interval need not be widened.
    pub calibrated: bool,
    /// Whether it is of GPUs of another vendor, whose libraries nobody measured.
    pub other_vendor: bool,
}

impl<'a> Found<'a> {
    /// By a model of the library's kernels as it is, with its own residuals.
    fn plain(model: &'a LayerModel, tier: Tier, substitute: Option<Substitute>) -> Self {
        Self {
            model,
            residuals: model,
            correction: 0.0,
            stated: None,
            // What a chip's calibration rests on need not be what each of its models does.
            tier: if model.imported { tier.max(Tier::Imported) } else { tier },
            substitute,
            framework: false,
            calibrated: substitute.is_none(),
            other_vendor: false,
        }
    }

    /// The same for a board: where the model was fitted to rows of other boards of the chip, it is a sibling's.
    pub fn on_board(self, calibration: Option<&Calibration>, board: &str) -> Self {
        Self { tier: self.tier.on_board(calibration.is_none_or(|c| c.knows(self.model, board))), ..self }
    }

    /// Whether its residuals make the interval as they are, given whether the kernel lies within what was fitted.
    pub fn trusted(&self, in_domain: bool) -> bool {
        match self.substitute {
            None => in_domain,
            Some(Substitute::Universal) => self.calibrated && in_domain,
            Some(_) => self.calibrated,
        }
    }
}

/// What tuned libraries reach of a processor's peaks in products (MKL) and copies (STREAM), and how far others fall behind.
const PROCESSOR: Stated = Stated { log: 0.29, low: -0.5, high: 1.5 };

impl Found<'_> {
    /// A convolution over maps that stands for one over volumes.
    pub fn of_frames(self) -> Self {
        let tier = self.tier.max(Tier::Transferred);
        Self { tier, substitute: self.substitute.or(Some(Substitute::Frames)), calibrated: false, ..self }
    }

    /// The fp32 model for values that are stored in 16 bits and computed in fp32.
    pub fn of_halves(self) -> Self {
        Self { substitute: self.substitute.or(Some(Substitute::Precision)), calibrated: false, ..self }
    }

    /// A model of the GPUs of one vendor for those of another, whose libraries nobody measured.
    pub fn of_other_vendor(self) -> Self {
        Self { tier: self.tier.max(Tier::Transferred), other_vendor: true, ..self }
    }

    /// The roofline with a stated efficiency, for devices that are no GPUs: terms of tiles and waves mean nothing there.
    pub fn of_processor(self) -> Self {
        Self {
            stated: Some(PROCESSOR),
            tier: Tier::Roofline,
            substitute: Some(Substitute::Processor),
            calibrated: true,
            ..self
        }
    }
}

/// ln(t / t_ref) by statement, with the edges of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stated {
    /// The most likely value.
    pub log: f64,
    /// What the lower edge of the 90 % interval adds to it; negative.
    pub low: f64,
    /// What the upper edge of the 90 % interval adds to it.
    pub high: f64,
}

/// Depthwise convolutions and others in narrow groups: 3 to 8 times the roofline where they were looked at (one H200,
/// whole networks); twice as far in both directions is not excluded.
const GROUPED: Stated = Stated { log: 1.6, low: -1.2, high: 1.2 };

/// How a kernel without a model of its own is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Substitute {
    /// By the same kind's model in fp32, with its own traffic.
    Precision,
    /// By the same kind's model in 16 bits, with the peak and the traffic of 8.
    Half,
    /// As an implicit matrix product, by the linear layers' model.
    Product,
    /// By the model that kinds like it share on this GPU.
    Shared,
    /// By its traffic and the bandwidth efficiency of element-wise rows on this GPU.
    Bandwidth,
    /// By the polynomial that was fitted to all measured GPUs.
    Universal,
    /// By the polynomial that was fitted to the one chip that was measured with such kernels.
    OneChip,
    /// By the roofline and the efficiency that other GPUs reach.
    Efficiency,
    /// By a stated multiple of the roofline.
    Statement,
    /// By the asked-for algorithm's model of the one GPU on which algorithms were measured.
    Algorithm,
    /// By a stated multiple of a processor's roofline.
    Processor,
    /// As convolutions over maps with as many products.
    Frames,
}

/// The model of plain matrix products.
const LINEAR: ModelKey = ModelKey::Kind("linear");

/// The model of the plainest kernel over maps.
const RELU: ModelKey = ModelKey::Kind("relu");

/// The models that may stand in for a kernel's, in order.
fn alternatives(key: ModelKey) -> [Option<ModelKey>; 2] {
    [Some(key), key.general()]
}

/// Values in fp32 and tf32 are moved by the same kernels; both 16-bit formats are moved and multiplied by the same.
fn alike(family: Family, precision: Precision) -> Precision {
    match (family, precision) {
        (Family::Stream, Precision::Tf32) => Precision::Fp32,
        (_, Precision::Bf16) => Precision::Fp16,
        _ => precision,
    }
}

/// A precision, and what is [`alike`] where that is another.
fn near(family: Family, precision: Precision) -> impl Iterator<Item = Precision> + Clone {
    let alike = Some(alike(family, precision)).filter(|alike| *alike != precision);
    std::iter::once(precision).chain(alike)
}

/// The model of a framework's own kernels on this GPU.
pub fn of_framework<'a>(
    calibration: Option<&'a Calibration>,
    framework: &str,
    key: ModelKey,
    family: Family,
    phase: Phase,
    precision: Precision,
) -> Option<Found<'a>> {
    let calibration = calibration?;
    let model = near(family, precision).find_map(|p| calibration.framework_model(framework, key, phase, p))?;
    Some(Found { framework: true, ..Found::plain(model, calibration.tier, None) })
}

/// The model of an algorithm that was asked for: this GPU's or, over this one's roofline, that of the GPU on which algorithms
/// were measured. `None` where it has none in that phase and precision.
pub fn by_algorithm_of<'a>(
    calibration: Option<&'a Calibration>,
    universal: &'a Calibration,
    algorithm: Algorithm,
    phase: Phase,
    precision: Precision,
) -> Option<Found<'a>> {
    let key = ModelKey::by(algorithm)?;
    let own = calibration.and_then(|c| Some(Found::plain(c.model(key, phase, precision)?, c.tier, None)));
    let other =
        || Some(Found::plain(universal.model(key, phase, precision)?, Tier::Transferred, Some(Substitute::Algorithm)));
    own.or_else(other)
}

/// Finds a kernel's model. The order goes from its own model over nearer and nearer relatives on the same GPU to
/// the models of all GPUs (`universal`) and, where these have no terms, their efficiencies.
pub fn find<'a>(
    calibration: Option<&'a Calibration>,
    universal: &'a Calibration,
    key: ModelKey,
    family: Family,
    phase: Phase,
    precision: Precision,
) -> Option<Found<'a>> {
    let on_gpu = |key: ModelKey, phase, precision| calibration?.model(key, phase, precision);
    let anywhere = |key: ModelKey, phase, precision| universal.model(key, phase, precision);
    let tier = calibration.map_or(Tier::Roofline, |c| c.tier);
    let keys = || alternatives(key).into_iter().flatten();
    let plain = Found::plain;
    let of_all = |model: &'a LayerModel| match model.terms.is_empty() {
        true => plain(model, Tier::Roofline, Some(Substitute::Efficiency)),
        false => plain(model, Tier::Transferred, Some(Substitute::Universal)),
    };

    let near = near(family, precision);
    if let Some(model) = near.clone().find_map(|p| keys().find_map(|k| on_gpu(k, phase, p))) {
        return Some(plain(model, tier, None));
    }
    match family {
        Family::Gemm => {
            // More chips were measured in fp16 than in bf16, whose kernels are the same.
            let anywhere = |key: ModelKey, phase, precision| {
                anywhere(key, phase, alike(family, precision)).or(anywhere(key, phase, precision))
            };
            let on_gpu = |key: ModelKey, phase, precision| {
                on_gpu(key, phase, precision).or(on_gpu(key, phase, alike(family, precision)))
            };
            if key.in_groups() {
                if let Some(model) = anywhere(key, phase, precision).filter(|m| !m.terms.is_empty()) {
                    // Its residuals are other convolutions' on chips that were left out: nobody compared these.
                    return Some(match key.is_of_one_chip() {
                        true => plain(model, Tier::Transferred, Some(Substitute::OneChip)),
                        false => Found { calibrated: true, ..of_all(model) },
                    });
                }
                let carrier = anywhere(ModelKey::Conv(ConvClass::General), Phase::Forward, Precision::Fp32)?;
                let found = plain(carrier, Tier::Roofline, Some(Substitute::Statement));
                return Some(Found { stated: Some(GROUPED), calibrated: true, ..found });
            }
            if precision == Precision::Fp8 {
                let half = || [Precision::Bf16, Precision::Fp16].into_iter();
                if let Some(model) = half().find_map(|p| keys().find_map(|k| calibration?.model(k, phase, p))) {
                    return Some(plain(model, Tier::Transferred, Some(Substitute::Half)));
                }
            }
            // Attention's products are batched.
            let batched =
                if key.is_attention() { on_gpu(ModelKey::Kind("matmul"), Phase::Forward, precision) } else { None };
            if let Some(model) = batched.or_else(|| on_gpu(LINEAR, Phase::Forward, precision)) {
                let found = plain(model, Tier::Transferred, Some(Substitute::Product));
                // How convolutions compare with the product model was seen on the chips that have rows of both.
                let seen = keys().find_map(|k| anywhere(k.by_product()?, phase, precision));
                // Both ways were judged on chips that were left out.
                let fitted = keys().find_map(|k| anywhere(k, phase, precision)).filter(|m| !m.terms.is_empty());
                let error = |model: &LayerModel| model.cross_validation.mape;
                if let Some(model) = fitted.filter(|m| seen.is_some_and(|seen| error(m) < error(seen))) {
                    return Some(Found { calibrated: true, ..of_all(model) });
                }
                return Some(match seen {
                    Some(seen) => Found { residuals: seen, correction: seen.intercept, calibrated: true, ..found },
                    None => found,
                });
            }
            if let Some(model) = keys().find_map(|k| anywhere(k, phase, precision)) {
                return Some(Found { calibrated: true, ..of_all(model) });
            }
            let near = [precision, Precision::Fp16, Precision::Fp32];
            let model = near.into_iter().find_map(|p| {
                keys().find_map(|k| anywhere(k, phase, p)).or_else(|| anywhere(LINEAR, Phase::Forward, p))
            })?;
            Some(of_all(model))
        }
        Family::Stream => {
            if let Some(model) = on_gpu(key, phase, Precision::Fp32) {
                return Some(plain(model, tier, Some(Substitute::Precision)));
            }
            // A kind that no chip has rows of runs as those do with which it shares a model.
            let known = calibration.into_iter().chain([universal]).any(|c| c.knows_kind(key));
            let shared = || calibration?.shared(key.shared()?, phase, alike(family, precision));
            if let Some(model) = shared().filter(|_| !known) {
                return Some(plain(model, Tier::Transferred, Some(Substitute::Shared)));
            }
            if let Some(model) = on_gpu(ModelKey::Stream, Phase::Forward, Precision::Fp32) {
                // Its residuals are those of other kinds' rows under it.
                return Some(Found { calibrated: true, ..plain(model, Tier::Roofline, Some(Substitute::Bandwidth)) });
            }
            let own = near.clone().find_map(|p| anywhere(key, phase, p));
            // An efficiency is of small and large maps alike on the one chip that has rows. What goes over a map once, as
            // ReLU does, runs as ReLU was seen to on many chips.
            let alone = own.is_none_or(|m| m.terms.is_empty()) && key.goes_over_maps_once();
            let once = || near.clone().find_map(|p| anywhere(RELU, phase, p)).filter(|m| !m.terms.is_empty());
            if let Some(model) = alone.then(once).flatten() {
                return Some(of_all(model));
            }
            let model = own
                .or_else(|| anywhere(key, phase, Precision::Fp32))
                .or_else(|| anywhere(ModelKey::Stream, Phase::Forward, Precision::Fp32))?;
            Some(Found { calibrated: own.is_some(), ..of_all(model) })
        }
    }
}
