//! A round as its file says it: networks that nobody ran before, and the rows of each.

use super::FRAMEWORK;
use crate::system::hash::sha256_hex;
use anyhow::{Context, Result, bail, ensure};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::net::network::Network;
use joulecast_model::rows::splits::Role;
use joulecast_model::step::framework::Launch;
use joulecast_model::step::generation;
use joulecast_read::Format;
use joulecast_read::onnx::Options;
use joulecast_reports::given;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

const SCHEMA: &str = "sealed/1";

/// A step of one row, in the words of measured files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// `infer` or `train`.
    pub mode: String,
    /// Precision; of training in 16 bits under autocast.
    pub precision: String,
    /// Samples, of each GPU.
    pub batch: u64,
    /// `eager` or `graph`.
    pub launch: String,
    /// GPUs that take a batch each and add their gradients.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub gpus: u64,
    /// Of a language model: tokens of a prompt, which fill a cache.
    #[serde(default, skip_serializing_if = "is_none")]
    pub sequence: u64,
    /// Of a language model: tokens that lie in the cache before a step of one.
    #[serde(default, skip_serializing_if = "is_none")]
    pub cached: u64,
}

pub(super) const fn one() -> u64 {
    1
}

fn is_one(gpus: &u64) -> bool {
    *gpus == 1
}

fn is_none(tokens: &u64) -> bool {
    *tokens == 0
}

/// What a step's words mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Inference or training.
    pub mode: Mode,
    /// Precision.
    pub precision: Precision,
    /// How it is launched.
    pub launch: Launch,
}

impl Step {
    /// What the words mean.
    ///
    /// # Errors
    /// For a word that is none.
    pub fn run(&self) -> Result<Run> {
        let mode = match self.mode.as_str() {
            "infer" => Mode::Inference,
            "train" => Mode::Training,
            other => bail!("mode \"{other}\""),
        };
        let precision =
            Precision::from_name(&self.precision).with_context(|| format!("precision \"{}\"", self.precision))?;
        let launch = Launch::from_name(&self.launch).with_context(|| format!("launch \"{}\"", self.launch))?;
        ensure!(self.batch > 0, "a batch of 0");
        ensure!(self.gpus > 0, "0 GPUs");
        ensure!(self.gpus == 1 || (mode, launch) == (Mode::Training, Launch::Eager), "only eager training is shared");
        ensure!(self.sequence == 0 || self.cached == 0, "a prompt and a step in one row");
        ensure!(!self.generates() || mode == Mode::Inference && self.gpus == 1, "only inference generates");
        Ok(Run { mode, precision, launch })
    }

    /// Whether it is a prompt or a step of a language model.
    pub fn generates(&self) -> bool {
        self.sequence > 0 || self.cached > 0
    }

    /// What of a network runs.
    ///
    /// # Errors
    /// When it does not generate.
    pub fn of(&self, network: &Network) -> Result<Network> {
        Ok(match (self.sequence, self.cached) {
            (0, 0) => network.clone(),
            (0, cached) => generation::decode(network, cached)?,
            (tokens, _) => generation::prefill(network, tokens)?,
        })
    }
}

/// What tells rows apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The network.
    pub network: String,
    /// Its step.
    pub step: Step,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Step { mode, precision, batch, launch, gpus, sequence, cached } = &self.step;
        write!(f, "{} {mode} {precision} {batch} {launch}", self.network)?;
        match (gpus, sequence, cached) {
            (1, 0, 0) => Ok(()),
            (1, 0, cached) => write!(f, " after {cached} tokens"),
            (1, tokens, _) => write!(f, " of {tokens} tokens"),
            (gpus, ..) => write!(f, " on {gpus} GPUs"),
        }
    }
}

/// A network of a round.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name, which its file has, too.
    pub name: String,
    /// The library that builds it, `written` where the project's script does.
    pub library: String,
    /// Shapes of one sample's inputs.
    pub inputs: String,
    /// Exporter and form of the export that was read.
    pub export: String,
    /// Learned parameters as PyTorch counts them.
    pub parameters: u64,
    /// Multiply-accumulates as they are read.
    pub macs: u64,
    /// Its rows.
    pub rows: Vec<Step>,
}

/// The library of networks that Hugging Face's `config.json` describes.
const CONFIG: &str = "config";

impl Member {
    /// Whether it is a language model that its `config.json` describes.
    pub fn is_configured(&self) -> bool {
        self.library == CONFIG
    }

    /// Name of its file.
    pub fn file(&self) -> String {
        format!("{}.{}", self.name, if self.is_configured() { "json" } else { "toml" })
    }
}

/// A network that was to be in a round, and why it is not.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// Its name.
    pub name: String,
    /// What its export lacks.
    pub reason: String,
}

/// A round's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    schema: String,
    /// Its number.
    pub round: u32,
    /// What rows were drawn by.
    pub seed: String,
    role: Role,
    /// Boards that it is for, by their names in the catalog or aliases of them.
    pub boards: Vec<String>,
    framework: String,
    /// Versions of what exported the networks.
    pub exported: String,
    /// Networks.
    #[serde(rename = "network")]
    pub networks: Vec<Member>,
    /// Those that cannot be exported or read.
    #[serde(default)]
    pub refused: Vec<Refused>,
}

impl Round {
    /// Reads a round's text.
    ///
    /// # Errors
    /// One line that says where it is malformed.
    pub fn from_toml(text: &str) -> Result<Self> {
        let round: Self = toml::from_str(text).map_err(|e| anyhow::anyhow!(e.message().to_string()))?;
        ensure!(round.schema == SCHEMA, "schema is \"{}\", expected \"{SCHEMA}\"", round.schema);
        ensure!(round.role == Role::Test, "the role of sealed networks is test");
        ensure!(round.framework == FRAMEWORK, "the framework of sealed networks is {FRAMEWORK}");
        let mut names = BTreeSet::new();
        for member in &round.networks {
            ensure!(names.insert(&member.name), "{} is there twice", member.name);
            let mut steps = BTreeSet::new();
            for step in &member.rows {
                step.run().with_context(|| member.name.clone())?;
                ensure!(steps.insert(step), "{}: a row is there twice", member.name);
            }
        }
        Ok(round)
    }

    /// All rows.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.networks
            .iter()
            .flat_map(|member| member.rows.iter().map(|step| Key { network: member.name.clone(), step: step.clone() }))
    }
}

/// Where the networks of a round lie.
pub fn networks_folder(file: &Path) -> PathBuf {
    file.with_extension("").join("nets")
}

/// A round with its networks, and the hashes of what was read.
pub struct Loaded {
    /// The round.
    pub round: Round,
    /// SHA-256 of its file.
    pub sha256: String,
    /// By name.
    pub networks: BTreeMap<String, Network>,
    /// SHA-256 of the networks' files, by name.
    pub hashes: BTreeMap<String, String>,
}

/// Reads a round's file and the networks in the folder of its name.
///
/// # Errors
/// When one cannot be read, or a network has no file; the message names it.
pub fn load(file: &Path) -> Result<Loaded> {
    let name = || file.display().to_string();
    let text = fs::read_to_string(file).with_context(name)?;
    let round = Round::from_toml(&text).with_context(name)?;
    let (mut networks, mut hashes) = (BTreeMap::new(), BTreeMap::new());
    for member in &round.networks {
        let path = networks_folder(file).join(member.file());
        let text = given::text(&path)?;
        let options = Options { name: &member.name, ..Options::default() };
        let network = Format::of(&member.file()).read(Cursor::new(text.as_bytes()), &options);
        networks.insert(member.name.clone(), network.with_context(|| path.display().to_string())?);
        hashes.insert(member.name.clone(), sha256_hex(text.as_bytes()));
    }
    Ok(Loaded { round, sha256: sha256_hex(text.as_bytes()), networks, hashes })
}
