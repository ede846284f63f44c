//! Networks from Caffe's `.prototxt` files: the layers of the BVLC model zoo, in the old notation (`layers`, types in
//! capitals) and the new one, as they are in the phase TEST.
//!
//! Layer semantics are those of `caffe.proto` and the layers of github.com/BVLC/caffe: pooling rounds up, an
//! inner product flattens what it reads, batch normalization leaves scale and shift to a layer of its own.

mod text;

use crate::layer::{
    Activation, Add, BatchNorm, Concat, Conv2d, Dropout, Elementwise, Flatten, Function, GlobalPool2d, Groups, Layer,
    LayerOp, Linear, LocalResponseNorm, Multiply, Pair, Pool2d, PoolOp, Reshape, Scale, Slice, Softmax,
};
use crate::network::{Input, MAX_LAYERS, Network, NetworkError, Node, Published, Source};
use crate::shape::Shape;
use crate::text::{Names, shown};
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
    for layer in layers.into_iter().filter(|l| runs_in_test(l)) {
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
        // Old types are in capitals: INNER_PRODUCT.
        let kind = layer.text("type").ok_or("it has no type")?.to_ascii_lowercase().replace('_', "");
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
            "data" | "imagedata" | "hdf5data" | "memorydata" | "windowdata" | "dummydata" => {
                self.labels.extend(tops.iter().skip(1).map(|s| s.to_string()));
                let top = tops.first().ok_or("it makes nothing")?;
                let memory = layer.message("memory_data_param");
                let of = |name: &str| memory.number(name);
                let stated = match (of("channels")?, of("height")?, of("width")?) {
                    (Some(c), Some(h), Some(w)) => vec![1, c, h, w],
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

    fn compute(&mut self, layer: &Message, kind: &str) -> Outcome<Source> {
        let mut from = self.reads(layer)?;
        let input = self.shape(from[0]);
        let activation = |function| Layer::Activation(Activation { function });
        let elementwise = |ops, parameters| Layer::Elementwise(Elementwise { ops, parameters, output: None });
        let name = layer.text("name").unwrap_or(kind).to_string();
        let made = match kind {
            "convolution" => convolution(layer.message("convolution_param"), input.axis())?,
            "pooling" => pooling(layer.message("pooling_param"))?,
            "innerproduct" => {
                let param = layer.message("inner_product_param");
                if input.dims().len() > 1 {
                    from[0] = self.push(&format!("{name}.flatten"), Layer::Flatten(Flatten {}), vec![from[0]])?;
                }
                let features = param.number("num_output")?.ok_or("num_output is missing")?;
                Layer::Linear(Linear { features, bias: param.truth("bias_term").unwrap_or(true) })
            }
            "relu" if layer.message("relu_param").real("negative_slope").is_some_and(|s| s != 0.0) => elementwise(2, 0),
            "relu" => activation(Function::Relu),
            "prelu" => {
                let shared = layer.message("prelu_param").truth("channel_shared") == Some(true);
                elementwise(2, if shared { 1 } else { input.axis() })
            }
            "sigmoid" => activation(Function::Sigmoid),
            "tanh" => activation(Function::Tanh),
            "elu" | "bnll" | "power" => elementwise(3, 0),
            "absval" | "exp" | "log" | "threshold" => elementwise(1, 0),
            "bias" => elementwise(1, input.axis()),
            "lrn" => {
                let param = layer.message("lrn_param");
                let size = param.number("local_size")?.unwrap_or(5);
                // Within a channel the sum is over a square.
                let within = matches!(param.text("norm_region"), Some("WITHIN_CHANNEL" | "1"));
                let size = if within { size.saturating_mul(size) } else { size };
                Layer::LocalResponseNorm(LocalResponseNorm { size })
            }
            "batchnorm" => Layer::BatchNorm(BatchNorm { affine: false }),
            "scale" => Layer::Scale(Scale { bias: layer.message("scale_param").truth("bias_term") == Some(true) }),
            "dropout" => {
                let ratio = layer.message("dropout_param").real("dropout_ratio").unwrap_or(0.5);
                Layer::Dropout(Dropout { probability: ratio })
            }
            "concat" => {
                let param = layer.message("concat_param");
                let axis = param.number("axis")?.or(param.number("concat_dim")?).unwrap_or(1);
                let axis = axis.checked_sub(1).ok_or("it joins samples of a batch")? as usize;
                let usual = if input.as_map().is_some() { 0 } else { input.dims().len() - 1 };
                Layer::Concat(Concat { axis: Some(axis).filter(|a| *a != usual) })
            }
            "eltwise" => match layer.message("eltwise_param").text("operation").unwrap_or("SUM") {
                "SUM" | "1" => Layer::Add(Add {}),
                "PROD" | "0" if from.len() == 2 => Layer::Multiply(Multiply {}),
                _ => elementwise(from.len() as u64 - 1, 0),
            },
            "softmax" | "softmaxloss" | "softmaxwithloss" => Layer::Softmax(Softmax::default()),
            "flatten" => Layer::Flatten(Flatten {}),
            "reshape" => {
                let dims: Vec<i64> = layer
                    .message("reshape_param")
                    .message("shape")
                    .texts("dim")
                    .map(|d| d.parse::<i64>().map_err(|_| "dim is not a whole number".to_string()))
                    .collect::<Result<_, _>>()?;
                let kept = |(i, d): (usize, &i64)| match d {
                    0 => input.dims().get(i).map(|&d| d as i64).ok_or("it copies a dimension that is not there"),
                    d => Ok(*d),
                };
                let shape = dims.iter().skip(1).enumerate().map(kept).collect::<Result<Vec<_>, _>>()?;
                Layer::Reshape(Reshape { shape, copy: false })
            }
            _ => return Err(format!("the layer type {} is not known", shown(layer.text("type").unwrap_or_default()))),
        };
        self.push(&name, made, from)
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
        self.nodes.push(Node { name, layer, from, tied: None });
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
            notes: self.notes,
        })
    }
}

/// A size for both directions, stated as one number, two, or as `_h` and `_w`.
fn pair(param: &Message, name: &str, stem: &str, default: Option<u64>) -> Outcome<Pair> {
    let (h, w) = (param.number(&format!("{stem}_h"))?, param.number(&format!("{stem}_w"))?);
    match (h, w, &param.numbers(name)?[..]) {
        (Some(h), Some(w), _) | (None, None, &[h, w]) => Ok(Pair { h, w }),
        (None, None, &[size]) => Ok(Pair::square(size)),
        (None, None, &[]) => default.map(Pair::square).ok_or_else(|| format!("{name} is missing")),
        _ => Err(format!("{name} is not one size or two")),
    }
}

fn convolution(param: &Message, channels_in: u64) -> Outcome<Layer> {
    let groups = param.number("group")?.unwrap_or(1);
    Ok(Layer::Conv2d(Conv2d {
        channels: param.number("num_output")?.ok_or("num_output is missing")?,
        kernel: pair(param, "kernel_size", "kernel", None)?,
        stride: pair(param, "stride", "stride", Some(1))?,
        padding: pair(param, "pad", "pad", Some(0))?,
        dilation: pair(param, "dilation", "dilation", Some(1))?,
        groups: if groups > 1 && groups == channels_in { Groups::Depthwise } else { Groups::Count(groups) },
        bias: param.truth("bias_term").unwrap_or(true),
    }))
}

fn pooling(param: &Message) -> Outcome<Layer> {
    let op = match param.text("pool").unwrap_or("MAX") {
        "MAX" | "0" => PoolOp::Max,
        "AVE" | "1" => PoolOp::Avg,
        other => return Err(format!("pooling by {} is not known", shown(other))),
    };
    if param.truth("global_pooling") == Some(true) {
        return Ok(Layer::GlobalPool2d(GlobalPool2d { op }));
    }
    Ok(Layer::Pool2d(Pool2d {
        op,
        kernel: pair(param, "kernel_size", "kernel", None)?,
        stride: Some(pair(param, "stride", "stride", Some(1))?),
        padding: pair(param, "pad", "pad", Some(0))?,
        ceil: !matches!(param.text("round_mode"), Some("FLOOR" | "1")),
    }))
}
