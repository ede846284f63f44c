//! Shapes of the zoo's networks: those that plans may use, and those that no plan may contain.

use anyhow::Result;
use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::rows::splits::Role;
use joulecast_model::rows::splits::Splits;
use std::collections::{BTreeMap, HashSet};

/// Layers of networks by kind, and the shapes of those that are held out.
#[derive(Clone, Debug, Default)]
pub struct Zoo {
    /// Distinct layers of networks with the role `layer` whose shape no network has that is held out.
    pub cases: BTreeMap<&'static str, Vec<LayerCase>>,
    /// Fold keys of the layers of networks that are held out.
    pub held_out: HashSet<String>,
}

impl Zoo {
    /// Reads the networks of the catalog.
    ///
    /// # Errors
    /// Only if the build baked in a malformed file.
    pub fn read() -> Result<Self> {
        let held_out: HashSet<String> = held_out_layers()?.iter().map(LayerCase::fold_key).collect();
        let mut cases: BTreeMap<&'static str, Vec<LayerCase>> = BTreeMap::new();
        let mut seen = HashSet::new();
        for case in layers(Role::Layer)? {
            if !held_out.contains(&case.fold_key()) && seen.insert(case.to_json()?) {
                cases.entry(case.layer.kind()).or_default().push(case);
            }
        }
        Ok(Self { cases, held_out })
    }
}

/// Sequences that language models are measured whole with, besides those of their files.
const SEQUENCES: [u64; 2] = [128, 512];

/// All layers of the networks with a role, in the order of their names.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn layers(role: Role) -> Result<Vec<LayerCase>> {
    let splits = Splits::shipped()?;
    layers_of_all(splits.with_role(role), false)
}

/// All layers of the networks that are held out of evaluation fits, in the order of their names; of those with a sequence
/// also those of the sequences that they are measured with.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn held_out_layers() -> Result<Vec<LayerCase>> {
    let splits = Splits::shipped()?;
    layers_of_all(splits.held_out(), true)
}

fn layers_of_all<'n>(names: impl Iterator<Item = &'n str>, with_sequences: bool) -> Result<Vec<LayerCase>> {
    let zoo: HashSet<&str> = catalog::network_names().collect();
    let mut cases = Vec::new();
    for name in names.filter(|name| zoo.contains(name)) {
        let network = catalog::network(name)?;
        let mut forms = vec![network.clone()];
        if with_sequences && network.dimensions().contains(&"sequence") {
            for sequence in SEQUENCES {
                let mut other = network.clone();
                other.bind("sequence", sequence)?;
                forms.push(other);
            }
        }
        for form in forms {
            cases.extend(layers_of(&form)?);
        }
    }
    Ok(cases)
}

/// The layers of a network.
///
/// # Errors
/// When it cannot be shaped.
pub fn layers_of(network: &Network) -> Result<Vec<LayerCase>> {
    let shaped = ShapedNetwork::new(network, 1, Precision::Fp32, &[])?;
    Ok(shaped.layers().iter().map(|l| l.case.clone()).collect())
}
