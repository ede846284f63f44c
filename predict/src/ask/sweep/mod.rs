//! Many predictions, made in order and handed on as they are made.
//!
//! Rows come in a fixed order: GPU, precision, mode, network, sequence, batch, clock, power limit. What does not change along an axis is
//! computed once: models per GPU, precision and mode, a step per network and batch, shapes whatever the GPU. All cores work
//! on tasks, no more than some of which wait to be handed on, so that memory does not grow with the rows.

mod ordered;
mod rows;
mod shapes;

pub use rows::{COLUMNS, Cell, KEYS, Key, POINT, Row, Values};

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::request::{Batch, Reading, Request, Team};
use crate::session::{Session, once};
use crate::source::Source;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::shard::Shard;
use joulecast_model::step::framework::Launch;
use joulecast_model::step::generation::SEQUENCE;
use joulecast_model::step::predictor::{OperatingPoint, Prepared, StepOverBatches};
use shapes::Shapes;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// So many tasks per core wait at most for rows before theirs to be handed on.
const TASKS_PER_THREAD: usize = 16;
/// At most so many points of a step make a task, or of several batches that are worked on together.
const POINTS: usize = 512;
/// So many batches of a network are worked on together.
const BATCHES: usize = 32;
/// So many networks with their shapes are kept for other GPUs at most.
const MOST_SHARED: usize = 256;
/// With so many batches a step over batches, which takes as long as five to nine to be made, is worth it.
pub(super) const WORTH_IT: usize = 12;

/// A network with its tokens per sample, where it reads a sequence.
pub struct Entry {
    /// The network.
    pub source: Arc<Source>,
    /// Tokens per sample.
    pub sequence: Option<u64>,
}

impl Entry {
    fn new(source: Arc<Source>) -> Self {
        let inputs = &source.network.inputs;
        let mut dims = inputs.iter().flat_map(|input| input.shape.dims().iter().zip(&input.symbols));
        let sequence = dims.find(|(_, symbol)| symbol.as_deref() == Some(SEQUENCE)).map(|(size, _)| *size);
        Self { sequence, source }
    }
}

/// A sweep with everything read that does not depend on precision and mode.
pub struct Sweep<'a> {
    session: &'a Session,
    request: Request,
    points: Vec<OperatingPoint>,
    /// The networks.
    pub networks: Vec<Entry>,
    /// The GPUs.
    pub teams: Vec<Team>,
    /// How each team's steps are launched.
    launches: Vec<Launch>,
    batches: Vec<u64>,
    shard: Shard,
}

/// A part's rows of so many: the parts lie one after the other, and all of them, in order, are the sweep.
fn part(shard: Shard, rows: u64) -> Range<u64> {
    let until = |parts: u64| (u128::from(rows) * u128::from(parts) / u128::from(shard.of())) as u64;
    until(shard.number() - 1)..until(shard.number())
}

/// Some points of one network and batch.
#[derive(Clone, Copy)]
struct Task {
    network: usize,
    batch: u64,
    /// Which of the sweep's batches that is.
    place: usize,
    from: usize,
    to: usize,
}

/// A network with each length that is asked for. Of all networks, those that read no sequence are taken as they are.
fn lengths(session: &Session, request: &Request, sequences: &[u64], plain: Arc<Source>) -> Result<Vec<Entry>, Failure> {
    let typed = plain.typed.clone();
    let plain = Entry::new(plain);
    if sequences.is_empty() || (request.networks == ["all"] && plain.sequence.is_none()) {
        return Ok(vec![plain]);
    }
    let entry = |n: &u64| {
        let reading = Reading { sequence: Some(*n), ..request.reading.clone() };
        Ok(Entry::new(session.network(&typed, &reading)?))
    };
    sequences.iter().map(entry).collect()
}

impl<'a> Sweep<'a> {
    /// What is swept: every network of a request, with each of these lengths where it reads a sequence, on every team, at
    /// every batch, precision and mode, and each at all of these clocks and limits.
    ///
    /// # Errors
    /// When what is asked is wrong for every row, or a file cannot be used.
    pub fn new(
        session: &'a Session,
        request: &Request,
        sequences: &[u64],
        points: Vec<OperatingPoint>,
    ) -> Result<Self, Failure> {
        let mut request = request.clone();
        request.precisions = once(request.precisions, "--precision", Precision::to_string);
        request.modes = once(request.modes, "--mode", Mode::to_string);
        let sequences = once(sequences.to_vec(), "--sequence", u64::to_string);
        let plain = session.networks(&request.networks, &request.reading)?;
        let networks = plain.into_iter().map(|source| lengths(session, &request, &sequences, source));
        let networks = networks.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        let teams = session.teams(&request.teams)?;
        let batch = |batch: &Batch| batch.samples().ok_or_else(|| Failure::usage("sweep needs numbers as --batch"));
        let batches = request.batches.iter().map(batch).collect::<Result<Vec<_>, _>>()?;
        let batches = once(batches, "--batch", u64::to_string);
        // What is wrong for any precision or GPU is said before the first row is made.
        for &precision in &request.precisions {
            session.framework(&request.runner, precision)?;
        }
        if request.precisions.is_empty() || request.modes.is_empty() {
            return Err(Failure::usage("which precision and mode?"));
        }
        // What one precision, mode or launch does not allow is said in its rows.
        let mut probe = request.clone();
        probe.runner.launch = None;
        let launch = |team: &Team| {
            let cluster = session.cluster(&probe, team, Precision::Fp32, Mode::Inference)?;
            Ok(request.runner.launch.unwrap_or_else(|| cluster.first().launch()))
        };
        let launches = teams.iter().map(launch).collect::<Result<_, Failure>>()?;
        Ok(Self { session, request, points, networks, teams, launches, batches, shard: Shard::default() })
    }

    /// Only a part of it.
    pub fn shard(self, shard: Shard) -> Self {
        Self { shard, ..self }
    }

    /// What it was made of.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Clocks and limits of each step.
    pub fn points(&self) -> &[OperatingPoint] {
        &self.points
    }

    fn rows_per_block(&self) -> u64 {
        (self.networks.len() * self.batches.len() * self.points.len()) as u64
    }

    /// Which rows of the whole sweep are its own.
    fn range(&self) -> Range<u64> {
        let blocks = (self.teams.len() * self.request.precisions.len() * self.request.modes.len()) as u64;
        part(self.shard, self.rows_per_block() * blocks)
    }

    /// How many rows it has.
    pub fn rows(&self) -> u64 {
        let range = self.range();
        range.end - range.start
    }

    /// The tasks of a GPU, precision and mode: so many rows from a row on.
    fn tasks(&self, skip: u64, most: u64) -> impl Iterator<Item = Task> + '_ {
        let points = self.points.len();
        let all = (0..self.networks.len()).flat_map(|n| self.batches.iter().enumerate().map(move |b| (n, b)));
        let steps = all.flat_map(move |(network, (place, &batch))| {
            let starts = (0..points).step_by(POINTS);
            starts.map(move |from| Task { network, batch, place, from, to: (from + POINTS).min(points) })
        });
        let (mut left, mut most) = (skip as usize, most as usize);
        let later = steps.filter_map(move |task| {
            let passed = left.min(task.to - task.from);
            left -= passed;
            (task.from + passed < task.to).then_some(Task { from: task.from + passed, ..task })
        });
        later.map_while(move |task| {
            let taken = most.min(task.to - task.from);
            most -= taken;
            (taken > 0).then_some(Task { to: task.from + taken, ..task })
        })
    }

    /// What a row is of.
    fn key_of(&self, place: (usize, usize), batch: u64, how: (Precision, Mode), point: OperatingPoint) -> Key<'_> {
        let (network, team) = place;
        let (entry, team, launch) = (&self.networks[network], &self.teams[team], self.launches[team]);
        Key {
            network: &entry.source.network.name,
            gpu: &team.name,
            batch: if self.request.weak { batch * team.gpus() } else { batch },
            precision: how.0,
            mode: how.1,
            point,
            sequence: entry.sequence,
            framework: &self.request.runner.framework,
            launch,
            algorithm: self.request.runner.algorithm,
        }
    }

    /// The key of a row by its place among its own.
    pub fn key(&self, row: u64) -> Option<Key<'_>> {
        let (block, row) = (self.rows_per_block(), self.range().start + row);
        let (block, mut row) = ((row / block) as usize, (row % block) as usize);
        let (modes, precisions) = (&self.request.modes, &self.request.precisions);
        let (mode, block) = (modes[block % modes.len()], block / modes.len());
        let (precision, team) = (precisions[block % precisions.len()], block / precisions.len());
        let point = self.points[row % self.points.len()];
        row /= self.points.len();
        let (network, batch) = (row / self.batches.len(), self.batches[row % self.batches.len()]);
        let known = network < self.networks.len() && team < self.teams.len();
        known.then(|| self.key_of((network, team), batch, (precision, mode), point))
    }

    /// Rows of tasks of one network, in order; what cannot be predicted has a row that says why.
    fn rows_of<'b>(&self, tasks: &[Task], team: usize, block: &'b Block, over: &[Over<'b>]) -> Vec<Row<'_>> {
        let points = |task: &Task| &self.points[task.from..task.to];
        let how = (block.precision, block.mode);
        let key = |task: &Task, point: &OperatingPoint| self.key_of((task.network, team), task.batch, how, *point);
        let failed = |task: &Task, why: &str| -> Vec<Row<'_>> {
            points(task).iter().map(|p| Row::failed(key(task, p), why.to_string())).collect()
        };
        let Some(first) = tasks.first() else { return Vec::new() };
        let cluster = match &block.cluster {
            Ok(cluster) => cluster,
            Err(why) => return tasks.iter().flat_map(|task| failed(task, why)).collect(),
        };
        let source = &self.networks[first.network].source;
        if !cluster.is_single() {
            let row = |task: &Task, p: &OperatingPoint| match cluster.step(source, Batch::Samples(task.batch), *p) {
                Ok(prediction) => Row::predicted(key(task, p), &prediction),
                Err(e) => Row::failed(key(task, p), e.to_string()),
            };
            return tasks
                .iter()
                .flat_map(|task| points(task).iter().map(move |p| (task, p)))
                .map(|(t, p)| row(t, p))
                .collect();
        }
        let summed = |task: &Task, prepared: &Prepared<'_, '_>| -> Vec<Row<'_>> {
            let mut along = prepared.along();
            let row = |p: &OperatingPoint| match along.at(*p) {
                Ok(summary) => Row::summed(key(task, p), &summary, prepared),
                Err(e) => Row::failed(key(task, p), e.to_string()),
            };
            points(task).iter().map(row).collect()
        };
        let shapes = &block.shapes;
        if let Some(over) = over[first.network].of(self, block, first.network)
            && tasks.iter().all(|task| shapes.fits(first.network, task.batch))
        {
            let batches: Vec<u64> = tasks.iter().map(|task| task.batch).collect();
            if let Ok(rows) = over.each(&batches, |i, prepared| summed(&tasks[i], prepared)) {
                return rows.into_iter().flatten().collect();
            }
        }
        let alone = |task: &Task| match &*shapes.at(source, (task.network, task.place), &self.batches, cluster) {
            Err(why) => failed(task, why),
            Ok(shaped) => match cluster.first().step(shaped, block.mode) {
                Err(e) => failed(task, &e.to_string()),
                Ok(step) => summed(task, &step.prepare()),
            },
        };
        tasks.iter().flat_map(alone).collect()
    }

    /// A team in a precision and mode. `shapes`: of all such blocks, where they share them.
    fn block(
        &self,
        team: &Team,
        (precision, mode): (Precision, Mode),
        shapes: Option<&Arc<Shapes>>,
    ) -> Result<Block, Failure> {
        let cluster = match self.session.cluster(&self.request, team, precision, mode) {
            Ok(cluster) => Ok(cluster),
            Err(Failure::Usage(e)) => Err(Failure::Usage(e).to_string()),
            Err(other) => return Err(other),
        };
        let own = || Arc::new(self.no_shapes());
        Ok(Block { cluster, shapes: shapes.cloned().unwrap_or_else(own), precision, mode })
    }

    /// Shapes of none of the networks yet.
    fn no_shapes(&self) -> Shapes {
        Shapes::of(self.networks.len(), if self.batches.len() < WORTH_IT { self.batches.len() } else { 0 })
    }

    /// Shapes for each precision and mode that all GPUs share, where they are not too many to be kept.
    fn shared_shapes(&self) -> Vec<Arc<Shapes>> {
        let blocks = self.request.precisions.len() * self.request.modes.len();
        let are_few = blocks * self.networks.len() <= MOST_SHARED && self.teams.len() > 1;
        (0..if are_few { blocks } else { 0 }).map(|_| Arc::new(self.no_shapes())).collect()
    }

    /// Precisions and modes, each with its place.
    fn ways(&self) -> impl Iterator<Item = (usize, (Precision, Mode))> + '_ {
        let modes = |precision| self.request.modes.iter().map(move |mode| (precision, *mode));
        self.request.precisions.iter().flat_map(move |precision| modes(*precision)).enumerate()
    }

    /// All rows, made on so many threads.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub fn all(&self, threads: usize) -> Result<Vec<Row<'_>>, Failure> {
        let mut all = Vec::new();
        self.run(
            0,
            threads,
            |rows| rows,
            |_, rows| {
                all.extend(rows);
                Ok(())
            },
        )?;
        Ok(all)
    }

    /// All rows, made on the calling thread.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub fn here(&self) -> Result<Vec<Row<'_>>, Failure> {
        let (mut skip, mut most) = (self.range().start, self.rows());
        let (block_rows, shapes, mut all) = (self.rows_per_block(), self.shared_shapes(), Vec::new());
        let blocks = self.teams.iter().enumerate().flat_map(|team| self.ways().map(move |way| (team, way)));
        for ((i, team), (way, how)) in blocks {
            if skip >= block_rows {
                skip -= block_rows;
                continue;
            }
            if most == 0 {
                break;
            }
            let block = self.block(team, how, shapes.get(way))?;
            let here = most.min(block_rows - skip);
            most -= here;
            let over: Vec<Over<'_>> = self.networks.iter().map(|_| Over::default()).collect();
            for tasks in together(self.tasks(std::mem::take(&mut skip), here)) {
                all.extend(self.rows_of(&tasks, i, &block, &over));
            }
        }
        Ok(all)
    }

    /// Makes rows from one on, in order, on so many threads: `make` on any of them, of what it makes `take` is given one
    /// after the other, with how many rows it is of.
    ///
    /// # Errors
    /// Those of `take`, and when a file cannot be used.
    pub fn run<'s, T: Send>(
        &'s self,
        mut skip: u64,
        threads: usize,
        make: impl Fn(Vec<Row<'s>>) -> T + Sync,
        mut take: impl FnMut(u64, T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (mut most, shapes) = (self.rows().saturating_sub(skip), self.shared_shapes());
        skip += self.range().start;
        let blocks = self.teams.iter().enumerate().flat_map(|team| self.ways().map(move |way| (team, way)));
        for ((i, team), (way, how)) in blocks {
            if skip >= self.rows_per_block() {
                skip -= self.rows_per_block();
                continue;
            }
            if most == 0 {
                break;
            }
            let block = self.block(team, how, shapes.get(way))?;
            let here = most.min(self.rows_per_block() - skip);
            let tasks = together(self.tasks(std::mem::take(&mut skip), here));
            most -= here;
            let over: Vec<Over<'_>> = self.networks.iter().map(|_| Over::default()).collect();
            let one = |tasks: Vec<Task>| {
                let rows = self.rows_of(&tasks, i, &block, &over);
                (rows.len() as u64, make(rows))
            };
            let threads = (threads, threads * TASKS_PER_THREAD);
            ordered::each(tasks, threads, one, |(rows, made)| take(rows, made))?;
        }
        Ok(())
    }
}

/// Tasks, those of one network together that are worked on together.
fn together(tasks: impl Iterator<Item = Task>) -> impl Iterator<Item = Vec<Task>> {
    let mut tasks: Peekable<_> = tasks.peekable();
    std::iter::from_fn(move || {
        let first = tasks.next()?;
        let mut points = first.to - first.from;
        let mut same = vec![first];
        while same.len() < BATCHES
            && let Some(task) = tasks.next_if(|t| t.network == first.network && points + t.to - t.from <= POINTS)
        {
            points += task.to - task.from;
            same.push(task);
        }
        Some(same)
    })
}

/// A network's step over batches, made when a task first wants it.
#[derive(Default)]
struct Over<'b>(OnceLock<Option<StepOverBatches<'b>>>);

impl<'b> Over<'b> {
    /// `None` where so few batches are not worth it, or kernels differ between them.
    fn of(&self, sweep: &Sweep<'_>, block: &'b Block, network: usize) -> Option<&StepOverBatches<'b>> {
        let make = || {
            let cluster = block.cluster.as_ref().ok().filter(|_| sweep.batches.len() >= WORTH_IT)?;
            let source = &sweep.networks[network].source;
            let shaped = block.shapes.largest(source, network, &sweep.batches, cluster).as_ref().ok()?;
            cluster.first().over_batches(shaped, block.mode).ok()?
        };
        self.0.get_or_init(make).as_ref()
    }
}

/// A team in a precision and mode, and the networks as they run there.
struct Block {
    cluster: Result<Cluster, String>,
    shapes: Arc<Shapes>,
    precision: Precision,
    mode: Mode,
}

/// Rows without a prediction.
#[derive(Debug, Default)]
pub struct Errors {
    /// How many.
    pub count: u64,
    /// Why the first of them has none.
    pub first: Option<String>,
}

impl Errors {
    /// Among these rows.
    pub fn of(rows: &[Row<'_>]) -> Self {
        let mut why = rows.iter().filter_map(Row::error);
        let first = why.next().map(str::to_string);
        Self { count: u64::from(first.is_some()) + why.count() as u64, first }
    }

    /// With those of further rows.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }
}
