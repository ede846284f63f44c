//! What is built in.

use anyhow::{Context, Result, anyhow};
use joulecast_model::base::order::sort_by;
use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use joulecast_model::device::gpu::{Device, Gpu};
use joulecast_model::law::calibration::{Calibration, Tier};
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::rows::splits::{Role, Splits};
use joulecast_model::step::framework::Framework;
use joulecast_model::step::framework::Input;

/// Networks of the zoo with their roles, and with shapes at batch 1 in fp32.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn nets() -> Result<Vec<(Network, Option<Role>, ShapedNetwork)>> {
    let splits = Splits::shipped().map_err(|e| anyhow!(e))?;
    let read = |name| -> Result<_> {
        let network = catalog::network(name)?;
        let shaped = ShapedNetwork::new(&network, 1, Precision::Fp32, &[])?;
        Ok((network, splits.role(name), shaped))
    };
    catalog::network_names().map(read).collect()
}

/// Architectures, oldest first, those of a vendor together; others follow.
const GENERATIONS: [&str; 12] = [
    "kepler",
    "maxwell",
    "pascal",
    "volta",
    "turing",
    "ampere",
    "ada",
    "hopper",
    "blackwell",
    "cdna2",
    "cdna3",
    "cdna4",
];

/// Known devices, and what times on them rest on: by architecture, those of a generation by their names, processors last.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn gpus() -> Result<Vec<(Gpu, Tier)>> {
    let read = |name| -> Result<_> {
        let gpu = catalog::gpu(name)?;
        let tier = catalog::calibration_for(&gpu)?.map_or(Tier::Roofline, |c| c.tier_on(&gpu.name));
        Ok((gpu, tier))
    };
    let mut gpus = catalog::gpu_names().map(read).collect::<Result<Vec<_>>>()?;
    let generation = |gpu: &Gpu| GENERATIONS.iter().position(|a| *a == gpu.architecture).unwrap_or(GENERATIONS.len());
    let place = |gpu: &Gpu| (gpu.device == Device::Cpu, generation(gpu));
    sort_by(&mut gpus, |(a, _), (b, _)| place(a).cmp(&place(b)));
    Ok(gpus)
}

/// Framework profiles.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn frameworks() -> Result<Vec<Framework>> {
    catalog::framework_names().map(|name| catalog::framework(name).map_err(|e| anyhow!(e))).collect()
}

/// Input pipelines whose rate the profiles know, by profile.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn inputs() -> Result<Vec<(String, Input)>> {
    let named = |f: Framework| f.inputs.into_iter().map(move |input| (f.name.clone(), input));
    Ok(frameworks()?.into_iter().flat_map(named).collect())
}

/// Fitted models that are built in.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn calibrations() -> Result<Vec<Calibration>> {
    let read = |(name, _)| catalog::calibration(name).with_context(|| format!("data/calibrations/{name}.toml"));
    catalog::calibration_files().filter_map(|file| read(file).transpose()).collect()
}
