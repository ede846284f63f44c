//! A network with shapes for a batch.

use super::{Derived, Folded, Network, Source, Sources, Stored, order};
use crate::base::name::Name;
use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::Shape;
use crate::net::case::LayerCase;
use crate::net::cost::{LayerCost, Site};
use crate::net::layer::{
    Attention, Context, Conv2d, Groups, Layer, LayerOp, Linear, Optimizer, ShapeError, update_cost,
};
use std::sync::{Arc, OnceLock};

/// Counts beyond this are refused: no step of a real network comes near, and sums below it cannot overflow.
const MAX_COUNT: u64 = 1 << 60;

/// A network for a batch and a precision, every shape known. Can only be built valid.
#[derive(Clone, Debug)]
pub struct ShapedNetwork {
    name: String,
    batch: u64,
    precision: Precision,
    optimizer: Optimizer,
    inputs: Vec<Shape>,
    pub(super) layers: Arc<Vec<ShapedLayer>>,
    /// For each layer the first that computes the same on the same shapes.
    alike: Arc<[usize]>,
    /// What is computed of learned values alone, once in every step.
    derived: Arc<[ShapedLayer]>,
    /// For each of these the first that computes the same on the same shapes.
    derived_alike: Arc<[usize]>,
    pub(super) notes: Vec<String>,
    makes_zeros: bool,
    totals: Totals,
}

/// What goes over all layers, made when it is first asked for. Copies have none yet: they may get other layers, or another batch.
#[derive(Debug, Default)]
struct Totals {
    parameters: OnceLock<u64>,
    weight_bytes: OnceLock<u64>,
    cache_bytes: OnceLock<u64>,
    /// Operations or bytes of all phases, whichever are more.
    counted: OnceLock<u64>,
    /// By mode.
    buffers: [OnceLock<u64>; Mode::ALL.len()],
}

impl Totals {
    /// What no batch changes.
    fn of_samples(&self) -> Self {
        let Self { parameters, weight_bytes, cache_bytes, .. } = self;
        let (parameters, weight_bytes) = (parameters.clone(), weight_bytes.clone());
        Self { parameters, weight_bytes, cache_bytes: cache_bytes.clone(), ..Self::default() }
    }
}

impl Clone for Totals {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// A layer with its shapes, without the batch.
#[derive(Clone, Debug)]
pub struct ShapedLayer {
    /// Unique name.
    pub name: Name,
    /// What it computes, on which input shapes.
    pub case: LayerCase,
    /// Output shape.
    pub output: Shape,
    /// What it reads.
    pub from: Sources,
    /// Whether its parameters are an earlier layer's.
    pub tied: bool,
    /// Layers that its kernel does besides, in order: see [`ShapedNetwork::fused`].
    pub absorbed: Vec<ShapedLayer>,
    /// Whether its kernel adds a bias that would otherwise be added after it.
    pub bias: bool,
    /// Whether its weights hold the batch norm that ran after it: see [`ShapedNetwork::unfolded`].
    pub folded: Folded,
    /// Whether it reads a map whose dimensions lie in another order than maps usually have in the network's precision, or
    /// concatenates parts of a result where they lie.
    pub strays: bool,
    /// Whether it is a convolution of weights that the step computes, in a precision whose maps have their channels last, of a map
    /// that has them first: so does its result.
    pub channels_first: bool,
    /// Whether it computes element by element and reads a part of another result where that lies.
    pub parted: bool,
    /// Whether it is a product over one row of each sample that lies in a result of several, so that rows of samples are apart.
    pub apart: bool,
    /// Whether something that it reads has a gradient: a learned layer lies before it, or it is a way through time.
    pub wants_gradient: bool,
    /// What of it is stored in fewer bits than it computes in: see [`ShapedNetwork::storing`].
    pub stored: Stored,
}

impl ShapedLayer {
    /// Attention to another sequence as its products, over that one's positions, and as attention to what these make.
    pub fn context(&self) -> Option<(Self, Self)> {
        let Layer::Attention(attention) = &self.case.layer else { return None };
        let (linear, read) = attention.products(&self.case.inputs)?;
        let made = Shape::new(&[read.dims()[0], linear.features]).ok()?;
        let products = Self::alone(Layer::Linear(linear), vec![read], made);
        let context = attention.context.map(|context| Context { features: 0, bias: false, ..context });
        let layer = Layer::Attention(Attention { context, ..attention.clone() });
        let case = LayerCase { layer, ..self.case.clone() };
        Some((Self { stored: self.stored, ..products }, Self { case, ..self.clone() }))
    }

    /// The products of a recurrent layer as layers of their own, and how often each runs; nothing of any other.
    pub fn products_of_cells(&self, phase: Phase) -> Vec<(Self, u64)> {
        let Layer::Recurrent(cells) = &self.case.layer else { return Vec::new() };
        let part = |(linear, input, times): (Linear, Shape, u64)| {
            let made = Shape::new(&[input.dims()[0], linear.features]).ok()?;
            Some((Self { wants_gradient: true, ..Self::alone(Layer::Linear(linear), vec![input], made) }, times))
        };
        cells.products(&self.case.inputs, phase).into_iter().filter_map(part).collect()
    }

    /// One of the groups of a convolution as a convolution of its own, and how many there are; `None` of one without.
    pub fn group(&self) -> Option<(Self, u64)> {
        let (Layer::Conv2d(conv), [input]) = (&self.case.layer, self.case.inputs.as_slice()) else { return None };
        let groups = conv.groups(input.axis());
        let part = |shape: &Shape| {
            let mut dims = shape.dims().to_vec();
            *dims.first_mut()? /= groups;
            Shape::new(&dims).ok()
        };
        if groups < 2 {
            return None;
        }
        let conv = Conv2d { channels: conv.channels / groups, groups: Groups::default(), ..conv.clone() };
        let case = LayerCase { inputs: vec![part(input)?], layer: Layer::Conv2d(conv) };
        Some((Self { case, output: part(&self.output)?, ..self.clone() }, groups))
    }
}

/// Why a network cannot be given shapes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapingError {
    /// The batch is zero or absurd.
    #[error("batch {0} is not between 1 and 2147483648")]
    Batch(u64),
    /// No such input.
    #[error("no input named \"{name}\"; this network has {inputs}")]
    UnknownInput {
        /// What was asked for.
        name: String,
        /// What there is.
        inputs: String,
    },
    /// An input's shape has its channels last.
    #[error("input {name}: {given} has its channels last, and they come first: {meant}")]
    ChannelsLast {
        /// Its name.
        name: String,
        /// What was asked for.
        given: Shape,
        /// What was meant.
        meant: Shape,
    },
    /// A layer does not fit.
    #[error("layer {name}: {why}")]
    Layer {
        /// Its name.
        name: String,
        /// Why.
        why: ShapeError,
    },
    /// An input is bound twice.
    #[error("input \"{0}\" is given twice")]
    BoundTwice(String),
    /// Operations or bytes beyond counting.
    #[error("layer {name}: the step is too large to count")]
    TooLarge {
        /// The layer where the sum exceeds 2^60.
        name: String,
    },
}

/// A map with its channels first whose channels, as many as the network's own, were given last; none of others.
fn turned(given: Shape, own: Shape) -> Option<Shape> {
    let (&[height, width, channels], &[expected, ..]) = (given.dims(), own.dims()) else { return None };
    let last = own.dims().len() == 3 && channels == expected && height != expected && channels < height.min(width);
    if last { Shape::map(channels, height, width).ok() } else { None }
}

impl ShapedNetwork {
    /// Infers every shape. `bindings` replace the shapes of named inputs.
    ///
    /// # Errors
    /// On batch 0, an unknown input, a layer that does not fit, or a step too large to count.
    pub fn new(
        network: &Network,
        batch: u64,
        precision: Precision,
        bindings: &[(String, Shape)],
    ) -> Result<Self, ShapingError> {
        if batch == 0 || batch > crate::base::shape::MAX_DIMENSION {
            return Err(ShapingError::Batch(batch));
        }
        if let Some((name, _)) = bindings.iter().find(|(name, _)| network.inputs.iter().all(|i| i.name != *name)) {
            let inputs =
                network.inputs.iter().map(|i| format!("{} ({})", i.name, i.shape)).collect::<Vec<_>>().join(", ");
            return Err(ShapingError::UnknownInput { name: name.clone(), inputs });
        }
        let twice = |(i, (name, _)): &(usize, &(String, Shape))| bindings[..*i].iter().any(|(other, _)| other == name);
        if let Some((_, (name, _))) = bindings.iter().enumerate().find(twice) {
            return Err(ShapingError::BoundTwice(name.clone()));
        }
        let mut inputs = Vec::with_capacity(network.inputs.len());
        for input in &network.inputs {
            let given = bindings.iter().find(|(name, _)| *name == input.name).map_or(input.shape, |(_, shape)| *shape);
            if let Some(meant) = turned(given, input.shape) {
                return Err(ShapingError::ChannelsLast { name: input.name.clone(), given, meant });
            }
            inputs.push(given);
        }
        let mut layers: Vec<ShapedLayer> = Vec::with_capacity(network.nodes.len());
        for node in &network.nodes {
            let read: Vec<Shape> = node
                .from
                .iter()
                .map(|source| match *source {
                    Source::Input(i) => inputs[i],
                    Source::Node(i) => layers[i].output,
                })
                .collect();
            let output =
                node.layer.output(&read).map_err(|why| ShapingError::Layer { name: node.name.to_string(), why })?;
            layers.push(ShapedLayer {
                name: node.name.clone(),
                case: LayerCase { inputs: read, layer: node.layer.within(precision) },
                output,
                from: node.from.clone(),
                tied: node.tied.is_some(),
                absorbed: Vec::new(),
                bias: false,
                folded: node.folded,
                strays: false,
                channels_first: false,
                parted: false,
                apart: false,
                wants_gradient: false,
                stored: network.stated.stored(&node.layer, precision),
            });
            if let Some(other) = node.tied {
                let count = |layer: &ShapedLayer| layer.case.parameters();
                if layers.last().map(count) != layers.get(other).map(count) {
                    let why = ShapeError::Field("its parameters are not as many as those of the layer it is tied to");
                    return Err(ShapingError::Layer { name: node.name.to_string(), why });
                }
            }
        }
        order::mark_apart(&mut layers);
        mark_gradients(&mut layers);
        let alike = alike(&layers).into();
        let derived = network.derived.iter().map(ShapedLayer::of_derived).collect::<Result<Vec<_>, _>>()?;
        order::mark(&mut layers, &derived, precision);
        let (derived_alike, derived) = (self::alike(&derived).into(), derived.into());
        let (notes, optimizer) = (network.notes.clone(), Optimizer::Momentum);
        let name = network.name.clone();
        let makes_zeros = layers.iter().any(ShapedLayer::makes_zeros);
        let shaped = Self {
            name,
            batch,
            precision,
            optimizer,
            inputs,
            layers: Arc::new(layers),
            alike,
            derived,
            derived_alike,
            notes,
            makes_zeros,
            totals: Totals::default(),
        };
        shaped.counted()?;
        Ok(shaped)
    }

    /// The same network with another batch; shapes, which know no batch, are shared.
    ///
    /// # Errors
    /// On batch 0, or a step too large to count.
    pub fn with_batch(&self, batch: u64) -> Result<Self, ShapingError> {
        if batch == 0 || batch > crate::base::shape::MAX_DIMENSION {
            return Err(ShapingError::Batch(batch));
        }
        let shaped = Self { batch, totals: self.totals.of_samples(), ..self.clone() };
        // Fewer samples have less to count, and so many times as many no more than so many times as much.
        if batch > self.batch && self.counted()?.saturating_mul(batch.div_ceil(self.batch)) > MAX_COUNT {
            shaped.counted()?;
        }
        Ok(shaped)
    }

    /// Operations or bytes of all phases, whichever are more.
    fn counted(&self) -> Result<u64, ShapingError> {
        if let Some(known) = self.totals.counted.get() {
            return Ok(*known);
        }
        let counted = self.count()?;
        Ok(*self.totals.counted.get_or_init(|| counted))
    }

    fn count(&self) -> Result<u64, ShapingError> {
        let mut total = LayerCost::default();
        let mut costs: Vec<LayerCost> = Vec::with_capacity(self.layers.len());
        for (layer, &alike) in self.layers.iter().zip(self.alike.iter()) {
            let cost = costs.get(alike).copied().unwrap_or_else(|| {
                [Phase::Forward, Phase::BackwardData, Phase::BackwardWeights]
                    .into_iter()
                    .filter_map(|phase| layer.cost_at(phase, self.batch, self.precision, Mode::Training))
                    .fold(LayerCost::default(), |sum, cost| sum + cost)
            });
            total = total + cost;
            costs.push(cost);
            if total.ops.get() > MAX_COUNT || total.bytes().get() > MAX_COUNT {
                return Err(ShapingError::TooLarge { name: layer.name.to_string() });
            }
        }
        Ok(total.ops.get().max(total.bytes().get()))
    }

    /// Whether layers read values of which about half are zero, behind a function as ReLU.
    pub fn makes_zeros(&self) -> bool {
        self.makes_zeros
    }

    /// Name of the network.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Samples per step.
    pub fn batch(&self) -> u64 {
        self.batch
    }
    /// Storage and arithmetic.
    pub fn precision(&self) -> Precision {
        self.precision
    }
    /// What updates the parameters in training: momentum unless somebody says otherwise.
    pub fn optimizer(&self) -> Optimizer {
        self.optimizer
    }
    /// The same with another optimizer.
    pub fn with_optimizer(self, optimizer: Optimizer) -> Self {
        Self { optimizer, ..self }
    }
    /// Shapes of the network's inputs.
    pub fn inputs(&self) -> &[Shape] {
        &self.inputs
    }
    /// What to tell with whatever is said of it.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
    /// The layers, in order.
    pub fn layers(&self) -> &[ShapedLayer] {
        &self.layers
    }

    /// Layers of which none reads a sample: they compute on learned values, once in every step, whatever its batch.
    pub fn derived(&self) -> &[ShapedLayer] {
        &self.derived
    }

    /// For each of [`Self::derived`] the first of them that computes the same on the same shapes.
    pub fn derived_alike(&self) -> &[usize] {
        &self.derived_alike
    }

    /// The network as what computes everything of learned values alone beforehand runs it.
    #[must_use]
    pub fn without_derived(self) -> Self {
        Self { derived: Arc::default(), derived_alike: Arc::default(), ..self }
    }

    /// For each layer the first that computes the same on the same shapes: itself, unless it repeats one.
    pub fn alike(&self) -> &[usize] {
        &self.alike
    }

    /// What a function gives for each layer in turn, asked once of those that are [`Self::alike`].
    pub fn each<'n, T: Copy + 'n>(&'n self, of: impl Fn(&ShapedLayer) -> T + 'n) -> impl Iterator<Item = T> + 'n {
        let mut known: Vec<T> = Vec::with_capacity(self.layers.len());
        self.layers.iter().zip(self.alike.iter()).map(move |(layer, &alike)| {
            let value = known.get(alike).copied().unwrap_or_else(|| of(layer));
            known.push(value);
            value
        })
    }

    /// Replaces all of its layers.
    pub(super) fn set_layers(&mut self, layers: Vec<ShapedLayer>) {
        self.alike = alike(&layers).into();
        self.layers = Arc::new(layers);
        self.totals = Totals::default();
    }

    /// Learned parameters.
    pub fn parameters(&self) -> u64 {
        *self.totals.parameters.get_or_init(|| self.each(ShapedLayer::parameters).sum())
    }

    /// Bytes of parameters as the step computes with them.
    pub fn weight_bytes(&self) -> u64 {
        let all = || self.each(|layer| layer.weight_bytes(self.precision)).fold(0, u64::saturating_add);
        *self.totals.weight_bytes.get_or_init(all)
    }

    /// Bytes that keys and values of a sample take in a cache once it has run.
    pub fn cache_bytes(&self) -> u64 {
        let all = || self.each(|layer| layer.cache_bytes(self.precision)).fold(0, u64::saturating_add);
        *self.totals.cache_bytes.get_or_init(all)
    }

    /// What a function gives for those layers that no earlier one is alike.
    pub fn distinct<'n, T>(&'n self, of: impl Fn(&ShapedLayer) -> T + 'n) -> impl Iterator<Item = T> + 'n {
        let first = self.alike.iter().enumerate().filter(|(i, alike)| i == *alike);
        first.map(move |(i, _)| of(&self.layers[i]))
    }

    /// Bytes of all buffers of a step where our own runner places them: what `plan` says of this network, the first time.
    pub(crate) fn buffers(&self, mode: Mode, plan: impl FnOnce() -> u64) -> u64 {
        // Enumerations count from 0 in the order of their lists.
        *self.totals.buffers[mode as usize].get_or_init(plan)
    }

    /// Multiply-accumulates of convolution and matrix products in one forward pass over the batch.
    pub fn macs(&self) -> u64 {
        self.layers.iter().filter_map(|l| self.cost(l, Phase::Forward, Mode::Inference)).map(|c| c.macs).sum()
    }

    /// Cost of a phase of one of this network's layers; `None` where no kernel runs. Gradients of what nothing learned lies
    /// before are not needed, but where the way back through time gives that of the weights.
    pub fn cost(&self, layer: &ShapedLayer, phase: Phase, mode: Mode) -> Option<LayerCost> {
        self.cost_in(self.precision, layer, phase, mode)
    }

    /// The same in another precision than the network's.
    pub fn cost_in(&self, precision: Precision, layer: &ShapedLayer, phase: Phase, mode: Mode) -> Option<LayerCost> {
        if phase == Phase::BackwardData && !layer.wants_gradient {
            return None;
        }
        if phase == Phase::Update {
            return update_cost(layer.parameters(), self.optimizer);
        }
        layer.cost_at(phase, self.batch, precision, mode)
    }
}

/// Marks the layers before which something is learned.
pub(super) fn mark_gradients(layers: &mut [ShapedLayer]) {
    let mut has_gradient: Vec<bool> = Vec::with_capacity(layers.len());
    for layer in layers {
        let before = layer.from.iter().any(|source| matches!(source, Source::Node(i) if has_gradient[*i]));
        layer.wants_gradient = before || matches!(layer.case.layer, Layer::Recurrent(_));
        has_gradient.push((before || layer.parameters() > 0 || layer.tied) && layer.case.layer.has_gradient());
    }
}

fn alike(layers: &[ShapedLayer]) -> Vec<usize> {
    // Layers that are alike have the same mark; few others have.
    let mark = |layer: &ShapedLayer| {
        let kind = layer.case.layer.kind().as_bytes();
        let ends =
            [kind.len() as u64, kind.first().copied().map_or(0, u64::from), kind.last().copied().map_or(0, u64::from)];
        let read = layer.case.inputs.first().map_or(&[][..], Shape::dims);
        let with = |mark: u64, number: &u64| (mark.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        read.iter().fold(layer.output.dims().iter().fold(ends.iter().fold(0, with), with), with)
    };
    let same = |layer: &ShapedLayer, other: &ShapedLayer| {
        let own = other.case == layer.case
            && other.bias == layer.bias
            && other.strays == layer.strays
            && other.channels_first == layer.channels_first
            && other.parted == layer.parted
            && other.apart == layer.apart
            && other.wants_gradient == layer.wants_gradient
            && other.stored == layer.stored;
        own && other.tied == layer.tied && other.absorbed.is_empty() && layer.absorbed.is_empty()
    };
    // Places of first ones by their marks, one more than the layer's; 0 where there is none.
    let places = (2 * layers.len()).next_power_of_two();
    let (mut firsts, mut marks) = (vec![0u32; places], Vec::with_capacity(layers.len()));
    let mut alike: Vec<usize> = Vec::with_capacity(layers.len());
    for (i, layer) in layers.iter().enumerate() {
        let mark = mark(layer);
        marks.push(mark);
        // The highest bits are mixed best.
        let mut place = (mark >> 32) as usize & (places - 1);
        let first = loop {
            match firsts[place].checked_sub(1).map(|first| first as usize) {
                None => {
                    firsts[place] = i as u32 + 1;
                    break i;
                }
                Some(first) if marks[first] == mark && same(layer, &layers[first]) => break first,
                Some(_) => place = (place + 1) & (places - 1),
            }
        };
        alike.push(first);
    }
    alike
}

impl ShapedLayer {
    fn of_derived(derived: &Derived) -> Result<Self, ShapingError> {
        let Derived { name, case, wants_gradient } = derived;
        let output = case.output().map_err(|why| ShapingError::Layer { name: name.to_string(), why })?;
        let alone = Self::alone(case.layer.clone(), case.inputs.clone(), output);
        Ok(Self { name: name.clone(), wants_gradient: *wants_gradient, ..alone })
    }

    /// A layer of no network, without a name.
    pub(crate) fn alone(layer: Layer, inputs: Vec<Shape>, output: Shape) -> Self {
        let (name, from, absorbed) = (Name::none().clone(), Sources::default(), Vec::new());
        Self {
            name,
            case: LayerCase { inputs, layer },
            output,
            from,
            tied: false,
            absorbed,
            bias: false,
            folded: Folded::No,
            strays: false,
            channels_first: false,
            parted: false,
            apart: false,
            wants_gradient: false,
            stored: Stored::default(),
        }
    }

    fn makes_zeros(&self) -> bool {
        matches!(&self.case.layer, Layer::Activation(activation) if activation.function.makes_zeros())
    }

    /// Learned parameters of its own; none where they are another layer's.
    pub fn parameters(&self) -> u64 {
        if self.tied {
            return 0;
        }
        let bias = if self.bias { self.output.axis() } else { 0 };
        let absorbed: u64 = self.absorbed.iter().map(Self::parameters).sum();
        self.case.parameters().saturating_add(bias).saturating_add(absorbed)
    }

    fn cost_at(&self, phase: Phase, batch: u64, precision: Precision, mode: Mode) -> Option<LayerCost> {
        let precision = self.case.runs_in(precision);
        let site = Site { batch, inputs: &self.case.inputs, output: self.output, precision, mode };
        let mut cost = self.as_stored(self.case.layer.cost(phase, &site)?, phase, batch, precision);
        for layer in &self.absorbed {
            let site = Site { inputs: &layer.case.inputs, output: layer.output, ..site };
            if let Some(more) = layer.case.layer.cost(phase, &site) {
                cost.ops += more.ops;
                // What it writes it has at hand; other operands it reads.
                cost.read += site.result_bytes(site.all_in_elements() - site.in_elements());
            }
        }
        Some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Network {
        Network::from_toml(
            r#"
schema = "network/1"
name = "tiny"
title = "tiny"
layers = [
  { name = "conv", kind = "conv2d", channels = 4, kernel = 3 },
  { name = "flat", kind = "flatten" },
  { name = "fc", kind = "linear", features = 10 },
]
inputs.image.shape = [1, 6, 6]
"#,
        )
        .expect("a valid network")
    }

    #[test]
    fn another_batch_is_counted_again_and_refused_where_that_overflows() {
        let network = crate::catalog::network("vgg16").expect("shipped");
        let one = ShapedNetwork::new(&network, 1, Precision::Fp32, &[]).expect("fits");
        let eight = one.with_batch(8).expect("fits");
        assert_eq!((eight.batch(), eight.macs()), (8, 8 * one.macs()));
        let most = crate::base::shape::MAX_DIMENSION;
        for batch in [0, most + 1] {
            assert_eq!(one.with_batch(batch).err(), Some(ShapingError::Batch(batch)));
        }
        let huge = |batch| ShapedNetwork::new(&network, batch, Precision::Fp32, &[]).is_err();
        assert_eq!((one.with_batch(most).is_err(), huge(most)), (true, true));
    }

    /// A view and a comparison in front, and a check beside: no gradient reaches them, nor what only they are read by.
    #[test]
    fn what_nothing_learned_lies_before_has_no_gradient_of_data() {
        let text = "schema = \"network/1\"\nname = \"n\"\ntitle = \"n\"\ninputs.x.shape = [8]\nlayers = [\n\
                    { name = \"halve\", kind = \"elementwise\" },\n{ name = \"first\", kind = \"linear\", features = 8 },\n\
                    { name = \"check\", kind = \"elementwise\", gradient = \"absent\" },\n\
                    { name = \"all\", kind = \"relu\" },\n\
                    { name = \"second\", kind = \"linear\", features = 8, from = \"first\" },\n\
                    { name = \"sum\", kind = \"add\", from = [\"second\", \"all\"] },\n{ name = \"last\", kind = \"relu\" }]\n";
        let network = Network::from_toml(text).expect("valid");
        let shaped = ShapedNetwork::new(&network, 2, Precision::Fp32, &[]).expect("fits");
        let with = shaped.layers().iter().filter(|l| shaped.cost(l, Phase::BackwardData, Mode::Training).is_some());
        assert_eq!(with.map(|l| l.name.as_str()).collect::<Vec<_>>(), ["second", "last"]);
    }

    #[test]
    fn totals_of_a_tiny_network() -> Result<(), ShapingError> {
        let net = ShapedNetwork::new(&tiny(), 2, Precision::Fp32, &[])?;
        assert_eq!(net.parameters(), 4 * 9 + 4 + 64 * 10 + 10);
        assert_eq!(net.macs(), 2 * (64 * 9 + 640));
        let first = &net.layers()[0];
        assert!(net.cost(first, Phase::BackwardData, Mode::Training).is_none());
        assert!(net.cost(first, Phase::BackwardWeights, Mode::Training).is_some());
        Ok(())
    }

    #[test]
    fn another_batch_is_another_network_of_the_same_shapes() -> Result<(), ShapingError> {
        let one = ShapedNetwork::new(&tiny(), 1, Precision::Fp32, &[])?;
        let two = one.with_batch(2)?;
        assert_eq!((two.macs(), two.batch()), (2 * one.macs(), 2));
        assert_eq!(one.with_batch(0).err(), Some(ShapingError::Batch(0)));
        Ok(())
    }

    #[test]
    fn inputs_can_be_rebound() -> Result<(), Box<dyn std::error::Error>> {
        let bindings = [("image".to_string(), Shape::map(1, 8, 8)?)];
        let net = ShapedNetwork::new(&tiny(), 1, Precision::Fp32, &bindings)?;
        assert_eq!(net.layers()[0].output, Shape::map(4, 6, 6)?);
        let unknown = [("img".to_string(), Shape::map(1, 8, 8)?)];
        assert!(ShapedNetwork::new(&tiny(), 1, Precision::Fp32, &unknown).is_err());
        let last = [("image".to_string(), Shape::new(&[8, 9, 1])?)];
        let meant = Shape::map(1, 8, 9)?;
        let error = ShapedNetwork::new(&tiny(), 1, Precision::Fp32, &last).expect_err("channels last");
        assert!(matches!(error, ShapingError::ChannelsLast { meant: m, .. } if m == meant), "{error}");
        Ok(())
    }

    #[test]
    fn tied_weights_are_counted_and_updated_once() {
        let text = |features: u64, tied: &str| {
            format!(
                "schema = \"network/1\"\nname = \"n\"\ntitle = \"n\"\nlayers = [\n\
                 {{ name = \"wte\", kind = \"embedding\", vocabulary = 100, features = 8 }},\n\
                 {{ name = \"head\", kind = \"linear\", features = {features}, bias = false{tied} }},\n]\n\
                 inputs.tokens = {{ shape = [16], dtype = \"int\" }}\n"
            )
        };
        let shaped = |features, tied| {
            let network = Network::from_toml(&text(features, tied)).expect("valid");
            ShapedNetwork::new(&network, 2, Precision::Fp32, &[])
        };
        let (apart, tied) = (shaped(100, "").expect("fits"), shaped(100, ", tied = \"wte\"").expect("fits"));
        assert_eq!((apart.parameters(), tied.parameters()), (1600, 800));
        let cost = |net: &ShapedNetwork, phase| net.cost(&net.layers()[1], phase, Mode::Training);
        assert_eq!(cost(&apart, Phase::Forward), cost(&tied, Phase::Forward));
        assert!(cost(&tied, Phase::Update).is_none() && cost(&apart, Phase::Update).is_some());
        assert!(shaped(99, ", tied = \"wte\"").is_err());
    }

    #[test]
    fn absurd_batches_are_refused() {
        for batch in [0, u64::MAX] {
            assert!(ShapedNetwork::new(&tiny(), batch, Precision::Fp32, &[]).is_err());
        }
        let huge = [("image".to_string(), Shape::map(1 << 31, 1 << 31, 1 << 31).expect("legal dimensions"))];
        assert!(ShapedNetwork::new(&tiny(), 1 << 31, Precision::Fp32, &huge).is_err());
    }
}
