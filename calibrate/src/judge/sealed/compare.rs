//! A sealed round against what was measured of it. Nothing is predicted here: values are those of the sealed files, whatever
//! has been fitted since.

use super::measured::{self, Boards, HostFactors, Measured};
use super::round::{Key, Loaded, Round, load};
use super::seal::{Predicted, SIDECAR, Seal, file_names, rows};
use crate::system::hash::sha256_hex;
use anyhow::{Context, Result, ensure};
use joulecast_model::base::precision::Mode;
use joulecast_model::catalog;
use joulecast_reports::networks::Pair;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What decides how long steps of a group take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Inference as a CUDA graph.
    Graph,
    /// A language model's prompt.
    Prompt,
    /// A language model's step of one token.
    Decode,
    /// Eager inference that the GPU is foreseen to bound.
    EagerGpu,
    /// Eager inference that the host is foreseen to bound.
    EagerHost,
    /// Training that the GPU is foreseen to bound, as a graph or eager.
    TrainingGpu,
    /// Training that the host is foreseen to bound.
    TrainingHost,
    /// Training over two GPUs that they are foreseen to bound.
    PairGpu,
    /// Training over two GPUs that the host is foreseen to bound.
    PairHost,
}

impl Group {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Graph => "graph",
            Self::Prompt => "language model, prompt",
            Self::Decode => "language model, step",
            Self::EagerGpu => "eager, GPU-bound",
            Self::EagerHost => "eager, host-bound",
            Self::TrainingGpu => "training, GPU-bound",
            Self::TrainingHost => "training, host-bound",
            Self::PairGpu => "training on two GPUs, GPU-bound",
            Self::PairHost => "training on two GPUs, host-bound",
        }
    }

    /// That of a row, which the host bounds or not.
    fn of(key: &Key, host_bound: bool) -> Result<Self> {
        Ok(match (key.step.run()?.mode, key.step.launch.as_str(), host_bound) {
            _ if key.step.sequence > 0 => Self::Prompt,
            _ if key.step.cached > 0 => Self::Decode,
            (Mode::Inference, "graph", _) => Self::Graph,
            (Mode::Inference, _, false) => Self::EagerGpu,
            (Mode::Inference, _, true) => Self::EagerHost,
            (Mode::Training, _, bound) if key.step.gpus > 1 => [Self::PairGpu, Self::PairHost][usize::from(bound)],
            (Mode::Training, _, false) => Self::TrainingGpu,
            (Mode::Training, _, true) => Self::TrainingHost,
        })
    }

    /// Whether the host is foreseen to decide.
    pub fn of_host(self) -> bool {
        matches!(self, Self::EagerHost | Self::TrainingHost | Self::PairHost)
    }
}

/// Predictions of a board, by row.
type Rows = BTreeMap<Key, Predicted>;
/// Those for other hosts, by row: the factors ascend.
type OnHosts = BTreeMap<Key, Vec<Predicted>>;

/// A seal whose files are those that it names.
pub struct Verified {
    /// What it was made from.
    pub seal: Seal,
    /// The round.
    pub round: Round,
    predicted: BTreeMap<String, (Rows, OnHosts)>,
}

impl Verified {
    /// What was sealed of each board on the profile's own host.
    pub fn predicted(&self) -> impl Iterator<Item = (&str, &Predicted)> {
        self.predicted.iter().flat_map(|(board, (own, _))| own.values().map(move |row| (board.as_str(), row)))
    }
}

/// Reads a round's folder and its file beside it, and compares every file with the hash that the seal has of it.
///
/// # Errors
/// Names the first file that is another one, is missing, or that the seal does not know.
pub fn verify(folder: &Path) -> Result<Verified> {
    let text = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let seal = Seal::from_toml(&text(SIDECAR)?).with_context(|| folder.join(SIDECAR).display().to_string())?;
    let file = folder.with_extension("toml");
    let Loaded { round, sha256, hashes, .. } = load(&file)?;
    ensure!(sha256 == seal.round_sha256, "{} is not the file that was sealed", file.display());
    ensure!(round.round == seal.round, "{} is of round {}", file.display(), round.round);
    for (name, hash) in &hashes {
        ensure!(seal.networks.get(name) == Some(hash), "network {name} is not the one that was sealed");
    }
    ensure!(hashes.len() == seal.networks.len(), "the seal has networks that the round has not");
    let mut predicted = BTreeMap::new();
    let read = |name: &str| -> Result<Vec<Predicted>> {
        let (text, hash) = (text(name)?, seal.predictions.get(name));
        ensure!(hash == Some(&sha256_hex(text.as_bytes())), "{name} is not the file that was sealed");
        rows(&text, name)
    };
    for board in &round.boards {
        let board = catalog::gpu(board)?.name;
        let [own, on_hosts] = file_names(&board);
        if !seal.predictions.contains_key(&own) {
            continue;
        }
        let mut hosts = OnHosts::new();
        for row in read(&on_hosts)? {
            hosts.entry(row.key()).or_default().push(row);
        }
        hosts.values_mut().for_each(|list| list.sort_by(|a, b| a.host.total_cmp(&b.host)));
        let own = read(&own)?.into_iter().map(|row| (row.key(), row)).collect();
        predicted.insert(board, (own, hosts));
    }
    ensure!(seal.predictions.len() == 2 * predicted.len(), "the seal has predictions of boards that the round has not");
    Ok(Verified { seal, round, predicted })
}

/// A row as it was sealed and as it was measured.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Which.
    pub key: Key,
    /// Its group, by what was sealed for a host as fast as that of the visit.
    pub group: Group,
    /// The same by the profile's host, which is all that was known before.
    pub foreseen: Group,
    /// Seconds.
    pub time: Pair,
    /// The same with the host of the visit, where that was measured and the step is eager.
    pub hosted: Option<Pair>,
    /// Watts.
    pub power: Option<Pair>,
    /// Joules.
    pub energy: Option<Pair>,
    /// Bytes that the allocator held; without an interval.
    pub memory: Option<Pair>,
}

const MIB: f64 = (1u64 << 20) as f64;

/// A time between those of two hosts, on a logarithmic scale; at the ends those of the last.
fn between(hosts: &[Predicted], factor: f64, of: fn(&Predicted) -> f64) -> Option<f64> {
    let above = hosts.iter().position(|row| row.host >= factor);
    let (low, high) = match above {
        Some(0) => (hosts.first()?, hosts.first()?),
        Some(at) => (hosts.get(at - 1)?, hosts.get(at)?),
        None => (hosts.last()?, hosts.last()?),
    };
    let share = if low.host == high.host { 0.0 } else { (factor / low.host).ln() / (high.host / low.host).ln() };
    Some((of(low).ln() * (1.0 - share) + of(high).ln() * share).exp())
}

/// The row for the host whose factor is nearest.
fn nearest(hosts: &[Predicted], factor: f64) -> Option<&Predicted> {
    let apart = |row: &Predicted| (row.host / factor).ln().abs();
    hosts.iter().min_by(|a, b| apart(a).total_cmp(&apart(b)))
}

impl Compared {
    fn of(
        key: &Key,
        p: &Predicted,
        hosts: &[Predicted],
        measured: &Measured,
        (factor, of_networks): (Option<f64>, bool),
    ) -> Result<Option<Self>> {
        let Some(ms) = measured.ms_per_iter else { return Ok(None) };
        // Factors of chains are too small for networks: before they were corrected a step was sorted by the profile's host.
        let known = factor.filter(|_| of_networks).and_then(|factor| nearest(hosts, factor));
        let group = Group::of(key, known.unwrap_or(p).host_bound)?;
        let foreseen = Group::of(key, p.host_bound)?;
        let seconds = ms / 1e3;
        let time = Pair { measured: seconds, predicted: p.time_s, p05: p.time_p05_s, p95: p.time_p95_s };
        let hosted = factor.and_then(|factor| {
            Some(Pair {
                measured: seconds,
                predicted: between(hosts, factor, |row| row.time_s)?,
                p05: between(hosts, factor, |row| row.time_p05_s)?,
                p95: between(hosts, factor, |row| row.time_p95_s)?,
            })
        });
        let power = measured.watts.map(|watts| Pair {
            measured: watts,
            predicted: p.power_w,
            p05: p.power_p05_w,
            p95: p.power_p95_w,
        });
        let energy = measured.watts.map(|watts| Pair {
            measured: watts * seconds,
            predicted: p.energy_j,
            p05: p.energy_p05_j,
            p95: p.energy_p95_j,
        });
        let memory = measured.peak_mem_mib.map(|mib| Pair {
            measured: mib * MIB,
            predicted: p.allocated_bytes,
            p05: p.allocated_bytes,
            p95: p.allocated_bytes,
        });
        Ok(Some(Self { key: key.clone(), group, foreseen, time, hosted, power, energy, memory }))
    }
}

/// A row without a comparison, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Which.
    pub row: String,
    /// Why.
    pub reason: String,
}

/// A board's rows.
pub struct Board {
    /// The board.
    pub name: String,
    /// What was compared.
    pub rows: Vec<Compared>,
    /// Rows that could not be predicted or measured.
    pub failed: Vec<Failed>,
    /// Rows that nobody got to.
    pub not_reached: usize,
    /// How many times as long as the profile's table the hosts of the visits took.
    pub hosts: Vec<HostFactors>,
    /// Of the measured rows: when the first and the last were measured, and with what.
    pub visit: Visit,
}

/// When and with what rows were measured; texts that differ are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// The first row's moment; empty where nothing was measured.
    pub first: String,
    /// The last row's.
    pub last: String,
    /// How many GPUs.
    pub gpus: usize,
    /// Device, driver, PyTorch, cuDNN, libraries.
    pub software: Vec<String>,
}

impl Visit {
    fn of<'a>(rows: impl Iterator<Item = &'a Measured> + Clone) -> Self {
        let mut times: Vec<&str> = rows.clone().map(|r| r.utc.as_str()).collect();
        times.sort_unstable();
        let end = |time: Option<&&str>| time.map_or(String::new(), |t| t.to_string());
        let mut gpus: Vec<&str> = rows.clone().map(|r| r.uuid.as_str()).collect();
        gpus.sort_unstable();
        gpus.dedup();
        let words = |r: &Measured| {
            format!("{}, driver {}, PyTorch {}, cuDNN {}; {}", r.device, r.driver, r.torch, r.cudnn, r.libraries)
        };
        let mut software: Vec<String> = rows.map(words).collect();
        software.sort();
        software.dedup();
        Self { first: end(times.first()), last: end(times.last()), gpus: gpus.len(), software }
    }
}

/// What became of a round.
pub struct Outcome {
    /// The seal and the round.
    pub verified: Verified,
    /// By board.
    pub boards: Vec<Board>,
}

/// Compares what lies in a round's folder.
///
/// # Errors
/// When the seal does not hold, a measured file is of another round, or a row was measured before it was sealed.
pub fn outcome(folder: &Path) -> Result<Outcome> {
    let verified = verify(folder)?;
    let measured = measured::read(folder, &verified.seal.round_sha256)?;
    let boards = verified
        .predicted
        .iter()
        .map(|(name, predicted)| board(name, &verified, predicted, &measured, measured::hosts(folder, name)?));
    let boards = boards.collect::<Result<_>>()?;
    let unknown = measured.keys().find(|board| !verified.predicted.contains_key(*board));
    ensure!(
        unknown.is_none(),
        "rows of {} were measured, which nothing was sealed for",
        unknown.map_or("", |b| b.as_str())
    );
    Ok(Outcome { verified, boards })
}

fn board(
    name: &str,
    verified: &Verified,
    (predicted, on_hosts): &(Rows, OnHosts),
    measured: &Boards,
    hosts: Vec<HostFactors>,
) -> Result<Board> {
    let none = BTreeMap::new();
    let measured = measured.get(name).unwrap_or(&none);
    let own = verified.seal.unpredicted.iter().filter(|u| u.board == name);
    let mut failed: Vec<Failed> =
        own.map(|u| Failed { row: u.row.clone(), reason: format!("not predicted: {}", u.reason) }).collect();
    let (mut rows, mut not_reached) = (Vec::new(), 0);
    for (key, row) in predicted {
        let Some(found) = measured.get(key) else {
            not_reached += 1;
            continue;
        };
        ensure!(found.utc > verified.seal.utc, "{name}: {key} was measured at {}, before it was sealed", found.utc);
        let run = key.step.run()?;
        // Of several visits the geometric mean.
        let logs = hosts.iter().map(|host| host.of(&run).ln()).sum::<f64>();
        let factor = (!hosts.is_empty()).then(|| (logs / hosts.len() as f64).exp());
        let others = on_hosts.get(key).map_or(&[][..], Vec::as_slice);
        let of_networks = hosts.iter().all(|host| host.of_networks);
        match Compared::of(key, row, others, found, (factor, of_networks))? {
            Some(compared) => rows.push(compared),
            None => failed.push(Failed { row: key.to_string(), reason: found.error.clone() }),
        }
    }
    let known: Vec<Key> = verified.round.keys().collect();
    let strange = measured.keys().find(|key| !known.contains(key));
    ensure!(
        strange.is_none(),
        "{name}: a row was measured that is not in the round: {}",
        strange.map_or(String::new(), Key::to_string)
    );
    Ok(Board { name: name.to_string(), rows, failed, not_reached, hosts, visit: Visit::of(measured.values()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_between_two_lies_between_them() {
        let row = |host: f64, time: f64| Predicted { host, time_s: time, ..Predicted::default() };
        let hosts = [row(0.5, 1.0), row(1.0, 2.0), row(2.0, 8.0)];
        assert_eq!(
            [0.6, 0.8, 5.0].map(|factor| nearest(&hosts, factor).map(|row| row.host)),
            [0.5, 1.0, 2.0].map(Some)
        );
        let time = |factor| between(&hosts, factor, |row| row.time_s).unwrap_or(f64::NAN);
        let root = 2f64.sqrt();
        for (factor, expected) in
            [(0.5, 1.0), (1.0, 2.0), (2.0, 8.0), (root / 2.0, root), (root, 4.0), (0.1, 1.0), (9.0, 8.0)]
        {
            assert!((time(factor) / expected - 1.0).abs() < 1e-12, "{factor}: {}", time(factor));
        }
        assert!(between(&[], 1.0, |row| row.time_s).is_none());
    }
}
