//! `calibrate plan`: a recipe is expanded into trials, the same ones wherever it is expanded.
//!
//! Half of a stratum's shapes fill its space evenly, half stand in networks of the role `layer`. No shape of a
//! network with the role `test` is among them. With `--net` the trials are the layers of given networks instead.

pub mod count;
pub mod file;
pub mod lattice;
pub mod near;
pub mod nets;
pub mod point;
pub mod recipe;
pub mod shapes;
mod transformers;
pub mod zoo;

use crate::system::hash::sha256_hex;
use anyhow::{Context, Result};
use joulecast_model::base::units::Seconds;
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::setting::Cache;
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::case::LayerCase;
use joulecast_reports::trials as reports;
use lattice::Lattice;
use point::Point;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use recipe::{Recipe, Stratum};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use zoo::Zoo;

/// The recipe that the program brings along.
pub const REFERENCE: &str = joulecast_data::REFERENCE_PLAN;

/// Attempts at a trial that is new and within the limits.
const ATTEMPTS: usize = 400;

/// Host and device time of a time trial and of an energy trial beyond it, for estimates: preparation and some 40 ms
/// of blocks; about 2 s until power is steady.
const TIME_TRIAL: Seconds = Seconds::new(0.3);
const ENERGY_TRIAL: Seconds = Seconds::new(2.5);

/// How much of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Level {
    /// Minutes: a first look.
    Quick,
    /// An hour or less.
    Standard,
    /// Everything.
    Reference,
}

impl Level {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Reference => "reference",
        }
    }
}

/// What to measure in a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The burst alone.
    #[default]
    Time,
    /// Burst, then a sustained run with its energy.
    Energy,
}

/// A trial of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// See [`trial_id`].
    pub trial_id: String,
    /// Name of its stratum.
    pub stratum: String,
    /// What to measure.
    pub measure: Measure,
    /// What to run.
    pub trial: Trial,
}

/// An expanded plan. Any prefix of it holds its strata in about their shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Level and hash of the recipe: the column `plan_id`.
    pub id: String,
    /// Seed of the recipe.
    pub seed: u64,
    /// SHA-256 of the recipe's text.
    pub recipe: String,
    /// The trials in the order to run them.
    pub items: Vec<Item>,
}

/// First 16 hexadecimal digits of the SHA-256 of the trial's canonical JSON.
///
/// # Errors
/// Only if a number cannot be written as JSON.
pub fn trial_id(trial: &Trial) -> Result<String> {
    let mut digest = sha256_hex(serde_json::to_string(trial)?.as_bytes());
    digest.truncate(16);
    Ok(digest)
}

/// Expands a recipe. A level's trials are among those of the levels above it.
///
/// # Errors
/// When the recipe is malformed, or its GPU unknown.
pub fn expand(text: &str, level: Level) -> Result<Plan> {
    let recipe = Recipe::from_toml(text)?;
    let hash = sha256_hex(text.as_bytes());
    let gpu = catalog::gpu(&recipe.gpu)?;
    let zoo = Zoo::read()?;
    let expansion = Expansion { recipe: &recipe, gpu: &gpu, zoo: &zoo };
    let mut seen = HashSet::new();
    let mut placed: Vec<(f64, Item)> = Vec::new();
    // What is listed together has one place: of a lattice all trials of a shape, so that a run that stops has whole rows of
    // batches.
    let mut place = |stratum: &str, measure, most: usize, units: Vec<Vec<(String, Trial)>>, random: &mut Random| {
        let keep = most.min(units.len());
        for (i, trials) in units.into_iter().take(keep).enumerate() {
            let place = (i as f64 + random.gen_range(0.0..1.0)) / keep as f64;
            let item = |(trial_id, trial)| Item { trial_id, stratum: stratum.to_string(), measure, trial };
            placed.extend(trials.into_iter().map(|trial| (place, item(trial))));
        }
    };
    for stratum in &recipe.strata {
        let name = stratum.name();
        let mut random = generator(recipe.seed, &name)?;
        let trials = expansion.trials(stratum, &mut seen, &mut random)?;
        let each = trials.into_iter().map(|trial| vec![trial]).collect();
        place(&name, stratum.measure, stratum.count.at(level), each, &mut random);
    }
    for lattice in &recipe.lattices {
        let mut random = generator(recipe.seed, &lattice.name)?;
        let shapes = expansion.lattice(lattice, &mut seen, &mut random)?;
        place(&lattice.name, Measure::Time, lattice.shapes.at(level), shapes, &mut random);
    }
    placed.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.trial_id.cmp(&b.1.trial_id)));
    let items = placed.into_iter().map(|(_, item)| item).collect();
    Ok(Plan { id: format!("{}-{}", level.name(), &hash[..8]), seed: recipe.seed, recipe: hash, items })
}

/// A generator of a stratum's own, so that editing one leaves the draws of the others alone.
fn generator(seed: u64, stratum: &str) -> Result<Random> {
    let digest = sha256_hex(format!("{seed} {stratum}").as_bytes());
    Ok(Random::seed_from_u64(u64::from_str_radix(&digest[..16], 16)?))
}

struct Expansion<'a> {
    recipe: &'a Recipe,
    gpu: &'a Gpu,
    zoo: &'a Zoo,
}

impl Expansion<'_> {
    /// All trials of a stratum in random order, new ones only; fewer than asked for where its space is too small.
    fn trials(
        &self,
        stratum: &Stratum,
        seen: &mut HashSet<String>,
        random: &mut Random,
    ) -> Result<Vec<(String, Trial)>> {
        let count = stratum.count.reference;
        let points = point::strata(count, random);
        let known = self.zoo.cases.get(stratum.kind.as_str());
        let mut trials = Vec::new();
        for coordinates in points {
            let from_network = random.gen_bool(self.recipe.networks);
            for attempt in 0..ATTEMPTS {
                // Networks may have too few shapes of a kind: then half of the attempts go elsewhere.
                let network = known.filter(|_| from_network && attempt < ATTEMPTS / 2);
                let mut point = if attempt == 0 { Point::new(coordinates, random) } else { Point::anywhere(random) };
                let Some(trial) = self.draw(stratum, network, &mut point)? else { continue };
                let id = trial_id(&trial)?;
                if seen.insert(id.clone()) {
                    trials.push((id, trial));
                    break;
                }
            }
        }
        trials.shuffle(random);
        Ok(trials)
    }

    /// The trials of a lattice by shape, new ones within the limits only. Shapes of networks that are held out are among
    /// them: an evaluation fit leaves their rows out, a shipped one knows them.
    fn lattice(
        &self,
        lattice: &Lattice,
        seen: &mut HashSet<String>,
        random: &mut Random,
    ) -> Result<Vec<Vec<(String, Trial)>>> {
        let mut shapes = Vec::new();
        let mut drawn = HashSet::new();
        for _ in 0..lattice.shapes.reference * ATTEMPTS {
            if shapes.len() == lattice.shapes.reference {
                break;
            }
            let Some(case) = lattice.shape(random).filter(|c| !drawn.contains(&c.fold_key())) else { continue };
            drawn.insert(case.fold_key());
            let mut trials = Vec::new();
            for trial in lattice.trials(&case, shapes.len(), random)? {
                let short = bound(&trial, self.gpu)?.is_some_and(|time| time <= self.recipe.longest);
                let id = trial_id(&trial)?;
                if short && trial.footprint()? <= self.recipe.memory && seen.insert(id.clone()) {
                    trials.push((id, trial));
                }
            }
            if !trials.is_empty() {
                shapes.push(trials);
            }
        }
        Ok(shapes)
    }

    /// One draw; `None` where it breaks a limit.
    fn draw(&self, stratum: &Stratum, known: Option<&Vec<LayerCase>>, point: &mut Point<'_>) -> Result<Option<Trial>> {
        let batches = stratum.batch.unwrap_or(self.recipe.batch);
        let batch = point.batch(batches);
        let case = match known {
            Some(cases) => {
                let case = point.choose(cases).clone();
                // A recipe without neighbours draws nothing here, so that its trials stay what they are.
                if self.recipe.near > 0.0 && point.chance(self.recipe.near) {
                    near::near(&case, point)
                } else {
                    Some(case)
                }
            }
            None => match stratum.inputs {
                Some(inputs) => shapes::many(&stratum.kind, inputs, point, &self.recipe.ranges),
                None => shapes::case(&stratum.kind, stratum.phase, point, &self.recipe.ranges),
            },
        };
        let Some(case) = case.filter(|c| !self.zoo.held_out.contains(&c.fold_key())) else { return Ok(None) };
        if !stratum.algorithm.supports(&case.layer, &case.inputs) || stratum.windows && !shapes::has_window(&case) {
            return Ok(None);
        }
        let usual = Trial::usual(case, stratum.phase, batch, stratum.precision, stratum.mode)?;
        let other = match usual.cache {
            Cache::Hot => Cache::Cold,
            Cache::Cold => Cache::Hot,
        };
        let trial = Trial {
            layout: stratum.layout.unwrap_or(usual.layout),
            cache: if point.chance(stratum.other_cache) { other } else { usual.cache },
            algorithm: stratum.algorithm,
            optimizer: stratum.optimizer,
            ..usual
        };
        let shortest = stratum.shortest.or(known.is_none().then_some(self.recipe.shortest)).unwrap_or(Seconds::ZERO);
        let longest = stratum.longest.unwrap_or(self.recipe.longest);
        self.within_limits(trial, batches, [shortest, longest])
    }

    /// The trial with its batch halved or doubled until it keeps the limits; `None` where no batch does.
    fn within_limits(
        &self,
        mut trial: Trial,
        [fewest, most]: [u64; 2],
        [shortest, longest]: [Seconds; 2],
    ) -> Result<Option<Trial>> {
        let mut halved = false;
        loop {
            let Some(time) = bound(&trial, self.gpu)? else { return Ok(None) };
            let too_large = time > longest || trial.footprint()? > self.recipe.memory;
            if !too_large && time >= shortest {
                return Ok(Some(trial));
            }
            match too_large {
                true if trial.batch > fewest => trial.batch = (trial.batch / 2).max(fewest),
                false if trial.batch < most && !halved => trial.batch = (trial.batch * 2).min(most),
                _ => return Ok(None),
            }
            halved |= too_large;
        }
    }
}

/// Roofline time of a trial; `None` where no kernel runs or the GPU has no peak for the precision.
///
/// # Errors
/// When the layer does not take its inputs.
pub fn bound(trial: &Trial, gpu: &Gpu) -> Result<Option<Seconds>> {
    Ok(trial.clone().on(gpu)?.map(|load| load.bound))
}

impl Plan {
    /// The plan of a level of the recipe that the program brings along, or the one in a file.
    ///
    /// # Errors
    /// When the file cannot be read or is no expanded plan.
    pub fn named(name: &str) -> Result<Self> {
        match [Level::Quick, Level::Standard, Level::Reference].into_iter().find(|l| l.name() == name) {
            Some(level) => expand(REFERENCE, level).context("data/plans/reference.toml"),
            None => file::read(std::path::Path::new(name)),
        }
    }

    /// Trials of one measure.
    pub fn count(&self, measure: Measure) -> usize {
        self.items.iter().filter(|i| i.measure == measure).count()
    }

    /// Time that a GPU needs for it, roughly.
    pub fn estimate(&self) -> Seconds {
        TIME_TRIAL * self.items.len() as f64 + ENERGY_TRIAL * self.count(Measure::Energy) as f64
    }

    /// Trials per stratum.
    pub fn strata(&self) -> Vec<reports::Stratum> {
        let mut strata: BTreeMap<&str, reports::Stratum> = BTreeMap::new();
        for item in &self.items {
            let counts = strata.entry(&item.stratum).or_insert_with(|| reports::Stratum::new(&item.stratum));
            match item.measure {
                Measure::Time => counts.time += 1,
                Measure::Energy => counts.energy += 1,
            }
            counts.cold += usize::from(item.trial.cache == Cache::Cold);
            counts.single += usize::from(item.trial.batch == 1);
        }
        strata.into_values().collect()
    }
}

#[cfg(test)]
mod tests;
