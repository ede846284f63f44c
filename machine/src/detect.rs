//! Which GPU is here, which shipped calibration fits it best, and which of the libraries that measuring needs are here.

use crate::gpu::identified;
use anyhow::{Context, Result, bail};
use joulecast_kernels::cuda::library;
use joulecast_kernels::nvml::{self, BoardChoice, Description};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use std::fmt::Write as _;
use std::path::Path;

/// Libraries that measuring needs, and what they are.
const NEEDED: [(&str, &str); 4] = [
    ("libcuda.so", "the CUDA driver"),
    ("libcudnn.so", "cuDNN"),
    ("libcublasLt.so", "cuBLASLt"),
    ("libnvrtc.so", "the CUDA run-time compiler"),
];

/// All boards with the calibrations that hold for them, and the libraries, in words. `nvml`: the library to ask (`None`: the system's);
/// `gpu`: what the boards count as, where their names do not say.
///
/// # Errors
/// Without a driver or a board: what is missing.
pub fn text(nvml: Option<&Path>, gpu: Option<&str>) -> Result<String> {
    let api = nvml::open(nvml).context("no GPU can be asked")?;
    let boards = api.boards()?;
    if boards.is_empty() {
        bail!("the driver is there, but no GPU: NVML lists none");
    }
    let mut text = String::new();
    for uuid in boards {
        let about = api.board(&BoardChoice::Uuid(uuid))?.describe()?;
        text += &board(&about, gpu)?;
        text.push('\n');
    }
    text += &libraries();
    Ok(text)
}

fn board(about: &Description, gpu: Option<&str>) -> Result<String> {
    let mut text = about.to_string();
    let name = about.name.as_deref().unwrap_or("a GPU without a name");
    match identified(name, gpu) {
        Ok(gpu) => {
            writeln!(text, "counts as: {} ({}, chip {})", gpu.name, gpu.title, gpu.chip)?;
            writeln!(text, "calibration: {}", fits(&gpu)?)?;
        }
        // A file that was asked for and cannot be read is a mistake; a product that nobody described is none.
        Err(why) if gpu.is_some() => return Err(why),
        Err(why) => {
            writeln!(text, "counts as: nothing; {why}")?;
            writeln!(text, "calibration: universal, with a description of the GPU (data/gpus/README.md)")?;
        }
    }
    Ok(text)
}

/// The shipped calibration that holds for a device, and how near it is.
fn fits(gpu: &Gpu) -> Result<String> {
    let Some(calibration) = catalog::calibration_for(gpu)? else {
        return Ok(
            "universal: no layer of this chip was measured; the models of all chips with this GPU's data sheet".into()
        );
    };
    let boards = calibration.boards.join(", ");
    let near = if calibration.is_of(&gpu.name) {
        "of this board".to_string()
    } else {
        format!("of the same chip on other boards ({boards})")
    };
    let power =
        if calibration.power.is_some() { "measured" } else { "another GPU's law with this one's idle and limit" };
    Ok(format!("{}, {near}; times {}, power: {power}", calibration.id, calibration.tier))
}

fn libraries() -> String {
    let found = library::find(None);
    let mut text = String::new();
    for (name, what) in NEEDED {
        let place = found.iter().find(|f| f.name == name).map(|f| {
            // The file behind the links has the version in its name.
            std::fs::canonicalize(&f.path).unwrap_or_else(|_| f.path.clone()).display().to_string()
        });
        text += &format!("{what}: {}\n", place.unwrap_or_else(|| format!("{name} is missing; measuring needs it")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::described;

    #[test]
    fn the_nearest_calibration_is_named() {
        let said = |name: &str| fits(&described(name).expect("in the catalog")).expect("readable");
        assert!(said("h200").contains("of this board; times measured, power: measured"), "{}", said("h200"));
        assert!(said("h100-sxm").contains("of this board; times measured"), "{}", said("h100-sxm"));
        assert!(said("h100-nvl").contains("same chip on other boards (h100-sxm, h200"), "{}", said("h100-nvl"));
        assert!(said("v100").contains("times imported, power: another GPU's law"), "{}", said("v100"));
        assert!(said("l4").starts_with("universal"), "{}", said("l4"));
    }

    #[test]
    fn without_a_driver_what_is_missing_is_said() {
        let error = text(Some(Path::new("/nowhere/libnvidia-ml.so.1")), None).expect_err("none there");
        assert!(format!("{error:#}").contains("NVML is not available"), "{error:#}");
    }
}
