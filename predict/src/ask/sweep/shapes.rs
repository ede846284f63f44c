//! Networks with their shapes, which no GPU changes: of a sweep in a precision and mode, each made when it is first asked for.

use crate::cluster::Cluster;
use crate::source::Source;
use joulecast_model::net::network::{ShapedNetwork, ShapingError};
use std::borrow::Cow;
use std::sync::OnceLock;

/// A network with its shapes, or why it has none.
pub(super) type Shaped = Result<ShapedNetwork, String>;

/// The networks of a sweep as they run in a precision and mode.
pub(super) struct Shapes {
    /// With the largest batch, of which smaller ones need no check of their own; where it cannot have that, with one sample.
    largest: Vec<OnceLock<Shaped>>,
    /// With each batch, network by network; none where they are too many.
    each: Vec<OnceLock<Shaped>>,
}

impl Shapes {
    /// Of so many networks, with so many batches that are kept.
    pub fn of(networks: usize, batches: usize) -> Self {
        let none = |count: usize| (0..count).map(|_| OnceLock::new()).collect();
        Self { largest: none(networks), each: none(networks * batches) }
    }

    /// A network by its place with the largest of all batches.
    pub fn largest(&self, source: &Source, network: usize, batches: &[u64], cluster: &Cluster) -> &Shaped {
        self.largest[network].get_or_init(|| {
            let of = |batch| ShapedNetwork::new(&source.network, batch, cluster.precision, &source.bindings);
            let shaped = of(batches.iter().copied().max().unwrap_or(1)).or_else(|_| of(1));
            Ok(cluster.runs(shaped.map_err(|e| e.to_string())?))
        })
    }

    /// Whether a network, by its place, is known to be able to have a batch.
    pub fn fits(&self, network: usize, batch: u64) -> bool {
        let known = self.largest[network].get().and_then(|shaped| shaped.as_ref().ok());
        known.is_some_and(|shaped| batch > 0 && batch <= shaped.batch())
    }

    /// A network with one of all batches, by their places.
    pub fn at(
        &self,
        source: &Source,
        (network, batch): (usize, usize),
        batches: &[u64],
        cluster: &Cluster,
    ) -> Cow<'_, Shaped> {
        let make = || {
            let largest = self.largest(source, network, batches, cluster).as_ref().map_err(Clone::clone)?;
            largest.with_batch(batches[batch]).map_err(|e: ShapingError| e.to_string())
        };
        match self.each.get(network * batches.len() + batch) {
            Some(known) => Cow::Borrowed(known.get_or_init(make)),
            None => Cow::Owned(make()),
        }
    }
}
