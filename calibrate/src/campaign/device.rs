//! Devices to measure on: a CUDA GPU, or the fake.

use anyhow::{Result, bail};
use joulecast_kernels::cuda::{CudaRunner, library};
use joulecast_kernels::fake::{FakeGpu, Faults, PRODUCT};
use joulecast_kernels::nvml::{self, BoardChoice, NvmlMeter};
use joulecast_kernels::{DeviceError, LayerRunner, PowerMeter};
use joulecast_model::base::units::Seconds;
use joulecast_model::device::gpu::Gpu;
use std::time::Instant;

pub use joulecast_machine::gpu::{described, identified};

/// The GPU that the fake pretends to be unless told otherwise.
const FAKE_GPU: &str = "h200";
/// Source of rows that the fake gave.
pub use joulecast_model::step::predictor::SIMULATED;
/// Among the fake's faults: its settings are made through the NVML library that the environment names.
pub const THROUGH_NVML: &str = "nvml";
/// Seed of the fake's noise.
const FAKE_SEED: u64 = 1;

/// Which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// The first CUDA GPU
    Cuda,
    /// A simulated GPU with a known law: its rows are no measurements
    Fake,
}

/// A device that is ready to measure.
pub struct Device {
    /// Runs layers and networks.
    pub runner: Box<dyn LayerRunner>,
    /// Reads power, energy and clocks.
    pub meter: Option<Box<dyn PowerMeter>>,
    /// What its rows count as: an entry of `data/gpus` or a file.
    pub gpu: Gpu,
    /// Column `source` of its rows: `own`, or `fake`.
    pub source: &'static str,
    /// Things to tell the user.
    pub notes: Vec<String>,
    /// The fake, where its settings are changed through it.
    pub fake: Option<FakeGpu>,
    clock: Box<dyn Fn() -> Seconds>,
}

impl Device {
    /// Time since an arbitrary origin: the host's, or the fake's virtual one.
    pub fn now(&self) -> Seconds {
        (self.clock)()
    }

    /// Opens a device. `gpu` names what its rows count as, where the product's name does not.
    ///
    /// # Errors
    /// When there is no such device, or it is none that `data/gpus` describes and `gpu` is not given.
    pub fn open(kind: Kind, gpu: Option<&str>, faults: &[String]) -> Result<Self> {
        match kind {
            Kind::Fake => Self::fake(gpu, faults),
            Kind::Cuda if !faults.is_empty() => bail!("faults can be asked of the fake device only"),
            Kind::Cuda => Self::cuda(gpu),
        }
    }

    fn fake(gpu: Option<&str>, faults: &[String]) -> Result<Self> {
        let gpu = described(gpu.unwrap_or(FAKE_GPU))?;
        let (through_nvml, faults): (Vec<&str>, Vec<&str>) =
            faults.iter().map(String::as_str).partition(|fault| *fault == THROUGH_NVML);
        let faults = Faults::from_words(faults).map_err(anyhow::Error::msg)?;
        let device = Self::of_fake(&FakeGpu::new(&gpu, FAKE_SEED, faults), gpu);
        Ok(if through_nvml.is_empty() { device } else { Self { fake: None, ..device } })
    }

    /// A fake as a device that counts as `gpu`; the caller keeps a handle to change its settings through.
    pub fn of_fake(fake: &FakeGpu, gpu: Gpu) -> Self {
        let clock = fake.clone();
        Self {
            notes: vec![format!("{PRODUCT}: rows with the source \"fake\" are simulated, not measured")],
            runner: Box::new(fake.clone()),
            meter: Some(Box::new(fake.clone())),
            gpu,
            source: SIMULATED,
            fake: Some(fake.clone()),
            clock: Box::new(move || clock.now()),
        }
    }
    fn cuda(gpu: Option<&str>) -> Result<Self> {
        let mut runner = open_cuda()?;
        let identity = runner.identity().clone();
        let gpu = identified(&identity.product, gpu)?;
        let board = nvml::open(None)
            .and_then(|library| library.board(&identity.uuid.clone().map_or(BoardChoice::Index(0), BoardChoice::Uuid)));
        if let Ok(about) = board.as_ref().map_err(Clone::clone).and_then(|board| board.describe()) {
            runner.set_driver(about.driver, about.pci);
        }
        let known = |version: Option<String>| version.unwrap_or_else(|| "of unknown version".to_string());
        let mut notes = vec![format!(
            "{}, CUDA {}, cuDNN {}, cuBLAS {}",
            identity.product,
            known(identity.cuda),
            known(identity.cudnn),
            known(identity.cublas)
        )];
        let meter = board.and_then(NvmlMeter::new);
        let meter: Option<Box<dyn PowerMeter>> = match meter {
            Ok(meter) => Some(Box::new(meter)),
            Err(why) => {
                notes.push(format!("times only, without power, energy and clocks: {why}"));
                None
            }
        };
        let begun = Instant::now();
        Ok(Self {
            runner: Box::new(runner),
            meter,
            gpu,
            source: "own",
            fake: None,
            notes,
            clock: Box::new(move || Seconds::new(begun.elapsed().as_secs_f64())),
        })
    }
}

impl Kind {
    /// A device that is only asked which algorithms it would run.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn to_ask(self) -> Result<(Box<dyn LayerRunner>, Gpu)> {
        if self == Self::Fake {
            let device = Device::open(self, None, &[])?;
            return Ok((device.runner, device.gpu));
        }
        let runner = opened(CudaRunner::open_without_memory)?;
        let gpu = identified(&runner.identity().product, None)?;
        Ok((Box::new(runner), gpu))
    }
}

/// The first CUDA GPU. The program starts once more where NVIDIA's libraries lie outside the loader's path.
///
/// # Errors
/// When a library is missing or there is no GPU.
pub fn open_cuda() -> Result<CudaRunner> {
    opened(CudaRunner::open)
}

fn opened(open: impl FnOnce(usize) -> Result<CudaRunner, DeviceError>) -> Result<CudaRunner> {
    library::prepare(None)?;
    let runner = open(0);
    library::clean();
    Ok(runner?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_belong_to_the_fake() {
        assert!(Device::open(Kind::Cuda, None, &["drifting".into()]).is_err());
        assert!(Device::open(Kind::Fake, None, &["gremlins".into()]).is_err());
        let fake = Device::open(Kind::Fake, None, &[]).expect("no GPU needed");
        assert_eq!((fake.source, fake.gpu.name.as_str()), ("fake", "h200"));
    }
}
