//! Everything that predictions for one GPU are made with, in one value.

use super::calibrations::{Basis, Calibrations};
use super::framework::{Framework, Launch};
use super::memory::{MemoryFootprint, footprint};
use super::predictor::{NetworkPrediction, OperatingPoint, PredictError, Setup, Step, StepOverBatches, held_of};
use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::Shape;
use crate::base::units::Watts;
use crate::device::gpu::Gpu;
use crate::law::calibration::{CalibrationError, Wanted};
use crate::net::network::{Network, ShapedNetwork, ShapingError};
use std::sync::{Arc, OnceLock};

/// Predicts steps on one GPU through one framework profile.
///
/// Clones share what was read. Models are read when a precision and mode is first asked for, and only those that it
/// needs: reading all of a large calibration takes longer than predicting.
///
/// ```
/// use joulecast_model::base::precision::{Mode, Precision};
/// use joulecast_model::catalog;
/// use joulecast_model::step::framework::Framework;
/// use joulecast_model::step::predict::Predictor;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let predictor = Predictor::shipped(catalog::gpu("v100")?, catalog::framework("cudnn")?);
/// let resnet50 = predictor.shape(&catalog::network("resnet50")?, 64, Precision::Fp32, &[])?;
/// let step = predictor.predict(&resnet50, Mode::Inference)?;
/// assert!(step.fits_in_memory && step.time.p05 < step.time.p95);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Predictor {
    gpu: Arc<Gpu>,
    framework: Arc<Framework>,
    launch: Option<Launch>,
    library: Option<f64>,
    calibrations: Arc<Calibrations>,
    /// By precision and mode.
    bases: Arc<[OnceLock<Result<Basis, CalibrationError>>]>,
}

/// A place for every precision and mode.
fn bases() -> Arc<[OnceLock<Result<Basis, CalibrationError>>]> {
    (0..Precision::ALL.len() * Mode::ALL.len()).map(|_| OnceLock::new()).collect()
}

impl Predictor {
    /// With the shipped calibrations.
    pub fn shipped(gpu: impl Into<Arc<Gpu>>, framework: impl Into<Arc<Framework>>) -> Self {
        Self::with(gpu, Calibrations::shipped(), framework)
    }

    /// With calibrations that may be shared with predictors for other GPUs. Steps are launched as the framework usually
    /// does, through the newest libraries that each model saw.
    pub fn with(
        gpu: impl Into<Arc<Gpu>>,
        calibrations: Arc<Calibrations>,
        framework: impl Into<Arc<Framework>>,
    ) -> Self {
        let (gpu, framework) = (gpu.into(), framework.into());
        Self { gpu, framework, launch: None, library: None, calibrations, bases: bases() }
    }

    /// With steps launched like that; as the framework usually does on the device where nothing is said.
    #[must_use]
    pub fn launched(self, launch: Option<Launch>) -> Self {
        Self { launch, ..self }
    }

    /// With the framework's libraries as old as that ([`crate::kernel::features::library_age`]).
    #[must_use]
    pub fn with_library(self, library: Option<f64>) -> Self {
        Self { library, ..self }
    }

    /// Through another profile, or the same with other settings.
    #[must_use]
    pub fn through(self, framework: impl Into<Arc<Framework>>) -> Self {
        Self { framework: framework.into(), bases: bases(), ..self }
    }

    /// For the same board described otherwise, with the same models.
    #[must_use]
    pub fn described(self, gpu: impl Into<Arc<Gpu>>) -> Self {
        Self { gpu: gpu.into(), ..self }
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The framework profile.
    pub fn framework(&self) -> &Framework {
        &self.framework
    }

    /// How steps are launched.
    pub fn launch(&self) -> Launch {
        self.launch.unwrap_or_else(|| self.framework.usual_launch_on(&self.gpu))
    }

    /// What predictions in a precision and mode rest on.
    ///
    /// # Errors
    /// Only if the build baked in a malformed calibration.
    pub fn basis(&self, precision: Precision, mode: Mode) -> Result<&Basis, CalibrationError> {
        // Enumerations count from 0 in the order of their lists.
        let place = precision as usize * Mode::ALL.len() + mode as usize;
        let read = || {
            let (framework, algorithm) = (&self.framework.name[..], self.framework.algorithm());
            self.calibrations.on(&self.gpu, &Wanted { precision, mode, framework, algorithm })
        };
        self.bases[place].get_or_init(read).as_ref().map_err(Clone::clone)
    }

    /// A network with shapes, as it runs through the framework.
    ///
    /// # Errors
    /// When it cannot have that batch or those inputs.
    pub fn shape(
        &self,
        network: &Network,
        batch: u64,
        precision: Precision,
        inputs: &[(String, Shape)],
    ) -> Result<ShapedNetwork, ShapingError> {
        Ok(self.framework.runs(ShapedNetwork::new(network, batch, precision, inputs)?))
    }

    /// The kernels of a step, ready to be predicted at any clocks and power limit.
    ///
    /// # Errors
    /// When the device lacks the precision, or nothing runs.
    pub fn step<'a>(&'a self, network: &'a ShapedNetwork, mode: Mode) -> Result<Step<'a>, PredictError> {
        self.phases(network, mode, mode.phases())
    }

    /// Those of some phases of a step, in their order.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn phases<'a>(
        &'a self,
        network: &'a ShapedNetwork,
        mode: Mode,
        phases: &'a [Phase],
    ) -> Result<Step<'a>, PredictError> {
        Step::new(network, &self.setup(network, mode, phases)?)
    }

    /// A step ready to be predicted at any batch. `None` where another batch runs other kernels, not the same with more to do.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn over_batches<'a>(
        &'a self,
        network: &'a ShapedNetwork,
        mode: Mode,
    ) -> Result<Option<StepOverBatches<'a>>, PredictError> {
        StepOverBatches::new(network, &self.setup(network, mode, mode.phases())?)
    }

    /// What a step keeps in device memory; of convolutions with the scratch memory of the engines that they are expected to run.
    pub fn memory(&self, network: &ShapedNetwork, mode: Mode) -> MemoryFootprint {
        let chip = self.basis(network.precision(), mode).ok().and_then(|basis| basis.chip.as_deref());
        footprint(network, mode, &self.framework.memory, chip.map_or(&[], |chip| &chip.choices))
    }

    /// The mean power that the board keeps to at a point while its limit holds the clock.
    ///
    /// # Errors
    /// For a clock or limit that the device does not take.
    pub fn kept_to(&self, point: OperatingPoint, precision: Precision, mode: Mode) -> Result<Watts, PredictError> {
        let setup = self.setup_in(precision, mode, mode.phases(), true)?;
        Ok(point.on(&self.gpu)?.cap * held_of(&setup)?)
    }

    fn setup<'a>(
        &'a self,
        network: &ShapedNetwork,
        mode: Mode,
        phases: &'a [Phase],
    ) -> Result<Setup<'a>, PredictError> {
        self.setup_in(network.precision(), mode, phases, !network.makes_zeros())
    }

    fn setup_in<'a>(
        &'a self,
        precision: Precision,
        mode: Mode,
        phases: &'a [Phase],
        dense: bool,
    ) -> Result<Setup<'a>, PredictError> {
        let Basis { chip, all } = self.basis(precision, mode)?;
        Ok(Setup {
            gpu: &self.gpu,
            calibration: chip.as_deref(),
            all_chips: all,
            framework: &self.framework,
            launch: self.launch(),
            mode,
            phases,
            dense,
            library: self.library,
        })
    }

    /// A step as the driver runs it by default.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn predict(&self, network: &ShapedNetwork, mode: Mode) -> Result<NetworkPrediction, PredictError> {
        self.step(network, mode)?.at(OperatingPoint::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;
    use crate::law::calibration::Tier;
    use crate::step::framework::HostSpeed;

    #[test]
    fn totals_are_those_of_the_whole_prediction() {
        for (gpu, net, batch, profile, mode) in [
            ("v100", "resnet50", 64, "cudnn", Mode::Inference),
            ("h200", "vgg16", 256, "pytorch", Mode::Training),
            ("h200", "mobilenet_v2", 1, "pytorch", Mode::Inference),
            ("l4", "densenet121", 512, "cudnn", Mode::Inference),
        ] {
            let gpu = catalog::gpu(gpu).expect("known");
            let predictor = Predictor::shipped(gpu, catalog::framework(profile).expect("known"));
            let network = catalog::network(net).expect("known");
            let network = ShapedNetwork::new(&network, batch, Precision::Fp32, &[]).expect("fits");
            let step = predictor.step(&network, mode).expect("runs");
            let prepared = step.prepare();
            let boost = predictor.gpu().core_clock.boost.value;
            let limit = predictor.gpu().power.limit.value;
            for point in [
                OperatingPoint::default(),
                OperatingPoint { core_clock: Some(boost * 0.6), ..OperatingPoint::default() },
                OperatingPoint { power_cap: Some(limit * 0.7), ..OperatingPoint::default() },
            ] {
                let (whole, total) = (step.at(point).expect("taken"), prepared.at(point).expect("taken"));
                let near = |a: f64, b: f64, what| assert!((a / b - 1.0).abs() < 1e-3, "{net} {what}: {a} {b}");
                near(total.clock.get(), whole.clock.get(), "clock");
                near(total.time.value.get(), whole.time.value.get(), "time");
                near(total.time.p95.get(), whole.time.p95.get(), "time, p95");
                near(total.power.value.get(), whole.power.value.get(), "power");
                near(total.energy.p05.get(), whole.energy.p05.get(), "energy, p05");
                assert_eq!((total.time_tier, total.launch_bound), (whole.time_tier, whole.launch_bound));
                assert_eq!((prepared.cost.ops, prepared.fits_in_memory), (whole.ops, whole.fits_in_memory));
            }
        }
    }

    /// What a host makes uncertain is what hosts differ by; of one whose speed is known, less. Where the GPU decides by far,
    /// no host changes anything.
    #[test]
    fn a_step_that_the_host_decides_is_as_uncertain_as_hosts_are() {
        let speed = |factor| HostSpeed::stated(factor, "here").expect("a host's");
        let predict = |net: &str, batch, speed: Option<HostSpeed>| {
            let profile = catalog::framework("pytorch").expect("known");
            let profile = speed.into_iter().fold(profile, Framework::on_host);
            let predictor = Predictor::shipped(catalog::gpu("h200").expect("known"), profile);
            let network = catalog::network(net).expect("known");
            let network = predictor.shape(&network, batch, Precision::Fp32, &[]).expect("fits");
            predictor.predict(&network, Mode::Inference).expect("runs")
        };
        let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 0.03, "{found} {expected}");
        let (unknown, known) = (predict("mobilenet_v2", 1, None), predict("mobilenet_v2", 1, Some(speed(1.0))));
        assert_eq!(unknown.time.value, known.time.value);
        for (p, of) in [(&unknown, "anybody"), (&known, "here")] {
            let host = p.host.clone().expect("launches");
            assert!(host.decides && host.source.as_deref().unwrap_or("anybody") == of);
            near(p.time.p95 / p.time.value, host.spread);
            assert!(p.time.value / p.time.p05 > 0.8 * host.spread && p.power.value / p.power.p05 > 1.05);
        }
        let spread = |p: &NetworkPrediction| p.host.as_ref().map_or(0.0, |h| h.spread);
        assert!(spread(&known) < spread(&unknown));
        let slow = predict("mobilenet_v2", 1, Some(speed(2.0)));
        near(slow.time.value / known.time.value, 2.0);
        assert!(slow.power.value < known.power.value && slow.energy.value > known.energy.value);
        let (large, slow) = (predict("vgg16", 256, None), predict("vgg16", 256, Some(speed(3.0))));
        assert_eq!((large.time, large.power), (slow.time, slow.power));
        assert!(large.host.is_some_and(|h| !h.decides && !h.may_decide));
    }

    /// One predictor, asked in any order on several threads, says what fresh ones say: nothing of one question stays.
    #[test]
    fn a_shared_predictor_is_as_good_as_a_fresh_one() {
        fn shared<T: Send + Sync + Clone>(value: &T) -> T {
            value.clone()
        }
        let (gpu, framework) = (catalog::gpu("v100").expect("known"), catalog::framework("pytorch").expect("known"));
        let predictor = Predictor::shipped(gpu.clone(), framework.clone());
        let network = catalog::network("alexnet").expect("known");
        let asked = [Precision::Fp16, Precision::Fp32].map(|p| Mode::ALL.iter().map(move |m| (p, *m)));
        std::thread::scope(|scope| {
            for (precision, mode) in asked.into_iter().flatten() {
                let (predictor, network, gpu, framework) = (shared(&predictor), &network, &gpu, &framework);
                scope.spawn(move || {
                    let fresh = Predictor::shipped(gpu.clone(), framework.clone());
                    let shaped = fresh.shape(network, 8, precision, &[]).expect("fits");
                    let of = |p: &Predictor| p.predict(&shaped, mode).expect("runs");
                    assert_eq!(of(&predictor), of(&fresh), "{precision} {mode}");
                });
            }
        });
    }

    /// What was carried over from other chips is no better on a board that nobody measured.
    #[test]
    fn another_board_is_a_sibling_s_at_best() {
        let mut v100 = catalog::calibration("gv100").expect("readable").expect("shipped");
        for (tier, own, other) in [
            (Tier::Measured, Tier::Measured, Tier::Sibling),
            (Tier::Imported, Tier::Imported, Tier::Sibling),
            (Tier::Transferred, Tier::Transferred, Tier::Transferred),
        ] {
            v100.tier = tier;
            assert_eq!((v100.tier_on("v100"), v100.tier_on("titan-v")), (own, other));
        }
    }

    #[test]
    fn given_calibrations_need_that_of_all_chips() {
        let roofline = catalog::all_chips().expect("shipped");
        let v100 = catalog::calibration("gv100").expect("readable").expect("shipped");
        let error = Calibrations::given([v100.clone()]).expect_err("no other models").to_string();
        assert!(error.contains("\"any\""), "{error}");
        let calibrations = Calibrations::given([v100, roofline]).expect("all that it takes");
        let framework = Arc::new(catalog::framework("cudnn").expect("known"));
        let chip = |gpu| {
            let gpu = catalog::gpu(gpu).expect("known");
            let predictor = Predictor::with(gpu, calibrations.clone(), framework.clone());
            predictor.basis(Precision::Fp32, Mode::Inference).expect("given").chip.clone()
        };
        assert_eq!(chip("v100").map(|c| c.chip.clone()).as_deref(), Some("GV100"));
        assert!(chip("t4").is_none(), "as one that was never measured");
    }
}
