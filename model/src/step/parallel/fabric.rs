//! What joins all GPUs of a step: one interconnect, or one inside of nodes and a network between them.

use crate::base::units::{Bytes, Seconds};
use crate::device::gpu::Gpu;
use crate::device::interconnect::{Interconnect, JoinError};
use crate::step::predictor::Warning;

/// How all GPUs of a step are joined.
#[derive(Clone, Debug, PartialEq)]
pub struct Fabric {
    /// Inside of a node, or among all.
    within: Interconnect,
    /// Between nodes of so many GPUs.
    between: Option<(Interconnect, u64)>,
    /// Where it is not what such GPUs usually have.
    pub note: Option<Warning>,
}

impl From<Interconnect> for Fabric {
    fn from(all: Interconnect) -> Self {
        Self { within: all, between: None, note: None }
    }
}

impl Fabric {
    /// What joins so many of these kinds of boards: what is asked for, else what such boards have in a node, of the
    /// interconnects that are known.
    ///
    /// # Errors
    /// When that is not known, joins other boards, or they are more than a node has and no network is named.
    pub fn of(
        known: &[Interconnect],
        kinds: &[&Gpu],
        gpus: u64,
        asked: Option<Interconnect>,
    ) -> Result<Self, JoinError> {
        let usual = Interconnect::usual(known, kinds);
        if let Some((asked, gpu)) = asked.as_ref().and_then(|i| Some((i, i.lacking(kinds)?))) {
            return Err(JoinError::OtherBoard {
                interconnect: asked.name.clone(),
                gpu: gpu.name.clone(),
                form_factor: gpu.form_factor.clone(),
                usual: usual.ok().map(|i| i.name),
            });
        }
        match (asked, usual) {
            (None, Err(why)) => Err(why),
            (None, Ok(node)) => match node.node {
                Some(most) if gpus > most => {
                    let networks = known.iter().filter(|i| i.node.is_none()).map(|i| i.name.clone()).collect();
                    Err(JoinError::Nodes { gpus, most, node: node.name, networks })
                }
                _ => Ok(node.into()),
            },
            (Some(network), usual) if network.node.is_none() => match usual {
                Ok(Interconnect { node: Some(most), name, .. }) if gpus <= most => Ok(Self {
                    note: Some(Warning::OneNode { network: network.name.clone(), node: name, most }),
                    ..network.into()
                }),
                Ok(node) => {
                    let most = node.node.unwrap_or(gpus);
                    Ok(Self { within: node, between: Some((network, most)), note: None })
                }
                Err(_) => Ok(network.into()),
            },
            (Some(all), _) => {
                let beyond = all.node.filter(|most| gpus > *most);
                let note = beyond.map(|most| Warning::BeyondNode { interconnect: all.name.clone(), gpus, most });
                Ok(Self { note, ..all.into() })
            }
        }
    }

    /// In words.
    pub fn name(&self, gpus: u64) -> String {
        match &self.between {
            None => self.within.name.clone(),
            Some((network, most)) => {
                format!("{} in nodes of {most}, {} between {}", self.within.name, network.name, gpus.div_ceil(*most))
            }
        }
    }

    /// 90 % of all-reduces lie within this factor.
    pub fn spread(&self) -> f64 {
        self.between.as_ref().map_or(1.0, |(network, _)| network.spread).max(self.within.spread)
    }

    /// Time from one GPU's memory into another's, in another node where there are several.
    pub fn send(&self, bytes: Bytes) -> Seconds {
        self.between.as_ref().map_or(&self.within, |(network, _)| network).send(bytes)
    }

    /// Time of an all-reduce over so many GPUs. Over several nodes: sums inside of each node, a ring over the nodes, and
    /// the result back inside of each, where the first and the last are the two halves of a node's own all-reduce.
    pub fn all_reduce(&self, gpus: u64, bytes: Bytes) -> Seconds {
        match &self.between {
            Some((network, most)) => {
                self.within.all_reduce(gpus.min(*most), bytes) + network.all_reduce(gpus.div_ceil(*most), bytes)
            }
            None => self.within.all_reduce(gpus, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    #[test]
    fn a_node_has_a_size_and_a_network_joins_several() -> Result<(), Box<dyn std::error::Error>> {
        let v100 = catalog::gpu("v100")?;
        let of = |gpus, asked: Option<&str>| -> Result<Fabric, Box<dyn std::error::Error>> {
            Ok(Fabric::of(&catalog::interconnects()?, &[&v100], gpus, asked.map(catalog::interconnect).transpose()?)?)
        };
        assert_eq!(of(8, None)?.name(8), "nvlink2");
        let error = of(16, None).expect_err("two nodes").to_string();
        assert!(error.contains("more than the 8") && error.contains("infiniband-fdr"), "{error}");
        let two = of(16, Some("infiniband-fdr"))?;
        assert_eq!(two.name(16), "nvlink2 in nodes of 8, infiniband-fdr between 2");
        let bytes = Bytes::new(100_000_000);
        let (node, network) = (catalog::interconnect("nvlink2")?, catalog::interconnect("infiniband-fdr")?);
        let parts = node.all_reduce(8, bytes) + network.all_reduce(2, bytes);
        assert_eq!(two.all_reduce(16, bytes), parts);
        assert!(two.all_reduce(32, bytes) > parts);
        let one = of(16, Some("nvlink2"))?;
        assert!(one.all_reduce(16, bytes) < parts && one.note.is_some());
        let apart = of(4, Some("infiniband-fdr"))?;
        assert_eq!(apart.all_reduce(4, bytes), network.all_reduce(4, bytes));
        assert!(apart.note.is_some());
        Ok(())
    }
}
