//! Which models make up a calibration, and the calibrations of a dataset.

use crate::campaign::device::SIMULATED;
use crate::campaign::plan::zoo::held_out_layers;
use crate::fit::design::Richness;
use crate::fit::few_shot;
use crate::fit::others;
use crate::fit::polynomial::{Fitted, Options, Residual, buckets, fit};
use crate::fit::power;
use crate::fit::siblings;
use crate::fit::transfer::{World, with_universal};
use crate::fit::universal::{Excluded, Settings, median};
use crate::rows::import::sha256_hex;
use crate::rows::prepare::{KERNEL_FLOOR, Row};
use anyhow::{Context, Result, bail};
use joulecast_model::base::accuracy::Accuracy;
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::features::{Family, general_kind};
use joulecast_model::kernel::trial::Algorithm;
use joulecast_model::law::calibration::{
    ANY_CHIP, Bucket, Calibration, Cover, CrossValidation, Ellipsoid, LayerModel, Tier, Transfer,
};
use joulecast_model::law::power::PowerModel;
use joulecast_model::net::layer::{Kind, SharedModel};
use joulecast_model::rows::measurement::{LayerCase, Measurement};
use joulecast_model::step::predictor::BY_PRODUCT;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Fewer usable rows than this make no model.
pub const FEWEST_ROWS: usize = 40;
/// Fewest rows of other kinds that judge the bandwidth model.
const FEWEST_OTHERS: usize = 20;
/// Kinds whose rows together give the bandwidth model of kinds without rows.
const ELEMENTWISE: [&str; 3] = ["relu", "add", "multiply"];
/// Name of that model.
pub const STREAM: &str = "stream";
/// Fewer trials in common do not show that a framework's kernels are the library's.
const FEWEST_PAIRS: usize = 10;
/// Kernels are the same where the logarithms of their times differ by less than this in the median.
const SAME: f64 = 0.05;
/// Kinds that every framework leaves to cuBLAS. Heuristics of its two interfaces differ by shape, so that a framework's few
/// rows are no model apart.
const PRODUCTS: [&str; 2] = ["linear", "matmul"];
/// So many rows of a kind, phase and precision make a model apart.
const ENOUGH: usize = 200;

/// What one model is fitted for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    /// Chip.
    pub chip: String,
    /// Model kind.
    pub model: &'static str,
    /// Phase.
    pub phase: Phase,
    /// Precision.
    pub precision: Precision,
    /// The framework whose kernels ran, where they were not the library's.
    pub framework: Option<&'static str>,
}

/// Groups rows into tasks, the bandwidth models among them. Every task has enough rows.
pub fn tasks(rows: &[Row]) -> BTreeMap<Task, Vec<&Row>> {
    let own_task = |row: &Row, model| Task {
        chip: row.chip.clone(),
        model,
        phase: row.phase,
        precision: row.precision,
        framework: row.framework,
    };
    let mut counts: HashMap<Task, usize> = HashMap::new();
    for row in rows {
        *counts.entry(own_task(row, row.model)).or_default() += 1;
    }
    let mut tasks: BTreeMap<Task, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let task = |model| own_task(row, model);
        let own = task(row.model);
        if row.framework.is_some() {
            tasks.entry(own).or_default().push(row);
            continue;
        }
        // Products in the two 16-bit formats run the same kernels: one model, which differs by a flag.
        let own = if row.family == Family::Gemm { one_half(own) } else { own };
        let own = match shared(row.model) {
            Some(model) if counts.get(&own).is_some_and(|n| *n < ENOUGH) => {
                Task { model, phase: Phase::Forward, precision: Precision::Fp32, ..own }
            }
            _ => own,
        };
        tasks.entry(own).or_default().push(row);
        if ELEMENTWISE.contains(&row.kind) && row.phase == Phase::Forward {
            tasks.entry(task(STREAM)).or_default().push(row);
        }
    }
    merge_small_classes(&mut tasks);
    drop_shared_kernels(&mut tasks, rows);
    tasks.retain(|_, rows| rows.len() >= FEWEST_ROWS);
    tasks
}

/// Both 16-bit formats under one name.
fn one_half(task: Task) -> Task {
    let precision = if task.precision == Precision::Bf16 { Precision::Fp16 } else { task.precision };
    Task { precision, ..task }
}

/// The model that kinds with few rows share.
fn shared(kind: &str) -> Option<&'static str> {
    Kind::named(kind)?.shares.name()
}

/// Classes of convolutions with too few rows for a model apart share the other convolutions'.
fn merge_small_classes(tasks: &mut BTreeMap<Task, Vec<&Row>>) {
    let small: Vec<(Task, &str)> = tasks
        .iter()
        .filter(|(_, rows)| rows.len() < FEWEST_ROWS)
        .filter_map(|(task, _)| Some((task.clone(), general_kind(task.model)?)))
        .collect();
    for (task, model) in small {
        if let Some(rows) = tasks.remove(&task) {
            tasks.entry(Task { model, ..task }).or_default().extend(rows);
        }
    }
}

/// Frameworks call the library for some kinds: where the same trials take the same time, the library's rows are the
/// better base, and are joined by those of trials that only the framework ran.
fn drop_shared_kernels(tasks: &mut BTreeMap<Task, Vec<&Row>>, rows: &[Row]) {
    let library = rows.iter().filter(|r| r.own && r.framework.is_none());
    let times: HashMap<(&str, &str), Seconds> =
        library.map(|r| ((r.board.as_str(), r.trial_id.as_str()), r.time)).collect();
    let twin = |r: &&Row| times.get(&(r.board.as_str(), r.trial_id.as_str())).copied();
    let same: Vec<Task> = tasks
        .iter()
        .filter(|(task, rows)| {
            let differences: Vec<f64> = rows.iter().filter_map(|r| Some((r.time / twin(r)?).ln().abs())).collect();
            let alike =
                PRODUCTS.contains(&task.model) || differences.len() >= FEWEST_PAIRS && median(differences) <= SAME;
            task.framework.is_some() && alike
        })
        .map(|(task, _)| task.clone())
        .collect();
    for task in same {
        let rows = tasks.remove(&task).unwrap_or_default();
        let library = Task { framework: None, ..task };
        let library = if rows.first().is_some_and(|r| r.family == Family::Gemm) { one_half(library) } else { library };
        let own = tasks.entry(library).or_default();
        own.extend(rows.into_iter().filter(|r| twin(r).is_none()));
    }
}

/// Options for a task: the bandwidth model has few candidates.
pub fn options_for<'a>(task: &Task, options: &Options<'a>) -> Options<'a> {
    let richness = if task.model == STREAM { Richness::Bandwidth } else { options.richness };
    Options { richness, ..*options }
}

/// Fits every task, in parallel; one with few rows over what other chips' rows (among `all`) say, where that is better.
///
/// # Errors
/// The first fit that fails.
pub fn fit_tasks<'a>(
    tasks: &'a BTreeMap<Task, Vec<&'a Row>>,
    all: &[Row],
    options: &Options,
) -> Result<Vec<(&'a Task, Fitted)>> {
    if let Some(bar) = options.bar {
        bar.begin(tasks.len());
    }
    tasks
        .par_iter()
        .map(|(task, rows)| {
            let label = || format!("{} {} {} {}", task.chip, task.model, task.phase, task.precision);
            let mut fitted = fit(task.model, rows, &options_for(task, options)).with_context(label)?;
            if rows.len() < others::FEW && task.framework.is_none() {
                let other = all.iter().filter(|row| row.chip != task.chip && row.framework.is_none());
                let over = others::fit_over(task.model, rows, other, options).with_context(label)?;
                let error = |f: &Fitted| f.model.cross_validation.mape;
                fitted = over.filter(|over| error(over) < error(&fitted)).unwrap_or(fitted);
            }
            (fitted.model.phase, fitted.model.precision) = (task.phase, task.precision);
            let pointwise = SharedModel::is_named(task.model);
            let covers: BTreeSet<Cover> = rows
                .iter()
                .map(|r| Cover {
                    kind: if pointwise { r.model } else { task.model }.into(),
                    phase: r.phase,
                    precision: r.precision,
                })
                .collect();
            if pointwise || covers.len() > 1 {
                fitted.model.covers = covers.into_iter().collect();
            }
            fitted.model.framework = task.framework.map(str::to_string);
            fitted.model.boards = rows.iter().map(|r| r.board.clone()).collect::<BTreeSet<_>>().into_iter().collect();
            if let Some(bar) = options.bar {
                bar.fitted(task);
            }
            Ok((task, fitted))
        })
        .collect()
}

/// Rows without those whose shape occurs in a network that is held out, or among further layers.
///
/// # Errors
/// When the zoo cannot be read.
pub fn without_held_out_shapes(rows: Vec<Row>, further: &[LayerCase]) -> Result<Vec<Row>> {
    let keys = held_out_keys(further)?;
    Ok(rows.into_iter().filter(|row| !keys.contains(&row.key)).collect())
}

/// Fold keys of the layers of networks that are held out, and of further layers.
fn held_out_keys(further: &[LayerCase]) -> Result<HashSet<String>> {
    Ok(held_out_layers()?.iter().chain(further).map(LayerCase::fold_key).collect())
}

/// Calibrations of all chips among the rows, and the models of all chips for devices without any; the latter from the
/// same rows prepared alike (`rows::prepare_alike`).
///
/// # Errors
/// When a fit fails.
pub fn calibrations(
    rows: &[Row],
    alike: &[Row],
    measurements: &[Measurement],
    options: &Options,
    evaluation: bool,
) -> Result<Vec<Calibration>> {
    if rows.iter().any(|r| r.source == SIMULATED) && rows.iter().any(|r| r.source != SIMULATED) {
        bail!("rows of the simulated device among measured ones: fit them apart");
    }
    let tasks = tasks(rows);
    let fitted = fit_tasks(&tasks, rows, options)?;
    let energy = power::rows(measurements, rows)?;
    let mut by_chip: BTreeMap<&str, Vec<LayerModel>> = BTreeMap::new();
    for (task, fit) in &fitted {
        let mut model = fit.model.clone();
        if task.model == STREAM {
            model.residuals = other_kinds(rows, task, &model).unwrap_or(model.residuals);
        }
        by_chip.entry(&task.chip).or_default().push(model);
    }
    let mut list: Vec<Calibration> = by_chip
        .into_iter()
        .map(|(chip, models)| {
            let own: Vec<&Row> = rows.iter().filter(|r| r.chip == chip).collect();
            let tier = if own.iter().all(|r| r.own) { Tier::Measured } else { Tier::Imported };
            let law = energy.get(chip).map(|rows| power::fit(rows, options)).transpose()?.flatten();
            Ok(Calibration { power: law.map(|(law, _)| law), ..passport(chip, tier, &own, models, evaluation) })
        })
        .collect::<Result<_>>()?;
    // Where no energy was measured the law of the chip with most rows stands in, in shares of idle and limit.
    let law = list.iter().filter_map(|c| c.power.clone()).max_by_key(|p| p.rows);
    let all: Vec<&Row> = rows.iter().collect();
    let any = passport(ANY_CHIP, Tier::Roofline, &all, efficiencies(&tasks, &fitted), evaluation);
    let any = match World::new(alike, Settings::default()).shipped(&Excluded::new())? {
        Some((universal, transfer)) => {
            let siblings = siblings::quantiles(&siblings::left_out(&tasks, options)?);
            Calibration { transfer: Some(Transfer { siblings, ..transfer }), ..with_universal(any, universal) }
        }
        None => any,
    };
    // Algorithms were asked for on one chip alone: its models, over the roofline of another, stand for all.
    let by_algorithm = list.iter().flat_map(|c| &c.models).filter(|m| Algorithm::is_model_kind(&m.kind)).cloned();
    let any = Calibration { models: any.models.iter().cloned().chain(by_algorithm).collect(), ..any };
    list.push(Calibration { power: law.map(|law| PowerModel { correction: None, ..law }), ..any });
    Ok(list)
}

/// A calibration of each chip among the rows, prepared alike: the models of all chips (`base`), corrected.
///
/// # Errors
/// When the base has no models of all chips, or none for a chip's rows.
pub fn few_shot(alike: &[Row], base: &Calibration) -> Result<Vec<Calibration>> {
    let mut by_chip: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in alike {
        by_chip.entry(&row.chip).or_default().push(row);
    }
    by_chip
        .into_iter()
        .map(|(chip, rows)| {
            let models = few_shot::correct(base, &rows).with_context(|| chip.to_string())?;
            let own = passport(chip, Tier::Transferred, &rows, models, false);
            let sources = own.sources.iter().chain(&base.sources).cloned().collect::<BTreeSet<_>>();
            Ok(Calibration { sources: sources.into_iter().collect(), ..own })
        })
        .collect()
}

/// Kernel time of a row by a model that need not be its own.
fn predicted_by(model: &LayerModel, row: &Row) -> Seconds {
    let reference = row.reference(model.exponent);
    reference * model.ratio(&row.variables, reference).log.exp()
}

/// An expected time and the logarithm of how much longer the row's kernel took.
fn against(row: &Row, expected: Seconds) -> (Seconds, f64) {
    (expected, (row.kernel_time() / expected).ln())
}

/// Residuals of other bandwidth-bound kinds' rows under the bandwidth model: what to expect of a kind that has no
/// rows. `None` where the chip has no such rows.
fn other_kinds(rows: &[Row], task: &Task, model: &LayerModel) -> Option<Vec<Bucket>> {
    let other = |r: &&Row| {
        let elementwise = ELEMENTWISE.contains(&r.kind);
        r.framework.is_none()
            && r.chip == task.chip
            && r.family == Family::Stream
            && r.precision == task.precision
            && !elementwise
    };
    let pairs: Vec<(Seconds, f64)> = rows.iter().filter(other).map(|r| against(r, predicted_by(model, r))).collect();
    (pairs.len() >= FEWEST_OTHERS).then(|| buckets(pairs.into_iter().map(Residual::from).collect()))
}

/// A calibration of models with where their rows come from.
pub(crate) fn passport(
    chip: &str,
    tier: Tier,
    rows: &[&Row],
    models: Vec<LayerModel>,
    evaluation: bool,
) -> Calibration {
    let unique = |value: fn(&Row) -> &String| -> Vec<String> {
        rows.iter().map(|r| value(r).clone()).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let simulated = rows.iter().any(|r| r.source == SIMULATED);
    let boards = unique(|r| &r.board);
    let some = |m: &LayerModel| if m.boards == boards { Vec::new() } else { m.boards.clone() };
    let models = models.into_iter().map(|m| LayerModel { boards: some(&m), ..m }).collect();
    Calibration {
        // Rows of the simulated device are told apart wherever the calibration is named.
        id: format!("{}-{}-1", chip.to_lowercase(), if simulated { "simulated" } else { tier.name() }),
        chip: chip.to_string(),
        boards,
        tier,
        software: unique(|r| &r.software).join(", "),
        sources: unique(|r| &r.source),
        fit: if evaluation { "evaluation" } else { "shipped" }.to_string(),
        tool: concat!("joulecast ", env!("CARGO_PKG_VERSION")).to_string(),
        dataset_hash: dataset_hash(rows),
        held_out_hash: None,
        fold_key: "kind and shape without batch".to_string(),
        power: None,
        networks: Vec::new(),
        transfer: None,
        models,
    }
}

/// SHA-256 of the shapes that an evaluation fit may not know: those of networks that are held out, and further layers'.
///
/// # Errors
/// When the zoo cannot be read.
pub fn held_out_hash(further: &[LayerCase]) -> Result<String> {
    let mut keys: Vec<String> = held_out_keys(further)?.into_iter().collect();
    keys.sort();
    Ok(sha256_hex(keys.iter().map(|key| format!("{key}\n")).collect::<String>().as_bytes()))
}

/// SHA-256 over row ids and times, whatever their order.
fn dataset_hash(rows: &[&Row]) -> String {
    let mut lines: Vec<String> = rows.iter().map(|r| format!("{} {:?}\n", r.row_id, r.time.get())).collect();
    lines.sort();
    sha256_hex(lines.concat().as_bytes())
}

/// Exponent of the roofline that efficiencies are of.
pub(crate) const EFFICIENCY_EXPONENT: u32 = 4;
/// Rows per chip behind an efficiency's residuals, so that no chip outweighs another.
const EFFICIENCY_ROWS: usize = 500;

/// Reference time and log ratio of a chip's rows.
type Chip = Vec<(Seconds, f64)>;

/// What one ratio is taken over: model kind, phase, precision, family.
type Group = (String, Phase, Precision, Family);

/// At most so many rows of a chip, evenly.
fn thinned<'r, 'a>(rows: &'r [&'a Row]) -> impl Iterator<Item = &'r &'a Row> {
    rows.iter().step_by(rows.len().div_ceil(EFFICIENCY_ROWS).max(1))
}

/// One efficiency per kind, phase and precision over all chips, and how convolutions compare with the chip's
/// matrix-product model: the median of the chips' medians. Residuals are those of each chip under the others'
/// median.
pub(crate) fn efficiencies(tasks: &BTreeMap<Task, Vec<&Row>>, fitted: &[(&Task, Fitted)]) -> Vec<LayerModel> {
    let mut groups: BTreeMap<Group, Vec<Chip>> = BTreeMap::new();
    let usual = |task: &Task| task.framework.is_none() && !Algorithm::is_model_kind(task.model);
    for (task, rows) in tasks.iter().filter(|(task, _)| usual(task)) {
        let family = rows[0].family;
        let pair = |r: &&Row| against(r, r.reference(EFFICIENCY_EXPONENT));
        let group = (task.model.to_string(), task.phase, task.precision, family);
        groups.entry(group).or_default().push(thinned(rows).map(pair).collect());
        let products = fitted.iter().find(|(t, _)| {
            t.framework.is_none()
                && t.chip == task.chip
                && t.model == "linear"
                && t.phase == Phase::Forward
                && t.precision == task.precision
        });
        if let (true, Some((_, products))) = (task.model.starts_with("conv2d"), products) {
            let pair = |r: &&Row| against(r, predicted_by(&products.model, r));
            let group = (format!("{}{BY_PRODUCT}", task.model), task.phase, task.precision, family);
            groups.entry(group).or_default().push(thinned(rows).map(pair).collect());
        }
    }
    groups
        .into_iter()
        .filter_map(|((model, phase, precision, family), chips)| {
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
                kind: model,
                phase,
                precision,
                family,
                framework: None,
                boards: Vec::new(),
                covers: Vec::new(),
                exponent: EFFICIENCY_EXPONENT,
                floor: KERNEL_FLOOR,
                library: 0.0,
                intercept,
                ratio_range: (intercept, intercept),
                ordinary_range: (intercept, intercept),
                shortest: Seconds::ZERO,
                terms: Vec::new(),
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
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::prepare::testing::row;

    /// Rows of 45 trials by the library, and of 60 by a framework whose kernels take `factor` times as long: 45 are the same
    /// trials.
    fn both(model: &'static str, factor: f64) -> Vec<Row> {
        let mut rows = Vec::new();
        for i in 0..60 {
            let library = Row { own: true, model, trial_id: format!("trial {i}"), ..row("chip", 8 + i, 0.1) };
            rows.push(Row { framework: Some("pytorch"), time: library.time * factor, ..library.clone() });
            if i < 45 {
                rows.push(library);
            }
        }
        rows
    }

    #[test]
    fn rows_of_the_librarys_own_kernels_join_it_whoever_called_them() {
        for (model, factor) in [("conv2d", 1.01), ("linear", 1.3)] {
            let rows = both(model, factor);
            let tasks = tasks(&rows);
            assert_eq!(tasks.values().map(Vec::len).collect::<Vec<_>>(), [60], "{model}");
            assert!(tasks.keys().all(|task| task.framework.is_none()), "{model}");
        }
    }

    #[test]
    fn a_frameworks_own_kernels_have_a_model_apart() {
        let rows = both("conv2d", 1.3);
        let found: Vec<(bool, usize)> =
            tasks(&rows).iter().map(|(t, rows)| (t.framework.is_some(), rows.len())).collect();
        assert_eq!(found, [(false, 45), (true, 60)]);
    }

    #[test]
    fn kinds_that_move_values_share_a_model() {
        assert_eq!((shared("reshape"), shared("embedding")), (Some("copies"), Some("copies")));
        assert_eq!((shared("gelu_tanh"), shared("attention")), (Some("pointwise"), None));
    }
}
