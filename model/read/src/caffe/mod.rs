//! Networks from Caffe's `.prototxt` files: the layers of the BVLC model zoo, in the old notation (`layers`, types in
//! capitals) and the new one, as they are in the phase TEST.
//!
//! Layer semantics are those of `caffe.proto` and the layers of github.com/BVLC/caffe: pooling rounds up, an
//! inner product flattens what it reads, batch normalization leaves scale and shift to a layer of its own.

mod layers;
mod text;

use joulecast_model::base::shape::Shape;
use joulecast_model::base::text::{Names, shown};
use joulecast_model::net::layer::{Layer, LayerOp, Slice};
use joulecast_model::net::network::Folded;
use joulecast_model::net::network::{Input, Network, NetworkError, Node, Published, Source, Stated};
use joulecast_model::read::MAX_LAYERS;
use std::collections::{HashMap, HashSet};
use text::Message;

/// Reads a `.prototxt` file. Shapes of inputs may be given by name, without the batch.
///
/// # Errors
/// One line that names the line of the file or the layer.
pub fn read(text: &str, name: &str, given: &[(String, Shape)]) -> Result<Network, NetworkError> {
    let file = Message::parse(text).map_err(NetworkError::Format)?;
    let layers: Vec<&Message> = file.messages("layer").chain(file.messages("layers")).collect();
    if layers.is_empty() || layers.len() > MAX_LAYERS {
        return Err(NetworkError::Format(format!("{} layers, 1 to {MAX_LAYERS} are read", layers.len())));
    }
    let mut builder = Builder { given, ..Builder::default() };
    builder.stated_inputs(&file)?;
    let used: Vec<&Message> = layers.iter().copied().filter(|l| runs_in_test(l)).collect();
    let fed: HashSet<&str> = file.texts("input").chain(used.iter().flat_map(|l| l.texts("top"))).collect();
    // Of a file that is for training alone the data are what is read all the same.
    let feeds = |l: &Message| is_data(&kind_of(l)) && l.texts("top").next().is_some_and(|top| !fed.contains(top));
    for layer in layers.into_iter().filter(|l| runs_in_test(l) || feeds(l)) {
        let called = layer.text("name").unwrap_or("layer").to_string();
        builder.layer(layer).map_err(|why| NetworkError::Layer { name: shown(&called), why })?;
    }
    if let Some((unknown, _)) = given.iter().find(|(name, _)| builder.inputs.iter().all(|i| i.name != *name)) {
        let names: Vec<&str> = builder.inputs.iter().map(|i| &i.name[..]).collect();
        let why = format!("no input named \"{}\"; this network has {}", shown(unknown), names.join(", "));
        return Err(NetworkError::Format(why));
    }
    builder.network(name, file.text("name").unwrap_or(name))
}

/// Whether a layer is there when a network is used rather than trained.
fn runs_in_test(layer: &Message) -> bool {
    let phases =
        |rule: &str| layer.messages(rule).filter_map(|r| r.text("phase")).map(str::to_string).collect::<Vec<_>>();
    let (include, exclude) = (phases("include"), phases("exclude"));
    (include.is_empty() || include.iter().any(|p| p == "TEST")) && !exclude.iter().any(|p| p == "TEST")
}

/// A layer's type without capitals and underscores: the old ones are INNER_PRODUCT.
fn kind_of(layer: &Message) -> String {
    layer.text("type").unwrap_or_default().to_ascii_lowercase().replace('_', "")
}

fn is_data(kind: &str) -> bool {
    matches!(kind, "data" | "imagedata" | "hdf5data" | "memorydata" | "windowdata" | "dummydata")
}

#[derive(Default)]
struct Builder<'g> {
    given: &'g [(String, Shape)],
    inputs: Vec<Input>,
    nodes: Vec<Node>,
    shapes: Vec<Shape>,
    /// Where the blob of a name is now: layers in place take a name over.
    blobs: HashMap<String, Source>,
    /// Blobs that are no activations: labels.
    labels: HashSet<String>,
    names: Names,
    notes: Vec<String>,
}

type Outcome<T> = Result<T, String>;

impl Builder<'_> {
    /// `input`, with `input_dim` or `input_shape`, at the top of older files.
    fn stated_inputs(&mut self, file: &Message) -> Result<(), NetworkError> {
        let dims = file.numbers("input_dim").map_err(NetworkError::Format)?;
        let shapes: Vec<&Message> = file.messages("input_shape").collect();
        for (i, name) in file.texts("input").enumerate() {
            let stated = match shapes.get(i) {
                Some(shape) => shape.numbers("dim").map_err(NetworkError::Format)?,
                None => dims.chunks(4).nth(i).unwrap_or_default().to_vec(),
            };
            self.input(name, &stated).map_err(|why| NetworkError::Format(format!("input {}: {why}", shown(name))))?;
        }
        Ok(())
    }

    /// An input of stated dimensions, the batch first.
    fn input(&mut self, name: &str, stated: &[u64]) -> Outcome<()> {
        let given = self.given.iter().find(|(n, _)| n == name).map(|(_, shape)| *shape);
        let shape = match (given, stated) {
            (Some(shape), _) => shape,
            (None, [_, sample @ ..]) if !sample.is_empty() => Shape::new(sample).map_err(|e| e.to_string())?,
            _ => return Err(format!("its shape is not in the file: give it, as in --input {}=3x227x227", shown(name))),
        };
        let own = self.names.unique(name);
        self.blobs.insert(name.to_string(), Source::Input(self.inputs.len()));
        let symbols = vec![None; shape.dims().len()];
        self.inputs.push(Input { name: own, shape, symbols, integer: false });
        Ok(())
    }

    fn layer(&mut self, layer: &Message) -> Outcome<()> {
        let kind = kind_of(layer);
        if kind.is_empty() {
            return Err("it has no type".into());
        }
        let tops: Vec<&str> = layer.texts("top").collect();
        match &kind[..] {
            "input" => {
                let shapes: Vec<&Message> = layer.message("input_param").messages("shape").collect();
                for (i, top) in tops.iter().enumerate() {
                    let shape = shapes.get(i).or(shapes.last()).map(|s| s.numbers("dim")).transpose()?;
                    self.input(top, &shape.unwrap_or_default())?;
                }
                Ok(())
            }
            _ if is_data(&kind) => {
                self.labels.extend(tops.iter().skip(1).map(|s| s.to_string()));
                let top = tops.first().ok_or("it makes nothing")?;
                let memory = layer.message("memory_data_param");
                let of = |name: &str| memory.number(name);
                let transform = layer.message("transform_param");
                let old = layer.message("data_param").number("crop_size")?;
                let crop = transform.number("crop_size")?.or(old).filter(|c| *c > 0);
                let stated = match (of("channels")?, of("height")?, of("width")?, crop) {
                    (Some(c), Some(h), Some(w), _) => vec![1, c, h, w],
                    (_, _, _, Some(side)) => {
                        let channels = if transform.truth("force_gray") == Some(true) { 1 } else { 3 };
                        if self.given.iter().all(|(name, _)| name != top) {
                            let what = format!("input {}: {channels} channels are taken of its crops", shown(top));
                            self.notes.push(what);
                        }
                        vec![1, channels, side, side]
                    }
                    _ => layer.message("dummy_data_param").message("shape").numbers("dim")?,
                };
                self.input(top, &stated)
            }
            "accuracy"
            | "silence"
            | "contrastiveloss"
            | "euclideanloss"
            | "hingeloss"
            | "infogainloss"
            | "multinomiallogisticloss"
            | "sigmoidcrossentropyloss"
            | "hdf5output"
            | "parameter"
            | "argmax" => {
                self.notes.push(format!("left out: {} ({})", shown(layer.text("name").unwrap_or("?")), shown(&kind)));
                Ok(())
            }
            "split" => {
                let from = self.reads(layer)?;
                self.blobs.extend(tops.iter().map(|top| (top.to_string(), from[0])));
                Ok(())
            }
            "slice" => self.slice(layer, &tops),
            _ => {
                let made = self.compute(layer, &kind)?;
                let top = tops.first().ok_or("it makes nothing")?;
                self.blobs.insert(top.to_string(), made);
                Ok(())
            }
        }
    }

    /// Where the blobs are that a layer reads; labels are no activations.
    fn reads(&self, layer: &Message) -> Outcome<Vec<Source>> {
        let bottoms = layer.texts("bottom").filter(|name| !self.labels.contains(*name));
        let find = |name: &str| self.blobs.get(name).copied().ok_or_else(|| format!("nothing makes {}", shown(name)));
        let from: Vec<Source> = bottoms.map(find).collect::<Result<_, _>>()?;
        if from.is_empty() { Err("it reads nothing".into()) } else { Ok(from) }
    }

    fn shape(&self, source: Source) -> Shape {
        match source {
            Source::Input(i) => self.inputs[i].shape,
            Source::Node(i) => self.shapes[i],
        }
    }

    /// Parts along the channels, a copy each.
    fn slice(&mut self, layer: &Message, tops: &[&str]) -> Outcome<()> {
        let from = self.reads(layer)?[0];
        let param = layer.message("slice_param");
        let axis = param.number("axis")?.or(param.number("slice_dim")?).unwrap_or(1);
        let axis = axis.checked_sub(1).ok_or("it takes samples out of a batch")? as usize;
        let size = *self.shape(from).dims().get(axis).ok_or("its input has no such axis")?;
        let mut points = param.numbers("slice_point")?;
        let count = tops.len() as u64;
        if points.is_empty() && count > 0 {
            points = (1..count).map(|i| size * i / count).collect();
        }
        points.push(size);
        let name = layer.text("name").unwrap_or("slice").to_string();
        let mut start = 0;
        for (top, end) in tops.iter().zip(points) {
            let size = end.checked_sub(start).filter(|s| *s > 0).ok_or("its slice_point do not rise")?;
            let part = Layer::Slice(Slice { axis, start, size, step: 1, copy: true });
            let made = self.push(&name, part, vec![from])?;
            self.blobs.insert(top.to_string(), made);
            start = end;
        }
        Ok(())
    }

    fn push(&mut self, name: &str, layer: Layer, from: Vec<Source>) -> Outcome<Source> {
        let read: Vec<Shape> = from.iter().map(|s| self.shape(*s)).collect();
        self.shapes.push(layer.output(&read).map_err(|e| e.to_string())?);
        let name = self.names.unique(name);
        self.nodes.push(Node { name: name.into(), layer, from: from.into(), tied: None, folded: Folded::No });
        Ok(Source::Node(self.nodes.len() - 1))
    }

    fn network(self, name: &str, title: &str) -> Result<Network, NetworkError> {
        let read: HashSet<Source> = self.nodes.iter().flat_map(|n| n.from.iter().copied()).collect();
        let last = self.nodes.len().checked_sub(1).ok_or_else(|| NetworkError::Format("no layers".into()))?;
        let outputs = (0..last).filter(|&i| !read.contains(&Source::Node(i))).collect();
        Ok(Network {
            name: Names::default().unique(name),
            title: shown(title),
            source: "Caffe prototxt".into(),
            aliases: vec![],
            published: Published::default(),
            inputs: self.inputs,
            nodes: self.nodes,
            outputs,
            derived: vec![],
            notes: self.notes,
            stated: Stated::default(),
        })
    }
}
