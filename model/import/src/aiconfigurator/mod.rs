//! Kernel timings of NVIDIA AIConfigurator (ai-dynamo/aiconfigurator, Apache-2.0): products, attention and mixtures of experts
//! as vLLM, SGLang and TensorRT-LLM call them.
//!
//! Its collector replays a CUDA graph where it can and takes the mean of six runs; weights rotate over copies beyond the
//! second-level cache (as far as six copies are), activations stay in one place: [`Cache::Hot`]. The input of an fp8 product
//! is bf16, and its quantisation is part of the time. One row here is one shape on one GPU: the median over frameworks, with
//! the fastest and the slowest as its quantiles.

mod experts;
mod thin;

pub use experts::{Experts, experts};

use super::{Imported, check, seconds, shown};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::kernel::setting::Cache;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{self, Layer, Linear};
use joulecast_model::rows::measurement::{Measurement, Order};
use std::collections::BTreeMap;

/// Key in `data/published/sources.toml`.
pub const SOURCE: &str = "aiconfigurator";

/// The source's names of GPUs, and those in `data/gpus`.
const GPUS: &[(&str, &str)] = &[
    ("a100_sxm", "a100-sxm4-80gb"),
    ("h100_sxm", "h100-sxm"),
    ("h200_sxm", "h200"),
    ("l40s", "l40s"),
    ("b200_sxm", "b200"),
];

/// The name in `data/gpus` of one of the source's.
pub fn board(theirs: &str) -> Option<&'static str> {
    GPUS.iter().find(|(name, _)| *name == theirs).map(|(_, ours)| *ours)
}

/// TensorRT-LLM's fp8 products compute the input's scale in kernels of their own: 12 us whatever the shape.
const FLOORED: (&str, &str) = ("trtllm", "fp8");

/// Whether a GPU of the catalogue computes in a precision.
pub type Known<'k> = &'k dyn Fn(&str, Precision) -> bool;

/// A product as a framework timed it: `m` rows of an input times the transposed weights `[n, k]`.
#[derive(Clone, Copy, Debug)]
pub struct Product<'t> {
    /// In the source's words.
    pub gpu: &'t str,
    /// `vllm`, `sglang` or `trtllm`.
    pub framework: &'t str,
    /// Format of the weights in the source's words.
    pub dtype: &'t str,
    /// Rows of the input, its columns and those of the result.
    pub mnk: [i64; 3],
    /// Time of a call, us.
    pub time_us: f64,
}

/// Attention of whole prompts without earlier context, or of one new token a request against a cache.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'t> {
    /// In the source's words.
    pub gpu: &'t str,
    /// `vllm`, `sglang` or `trtllm`.
    pub framework: &'t str,
    /// Formats of the arithmetic and of the cache.
    pub dtypes: [&'t str; 2],
    /// Requests.
    pub batch: i64,
    /// Tokens a request: of the prompt, or in the cache with the new one.
    pub tokens: i64,
    /// Heads of queries, heads of keys and values, features of a head.
    pub heads: [i64; 3],
    /// Tokens that one attends to at most; 0 for all.
    pub window: i64,
    /// Time of a call, us.
    pub time_us: f64,
}

/// A shape on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point<S> {
    gpu: &'static str,
    precision: &'static str,
    /// What folds keep together, and how many rows of it.
    shape: S,
    size: u64,
}

/// Times by framework of every point.
type Times<'t, S> = BTreeMap<Point<S>, Vec<(&'t str, f64)>>;

fn positive<const N: usize>(values: [i64; N]) -> Option<[u64; N]> {
    values.iter().all(|&v| v > 0).then(|| values.map(i64::unsigned_abs))
}

/// The GPU's name in the catalogue, where that has it and it computes in the precision.
fn gpu(name: &str, precision: Precision, known: Known<'_>) -> Result<&'static str, String> {
    let ours = board(name).ok_or_else(|| format!("unknown device {}", shown(name)))?;
    known(ours, precision).then_some(ours).ok_or_else(|| format!("the catalogue has no {ours} with {precision}"))
}

/// Matrix products in bf16 and fp8 as linear layers without bias.
pub fn products<'t>(rows: impl Iterator<Item = Product<'t>>, known: Known<'_>) -> Imported {
    let mut imported = Imported::default();
    let mut times: Times<'_, (u64, u64)> = BTreeMap::new();
    for row in rows {
        match product(&row, known) {
            Ok((point, time)) => times.entry(point).or_default().push((row.framework, time)),
            Err(reason) => imported.skip(reason),
        }
    }
    times.retain(|point, list| {
        let floored = list.iter().all(|(framework, _)| (*framework, point.precision) == FLOORED);
        (0..list.len()).take_while(|_| floored).for_each(|_| {
            imported.skip("only by TensorRT-LLM, whose fp8 products have a floor of 12 us");
        });
        !floored
    });
    for (point, list) in thin::thinned(times, thin::PRODUCTS, thin::on_grid, &mut imported) {
        let (n, k) = point.shape;
        let layer = Layer::Linear(Linear { features: n, bias: false });
        let row = Shape::new(&[k]).map_err(|e| e.to_string()).and_then(|input| {
            measurement(&point, LayerCase { inputs: vec![input], layer }, &list, format!("gemm:{}x{n}x{k}", point.size))
        });
        match row {
            Ok(row) => imported.rows.push(Measurement { layout: Some(Order::Nt), ..row }),
            Err(reason) => imported.skip(reason),
        }
    }
    imported
}

/// What products with weights in such a format compute in.
fn multiplied_in(dtype: &str) -> Result<Precision, String> {
    match dtype {
        "bfloat16" => Ok(Precision::Bf16),
        "fp8" => Ok(Precision::Fp8),
        // Scales by block or fixed beforehand and weights alone in 8 bits are other kernels than `fp8`.
        _ => Err(format!("products in {}", shown(dtype))),
    }
}

fn product(row: &Product<'_>, known: Known<'_>) -> Result<(Point<(u64, u64)>, f64), String> {
    let precision = multiplied_in(row.dtype)?;
    let gpu = gpu(row.gpu, precision, known)?;
    let [m, n, k] = positive(row.mnk).ok_or("m, n or k is not a whole number from 1")?;
    let time = seconds(row.time_us, 1e-6).ok_or("time_us is not a time")?;
    Ok((Point { gpu, precision: precision.name(), shape: (n, k), size: m }, time))
}

/// Attention in bf16 with a cache in bf16 and over all tokens: prompts (`decode` false), or steps of one token.
pub fn attention<'t>(rows: impl Iterator<Item = Attention<'t>>, decode: bool, known: Known<'_>) -> Imported {
    let mut imported = Imported::default();
    let mut times: Times<'_, [u64; 4]> = BTreeMap::new();
    for row in rows {
        match attended(&row, decode, known) {
            Ok((point, time)) => times.entry(point).or_default().push((row.framework, time)),
            Err(reason) => imported.skip(reason),
        }
    }
    let word = if decode { "generation" } else { "context" };
    for (point, list) in thin::thinned(times, thin::ATTENTION, |_| true, &mut imported) {
        let [heads, kv_heads, dimension, tokens] = point.shape;
        let row = case(heads, kv_heads, dimension, tokens, decode).and_then(|case| {
            let id = format!("{word}:{heads}/{kv_heads}x{dimension}:{}x{tokens}", point.size);
            measurement(&point, case, &list, id)
        });
        match row {
            Ok(row) => imported.rows.push(row),
            Err(reason) => imported.skip(reason),
        }
    }
    imported
}

fn attended(row: &Attention<'_>, decode: bool, known: Known<'_>) -> Result<(Point<[u64; 4]>, f64), String> {
    let precision = Precision::Bf16;
    if row.dtypes != ["bfloat16"; 2] {
        return Err(format!("attention in {} with a cache in {}", shown(row.dtypes[0]), shown(row.dtypes[1])));
    }
    if row.window != 0 {
        return Err("attention over a window".to_string());
    }
    let gpu = gpu(row.gpu, precision, known)?;
    let [batch, tokens] = positive([row.batch, row.tokens]).ok_or("batch or tokens is not a whole number from 1")?;
    let [heads, kv_heads, dimension] = positive(row.heads).ok_or("heads are not whole numbers from 1")?;
    if decode && tokens < 2 {
        return Err("a step against an empty cache".to_string());
    }
    let time = seconds(row.time_us, 1e-6).ok_or("time_us is not a time")?;
    Ok((Point { gpu, precision: precision.name(), shape: [heads, kv_heads, dimension, tokens], size: batch }, time))
}

/// Causal attention that fills a cache, or of one token against it.
fn case(heads: u64, kv_heads: u64, dimension: u64, tokens: u64, decode: bool) -> Result<LayerCase, String> {
    let (new, cached) = if decode { (1, tokens - 1) } else { (tokens, 0) };
    let row = |heads: u64| Shape::new(&[new, heads.saturating_mul(dimension)]).map_err(|e| e.to_string());
    let (kv, cached) = (Some(kv_heads), Some(cached));
    let layer = layer::Attention { kv_heads: kv, causal: true, cached, ..layer::Attention::of(heads) };
    Ok(LayerCase { inputs: vec![row(heads)?, row(kv_heads)?, row(kv_heads)?], layer: Layer::Attention(layer) })
}

/// The median over frameworks.
fn measurement<S>(point: &Point<S>, case: LayerCase, times: &[(&str, f64)], id: String) -> Result<Measurement, String> {
    check(&case)?;
    let precision = Precision::from_name(point.precision).ok_or("a precision without a name")?;
    let mut sorted: Vec<f64> = times.iter().map(|(_, t)| *t).collect();
    sorted.sort_by(f64::total_cmp);
    let (first, last) = sorted.first().copied().zip(sorted.last().copied()).ok_or("no times")?;
    let row = format!("{}:{}:{id}", point.gpu, point.precision);
    let mut m = Measurement::imported(SOURCE, &row, point.gpu, case, Phase::Forward, point.size, median(&sorted));
    m.precision = precision;
    m.mode = Some(Mode::Inference);
    m.cache = Some(Cache::Hot);
    m.licence = Some("Apache-2.0".to_string());
    m.method = "graph".to_string();
    m.n = Some(sorted.len() as u64);
    if sorted.len() > 1 {
        (m.time_p10_s, m.time_p90_s) = (Some(first), Some(last));
    }
    Ok(m)
}

/// Of a sorted list that is not empty; the mean of the middle two where there are two.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

#[cfg(test)]
mod tests;
