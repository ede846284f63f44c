//! The networks, devices, calibrations and framework profiles that are baked into the program.

use crate::base::file::FileError;
use crate::base::precision::Precision;
use crate::base::text::{nearest, shown};
use crate::device::gpu::{Gpu, GpuError};
use crate::device::interconnect::Interconnect;
use crate::law::calibration::{Calibration, CalibrationError};
use crate::net::network::{Network, NetworkError};
use crate::step::calibrations::{ALL_CHIPS, holds_for, shipped};
use crate::step::framework::Framework;
use joulecast_data::{CALIBRATIONS, FRAMEWORKS, GPUS, INTERCONNECTS, NETS};

/// A fingerprint of the code that predicts.
pub const SOURCES: &str = env!("JOULECAST_SOURCES");

/// A name that the catalog does not have, with the nearest that it has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {what} named \"{name}\"{suggestion}")]
pub struct Unknown {
    /// network, gpu ...
    what: &'static str,
    /// As asked for.
    name: String,
    suggestion: String,
}

impl Unknown {
    fn new<'a>(what: &'static str, name: &str, names: impl Iterator<Item = &'a str>) -> Self {
        let near = nearest(name, names);
        let suggestion = match (near.is_empty(), what) {
            (true, "interconnect") => {
                "; `predict list interconnects` shows all, and files of one's own are not read".into()
            }
            (true, _) => format!("; `predict list {what}s` shows all, a file is given by its path"),
            (false, _) => format!("; nearest: {}", near.join(", ")),
        };
        Self { what, name: shown(name), suggestion }
    }
}

/// Why something baked in could not be had.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// No such name.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// A baked-in network file is malformed: a defect of the build.
    #[error("data/nets/{0}.toml: {1}")]
    Network(String, NetworkError),
    /// A baked-in device file is malformed: a defect of the build.
    #[error("data/gpus/{0}.toml: {1}")]
    Gpu(String, GpuError),
    /// A baked-in interconnect file is malformed: a defect of the build.
    #[error("data/interconnects/{0}.toml: {1}")]
    Interconnect(String, FileError),
    /// An embedded framework profile is malformed: a defect of the build.
    #[error("data/frameworks/{0}.toml: {1}")]
    Framework(String, FileError),
    /// No framework profile of a name.
    #[error("no framework profile named \"{name}\"; there is: {}", .there.join(", "))]
    NoFramework {
        /// As asked for.
        name: String,
        /// The nearest names, or all.
        there: Vec<&'static str>,
    },
}

/// Names of the zoo's networks.
pub fn network_names() -> impl Iterator<Item = &'static str> {
    NETS.iter().map(|(name, _)| *name)
}

/// Names of the known devices.
pub fn gpu_names() -> impl Iterator<Item = &'static str> {
    GPUS.iter().map(|(name, _)| *name)
}

/// Names and texts of the shipped calibrations.
pub fn calibrations() -> &'static [(&'static str, &'static str)] {
    CALIBRATIONS
}

/// Names and texts of the framework profiles.
pub fn frameworks() -> &'static [(&'static str, &'static str)] {
    FRAMEWORKS
}

/// A network of the zoo, by name or alias.
///
/// # Errors
/// When there is none, with the nearest names.
pub fn network(name: &str) -> Result<Network, CatalogError> {
    let read =
        |(key, text): &(&str, &str)| Network::from_toml(text).map_err(|e| CatalogError::Network(key.to_string(), e));
    find(NETS, name, read, |n| &n.aliases)?.ok_or_else(|| Unknown::new("net", name, network_names()).into())
}

/// Words that stand before a GPU's name in what drivers and shops call it.
const MAKERS: [&str; 5] = ["nvidia", "amd", "geforce", "tesla", "instinct"];

/// A known device, by name or alias, with or without its maker's name: `rtx3090`, `RTX 3090`, `NVIDIA GeForce RTX 3090`.
///
/// # Errors
/// When there is none, with the nearest names.
pub fn gpu(name: &str) -> Result<Gpu, CatalogError> {
    let read = |(key, text): &(&str, &str)| Gpu::from_toml(text).map_err(|e| CatalogError::Gpu(key.to_string(), e));
    let mut wanted = bare(name);
    loop {
        if let Some(gpu) = find(GPUS, &wanted, read, |g| &g.aliases)? {
            return Ok(gpu);
        }
        match MAKERS.iter().find_map(|maker| wanted.strip_prefix(maker)) {
            Some(rest) if !rest.is_empty() => wanted = rest.to_string(),
            _ => return Err(Unknown::new("gpu", name, gpu_names()).into()),
        }
    }
}

fn read_interconnect((key, text): &(&str, &str)) -> Result<Interconnect, CatalogError> {
    Interconnect::from_toml(text).map_err(|e| CatalogError::Interconnect(key.to_string(), e))
}

/// All interconnects.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn interconnects() -> Result<Vec<Interconnect>, CatalogError> {
    INTERCONNECTS.iter().map(read_interconnect).collect()
}

/// An interconnect, by name or alias.
///
/// # Errors
/// When there is none, with the nearest names.
pub fn interconnect(name: &str) -> Result<Interconnect, CatalogError> {
    let names = INTERCONNECTS.iter().map(|(name, _)| *name);
    find(INTERCONNECTS, name, read_interconnect, |i| &i.aliases)?
        .ok_or_else(|| Unknown::new("interconnect", name, names).into())
}

/// A framework profile, by name.
///
/// # Errors
/// When there is none of that name; the message lists the nearest, or all.
pub fn framework(name: &str) -> Result<Framework, CatalogError> {
    match FRAMEWORKS.iter().find(|(key, _)| *key == name) {
        Some((key, text)) => Framework::from_toml(text).map_err(|e| CatalogError::Framework(key.to_string(), e)),
        None => {
            let names = FRAMEWORKS.iter().map(|(key, _)| *key);
            let near = nearest(name, names.clone());
            let there = if near.is_empty() { names.collect() } else { near };
            Err(CatalogError::NoFramework { name: name.into(), there })
        }
    }
}

/// A name without what people write differently: case, spaces, dashes, brackets.
fn bare(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace() && !"-_()".contains(*c)).flat_map(char::to_lowercase).collect()
}

/// An entry by its file name, or else the one among whose aliases the name is, whatever their case, spaces and dashes. Only
/// texts whose aliases look like the name are parsed, so that a look-up stays fast.
fn find<T>(
    table: &[(&str, &str)],
    name: &str,
    read: impl Fn(&(&str, &str)) -> Result<T, CatalogError>,
    aliases: impl Fn(&T) -> &Vec<String>,
) -> Result<Option<T>, CatalogError> {
    let wanted = bare(name);
    if wanted.is_empty() {
        return Ok(None);
    }
    if let Some(entry) = table.iter().find(|(key, _)| bare(key) == wanted) {
        return read(entry).map(Some);
    }
    let alike = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("aliases"));
        line.is_some_and(|line| line.split('"').any(|alias| bare(alias) == wanted))
    };
    for entry in table.iter().filter(|(_, text)| alike(text)) {
        let value = read(entry)?;
        if aliases(&value).iter().any(|alias| bare(alias) == wanted) {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// The shipped calibration of a chip; `None` where no layer of it was ever measured.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn calibration(chip: &str) -> Result<Option<Calibration>, CalibrationError> {
    shipped(chip).map(Calibration::from_toml).transpose()
}

/// The shipped calibration that holds for a device in fp32: that of its chip, unless the device is described so differently
/// from every measured board that it is not that chip (a file of the user's own, say).
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn calibration_for(gpu: &Gpu) -> Result<Option<Calibration>, CalibrationError> {
    Ok(calibration(&gpu.chip)?.filter(|c| holds_for(c, gpu, Precision::Fp32)))
}

/// The models over all measured chips.
///
/// # Errors
/// Only if the build baked in a malformed file, or none.
pub fn all_chips() -> Result<Calibration, CalibrationError> {
    calibration(ALL_CHIPS)?.ok_or_else(CalibrationError::missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_said_with_what_can_be_done() {
        let error = |result: Result<(), CatalogError>| result.expect_err("unknown").to_string();
        let interconnect = error(interconnect("./x.toml").map(drop));
        assert!(
            interconnect.contains("predict list interconnects") && !interconnect.contains("path"),
            "{interconnect}"
        );
        assert!(error(gpu("zzz").map(drop)).contains("a file is given by its path"));
        assert!(error(gpu("v10").map(drop)).contains("nearest: v100"));
    }
}
