//! Shapes of the zoo's networks: those that plans may use, and those that no plan may contain.

use anyhow::Result;
use joulecast_model::catalog;
use joulecast_model::measurement::LayerCase;
use joulecast_model::network::{Network, ShapedNetwork};
use joulecast_model::precision::Precision;
use joulecast_model::splits::Role;
use std::collections::{BTreeMap, HashSet};

/// Layers of networks by kind, and the shapes of test networks.
#[derive(Clone, Debug, Default)]
pub struct Zoo {
    /// Distinct layers of networks with the role `layer` whose shape is no test network's.
    pub cases: BTreeMap<&'static str, Vec<LayerCase>>,
    /// Fold keys of the layers of networks with the role `test`.
    pub test: HashSet<String>,
}

impl Zoo {
    /// Reads the networks of the catalog.
    ///
    /// # Errors
    /// Only if the build baked in a malformed file.
    pub fn read() -> Result<Self> {
        let test: HashSet<String> = layers(Role::Test)?.iter().map(LayerCase::fold_key).collect();
        let mut cases: BTreeMap<&'static str, Vec<LayerCase>> = BTreeMap::new();
        let mut seen = HashSet::new();
        for case in layers(Role::Layer)? {
            if !test.contains(&case.fold_key()) && seen.insert(case.to_json()?) {
                cases.entry(case.layer.kind()).or_default().push(case);
            }
        }
        Ok(Self { cases, test })
    }
}

/// Sequences that language models are measured whole with, besides those of their files.
const SEQUENCES: [u64; 2] = [128, 512];

/// All layers of the networks with a role, in the order of their names; of test networks with a sequence also those of
/// the sequences that they are measured with.
///
/// # Errors
/// Only if the build baked in a malformed file.
pub fn layers(role: Role) -> Result<Vec<LayerCase>> {
    let splits = catalog::splits().map_err(anyhow::Error::msg)?;
    let zoo: HashSet<&str> = catalog::network_names().collect();
    let mut cases = Vec::new();
    for name in splits.with_role(role).filter(|name| zoo.contains(name)) {
        let network = catalog::network(name)?;
        let mut forms = vec![network.clone()];
        if role == Role::Test && network.dimensions().contains(&"sequence") {
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
    Ok(shaped.layers().iter().map(|l| LayerCase { inputs: l.inputs.clone(), layer: l.layer.clone() }).collect())
}
