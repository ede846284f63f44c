//! Plan recipes, `plan/1`: how many trials of what, within which limits.

use super::Measure;
use super::count::{Count, bounded};
use super::lattice::Lattice;
use anyhow::{Context, Result, bail, ensure};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::units::{Bytes, Dimension, Seconds, parse_with_unit};
use joulecast_model::kernel::setting::{Algorithm, Layout};
use joulecast_model::net::layer::{Layer, Optimizer};
use serde::Deserialize;

/// A recipe.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Seed of everything random in the expansion.
    pub seed: u64,
    /// The GPU whose roofline bounds the trials' times.
    pub gpu: String,
    /// Share of each stratum that is taken from networks.
    pub networks: f64,
    /// Share of those whose sizes are changed a little.
    pub near: f64,
    /// Smallest and largest batch.
    pub batch: [u64; 2],
    /// Sizes of shapes that are not from networks.
    pub ranges: Ranges,
    /// Most memory of a trial's operands.
    pub memory: Bytes,
    /// Shortest roofline time of a shape that is not from a network.
    pub shortest: Seconds,
    /// Longest roofline time.
    pub longest: Seconds,
    /// What to try.
    pub strata: Vec<Stratum>,
    /// Lattices of convolutions.
    pub lattices: Vec<Lattice>,
}

/// Smallest and largest sizes of shapes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranges {
    /// Channels of a map.
    pub channels: [u64; 2],
    /// Height and width of a map.
    pub side: [u64; 2],
    /// Features of a linear layer or row.
    pub features: [u64; 2],
    /// Rows per sample.
    pub tokens: [u64; 2],
    /// Parameters of an update.
    pub parameters: [u64; 2],
}

/// Trials of one kind, phase and precision, measured in one way.
#[derive(Clone, Debug)]
pub struct Stratum {
    /// Layer kind.
    pub kind: String,
    /// Phase.
    pub phase: Phase,
    /// Precision.
    pub precision: Precision,
    /// Mode: of the forward phase; any other belongs to training.
    pub mode: Mode,
    /// Layout, where it is not the usual one.
    pub layout: Option<Layout>,
    /// Algorithm of a convolution.
    pub algorithm: Algorithm,
    /// Optimizer of an update.
    pub optimizer: Option<Optimizer>,
    /// Only convolutions in one group whose window is larger than 1x1.
    pub windows: bool,
    /// What to measure.
    pub measure: Measure,
    /// Trials per level.
    pub count: Count,
    /// Share whose operands do not lie where they usually do.
    pub other_cache: f64,
    /// Shortest roofline time, for shapes of networks too.
    pub shortest: Option<Seconds>,
    /// Longest roofline time.
    pub longest: Option<Seconds>,
    /// Smallest and largest batch, where they are not the recipe's.
    pub batch: Option<[u64; 2]>,
    /// Fewest and most inputs of what joins several, where they are not the usual ones.
    pub inputs: Option<[u64; 2]>,
}

impl Stratum {
    /// Name in tables and in the expanded plan; unique within a recipe.
    pub fn name(&self) -> String {
        let mut name = format!("{} {} {}", self.kind, self.phase, self.precision);
        if self.phase == Phase::Forward && self.mode == Mode::Training {
            name += " training";
        }
        for part in [
            self.layout.map(Layout::name),
            (self.algorithm != Algorithm::Heuristic).then(|| self.algorithm.name()),
            self.optimizer.map(Optimizer::name),
            self.windows.then_some("windows"),
            self.inputs.map(|_| "many"),
            self.batch.map(|_| "small"),
            (self.measure == Measure::Energy).then_some("energy"),
        ]
        .into_iter()
        .flatten()
        {
            name = format!("{name} {part}");
        }
        name
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    seed: u64,
    gpu: String,
    networks: f64,
    #[serde(default)]
    near: f64,
    batch: [u64; 2],
    memory: String,
    shortest: String,
    longest: String,
    ranges: Ranges,
    #[serde(default)]
    stratum: Vec<Group>,
    #[serde(default)]
    lattice: Vec<Lattice>,
}

/// Strata that differ only in what they are crossed over.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    kinds: Vec<String>,
    phases: Vec<Phase>,
    precisions: Vec<Precision>,
    #[serde(default = "inference")]
    mode: Mode,
    layout: Option<Layout>,
    #[serde(default = "heuristic")]
    algorithms: Vec<Algorithm>,
    #[serde(default)]
    optimizers: Vec<Optimizer>,
    #[serde(default)]
    windows: bool,
    #[serde(default)]
    measure: Measure,
    count: Count,
    #[serde(default)]
    other_cache: f64,
    shortest: Option<String>,
    longest: Option<String>,
    batch: Option<[u64; 2]>,
    inputs: Option<[u64; 2]>,
}

fn inference() -> Mode {
    Mode::Inference
}

fn heuristic() -> Vec<Algorithm> {
    vec![Algorithm::Heuristic]
}

impl Recipe {
    /// Reads a recipe.
    ///
    /// # Errors
    /// One line that says what is wrong where.
    pub fn from_toml(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text).map_err(|e| anyhow::anyhow!("{}", e.to_string().trim_end()))?;
        if file.schema != "plan/1" {
            bail!("schema is {}, expected plan/1", file.schema);
        }
        ensure!((0.0..=1.0).contains(&file.networks), "networks is {}, a share from 0 to 1", file.networks);
        ensure!((0.0..=1.0).contains(&file.near), "near is {}, a share from 0 to 1", file.near);
        let Ranges { channels, side, features, tokens, parameters } = file.ranges;
        for (name, range) in [
            ("batch", file.batch),
            ("channels", channels),
            ("side", side),
            ("features", features),
            ("tokens", tokens),
            ("parameters", parameters),
        ] {
            ensure!(
                1 <= range[0] && range[0] <= range[1],
                "{name} is {range:?}, expected [smallest, largest] from 1 on"
            );
        }
        let mut strata = Vec::new();
        for (i, group) in file.stratum.iter().enumerate() {
            strata.extend(group.strata().with_context(|| format!("stratum {}", i + 1))?);
        }
        file.lattice.iter().try_for_each(Lattice::check)?;
        let lattices = file.lattice.iter().map(|l| l.name.clone());
        let mut names: Vec<String> = strata.iter().map(Stratum::name).chain(lattices).collect();
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("stratum \"{}\" occurs twice", twice[0]);
        }
        Ok(Self {
            seed: file.seed,
            gpu: file.gpu,
            networks: file.networks,
            near: file.near,
            batch: file.batch,
            ranges: file.ranges,
            memory: Bytes::new(parse_with_unit(&file.memory, Dimension::Memory)? as u64),
            shortest: time(&file.shortest)?,
            longest: time(&file.longest)?,
            strata,
            lattices: file.lattice,
        })
    }
}

fn time(text: &str) -> Result<Seconds> {
    Ok(Seconds::new(parse_with_unit(text, Dimension::Time)?))
}

impl Group {
    fn strata(&self) -> Result<Vec<Stratum>> {
        self.count.check()?;
        ensure!((0.0..=1.0).contains(&self.other_cache), "other_cache is {}, a share from 0 to 1", self.other_cache);
        for (name, range) in [("batch", self.batch), ("inputs", self.inputs)] {
            let Some([fewest, most]) = range else { continue };
            ensure!(1 <= fewest && fewest <= most, "{name} is [{fewest}, {most}], expected [fewest, most] from 1 on");
            bounded(name, most)?;
        }
        if let Some(kind) = self.kinds.iter().find(|k| !Layer::KINDS.contains(&k.as_str())) {
            bail!("no layer kind \"{kind}\"");
        }
        let [shortest, longest] = [&self.shortest, &self.longest].map(|t| t.as_deref().map(time).transpose());
        let (shortest, longest) = (shortest?, longest?);
        let mut strata = Vec::new();
        for kind in &self.kinds {
            for &phase in &self.phases {
                let update = phase == Phase::Update;
                ensure!(
                    update != self.optimizers.is_empty(),
                    "optimizers belong to the phase update, and it needs some"
                );
                let optimizers: Vec<Option<Optimizer>> =
                    if update { self.optimizers.iter().copied().map(Some).collect() } else { vec![None] };
                for &precision in &self.precisions {
                    for &algorithm in &self.algorithms {
                        strata.extend(optimizers.iter().map(|&optimizer| Stratum {
                            kind: kind.clone(),
                            phase,
                            precision,
                            mode: if phase == Phase::Forward { self.mode } else { Mode::Training },
                            layout: self.layout,
                            algorithm,
                            optimizer,
                            windows: self.windows,
                            measure: self.measure,
                            count: self.count,
                            other_cache: self.other_cache,
                            shortest,
                            longest,
                            batch: self.batch,
                            inputs: self.inputs,
                        }));
                    }
                }
            }
        }
        Ok(strata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
schema = "plan/1"
seed = 1
gpu = "h200"
networks = 0.5
batch = [1, 256]
memory = "6 GiB"
shortest = "1 us"
longest = "60 ms"
ranges = { channels = [3, 2048], side = [7, 224], features = [64, 8192], tokens = [16, 1024], parameters = [1000, 1000000] }

[[stratum]]
kinds = ["relu", "gelu"]
phases = ["forward", "backward_data"]
precisions = ["fp32"]
count = { quick = 1, standard = 2, reference = 3 }
"#;

    #[test]
    fn a_group_is_crossed_out() -> Result<()> {
        let recipe = Recipe::from_toml(SMALL)?;
        let names: Vec<String> = recipe.strata.iter().map(Stratum::name).collect();
        assert_eq!(
            names,
            ["relu forward fp32", "relu backward_data fp32", "gelu forward fp32", "gelu backward_data fp32"]
        );
        assert_eq!(recipe.strata[1].mode, Mode::Training);
        Ok(())
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, expected) in [
            ("plan/1", "plan/2", "plan/2"),
            ("\"relu\", \"gelu\"", "\"relu\", \"rulu\"", "rulu"),
            ("\"relu\", \"gelu\"", "\"relu\", \"relu\"", "twice"),
            ("quick = 1", "quick = 9", "fall"),
            ("\"backward_data\"", "\"update\"", "optimizers"),
            ("networks = 0.5", "networks = 1.5", "networks"),
            ("side = [7, 224]", "side = [224, 7]", "side"),
            ("60 ms", "60", "60"),
        ] {
            let error = format!("{:#}", Recipe::from_toml(&SMALL.replace(from, to)).expect_err(expected));
            assert!(error.contains(expected), "{error}");
        }
    }
}
