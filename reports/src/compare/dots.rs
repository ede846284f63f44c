//! A comparison as a figure.

use super::document::Comparison;
use crate::figure::FigureError;
use crate::figure::comparison::{Dot, DotPlot, Row as DotRow};
use joulecast_ask::comparison::{Entry, Measure};
use joulecast_model::step::predictor::Estimate;

/// A row per network and GPU, a mark per batch.
pub(super) fn dots(c: &Comparison, command: String) -> Result<DotPlot, FigureError> {
    let all = c.shown();
    let mut batches: Vec<u64> = all.iter().map(|e| e.batch).collect();
    batches.sort_unstable();
    batches.dedup();
    // Largest batches within a budget differ everywhere: one series, the batch in the row's name.
    let one = c.entries.is_empty();
    let marks = |e: &Entry| -> Vec<Dot> {
        let measures = [(Measure::Time, 1e3), (Measure::Power, 1.0), (Measure::EnergyPerSample, 1e3)];
        let dot = |v: Estimate<f64>, by: f64| Dot { low: v.p05 * by, value: v.value * by, high: v.p95 * by };
        measures.into_iter().filter_map(|(m, by)| Some(dot(m.of(e)?, by))).collect()
    };
    let mut rows: Vec<DotRow> = Vec::new();
    for e in &all {
        let (group, batch) = (e.network.to_string(), e.batch);
        let name = if one { format!("{}, batch {batch}", e.gpu) } else { e.gpu.to_string() };
        if !rows.iter().any(|r| r.group == group && r.name == name) {
            let series = if one { 1 } else { batches.len() };
            rows.push(DotRow { group: group.clone(), name: name.clone(), dots: vec![None; series] });
        }
        let series = if one { 0 } else { batches.iter().position(|b| *b == batch).unwrap_or(0) };
        if let Some(row) = rows.iter_mut().find(|r| r.group == group && r.name == name) {
            row.dots[series] = Some(marks(e));
        }
    }
    if rows.is_empty() {
        return Err(FigureError::Nothing("nothing keeps the budget".into()));
    }
    let series =
        if one { vec!["largest batch".into()] } else { batches.iter().map(|b| format!("batch {b}")).collect() };
    Ok(DotPlot {
        title: format!("Networks and GPUs, {}", c.title),
        columns: vec!["time of a step, ms".into(), "mean power, W".into(), "energy per sample, mJ".into()],
        series,
        rows,
        notes: vec![command],
    })
}
