//! Every layer kind as operators.

use super::site::Site;
use super::{Int, Ints, Real, Word, Writer};
use crate::onnx::wire::element;
use joulecast_model::net::layer::{
    Activation, Conv2d, Conv3d, ConvTranspose2d, Copied, Elementwise, Gradient, Interpolation, Layer, OnnxForm,
    OnnxValue, Pair, PoolOp, Triple, Width, Window,
};

/// More operators than these are written for no layer.
const MOST_OPERATORS: u64 = 16;

fn both(pair: Pair) -> [i64; 2] {
    [pair.h as i64, pair.w as i64]
}

fn around(pair: Pair) -> [i64; 4] {
    let [h, w] = both(pair);
    [h, w, h, w]
}

fn all(triple: Triple) -> [i64; 3] {
    [triple.d, triple.h, triple.w].map(|v| v as i64)
}

impl Writer<'_> {
    /// Appends the operators of a layer.
    ///
    /// # Errors
    /// When there are none.
    pub fn translate(&mut self, layer: &Layer, site: &Site<'_>) -> Result<(), String> {
        let (x, name, rank) = (site.x().to_string(), site.name, site.dims().len() as i64);
        match layer {
            Layer::Conv2d(conv) => self.convolution(conv, site),
            Layer::Linear(linear) => self.linear(linear.features, linear.bias, site),
            Layer::Matmul(_) => self.node("MatMul", &[&x, &site.from[1]], name, &[]),
            Layer::Pool2d(pool) => self.pool(pool.op, pool.window(), site),
            Layer::AdaptivePool2d(pool) if pool.output.is(1) => self.global_pool(pool.op, site),
            Layer::AdaptivePool2d(pool) => {
                let [_, h, w] = site.dims() else { return Err("its input is no map".into()) };
                let (oh, ow) = (pool.output.h, pool.output.w);
                if !h.is_multiple_of(oh) || !w.is_multiple_of(ow) {
                    return Err(format!("no ONNX operator pools {h}x{w} to {oh}x{ow}"));
                }
                let kernel = Pair { h: h / oh, w: w / ow };
                let (padding, dilation) = (Pair::square(0), Pair::square(1));
                self.pool(pool.op, Window { kernel, stride: kernel, padding, dilation, ceil: false }, site);
            }
            Layer::GlobalPool2d(pool) => self.global_pool(pool.op, site),
            Layer::Activation(activation) => self.activation(activation, site),
            Layer::BatchNorm(norm) => self.batch_norm(norm.affine, site),
            Layer::Scale(scale) => self.scale(scale.bias, site),
            Layer::LocalResponseNorm(norm) => self.node("LRN", &[&x], name, &[("size", Int(norm.size as i64))]),
            Layer::LayerNorm(norm) => self.layer_norm(norm.affine, site),
            Layer::GroupNorm(norm) => {
                // Factors per channel since operator set 21, per group before.
                self.modern = true;
                let channels = site.read[0].dims().first().copied().unwrap_or(1);
                let (weight, bias) = self.factor_and_shift(norm.affine, channels, site);
                let groups = ("num_groups", Int(norm.groups as i64));
                self.node("GroupNormalization", &[&x, &weight, &bias], name, &[groups]);
            }
            Layer::RmsNorm(_) => {
                self.modern = true;
                let weight = self.weight_of(site, &[site.read[0].last()]);
                self.node("RMSNormalization", &[&x, &weight], name, &[("axis", Int(-1))]);
            }
            Layer::Softmax(softmax) => {
                let axis = match (rank, softmax.middle, softmax.last) {
                    (3, true, _) => 2,
                    (3, false, false) => 1,
                    _ => -1,
                };
                self.node("Softmax", &[&x], name, &[("axis", Int(axis))]);
            }
            Layer::Dropout(dropout) => {
                let ratio = self.number(&site.named("ratio"), dropout.probability as f32);
                self.node("Dropout", &[&x, &ratio], name, &[]);
            }
            Layer::Concat(concat) => {
                let usual = if rank == 3 { 0 } else { site.dims().len() - 1 };
                let axis = concat.axis.unwrap_or(usual) as i64 + 1;
                let from: Vec<&str> = site.from.iter().map(String::as_str).collect();
                self.node("Concat", &from, name, &[("axis", Int(axis))]);
            }
            Layer::Add(_) => {
                let from = self.aligned(site);
                let from: Vec<&str> = from.iter().map(String::as_str).collect();
                self.node(if from.len() == 2 { "Add" } else { "Sum" }, &from, name, &[]);
            }
            Layer::Multiply(_) => {
                let from = self.aligned(site);
                self.node("Mul", &[&from[0], &from[1]], name, &[]);
            }
            Layer::Flatten(_) => self.node("Flatten", &[&x], name, &[("axis", Int(1))]),
            Layer::Cast(cast) => {
                let to = match cast.to {
                    Width::Wide => element::FLOAT,
                    Width::Narrow => element::FLOAT16,
                };
                self.node("Cast", &[&x], name, &[("to", Int(i64::from(to)))]);
            }
            Layer::Pad(pad) => {
                let [top, bottom, left, right] = pad.padding.map(|p| p as i64);
                let pads = self.integers(&site.named("pads"), &[0, 0, top, left, 0, 0, bottom, right]);
                let mode = if pad.mirrors { "reflect" } else { "constant" };
                self.node("Pad", &[&x, &pads], name, &[("mode", Word(mode))]);
            }
            Layer::Attention(attention) => return self.attention(attention, site),
            Layer::Embedding(embedding) => {
                let table = self.weight_of(site, &[embedding.vocabulary, embedding.features]);
                self.node("Gather", &[&table, &x], name, &[("axis", Int(0))]);
            }
            Layer::Rotary(rotary) => self.rotary(rotary, site),
            Layer::Recurrent(recurrent) => self.recurrent(recurrent, site),
            Layer::PositionEmbedding(embedding) => {
                let &[tokens, features] = site.dims() else { return Err("its input is no list of tokens".into()) };
                let positions = embedding.positions.unwrap_or(tokens);
                let mut table = self.weight_of(site, &[1, positions, features]);
                if positions > tokens {
                    let part = site.named("positions");
                    self.cut(&table, 1, [0, tokens, 1], &part);
                    table = part;
                }
                self.node("Add", &[&x, &table], name, &[]);
            }
            Layer::RelativePositionBias(bias) => self.relative_position_bias(bias.heads, bias.window, site),
            Layer::ClassToken(_) => self.class_token(site),
            // What the order of maps decides is found again by who reads the file.
            Layer::Reshape(reshape) if reshape.copy == Copied::Always => self.moved(site),
            Layer::Reshape(_) => self.reshape(&x, site.output.dims(), name),
            Layer::Permute(permute) => {
                let order: Vec<i64> = std::iter::once(0).chain(permute.order.iter().map(|&i| i as i64 + 1)).collect();
                self.node("Transpose", &[&x], name, &[("perm", Ints(&order))]);
            }
            Layer::Slice(slice) if !slice.copy => {
                let end = slice.start + (slice.size - 1) * slice.step + 1;
                self.cut(&x, slice.axis as i64 + 1, [slice.start, end, slice.step], name);
            }
            Layer::Reduce(reduce) if rank > 1 => {
                let axes = self.integers(&site.named("axes"), &[-1]);
                if reduce.variance {
                    let [mean, distance, square] = ["mean", "distance", "square"].map(|part| site.named(part));
                    self.node("ReduceMean", &[&x, &axes], &mean, &[("keepdims", Int(1))]);
                    self.node("Sub", &[&x, &mean], &distance, &[]);
                    self.node("Mul", &[&distance, &distance], &square, &[]);
                    self.node("ReduceMean", &[&square, &axes], name, &[("keepdims", Int(0))]);
                    return Ok(());
                }
                let op = if reduce.norm { "ReduceL2" } else { "ReduceMean" };
                self.node(op, &[&x, &axes], name, &[("keepdims", Int(0))]);
            }
            Layer::Resize(resize) => self.resize(resize.interpolation, site),
            Layer::ConvTranspose2d(conv) => self.transposed(conv, site),
            Layer::Conv3d(conv) => self.convolution_of_volumes(conv, site),
            Layer::Pool3d(pool) => {
                let stride = pool.stride.unwrap_or(pool.kernel);
                let attributes = [
                    ("kernel_shape", Ints(&all(pool.kernel))),
                    ("strides", Ints(&all(stride))),
                    ("pads", Ints(&[all(pool.padding), all(pool.padding)].concat())),
                    ("ceil_mode", Int(pool.ceil.into())),
                ];
                let op = if pool.op == PoolOp::Max { "MaxPool" } else { "AveragePool" };
                self.node(op, &[&x], name, &attributes);
            }
            Layer::Elementwise(elementwise) => return self.elementwise(elementwise, site),
            Layer::Reduce(_) | Layer::Slice(_) | Layer::LatentAttention(_) | Layer::Experts(_) => {
                return Err(format!("no ONNX operator stands for {}", layer.kind()));
            }
        }
        Ok(())
    }

    /// Which operation it is, is not part of a network here: operators that compute, read and write as much. More than two
    /// operations are several operators, of which a reader makes a kernel each.
    fn elementwise(&mut self, elementwise: &Elementwise, site: &Site<'_>) -> Result<(), String> {
        let unknown = |why: &str| Err(format!("no ONNX operator stands for elementwise with {why}"));
        if elementwise.im2col > 0 || elementwise.col2im > 0 {
            return unknown("windows of maps");
        }
        if site.output != site.read[0] {
            return unknown("a result of another shape than its first input's");
        }
        let last = site.read[0].last();
        let learned = match elementwise.parameters {
            0 => None,
            n if n == last => Some([n]),
            _ => return unknown("learned values that are not one of each feature"),
        };
        let mut inputs = self.aligned(site);
        inputs.extend(learned.map(|dims| self.weight_of(site, &dims)));
        let spreads = |dims: &[u64]| dims.iter().rev().zip(site.dims().iter().rev()).all(|(a, b)| a == b || *a == 1);
        if !site.read.iter().all(|shape| shape.dims().len() <= site.dims().len() && spreads(shape.dims())) {
            return unknown("inputs that do not spread over its result");
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let (first, done) = match (inputs.len(), elementwise.ops) {
            (_, 0) => return unknown("no operation"),
            (1, 1) => ("Neg", 1),
            (1, _) => ("Shrink", 2),
            (2, 1) if elementwise.gradient == Gradient::Divides => ("Div", 1),
            (2, 1) => ("Sub", 1),
            (2, _) => ("Mod", 2),
            _ => ("Max", 1),
        };
        if elementwise.ops > MOST_OPERATORS {
            return unknown("so many operations");
        }
        let part = |i: u64| if i == elementwise.ops { site.name.to_string() } else { site.named(&format!("part_{i}")) };
        self.node(first, &inputs, &part(done), &[]);
        for i in done + 1..=elementwise.ops {
            self.node("Neg", &[&part(i - 1)], &part(i), &[]);
        }
        Ok(())
    }

    fn convolution(&mut self, conv: &Conv2d, site: &Site<'_>) {
        let channels = site.dims()[0];
        let groups = conv.groups(channels);
        let attributes = [
            ("kernel_shape", Ints(&both(conv.kernel))),
            ("strides", Ints(&both(conv.stride))),
            ("pads", Ints(&around(conv.padding))),
            ("dilations", Ints(&both(conv.dilation))),
            ("group", Int(groups as i64)),
        ];
        let dims = [conv.channels, channels / groups, conv.kernel.h, conv.kernel.w];
        self.weighted("Conv", site, &dims, conv.bias.then_some(conv.channels), &attributes);
    }

    fn transposed(&mut self, conv: &ConvTranspose2d, site: &Site<'_>) {
        let channels = site.dims()[0];
        let groups = conv.groups(channels);
        let attributes = [
            ("kernel_shape", Ints(&both(conv.kernel))),
            ("strides", Ints(&both(conv.stride))),
            ("pads", Ints(&around(conv.padding))),
            ("output_padding", Ints(&both(conv.output_padding))),
            ("dilations", Ints(&both(conv.dilation))),
            ("group", Int(groups as i64)),
        ];
        let dims = [channels, conv.channels / groups, conv.kernel.h, conv.kernel.w];
        self.weighted("ConvTranspose", site, &dims, conv.bias.then_some(conv.channels), &attributes);
    }

    fn convolution_of_volumes(&mut self, conv: &Conv3d, site: &Site<'_>) {
        let channels = site.dims()[0];
        let groups = conv.groups(channels);
        let attributes = [
            ("kernel_shape", Ints(&all(conv.kernel))),
            ("strides", Ints(&all(conv.stride))),
            ("pads", Ints(&[all(conv.padding), all(conv.padding)].concat())),
            ("dilations", Ints(&all(conv.dilation))),
            ("group", Int(groups as i64)),
        ];
        let dims = [conv.channels, channels / groups, conv.kernel.d, conv.kernel.h, conv.kernel.w];
        self.weighted("Conv", site, &dims, conv.bias.then_some(conv.channels), &attributes);
    }

    fn pool(&mut self, op: PoolOp, window: Window, site: &Site<'_>) {
        let attributes = [
            ("kernel_shape", Ints(&both(window.kernel))),
            ("strides", Ints(&both(window.stride))),
            ("pads", Ints(&around(window.padding))),
            ("ceil_mode", Int(window.ceil.into())),
        ];
        let op = if op == PoolOp::Max { "MaxPool" } else { "AveragePool" };
        self.node(op, &[site.x()], site.name, &attributes);
    }

    fn global_pool(&mut self, op: PoolOp, site: &Site<'_>) {
        let op = if op == PoolOp::Max { "GlobalMaxPool" } else { "GlobalAveragePool" };
        self.node(op, &[site.x()], site.name, &[]);
    }

    fn linear(&mut self, features: u64, bias: bool, site: &Site<'_>) {
        let length = site.read[0].last();
        // As frameworks keep it, so that a table of words can be used once more.
        let weight = self.weight_of(site, &[features, length]);
        let bias = bias.then(|| self.vector_of(site, "bias", &[features]));
        if site.dims().len() == 1 {
            let inputs: Vec<&str> = [site.x(), &weight].into_iter().chain(bias.as_deref()).collect();
            return self.node("Gemm", &inputs, site.name, &[("transB", Int(1))]);
        }
        let columns = site.named("columns");
        self.node("Transpose", &[&weight], &columns, &[("perm", Ints(&[1, 0]))]);
        match bias {
            None => self.node("MatMul", &[site.x(), &columns], site.name, &[]),
            Some(bias) => {
                let product = site.named("product");
                self.node("MatMul", &[site.x(), &columns], &product, &[]);
                self.node("Add", &[&product, &bias], site.name, &[]);
            }
        }
    }

    fn activation(&mut self, activation: &Activation, site: &Site<'_>) {
        let (x, name) = (site.x(), site.name);
        match activation.function.written() {
            OnnxForm::Operator(operator) => self.node(operator, &[x], name, &[]),
            OnnxForm::With(operator, attribute, OnnxValue::Word(w)) => {
                self.node(operator, &[x], name, &[(attribute, Word(w))]);
            }
            OnnxForm::With(operator, attribute, OnnxValue::Real(v)) => {
                self.node(operator, &[x], name, &[(attribute, Real(v))]);
            }
            OnnxForm::Gated(operator) => {
                let gate = site.named(&operator.to_ascii_lowercase());
                self.node(operator, &[x], &gate, &[]);
                self.node("Mul", &[x, &gate], name, &[]);
            }
            OnnxForm::Clipped(low, high) => {
                let limits = [("min", low), ("max", high)].map(|(part, v)| self.number(&site.named(part), v));
                self.node("Clip", &[x, &limits[0], &limits[1]], name, &[]);
            }
        }
    }

    fn batch_norm(&mut self, affine: bool, site: &Site<'_>) {
        let channels = [site.read[0].axis()];
        let (weight, bias) = self.factor_and_shift(affine, channels[0], site);
        let mean = self.weight(&site.named("running_mean"), &channels);
        let variance = self.weight(&site.named("running_var"), &channels);
        self.node("BatchNormalization", &[site.x(), &weight, &bias, &mean, &variance], site.name, &[]);
    }

    /// What a normalization multiplies and adds per channel; where that is not learned, ones and zeros that are spread over
    /// the channels.
    fn factor_and_shift(&mut self, affine: bool, channels: u64, site: &Site<'_>) -> (String, String) {
        if affine {
            return (self.weight_of(site, &[channels]), self.vector_of(site, "bias", &[channels]));
        }
        let dims = self.integers(&site.named("channels"), &[channels as i64]);
        let mut spread = |part: &str, value: f32| {
            let one = self.number(&site.named(&format!("{part}.each")), value);
            let all = site.named(part);
            self.node("Expand", &[&one, &dims], &all, &[]);
            all
        };
        (spread("ones", 1.0), spread("zeros", 0.0))
    }

    /// Dimensions of one value per channel of a map, or per feature of a row, as they spread over a batch.
    fn per_channel(site: &Site<'_>) -> Vec<u64> {
        match site.dims() {
            [channels, _, _] => vec![*channels, 1, 1],
            _ => vec![site.read[0].axis()],
        }
    }

    fn scale(&mut self, bias: bool, site: &Site<'_>) {
        let dims = Self::per_channel(site);
        let weight = self.weight_of(site, &dims);
        if !bias {
            return self.node("Mul", &[site.x(), &weight], site.name, &[]);
        }
        let bias = self.vector_of(site, "bias", &dims);
        let scaled = site.named("scaled");
        self.node("Mul", &[site.x(), &weight], &scaled, &[]);
        self.node("Add", &[&scaled, &bias], site.name, &[]);
    }

    /// Over rows there is an operator; over the channels of a map it takes several.
    fn layer_norm(&mut self, affine: bool, site: &Site<'_>) {
        let over_channels = site.dims().len() == 3;
        if affine && !over_channels {
            let dims = [site.read[0].last()];
            let (weight, bias) = (self.weight_of(site, &dims), self.vector_of(site, "bias", &dims));
            let inputs = [site.x(), &weight, &bias];
            return self.node("LayerNormalization", &inputs, site.name, &[("axis", Int(-1))]);
        }
        let axes = self.integers(&site.named("axes"), &[if over_channels { 1 } else { -1 }]);
        let (two, small) = (self.number(&site.named("two"), 2.0), self.number(&site.named("epsilon"), 1e-6));
        let part = |name: &str| site.named(name);
        let normal = if affine { part("normal") } else { site.name.to_string() };
        self.node("ReduceMean", &[site.x(), &axes], &part("mean"), &[]);
        self.node("Sub", &[site.x(), &part("mean")], &part("centred"), &[]);
        self.node("Pow", &[&part("centred"), &two], &part("square"), &[]);
        self.node("ReduceMean", &[&part("square"), &axes], &part("variance"), &[]);
        self.node("Add", &[&part("variance"), &small], &part("shifted"), &[]);
        self.node("Sqrt", &[&part("shifted")], &part("deviation"), &[]);
        self.node("Div", &[&part("centred"), &part("deviation")], &normal, &[]);
        if affine {
            let dims = Self::per_channel(site);
            let (weight, bias) = (self.weight_of(site, &dims), self.vector_of(site, "bias", &dims));
            self.node("Mul", &[&normal, &weight], &part("scaled"), &[]);
            self.node("Add", &[&part("scaled"), &bias], site.name, &[]);
        }
    }

    /// The inputs with as many dimensions as the first one, which the batch would keep from spreading otherwise.
    fn aligned(&mut self, site: &Site<'_>) -> Vec<String> {
        let rank = site.dims().len();
        let mut names = Vec::new();
        for (i, (name, shape)) in site.from.iter().zip(&site.read).enumerate() {
            let short = rank - shape.dims().len().min(rank);
            if short == 0 {
                names.push(name.clone());
                continue;
            }
            let spread = site.named(&format!("input_{i}"));
            let dims: Vec<u64> = std::iter::repeat_n(1, short).chain(shape.dims().iter().copied()).collect();
            self.reshape(name, &dims, &spread);
            names.push(spread);
        }
        names
    }

    /// A copy: a transposition of as many elements.
    fn moved(&mut self, site: &Site<'_>) {
        let elements = site.read[0].elements();
        let rows = (2..=4096).find(|n| elements.is_multiple_of(*n)).unwrap_or(elements);
        let part = |name: &str| site.named(name);
        self.reshape(site.x(), &[1, rows, elements / rows], &part("rows"));
        self.node("Transpose", &[&part("rows")], &part("columns"), &[("perm", Ints(&[0, 1, 3, 2]))]);
        self.reshape(&part("columns"), site.output.dims(), site.name);
    }

    fn cut(&mut self, input: &str, axis: i64, [start, end, step]: [u64; 3], output: &str) {
        let mut list = |part: &str, value: i64| self.integers(&format!("{output}.{part}"), &[value]);
        let inputs = [
            input.to_string(),
            list("start", start as i64),
            list("end", end as i64),
            list("axis", axis),
            list("step", step as i64),
        ];
        self.node("Slice", &inputs.each_ref().map(String::as_str), output, &[]);
    }

    fn resize(&mut self, interpolation: Interpolation, site: &Site<'_>) {
        let axes = [2, 3];
        let sizes: Vec<i64> = site.output.dims()[1..].iter().map(|&d| d as i64).collect();
        let sizes = self.integers(&site.named("sizes"), &sizes);
        let mode = match interpolation {
            Interpolation::Nearest => "nearest",
            Interpolation::Linear => "linear",
            Interpolation::Cubic => "cubic",
        };
        let attributes = [("axes", Ints(&axes)), ("mode", Word(mode)), ("cubic_coeff_a", Real(-0.75))];
        self.node("Resize", &[site.x(), "", "", &sizes], site.name, &attributes);
    }
}
