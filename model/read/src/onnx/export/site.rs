//! Where a layer stands in the file that is written, and its weights there.

use super::{Value, Writer};
use joulecast_model::base::shape::Shape;

/// Where a layer stands.
pub struct Site<'s> {
    /// Its name, which its result has, too.
    pub name: &'s str,
    /// The layer whose weights it uses.
    pub weights: &'s str,
    /// Whether that is another one.
    pub tied: bool,
    /// Names of what it reads.
    pub from: Vec<String>,
    /// Their shapes.
    pub read: Vec<Shape>,
    /// Shape of its result.
    pub output: Shape,
}

impl Site<'_> {
    /// The first of what it reads.
    pub fn x(&self) -> &str {
        &self.from[0]
    }
    /// The dimensions of that.
    pub fn dims(&self) -> &[u64] {
        self.read[0].dims()
    }
    /// A name for an operator or constant of its own.
    pub fn named(&self, part: &str) -> String {
        format!("{}.{part}", self.name)
    }
    /// The name of one of its weights.
    pub fn owned(&self, part: &str) -> String {
        format!("{}.{part}", self.weights)
    }
}

impl Writer<'_> {
    /// The weights of a layer, written unless they are another one's.
    pub fn weight_of(&mut self, site: &Site<'_>, dims: &[u64]) -> String {
        let name = site.owned("weight");
        if site.tied { name } else { self.weight(&name, dims) }
    }

    /// Another learned tensor of it, by its name in the layer.
    pub fn vector_of(&mut self, site: &Site<'_>, part: &str, dims: &[u64]) -> String {
        let name = site.owned(part);
        if site.tied { name } else { self.weight(&name, dims) }
    }

    /// An operator that reads weights and, where it has one, a bias of so many values.
    pub fn weighted(
        &mut self,
        op: &str,
        site: &Site<'_>,
        dims: &[u64],
        bias: Option<u64>,
        attributes: &[(&str, Value<'_>)],
    ) {
        let weight = self.weight_of(site, dims);
        let bias = bias.map(|values| self.vector_of(site, "bias", &[values]));
        let inputs: Vec<&str> = [site.x(), &weight].into_iter().chain(bias.as_deref()).collect();
        self.node(op, &inputs, site.name, attributes);
    }
}
