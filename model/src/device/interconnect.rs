//! What joins GPUs, and how long a sum over them takes on it. `data/interconnects/*.toml`, `interconnect/1`. Training's sums of
//! gradients go by the ring that the file has first, what serving exchanges by its [`Collectives`].

use crate::base::file::{FileError, check_schema, quantity, within};
use crate::base::packed::{from_packed, from_toml};
use crate::base::text::{names, shown};
use crate::base::units::{Bytes, BytesPerSecond, Dimension, Seconds};
use crate::device::collective::{Collectives, Law};
use crate::device::gpu::Gpu;
use serde::Deserialize;
use std::collections::HashMap;

/// What joins GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Interconnect {
    /// Name on the command line.
    pub name: String,
    /// In words.
    pub title: String,
    /// Further names.
    pub aliases: Vec<String>,
    /// Boards that it joins unless somebody says otherwise.
    joins: Vec<Boards>,
    /// Further boards whose collectives in serving are measured here.
    serves: Vec<Boards>,
    /// Whether it joins boards of different chips, which cannot reach each other's memory.
    mixed: bool,
    /// How many GPUs it joins in a node; `None` of a network, which joins nodes.
    pub node: Option<u64>,
    /// What an all-reduce takes however small and few.
    pub launch: Seconds,
    /// What each of its 2 (n - 1) steps around the ring takes besides the transfer.
    pub hop: Seconds,
    /// Bytes that every link of the ring carries per second.
    pub bandwidth: BytesPerSecond,
    /// 90 % of measured all-reduces lie within this factor.
    pub spread: f64,
    /// What serving exchanges, where that was measured.
    pub collectives: Option<Collectives>,
}

/// Boards by what their files say.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Boards {
    form_factor: String,
    architecture: Option<String>,
}

impl Boards {
    fn holds(&self, gpu: &Gpu) -> bool {
        self.form_factor == gpu.form_factor && self.architecture.as_ref().is_none_or(|a| *a == gpu.architecture)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    #[serde(deserialize_with = "names")]
    name: String,
    #[serde(deserialize_with = "names")]
    title: String,
    #[serde(default, deserialize_with = "names")]
    aliases: Vec<String>,
    #[serde(default)]
    joins: Vec<Boards>,
    #[serde(default)]
    serves: Vec<Boards>,
    #[serde(default)]
    mixed: bool,
    node: Option<Entry<u64>>,
    launch: Entry<String>,
    hop: Entry<String>,
    bandwidth: Entry<String>,
    spread: Entry<f64>,
    collectives: Option<CollectivesFile>,
    sources: HashMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CollectivesFile {
    all_reduce: LawFile,
    all_gather: LawFile,
    reduce_scatter: LawFile,
    all_to_all: LawFile,
    one_shot: Option<LawFile>,
    two_shot: Option<LawFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LawFile {
    launch: String,
    hop: String,
    ramp: String,
    bandwidth: String,
    crowding: f64,
    spread: f64,
    source: String,
}

/// Why GPUs cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// No interconnect is known that has such boards.
    #[error("what joins several {} is not known; say it with --interconnect: {}", .boards.join(", "), .known.join(", "))]
    Unknown {
        /// Names of the boards' kinds.
        boards: Vec<String>,
        /// Names of the interconnects that there are.
        known: Vec<String>,
    },
    /// The interconnect that was asked for has links of another kind of board.
    #[error("{interconnect} does not join {gpu} ({form_factor}){}", .usual.as_ref().map_or(String::new(), |i| format!(": {i} does")))]
    OtherBoard {
        /// What was asked for.
        interconnect: String,
        /// The board.
        gpu: String,
        /// How it is built, such as `pcie`.
        form_factor: String,
        /// What does join such boards, where that is known.
        usual: Option<String>,
    },
    /// More GPUs than a node has, and no network between nodes was asked for.
    #[error(
        "{gpus} GPUs are more than the {most} that {node} joins in a node; say what joins nodes with --interconnect: \
         {}, or --interconnect {node} if that joins them all",
        .networks.join(", ")
    )]
    Nodes {
        /// GPUs of the step.
        gpus: u64,
        /// GPUs of a node.
        most: u64,
        /// What joins them there.
        node: String,
        /// Names of the interconnects that join nodes.
        networks: Vec<String>,
    },
}

/// How links of further GPUs crowd: measured ones have -0.4 (switches that sum) to 2.05 (bridges that many share).
const CROWDING: std::ops::RangeInclusive<f64> = -1.0..=3.0;

/// Nobody would say that all-reduces take so many times as long as foreseen.
const MOST_SPREAD: f64 = 100.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<T> {
    value: T,
    source: String,
}

impl Interconnect {
    /// Reads a file.
    ///
    /// # Errors
    /// One line that says where it is malformed.
    pub fn from_toml(text: &str) -> Result<Self, FileError> {
        Self::of(from_toml(text)?)
    }

    /// Reads a file that is shipped.
    ///
    /// # Errors
    /// As [`Self::from_toml`].
    pub(crate) fn from_packed(bytes: &'static [u8]) -> Result<Self, FileError> {
        Self::of(from_packed(bytes)?)
    }

    fn of(file: File) -> Result<Self, FileError> {
        check_schema(&file.schema, "interconnect/1")?;
        let known = |field: &str, source: &str| match file.sources.contains_key(source) {
            true => Ok(()),
            false => Err(FileError::Source { field: field.into(), key: shown(source) }),
        };
        let number = |field: &str, entry: &Entry<String>, dimension| {
            known(field, &entry.source)?;
            let value = quantity(field, &entry.value, dimension)?;
            match dimension == Dimension::Bandwidth && value == 0.0 {
                true => Err(FileError::value(format!("{field} is 0"), "nothing would ever arrive")),
                false => Ok(value),
            }
        };
        known("spread", &file.spread.source)?;
        if let Some(node) = &file.node {
            known("node", &node.source)?;
            if !(2..=1 << 16).contains(&node.value) {
                return Err(FileError::value("node", format!("{} is not a number of GPUs to join", node.value)));
            }
        }
        let spread = within("spread", file.spread.value, 1.0..=MOST_SPREAD)?;
        let law = |field: &str, law: &LawFile| -> Result<Law, FileError> {
            let of = |part: &str, value: &str, dimension| {
                let entry = Entry { value: value.to_string(), source: law.source.clone() };
                number(&format!("collectives.{field}.{part}"), &entry, dimension)
            };
            Ok(Law {
                launch: Seconds::new(of("launch", &law.launch, Dimension::Time)?),
                hop: Seconds::new(of("hop", &law.hop, Dimension::Time)?),
                ramp: Seconds::new(of("ramp", &law.ramp, Dimension::Time)?),
                bandwidth: BytesPerSecond::new(of("bandwidth", &law.bandwidth, Dimension::Bandwidth)?),
                crowding: within(&format!("collectives.{field}.crowding"), law.crowding, CROWDING)?,
                spread: within(&format!("collectives.{field}.spread"), law.spread, 1.0..=MOST_SPREAD)?,
            })
        };
        let collectives = |file: &CollectivesFile| -> Result<Collectives, FileError> {
            Ok(Collectives {
                all_reduce: law("all_reduce", &file.all_reduce)?,
                all_gather: law("all_gather", &file.all_gather)?,
                reduce_scatter: law("reduce_scatter", &file.reduce_scatter)?,
                all_to_all: law("all_to_all", &file.all_to_all)?,
                one_shot: file.one_shot.as_ref().map(|file| law("one_shot", file)).transpose()?,
                two_shot: file.two_shot.as_ref().map(|file| law("two_shot", file)).transpose()?,
            })
        };
        let collectives = file.collectives.as_ref().map(collectives).transpose()?;
        Ok(Self {
            launch: Seconds::new(number("launch", &file.launch, Dimension::Time)?),
            hop: Seconds::new(number("hop", &file.hop, Dimension::Time)?),
            bandwidth: BytesPerSecond::new(number("bandwidth", &file.bandwidth, Dimension::Bandwidth)?),
            spread,
            collectives,
            name: file.name,
            title: file.title,
            aliases: file.aliases,
            joins: file.joins,
            serves: file.serves,
            mixed: file.mixed,
            node: file.node.map(|node| node.value),
        })
    }

    /// The one of those known that joins these boards unless somebody says otherwise.
    ///
    /// # Errors
    /// When there is none.
    pub fn usual(known: &[Self], boards: &[&Gpu]) -> Result<Self, JoinError> {
        let alike = boards.windows(2).all(|pair| pair[0].chip == pair[1].chip);
        let joins = |i: &Self| match (alike, boards.first()) {
            (true, Some(gpu)) => i.joins.iter().any(|b| b.holds(gpu)),
            _ => i.mixed,
        };
        known.iter().find(|i| joins(i)).cloned().ok_or_else(|| JoinError::Unknown {
            boards: boards.iter().map(|gpu| gpu.name.clone()).collect(),
            known: known.iter().map(|i| i.name.clone()).collect(),
        })
    }

    /// What so many boards of a kind serve a network over: what is asked for, else what has such boards' measured collectives,
    /// else what joins them in training.
    ///
    /// # Errors
    /// When that is not known, joins other boards, or they are more than a node has.
    pub fn serving(known: &[Self], gpu: &Gpu, gpus: u64, asked: Option<Self>) -> Result<Self, JoinError> {
        let measured = |i: &&Self| i.collectives.is_some() && i.joins.iter().chain(&i.serves).any(|b| b.holds(gpu));
        let usual = || match known.iter().find(measured) {
            Some(found) => Ok(found.clone()),
            None => Self::usual(known, &[gpu]),
        };
        let Some(asked) = asked else {
            let found = usual()?;
            return match found.node {
                Some(most) if gpus > most => {
                    let networks = known.iter().filter(|i| i.node.is_none()).map(|i| i.name.clone()).collect();
                    Err(JoinError::Nodes { gpus, most, node: found.name, networks })
                }
                _ => Ok(found),
            };
        };
        match asked.lacking(&[gpu]) {
            Some(gpu) => Err(JoinError::OtherBoard {
                interconnect: asked.name,
                gpu: gpu.name.clone(),
                form_factor: gpu.form_factor.clone(),
                usual: usual().ok().map(|i| i.name),
            }),
            None => Ok(asked),
        }
    }

    /// What serving exchanges: as measured, or around the ring of training's sums.
    pub fn collectives(&self) -> Collectives {
        let ring = || Collectives::around_a_ring(self.launch, self.hop, self.bandwidth, self.spread);
        self.collectives.unwrap_or_else(ring)
    }

    /// A board that it cannot join: links of its own kind of board, as NVLink's, are on no other.
    pub(crate) fn lacking<'g>(&self, boards: &[&'g Gpu]) -> Option<&'g Gpu> {
        let own = !self.joins.is_empty() && self.joins.iter().all(|b| b.architecture.is_some());
        boards.iter().find(|gpu| own && !self.joins.iter().any(|b| b.holds(gpu))).copied()
    }

    /// Time from one GPU's memory into another's.
    pub fn send(&self, bytes: Bytes) -> Seconds {
        self.launch + self.hop + bytes / self.bandwidth
    }

    /// Time of an all-reduce over a ring of `gpus` GPUs: launch + 2 (n - 1) hop + 2 (n - 1) / n bytes / bandwidth (Patarasuk
    /// and Yuan, J. Parallel Distrib. Comput. 69, 2009). Nothing for one GPU, or for no bytes.
    pub fn all_reduce(&self, gpus: u64, bytes: Bytes) -> Seconds {
        if gpus < 2 || bytes == Bytes::ZERO {
            return Seconds::ZERO;
        }
        let [launch, hops, share] = ring(gpus);
        self.launch * launch + self.hop * hops + bytes / self.bandwidth * share
    }
}

/// How often a ring all-reduce takes the launch, the hop, and the transfer of all its bytes.
pub fn ring(gpus: u64) -> [f64; 3] {
    let others = gpus.saturating_sub(1) as f64;
    [1.0, 2.0 * others, 2.0 * others / gpus.max(1) as f64]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    pub const TEXT: &str = r#"
schema = "interconnect/1"
name = "wire"
title = "a wire"
joins = [{ form_factor = "pcie" }]
mixed = false
launch = { value = "10 us", source = "a" }
hop = { value = "5 us", source = "a" }
bandwidth = { value = "10 GB/s", source = "a" }
spread = { value = 1.2, source = "a" }
sources.a = "a test"
"#;

    #[test]
    fn a_ring_carries_all_but_one_share_twice() {
        let wire = Interconnect::from_toml(TEXT).expect("valid");
        let bytes = Bytes::new(1_000_000_000);
        assert_eq!(wire.all_reduce(1, bytes), Seconds::ZERO);
        assert_eq!(wire.all_reduce(4, Bytes::ZERO), Seconds::ZERO);
        assert!((wire.all_reduce(2, bytes).get() - (20e-6 + 0.1)).abs() < 1e-12);
        assert!((wire.all_reduce(4, bytes).get() - (40e-6 + 0.15)).abs() < 1e-12);
    }

    #[test]
    fn boards_are_joined_by_what_they_are() -> Result<(), Box<dyn std::error::Error>> {
        let gpu = |name: &str| catalog::gpu(name);
        let usual = |names: [&str; 2]| {
            let boards = [gpu(names[0]).map_err(|e| e.to_string())?, gpu(names[1]).map_err(|e| e.to_string())?];
            let known = catalog::interconnects().map_err(|e| e.to_string())?;
            Interconnect::usual(&known, &[&boards[0], &boards[1]]).map(|i| i.name).map_err(|e| e.to_string())
        };
        assert_eq!(usual(["v100", "v100"])?, "nvlink2");
        assert_eq!(usual(["titan-x-pascal", "titan-x-pascal"])?, "pcie3");
        assert_eq!(usual(["titan-x-pascal", "titan-x-maxwell"])?, "pcie3-host");
        let error = usual(["tegra-x1", "tegra-x1"]).expect_err("none");
        assert!(error.contains("--interconnect"), "{error}");
        Ok(())
    }

    #[test]
    fn serving_goes_by_what_was_measured_on_such_boards() -> Result<(), Box<dyn std::error::Error>> {
        let known = catalog::interconnects()?;
        let name = |gpu: &str, gpus, asked: Option<&str>| -> Result<String, Box<dyn std::error::Error>> {
            let asked = asked.map(catalog::interconnect).transpose()?;
            Ok(Interconnect::serving(&known, &catalog::gpu(gpu)?, gpus, asked)?.name)
        };
        for (gpu, expected) in
            [("h200", "nvlink4"), ("a100", "nvlink3"), ("b200", "nvlink5"), ("l40s", "pcie4"), ("t4", "pcie3")]
        {
            assert_eq!(name(gpu, 8, None)?, expected);
        }
        assert_eq!(name("h100", 4, Some("pcie3"))?, "pcie3");
        // Sums of gradients of these boards go on as they did.
        let l40s = catalog::gpu("l40s")?;
        assert_eq!(Interconnect::usual(&known, &[&l40s]).map(|i| i.name), Ok("pcie3".into()));
        for (gpu, gpus, asked, says) in [
            ("h100", 16, None, "more than the 8"),
            ("l40s", 2, Some("nvlink4"), "nvlink4 does not join l40s (pcie): pcie4 does"),
            ("jetson-agx-orin", 2, None, "is not known"),
        ] {
            let error = name(gpu, gpus, asked).expect_err("refused").to_string();
            assert!(error.contains(says), "{error}");
        }
        Ok(())
    }

    #[test]
    fn a_wrong_number_names_its_field() {
        const LAW: &str = "{ launch = \"1 us\", hop = \"1 us\", ramp = \"1 us\", bandwidth = \"9 GB/s\", crowding = 0.1, spread = 1.1, source = \"a\" }";
        let all = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"].map(|kind| format!("{kind} = {LAW}\n"));
        let text = TEXT.replace("sources.a", &format!("[collectives]\n{}[sources]\na", all.concat()));
        assert!(Interconnect::from_toml(&text).expect("valid").collectives.is_some());
        for (from, to, expected) in [
            ("\"9 GB/s\"", "\"0 GB/s\"", "collectives.all_reduce.bandwidth is 0"),
            ("crowding = 0.1", "crowding = 9.0", "collectives.all_reduce.crowding"),
            ("spread = 1.1", "spread = 0.1", "collectives.all_reduce.spread"),
            ("ramp = \"1 us\"", "ramp = \"1 m\"", "collectives.all_reduce.ramp"),
            ("1.1, source = \"a\"", "1.1, source = \"b\"", "no source \"b\""),
        ] {
            let error = Interconnect::from_toml(&text.replacen(from, to, 1)).expect_err("wrong");
            assert!(error.to_string().contains(expected), "{error}");
        }
        for (from, to, expected) in [
            ("\"10 GB/s\"", "\"10 GB\"", "bandwidth"),
            ("1.2", "0.9", "spread is 0.9"),
            ("1.2", "inf", "spread is inf"),
            ("1.2", "1e308", "spread is 1e308"),
            ("\"10 GB/s\"", "\"0 GB/s\"", "bandwidth is 0"),
            ("\"10 GB/s\"", "\"-0 GB/s\"", "bandwidth"),
            ("\"5 us\"", "\"6e99 us\"", "hop"),
            ("mixed = false", "node = { value = 1, source = \"a\" }", "node: 1 is not"),
            ("source = \"a\" }\nhop", "source = \"b\" }\nhop", "launch: no source \"b\""),
        ] {
            let error = Interconnect::from_toml(&TEXT.replacen(from, to, 1)).expect_err("wrong");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
