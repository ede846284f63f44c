//! Clocks and power limits that a run sets, one point after the other: asked for by name, journaled, guarded, and
//! restored. Without the right to set them the device is measured as it is found, and the program says so.

use crate::campaign::device::{Device, SIMULATED};
use crate::campaign::run::ApplyPoint;
use anyhow::{Context, Result, bail};
use joulecast_kernels::clocks::Settings as Found;
use joulecast_kernels::fake::FakeGpu;
use joulecast_kernels::nvml::{self, BoardChoice, NvmlControl};
use joulecast_kernels::settings::{self, DryRun, GuardianCommand, Point, Session};
use joulecast_kernels::{ClockControl, DeviceError};
use joulecast_model::base::units::{Hertz, Watts};
use std::path::Path;

/// The hidden subcommand that a session starts as its guardian.
pub const GUARDIAN: &str = "guardian";

/// Settings were asked for and not permitted: its own exit status, since rows were measured all the same.
#[derive(Debug)]
pub struct ObservedOnly;

impl std::fmt::Display for ObservedOnly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not permitted to set clocks or power limits: the rows are of the device as found")
    }
}

impl std::error::Error for ObservedOnly {}

/// Every clock with every limit; with one list only, that list; with none, nothing.
pub fn points(clocks: &[f64], limits: &[f64]) -> Vec<Point> {
    let each = |list: &[f64]| -> Vec<Option<f64>> {
        if list.is_empty() { vec![None] } else { list.iter().copied().map(Some).collect() }
    };
    if clocks.is_empty() && limits.is_empty() {
        return Vec::new();
    }
    each(limits)
        .into_iter()
        .flat_map(|limit| each(clocks).into_iter().map(move |clock| (clock, limit)))
        .map(|(clock, limit)| Point { core: clock.map(Hertz::from_mhz), power_limit: limit.map(Watts::new) })
        .collect()
}

/// Whether settings may be changed.
pub enum Permission {
    /// They may; the first point is set.
    Given(Box<Settings>),
    /// They may not, and why; nothing was changed.
    Refused(DeviceError),
}

/// Who sets.
pub enum Settings {
    /// A board, under a journal and a guardian.
    Board(Session<NvmlControl>),
    /// The fake, and what it had been set to.
    Fake(FakeGpu, Found),
}

fn board_control(device: &Device) -> Result<NvmlControl> {
    // The fake is no board of the library.
    let uuid = device.runner.identity().uuid.clone().filter(|_| device.source != SIMULATED);
    let library = nvml::open(None)?;
    let board = library.board(&uuid.map_or(BoardChoice::Index(0), BoardChoice::Uuid))?;
    Ok(NvmlControl::new(board))
}

impl Settings {
    /// Takes the device's settings in hand and sets the first point, to see whether that is permitted.
    ///
    /// # Errors
    /// When another session holds them, the device does not offer the point, or it stops answering.
    pub fn begin(device: &Device, journals: Option<&Path>, first: Option<Point>) -> Result<Permission> {
        let mut settings = match &device.fake {
            Some(fake) => Self::Fake(fake.clone(), fake.settings()?),
            None => {
                let folder = match journals {
                    Some(folder) => folder.to_path_buf(),
                    None => settings::default_folder().context("no folder for journals: name one with --journals")?,
                };
                let guardian = GuardianCommand::this_program(GUARDIAN)?;
                Self::Board(Session::begin(board_control(device)?, &folder, &guardian)?)
            }
        };
        match settings.set(first.unwrap_or_default()) {
            Ok(()) => Ok(Permission::Given(Box::new(settings))),
            Err(refused @ DeviceError::NotPermitted(_)) => {
                settings.finish()?;
                Ok(Permission::Refused(refused))
            }
            Err(other) => {
                settings.finish()?;
                Err(other.into())
            }
        }
    }

    fn set(&mut self, point: Point) -> Result<(), DeviceError> {
        match self {
            Self::Board(session) => session.apply(point),
            Self::Fake(fake, found) => {
                fake.lock_core_clock(point.core.or(found.core_lock))?;
                fake.set_power_limit(point.power_limit.unwrap_or(found.power_limit))
            }
        }
    }

    /// Restores what was found.
    ///
    /// # Errors
    /// When a setting could not be restored; `calibrate restore` tries again.
    pub fn finish(mut self) -> Result<()> {
        match self {
            Self::Board(session) => Ok(session.finish()?),
            Self::Fake(ref fake, found) if fake.settings()? == found => Ok(()),
            Self::Fake(..) => Ok(self.set(Point::default())?),
        }
    }
}

impl ApplyPoint for Settings {
    fn apply(&mut self, point: Point) -> Result<()> {
        Ok(self.set(point)?)
    }
}

/// What a device can be set to.
pub struct Offered {
    /// Core clocks, ascending.
    pub clocks: Vec<Hertz>,
    /// Lowest and highest power limit.
    pub limits: (Watts, Watts),
    /// Power limit as found.
    pub limit: Watts,
}

/// Reads what a device can be set to; sets nothing.
///
/// # Errors
/// When the device does not tell.
pub fn offered(device: &Device) -> Result<Offered> {
    let read = |control: &dyn ClockControl| -> Result<Offered, DeviceError> {
        let limit = control.settings()?.power_limit;
        Ok(Offered { clocks: control.core_clocks()?, limits: control.power_limits()?, limit })
    };
    Ok(match &device.fake {
        Some(fake) => read(fake)?,
        None => read(&board_control(device)?)?,
    })
}

/// The calls that a run over these points would make, one per line; makes none of them.
///
/// # Errors
/// When the device does not answer or does not offer a point.
pub fn rehearse(device: &Device, points: &[Point]) -> Result<String> {
    match &device.fake {
        Some(fake) => listed(fake.clone(), points),
        None => listed(board_control(device)?, points),
    }
}

fn listed<C: ClockControl>(control: C, points: &[Point]) -> Result<String> {
    let control = DryRun::new(control);
    let calls = control.calls();
    let mut session = Session::rehearse(control)?;
    for point in points {
        session.apply(*point)?;
    }
    session.finish()?;
    let calls = calls.list();
    if calls.is_empty() {
        bail!("these points set nothing");
    }
    Ok(calls.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_and_limits_are_crossed() {
        assert!(points(&[], &[]).is_empty());
        assert_eq!(points(&[1000.0, 1500.0], &[]).len(), 2);
        let crossed = points(&[1000.0, 1500.0], &[300.0, 700.0]);
        assert_eq!(crossed.len(), 4);
        assert_eq!(crossed[1].core, Some(Hertz::from_mhz(1500.0)));
        assert_eq!(crossed[1].power_limit, Some(Watts::new(300.0)));
    }
}
