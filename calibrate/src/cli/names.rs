//! Names as they are typed: each is looked up while the arguments are parsed, before anything is read or fitted, and
//! one that does not exist is refused with the nearest that do.

use crate::campaign::device::THROUGH_NVML;
use crate::campaign::trials::Level;
use clap::ValueEnum as _;
use joulecast_kernels::fake::Faults;
use joulecast_model::base::precision::Phase;
use joulecast_model::base::text::nearest;
use joulecast_model::catalog;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::net::layer::Layer;
use joulecast_model::rows::splits::Role;
use joulecast_read::Format;
use std::path::Path;

pub use joulecast_machine::cli::positive;
pub use joulecast_machine::gpu::{gpu, gpu_name, gpu_or_file};

/// What is wrong with a name, and the nearest that there are, or all of them where none is near.
fn unknown(what: &str, name: &str, names: &[&str]) -> String {
    let near = nearest(name, names.iter().copied());
    let (label, list) = if near.is_empty() { ("there is", names.to_vec()) } else { ("nearest", near) };
    format!("no {what} named \"{name}\"; {label}: {}", list.join(", "))
}

/// A layer kind.
pub fn kind(text: &str) -> Result<String, String> {
    let known = Layer::KINDS.contains(&text);
    if known { Ok(text.to_string()) } else { Err(unknown("layer kind", text, Layer::KINDS)) }
}

/// A network of the zoo, or a file, which is read later.
pub fn network_or_file(text: &str) -> Result<String, String> {
    if Format::of(text) == Format::Zoo {
        catalog::network(text).map_err(|e| e.to_string())?;
    }
    Ok(text.to_string())
}

/// A framework profile.
pub fn framework(text: &str) -> Result<String, String> {
    catalog::framework(text).map(|profile| profile.name).map_err(|e| e.to_string())
}

/// A phase that a layer's kernels run in; no update.
pub fn layer_phase(text: &str) -> Result<Phase, String> {
    Phase::from_name(text)
        .filter(|phase| *phase != Phase::Update)
        .ok_or_else(|| "forward, backward_data or backward_weights".to_string())
}

/// A role of `data/splits.toml`.
pub fn role(text: &str) -> Result<Role, String> {
    Role::from_name(text).ok_or_else(|| unknown("role", text, &Role::ALL.iter().map(|r| r.name()).collect::<Vec<_>>()))
}

/// A level of the shipped recipe, or a file, which is read later.
pub fn plan(text: &str) -> Result<String, String> {
    let levels: Vec<&str> = Level::value_variants().iter().map(|level| level.name()).collect();
    let path = Path::new(text);
    if levels.contains(&text) || path.components().count() > 1 || path.extension().is_some() || path.exists() {
        return Ok(text.to_string());
    }
    Err(format!("{}, or a file that `calibrate plan` wrote", unknown("plan", text, &levels)))
}

/// The text of the shipped calibration of a GPU or chip.
pub fn shipped(name: &str) -> Option<&'static str> {
    let chip = catalog::gpu(name).map_or_else(|_| name.to_string(), |gpu| gpu.chip).to_lowercase();
    catalog::calibrations().iter().find(|(name, _)| *name == chip).map(|(_, text)| *text)
}

/// A GPU or chip with a shipped calibration, or a file, which is read later.
pub fn calibration(text: &str) -> Result<String, String> {
    if Path::new(text).extension().is_some() || shipped(text).is_some() {
        return Ok(text.to_string());
    }
    let names = catalog::calibrations().iter().map(|(name, _)| *name);
    let gpus = catalog::gpu_names().filter(|gpu| shipped(gpu).is_some());
    Err(unknown("calibration", text, &names.chain(gpus).collect::<Vec<_>>()))
}

/// Models of a calibration by kind: a layer kind, a class of convolutions, or what several kinds share.
///
/// # Errors
/// When it has none, with the nearest that it has.
pub fn model_kind(text: &str, calibration: &Calibration) -> Result<(), String> {
    let mut kinds: Vec<&str> = calibration.models.iter().map(|m| m.key.name()).collect();
    kinds.dedup();
    if kinds.contains(&text) { Ok(()) } else { Err(unknown("model kind", text, &kinds)) }
}

/// A fault of the fake device.
pub fn fault(text: &str) -> Result<String, String> {
    if text != THROUGH_NVML {
        Faults::from_words([text])?;
    }
    Ok(text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_comes_with_the_nearest_or_with_all() {
        let error = |result: Result<String, String>| result.expect_err("unknown");
        assert_eq!(error(kind("con2d")), "no layer kind named \"con2d\"; nearest: conv2d, conv3d, concat");
        assert!(error(kind("zzz")).contains("there is: ") && error(kind("zzz")).contains("softmax"));
        assert!(error(gpu_or_file("v10")).contains("v100"));
        assert!(error(network_or_file("vgg61")).contains("vgg16"));
        assert!(error(plan("quik")).contains("nearest: quick, or a file"), "{}", error(plan("quik")));
        assert!(error(calibration("v10")).contains("v100"));
        assert!(role("tset").expect_err("unknown").contains("nearest: test"));
    }

    #[test]
    fn what_may_be_a_file_is_left_to_whoever_reads_it() {
        for accepted in [gpu_or_file("my.toml"), network_or_file("my.toml"), plan("./quik"), plan("quik.jsonl")] {
            assert!(accepted.is_ok());
        }
        assert_eq!(kind("relu").as_deref(), Ok("relu"));
        assert_eq!(gpu("V100").map(|g| g.chip).as_deref(), Ok("GV100"));
    }

    #[test]
    fn models_of_a_calibration_are_named_by_what_it_has() {
        let gh100 = Calibration::from_toml(shipped("h200").expect("shipped")).expect("readable");
        assert_eq!(model_kind("linear", &gh100), Ok(()));
        assert!(model_kind("lineer", &gh100).expect_err("none").contains("nearest: linear"));
    }
}
