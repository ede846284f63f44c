//! Layer times by calibrations as they are, of rows that their fits need not have seen.

use crate::judge::validate::HeldOut;
use crate::rows::prepare::Row;
use anyhow::{Context, Result};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::calibration::{ANY_CHIP, Calibration};
use joulecast_model::law::lookup::{find, of_framework};
use joulecast_model::law::time::time;
use joulecast_model::rows::measurement::Measurement;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What the calibrations predict for each row, on its board, with the newest library that they know. Rows that none of their
/// models predicts are left out.
///
/// # Errors
/// When no calibration is that of all chips, or a row is of an unknown GPU.
pub fn predicted<'a>(
    rows: &'a [Row],
    measurements: &[Measurement],
    calibrations: &[Calibration],
) -> Result<HeldOut<'a>> {
    let of = |chip: &str| calibrations.iter().find(|c| c.chip == chip);
    let universal = of(ANY_CHIP).context("no calibration of all chips among these")?;
    let measured: HashMap<&str, &Measurement> = measurements.iter().map(|m| (m.row_id.as_str(), m)).collect();
    let mut gpus: BTreeMap<&str, Gpu> = BTreeMap::new();
    for row in rows {
        if !gpus.contains_key(row.board.as_str()) {
            gpus.insert(&row.board, catalog::gpu(&row.board)?);
        }
    }
    let (mut by_row, mut within) = (HashMap::new(), HashSet::new());
    for row in rows {
        let Some(measurement) = measured.get(row.row_id.as_str()) else { continue };
        let (key, family, phase, precision) = (row.model, row.family, row.phase, row.precision);
        let chip = of(&row.chip);
        let own = row.framework.and_then(|name| of_framework(chip, name, key, family, phase, precision));
        let Some(found) = own.or_else(|| find(chip, universal, key, family, phase, precision)) else { continue };
        let found = found.on_board(chip, &row.board);
        let (work, gpu) = (measurement.work()?, &gpus[row.board.as_str()]);
        let Some(cost) = work.cost()? else { continue };
        let Some(view) = found.model.view(work, cost, gpu, None, chip) else { continue };
        let timed = time(view.seen(), &found, universal.siblings(found.tier));
        let value = timed.value + row.overhead;
        by_row.insert(row.row_id.as_str(), value.get());
        let (_, log) = row.against(timed.value);
        if timed.edges.is_some_and(|(low, high)| (low.ln()..=high.ln()).contains(&log)) {
            within.insert(row.row_id.as_str());
        }
    }
    Ok(HeldOut { predicted: vec![by_row], within })
}
