//! `calibrate plan --net`: the layers of given networks, as they are and no others.

use super::{Item, Measure, Plan, Random, bound, generator, trial_id};
use crate::system::hash::sha256_hex;
use anyhow::{Context, Result};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::units::{Bytes, Seconds};
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::network::Network;
use joulecast_model::net::network::folding::Folding;
use rand::Rng;
use rand::seq::SliceRandom;
use std::collections::{BTreeMap, HashSet};

/// Of the order.
const SEED: u64 = 1;

/// Limits, as recipes have them: of the operands of a trial, and of its time by the roofline.
const MEMORY: Bytes = Bytes::new(6 << 30);
const LONGEST: Seconds = Seconds::from_ms(30.0);

/// What to take of which networks.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The networks.
    pub networks: Vec<Network>,
    /// Batches.
    pub batches: Vec<u64>,
    /// Precisions.
    pub precisions: Vec<Precision>,
    /// Forward as in inference, gradients as in training.
    pub phases: Vec<Phase>,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The trials.
    pub plan: Plan,
    /// How many others would break a limit.
    pub beyond: usize,
}

/// The distinct layers of networks at every batch, precision and phase, each trial once. What runs no kernel is none; what
/// breaks a limit is left out. A batch norm that an export folded away is a layer of its own, as frameworks run it.
///
/// # Errors
/// When a network cannot be shaped.
pub fn of_networks(wanted: &Wanted, gpu: &Gpu) -> Result<Planned> {
    let mut seen = HashSet::new();
    let mut beyond = 0;
    let mut strata: BTreeMap<String, Vec<(String, Trial)>> = BTreeMap::new();
    for network in &wanted.networks {
        let unfolded = network.clone().with_folding(Folding::Unfold);
        let mut cases = HashSet::new();
        for case in super::zoo::layers_of(&unfolded).with_context(|| format!("network {}", network.name))? {
            if !cases.insert(case.to_json()?) {
                continue;
            }
            for &phase in &wanted.phases {
                let mode = if phase == Phase::Forward { Mode::Inference } else { Mode::Training };
                for (&precision, &batch) in
                    wanted.precisions.iter().flat_map(|p| wanted.batches.iter().map(move |b| (p, b)))
                {
                    let trial = Trial::usual(case.clone(), phase, batch, precision, mode)?;
                    let id = trial_id(&trial)?;
                    let Some(time) = bound(&trial, gpu)? else { continue };
                    if !seen.insert(id.clone()) {
                        continue;
                    }
                    if time > LONGEST || trial.footprint()? > MEMORY {
                        beyond += 1;
                        continue;
                    }
                    let stratum = format!("net {} {phase} {precision}", case.layer.kind());
                    strata.entry(stratum).or_default().push((id, trial));
                }
            }
        }
    }
    let items = in_turn(strata)?;
    // Of what the plan holds, so that it does not matter in which order the networks were named.
    let mut ids: Vec<&str> = items.iter().map(|i| i.trial_id.as_str()).collect();
    ids.sort_unstable();
    let hash = sha256_hex(ids.join("\n").as_bytes());
    let plan = Plan { id: format!("nets-{}", &hash[..8]), seed: SEED, recipe: hash, items };
    Ok(Planned { plan, beyond })
}

/// Every stratum in random order, spread evenly over the whole.
fn in_turn(strata: BTreeMap<String, Vec<(String, Trial)>>) -> Result<Vec<Item>> {
    let mut placed: Vec<(f64, Item)> = Vec::new();
    for (stratum, mut trials) in strata {
        let mut random: Random = generator(SEED, &stratum)?;
        trials.sort_by(|a, b| a.0.cmp(&b.0));
        trials.shuffle(&mut random);
        let count = trials.len() as f64;
        placed.extend(trials.into_iter().enumerate().map(|(i, (trial_id, trial))| {
            let place = (i as f64 + random.gen_range(0.0..1.0)) / count;
            (place, Item { trial_id, stratum: stratum.clone(), measure: Measure::Time, trial })
        }));
    }
    placed.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.trial_id.cmp(&b.1.trial_id)));
    Ok(placed.into_iter().map(|(_, item)| item).collect())
}
