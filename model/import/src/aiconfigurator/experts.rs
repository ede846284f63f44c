//! Mixtures of experts: grouped products with their activation and the sum over a token's experts.
//!
//! In 8 bits frameworks have several kernels for one shape, some of which nobody would choose: on Hopper vLLM's CUTLASS kernels
//! for per-tensor scales take 2.6 and 3.1 times what the fastest kernel takes in bf16 (medians; H100, H200), all others 0.65 to
//! 0.75. Left out are kernels that take longer than that for most of their shapes, and single rows that take twice as long
//! (one shape on an L40S 40 times). Scales by block of 128 x 128 are how most models with experts come in fp8; their kernels
//! take what those with a scale for each tensor do (0.65 to 0.74 of bf16 on Hopper), so that both are fp8 here.

use super::{Known, Point, Times, gpu, measurement, median, positive, thin};
use crate::{Imported, seconds, shown};
use joulecast_model::base::precision::Precision;
use joulecast_model::base::shape::Shape;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{self, Layer};
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

/// A kernel in 8 bits takes no more than this of the fastest one's time in bf16, in the median over its shapes.
const MOST_OF_KERNEL: f64 = 1.0;
/// The same of a single row.
const MOST_OF_ROW: f64 = 2.0;

/// A row at its point.
struct Timed<'t> {
    point: Point<[u64; 4]>,
    row: Experts<'t>,
    time: f64,
}

impl<'t> Timed<'t> {
    /// What runs: the board, the format, the framework and its kernel.
    fn kernel(&self) -> [&'t str; 4] {
        [self.row.gpu, self.row.dtype, self.row.framework, self.row.kernel]
    }

    /// Whatever the precision.
    fn place(&self) -> (&'static str, [u64; 4], u64) {
        (self.point.gpu, self.point.shape, self.point.size)
    }
}

/// Rows without those in 8 bits that nobody would run, since 16 bits take less time.
fn sensible<'t>(rows: Vec<Timed<'t>>, imported: &mut Imported) -> Vec<Timed<'t>> {
    let mut fastest: BTreeMap<_, f64> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.point.precision == Precision::Bf16.name()) {
        let least = fastest.entry(row.place()).or_insert(row.time);
        *least = least.min(row.time);
    }
    let ratio = |row: &Timed<'_>| {
        let least = fastest.get(&row.place()).filter(|_| row.point.precision != Precision::Bf16.name());
        least.map(|least| row.time / least)
    };
    let mut kernels: BTreeMap<[&str; 4], Vec<f64>> = BTreeMap::new();
    for row in &rows {
        kernels.entry(row.kernel()).or_default().extend(ratio(row));
    }
    kernels.values_mut().for_each(|ratios| ratios.sort_by(f64::total_cmp));
    let is_slow = |ratios: &Vec<f64>| !ratios.is_empty() && median(ratios) > MOST_OF_KERNEL;
    let mut keep = |row: &Timed<'t>| {
        let reason = match (kernels.get(&row.kernel()), ratio(row)) {
            (Some(ratios), _) if is_slow(ratios) => "kernels in 8 bits that take longer than bf16 for most shapes",
            (_, Some(ratio)) if ratio > MOST_OF_ROW => "twice as long in 8 bits as in bf16",
            _ => return true,
        };
        imported.skip(reason);
        false
    };
    rows.into_iter().filter(|row| keep(row)).collect()
}

/// Gated experts in bf16 and fp8, whole or divided in their inner features, as layers over one token a sample.
pub fn experts<'t>(rows: impl Iterator<Item = Experts<'t>>, known: Known<'_>) -> Imported {
    let mut imported = Imported::default();
    let mut all = Vec::new();
    for row in rows {
        match point(&row, known) {
            Ok((point, time)) => all.push(Timed { point, row, time }),
            Err(reason) => imported.skip(reason),
        }
    }
    let mut times: Times<'_, [u64; 4]> = BTreeMap::new();
    for Timed { point, row, time } in sensible(all, &mut imported) {
        times.entry(point).or_default().push((row.framework, time));
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
    let precision = match row.dtype {
        "bfloat16" => Precision::Bf16,
        "fp8" | "fp8_block" => Precision::Fp8,
        other => return Err(format!("experts in {}", shown(other))),
    };
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
