//! NeuSight's operations as layers.

use super::super::columns::{Columns, Record};
use super::super::{check, count, shown, whole};
use joulecast_model::base::shape::Shape;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{
    Activation, Add, Conv2d, Function, Groups, Layer, LayerNorm, Linear, Matmul, Multiply, Pair, Softmax,
};
use joulecast_model::rows::measurement::Order;

/// One operation of known dimensions.
pub(super) struct Operation {
    pub name: &'static str,
    pub case: LayerCase,
    pub batch: u64,
    /// Floating-point operations of convolutions and matrix products, else the elements of one operand.
    pub work: f64,
    /// The smallest side of a matrix product; 0 for all others.
    pub narrowest: u64,
    pub layout: Option<Order>,
    /// Timings behind the mean. The script upstream keeps the 5 fastest of 25; convolutions and matrix
    /// products come from an earlier version that kept 3, as their values (multiples of a third) show.
    pub timings: u64,
}

/// Columns of dimensions; each operation has its own set, merged files have all.
pub(super) struct Dimensions {
    b: Option<usize>,
    m: Option<usize>,
    n: Option<usize>,
    k: Option<usize>,
    h: Option<usize>,
    channels_in: Option<usize>,
    channels_out: Option<usize>,
    kernel: Option<usize>,
    size: Option<usize>,
    stride: Option<usize>,
    padding: Option<usize>,
}

impl Dimensions {
    pub fn of(table: &Columns) -> Self {
        Self {
            b: table.find("B"),
            m: table.find("M"),
            n: table.find("N"),
            k: table.find("K"),
            h: table.find("H"),
            channels_in: table.find("Input_Channel"),
            channels_out: table.find("Output_Channel"),
            // Upstream's spelling; read the right one too, should it ever be mended.
            kernel: table.find("Kernel_Szie").or_else(|| table.find("Kernel_Size")),
            size: table.find("Input_Size"),
            stride: table.find("Stride"),
            padding: table.find("Padding"),
        }
    }

    /// The operation of a row, or why it is left out.
    ///
    /// The layers are as `neusight/Dataset/collect.py` upstream makes them: `Conv2d(bias=False)`;
    /// `Linear(N, K, bias=True)` on B x M rows; `bmm` of M x N by N x K, B times; `LayerNorm` with scale and
    /// shift; vectors as B rows of H.
    pub fn read(&self, name: &str, record: &Record<'_>) -> Result<Operation, String> {
        let operation = match name {
            "conv" => self.conv(record),
            "linear" | "bmm" => self.product(name == "linear", record),
            _ => {
                let Some((name, layer, operands)) = vector_layer(name) else {
                    return Err(format!("no layer kind for operation {}", shown(name)));
                };
                self.vector(name, layer, operands, record)
            }
        }
        .map_err(|e| format!("{name}: {e}"))?;
        check(&operation.case)?;
        Ok(operation)
    }

    fn conv(&self, record: &Record<'_>) -> Result<Operation, String> {
        let batch = need("B", self.b, record)?;
        let channels_in = need("Input_Channel", self.channels_in, record)?;
        let channels = need("Output_Channel", self.channels_out, record)?;
        let kernel = need("Kernel_Szie", self.kernel, record)?;
        let size = need("Input_Size", self.size, record)?;
        let stride = need("Stride", self.stride, record)?;
        let padding = record.number(self.padding).and_then(whole).ok_or("Padding is not a whole number")?;
        let layer = Layer::Conv2d(Conv2d {
            channels,
            kernel: Pair::square(kernel),
            stride: Pair::square(stride),
            padding: Pair::square(padding),
            dilation: Pair::square(1),
            groups: Groups::Count(1),
            bias: false,
        });
        let case = LayerCase { inputs: vec![shape(&[channels_in, size, size])?], layer };
        let out = case.output().map_err(|e| e.to_string())?.elements();
        let work = 2.0 * multiply(&[batch, out, channels_in, kernel, kernel]);
        Ok(Operation { name: "conv", case, batch, work, narrowest: 0, layout: Some(Order::Nchw), timings: 3 })
    }

    fn product(&self, linear: bool, record: &Record<'_>) -> Result<Operation, String> {
        let [b, m, n, k] = [("B", self.b), ("M", self.m), ("N", self.n), ("K", self.k)]
            .map(|(name, column)| need(name, column, record));
        let (b, m, n, k) = (b?, m?, n?, k?);
        let (work, narrowest) = (2.0 * multiply(&[b, m, n, k]), m.min(n).min(k));
        if linear {
            let layer = Layer::Linear(Linear { features: k, bias: true });
            let case = LayerCase { inputs: vec![shape(&[n])?], layer };
            let batch = count(multiply(&[b, m])).ok_or("B x M is too large")?;
            Ok(Operation { name: "linear", case, batch, work, narrowest, layout: Some(Order::Tn), timings: 3 })
        } else {
            let case =
                LayerCase { inputs: vec![shape(&[m, n])?, shape(&[n, k])?], layer: Layer::Matmul(Matmul::default()) };
            Ok(Operation { name: "bmm", case, batch: b, work, narrowest, layout: Some(Order::Nn), timings: 3 })
        }
    }

    fn vector(
        &self,
        name: &'static str,
        layer: Layer,
        operands: usize,
        record: &Record<'_>,
    ) -> Result<Operation, String> {
        let (batch, h) = (need("B", self.b, record)?, need("H", self.h, record)?);
        let case = LayerCase { inputs: vec![shape(&[h])?; operands], layer };
        Ok(Operation { name, case, batch, work: multiply(&[batch, h]), narrowest: 0, layout: None, timings: 5 })
    }
}

/// Layer and number of operands; powers, quotients and operations with a constant have no layer kind.
fn vector_layer(name: &str) -> Option<(&'static str, Layer, usize)> {
    let activation = |function| Layer::Activation(Activation { function });
    Some(match name {
        "add" => ("add", Layer::Add(Add {}), 2),
        "mul" => ("mul", Layer::Multiply(Multiply {}), 2),
        "relu" => ("relu", activation(Function::Relu), 1),
        "gelu" => ("gelu", activation(Function::Gelu), 1),
        "tanh" => ("tanh", activation(Function::Tanh), 1),
        "ln" => ("ln", Layer::LayerNorm(LayerNorm { affine: true }), 1),
        "softmax" => ("softmax", Layer::Softmax(Softmax::default()), 1),
        _ => return None,
    })
}

fn need(name: &str, column: Option<usize>, record: &Record<'_>) -> Result<u64, String> {
    record.number(column).and_then(count).ok_or_else(|| format!("{name} is not a whole number from 1"))
}

fn shape(dims: &[u64]) -> Result<Shape, String> {
    Shape::new(dims).map_err(|e| e.to_string())
}

fn multiply(factors: &[u64]) -> f64 {
    factors.iter().map(|&f| f as f64).product()
}
