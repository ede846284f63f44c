//! What is built in, for the page's lists.

use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use joulecast_model::step::generation;
use joulecast_predict::ask;
use serde::Serialize;
use std::collections::BTreeMap;

/// Networks, GPUs and profiles, and which file of `data` a chip's calibration is.
#[derive(Serialize)]
pub struct Catalog {
    version: &'static str,
    networks: Vec<Network>,
    gpus: Vec<Gpu>,
    frameworks: Vec<Framework>,
    /// Files of calibrations that are fetched, by name.
    calibrations: BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct Network {
    name: String,
    title: String,
    /// Whether it reads tokens, so that a length may be asked for.
    sequence: bool,
}

#[derive(Serialize)]
struct Gpu {
    name: String,
    title: String,
    architecture: String,
    memory_gib: f64,
    limit_w: f64,
    boost_mhz: f64,
    /// Whether it is a processor.
    cpu: bool,
    precisions: Vec<&'static str>,
    /// The calibration of its chip, where one was ever measured.
    calibration: Option<&'static str>,
}

#[derive(Serialize)]
struct Framework {
    name: String,
    title: String,
    launch: &'static str,
    /// Whether it is of inference alone.
    inference_only: bool,
}

impl Catalog {
    /// # Errors
    /// In words, only if the build baked in a malformed file.
    pub fn shipped() -> Result<Self, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let networks = catalog::listed_networks().map_err(|e| words(&e))?.into_iter().map(|network| Network {
            sequence: network.has_dimension(generation::SEQUENCE),
            name: network.name,
            title: network.title,
        });
        let files = || catalog::calibration_files().filter(|(name, _)| *name != "all_chips");
        let gpu = |name| {
            let gpu = catalog::gpu(name).map_err(|e| words(&e))?;
            let chip = gpu.chip.to_ascii_lowercase();
            let computes = |p: &&Precision| gpu.computes_in(**p).is_some();
            Ok(Gpu {
                memory_gib: gpu.memory.value.to_gib(),
                limit_w: gpu.power.limit.value.get(),
                boost_mhz: gpu.core_clock.boost.value.to_mhz(),
                cpu: gpu.device == joulecast_model::device::gpu::Device::Cpu,
                precisions: Precision::ALL.iter().filter(computes).map(|p| p.name()).collect(),
                calibration: files().map(|(name, _)| name).find(|name| *name == chip),
                name: gpu.name,
                title: gpu.title,
                architecture: gpu.architecture,
            })
        };
        let frameworks = ask::frameworks().map_err(|e| words(&e))?.into_iter().map(|f| Framework {
            launch: f.usual_launch().name(),
            inference_only: f.fusion.is_some(),
            name: f.name,
            title: f.title,
        });
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            networks: networks.collect(),
            gpus: catalog::gpu_names().map(gpu).collect::<Result<_, String>>()?,
            frameworks: frameworks.collect(),
            calibrations: joulecast_data::PACKED_CALIBRATIONS
                .iter()
                .filter(|file| file.name != "all_chips")
                .map(|file| (file.name, file.stored_as()))
                .collect(),
        })
    }
}
