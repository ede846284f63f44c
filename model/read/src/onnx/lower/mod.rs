//! From operators to layers, one sample's shapes in place of a batch's.
//!
//! What counts as a kernel follows what PyTorch runs:
//! * `Reshape`, `Squeeze`, `Unsqueeze`, `Flatten`, `Slice` and `Split` are views, wherever strides express them, and `Identity` nothing at all; `Cast` between real types is
//!   where something of the file has 16 bits (`Layer::Cast`);
//! * `Transpose` is a view, too; what reads views in an order that it does not take copies them first (`strides`);
//! * constants, masks and positions that no learned table was read by are taken to be there: they are small beside what
//!   they are applied to.

mod derived;
mod folded;
mod maps;
mod movement;
mod pointwise;
mod products;
mod scope;

use super::graph::{Graph, Id, Kind, Op};
use super::infer::{Call, Issue};
use super::strides::Moves;
use super::tensor::{Tensor, elements};
use super::{OnnxError, Options};
use joulecast_model::base::shape::Shape;
use joulecast_model::base::text::{Names, shown};
use joulecast_model::net::layer::{Copied, Flatten, Layer, LayerOp, Reshape};
use joulecast_model::net::network::derived::each_step;
use joulecast_model::net::network::{Folded, folding, relocate};
use joulecast_model::net::network::{Input, Network, Node, Published, Source, Stated};
use joulecast_model::read::MAX_LAYERS;
use std::collections::{HashMap, HashSet};

/// Turns the operators of a graph into the layers of a network.
///
/// # Errors
/// Names the operator that no layer stands for, or whose result does not carry one sample after another.
pub fn lower(graph: &Graph<'_>, options: &Options<'_>, source: String) -> Result<Network, OnnxError> {
    let mut lowering = Lowering::new(graph)?;
    for op in &graph.ops {
        lowering.operator(op).map_err(|issue| OnnxError::at(op.node, issue))?;
    }
    lowering.network(options.name, source)
}

/// A tensor in the network: where it is, and how its layer shapes it, which may be another view of it than the file's.
#[derive(Clone, Debug)]
struct Place {
    source: Source,
    shape: Shape,
}

struct Lowering<'g, 'a> {
    graph: &'g Graph<'a>,
    /// Operators that read a tensor.
    readers: HashMap<Id, Vec<&'g Op<'a>>>,
    /// The operator that makes a tensor.
    makers: HashMap<Id, &'g Op<'a>>,
    /// The operator that computes a tensor of learned values alone.
    learned_makers: HashMap<Id, &'g Op<'a>>,
    places: HashMap<Id, Place>,
    views: HashMap<(Source, Shape), Source>,
    inputs: Vec<Input>,
    /// Integer inputs that no layer reads, so far.
    waiting: Vec<Input>,
    nodes: Vec<Node>,
    shapes: Vec<Shape>,
    names: Names,
    /// What operators read that are left out.
    kept: Vec<Source>,
    /// The node that learned an initializer.
    learners: HashMap<Id, usize>,
    /// Biases of zeros that the export left out.
    zeros: usize,
    /// The module of each node, where an exporter says it.
    modules: HashMap<usize, String>,
    moves: Moves,
    notes: Vec<String>,
}

impl<'g, 'a> Lowering<'g, 'a> {
    fn new(graph: &'g Graph<'a>) -> Result<Self, OnnxError> {
        let (mut readers, mut makers) = (HashMap::<Id, Vec<&Op<'_>>>::new(), HashMap::new());
        for op in &graph.ops {
            op.inputs.iter().flatten().for_each(|&id| readers.entry(id).or_default().push(op));
            makers.extend(op.outputs.iter().map(|&id| (id, op)));
        }
        let mut lowering = Self {
            graph,
            readers,
            makers,
            learned_makers: graph.derived.iter().filter_map(|op| Some((*op.outputs.first()?, op))).collect(),
            places: HashMap::new(),
            views: HashMap::new(),
            inputs: vec![],
            waiting: vec![],
            nodes: vec![],
            shapes: vec![],
            names: Names::default(),
            kept: vec![],
            learners: HashMap::new(),
            zeros: 0,
            modules: HashMap::new(),
            moves: Moves::of(graph),
            notes: vec![],
        };
        for &id in &graph.inputs {
            lowering.input(id)?;
        }
        Ok(lowering)
    }

    /// Inputs of real numbers are read by layers, integers by embeddings; other integers are masks and positions.
    fn input(&mut self, id: Id) -> Result<(), OnnxError> {
        let value = &self.graph.values[id];
        let real = value.kind == Kind::Activation;
        let read = self.readers.contains_key(&id);
        let at = |why: String| OnnxError::Format(format!("input {}: {why}", shown(value.name)));
        let shape = shape(&self.sample(&value.tensor.dims).map_err(at)?).map_err(|e| at(text(e)))?;
        let name = self.names.unique(value.name);
        let symbols = vec![None; shape.dims().len()];
        let input = Input { name, shape, symbols, integer: !real };
        if read {
            self.places.insert(id, Place { source: Source::Input(self.inputs.len()), shape });
            self.inputs.push(input);
        } else {
            self.notes.push(unread(&input.name));
            if !real {
                self.waiting.push(input);
            }
        }
        Ok(())
    }

    fn operator(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        // What is empty is not computed.
        if op.outputs.iter().all(|&id| self.tensor(id).elements() == 0) && !self.graph.skips(op) {
            return Ok(());
        }
        let before = self.copy_inputs(op)?;
        self.layer(op)?;
        self.places.extend(before);
        Ok(())
    }

    fn layer(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        match &op.op[..] {
            "Stack" | "Unstack" => self.copies(op),
            "Conv" => self.convolution(op),
            "ConvTranspose" => self.transposed(op),
            "MaxPool" | "AveragePool" => self.pooling(op),
            "GlobalAveragePool" | "GlobalMaxPool" => self.global_pooling(op),
            "BatchNormalization" => self.batch_norm(op),
            "InstanceNormalization" | "GroupNormalization" | "GroupNorm" => self.group_norm(op),
            "LRN" => self.local_response_norm(op),
            "Resize" | "Upsample" => self.resize(op),
            "Pad" => self.pad(op),
            "Gemm" | "Linear" | "MatMul" => self.product(op),
            "Einsum" => self.einsum(op),
            "Attention" | "UnfusedAttention" => self.attention(op),
            "LSTM" | "GRU" | "RNN" => self.recurrent(op),
            "RotaryEmbedding" => self.rotary(op),
            "LayerNormalization" | "RMSNormalization" => self.layer_norm(op),
            "WrittenRMSNormalization" | "WideRMSNormalization" => self.written_rms_norm(op),
            "Variance" => self.reduce_to_results(op),
            "Im2Col" => self.unfold(op),
            "Softmax" | "LogSoftmax" => self.softmax(op),
            "Dropout" => self.dropout(op),
            "Guarded" => self.alias(op),
            "Cast" if let Some(to) = self.graph.conversion(op) => self.cast(op, to),
            "Add" | "Sum" => self.add(op),
            "Mul" => self.multiply(op),
            "Scale" => self.scale(op),
            "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Transpose" => self.alias(op),
            "Concat" => self.concat(op),
            "Slice" => self.slice(op),
            "Split" => self.split(op),
            "Gather" => self.gather(op),
            "Expand" | "Tile" => self.spread(op),
            "DepthToSpace" | "SpaceToDepth" => self.rearranged(op),
            op_type if op_type.starts_with("Reduce") || op_type.starts_with("Arg") => self.reduce(op),
            _ => self.pointwise(op),
        }
    }

    /// What is known of an operator's tensors.
    fn call(&self, op: &'g Op<'a>) -> Call<'g> {
        self.graph.call(op)
    }

    fn tensor(&self, id: Id) -> &'g Tensor {
        &self.graph.values[id].tensor
    }

    fn result(&self, op: &Op<'_>) -> Result<&'g Tensor, Issue> {
        op.outputs.first().map(|&id| self.tensor(id)).ok_or_else(|| "it makes nothing".into())
    }

    /// The input of an operator that is an activation.
    fn activation(&self, op: &Op<'_>, position: usize) -> Result<Id, Issue> {
        match op.inputs.get(position).copied().flatten() {
            Some(id) if self.is_activation(id) => Ok(id),
            _ => Err(Issue::Wrong(format!("its input {position} is not computed by the network"))),
        }
    }

    fn is_activation(&self, id: Id) -> bool {
        self.graph.values[id].kind == Kind::Activation
    }

    fn activations(&self, op: &Op<'_>) -> Vec<Id> {
        let computed = |id: &Id| self.is_activation(*id) && self.tensor(*id).elements() > 0;
        op.inputs.iter().flatten().copied().filter(computed).collect()
    }

    /// The dimensions of one sample: those of a batch without the marker.
    fn sample(&self, dims: &[i64]) -> Result<Vec<u64>, String> {
        let marker = self.graph.marker;
        if marker == 1 {
            // All of it is one sample, perhaps in a batch of one.
            let all: Vec<u64> = dims.iter().map(|&d| d as u64).collect();
            return Ok(match &all[..] {
                [1, sample @ ..] if !sample.is_empty() => sample.to_vec(),
                [] => vec![1],
                _ => all,
            });
        }
        let marked: Vec<usize> = (0..dims.len()).filter(|&i| dims[i] > 0 && dims[i] % marker == 0).collect();
        let [place] = marked[..] else {
            let what = if marked.is_empty() { "does not grow with the batch" } else { "mixes the samples of a batch" };
            let shown: Vec<String> = dims.iter().map(|&d| symbolic(d, marker)).collect();
            return Err(format!(
                "a tensor of {} {what}; networks here compute one sample like the next",
                shown.join("x")
            ));
        };
        let mut sizes: Vec<u64> = dims.iter().map(|&d| d as u64).collect();
        sizes[place] /= marker as u64;
        if sizes[place] == 1 {
            sizes.remove(place);
        }
        Ok(if sizes.is_empty() { vec![1] } else { sizes })
    }

    /// The dimensions of one sample of a tensor.
    fn dims(&self, id: Id) -> Result<Vec<u64>, Issue> {
        Ok(self.sample(&self.tensor(id).dims)?)
    }

    /// A tensor as a layer is to see it; the layer that makes it may shape it otherwise.
    fn seen(&mut self, id: Id, dims: &[u64]) -> Result<Source, Issue> {
        let missing = || Issue::Wrong(format!("its input {} is not computed", shown(self.graph.values[id].name)));
        let place = self.places.get(&id).cloned().ok_or_else(missing)?;
        let wanted = shape(dims)?;
        if place.shape == wanted {
            return Ok(place.source);
        }
        if place.shape.elements() != wanted.elements() {
            return Err(Issue::Wrong(format!("it sees {} as {wanted}", place.shape)));
        }
        if let Some(&source) = self.views.get(&(place.source, wanted)) {
            return Ok(source);
        }
        let layer = match wanted.dims() {
            [_] => Layer::Flatten(Flatten {}),
            sizes => Layer::Reshape(Reshape { shape: sizes.iter().map(|&d| d as i64).collect(), copy: Copied::Never }),
        };
        let origin = match place.source {
            Source::Input(i) => self.inputs[i].name.as_str().into(),
            Source::Node(i) => self.nodes[i].name.clone(),
        };
        let view = self.push(&format!("{origin}.view"), layer, vec![place.source], &[])?;
        self.views.insert((place.source, wanted), view.source);
        Ok(view.source)
    }

    /// Appends a layer that stands for an operator.
    fn emit(&mut self, op: &Op<'_>, layer: Layer, from: Vec<Source>, weights: &[Option<Id>]) -> Result<Place, Issue> {
        let stem = weights.iter().flatten().find_map(|&id| {
            let learned = self.graph.values[id].learned.first().filter(|id| !self.learners.contains_key(id))?;
            let name = self.graph.values[*learned].name;
            match name.strip_suffix(".weight").or_else(|| name.strip_suffix("_weight")) {
                Some(stem) => Some(stem.to_string()),
                // A name that TorchScript's exporter made up.
                None if name.starts_with("onnx::") => scope::module(op.node),
                None => None,
            }
        });
        let name = stem.unwrap_or_else(|| scope::path(op.node));
        let place = self.push(&name, layer, from, weights)?;
        if let (Source::Node(made), Some(module)) = (place.source, scope::said_module(op.node)) {
            // One vector of many modules, which share what is equal, is one of each of them.
            let vector = |id: &Id| self.tensor(*id).dims.iter().filter(|d| **d != 1).count() < 2;
            let vectors = weights.iter().flatten().flat_map(|&w| &self.graph.values[w].learned).all(vector);
            let owner = self.nodes[made].tied.and_then(|owner| self.modules.get(&owner));
            if vectors && owner.is_some_and(|owner| *owner != module) {
                self.nodes[made].tied = None;
            }
            self.modules.insert(made, module);
        }
        Ok(place)
    }

    fn push(&mut self, name: &str, layer: Layer, from: Vec<Source>, weights: &[Option<Id>]) -> Result<Place, Issue> {
        let read: Vec<Shape> = from
            .iter()
            .map(|source| match *source {
                Source::Input(i) => self.inputs[i].shape,
                Source::Node(i) => self.shapes[i],
            })
            .collect();
        if self.nodes.len() >= MAX_LAYERS {
            return Err(Issue::TooMany);
        }
        let output = layer.output(&read).map_err(|e| e.to_string())?;
        let learned: HashSet<Id> =
            weights.iter().flatten().flat_map(|&w| &self.graph.values[w].learned).copied().collect();
        let index = self.nodes.len();
        let parameters = layer.parameters(&read);
        let owners: HashSet<Option<usize>> = learned.iter().map(|id| self.learners.get(id).copied()).collect();
        let tied = match owners.into_iter().collect::<Vec<_>>()[..] {
            [Some(owner)] if parameters > 0 && self.parameters_of(owner) == parameters => Some(owner),
            _ => None,
        };
        for id in learned {
            self.learners.entry(id).or_insert(index);
        }
        let name = self.names.unique(name);
        self.nodes.push(Node { name: name.into(), layer, from: from.into(), tied, folded: Folded::No });
        self.shapes.push(output);
        Ok(Place { source: Source::Node(index), shape: output })
    }

    fn parameters_of(&self, node: usize) -> u64 {
        let shapes: Vec<Shape> = self.nodes[node]
            .from
            .iter()
            .map(|source| match *source {
                Source::Input(i) => self.inputs[i].shape,
                Source::Node(i) => self.shapes[i],
            })
            .collect();
        self.nodes[node].layer.parameters(&shapes)
    }

    /// Learned values behind constants that no layer has taken yet.
    fn unlearned(&self, constants: &[Option<Id>]) -> u64 {
        let ids: HashSet<Id> =
            constants.iter().flatten().flat_map(|&c| &self.graph.values[c].learned).copied().collect();
        ids.into_iter().filter(|id| !self.learners.contains_key(id)).map(|id| self.tensor(id).elements() as u64).sum()
    }

    /// Says where the first result of an operator is.
    ///
    /// # Errors
    /// When the layer makes another number of elements than the operator: its kind does not stand for the operator.
    fn made(&mut self, op: &Op<'_>, place: Place) -> Result<(), Issue> {
        self.made_at(op, 0, place)
    }

    fn made_at(&mut self, op: &Op<'_>, position: usize, place: Place) -> Result<(), Issue> {
        let Some(&id) = op.outputs.get(position) else { return Ok(()) };
        let expected = self.dims(id)?;
        let count = joulecast_model::base::shape::product(&expected);
        if place.shape.elements() != count {
            return Err(Issue::Wrong(format!("no layer makes {expected:?} of it, only {}", place.shape)));
        }
        self.places.insert(id, place);
        Ok(())
    }

    /// The result is its input, seen otherwise or not at all changed.
    fn alias(&mut self, op: &Op<'_>) -> Result<(), Issue> {
        let place = self.places.get(&self.activation(op, 0)?).cloned().ok_or("its input is not computed")?;
        self.made(op, place)
    }

    fn network(mut self, name: &str, source: String) -> Result<Network, OnnxError> {
        let mut outputs: Vec<usize> = Vec::new();
        let made = self.graph.outputs.iter().filter_map(|id| self.places.get(id).map(|p| p.source));
        for source in made.chain(self.kept.iter().copied()) {
            match source {
                Source::Node(i) if !outputs.contains(&i) => outputs.push(i),
                _ => {}
            }
        }
        if outputs.is_empty() || self.inputs.is_empty() {
            return Err(OnnxError::Format("no output of it is computed from an input".into()));
        }
        let derived = self.derived();
        let renumbered = self.drop_unread(&outputs);
        let last = self.nodes.len() - 1;
        let mut outputs: Vec<usize> = outputs.iter().map(|i| renumbered[*i]).filter(|i| *i != last).collect();
        outputs.sort_unstable();
        if let Some(note) = self.graph.selection_note() {
            self.notes.push(note);
        }
        let folded = self.nodes.iter().filter(|n| n.folded.holds()).count();
        self.notes.extend((folded > 0).then(|| folding::open(folded)));
        if self.zeros > 0 {
            self.notes.push(format!(
                "{} biases that the export left out because they are zero are taken to be there",
                self.zeros
            ));
        }
        for (_, skipped) in &self.graph.skipped {
            self.notes.push(format!("left out: {skipped}"));
        }
        self.notes.extend((!derived.is_empty()).then(|| each_step(derived.len())));
        let name = Names::default().unique(name);
        let network = Network {
            title: name.clone(),
            name,
            source,
            aliases: vec![],
            published: Published::default(),
            inputs: self.inputs,
            nodes: self.nodes,
            outputs,
            derived,
            notes: self.notes,
            stated: Stated::default(),
        };
        Ok(network)
    }

    /// Drops layers that no output needs; says where each of the others went.
    fn drop_unread(&mut self, outputs: &[usize]) -> Vec<usize> {
        let mut needed = vec![false; self.nodes.len()];
        outputs.iter().for_each(|&i| needed[i] = true);
        for i in (0..self.nodes.len()).rev() {
            if needed[i] {
                for source in self.nodes[i].from.iter() {
                    if let Source::Node(j) = source {
                        needed[*j] = true;
                    }
                }
            }
        }
        let mut count = 0;
        let place: Vec<usize> = needed
            .iter()
            .map(|&n| {
                count += usize::from(n);
                count - usize::from(n)
            })
            .collect();
        let mut keep = needed.iter();
        self.nodes.retain(|_| *keep.next().unwrap_or(&false));
        for node in &mut self.nodes {
            relocate(&mut node.from, &place);
            node.tied = node.tied.filter(|&i| needed[i]).map(|i| place[i]);
        }
        place
    }
}

/// What is said of an input that no layer reads.
fn unread(name: &str) -> String {
    format!("input {name} costs nothing: no layer reads it")
}

/// A shape of dimensions; of more than four, the outer ones are taken together.
fn shape(dims: &[u64]) -> Result<Shape, Issue> {
    const MOST: usize = 4;
    let outer = dims.len().saturating_sub(MOST - 1);
    if dims.len() <= MOST {
        return Ok(Shape::new(dims).map_err(|e| e.to_string())?);
    }
    let joined: Vec<u64> = std::iter::once(joulecast_model::base::shape::product(&dims[..outer]))
        .chain(dims[outer..].iter().copied())
        .collect();
    Ok(Shape::new(&joined).map_err(|e| e.to_string())?)
}

fn text(issue: Issue) -> String {
    match issue {
        Issue::Wrong(why) => why,
        other => format!("{other:?}"),
    }
}

/// A dimension with the batch written as N.
fn symbolic(dim: i64, marker: i64) -> String {
    match (dim > 0 && dim % marker == 0, dim / marker) {
        (true, 1) => "N".to_string(),
        (true, times) => format!("{times}N"),
        _ => dim.to_string(),
    }
}

/// Product of dimensions as a count.
fn count(dims: &[i64]) -> u64 {
    elements(dims).and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX)
}
