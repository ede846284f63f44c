//! Where predictors take their models from: the shipped calibrations or given ones, each read once and shared.

use crate::base::precision::{Mode, Precision};
use crate::device::gpu::Gpu;
use crate::kernel::setting::Algorithm;
use crate::law::calibration::{ANY_CHIP, Calibration, CalibrationError, Wanted};
use joulecast_data::{PACKED_CALIBRATIONS, PACKED_GPUS, Packed, calibration_bytes};
use std::sync::{Arc, Mutex, PoisonError};

/// Name of the calibration over all chips.
pub(crate) const ALL_CHIPS: &str = "all_chips";

/// How far a device's peak, bandwidth or multiprocessors may be from a measured board of its chip.
const SAME_CHIP: std::ops::RangeInclusive<f64> = 0.4..=2.5;

/// What predictions for a GPU rest on.
#[derive(Clone, Debug)]
pub struct Basis {
    /// Models of its chip, where there are any.
    pub chip: Option<Arc<Calibration>>,
    /// Models and efficiencies over all measured chips, for what the chip's lack.
    pub all: Arc<Calibration>,
}

/// Calibrations by chip.
#[derive(Debug)]
pub struct Calibrations(Source);

#[derive(Debug)]
enum Source {
    Shipped(Mutex<Vec<Part>>),
    Given(Vec<Arc<Calibration>>),
}

/// The part of a shipped calibration that was read; none where no layer of the chip was ever measured.
#[derive(Debug)]
struct Part {
    chip: String,
    precision: Precision,
    mode: Mode,
    framework: String,
    algorithm: Option<Algorithm>,
    read: Option<Arc<Calibration>>,
}

impl Part {
    fn is(&self, chip: &str, w: &Wanted<'_>) -> bool {
        let asked = (chip, w.precision, w.mode, w.framework, w.algorithm);
        (&self.chip[..], self.precision, self.mode, &self.framework[..], self.algorithm) == asked
    }
}

impl Calibrations {
    /// The shipped ones. Of each, only the part that a prediction can need is read, when it is first needed.
    pub fn shipped() -> Arc<Self> {
        Arc::new(Self(Source::Shipped(Mutex::default())))
    }

    /// These, one of them that of all chips. A GPU whose chip is not among them is predicted as one that was never
    /// measured; of several for one chip the first holds.
    ///
    /// # Errors
    /// When none is that of all chips.
    pub fn given(list: impl IntoIterator<Item = Calibration>) -> Result<Arc<Self>, CalibrationError> {
        let list: Vec<Arc<Calibration>> = list.into_iter().map(Arc::new).collect();
        if !list.iter().any(|c| c.chip == ANY_CHIP) {
            let why = format!("no calibration with chip \"{ANY_CHIP}\", the efficiencies over all chips");
            return Err(CalibrationError(why));
        }
        Ok(Arc::new(Self(Source::Given(list))))
    }

    /// What predictions for a GPU rest on. A shipped calibration holds only for devices that are described like one of
    /// its chip's boards; a given one for whatever is called that chip.
    ///
    /// # Errors
    /// Only if the build baked in a malformed file, or none.
    pub fn on(&self, gpu: &Gpu, wanted: &Wanted<'_>) -> Result<Basis, CalibrationError> {
        match &self.0 {
            Source::Shipped(parts) => Ok(Basis {
                chip: part(parts, &gpu.chip, wanted)?.filter(|c| holds_for(c, gpu, wanted.precision)),
                all: part(parts, ALL_CHIPS, wanted)?.ok_or_else(CalibrationError::missing)?,
            }),
            Source::Given(list) => {
                let of = |chip: &str| list.iter().find(|c| c.chip == chip).cloned();
                Ok(Basis { chip: of(&gpu.chip), all: of(ANY_CHIP).ok_or_else(CalibrationError::missing)? })
            }
        }
    }
}

fn part(
    parts: &Mutex<Vec<Part>>,
    chip: &str,
    wanted: &Wanted<'_>,
) -> Result<Option<Arc<Calibration>>, CalibrationError> {
    // A thread that panicked left whole entries.
    let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = parts.iter().find(|p| p.is(chip, wanted)) {
        return Ok(known.read.clone());
    }
    let read = shipped(chip, Some(wanted))?.map(Arc::new);
    let Wanted { precision, mode, framework, algorithm } = *wanted;
    let (chip, framework) = (chip.to_string(), framework.to_string());
    parts.push(Part { chip, precision, mode, framework, algorithm, read: read.clone() });
    Ok(read)
}

/// A shipped calibration, that of a chip or [`ALL_CHIPS`], all of it or what one prediction can need; `None` where no layer of
/// the chip was ever measured.
///
/// # Errors
/// Only if the build baked in a malformed file, or left one out that has not been given since.
pub(crate) fn shipped(name: &str, wanted: Option<&Wanted<'_>>) -> Result<Option<Calibration>, CalibrationError> {
    let name = name.to_ascii_lowercase();
    let file = PACKED_CALIBRATIONS.iter().find(|file| file.name == name);
    let read = |file: &Packed| {
        let late = || CalibrationError(format!("calibration {} has not been fetched yet", file.name));
        Calibration::from_packed(calibration_bytes(file).ok_or_else(late)?, wanted)
    };
    file.map(read).transpose()
}

/// Whether a device is described like one of the boards that a calibration was fitted to, as far as a precision matters: a
/// board whose tensor cores are cut is another one to them.
pub(crate) fn holds_for(calibration: &Calibration, gpu: &Gpu, precision: Precision) -> bool {
    let near = |a: f64, b: f64| SAME_CHIP.contains(&(a / b));
    let alike = |board: &Gpu| {
        let alike = match (gpu.peak_on(precision), board.peak_on(precision)) {
            (Some(own), Some(other)) => near(own.get(), other.get()),
            _ => true,
        };
        alike
            && near(gpu.vector_peak().get(), board.vector_peak().get())
            && near(gpu.bandwidth.value.get(), board.bandwidth.value.get())
            && near(gpu.sms.value as f64, board.sms.value as f64)
    };
    let board = |name: &String| {
        let file = PACKED_GPUS.iter().find(|file| file.name == name)?;
        Gpu::from_packed(file.bytes).ok()
    };
    calibration.boards.iter().filter_map(board).any(|board| alike(&board))
}
