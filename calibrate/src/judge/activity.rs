//! `calibrate validate --activity`: how much of the power of kernels of random operands a framework's kernels draw in networks,
//! learned from runs of whole networks. What `[activity]` of data/frameworks rests on.

use super::networks::{Case, Run};
use crate::fit::folds;
use anyhow::{Context, Result, ensure};
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::law::calibration::Calibration;
use joulecast_model::rows::splits::{Role, Splits};
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::framework::{ACTIVITY_TRAITS, Activity, Framework};
use joulecast_reports::table::{Table, significant};
use linfa::Dataset;
use linfa::prelude::Fit as _;
use linfa_linear::LinearRegression;
use ndarray::{Array1, Array2};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The logarithm of the factor of all kernels, and a coefficient per trait.
const COUNT: usize = ACTIVITY_TRAITS.len() + 1;
type Logarithms = [f64; COUNT];

/// Step of the derivatives.
const STEP: f64 = 0.02;
/// Steps of Gauss and Newton: the last changes no coefficient by a hundredth.
const STEPS: usize = 5;
/// Errors (ln) below this weigh by their square, larger ones by their amount: a network whose time is far off says little.
const USUAL: f64 = 0.05;
/// A run whose clock was below this share of the highest was held by the limit, which hides what it would draw.
const FULL_CLOCK: f64 = 0.98;
/// Parts of the networks, each judged by a fit to the others.
const FOLDS: usize = 5;
const SEED: u64 = 1;

/// A run with power that the GPU decides at its full clock.
struct Subject {
    case: Case,
    measured: Watts,
    fold: usize,
}

struct World<'a> {
    subjects: Vec<Subject>,
    calibrations: &'a Arc<Calibrations>,
    framework: &'a Framework,
}

/// What a fit made of errors: how many runs, mean of amounts and of signed errors, in percent.
struct Errors {
    runs: usize,
    mean: f64,
    bias: f64,
}

impl Errors {
    fn of(logs: &[f64]) -> Self {
        let (runs, percent) = (logs.len(), |log: &f64| 100.0 * (log.exp() - 1.0));
        let mean = |f: &dyn Fn(f64) -> f64| logs.iter().map(percent).map(f).sum::<f64>() / runs.max(1) as f64;
        Self { runs, mean: mean(&f64::abs), bias: mean(&|e| e) }
    }
}

impl<'a> World<'a> {
    fn new(runs: &[Run], calibrations: &'a Arc<Calibrations>, framework: &'a Framework) -> Result<Self> {
        let splits = Splits::shipped()?;
        let mut subjects = Vec::new();
        for run in runs.iter().filter(|r| r.framework() == framework.name) {
            let (Some(case), Some(measured)) = (Case::of(run, &splits, None)?, run.power()) else { continue };
            let p = case.predictor(calibrations, framework).predict(&case.shaped, case.mode)?;
            let highest = case.gpu.core_clock.boost.value;
            let at_full = |clock: Hertz| clock.get() >= FULL_CLOCK * highest.get();
            let held = !at_full(p.clock) || !run.clock().is_none_or(at_full);
            if !held && !p.host.as_ref().is_some_and(|h| h.may_decide) {
                subjects.push(Subject { case, measured, fold: 0 });
            }
        }
        ensure!(subjects.len() > COUNT, "{} runs with power that the GPU decides: too few", subjects.len());
        let names: Vec<&str> = subjects.iter().map(|s| s.case.name.as_str()).collect();
        for (subject, fold) in folds::grouped(&names, FOLDS, SEED).into_iter().enumerate().collect::<Vec<_>>() {
            subjects[subject].fold = fold;
        }
        Ok(Self { subjects, calibrations, framework })
    }

    /// ln(predicted / measured) of some runs.
    fn errors(&self, of: &[usize], logarithms: &Logarithms) -> Result<Vec<f64>> {
        let activity = Activity::from_logarithms(logarithms);
        let framework = Framework { activity, ..self.framework.clone() };
        let error = |&at: &usize| {
            let Subject { case, measured, .. } = &self.subjects[at];
            let p = case.predictor(self.calibrations, &framework).predict(&case.shaped, case.mode);
            let power = p.with_context(|| case.name.clone())?.power.value;
            Ok((power.get() / measured.get()).ln())
        };
        of.iter().map(error).collect()
    }

    /// The logarithms that make the errors of some runs least.
    fn fit(&self, of: &[usize]) -> Result<Logarithms> {
        let mut at = self.framework.activity.logarithms();
        for _ in 0..STEPS {
            let errors = self.errors(of, &at)?;
            let root: Vec<f64> = errors.iter().map(|e| (USUAL / e.abs().max(USUAL)).sqrt()).collect();
            let mut slopes = Array2::<f64>::zeros((of.len(), COUNT));
            for term in 0..COUNT {
                let mut moved = at;
                moved[term] += STEP;
                for (row, error) in self.errors(of, &moved)?.into_iter().enumerate() {
                    slopes[[row, term]] = (error - errors[row]) / STEP * root[row];
                }
            }
            let wanted = Array1::from_iter(errors.iter().zip(&root).map(|(e, root)| -e * root));
            let solved = LinearRegression::new().with_intercept(false).fit(&Dataset::new(slopes, wanted));
            let solved = solved.context("least squares of what networks draw")?;
            at.iter_mut().zip(solved.params()).for_each(|(own, change)| *own += change);
        }
        Ok(at)
    }

    fn which(&self, wanted: impl Fn(&Subject) -> bool) -> Vec<usize> {
        (0..self.subjects.len()).filter(|&at| wanted(&self.subjects[at])).collect()
    }
}

/// Coefficients learned from all runs but those of networks with the role `conformal`, beside those of all, and errors of power
/// (in percent) with the profile as it is, by fits without the fold of a network, and of the conformal networks by the first.
///
/// # Errors
/// When a run cannot be predicted, or too few are there.
pub fn tables(runs: &[Run], calibrations: &[Calibration], framework: &Framework) -> Result<Vec<Table>> {
    let calibrations = Calibrations::given(calibrations.iter().cloned())?;
    let world = World::new(runs, &calibrations, framework)?;
    let all = world.which(|_| true);
    let (others, conformal): (Vec<usize>, Vec<usize>) =
        all.iter().partition(|&&at| world.subjects[at].case.role != Role::Conformal);
    let own = world.fit(&others)?;
    let mut coefficients = Table::new(&["ln of the factor", "in the profile", "learned", "by all runs"], 1);
    let of_all = world.fit(&all)?;
    let names = std::iter::once("all kernels").chain(ACTIVITY_TRAITS);
    for (at, name) in names.enumerate() {
        let numbers = [framework.activity.logarithms()[at], own[at], of_all[at]].map(|v| significant(v, 3));
        coefficients.row(std::iter::once(name.to_string()).chain(numbers).collect());
    }
    let mut held_out = vec![0.0; all.len()];
    for fold in 0..FOLDS {
        let fitted = world.fit(&world.which(|s| s.fold != fold))?;
        let left = world.which(|s| s.fold == fold);
        for (at, error) in left.iter().zip(world.errors(&left, &fitted)?) {
            held_out[*at] = error;
        }
    }
    let before = world.errors(&all, &framework.activity.logarithms())?;
    let mut learned = vec![None; all.len()];
    for (at, error) in conformal.iter().zip(world.errors(&conformal, &own)?) {
        learned[*at] = Some(error);
    }
    let header =
        ["gpu", "mode", "runs", "now %", "bias", "held out %", "bias", "conformal", "now %", "learned %", "bias"];
    let mut table = Table::new(&header, 2);
    let mut groups: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for &at in &all {
        let case = &world.subjects[at].case;
        groups.entry((&case.gpu.name, case.mode.name())).or_default().push(at);
        groups.entry(("all", "all")).or_default().push(at);
    }
    for ((gpu, mode), of) in groups {
        let pick = |from: &[f64]| Errors::of(&of.iter().map(|&at| from[at]).collect::<Vec<_>>());
        let (now, apart) = (pick(&before), pick(&held_out));
        let unseen: Vec<usize> = of.iter().copied().filter(|&at| learned[at].is_some()).collect();
        let now_unseen = Errors::of(&unseen.iter().map(|&at| before[at]).collect::<Vec<_>>());
        let unseen = Errors::of(&unseen.iter().filter_map(|&at| learned[at]).collect::<Vec<_>>());
        let percent = |v: f64| format!("{v:.1}");
        let signed = |v: f64| format!("{v:+.1}");
        table.row(vec![
            gpu.to_string(),
            mode.to_string(),
            now.runs.to_string(),
            percent(now.mean),
            signed(now.bias),
            percent(apart.mean),
            signed(apart.bias),
            unseen.runs.to_string(),
            percent(now_unseen.mean),
            percent(unseen.mean),
            signed(unseen.bias),
        ]);
    }
    Ok(vec![coefficients, table])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::networks::read_runs;
    use joulecast_model::catalog;
    use std::fmt::Write as _;
    use std::fs;

    /// Runs that draw what the profile would have with other coefficients: the fit finds these.
    #[test]
    fn coefficients_that_made_the_runs_are_found() -> Result<()> {
        let framework = catalog::framework("pytorch")?;
        let texts = catalog::calibrations().iter().map(|(_, text)| Calibration::from_toml(text));
        let calibrations: Vec<Calibration> = texts.collect::<Result<_, _>>()?;
        let given = Calibrations::given(calibrations.iter().cloned())?;
        let mut truth = framework.activity.logarithms();
        truth.iter_mut().zip([0.05, -0.1, -0.15, 0.1, -0.05, -0.2, 0.12, 0.3]).for_each(|(own, change)| *own += change);
        let theirs = Framework { activity: Activity::from_logarithms(&truth), ..framework.clone() };
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("runs.csv");
        let mut text = String::from("network,mode,precision,batch,launch,ms_per_iter,watts,sm_mhz_mean,torch\n");
        fs::write(&file, format!("{text}vgg11,infer,fp32,1,graph,1,100,,2\n"))?;
        for network in
            ["resnet18", "vgg11", "mobilenet_v2", "squeezenet1_1", "alexnet", "googlenet_bn", "efficientnet_b0"]
        {
            for (mode, precision) in
                [("infer", "fp32"), ("infer", "fp16"), ("train", "fp32"), ("train", "tf32"), ("train", "bf16")]
            {
                for batch in [4, 32] {
                    let row = |watts: f64| format!("{network},{mode},{precision},{batch},graph,1,{watts},,2\n");
                    fs::write(
                        &file,
                        format!(
                            "network,mode,precision,batch,launch,ms_per_iter,watts,sm_mhz_mean,torch\n{}",
                            row(100.0)
                        ),
                    )?;
                    let Some(case) = Case::of(&read_runs(&file)?[0], &Splits::shipped()?, None)? else { continue };
                    let p = case.predictor(&given, &theirs).predict(&case.shaped, case.mode)?;
                    write!(text, "{}", row(p.power.value.get()))?;
                }
            }
        }
        fs::write(&file, text)?;
        let world_runs = read_runs(&file)?;
        let world = World::new(&world_runs, &given, &framework)?;
        let found = world.fit(&world.which(|_| true))?;
        assert!(found.iter().zip(&truth).all(|(a, b)| (a - b).abs() < 1e-3), "{found:?} {truth:?}");
        Ok(())
    }
}
