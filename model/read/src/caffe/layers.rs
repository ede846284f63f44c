//! What each type of layer computes.

use super::text::Message;
use super::{Builder, Outcome};
use joulecast_model::base::shape::Shape;
use joulecast_model::base::text::shown;
use joulecast_model::net::layer::{
    Activation, AdaptivePool2d, Add, BatchNorm, Concat, Conv2d, ConvTranspose2d, Copied, Dropout, Elementwise,
    Embedding, Flatten, Function, GlobalPool2d, Groups, Interpolation, Layer, Linear, LocalResponseNorm, Multiply,
    Pair, Permute, Pool2d, PoolOp, Reduce, Reshape, Resize, Scale, Softmax, Window,
};
use joulecast_model::net::network::Source;

impl Builder<'_> {
    /// Appends the layer that one of the file computes.
    ///
    /// # Errors
    /// In words, when its type is not known or its fields do not fit.
    pub(super) fn compute(&mut self, layer: &Message, kind: &str) -> Outcome<Source> {
        let mut from = self.reads(layer)?;
        let input = self.shape(from[0]);
        let elementwise =
            |ops, parameters| Layer::Elementwise(Elementwise { parameters, ..Elementwise::of(ops, None) });
        let copied = |dims: &[u64]| -> Outcome<Layer> {
            let output = Some(Shape::new(dims).map_err(|e| e.to_string())?);
            Ok(Layer::Elementwise(Elementwise::of(0, output)))
        };
        let map = || input.as_map().ok_or_else(|| format!("its input {input} is no map"));
        let name = layer.text("name").unwrap_or(kind).to_string();
        let made = match kind {
            "convolution" => convolution(layer.message("convolution_param"), input.axis())?,
            "convolutiondepthwise" | "depthwiseconvolution" => {
                match convolution(layer.message("convolution_param"), input.axis())? {
                    Layer::Conv2d(conv) => Layer::Conv2d(Conv2d { groups: Groups::Depthwise, ..conv }),
                    other => other,
                }
            }
            "deconvolution" => match convolution(layer.message("convolution_param"), input.axis())? {
                Layer::Conv2d(conv) => Layer::ConvTranspose2d(ConvTranspose2d {
                    channels: conv.channels,
                    kernel: conv.kernel,
                    stride: conv.stride,
                    padding: conv.padding,
                    output_padding: Pair::square(0),
                    dilation: conv.dilation,
                    groups: conv.groups,
                    bias: conv.bias,
                }),
                other => other,
            },
            "im2col" => {
                let window = window(layer.message("convolution_param"))?;
                let (channels, h, w) = map()?;
                let (oh, ow) = window.output(h, w).map_err(|e| e.to_string())?;
                copied(&[channels.saturating_mul(window.kernel.area()), oh, ow])?
            }
            // From the axis on as large as the second input, of which nothing else is read.
            "crop" => {
                let axis = layer.message("crop_param").number("axis")?.unwrap_or(2);
                let from_axis = axis.checked_sub(1).ok_or("it takes samples out of a batch")? as usize;
                let like = self.shape(*from.get(1).ok_or("it has no second input")?);
                let mut dims = input.dims().to_vec();
                let cut = dims.iter_mut().zip(like.dims()).skip(from_axis);
                cut.for_each(|(own, other)| *own = *other);
                from.truncate(1);
                copied(&dims)?
            }
            "embed" => {
                let param = layer.message("embed_param");
                let (features, vocabulary) = (param.number("num_output")?, param.number("input_dim")?);
                if let Source::Input(i) = from[0] {
                    self.inputs[i].integer = true;
                }
                let (features, vocabulary) = features.zip(vocabulary).ok_or("num_output or input_dim is missing")?;
                let table = Layer::Embedding(Embedding { vocabulary, features });
                if param.truth("bias_term") == Some(false) {
                    table
                } else {
                    from[0] = self.push(&format!("{name}.table"), table, vec![from[0]])?;
                    elementwise(1, features)
                }
            }
            "mvn" => elementwise(5, 0),
            "normalize" => elementwise(
                5,
                if layer.message("norm_param").truth("channel_shared") == Some(true) { 1 } else { input.axis() },
            ),
            "clip" => elementwise(2, 0),
            "reduction" => {
                let axis = layer.message("reduction_param").number("axis")?.unwrap_or(0);
                let axis = axis.checked_sub(1).ok_or("it joins samples of a batch")? as usize;
                let dims = input.dims();
                let outer = dims.get(..axis).ok_or("its input has no such axis")?;
                let inner: i64 = dims[axis..].iter().map(|&d| d as i64).product();
                let rows: i64 = outer.iter().map(|&d| d as i64).product();
                let shape = if outer.is_empty() { vec![inner] } else { vec![rows, inner] };
                if dims.len() != shape.len() {
                    let view = Layer::Reshape(Reshape { shape, copy: Copied::Never });
                    from[0] = self.push(&format!("{name}.rows"), view, vec![from[0]])?;
                }
                Layer::Reduce(Reduce::default())
            }
            "tile" => {
                let param = layer.message("tile_param");
                let axis = param.number("axis")?.unwrap_or(1);
                let axis = axis.checked_sub(1).ok_or("it repeats samples of a batch")? as usize;
                let mut dims = input.dims().to_vec();
                let size = dims.get_mut(axis).ok_or("its input has no such axis")?;
                *size = size.saturating_mul(param.number("tiles")?.ok_or("tiles is missing")?);
                copied(&dims)?
            }
            "permute" => {
                let order = layer.message("permute_param").numbers("order")?;
                let order = order.iter().filter(|o| **o > 0).map(|o| *o as usize - 1).collect();
                Layer::Permute(Permute { order, copy: true })
            }
            "shufflechannel" => Layer::Reshape(Reshape {
                shape: input.dims().iter().map(|&d| d as i64).collect(),
                copy: Copied::Always,
            }),
            "interp" | "upsample" => {
                let (param, (_, h, w)) = (layer.message(&format!("{kind}_param")), map()?);
                let times = param.number("zoom_factor")?.or(param.number("scale")?).unwrap_or(1);
                let side =
                    |name: &str, own: u64| Ok::<_, String>(param.number(name)?.unwrap_or(own.saturating_mul(times)));
                let output = Pair { h: side("height", h)?, w: side("width", w)? };
                let interpolation = if kind == "interp" { Interpolation::Linear } else { Interpolation::Nearest };
                Layer::Resize(Resize { output, interpolation })
            }
            // Pooled to 1, 4, 16 ... windows, side by side.
            "spp" => {
                let param = layer.message("spp_param");
                let levels = param.number("pyramid_height")?.filter(|l| (1..=8).contains(l));
                let levels = levels.ok_or("pyramid_height is missing, or not up to 8")?;
                let op = pool_op(param)?;
                let mut parts = Vec::new();
                for level in 0..levels {
                    let pool = AdaptivePool2d { op, output: Pair::square(1 << level) };
                    let pooled = self.push(&format!("{name}.{level}"), Layer::AdaptivePool2d(pool), vec![from[0]])?;
                    parts.push(self.push(
                        &format!("{name}.{level}.flatten"),
                        Layer::Flatten(Flatten {}),
                        vec![pooled],
                    )?);
                }
                from = parts;
                Layer::Concat(Concat { axis: None })
            }
            "lstm" | "rnn" | "recurrent" | "lstmunit" => {
                return Err(
                    "Caffe's recurrent layers have time where the batch is; write it as kind lstm or rnn".into()
                );
            }
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
            "prelu" => {
                let shared = layer.message("prelu_param").truth("channel_shared") == Some(true);
                elementwise(2, if shared { 1 } else { input.axis() })
            }
            "elu" | "power" => elementwise(3, 0),
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
                Layer::Reshape(Reshape { shape, copy: Copied::Never })
            }
            other => match Function::of_caffe(other) {
                Some(function) => Layer::Activation(Activation { function }),
                None => {
                    let named = shown(layer.text("type").unwrap_or_default());
                    return Err(format!("the layer type {named} is not known"));
                }
            },
        };
        self.push(&name, made, from)
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

/// The window of a convolution.
fn window(param: &Message) -> Outcome<Window> {
    Ok(Window {
        kernel: pair(param, "kernel_size", "kernel", None)?,
        stride: pair(param, "stride", "stride", Some(1))?,
        padding: pair(param, "pad", "pad", Some(0))?,
        dilation: pair(param, "dilation", "dilation", Some(1))?,
        ceil: false,
    })
}

fn convolution(param: &Message, channels_in: u64) -> Outcome<Layer> {
    let groups = param.number("group")?.unwrap_or(1);
    let window = window(param)?;
    Ok(Layer::Conv2d(Conv2d {
        channels: param.number("num_output")?.ok_or("num_output is missing")?,
        kernel: window.kernel,
        stride: window.stride,
        padding: window.padding,
        dilation: window.dilation,
        groups: if groups > 1 && groups == channels_in { Groups::Depthwise } else { Groups::Count(groups) },
        bias: param.truth("bias_term").unwrap_or(true),
    }))
}

fn pool_op(param: &Message) -> Outcome<PoolOp> {
    match param.text("pool").unwrap_or("MAX") {
        "MAX" | "0" => Ok(PoolOp::Max),
        "AVE" | "1" => Ok(PoolOp::Avg),
        other => Err(format!("pooling by {} is not known", shown(other))),
    }
}

fn pooling(param: &Message) -> Outcome<Layer> {
    let op = pool_op(param)?;
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
