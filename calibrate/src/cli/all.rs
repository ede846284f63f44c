//! `calibrate all`: run, fit, judge, report, and the line that predicts with the result. A second call goes on where the first
//! stopped.

mod folder;

use self::folder::{Folder, Measured};
use super::rows::read_unique;
use super::{Fit, Fitted, Validate, fitted, names, print, report};
use crate::campaign::device::{Device, Kind as DeviceKind, SIMULATED, described};
use crate::campaign::run::outcome::{End, Outcome};
use crate::campaign::run::progress::OnStderr;
use crate::campaign::run::{AsFound, Which, interrupt, run as measure};
use crate::campaign::trials::{Level, Measure, Plan};
use crate::campaign::{costs, run};
use crate::judge::beside;
use crate::rows::dataset::NoRows;
use crate::rows::writer::Writer;
use crate::system::hash::sha256_hex;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Command};
use joulecast_kernels::measure::Rules;
use joulecast_kernels::settings::Point;
use joulecast_model::base::shard::Shard;
use joulecast_model::base::units::Seconds;
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::rows::measurement::Measurement;
use joulecast_reports::beside::Line;
use joulecast_reports::table::Table;
use joulecast_reports::{command_line, say};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is in the folder: rows, calibrations, what they are worth, the report; and where that is made.
const ROWS: &str = "rows";
const CALIBRATION: &str = "calibration";
const JUDGED: &str = "judged.json";
const REPORT: &str = "report";
const MAKING: &str = ".making";

/// Steps by their names in the folder's record.
const FIT: &str = "fit";
const JUDGE: &str = "judge";

/// What a fit and the report take for every row, of some thousand on two cores.
const FIT_ROW: Duration = Duration::from_millis(2);
const REPORT_ROW: Duration = Duration::from_millis(15);
/// What the last line predicts.
const EXAMPLE: [&str; 4] = ["--net", "resnet50", "--batch", "16"];

#[derive(Args)]
pub struct AllArgs {
    /// What to measure
    #[arg(long, value_enum, default_value_t = DeviceKind::Cuda)]
    device: DeviceKind,
    /// The GPU that it counts as, where its name does not say: a name or a file
    #[arg(long, value_name = "NAME|FILE", value_parser = names::gpu_or_file)]
    gpu: Option<String>,
    /// How much to measure; a higher level goes on with the rows of a lower one
    #[arg(long, value_enum, default_value_t = Level::Quick)]
    level: Level,
    /// Instead of a level: a file that `calibrate plan` wrote
    #[arg(long, value_name = "FILE", conflicts_with = "level", value_parser = names::plan)]
    plan: Option<String>,
    /// Folder of rows, calibration and report; what is done there is not done again
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Begin no trial after this time; what was measured until then is fitted
    #[arg(long, value_name = "SECONDS", value_parser = super::names::positive)]
    budget: Option<f64>,
    /// Name of the campaign: of the dataset's segments and in every row; default: the device's
    #[arg(long, value_name = "NAME", value_parser = run::campaign_name)]
    campaign: Option<String>,
    /// Try again what an earlier run could not do
    #[arg(long)]
    retry_skipped: bool,
    /// Write over files of the folder that were changed since they were written
    #[arg(long)]
    force: bool,
    /// Do not show how far the fits are
    #[arg(long)]
    quiet: bool,
    /// For the fake device: what goes wrong
    #[arg(long, value_name = "FAULT", hide = true, value_parser = names::fault)]
    fault: Vec<String>,
}

/// Arguments of another command, as if typed.
fn typed<A: Args>(words: &[&str]) -> Result<A> {
    let words = std::iter::once("calibrate").chain(words.iter().copied());
    Ok(A::from_arg_matches(&A::augment_args(Command::new("calibrate")).try_get_matches_from(words)?)?)
}

/// A length of time as a promise.
fn about(time: Duration) -> String {
    match time.as_secs() {
        0..10 => "a few seconds".into(),
        seconds @ 10..100 => format!("about {} s", seconds.div_ceil(10) * 10),
        seconds => format!("about {} min", seconds.div_ceil(60)),
    }
}

/// Announces a step.
fn begin(number: usize, what: &str, takes: &str) {
    say(format!("{number} of 4, {what}: {takes}"));
}

/// Runs, fits, judges and reports.
pub fn all(args: &AllArgs) -> Result<()> {
    let plan = Plan::named(args.plan.as_deref().unwrap_or(args.level.name()))?;
    let was_there = args.out.exists();
    // Before the device is opened, whose use would disturb what another process measures; held until the last step.
    let writer = Writer::open(&args.out.join(ROWS))?;
    let done = in_folder(args, &plan, &writer);
    drop(writer);
    if !was_there {
        // Fails where there is something in it, as it should.
        let _ = fs::remove_dir(&args.out);
    }
    done
}

fn in_folder(args: &AllArgs, plan: &Plan, writer: &Writer) -> Result<()> {
    let mut folder = Folder::open(&args.out, args.force)?;
    remove_making(&folder)?;
    let gpu = measured(args, plan, writer, &mut folder)?;
    let rows = rows_there(writer.folder())?;
    if rows.is_empty() {
        return Err(
            NoRows::Selection("rows were measured: the same command with a larger --budget goes on".into()).into()
        );
    }
    let of = made_of(&rows, &gpu)?;
    let file = fit(args, &mut folder, &rows, &gpu, &of)?;
    let lines = judge(args, &mut folder, &rows, &gpu, &of)?;
    write_report(&mut folder, &rows, &of)?;
    print(&closing(&folder, &rows, &gpu, &lines, &file)?)
}

/// Rows of a dataset; none where there is none yet.
fn rows_there(folder: &Path) -> Result<Vec<Measurement>> {
    match read_unique(&[folder.to_path_buf()]) {
        Err(error) if error.is::<NoRows>() => Ok(Vec::new()),
        rows => rows,
    }
}

/// SHA-256 of rows, whatever their order.
fn hash(rows: &[Measurement]) -> String {
    let line = |r: &Measurement| format!("{} {:?} {:?} {:?}\n", r.row_id, r.time_s, r.power_w, r.flags);
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.sort();
    sha256_hex(lines.concat().as_bytes())
}

/// What steps after the first are made of: the rows, the program, and the calibrations that it brings along.
fn made_of(rows: &[Measurement], gpu: &Gpu) -> Result<String> {
    let shipped = catalog::calibrations();
    let wanted = [gpu.chip.to_lowercase(), "all_chips".to_string()];
    let texts = shipped.iter().filter(|(name, _)| wanted.iter().any(|w| w == name)).map(|(_, text)| *text);
    let parts = [hash(rows), env!("CARGO_PKG_VERSION").to_string(), texts.collect()];
    Ok(sha256_hex(parts.join("\n").as_bytes()))
}

/// Makes sure that the rows there (`known`, of a GPU and a source) are of the device that is asked for.
fn check_device(args: &AllArgs, (gpu, source): (&str, &str), known: (&str, &str)) -> Result<()> {
    let named = |(gpu, source): (&str, &str)| format!("{}{gpu}", if source == SIMULATED { "a simulated " } else { "" });
    let (out, known_name) = (args.out.display(), named(known));
    if source != known.1 {
        let option = if known.1 == SIMULATED { "with" } else { "without" };
        bail!(
            "{out} holds rows of {known_name}: {option} --device fake it goes on with these, else name another --out"
        );
    }
    ensure!(gpu == known.0, "{out} holds rows of {known_name}, this is {}: name another --out", named((gpu, source)));
    Ok(())
}

/// The first step: trials of the plan that have no rows yet. Gives the GPU that they are of. What is measured to its end needs
/// no device.
fn measured(args: &AllArgs, plan: &Plan, writer: &Writer, folder: &mut Folder) -> Result<Gpu> {
    let rows = rows_there(writer.folder())?;
    let foreign = |gpu: &str, source: &str| rows.iter().find(|r| r.gpu != gpu || r.source != source);
    if let (Some((gpu, source)), Some(measured)) = (folder.of(), folder.measured()) {
        let kind = if args.device == DeviceKind::Fake { SIMULATED } else { "own" };
        let asked = args.gpu.as_deref().map(described).transpose()?.map_or(gpu.to_string(), |g| g.name);
        check_device(args, (&asked, kind), (gpu, source))?;
        if measured.plan_id == plan.id && measured.rows == hash(&rows) && !args.retry_skipped {
            begin(1, "measure", &format!("done, {} rows of {gpu}", rows.len()));
            return Ok(catalog::gpu(gpu)?);
        }
    }
    let mut device = Device::open(args.device, args.gpu.as_deref(), &args.fault)
        .context("nothing can be measured here (--device fake rehearses without a GPU)")?;
    let gpu = device.gpu.clone();
    let known = catalog::gpu(&gpu.name).ok();
    ensure!(
        known.as_ref() == Some(&gpu),
        "{} is not as data/gpus has it: fits take GPUs by their names there; `calibrate run --gpu FILE` measures alone",
        gpu.name
    );
    if let Some(row) = foreign(&gpu.name, device.source) {
        check_device(args, (&gpu.name, device.source), (&row.gpu, &row.source))?;
    }
    device.notes.iter().for_each(say);
    let minutes = match device.source {
        SIMULATED => "simulated, so only seconds".to_string(),
        _ => format!("{} at the rates of an H200", about(Duration::from_secs_f64(60.0 * costs::minutes(plan)))),
    };
    let (times, energies) = (plan.count(Measure::Time), plan.count(Measure::Energy));
    let budget = args.budget.map_or(String::new(), |b| format!(", no trial begins after {b} s"));
    begin(1, "measure", &format!("{times} trials of time, {energies} of time and power, {minutes}{budget}"));
    if !rows.is_empty() {
        say(format!("{} rows are there; what has none yet is measured", rows.len()));
    }
    say("clocks and power limits are observed, not set; the interrupt key stops, the same command goes on");
    let default = if device.source == SIMULATED { SIMULATED } else { gpu.name.as_str() };
    let options = run::Options {
        campaign: args.campaign.clone().unwrap_or_else(|| default.to_string()),
        budget: args.budget.map(Seconds::new),
        repeats: 1,
        only: Vec::new(),
        which: Which::All,
        shard: Shard::default(),
        retry_skipped: args.retry_skipped,
        rules: Rules::default(),
    };
    folder.set_measured(&gpu.name, device.source, None)?;
    interrupt::listen();
    let points = [Point::default()];
    let outcome = measure(plan, &mut device, &points, &mut AsFound, (&options, writer), &mut OnStderr::new())?;
    outcome.text().lines().for_each(say);
    match outcome {
        Outcome { end: End::Interrupted, left, .. } => {
            bail!("interrupted with {left} trials left; the same command goes on with them")
        }
        Outcome { end: End::Finished, left: 0, .. } => {
            let rows = hash(&rows_there(writer.folder())?);
            folder.set_measured(&gpu.name, device.source, Some(Measured { plan_id: plan.id.clone(), rows }))?;
        }
        Outcome { .. } => {}
    }
    // What comes now is written whole or not at all.
    interrupt::stop_listening();
    Ok(gpu)
}

/// The calibrations of rows as `calibrate fit` makes them, as files.
fn calibrations(rows: &[Measurement], quiet: bool) -> Result<Fitted> {
    let args: Fit = typed(if quiet { &["--quiet"] } else { &[] })?;
    fitted(&args, &|| Ok(rows.to_vec()))
}

/// That of a chip among them.
fn of_chip(files: &[(String, String)], chip: &str) -> Result<Option<Calibration>> {
    for (name, text) in files {
        let calibration = Calibration::from_toml(text).with_context(|| name.clone())?;
        if calibration.chip == chip {
            return Ok(Some(calibration));
        }
    }
    Ok(None)
}

/// The second step; gives the path of the chip's calibration.
fn fit(args: &AllArgs, folder: &mut Folder, rows: &[Measurement], gpu: &Gpu, of: &str) -> Result<PathBuf> {
    let file = folder.join(&format!("{CALIBRATION}/{}.toml", gpu.chip.to_lowercase()));
    if folder.is_done(FIT, of) {
        begin(2, "fit", "done");
        return Ok(file);
    }
    folder.check_free(FIT)?;
    begin(2, "fit", &format!("{} rows, {}", rows.len(), about(FIT_ROW * rows.len() as u32)));
    let begun = Instant::now();
    let Fitted { files, said } = calibrations(rows, args.quiet).with_context(|| {
        let n = rows.len();
        format!("fitting {n} rows, which are kept (more of them: no --budget, or a higher --level)")
    })?;
    said.lines().for_each(say);
    ensure!(of_chip(&files, &gpu.chip)?.is_some(), "these rows make no calibration of {}", gpu.chip);
    let files = files.into_iter().map(|(name, text)| (format!("{CALIBRATION}/{name}"), text.into_bytes())).collect();
    folder.put(FIT, of, files, begun.elapsed())?;
    Ok(file)
}

/// The third step.
fn judge(args: &AllArgs, folder: &mut Folder, rows: &[Measurement], gpu: &Gpu, of: &str) -> Result<Vec<Line>> {
    let path = folder.join(JUDGED);
    if folder.is_done(JUDGE, of) {
        begin(3, "judge", "done");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        return serde_json::from_str(&text).with_context(|| path.display().to_string());
    }
    folder.check_free(JUDGE)?;
    let folds = beside::FOLDS as u32;
    let takes = folder.took(FIT).map_or("a while".to_string(), |fit| about(fit * folds));
    begin(3, "judge", &format!("{folds} fits, each without a part of the shapes, {takes}"));
    let begun = Instant::now();
    let fit = |rows: &[Measurement]| of_chip(&calibrations(rows, args.quiet)?.files, &gpu.chip);
    let lines = beside::lines(rows, gpu, fit)?;
    let text = serde_json::to_string_pretty(&lines)? + "\n";
    folder.put(JUDGE, of, vec![(JUDGED.to_string(), text.into_bytes())], begun.elapsed())?;
    Ok(lines)
}

fn remove_making(folder: &Folder) -> Result<()> {
    let making = folder.join(MAKING);
    if making.exists() {
        fs::remove_dir_all(&making).with_context(|| making.display().to_string())?;
    }
    Ok(())
}

/// The fourth step.
fn write_report(folder: &mut Folder, rows: &[Measurement], of: &str) -> Result<()> {
    if folder.is_done(REPORT, of) {
        begin(4, "report", "done");
        return Ok(());
    }
    folder.check_free(REPORT)?;
    begin(4, "report", &about(REPORT_ROW * rows.len() as u32));
    let begun = Instant::now();
    let (dataset, making) = (folder.join(ROWS), folder.join(MAKING));
    let mut args: Validate = typed(&["--layers", "--quiet"])?;
    args.dataset.dataset = vec![dataset];
    let mut files = Vec::new();
    for path in report::make(&args, &making)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        files.push((format!("{REPORT}/{name}"), bytes));
    }
    folder.put(REPORT, of, files, begun.elapsed())?;
    remove_making(folder)
}

/// The command that predicts with a calibration; the shipped one where none is named.
fn using(gpu: &Gpu, calibration: Option<&Path>) -> String {
    let mut words: Vec<OsString> = vec!["--gpu".into(), gpu.name.clone().into()];
    if let Some(path) = calibration {
        words.extend(["--calibration".into(), path.into()]);
    }
    command_line("predict", words.into_iter().chain(EXAMPLE.map(OsString::from)))
}

/// What the folder holds now, what it is worth, and how to use it.
fn closing(folder: &Folder, rows: &[Measurement], gpu: &Gpu, lines: &[Line], file: &Path) -> Result<String> {
    let simulated = rows.iter().any(|r| r.source == SIMULATED);
    let flagged = rows.iter().filter(|r| !r.usable()).count();
    let kind = if simulated { "simulated" } else { "measured" };
    let mut text = String::new();
    if !lines.is_empty() {
        text += &Table::of(lines).to_text();
        text += "errors: mean and median, %; held: share within the 90 % interval, %\n\
                 own: every row by a fit that had not seen its shape\n\n";
    }
    text += &format!(
        "{kind}: {} rows of {} ({flagged} flagged) in {}\n",
        rows.len(),
        gpu.title,
        folder.join(ROWS).display()
    );
    text += &format!("report: {}\n", folder.join(REPORT).join(crate::judge::report::PAGE).display());
    if simulated {
        text += "rehearsed: a calibration of simulated rows says nothing of a real GPU\n";
    } else if catalog::calibration_for(gpu)?.is_some_and(|c| c.is_of(&gpu.name)) {
        text += "the shipped calibration knows rows of this very board, these shapes perhaps among them\n";
    }
    match beside::of_all(lines) {
        Some(line) => {
            let (before, after) = (line.before.mape, line.after.mape);
            let power = beside::of_power(lines).map(|p| (p.before.mape, p.after.mape));
            let power = power.map_or(String::new(), |(b, a)| format!("; power by {b:.1} %, now {a:.1} %"));
            text += &format!("times were off by {before:.1} %, now {after:.1} %{power}\n");
            if after >= before {
                text += &format!(
                    "these rows do not better what is shipped: stay with it, or measure more (--level standard):\n\n{}\n\n",
                    using(gpu, None)
                );
            }
        }
        None => text += "no row could be judged\n",
    }
    text += &format!("to predict with it:\n\n{}\n", using(gpu, Some(file)));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_promised_in_round_numbers() {
        let said = |seconds| about(Duration::from_secs(seconds));
        assert_eq!(
            [4, 12, 95, 100, 290].map(said),
            ["a few seconds", "about 20 s", "about 100 s", "about 2 min", "about 5 min"]
        );
    }

    #[test]
    fn other_commands_take_their_arguments_as_if_typed() -> Result<()> {
        let fit: Fit = typed(&["--quiet"])?;
        assert!(fit.quiet && !fit.evaluation && fit.networks.is_empty());
        assert!(typed::<Validate>(&["--layers", "--quiet"])?.layers);
        assert!(typed::<Fit>(&["--loud"]).is_err());
        Ok(())
    }
}
