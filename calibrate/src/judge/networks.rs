//! `calibrate validate --networks`: whole networks as measured against what a fit without their shapes predicts.

use crate::campaign::measure::checksum;
use crate::campaign::trials::zoo::layers_of;
use anyhow::{Context, Result, bail, ensure};
use joulecast_kernels::fake::PRODUCT;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::rows::splits::{Role, Splits};
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::framework::{Framework, Launch};
use joulecast_model::step::generation;
use joulecast_model::step::predict::Predictor;
use joulecast_reports::given::tomls;
use joulecast_reports::networks::{Compared, Pair};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A measured run, as the scripts and `calibrate measure` write it; columns that are not needed are left out.
#[derive(Clone, Debug, Deserialize)]
pub struct Run {
    network: String,
    mode: String,
    precision: String,
    batch: u64,
    launch: String,
    ms_per_iter: f64,
    watts: Option<f64>,
    sm_mhz_mean: Option<f64>,
    #[serde(default)]
    device: Option<String>,
    #[serde(default)]
    flags: Option<String>,
    /// Version of PyTorch, where that ran it.
    #[serde(default)]
    torch: Option<String>,
    /// Which visit to which machine, where a file holds several.
    #[serde(default)]
    visit: Option<String>,
    /// What PyTorch's allocator held: only its script writes that.
    #[serde(default)]
    reserved_mib: Option<f64>,
    /// Tokens per sample, of networks that read a sequence.
    #[serde(default)]
    sequence: Option<u64>,
    /// Height and width of the images, where they are not as large as the network's own.
    #[serde(default)]
    side: Option<u64>,
    /// Tokens before the one that the step is for, of a step of generation.
    #[serde(default)]
    cached: Option<u64>,
    /// The network, where it lies beside the file: see [`read_runs`].
    #[serde(skip)]
    beside: Option<Arc<Network>>,
}

impl Run {
    /// The network that ran: on its images, over its sequence, or for one token.
    fn network(&self, name: &str) -> Result<Network> {
        let mut network = match &self.beside {
            Some(network) => Network::clone(network),
            None => catalog::network(name)?,
        };
        if let Some(side) = self.side {
            network.bind_side(side)?;
        }
        match (self.sequence, self.cached) {
            (_, Some(cached)) => Ok(generation::decode(&network, cached)?),
            (Some(tokens), None) => {
                network.bind(generation::SEQUENCE, tokens)?;
                Ok(network)
            }
            (None, None) => Ok(network),
        }
    }

    /// Its network, as its file calls it.
    pub fn name(&self) -> &str {
        &self.network
    }

    /// Whether its network lies beside its file: the catalog does not have it.
    pub fn is_beside_catalog(&self) -> bool {
        self.beside.is_some()
    }

    /// What tells its steps from others of the network.
    fn length(&self) -> String {
        match (self.sequence, self.cached) {
            (_, Some(cached)) => format!("1 after {cached}"),
            (Some(tokens), None) => tokens.to_string(),
            (None, None) => String::new(),
        }
    }

    /// The visit that it is of; empty where its file is of one.
    pub fn visit(&self) -> &str {
        self.visit.as_deref().unwrap_or_default()
    }

    /// What it drew, where that was measured.
    pub fn power(&self) -> Option<Watts> {
        self.watts.map(Watts::new)
    }

    /// The clock that it ran at, where it was read.
    pub fn clock(&self) -> Option<Hertz> {
        self.sm_mhz_mean.map(Hertz::from_mhz)
    }

    /// The framework that ran it.
    pub fn framework(&self) -> &'static str {
        let version = self.torch.as_deref().is_some_and(|v| !v.is_empty());
        if version || self.reserved_mib.is_some() { "pytorch" } else { "cudnn" }
    }
}

/// Networks that a file calls otherwise than the catalog does: torchvision's GoogLeNet has batch norm.
const OTHER_NAMES: [(&str, &str); 1] = [("googlenet", "googlenet_bn")];
/// The GPU of files that do not name it.
const DEFAULT_GPU: &str = "h200";

/// Runs of a file. Networks that the catalog does not have lie in a folder of the file's name without its extension, one
/// file of the project's format each; they have the role `development` unless the splits name another.
///
/// # Errors
/// When it cannot be read, a row lacks a column, or is not the one that its checksum was made of.
pub fn read_runs(path: &Path) -> Result<Vec<Run>> {
    let name = || path.display().to_string();
    let read = checksum::read::<Run>(&fs::read(path).with_context(name)?, path)?;
    for (line, run) in &read.rows {
        let positive = |v: f64| v.is_finite() && v > 0.0;
        if !positive(run.ms_per_iter) || run.watts.is_some_and(|w| !positive(w)) {
            bail!("{}, line {line}: ms_per_iter and watts must be above 0", name());
        }
    }
    let mut runs: Vec<Run> = read.rows.into_iter().map(|(_, run)| run).collect();
    if runs.is_empty() {
        bail!("{}: no runs", name());
    }
    let networks = networks_beside(path)?;
    for run in &mut runs {
        run.beside = networks.get(&run.network).cloned();
    }
    Ok(runs)
}

/// The networks in the folder of a file of runs, by the names of their files.
fn networks_beside(path: &Path) -> Result<BTreeMap<String, Arc<Network>>> {
    let folder = path.with_extension("");
    if !folder.is_dir() {
        return Ok(BTreeMap::new());
    }
    let read = |(path, text): (PathBuf, String)| {
        let network = Network::from_toml(&text).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, Arc::new(network)))
    };
    tomls(&folder)?.into_iter().map(read).collect()
}

/// The layers of the networks that lie beside the files of these runs: no fit that judges them may know their shapes.
///
/// # Errors
/// When a network cannot be shaped.
pub fn layers_beside(runs: &[Run]) -> Result<Vec<LayerCase>> {
    let networks: BTreeMap<&str, &Network> =
        runs.iter().filter_map(|r| Some((r.network.as_str(), &**r.beside.as_ref()?))).collect();
    Ok(networks.into_values().map(layers_of).collect::<Result<Vec<_>>>()?.concat())
}

/// What a run is of, read from the catalog.
pub struct Case {
    /// The network, shaped.
    pub shaped: ShapedNetwork,
    /// Name in the catalog.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The GPU.
    pub gpu: Gpu,
    /// Inference or training.
    pub mode: Mode,
    /// Precision.
    pub precision: Precision,
    /// How it was launched.
    pub launch: Launch,
}

impl Case {
    /// Of a run; `None` where it is flagged, its network is not known, or has another role.
    ///
    /// # Errors
    /// When a network or device is malformed, or a cell of the run.
    pub fn of(run: &Run, splits: &Splits, role: Option<Role>) -> Result<Option<Self>> {
        let other = OTHER_NAMES.iter().find(|(theirs, _)| *theirs == run.network);
        let name = other.map_or(run.network.as_str(), |(_, ours)| ours);
        let in_catalog = || splits.role(name).filter(|_| catalog::network_names().any(|n| n == name));
        let beside = run.beside.as_ref().map(|_| splits.role(name).unwrap_or(Role::Development));
        let Some(own_role) = beside.or_else(in_catalog) else {
            return Ok(None);
        };
        let flagged = !run.flags.as_deref().unwrap_or("").is_empty();
        if flagged || role.is_some_and(|r| r != own_role) {
            return Ok(None);
        }
        let Some(launch) = Launch::from_name(&run.launch) else { bail!("launch \"{}\"", run.launch) };
        let mode = match run.mode.as_str() {
            "infer" => Mode::Inference,
            "train" => Mode::Training,
            other => bail!("mode \"{other}\""),
        };
        // Automatic mixed precision computes in fp16.
        let precision = Precision::from_name(&run.precision).or((run.precision == "amp").then_some(Precision::Fp16));
        let precision = precision.with_context(|| format!("precision \"{}\"", run.precision))?;
        let device = run.device.as_deref().filter(|d| !d.is_empty()).unwrap_or(DEFAULT_GPU);
        ensure!(device != PRODUCT, "rows of {PRODUCT} are simulated: predictions are held against measured ones");
        let gpu = catalog::gpu(&device.to_lowercase().replace("nvidia ", ""))?;
        let shaped = ShapedNetwork::new(&run.network(name)?, run.batch, precision, &[])?;
        Ok(Some(Self { shaped, name: name.to_string(), role: own_role, gpu, mode, precision, launch }))
    }

    /// With what it is predicted.
    pub fn predictor(&self, calibrations: &Arc<Calibrations>, framework: &Framework) -> Predictor {
        let predictor = Predictor::with(self.gpu.clone(), calibrations.clone(), framework.clone());
        predictor.launched(Some(self.launch))
    }
}

/// Predicts every run of a network that the catalog has.
///
/// # Errors
/// When a network or device is malformed, or a prediction fails.
pub fn compare(
    runs: &[Run],
    calibrations: &[Calibration],
    framework: &str,
    role: Option<Role>,
) -> Result<Vec<Compared>> {
    compare_through(runs, calibrations, &catalog::framework(framework)?, role)
}

/// The same through a profile of some host.
///
/// # Errors
/// As [`compare`].
pub fn compare_through(
    runs: &[Run],
    calibrations: &[Calibration],
    framework: &Framework,
    role: Option<Role>,
) -> Result<Vec<Compared>> {
    let splits = Splits::shipped()?;
    let calibrations = Calibrations::given(calibrations.iter().cloned())?;
    let mut list = Vec::new();
    for run in runs {
        let Some(case) = Case::of(run, &splits, role)? else { continue };
        let predictor = case.predictor(&calibrations, framework);
        let p = predictor.predict(&case.shaped, case.mode).with_context(|| case.name.clone())?;
        let time = Pair::of(run.ms_per_iter / 1e3, p.time, Seconds::get);
        let power = run.watts.map(|watts| Pair::of(watts, p.power, Watts::get));
        let energy = run.watts.map(|watts| Pair::of(watts * time.measured, p.energy, Joules::get));
        list.push(Compared {
            network: case.name,
            role: case.role.name(),
            gpu: case.gpu.name,
            mode: case.mode.name(),
            precision: case.precision.name(),
            batch: run.batch,
            tokens: run.length(),
            launch: case.launch.name(),
            launch_bound: p.launch_bound,
            host_decides: p.host.as_ref().is_some_and(|h| h.decides),
            host_may_decide: p.host.as_ref().is_some_and(|h| h.may_decide),
            time,
            power,
            energy,
            roofline: p.bound.get(),
            clock: (run.sm_mhz_mean, p.clock.to_mhz()),
            widths: p.widths,
        });
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PyTorch's script runs torchvision's networks on images of 224, EfficientNet-B2 among them, whose own are of 288.
    #[test]
    fn a_run_says_how_large_its_images_are() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("runs.csv");
        let header = "network,mode,precision,batch,launch,ms_per_iter,watts,sm_mhz_mean,side";
        let run = |side: &str| format!("efficientnet_b2,infer,fp32,2,graph,1,100,1980,{side}\n");
        fs::write(&file, format!("{header}\n{}{}{}", run(""), run("224"), run("0")))?;
        let (runs, splits) = (read_runs(&file)?, Splits::shipped()?);
        let read = |run: &Run| Ok(Case::of(run, &splits, None)?.context("known")?.shaped.inputs()[0].dims().to_vec());
        assert_eq!(read(&runs[0])?, [3, 288, 288]);
        assert_eq!(read(&runs[1])?, [3, 224, 224]);
        let none: Result<Vec<u64>> = read(&runs[2]);
        assert!(none.is_err());
        Ok(())
    }

    #[test]
    fn networks_beside_a_file_are_test_networks() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("runs.csv");
        let header = "network,mode,precision,batch,launch,ms_per_iter,watts,sm_mhz_mean";
        fs::write(
            &file,
            format!("{header}\nmine,infer,fp32,2,graph,1,100,1980\nvgg11,infer,fp32,2,graph,1,100,1980\n"),
        )?;
        let splits = Splits::shipped()?;
        let alone = read_runs(&file)?;
        assert!(Case::of(&alone[0], &splits, None)?.is_none(), "nothing says what mine is");
        assert!(layers_beside(&alone)?.is_empty());
        fs::create_dir(folder.path().join("runs"))?;
        let text = "schema = \"network/1\"\nname = \"x\"\ntitle = \"x\"\nlayers = [\n  { name = \"fc\", kind = \"linear\", features = 7 },\n]\n\n[inputs]\nimage = { shape = [3] }\n";
        fs::write(folder.path().join("runs/mine.toml"), text)?;
        let runs = read_runs(&file)?;
        let case = Case::of(&runs[0], &splits, Some(Role::Development))?.context("it is there")?;
        assert_eq!((case.name.as_str(), case.role, case.shaped.layers().len()), ("mine", Role::Development, 1));
        assert!(Case::of(&runs[0], &splits, Some(Role::Conformal))?.is_none());
        assert_eq!(Case::of(&runs[1], &splits, None)?.map(|c| c.role), splits.role("vgg11"));
        assert_eq!(layers_beside(&runs)?.len(), 1);
        fs::write(folder.path().join("runs/mine.toml"), "schema = 3")?;
        assert!(format!("{:#}", read_runs(&file).err().context("malformed")?).contains("mine.toml"));
        Ok(())
    }
}
