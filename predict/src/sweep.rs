//! `predict sweep`: many predictions, streamed as they are made.
//!
//! Rows come in a fixed order: GPU, precision, mode, network, sequence, batch, clock, power limit. What does not change along an axis is
//! computed once: calibrations per GPU, precision and mode, a step per network and batch. A window of tasks is worked on by
//! all cores and written before the next one begins, so that memory does not grow with the rows.

mod identity;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod writer;

use crate::cli::{FoldingArgs, parse_batch, parse_mode, parse_positive, parse_precision};
use crate::commands::{Failure, check_algorithm};
use crate::devices::{Device, FrameworkArgs, How, gpus, names, once};
use crate::networks::{network, networks};
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use identity::Identity;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::net::network::{Network, ShapedNetwork, ShapingError};
use joulecast_model::step::generation::SEQUENCE;
use joulecast_model::step::predictor::{OperatingPoint, Step};
use joulecast_reports::say;
use rayon::prelude::*;
use rows::{Key, Row};
use std::path::PathBuf;
use writer::Writer;

#[derive(Args)]
pub struct SweepArgs {
    /// Networks or network files, separated by commas, or all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    pub net: Vec<String>,
    /// GPUs or device files, separated by commas, or all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    pub gpu: Vec<String>,
    /// Samples per step, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', required = true, value_parser = parse_batch, allow_negative_numbers = true)]
    pub batch: Vec<u64>,
    /// Storage and arithmetic, separated by commas
    #[arg(long, value_name = "PRECISIONS", value_delimiter = ',', default_value = "fp32", value_parser = parse_precision)]
    pub precision: Vec<Precision>,
    /// inference and training, separated by commas
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "inference", value_parser = parse_mode)]
    pub mode: Vec<Mode>,
    #[command(flatten)]
    pub framework: FrameworkArgs,
    #[command(flatten)]
    pub folding: FoldingArgs,
    /// Tokens per sample, separated by commas, for networks that read a sequence (default: the network's own)
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse_batch, allow_negative_numbers = true)]
    pub sequence: Vec<u64>,
    /// Core clocks in MHz: a list (1200,1500), ranges with a step (600..1500:15), default for what the driver does
    #[arg(long, value_name = "MHZ", value_delimiter = ',', default_value = "default", value_parser = parse_axis)]
    pub clock: Vec<Axis>,
    /// Power limits in W, written alike
    #[arg(long, value_name = "W", value_delimiter = ',', default_value = "default", value_parser = parse_axis)]
    pub power_cap: Vec<Axis>,
    /// How to write rows
    #[arg(long, value_enum, default_value_t = SweepFormat::Csv)]
    pub format: SweepFormat,
    /// Write there instead of to standard output (- is standard output)
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Go on where the rows of --output end; they must be of the same sweep, made from the same networks, GPUs and program,
    /// as FILE.sweep.json beside them says
    #[arg(long, requires = "output")]
    pub resume: bool,
    /// Write over what --output has
    #[arg(long, requires = "output", conflicts_with = "resume")]
    pub force: bool,
    /// Threads (default: all cores)
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// No progress on standard error
    #[arg(long)]
    pub quiet: bool,
}

impl SweepArgs {
    /// The file that rows go to; none for standard output.
    pub fn file(&self) -> Option<&PathBuf> {
        self.output.as_ref().filter(|path| path.as_os_str() != "-")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SweepFormat {
    /// A header and a row per prediction
    Csv,
    /// One JSON object per line
    Jsonl,
    /// Columns in groups of rows, written from FILE.rows.csv when all rows are there; needs the cargo feature parquet
    #[cfg(feature = "parquet")]
    Parquet,
}

/// Settings of an axis as they were typed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Axis {
    /// What the driver does.
    Default,
    /// From, to and step.
    Range(f64, f64, f64),
}

/// More settings than any device has.
const MOST_SETTINGS: f64 = 10_000.0;

fn parse_axis(text: &str) -> Result<Axis, String> {
    if text == "default" {
        return Ok(Axis::Default);
    }
    let Some((from, rest)) = text.split_once("..") else {
        let value = parse_positive(text)?;
        return Ok(Axis::Range(value, value, 1.0));
    };
    let (to, step) = rest.split_once(':').ok_or("write a range like 600..1500:15, with its step")?;
    let (from, to, step) = (parse_positive(from)?, parse_positive(to)?, parse_positive(step)?);
    if to < from || (to - from) / step > MOST_SETTINGS {
        return Err(format!("a range goes up, in at most {MOST_SETTINGS} steps"));
    }
    Ok(Axis::Range(from, to, step))
}

fn settings(axis: &[Axis]) -> Vec<Option<f64>> {
    let each = |axis: &Axis| match *axis {
        Axis::Default => vec![None],
        Axis::Range(from, to, step) => {
            let steps = ((to - from) / step + 1e-9).floor() as u64;
            (0..=steps).map(|i| Some(from + step * i as f64)).collect()
        }
    };
    axis.iter().flat_map(each).collect()
}

/// So many tasks per core are worked on before their rows are written.
const TASKS_PER_THREAD: usize = 16;
/// At most so many points of a step make a task.
const POINTS: usize = 512;

/// A network with its tokens per sample, where it reads a sequence.
struct Entry {
    network: Network,
    sequence: Option<u64>,
}

impl Entry {
    fn new(network: Network) -> Self {
        let mut dims = network.inputs.iter().flat_map(|input| input.shape.dims().iter().zip(&input.symbols));
        let sequence = dims.find(|(_, symbol)| symbol.as_deref() == Some(SEQUENCE)).map(|(size, _)| *size);
        Self { sequence, network }
    }
}

/// A sweep with everything read that does not depend on the GPU.
struct Sweep<'a> {
    args: &'a SweepArgs,
    networks: Vec<Entry>,
    gpus: Vec<(String, Gpu)>,
    batches: Vec<u64>,
    points: Vec<OperatingPoint>,
}

/// Some points of one network and batch.
#[derive(Clone, Copy)]
struct Task {
    network: usize,
    batch: u64,
    from: usize,
    to: usize,
}

/// A network with its shapes, or why it has none.
type Shaped = Result<ShapedNetwork, ShapingError>;

/// A network with each length that is asked for. Of all networks, those that read no sequence are taken as they are.
fn lengths(args: &SweepArgs, name: &str, plain: Network) -> Result<Vec<Entry>, Failure> {
    let plain = Entry::new(plain);
    if args.sequence.is_empty() || (args.net == ["all"] && plain.sequence.is_none()) {
        return Ok(vec![plain]);
    }
    args.sequence.iter().map(|n| Ok(Entry::new(network(name, Some(*n), args.folding)?))).collect()
}

impl<'a> Sweep<'a> {
    fn read(args: &'a SweepArgs) -> Result<Self, Failure> {
        let nets = networks(&args.net, |name| network(name, None, args.folding))?;
        let networks = nets.into_iter().map(|(typed, plain)| lengths(args, &typed, plain));
        let networks = networks.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        let gpus = gpus(&names(&args.gpu, catalog::gpu_names()))?;
        let batches = once(args.batch.clone(), "--batch", u64::to_string);
        let mut points = Vec::new();
        for clock in settings(&args.clock) {
            for cap in settings(&args.power_cap) {
                points.push(OperatingPoint {
                    core_clock: clock.map(Hertz::from_mhz),
                    memory_clock: None,
                    power_cap: cap.map(Watts::new),
                });
            }
        }
        Ok(Self { args, networks, gpus, batches, points })
    }

    /// What its rows rest on besides what they say.
    fn identity(&self, how: &How) -> Identity {
        let mut identity = Identity::new(how);
        self.networks.iter().for_each(|e| identity.network(&e.network.name, e.sequence, &e.network));
        self.gpus.iter().for_each(|(typed, gpu)| identity.gpu(typed, gpu));
        identity
    }

    fn rows_per_block(&self) -> u64 {
        (self.networks.len() * self.batches.len() * self.points.len()) as u64
    }

    fn rows(&self) -> u64 {
        self.rows_per_block() * (self.gpus.len() * self.args.precision.len() * self.args.mode.len()) as u64
    }

    /// The tasks of a GPU, precision and mode, from a row on.
    fn tasks(&self, skip: u64) -> impl Iterator<Item = Task> + '_ {
        let points = self.points.len();
        let all = (0..self.networks.len()).flat_map(|n| self.batches.iter().map(move |b| (n, *b)));
        let steps = all.flat_map(move |(network, batch)| {
            let starts = (0..points).step_by(POINTS);
            starts.map(move |from| Task { network, batch, from, to: (from + POINTS).min(points) })
        });
        let mut left = skip as usize;
        steps.filter_map(move |task| {
            let passed = left.min(task.to - task.from);
            left -= passed;
            (task.from + passed < task.to).then_some(Task { from: task.from + passed, ..task })
        })
    }

    /// Rows of a task, in order; what cannot be predicted has a row that says why.
    fn run<'s>(&'s self, task: Task, shaped: &[Shaped], typed: &'s str, device: &Device, how: &'s How) -> Vec<Row<'s>> {
        let entry = &self.networks[task.network];
        let points = &self.points[task.from..task.to];
        let key = |point: &OperatingPoint| Key {
            network: &entry.network.name,
            gpu: typed,
            batch: task.batch,
            precision: how.precision,
            mode: how.mode,
            point: *point,
            sequence: entry.sequence,
            framework: &how.framework.name,
            launch: how.launch_on(&device.gpu),
            algorithm: how.framework.algorithm(),
        };
        let shaped = match shaped[task.network].as_ref().map_err(Clone::clone).and_then(|s| s.with_batch(task.batch)) {
            Ok(shaped) => shaped,
            Err(e) => return points.iter().map(|p| Row::failed(key(p), e.to_string())).collect(),
        };
        let setup = device.setup(how);
        match Step::new(&shaped, &setup) {
            Err(e) => points.iter().map(|p| Row::failed(key(p), e.to_string())).collect(),
            Ok(step) => {
                let prepared = step.prepare();
                let row = |p: &OperatingPoint| match prepared.at(*p) {
                    Ok(summary) => Row::of(key(p), &summary, &prepared),
                    Err(e) => Row::failed(key(p), e.to_string()),
                };
                points.iter().map(row).collect()
            }
        }
    }

    /// The key of a row by its place. `usual`: how the sweep is run, whatever the precision and mode.
    fn key<'s>(&'s self, row: u64, usual: &'s How) -> Option<Key<'s>> {
        let block = self.rows_per_block();
        let (block, mut row) = ((row / block) as usize, (row % block) as usize);
        let (modes, precisions) = (&self.args.mode, &self.args.precision);
        let (mode, block) = (modes[block % modes.len()], block / modes.len());
        let (precision, gpu) = (precisions[block % precisions.len()], block / precisions.len());
        let point = self.points[row % self.points.len()];
        row /= self.points.len();
        let entry = self.networks.get(row / self.batches.len())?;
        let (typed, gpu) = self.gpus.get(gpu)?;
        Some(Key {
            network: &entry.network.name,
            gpu: typed,
            batch: self.batches[row % self.batches.len()],
            precision,
            mode,
            point,
            sequence: entry.sequence,
            framework: &usual.framework.name,
            launch: usual.launch_on(gpu),
            algorithm: usual.framework.algorithm(),
        })
    }

    /// Writes rows from one on; gives what is in error among them.
    fn write(&self, writer: &mut Writer, mut skip: u64, threads: usize, bar: &ProgressBar) -> Result<Errors, Failure> {
        let args = self.args;
        let mut errors = Errors::default();
        for (typed, gpu) in &self.gpus {
            for &precision in &args.precision {
                for &mode in &args.mode {
                    if skip >= self.rows_per_block() {
                        skip -= self.rows_per_block();
                        continue;
                    }
                    let how = How::new(&args.framework, precision, mode)?;
                    let device = Device::of(gpu.clone(), &how)?;
                    // The largest batch first: smaller ones need no check of their own.
                    let largest = self.batches.iter().copied().max().unwrap_or(1);
                    let of = |e: &Entry, batch| ShapedNetwork::new(&e.network, batch, precision, &[]);
                    let shape = |e: &Entry| Ok(how.framework.runs(of(e, largest).or_else(|_| of(e, 1))?));
                    let shaped: Vec<Shaped> = self.networks.iter().map(shape).collect();
                    let mut tasks = self.tasks(std::mem::take(&mut skip));
                    loop {
                        let window: Vec<Task> = tasks.by_ref().take(threads * TASKS_PER_THREAD).collect();
                        if window.is_empty() {
                            break;
                        }
                        let made: Vec<(usize, Errors, String)> = window
                            .into_par_iter()
                            .map(|task| {
                                let rows = self.run(task, &shaped, typed, &device, &how);
                                (rows.len(), Errors::of(&rows), writer.render(&rows))
                            })
                            .collect();
                        for (rows, wrong, chunk) in made {
                            errors.add(wrong);
                            writer.write(&chunk).map_err(Failure::Failed)?;
                            bar.inc(rows as u64);
                        }
                    }
                }
            }
        }
        Ok(errors)
    }
}

/// Rows without a prediction.
#[derive(Default)]
struct Errors {
    count: u64,
    /// Why the first of them has none.
    first: Option<String>,
}

impl Errors {
    fn of(rows: &[Row<'_>]) -> Self {
        let mut why = rows.iter().filter_map(Row::error);
        let first = why.next().map(str::to_string);
        Self { count: u64::from(first.is_some()) + why.count() as u64, first }
    }

    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }

    /// Said on standard error; where nothing was predicted, a failure. `done`: rows that were there before; `made`: those that came.
    fn tell(self, done: u64, made: u64) -> Result<(), Failure> {
        let Some(first) = self.first else { return Ok(()) };
        if done == 0 && self.count == made {
            return Err(Failure::Failed(anyhow!("no row has a prediction; the first: {first}")));
        }
        let count = self.count;
        say(format_args!("note: {count} of {made} rows have an error instead of a prediction; the first: {first}"));
        Ok(())
    }
}

fn broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}

/// `predict sweep`
pub fn sweep(mut args: SweepArgs) -> Result<(), Failure> {
    args.precision = once(args.precision, "--precision", Precision::to_string);
    args.mode = once(args.mode, "--mode", Mode::to_string);
    args.sequence = once(args.sequence, "--sequence", u64::to_string);
    let args = &args;
    let sweep = Sweep::read(args)?;
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    if threads == 0 {
        return Err(Failure::Usage(anyhow!("--threads must be above 0")));
    }
    // What is wrong for any precision or GPU is said before the first row is written.
    for &precision in &args.precision {
        How::new(&args.framework, precision, args.mode[0])?;
    }
    let usual = How::new(&args.framework, args.precision[0], args.mode[0])?;
    sweep.gpus.iter().try_for_each(|(_, gpu)| check_algorithm(gpu, &usual.framework))?;
    let (mut writer, done) = Writer::open(args, sweep.identity(&usual), |row| sweep.key(row, &usual))?;
    if done > sweep.rows() {
        return Err(Failure::Usage(anyhow!("there are more rows already than this sweep has")));
    }
    let target = if args.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(sweep.rows()), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} predictions, {per_sec}, {eta} left") {
        bar.set_style(style);
    }
    bar.set_position(done);
    bar.reset_eta();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().context("no threads");
    let pool = pool.map_err(Failure::Failed)?;
    let written = pool.install(|| sweep.write(&mut writer, done, threads, &bar));
    let written = written.and_then(|errors| writer.finish().map(|()| errors).map_err(Failure::Failed));
    let errors = match written {
        // Whoever reads has seen enough.
        Err(Failure::Failed(e)) if broken_pipe(&e) => return Ok(()),
        other => other?,
    };
    bar.finish_and_clear();
    let made = sweep.rows() - done;
    if !args.quiet && args.file().is_some() {
        let seconds = bar.elapsed().as_secs_f64();
        say(format_args!("{made} predictions in {seconds:.1} s, {:.0} per second", made as f64 / seconds));
    }
    errors.tell(done, made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_read() {
        assert_eq!(settings(&[Axis::Default]), [None]);
        let range = parse_axis("600..700:50").expect("a range");
        assert_eq!(settings(&[Axis::Default, range]), [None, Some(600.0), Some(650.0), Some(700.0)]);
        for wrong in ["600..700", "700..600:5", "0", "-5", "600..700:0", "1..1000000:1", "x"] {
            assert!(parse_axis(wrong).is_err(), "{wrong}");
        }
    }
}
