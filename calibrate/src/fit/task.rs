//! Which models a dataset's rows are fitted into.

use crate::fit::design::Richness;
use crate::fit::least_squares::median;
use crate::fit::polynomial::Options;
use crate::rows::prepare::Row;
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::key::{ConvClass, ModelKey};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Fewer usable rows than this make no model.
pub const FEWEST_ROWS: usize = 40;
/// The same of rows through a framework, which has kernels of its own: the library's model is of others.
const FEWEST_OF_FRAMEWORK: usize = 24;
/// Kinds whose rows together give the bandwidth model of kinds without rows.
pub const ELEMENTWISE: [&str; 3] = ["relu", "add", "multiply"];
/// Fewer trials in common do not show that a framework's kernels are the library's.
const FEWEST_PAIRS: usize = 10;
/// Kernels are the same where the logarithms of their times differ by less than this in the median.
const SAME: f64 = 0.05;
/// Kinds that every framework leaves to cuBLAS. Heuristics of its two interfaces differ by shape, so that a framework's few
/// rows are no model apart.
const PRODUCTS: [ModelKey; 2] = [ModelKey::Kind("linear"), ModelKey::Kind("matmul")];

/// Whether a framework has no kernels of its own for these: products, and convolutions but for depthwise ones. 1,100 of these
/// through PyTorch take 0.95 to 1.04 times as long as by the library in the median of every class, phase and precision. In fp8
/// what others measured are serving engines' kernels.
fn is_librarys(task: &Task) -> bool {
    let depthwise =
        [ConvClass::Depthwise, ConvClass::DepthwiseWide, ConvClass::DepthwiseMultiplier].map(ModelKey::Conv);
    let by_library =
        PRODUCTS.contains(&task.model) || matches!(task.model, ModelKey::Conv(_)) && !depthwise.contains(&task.model);
    by_library && task.precision != Precision::Fp8
}

/// So many rows of a kind, phase and precision make a model apart.
const ENOUGH: usize = 200;

/// What one model is fitted for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    /// Chip.
    pub chip: String,
    /// Which model.
    pub model: ModelKey,
    /// Phase.
    pub phase: Phase,
    /// Precision.
    pub precision: Precision,
    /// The framework whose kernels ran, where they were not the library's.
    pub framework: Option<&'static str>,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.chip, self.model, self.phase, self.precision)
    }
}

/// Groups rows into tasks, the bandwidth models among them. Every task has enough rows.
pub fn tasks(rows: &[Row]) -> BTreeMap<Task, Vec<&Row>> {
    let own_task = |row: &Row, model| Task {
        chip: row.chip.to_string(),
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
            tasks.entry(of_windows(own)).or_default().push(row);
            continue;
        }
        let own = if is_alike_in_halves(&own, row.family) { one_half(own) } else { own };
        let own = match row.model.shared() {
            Some(model) if counts.get(&own).is_some_and(|n| *n < ENOUGH) => {
                Task { model, phase: Phase::Forward, precision: Precision::Fp32, ..own }
            }
            _ => own,
        };
        tasks.entry(own).or_default().push(row);
        if ELEMENTWISE.contains(&row.kind) && row.phase == Phase::Forward {
            tasks.entry(task(ModelKey::Stream)).or_default().push(row);
        }
    }
    merge_small_classes(&mut tasks);
    drop_shared_kernels(&mut tasks, rows);
    tasks.retain(|task, rows| rows.len() >= fewest(task));
    tasks
}

fn fewest(task: &Task) -> usize {
    if task.framework.is_some() { FEWEST_OF_FRAMEWORK } else { FEWEST_ROWS }
}

/// Products in the two 16-bit formats run the same kernels: one model, which differs by a flag. Over images they are others.
fn is_alike_in_halves(task: &Task, family: Family) -> bool {
    family == Family::Gemm && task.model != ModelKey::Conv(ConvClass::Image)
}

/// Both 16-bit formats under one name.
fn one_half(task: Task) -> Task {
    let precision = if task.precision == Precision::Bf16 { Precision::Fp16 } else { task.precision };
    Task { precision, ..task }
}

/// A framework's own depthwise kernels take any window at one rate in 32 bits; in 16 bits those that cuDNN's depthwise kernels
/// cannot do run the same slow ones in both formats.
fn of_windows(task: Task) -> Task {
    match (task.model, task.precision.channels_last()) {
        (ModelKey::Conv(ConvClass::DepthwiseWide), true) => one_half(task),
        (model @ ModelKey::Conv(ConvClass::DepthwiseWide), false) => {
            Task { model: model.general().unwrap_or(model), ..task }
        }
        _ => task,
    }
}

/// Classes of convolutions with too few rows for a model apart share the other convolutions'.
fn merge_small_classes(tasks: &mut BTreeMap<Task, Vec<&Row>>) {
    let small: Vec<(Task, ModelKey)> = tasks
        .iter()
        .filter(|(task, rows)| rows.len() < fewest(task))
        .filter_map(|(task, _)| Some((task.clone(), task.model.general()?)))
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
            let alike = is_librarys(task) || differences.len() >= FEWEST_PAIRS && median(differences) <= SAME;
            task.framework.is_some() && alike && !task.model.is_frameworks()
        })
        .map(|(task, _)| task.clone())
        .collect();
    for task in same {
        let rows = tasks.remove(&task).unwrap_or_default();
        let library = Task { framework: None, ..task };
        let alike = rows.first().is_some_and(|r| is_alike_in_halves(&library, r.family));
        let library = if alike { one_half(library) } else { library };
        let own = tasks.entry(library).or_default();
        own.extend(rows.into_iter().filter(|r| twin(r).is_none()));
    }
}

/// Options for a task: the bandwidth model has few candidates.
pub fn options_for<'a>(task: &Task, options: &Options<'a>) -> Options<'a> {
    let richness = if task.model == ModelKey::Stream { Richness::Bandwidth } else { options.richness };
    Options { richness, ..*options }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::prepare::testing::row;

    const CONV: ModelKey = ModelKey::Conv(ConvClass::General);
    const DEPTHWISE: ModelKey = ModelKey::Conv(ConvClass::Depthwise);

    /// Rows of 45 trials by the library, and of 60 by a framework whose kernels take `factor` times as long: 45 are the same
    /// trials.
    fn both(model: ModelKey, factor: f64) -> Vec<Row> {
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
        for (model, factor) in [(CONV, 1.3), (DEPTHWISE, 1.01), (ModelKey::Kind("linear"), 1.3)] {
            let rows = both(model, factor);
            let tasks = tasks(&rows);
            assert_eq!(tasks.values().map(Vec::len).collect::<Vec<_>>(), [60], "{model}");
            assert!(tasks.keys().all(|task| task.framework.is_none()), "{model}");
        }
    }

    /// Over images bf16 runs other kernels than fp16; elsewhere both are one model.
    #[test]
    fn convolutions_over_images_have_a_model_for_each_format() {
        let fitted = |model| -> Vec<(Precision, usize)> {
            let of = |precision| {
                both(model, 1.0).into_iter().map(move |row| Row {
                    precision,
                    trial_id: format!("{precision} {}", row.trial_id),
                    ..row
                })
            };
            let rows: Vec<Row> = of(Precision::Fp16).chain(of(Precision::Bf16)).collect();
            tasks(&rows).iter().map(|(task, rows)| (task.precision, rows.len())).collect()
        };
        let image = fitted(ModelKey::Conv(ConvClass::Image));
        assert_eq!(image.len(), 2, "{image:?}");
        assert!([Precision::Fp16, Precision::Bf16].iter().all(|p| image.contains(&(*p, 60))), "{image:?}");
        assert_eq!(fitted(CONV), [(Precision::Fp16, 120)]);
    }

    #[test]
    fn a_frameworks_own_kernels_have_a_model_apart() {
        let rows = both(DEPTHWISE, 1.3);
        let found: Vec<(bool, usize)> =
            tasks(&rows).iter().map(|(t, rows)| (t.framework.is_some(), rows.len())).collect();
        assert_eq!(found, [(false, 45), (true, 60)]);
    }

    #[test]
    fn kinds_that_move_values_share_a_model() {
        let shared = |kind| ModelKey::Kind(kind).shared();
        assert_eq!((shared("reshape"), shared("embedding")), (Some(ModelKey::Copies), Some(ModelKey::Copies)));
        assert_eq!((shared("gelu_tanh"), shared("attention")), (Some(ModelKey::Pointwise), None));
    }
}
