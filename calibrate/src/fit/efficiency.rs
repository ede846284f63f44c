//! What chips reach of the roofline, per kind, phase and precision: for what no polynomial is known of.

use crate::fit::least_squares::median;
use crate::fit::polynomial::{Fitted, Residual, buckets};
use crate::fit::task::Task;
use crate::rows::prepare::{KERNEL_FLOOR, Row};
use joulecast_model::base::accuracy::Accuracy;
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::{Compiled, CrossValidation, Ellipsoid, LayerModel};
use std::collections::BTreeMap;

/// Exponent of the roofline that efficiencies are of.
pub const EFFICIENCY_EXPONENT: u32 = 4;
/// Rows per chip behind an efficiency's residuals, so that no chip outweighs another.
const EFFICIENCY_ROWS: usize = 500;

/// Reference time and log ratio of a chip's rows.
type Chip = Vec<(Seconds, f64)>;

/// What one ratio is taken over: model kind, phase, precision, family.
type Group = (ModelKey, Phase, Precision, Family);

/// At most so many rows of a chip, evenly.
fn thinned<'r, 'a>(rows: &'r [&'a Row]) -> impl Iterator<Item = &'r &'a Row> {
    rows.iter().step_by(rows.len().div_ceil(EFFICIENCY_ROWS).max(1))
}

/// One efficiency per kind, phase and precision over all chips, and how convolutions compare with the chip's
/// matrix-product model: the median of the chips' medians. Residuals are those of each chip under the others'
/// median.
pub fn efficiencies(tasks: &BTreeMap<Task, Vec<&Row>>, fitted: &[(&Task, Fitted)]) -> Vec<LayerModel> {
    let mut groups: BTreeMap<Group, Vec<Chip>> = BTreeMap::new();
    let usual = |task: &Task| task.framework.is_none() && !task.model.is_asked_for();
    for (task, rows) in tasks.iter().filter(|(task, _)| usual(task)) {
        let family = rows[0].family;
        let pair = |r: &&Row| (r.reference(EFFICIENCY_EXPONENT), r.log(EFFICIENCY_EXPONENT));
        let group = (task.model, task.phase, task.precision, family);
        groups.entry(group).or_default().push(thinned(rows).map(pair).collect());
        let products = fitted.iter().find(|(t, _)| {
            t.framework.is_none()
                && t.chip == task.chip
                && t.model == ModelKey::Kind("linear")
                && t.phase == Phase::Forward
                && t.precision == task.precision
        });
        if let (Some(by_product), Some((_, products))) = (task.model.by_product(), products) {
            let pair = |r: &&Row| r.against(r.expected(&products.model).time());
            let group = (by_product, task.phase, task.precision, family);
            groups.entry(group).or_default().push(thinned(rows).map(pair).collect());
        }
    }
    groups
        .into_iter()
        .filter_map(|((key, phase, precision, family), chips)| {
            let medians: Vec<f64> = chips.iter().map(|pairs| median(pairs.iter().map(|p| p.1).collect())).collect();
            let mut residuals = Vec::new();
            for (i, pairs) in chips.iter().enumerate() {
                let others: Vec<f64> =
                    (0..chips.len()).filter(|&j| j != i || chips.len() == 1).map(|j| medians[j]).collect();
                let expected = median(others);
                let residual = |(time, log): &(Seconds, f64)| (*time * expected.exp(), log - expected);
                residuals.extend(pairs.iter().map(residual));
            }
            let accuracy = Accuracy::of(residuals.iter().map(|(_, r)| (r.exp(), 1.0)))?;
            let intercept = median(medians);
            Some(LayerModel {
                key,
                phase,
                precision,
                family,
                framework: None,
                boards: Vec::new(),
                covers: Vec::new(),
                imported: false,
                memory: None,
                exponent: EFFICIENCY_EXPONENT,
                floor: KERNEL_FLOOR,
                library: 0.0,
                intercept,
                ratio_range: (intercept, intercept),
                ordinary_range: (intercept, intercept),
                shortest: Seconds::ZERO,
                terms: Vec::new(),
                engines: Vec::new(),
                clamp: Vec::new(),
                domain: Vec::new(),
                sizes: Ellipsoid::default(),
                rows: residuals.len(),
                cross_validation: CrossValidation {
                    mape: accuracy.mape,
                    rmspe: accuracy.rmspe,
                    median: accuracy.median,
                },
                residuals: buckets(residuals.into_iter().map(Residual::from).collect()),
                compiled: Compiled::default(),
            })
        })
        .collect()
}
