//! Mixtures of experts: grouped products with their activation and the sum over a token's experts.

use super::{Known, Point, Times, gpu, measurement, multiplied_in, positive, thin};
use crate::base::shape::Shape;
use crate::net::case::LayerCase;
use crate::net::layer::{self, Layer};
use crate::rows::import::{Imported, seconds, shown};
use std::collections::BTreeMap;

/// Experts as a framework timed them. Tokens choose by a distribution of the source's.
#[derive(Clone, Copy, Debug)]
pub struct Experts<'t> {
    /// In the source's words.
    pub gpu: &'t str,
    /// `vllm`, `sglang` or `trtllm`.
    pub framework: &'t str,
    /// Kernel, in the source's words.
    pub kernel: &'t str,
    /// Format of the weights in the source's words.
    pub dtype: &'t str,
    /// How tokens choose, in the source's words.
    pub distribution: &'t str,
    /// Tokens of the step.
    pub tokens: i64,
    /// Features of the network, and inner features of an expert on all GPUs.
    pub features: [i64; 2],
    /// Experts of a token, and experts on all GPUs.
    pub experts: [i64; 2],
    /// GPUs that share each expert, and GPUs among which experts are divided.
    pub among: [i64; 2],
    /// Time of a call, us.
    pub time_us: f64,
}

/// Of the source's distributions that which is nearest to tokens that choose by themselves: at 32 tokens it takes 0.87 to 0.91
/// of the time of `balanced`, 128 experts of which a token takes 8 would be read to 0.87.
const BY_THEMSELVES: &str = "power_law_1.01";

/// Gated experts in bf16 and fp8, whole or divided in their inner features, as layers over one token a sample.
pub fn experts<'t>(rows: impl Iterator<Item = Experts<'t>>, known: Known<'_>) -> Imported {
    let mut imported = Imported::default();
    let mut times: Times<'_, [u64; 4]> = BTreeMap::new();
    for row in rows {
        match point(&row, known) {
            Ok((point, time)) => times.entry(point).or_default().push((row.framework, time)),
            Err(reason) => imported.skip(reason),
        }
    }
    for (point, list) in thin::thinned(times, thin::EXPERTS, thin::on_grid, &mut imported) {
        let [features, hidden, active, experts] = point.shape;
        let id = format!("moe:{}x{features}x{hidden}:{active}/{experts}", point.size);
        let layer = layer::Experts { experts, active, hidden, gated: true, bias: false, imbalance: 1.0, part: None };
        let row = |of: u64| Shape::new(&[1, of]).map_err(|e| e.to_string());
        let case = row(features)
            .and_then(|tokens| Ok(LayerCase { inputs: vec![tokens, row(experts)?], layer: Layer::Experts(layer) }));
        match case.and_then(|case| measurement(&point, case, &list, id)) {
            Ok(row) => imported.rows.push(row),
            Err(reason) => imported.skip(reason),
        }
    }
    imported
}

fn point(row: &Experts<'_>, known: Known<'_>) -> Result<(Point<[u64; 4]>, f64), String> {
    let precision = multiplied_in(row.dtype)?;
    if row.distribution != BY_THEMSELVES {
        return Err(format!("tokens that choose by {}", shown(row.distribution)));
    }
    if row.kernel.contains("nongated") {
        return Err("experts without a gate".to_string());
    }
    let gpu = gpu(row.gpu, precision, known)?;
    let whole = "tokens, features, experts or GPUs are not whole numbers from 1";
    let [tokens, features, hidden] = positive([row.tokens, row.features[0], row.features[1]]).ok_or(whole)?;
    let ([active, experts], [shared, divided]) = positive(row.experts).zip(positive(row.among)).ok_or(whole)?;
    if divided > 1 {
        return Err("experts divided among GPUs".to_string());
    }
    if !hidden.is_multiple_of(shared) {
        return Err("inner features that do not divide".to_string());
    }
    let time = seconds(row.time_us, 1e-6).ok_or("time_us is not a time")?;
    let shape = [features, hidden / shared, active, experts];
    Ok((Point { gpu, precision: precision.name(), shape, size: tokens }, time))
}
