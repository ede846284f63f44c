//! The networks, devices, calibrations and framework profiles that are baked into the program.

use crate::base::file::FileError;
use crate::base::packed::from_packed;
use crate::base::precision::Precision;
use crate::base::text::{nearest, shown};
use crate::device::gpu::{Gpu, GpuError};
use crate::device::interconnect::Interconnect;
use crate::law::calibration::{Calibration, CalibrationError};
use crate::net::network::{Network, NetworkError};
use crate::step::calibrations::{ALL_CHIPS, holds_for, shipped};
use crate::step::framework::Framework;
use joulecast_data::{
    CALIBRATIONS, FRAMEWORKS, PACKED_CALIBRATIONS, PACKED_FRAMEWORKS, PACKED_GPUS, PACKED_INTERCONNECTS, PACKED_NETS,
    Packed,
};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// By which the data of two builds are told apart: networks, devices, calibrations, profiles, links.
pub fn data_version() -> String {
    joulecast_data::version()
}

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
            (true, _) => {
                format!("; `predict list {what}s` shows all, a file is given by its path, as in ./{}", shown(name))
            }
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
    PACKED_NETS.iter().map(|file| file.name)
}

/// What lists say of a network without reading its layers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What it is.
    pub title: String,
    #[serde(default)]
    dimensions: BTreeMap<String, u64>,
}

impl Listed {
    /// Whether so-called sizes of its inputs may be asked for: [`Network::bind`].
    pub fn has_dimension(&self, name: &str) -> bool {
        self.dimensions.contains_key(name)
    }
}

/// The zoo's networks in the order of their names.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn listed_networks() -> Result<Vec<Listed>, FileError> {
    PACKED_NETS.iter().map(|file| from_packed(file.bytes)).collect()
}

/// Names of the known devices.
pub fn gpu_names() -> impl Iterator<Item = &'static str> {
    PACKED_GPUS.iter().map(|file| file.name)
}

/// Names of the framework profiles.
pub fn framework_names() -> impl Iterator<Item = &'static str> + Clone {
    PACKED_FRAMEWORKS.iter().map(|file| file.name)
}

/// Names and texts of the shipped calibrations.
pub fn calibrations() -> &'static [(&'static str, &'static str)] {
    CALIBRATIONS
}

/// Names and fingerprints of the shipped calibrations' files.
pub fn calibration_files() -> impl Iterator<Item = (&'static str, &'static str)> {
    PACKED_CALIBRATIONS.iter().map(|file| (file.name, file.fingerprint))
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
        |file: &Packed| Network::from_packed(file.bytes).map_err(|e| CatalogError::Network(file.name.to_string(), e));
    find(PACKED_NETS, name, read)?.ok_or_else(|| Unknown::new("net", name, network_names()).into())
}

/// Words that stand before a GPU's name in what drivers and shops call it.
const MAKERS: [&str; 5] = ["nvidia", "amd", "geforce", "tesla", "instinct"];

/// A known device, by name or alias, with or without its maker's name: `rtx3090`, `RTX 3090`, `NVIDIA GeForce RTX 3090`.
///
/// # Errors
/// When there is none, with the nearest names.
pub fn gpu(name: &str) -> Result<Gpu, CatalogError> {
    let read = |file: &Packed| Gpu::from_packed(file.bytes).map_err(|e| CatalogError::Gpu(file.name.to_string(), e));
    let mut wanted = bare(name);
    loop {
        if let Some(gpu) = find(PACKED_GPUS, &wanted, read)? {
            return Ok(gpu);
        }
        match MAKERS.iter().find_map(|maker| wanted.strip_prefix(maker)) {
            Some(rest) if !rest.is_empty() => wanted = rest.to_string(),
            _ => return Err(Unknown::new("gpu", name, gpu_names()).into()),
        }
    }
}

fn read_interconnect(file: &Packed) -> Result<Interconnect, CatalogError> {
    Interconnect::from_packed(file.bytes).map_err(|e| CatalogError::Interconnect(file.name.to_string(), e))
}

/// All interconnects.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn interconnects() -> Result<Vec<Interconnect>, CatalogError> {
    PACKED_INTERCONNECTS.iter().map(read_interconnect).collect()
}

/// An interconnect, by name or alias.
///
/// # Errors
/// When there is none, with the nearest names.
pub fn interconnect(name: &str) -> Result<Interconnect, CatalogError> {
    let names = PACKED_INTERCONNECTS.iter().map(|file| file.name);
    find(PACKED_INTERCONNECTS, name, read_interconnect)?.ok_or_else(|| Unknown::new("interconnect", name, names).into())
}

/// A framework profile, by name.
///
/// # Errors
/// When there is none of that name; the message lists the nearest, or all.
pub fn framework(name: &str) -> Result<Framework, CatalogError> {
    match PACKED_FRAMEWORKS.iter().find(|file| file.name == name) {
        Some(file) => Framework::from_packed(file.bytes).map_err(|e| CatalogError::Framework(file.name.to_string(), e)),
        None => {
            let names = framework_names();
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

/// What else a file's subject is called.
#[derive(Deserialize)]
struct Aliases {
    #[serde(default)]
    aliases: Vec<Cow<'static, str>>,
}

/// An entry by its file name, or else the one among whose aliases the name is, whatever their case, spaces and dashes.
fn find<T>(
    table: &'static [Packed],
    name: &str,
    read: impl Fn(&Packed) -> Result<T, CatalogError>,
) -> Result<Option<T>, CatalogError> {
    let wanted = bare(name);
    if wanted.is_empty() {
        return Ok(None);
    }
    // What cannot be read says so itself.
    let called = |file: &&Packed| {
        let aliases = from_packed::<Aliases>(file.bytes).map(|file| file.aliases);
        aliases.is_ok_and(|names| names.iter().any(|alias| bare(alias) == wanted))
    };
    let entry = table.iter().find(|file| bare(file.name) == wanted).or_else(|| table.iter().find(called));
    entry.map(read).transpose()
}

/// The shipped calibration of a chip; `None` where no layer of it was ever measured.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn calibration(chip: &str) -> Result<Option<Calibration>, CalibrationError> {
    shipped(chip, None)
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
    use crate::base::precision::Mode;
    use crate::base::text::Fingerprint;
    use crate::kernel::features::{MAX_VARIABLES, Variables};
    use crate::law::calibration::{EngineTerms, LayerModel, Term, Wanted};
    use joulecast_data::{CUDNN, GPUS, INTERCONNECTS, NETS, PACKED_CUDNN};
    use std::fmt::Write as _;

    fn same<T: PartialEq + std::fmt::Debug>(name: &str, packed: T, text: T) {
        assert!(packed == text, "{name}: {packed:?}\n{text:?}");
    }

    /// A calibration without the terms of its models and their engines.
    fn without_terms(calibration: &Calibration) -> Calibration {
        let engine = |e: &EngineTerms| EngineTerms { terms: Vec::new().into(), ..e.clone() };
        let engines = |m: &LayerModel| m.engines.iter().map(engine).collect();
        let model = |m: &LayerModel| LayerModel { terms: Vec::new(), engines: engines(m), ..m.clone() };
        Calibration { models: calibration.models.iter().map(model).collect(), ..calibration.clone() }
    }

    /// TOML is the source: what the build packed says the same, to the last digit but for terms, which it folds.
    #[test]
    fn packed_files_say_what_their_texts_say() {
        for (name, text) in NETS {
            same(name, network(name).expect("packed"), Network::from_toml(text).expect("readable"));
        }
        for (name, text) in GPUS {
            same(name, gpu(name).expect("packed"), Gpu::from_toml(text).expect("readable"));
        }
        for (name, text) in FRAMEWORKS {
            same(name, framework(name).expect("packed"), Framework::from_toml(text).expect("readable"));
        }
        for (name, text) in INTERCONNECTS {
            same(name, interconnect(name).expect("packed"), Interconnect::from_toml(text).expect("readable"));
        }
        for (name, text) in CALIBRATIONS {
            let packed = calibration(name).expect("packed").expect("there");
            let text = Calibration::from_toml(text).expect("readable");
            same(name, without_terms(&packed), without_terms(&text));
            for (packed, text) in packed.models.iter().zip(text.models.iter()) {
                let names = |m: &LayerModel| m.terms.iter().map(|t| t.factors.clone()).collect::<Vec<_>>();
                assert_eq!(names(packed), names(text), "{name} {}", packed.key);
                for at in [0.0, 0.25, 0.5, 0.75, 1.0] {
                    let mut values = [0.0; MAX_VARIABLES];
                    for r in &text.clamp {
                        values[r.variable] = r.low + at * (r.high - r.low);
                    }
                    let (found, expected) = (packed.polynomial(&values), text.polynomial(&values));
                    let size = |t: &Term| (t.coefficient / t.scale * t.mean).abs() + t.coefficient.abs();
                    let most = 1e-14 * text.terms.iter().map(size).fold(1.0 + expected.abs(), |sum, size| sum + size);
                    assert!((found - expected).abs() <= most, "{name} {}: {found} {expected}", packed.key);
                }
            }
            let engines = |c: &Calibration| c.models.iter().flat_map(|m| m.engines.clone()).collect::<Vec<_>>();
            for (packed, text) in engines(&packed).iter().zip(engines(&text)) {
                let names = |e: &EngineTerms| e.terms.iter().map(|t| t.factors.clone()).collect::<Vec<_>>();
                assert_eq!(names(packed), names(&text), "{name} {}", packed.engine);
                for at in [0.0, 0.25, 0.5, 0.75, 1.0] {
                    let mut variables = Variables { values: [0.0; MAX_VARIABLES] };
                    for r in text.clamp.iter() {
                        variables.values[r.variable] = r.low + at * (r.high - r.low);
                    }
                    let (found, expected) = (packed.log(&variables), text.log(&variables));
                    assert!((found - expected).abs() < 2e-7, "{name} {}: {found} {expected}", packed.engine);
                }
            }
        }
        let texts = NETS.iter().chain(GPUS).chain(FRAMEWORKS).chain(INTERCONNECTS).map(|(_, text)| *text);
        let packed = PACKED_NETS.iter().chain(PACKED_GPUS).chain(PACKED_FRAMEWORKS).chain(PACKED_INTERCONNECTS);
        for (text, file) in texts.chain([CUDNN]).zip(packed.chain([&PACKED_CUDNN])) {
            let value: toml::Value = from_packed(file.bytes).expect("packed");
            assert_eq!(value, toml::from_str(text).expect("readable"), "{}", file.name);
        }
    }

    /// Variables that a model does not read change nothing of what it says, by whatever engine.
    #[test]
    fn models_say_which_variables_they_read() {
        use crate::base::units::Seconds;
        use crate::kernel::features::{MAX_VARIABLES, Variables, Wanted};
        let mut bits: u64 = 20;
        for (name, _) in calibration_files() {
            let models = calibration(name).expect("packed").expect("there").models;
            assert_eq!(models.iter().count(), models.len(), "{name}: one cannot be read");
            for model in models.iter() {
                let mut all = [0.0; MAX_VARIABLES];
                for value in &mut all {
                    bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    *value = (bits >> 40) as f64 / f64::from(1 << 22);
                }
                let only = |reads: Wanted| -> [f64; MAX_VARIABLES] {
                    std::array::from_fn(|i| if reads.has(i) { all[i] } else { 0.0 })
                };
                let says = |values, engine| model.ratio(&Variables { values }, Seconds::new(1.0), engine);
                let polynomial = |values: &[f64]| (model.polynomial(values), model.sizes.relative_leverage(values));
                let read = only(model.reads(None));
                assert_eq!(polynomial(&all), polynomial(&read), "{name} {}", model.key);
                for engine in model.engines.iter().map(|e| Some(e.engine.as_str())).chain([None]) {
                    let read = only(model.reads(engine));
                    assert_eq!(says(all, engine), says(read, engine), "{name} {} {engine:?}", model.key);
                    let read = only(model.reads_of_all());
                    assert_eq!(says(all, engine), says(read, engine), "{name} {} {engine:?}", model.key);
                }
                for engine in &model.engines {
                    assert!(!engine.terms.is_empty() || engine.intercept != 0.0, "{name} {}: not read", engine.engine);
                    let (log, read) = (|values| engine.log(&Variables { values }), only(engine.reads()));
                    assert_eq!(log(all), log(read), "{name} {} {}", model.key, engine.engine);
                }
            }
        }
    }

    #[test]
    fn lists_say_what_networks_say() {
        let listed = listed_networks().expect("packed");
        assert_eq!(listed.len(), NETS.len());
        for entry in listed {
            let mut whole = network(&entry.name).expect("packed");
            assert_eq!((&entry.name, &entry.title), (&whole.name, &whole.title));
            assert_eq!(entry.has_dimension("sequence"), whole.bind("sequence", 8).is_ok(), "{}", entry.name);
        }
    }

    #[test]
    fn fingerprints_are_of_the_texts() {
        for ((name, text), (packed, fingerprint)) in CALIBRATIONS.iter().zip(calibration_files()) {
            let mut of_text = Fingerprint::default();
            of_text.write_str(text).expect("counted");
            assert_eq!((*name, of_text.to_string().as_str()), (packed, fingerprint));
        }
    }

    /// Cut anywhere, or with any byte changed, a packed file is an error or another file, and nothing worse.
    #[test]
    fn damaged_files_are_errors() {
        let whole = PACKED_GPUS[0].bytes;
        for end in 0..whole.len() {
            assert!(from_packed::<toml::Value>(&whole[..end]).is_err(), "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut other = whole.to_vec();
            other[at] ^= 0x55;
            let _ = from_packed::<toml::Value>(other.leak());
        }
    }

    #[test]
    fn a_part_has_the_models_of_its_precision_and_phase() {
        let wanted = Wanted { precision: Precision::Fp16, mode: Mode::Inference, framework: "cudnn", algorithm: None };
        let whole = calibration("gh100").expect("readable").expect("shipped");
        let part = shipped("gh100", Some(&wanted)).expect("readable").expect("shipped");
        assert!(part.models.len() < whole.models.len() && part.choices.len() < whole.choices.len());
        assert!(part.models.iter().all(|model| whole.models.contains(model)));
        let forward = |m: &&crate::law::calibration::LayerModel| {
            m.phase == crate::base::precision::Phase::Forward && m.precision == Precision::Fp16 && m.framework.is_none()
        };
        assert!(whole.models.iter().filter(forward).filter(|m| m.covers.is_empty()).all(|m| {
            part.models.contains(m) || m.key.name().starts_with("conv2d_") || m.key.name().contains("fft")
        }));
    }

    #[test]
    fn what_is_not_known_is_said_with_what_can_be_done() {
        let error = |result: Result<(), CatalogError>| result.expect_err("unknown").to_string();
        let interconnect = error(interconnect("./x.toml").map(drop));
        assert!(
            interconnect.contains("predict list interconnects") && !interconnect.contains("path"),
            "{interconnect}"
        );
        assert!(error(gpu("zzz").map(drop)).ends_with("a file is given by its path, as in ./zzz"));
        assert!(error(gpu("v10").map(drop)).contains("nearest: v100"));
    }
}
