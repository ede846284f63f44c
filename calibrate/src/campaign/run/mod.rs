//! `calibrate run`: the trials of a plan on a device, row by row into a dataset.
//!
//! Each trial's rows are on disk before the next begins, and a trial whose rows are in the dataset is not run again,
//! so a run that was killed, or whose budget ended, goes on where it stopped.

pub mod interrupt;
pub mod outcome;
pub mod progress;
pub mod row;
pub mod skipped;

use crate::campaign::device::Device;
use crate::campaign::trials::{Item, Measure, Plan};
use crate::rows::dataset;
use crate::rows::journal::{self, Journal};
use crate::rows::writer::Writer;
use crate::system::hash::sha256_hex;
use anyhow::{Context, Result, bail, ensure};
use joulecast_kernels::DeviceError;
use joulecast_kernels::measure::{self, Rules};
use joulecast_kernels::settings::Point;
use joulecast_model::base::shard::Shard;
use joulecast_model::base::units::Seconds;
use joulecast_model::rows::measurement::{Measurement, Regime};
use outcome::{End, Outcome, RunRecord};
use progress::Progress;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use row::Context as RowContext;
use serde::Serialize;
use skipped::{Reason, Skipped, SkippedLog};
use std::collections::{BTreeMap, HashSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// This many calls in a row that fail end a run: the device is in no state to measure.
const MOST_FAILURES: u32 = 8;

/// Which trials of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// All.
    #[default]
    All,
    /// Those with energy.
    Energy,
    /// Bursts only, of those with energy, too.
    Time,
}

/// Whether a trial belongs to a part of a plan, for several GPUs side by side: all trials of a shape are in one part.
pub fn in_shard(shard: Shard, item: &Item) -> bool {
    if shard == Shard::default() {
        return true;
    }
    let digest = sha256_hex(item.trial.case.fold_key().as_bytes());
    let place = digest[..8].bytes().fold(0u32, |sum, b| sum.wrapping_mul(31).wrapping_add(u32::from(b)));
    u64::from(place) % shard.of() == shard.number() - 1
}

/// What to run, and where to.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the campaign: of the dataset's segments and in every row.
    pub campaign: String,
    /// Time after which no further trial begins.
    pub budget: Option<Seconds>,
    /// How often every trial is measured.
    pub repeats: u32,
    /// Only these layer kinds; none: all.
    pub only: Vec<String>,
    /// Which trials.
    pub which: Which,
    /// Which part of the plan.
    pub shard: Shard,
    /// Trials that an earlier run skipped are tried again.
    pub retry_skipped: bool,
    /// How each is measured.
    pub rules: Rules,
}

/// Sets an operating point before its trials.
pub trait ApplyPoint {
    /// Makes the device run at this point.
    ///
    /// # Errors
    /// When the setting was not made.
    fn apply(&mut self, point: Point) -> Result<()>;
}

/// Changes nothing: the device is measured as it is found.
pub struct AsFound;

impl ApplyPoint for AsFound {
    fn apply(&mut self, point: Point) -> Result<()> {
        ensure!(point == Point::default(), "clocks and power limits are not set in this run");
        Ok(())
    }
}

/// Path of the runs of a campaign.
pub fn runs_path(folder: &Path, campaign: &str) -> PathBuf {
    folder.join(format!("{campaign}.runs.jsonl"))
}

/// A trial at a point, for the n-th time.
struct Task<'a> {
    item: &'a Item,
    point: Point,
    repeat: u32,
    regimes: Vec<Regime>,
}

/// Runs a plan at each of the operating points, into a dataset that this process alone writes; the device as found is one
/// default point.
///
/// # Errors
/// When the dataset cannot be written, a point cannot be applied, or the device is lost; rows measured until then are
/// kept.
pub fn run(
    plan: &Plan,
    device: &mut Device,
    points: &[Point],
    settings: &mut dyn ApplyPoint,
    (options, writer): (&Options, &Writer),
    progress: &mut dyn Progress,
) -> Result<Outcome> {
    campaign_name(&options.campaign).map_err(anyhow::Error::msg)?;
    let folder = writer.folder();
    for line in journal::recover(writer)? {
        progress.say(&line);
    }
    let log = SkippedLog::new(folder, &options.campaign);
    let before = if options.retry_skipped { Vec::new() } else { log.read()? };
    let known = known_rows(folder, device)?;
    let mut outcome =
        Outcome { end: End::Finished, rows: 0, flagged: 0, known: 0, skipped: BTreeMap::new(), left: 0, segment: None };
    let tasks = tasks(plan, points, options, &known, &before, &mut outcome);
    let journal = Journal::begin(writer, &options.campaign)?;
    let mut campaign = Campaign { plan, device, settings, options, progress, journal, log, outcome, trials: 0 };
    let begun = campaign.device.now();
    let result = campaign.all(&tasks);
    let seconds = (campaign.device.now() - begun).get();
    let Campaign { device, journal, progress, mut outcome, trials, .. } = campaign;
    progress.finish();
    outcome.segment = journal.finish(writer)?;
    let record = RunRecord {
        plan_id: plan.id.clone(),
        tool: concat!("joulecast ", env!("CARGO_PKG_VERSION")).to_string(),
        product: device.runner.identity().product.clone(),
        end: if result.is_ok() { outcome.end } else { End::Failed },
        seconds,
        trials,
        rows: outcome.rows,
    };
    append_line(&runs_path(folder, &options.campaign), &record)?;
    result.with_context(|| format!("the run ended early; its {} rows are kept", outcome.rows))?;
    Ok(outcome)
}

/// A campaign's name, which is part of file names and row ids.
///
/// # Errors
/// When it is empty, long, or has characters other than letters, digits, `-` and `_`.
pub fn campaign_name(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 60 || name.starts_with('-') || !name.chars().all(plain) {
        return Err(format!("campaign \"{name}\": letters, digits, - and _ only, at most 60"));
    }
    Ok(name.to_string())
}

/// Appends a record to a file of JSON lines, on disk when this returns.
fn append_line(path: &Path, record: &impl Serialize) -> Result<()> {
    let mut file =
        std::fs::File::options().append(true).create(true).open(path).with_context(|| path.display().to_string())?;
    let line = serde_json::to_string(record)? + "\n";
    file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).with_context(|| path.display().to_string())
}

/// What identifies a row among campaigns: its id without the campaign's name.
fn key(row_id: &str) -> &str {
    row_id.split_once(':').map_or(row_id, |(_, key)| key)
}

/// Keys of the rows that the dataset holds of this GPU and source.
fn known_rows(folder: &Path, device: &Device) -> Result<HashSet<String>> {
    let empty = !folder.exists() || std::fs::read_dir(folder)?.next().is_none();
    let any = |e: &str| -> Result<bool> {
        Ok(std::fs::read_dir(folder)?.flatten().any(|f| f.path().extension().is_some_and(|x| x == e)))
    };
    if empty || !(any("parquet")? || any(journal::EXTENSION)?) {
        return Ok(HashSet::new());
    }
    let rows = dataset::read(folder)?;
    let own = |r: &&Measurement| r.gpu == device.gpu.name && r.source == device.source;
    Ok(rows.iter().filter(own).map(|r| key(&r.row_id).to_string()).collect())
}

/// What is left to do, in order: for every repeat and point the plan's order, later repeats in another one.
fn tasks<'a>(
    plan: &'a Plan,
    points: &[Point],
    options: &Options,
    known: &HashSet<String>,
    skipped: &[Skipped],
    outcome: &mut Outcome,
) -> Vec<Task<'a>> {
    let never: BTreeMap<&str, Reason> = skipped.iter().map(|s| (s.trial_id.as_str(), s.reason)).collect();
    let mut counted = HashSet::new();
    let mut tasks = Vec::new();
    for repeat in 0..options.repeats {
        let mut items: Vec<&Item> = plan.items.iter().collect();
        if repeat > 0 {
            items.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(plan.seed.wrapping_add(u64::from(repeat))));
        }
        for &point in points {
            for item in &items {
                let kind = item.trial.case.layer.kind();
                let wanted: &[Regime] = match (item.measure, options.which) {
                    (Measure::Time, Which::Energy) => continue,
                    (Measure::Energy, Which::All | Which::Energy) => &[Regime::Burst, Regime::Sustained],
                    _ => &[Regime::Burst],
                };
                let left_out = !options.only.is_empty() && !options.only.iter().any(|k| k == kind);
                if left_out || !in_shard(options.shard, item) {
                    continue;
                }
                if let Some(reason) = never.get(item.trial_id.as_str()).filter(|r| r.is_final()) {
                    if counted.insert(&item.trial_id) {
                        *outcome.skipped.entry(reason.name()).or_default() += 1;
                    }
                    continue;
                }
                let missing = |r: &Regime| !known.contains(&row::key(&item.trial_id, repeat, *r, point));
                let regimes: Vec<Regime> = wanted.iter().copied().filter(missing).collect();
                if regimes.is_empty() {
                    outcome.known += 1;
                } else {
                    tasks.push(Task { item, point, repeat, regimes });
                }
            }
        }
    }
    tasks
}

struct Campaign<'a> {
    plan: &'a Plan,
    device: &'a mut Device,
    settings: &'a mut dyn ApplyPoint,
    options: &'a Options,
    progress: &'a mut dyn Progress,
    journal: Journal,
    log: SkippedLog,
    outcome: Outcome,
    trials: usize,
}

impl Campaign<'_> {
    fn all(&mut self, tasks: &[Task<'_>]) -> Result<()> {
        self.progress.begin(tasks.len());
        let begun = self.device.now();
        let mut applied = None;
        let mut failures = 0;
        for (i, task) in tasks.iter().enumerate() {
            let spent = self.device.now() - begun;
            let end = match self.options.budget {
                _ if interrupt::requested() => Some(End::Interrupted),
                Some(budget) if spent >= budget => Some(End::Budget),
                _ => None,
            };
            if let Some(end) = end {
                self.outcome.end = end;
                self.outcome.left = tasks.len() - i;
                return Ok(());
            }
            if applied != Some(task.point) {
                self.settings.apply(task.point)?;
                applied = Some(task.point);
            }
            self.trials += 1;
            let failed = match self.one(task) {
                Ok(rows) => {
                    self.outcome.rows += rows.len();
                    self.outcome.flagged += rows.iter().filter(|r| !r.usable()).count();
                    self.journal.append(&rows)?;
                    false
                }
                Err(error) => self.skip(task, &error)?,
            };
            failures = if failed { failures + 1 } else { 0 };
            if failures >= MOST_FAILURES {
                bail!("{failures} trials in a row failed; see {}", self.log.path().display());
            }
            self.progress.done(i + 1, self.outcome.rows);
        }
        Ok(())
    }

    /// The rows of one trial that are missing.
    fn one(&mut self, task: &Task<'_>) -> Result<Vec<Measurement>, DeviceError> {
        let trial = &task.item.trial;
        let rules = &self.options.rules;
        let needs_energy = task.regimes.contains(&Regime::Sustained);
        if needs_energy && self.device.meter.is_none() {
            let why = "no power meter".to_string();
            return Err(DeviceError::Unsupported { what: "an energy trial".into(), why });
        }
        let loaded = self.device.runner.load(trial)?;
        let meter = self.device.meter.as_mut().map(|m| m.as_mut() as &mut dyn joulecast_kernels::PowerMeter);
        let burst = measure::burst(self.device.runner.as_mut(), meter, rules)?;
        let context = RowContext {
            plan_id: &self.plan.id,
            campaign: &self.options.campaign,
            source: self.device.source,
            gpu: &self.device.gpu,
            identity: self.device.runner.identity().clone(),
            item: task.item,
            loaded: &loaded,
            point: task.point,
            repeat: task.repeat,
        };
        let mut rows = Vec::new();
        if task.regimes.contains(&Regime::Burst) {
            rows.push(context.burst(&burst));
        }
        if let (true, Some(meter)) = (needs_energy, self.device.meter.as_mut()) {
            let mut sustained = measure::sustained(self.device.runner.as_mut(), meter.as_mut(), rules)?;
            measure::check_clock(&burst, &mut sustained);
            rows.push(context.sustained(&sustained));
        }
        Ok(rows)
    }

    /// Records a trial that cannot run; whether that is a failure of the device.
    fn skip(&mut self, task: &Task<'_>, error: &DeviceError) -> Result<bool> {
        let Some(reason) = Reason::of(error) else { return Err(error.clone().into()) };
        let trial = &task.item.trial;
        self.log.append(&Skipped {
            trial_id: task.item.trial_id.clone(),
            stratum: task.item.stratum.clone(),
            kind: trial.case.layer.kind().to_string(),
            phase: trial.phase,
            precision: trial.precision,
            batch: trial.batch,
            repeat: task.repeat,
            reason,
            why: error.to_string(),
        })?;
        *self.outcome.skipped.entry(reason.name()).or_default() += 1;
        Ok(reason == Reason::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::trials::{Level, REFERENCE, expand};

    #[test]
    fn parts_of_a_plan_hold_every_trial_once_and_a_shape_whole() -> Result<()> {
        let plan = expand(REFERENCE, Level::Quick)?;
        let parts: Vec<Shard> = (1..=3).filter_map(|i| format!("{i}/3").parse().ok()).collect();
        let mut of_shape: BTreeMap<String, usize> = BTreeMap::new();
        let mut counts = [0; 3];
        for item in &plan.items {
            let holding: Vec<usize> = (0..3).filter(|&p| in_shard(parts[p], item)).collect();
            let [part] = holding[..] else { bail!("{holding:?}") };
            counts[part] += 1;
            assert_eq!(*of_shape.entry(item.trial.case.fold_key()).or_insert(part), part);
        }
        assert!(counts.iter().all(|n| *n * 5 > plan.items.len()), "{counts:?}");
        assert!(plan.items.iter().all(|item| in_shard(Shard::default(), item)));
        for text in ["0/3", "4/3", "1", "1/0", "a/b"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
        Ok(())
    }
}
