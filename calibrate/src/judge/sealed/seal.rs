//! `calibrate seal`: predictions of a round's rows, with all that they were made from.

use super::FRAMEWORK;
use super::round::{Key, Loaded, Run, Step, one};
use crate::system::hash::sha256_hex;
use anyhow::{Context, Result, anyhow, bail, ensure};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::calibration::ANY_CHIP;
use joulecast_model::net::network::folding::Folding;
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::framework::{Framework, HostSpeed, Launch};
use joulecast_model::step::parallel::{Fabric, Share, combine};
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::NetworkPrediction;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const SCHEMA: &str = "seal/1";
/// What says what a seal was made from, in its folder.
pub const SIDECAR: &str = "seal.toml";
/// How many times as long as the profile's table the host takes, in the predictions for hosts that were measured: steps of
/// a fifth, of which the page takes what lies between two.
const HOSTS: [f64; 13] = [0.4, 0.5, 0.6, 0.7, 0.83, 1.0, 1.2, 1.44, 1.7, 2.0, 2.4, 3.0, 4.0];

/// A predicted row of `predicted-BOARD.csv`: of inference or training, in seconds, watts and joules per step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// The network.
    pub network: String,
    /// `infer` or `train`.
    pub mode: String,
    /// Precision.
    pub precision: String,
    /// Samples.
    pub batch: u64,
    /// `eager` or `graph`.
    pub launch: String,
    /// GPUs that share the step.
    #[serde(default = "one")]
    pub gpus: u64,
    /// Tokens of a prompt.
    #[serde(default)]
    pub sequence: u64,
    /// Tokens before a step of one.
    #[serde(default)]
    pub cached: u64,
    /// How many times as long as in the profile's table the host takes.
    pub host: f64,
    /// Time of a step.
    pub time_s: f64,
    /// Its 5 % quantile.
    pub time_p05_s: f64,
    /// Its 95 % quantile.
    pub time_p95_s: f64,
    /// Mean power.
    pub power_w: f64,
    /// Its 5 % quantile.
    pub power_p05_w: f64,
    /// Its 95 % quantile.
    pub power_p95_w: f64,
    /// Energy of a step.
    pub energy_j: f64,
    /// Its 5 % quantile.
    pub energy_p05_j: f64,
    /// Its 95 % quantile.
    pub energy_p95_j: f64,
    /// What the framework's allocator holds at most; memory has no interval.
    pub allocated_bytes: f64,
    /// With driver and framework.
    pub memory_bytes: f64,
    /// Tier of the time.
    pub tier: String,
    /// Tier of the power.
    pub power_tier: String,
    /// Whether the host decides.
    pub host_bound: bool,
    /// Mean core clock.
    pub clock_mhz: f64,
    /// Sum of the layers' roofline bounds.
    pub roofline_s: f64,
}

impl Predicted {
    fn of(key: &Key, host: f64, p: &NetworkPrediction) -> Self {
        let Step { mode, precision, batch, launch, gpus, sequence, cached } = key.step.clone();
        Self {
            network: key.network.clone(),
            mode,
            precision,
            batch,
            launch,
            gpus,
            sequence,
            cached,
            host,
            time_s: p.time.value.get(),
            time_p05_s: p.time.p05.get(),
            time_p95_s: p.time.p95.get(),
            power_w: p.power.value.get(),
            power_p05_w: p.power.p05.get(),
            power_p95_w: p.power.p95.get(),
            energy_j: p.energy.value.get(),
            energy_p05_j: p.energy.p05.get(),
            energy_p95_j: p.energy.p95.get(),
            allocated_bytes: p.memory.allocated().to_f64(),
            memory_bytes: p.memory.total().to_f64(),
            tier: p.time_tier.to_string(),
            power_tier: p.power_tier.to_string(),
            host_bound: if gpus > 1 { p.host.as_ref().is_some_and(|h| h.decides) } else { p.launch_bound },
            clock_mhz: p.clock.to_mhz(),
            roofline_s: p.bound.get(),
        }
    }

    /// What tells it from others.
    pub fn key(&self) -> Key {
        let Self { network, mode, precision, batch, launch, gpus, sequence, cached, .. } = self.clone();
        Key { network, step: Step { mode, precision, batch, launch, gpus, sequence, cached } }
    }
}

/// A row that nothing could be predicted of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unpredicted {
    /// The board.
    pub board: String,
    /// The row.
    pub row: String,
    /// Why.
    pub reason: String,
}

/// What a seal was made from (`seal.toml`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    schema: String,
    /// Number of the round.
    pub round: u32,
    /// The program and its version.
    pub program: String,
    /// The commit that the program was built at.
    pub commit: String,
    /// Whether the working tree differed from it.
    pub dirty: bool,
    /// When it was made.
    pub utc: String,
    /// SHA-256 of the round's file.
    pub round_sha256: String,
    /// Of the calibrations that predictions rest on, by the names of their files.
    pub calibrations: BTreeMap<String, String>,
    /// Of the framework profile and the GPUs' files.
    pub profiles: BTreeMap<String, String>,
    /// Of the networks' files, by name.
    pub networks: BTreeMap<String, String>,
    /// Of the predictions, by the names of their files.
    pub predictions: BTreeMap<String, String>,
    /// Rows that are not predicted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpredicted: Vec<Unpredicted>,
}

impl Seal {
    /// Reads the text of `seal.toml`.
    ///
    /// # Errors
    /// One line that says where it is malformed.
    pub fn from_toml(text: &str) -> Result<Self> {
        let seal: Self = toml::from_str(text).map_err(|e| anyhow::anyhow!(e.message().to_string()))?;
        ensure!(seal.schema == SCHEMA, "schema is \"{}\", expected \"{SCHEMA}\"", seal.schema);
        Ok(seal)
    }
}

/// Where and by what predictions are made.
pub struct Provenance {
    /// The commit.
    pub commit: String,
    /// Whether the working tree differed from it.
    pub dirty: bool,
    /// The moment.
    pub utc: String,
}

/// Models, and the hash of each file that they were read from.
pub struct Models {
    /// The models.
    pub calibrations: Arc<Calibrations>,
    /// By chip, in lower case, or [`ANY_CHIP`]: the file's name and its text's hash.
    pub hashes: BTreeMap<String, (String, String)>,
}

impl Models {
    /// Those that the program holds.
    pub fn shipped() -> Self {
        let hash = |(name, text): &(&str, &str)| {
            let chip = if *name == "all_chips" { ANY_CHIP } else { name };
            (chip.to_string(), (format!("{name}.toml"), sha256_hex(text.as_bytes())))
        };
        Self { calibrations: Calibrations::shipped(), hashes: catalog::calibrations().iter().map(hash).collect() }
    }

    /// Those of a folder, as `calibrate fit` writes them.
    ///
    /// # Errors
    /// When one cannot be read, or none is that of all chips.
    pub fn of_folder(folder: &Path) -> Result<Self> {
        let list = joulecast_reports::given::calibrations(folder)?;
        let mut hashes = BTreeMap::new();
        for (path, text) in joulecast_reports::given::tomls(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let chip = joulecast_model::law::calibration::Calibration::from_toml(&text)?.chip;
            hashes.insert(chip.to_lowercase(), (name, sha256_hex(text.as_bytes())));
        }
        Ok(Self { calibrations: Calibrations::given(list)?, hashes })
    }
}

/// The profile on a host that is known to take so many times as long.
fn on_host(framework: &Framework, factor: f64) -> Result<Framework> {
    let speed =
        HostSpeed::stated(factor, "measured in the visit").with_context(|| format!("a host's factor {factor}"))?;
    Ok(framework.clone().on_host(speed))
}

/// Files of a seal, by their names: predictions of each board, and what they were made from.
pub struct Sealed {
    /// Names and texts, the sidecar last.
    pub files: Vec<(String, String)>,
    /// What they were made from.
    pub seal: Seal,
}

/// Names of the files of a board's predictions: as the profile's host makes them, and for other hosts.
pub fn file_names(board: &str) -> [String; 2] {
    [format!("predicted-{board}.csv"), format!("predicted-{board}-hosts.csv")]
}

/// Predicts every row of a round on these boards, as `predict --framework pytorch --launch …` does, eager ones also on other
/// hosts.
///
/// # Errors
/// When a shipped file is malformed. A row that cannot be predicted is listed in the seal.
pub fn seal(loaded: &Loaded, boards: &[Gpu], models: &Models, from: Provenance) -> Result<Sealed> {
    let (framework, interconnects) = (catalog::framework(FRAMEWORK)?, catalog::interconnects()?);
    let (mut files, mut unpredicted) = (Vec::new(), Vec::new());
    let (mut calibrations, mut profiles) = (BTreeMap::new(), BTreeMap::new());
    let text_of = |list: &[(&str, &'static str)], name: &str| {
        list.iter().find(|(known, _)| *known == name).map(|(_, text)| sha256_hex(text.as_bytes()))
    };
    profiles.extend(text_of(catalog::frameworks(), FRAMEWORK).map(|sum| (format!("frameworks/{FRAMEWORK}.toml"), sum)));
    for board in boards {
        for chip in [board.chip.to_lowercase().as_str(), ANY_CHIP] {
            calibrations.extend(models.hashes.get(chip).cloned());
        }
        profiles
            .extend(text_of(joulecast_data::GPUS, &board.name).map(|sum| (format!("gpus/{}.toml", board.name), sum)));
        let predictor = Predictor::with(board.clone(), models.calibrations.clone(), framework.clone());
        let on = HOSTS.iter().map(|host| Ok(predictor.clone().through(on_host(&framework, *host)?)));
        let on: Vec<Predictor> = on.collect::<Result<_>>()?;
        let (mut rows, mut hosts) = (Vec::new(), Vec::new());
        for key in loaded.round.keys() {
            let run = key.step.run()?;
            let network = loaded.networks.get(&key.network).with_context(|| key.network.clone())?;
            let network = key.step.of(network).map(|network| network.with_folding(Folding::default()));
            let predict = |predictor: &Predictor| -> Result<NetworkPrediction> {
                let network = network.as_ref().map_err(|error| anyhow!("{error:#}"))?;
                let Run { mode, precision, launch } = run;
                let shaped = predictor.shape(network, key.step.batch, precision, &[])?;
                let alone = predictor.clone().launched(Some(launch)).predict(&shaped, mode)?;
                if key.step.gpus == 1 {
                    return Ok(alone);
                }
                let shares = vec![Share { count: key.step.gpus, gpu: board, alone }];
                let fabric = Fabric::of(&interconnects, &[board], key.step.gpus, None)?;
                combine(shares, &shaped, &fabric, predictor.framework()).context("no GPU")
            };
            match predict(&predictor) {
                Ok(prediction) => rows.push(Predicted::of(&key, 1.0, &prediction)),
                Err(error) => {
                    let (board, reason) = (board.name.clone(), format!("{error:#}"));
                    unpredicted.push(Unpredicted { board, row: key.to_string(), reason });
                    continue;
                }
            }
            if run.launch == Launch::Eager {
                for (host, predictor) in HOSTS.iter().zip(&on) {
                    hosts.push(Predicted::of(&key, *host, &predict(predictor)?));
                }
            }
        }
        for (name, rows) in file_names(&board.name).into_iter().zip([rows, hosts]) {
            files.push((name, written(&rows)?));
        }
    }
    let predictions = files.iter().map(|(name, text)| (name.clone(), sha256_hex(text.as_bytes()))).collect();
    let seal = Seal {
        schema: SCHEMA.to_string(),
        round: loaded.round.round,
        program: concat!("calibrate ", env!("CARGO_PKG_VERSION")).to_string(),
        commit: from.commit,
        dirty: from.dirty,
        utc: from.utc,
        round_sha256: loaded.sha256.clone(),
        calibrations,
        profiles,
        networks: loaded.hashes.clone(),
        predictions,
        unpredicted,
    };
    files.push((SIDECAR.to_string(), toml::to_string_pretty(&seal)?));
    Ok(Sealed { files, seal })
}

/// Rows as CSV.
fn written(rows: &[Predicted]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// Rows of a CSV file.
pub(super) fn rows<R: DeserializeOwned>(text: &str, name: &str) -> Result<Vec<R>> {
    let rows = csv::Reader::from_reader(text.as_bytes()).into_deserialize().collect::<Result<Vec<R>, _>>();
    rows.with_context(|| name.to_string())
}

/// Whether the program holds the calibrations, profiles and GPUs of the tree: one that was built before they changed predicts
/// by others than its commit has.
///
/// # Errors
/// Names the first file that differs.
pub fn check_embedded(root: &Path) -> Result<()> {
    for (folder, list) in [
        ("calibrations", catalog::calibrations()),
        ("frameworks", catalog::frameworks()),
        ("gpus", joulecast_data::GPUS),
    ] {
        for (name, text) in list {
            let path = root.join("data").join(folder).join(format!("{name}.toml"));
            let now = std::fs::read(&path).with_context(|| path.display().to_string())?;
            if now != text.as_bytes() {
                bail!("{} is not what this program was built with: build it anew", path.display());
            }
        }
    }
    Ok(())
}
