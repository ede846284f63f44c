//! A GPU that is none: runner, meter and clock control on one virtual clock, obeying the stated [`law`].
//!
//! It lets a whole campaign run without hardware, repeatably, and with faults on request. Its product name and
//! identifiers say what it is, so that its rows cannot be taken for measurements.

pub mod law;
mod world;

use crate::DeviceError;
use crate::clocks::{ClockControl, Settings};
use crate::meter::{PowerMeter, Sample};
use crate::runner::{Block, Identity, LayerRunner, Loaded, NetworkTrial};
use joulecast_model::base::precision::{Mode, Phase};
use joulecast_model::base::units::{Bytes, Hertz, Seconds, Watts};
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::setting::{Algorithm, Cache};
use joulecast_model::kernel::work::{Trial, Work};
use joulecast_model::net::layer::{Conv2d, Layer};
use law::Effort;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use world::World;

/// Name of the product.
pub const PRODUCT: &str = "Joulecast fake GPU";
/// What its algorithms' names begin with.
pub const FAKE_PREFIX: &str = "fake_";

/// Device time that a block aims at.
const BLOCK: Seconds = Seconds::from_ms(6.0);
/// Most executions in a block.
const MOST_EXECUTIONS: f64 = 5_000.0;
/// Host time of one launch.
const LAUNCH: Seconds = Seconds::from_us(2.5);

/// What goes wrong, on request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Changing settings is refused.
    pub permission: bool,
    /// The board is lost after so many calls.
    pub lost_after: Option<u64>,
    /// The energy counter never changes.
    pub frozen_counter: bool,
    /// Power never becomes steady.
    pub drifting: bool,
    /// Memory, where it is less than the described GPU's.
    pub memory: Option<Bytes>,
    /// Layer kinds that cannot run.
    pub unsupported: Vec<String>,
}

impl Faults {
    /// Faults from words such as `frozen_counter`, `lost_after=200`, `memory=1000000`, `unsupported=relu`.
    ///
    /// # Errors
    /// Names the word that is none of these.
    pub fn from_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut faults = Self::default();
        for word in words {
            let unknown = || {
                format!(
                    "no fault \"{word}\": permission, frozen_counter, drifting, lost_after=N, memory=BYTES, unsupported=KIND"
                )
            };
            let number = |text: &str| text.parse::<u64>().map_err(|_| unknown());
            match word.split_once('=') {
                None if word == "permission" => faults.permission = true,
                None if word == "frozen_counter" => faults.frozen_counter = true,
                None if word == "drifting" => faults.drifting = true,
                Some(("lost_after", n)) => faults.lost_after = Some(number(n)?),
                Some(("memory", n)) => faults.memory = Some(Bytes::new(number(n)?)),
                Some(("unsupported", kind)) => faults.unsupported.push(kind.to_string()),
                _ => return Err(unknown()),
            }
        }
        Ok(faults)
    }
}

/// The fake. Clones are handles to one board: give one to whoever runs layers, one to whoever reads sensors.
#[derive(Clone)]
pub struct FakeGpu {
    identity: Identity,
    gpu: Rc<Gpu>,
    world: Rc<RefCell<World>>,
}

impl FakeGpu {
    /// A board with the peaks, clocks and limits of the described GPU. Equal seeds and calls give equal times.
    pub fn new(gpu: &Gpu, seed: u64, faults: Faults) -> Self {
        let identity = Identity {
            product: PRODUCT.to_string(),
            uuid: Some("FAKE-0".to_string()),
            driver: Some("fake".to_string()),
            ..Identity::default()
        };
        let world = Rc::new(RefCell::new(World::new(gpu, seed, faults)));
        Self { identity, gpu: Rc::new(gpu.clone()), world }
    }

    /// The virtual time.
    pub fn now(&self) -> Seconds {
        self.world.borrow().now()
    }

    fn call(&self) -> Result<RefMut<'_, World>, DeviceError> {
        let mut world = self.world.borrow_mut();
        world.call()?;
        Ok(world)
    }

    fn put(
        &self,
        world: &mut World,
        work: Effort,
        algorithm: Option<String>,
        cache: Option<Cache>,
        memory: Bytes,
    ) -> Loaded {
        let each = work.time(1.0);
        let executions = (BLOCK / each).floor().clamp(1.0, MOST_EXECUTIONS) as u64;
        world.load(work, executions);
        Loaded {
            algorithm,
            workspace: Some(Bytes::ZERO),
            math: None,
            executions,
            method: "graph",
            cache,
            host: Some(LAUNCH),
            memory,
        }
    }

    fn check_memory(&self, world: &World, needed: Bytes) -> Result<(), DeviceError> {
        let free = world.faults.memory.unwrap_or(self.gpu.memory.value);
        if needed > free {
            return Err(DeviceError::OutOfMemory { needed: needed.get(), free: free.get() });
        }
        Ok(())
    }
}

fn unsupported(what: &str, why: impl Into<String>) -> DeviceError {
    DeviceError::Unsupported { what: what.to_string(), why: why.into() }
}

/// Winograd's algorithm does 3x3 windows with stride 1, the Fourier transforms any window with stride 1.
fn runs(algorithm: Algorithm, conv: &Conv2d) -> bool {
    let plain = conv.stride.is(1) && conv.dilation.is(1);
    match algorithm {
        Algorithm::Winograd | Algorithm::WinogradNonfused => plain && conv.kernel.is(3),
        Algorithm::Fft | Algorithm::FftTiling => plain,
        _ => true,
    }
}

impl LayerRunner for FakeGpu {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn load(&mut self, trial: &Trial) -> Result<Loaded, DeviceError> {
        let mut world = self.call()?;
        let kind = trial.case.layer.kind();
        if world.faults.unsupported.iter().any(|k| k == kind) {
            return Err(unsupported(kind, "refused on request"));
        }
        if let Layer::Conv2d(conv) = &trial.case.layer
            && !runs(trial.algorithm, conv)
        {
            return Err(unsupported(kind, format!("{} does not do this window", trial.algorithm)));
        }
        let memory = trial.footprint().map_err(|e| unsupported(kind, e.to_string()))?;
        self.check_memory(&world, memory)?;
        let work = Effort::of_trial(trial, &self.gpu)
            .ok_or_else(|| unsupported(kind, format!("no kernel runs in {} {}", trial.phase, trial.precision)))?;
        let algorithm =
            matches!(trial.case.layer, Layer::Conv2d(_)).then(|| format!("{FAKE_PREFIX}{}", trial.algorithm));
        Ok(self.put(&mut world, work, algorithm, Some(trial.cache), memory))
    }

    /// Layers one after the other, as one piece of work.
    fn load_network(&mut self, trial: &NetworkTrial<'_>) -> Result<Loaded, DeviceError> {
        let mut world = self.call()?;
        let mut total = Effort { compute: Seconds::ZERO, memory: Seconds::ZERO, factor: 0.0 };
        let (mut time, mut memory) = (Seconds::ZERO, Bytes::ZERO);
        for layer in trial.network.layers() {
            for phase in trial.mode.phases() {
                let Some(cost) = trial.network.cost(layer, *phase, trial.mode) else { continue };
                let usual = if *phase == Phase::Forward { Mode::Inference } else { Mode::Training };
                let work = Work::of(layer, *phase, trial.batch, trial.precision, usual);
                let work = Effort::of(work, cost, &self.gpu)
                    .ok_or_else(|| unsupported(&layer.name, format!("no peak for {}", trial.precision)))?;
                total.compute += work.compute;
                total.memory += work.memory;
                time += work.time(1.0);
                memory += cost.written;
            }
        }
        if time <= Seconds::ZERO {
            return Err(unsupported(trial.network.name(), "no kernel runs in it"));
        }
        self.check_memory(&world, memory)?;
        let plain = Effort { factor: 1.0, ..total };
        total.factor = time / plain.time(1.0);
        Ok(self.put(&mut world, total, None, None, memory))
    }

    fn enqueue(&mut self) -> Result<(), DeviceError> {
        self.call()?.enqueue()
    }

    fn finished(&mut self, wait: bool) -> Result<Vec<Block>, DeviceError> {
        Ok(self.call()?.finished(wait))
    }
}

impl PowerMeter for FakeGpu {
    fn sample(&mut self) -> Result<Sample, DeviceError> {
        Ok(self.call()?.sample())
    }
}

impl FakeGpu {
    fn change(&self, what: &str) -> Result<RefMut<'_, World>, DeviceError> {
        let world = self.call()?;
        if world.faults.permission { Err(DeviceError::NotPermitted(what.to_string())) } else { Ok(world) }
    }
}

impl ClockControl for FakeGpu {
    fn uuid(&self) -> Result<String, DeviceError> {
        self.call()?;
        Ok(self.identity.uuid.clone().unwrap_or_default())
    }

    fn settings(&self) -> Result<Settings, DeviceError> {
        let world = self.call()?;
        Ok(Settings { power_limit: world.limit, core_lock: world.lock })
    }

    fn core_clocks(&self) -> Result<Vec<Hertz>, DeviceError> {
        Ok(self.call()?.clocks.clone())
    }

    fn power_limits(&self) -> Result<(Watts, Watts), DeviceError> {
        let world = self.call()?;
        let bound = |limit: &Option<joulecast_model::device::gpu::Sourced<Watts>>| limit.as_ref().map(|l| l.value);
        let power = &self.gpu.power;
        Ok((
            bound(&power.limit_minimum).unwrap_or(world.limit),
            bound(&power.limit_maximum).unwrap_or(power.limit.value),
        ))
    }

    fn lock_core_clock(&mut self, clock: Option<Hertz>) -> Result<(), DeviceError> {
        self.change("the core clock")?.lock = clock;
        Ok(())
    }

    fn set_power_limit(&mut self, limit: Watts) -> Result<(), DeviceError> {
        self.change("the power limit")?.limit = limit;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Launch;
    use joulecast_model::base::precision::{Mode, Phase, Precision};
    use joulecast_model::base::shape::Shape;
    use joulecast_model::catalog;
    use joulecast_model::kernel::setting::Layout;
    use joulecast_model::net::case::LayerCase;
    use joulecast_model::net::layer::{Activation, Function};
    use joulecast_model::net::network::ShapedNetwork;

    fn gpu() -> Gpu {
        catalog::gpu("h200").expect("in the catalog")
    }

    fn trial() -> Trial {
        let case = LayerCase {
            inputs: vec![Shape::map(64, 56, 56).expect("shape")],
            layer: Layer::Activation(Activation { function: Function::Relu }),
        };
        Trial::usual(case, Phase::Forward, 32, Precision::Fp32, Mode::Inference).expect("fits")
    }

    fn times(seed: u64) -> Vec<Block> {
        let mut fake = FakeGpu::new(&gpu(), seed, Faults::default());
        fake.load(&trial()).expect("loads");
        (0..4).for_each(|_| fake.enqueue().expect("queues"));
        assert!(fake.finished(false).expect("answers").is_empty(), "nothing has had time to finish");
        let mut blocks = Vec::new();
        while blocks.len() < 4 {
            blocks.extend(fake.finished(true).expect("answers"));
        }
        assert!(fake.finished(true).expect("answers").is_empty(), "nothing is queued");
        blocks
    }

    #[test]
    fn equal_seeds_give_equal_times() {
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }

    #[test]
    fn energy_is_power_over_time_and_the_counter_ticks() {
        let mut fake = FakeGpu::new(&gpu(), 1, Faults::default());
        let samples: Vec<Sample> = (0..400).map(|_| fake.sample().expect("answers")).collect();
        let reading = crate::energy::reading(&samples).expect("ticks");
        assert!((reading.power.get() / law::ACTIVE_IDLE.get() - 1.0).abs() < 5e-3, "{}", reading.power);
        assert!((11..=12).contains(&reading.ticks), "{} in 1.2 s", reading.ticks);
    }

    #[test]
    fn settings_are_changed_only_with_permission() {
        let mut fake = FakeGpu::new(&gpu(), 1, Faults::default());
        let before = fake.settings().expect("answers");
        fake.lock_core_clock(Some(Hertz::from_mhz(990.0))).expect("permitted");
        assert_eq!(fake.settings().expect("answers").core_lock, Some(Hertz::from_mhz(990.0)));
        let mut refused = FakeGpu::new(&gpu(), 1, Faults { permission: true, ..Faults::default() });
        assert!(matches!(refused.set_power_limit(Watts::new(300.0)), Err(DeviceError::NotPermitted(_))));
        assert_eq!(refused.settings().expect("answers"), before);
    }

    #[test]
    fn what_is_too_large_or_refused_is_an_error_of_its_own() {
        let mut small = FakeGpu::new(&gpu(), 1, Faults { memory: Some(Bytes::new(1 << 20)), ..Faults::default() });
        assert!(matches!(small.load(&trial()), Err(DeviceError::OutOfMemory { .. })));
        let unsupported = Faults { unsupported: vec!["relu".into()], ..Faults::default() };
        assert!(matches!(FakeGpu::new(&gpu(), 1, unsupported).load(&trial()), Err(DeviceError::Unsupported { .. })));
        assert!(FakeGpu::new(&gpu(), 1, Faults::default()).enqueue().is_err(), "nothing is loaded");
    }

    #[test]
    fn a_network_takes_what_its_layers_take() {
        let network = catalog::network("resnet18").expect("in the zoo");
        let network = ShapedNetwork::new(&network, 8, Precision::Fp32, &[]).expect("shapes");
        let step = |mode| {
            let mut fake = FakeGpu::new(&gpu(), 1, Faults::default());
            let trial = NetworkTrial {
                network: &network,
                batch: 8,
                precision: Precision::Fp32,
                mode,
                layout: Layout::Nchw,
                launch: Launch::Graph,
            };
            fake.load_network(&trial).expect("loads");
            fake.enqueue().expect("queues");
            fake.finished(true).expect("answers")[0].each()
        };
        let (inference, training) = (step(Mode::Inference), step(Mode::Training));
        assert!(inference > Seconds::from_us(200.0) && training > inference * 2.0, "{inference} {training}");
    }

    #[test]
    fn faults_are_read_from_words() {
        let faults = Faults::from_words(["drifting", "lost_after=3", "unsupported=relu"]).expect("known words");
        assert!(faults.drifting && faults.lost_after == Some(3) && faults.unsupported == ["relu"]);
        assert!(Faults::from_words(["lost_after=x"]).is_err() && Faults::from_words(["x"]).is_err());
    }
}
