//! Power of kernels of 10 ms and more in NVIDIA AIConfigurator's table (H200, B200), beside predictions of one layer at the
//! default settings.

use super::{Tools, percent};
use crate::rows::aiconfigurator::{Kernel, Reading, readings};
use crate::rows::import::read_capped;
use anyhow::{Context, Result, bail};
use joulecast_model::base::accuracy::Accuracy;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::catalog;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_reports::published::{Cell, KERNELS};
use joulecast_reports::table::Table;
use std::collections::BTreeMap;
use std::path::Path;

/// Sensors give the mean of a second, and a kernel was read for 0.3 to 1: it is believed where the next shorter and longer
/// shape of its kind, measured before and after, differ no more than this.
const ALIKE: f64 = 0.05;

/// What of a reading is believed: shorter kernels are mixed with what ran before, and no board draws more than its limit.
fn believed(reading: &Reading) -> bool {
    let known = [reading.watts, reading.limit, reading.seconds].into_iter().all(|v| v.is_finite() && v > 0.0);
    known
        && reading.seconds >= 0.01
        && reading.watts <= reading.limit
        && reading.beside.is_some_and(|difference| difference <= ALIKE)
}

/// A network of the one layer.
fn network(kernel: Kernel) -> Result<(Network, u64)> {
    let (shape, layer, batch) = match kernel {
        Kernel::Product([m, n, k]) => (format!("[{k}]"), format!("kind = \"linear\", features = {n}, bias = false"), m),
        Kernel::Attention([batch, tokens, heads, kv_heads, dimension]) => (
            format!("[{tokens}, {}]", (heads + 2 * kv_heads) * dimension),
            format!("kind = \"attention\", heads = {heads}, kv_heads = {kv_heads}, causal = true, cached = 0"),
            batch,
        ),
    };
    let text = format!(
        "schema = \"network/1\"\nname = \"one\"\ntitle = \"one layer\"\nlayers = [{{ name = \"it\", {layer} }}]\n\
         [inputs]\nx = {{ shape = {shape} }}\n"
    );
    Ok((Network::from_toml(&text)?, batch))
}

/// Relative errors of power and time of kernels alike.
#[derive(Default)]
struct Group {
    watts: Vec<(f64, f64)>,
    seconds: Vec<(f64, f64)>,
    shares: Vec<f64>,
    predicted: Vec<f64>,
}

/// The comparison as a table, by board, kernel and precision.
///
/// # Errors
/// When the file cannot be read, a device is malformed or a prediction fails.
pub fn tables(path: &Path, tools: &Tools) -> Result<Vec<Table>> {
    let shown = || path.display().to_string();
    let all = readings(&read_capped(path)?).with_context(shown)?;
    let mut groups: BTreeMap<[String; 3], Group> = BTreeMap::new();
    for reading in all.iter().filter(|r| believed(r)) {
        let precision = match reading.dtype.as_str() {
            "bfloat16" => Precision::Bf16,
            "fp8" if matches!(reading.kernel, Kernel::Product(_)) => Precision::Fp8,
            _ => continue,
        };
        let kind = match reading.kernel {
            Kernel::Product(_) => "linear",
            Kernel::Attention(_) => "attention",
        };
        let gpu = catalog::gpu(&reading.gpu)?;
        let (network, batch) = network(reading.kernel)?;
        let network = ShapedNetwork::new(&network, batch, precision, &[])?;
        let predicted = tools.on(&gpu).predict(&network, Mode::Inference)?;
        let group = groups.entry([reading.gpu.clone(), kind.to_string(), precision.to_string()]).or_default();
        group.watts.push((reading.watts, predicted.power.value.get()));
        group.seconds.push((reading.seconds, predicted.time.value.get()));
        group.shares.push(reading.watts / reading.limit);
        group.predicted.push(predicted.power.value.get() / reading.limit);
    }
    if groups.is_empty() {
        bail!("{}: no reading of a product or of attention that is believed", shown());
    }
    let rows = groups.into_iter().filter_map(|([gpu, kind, precision], group)| {
        let (power, time) = (Accuracy::of(group.watts.iter().copied())?, Accuracy::of(group.seconds.iter().copied())?);
        let middle = |mut list: Vec<f64>| {
            list.sort_by(f64::total_cmp);
            list[list.len() / 2]
        };
        let signed = |pairs: &[(f64, f64)]| middle(pairs.iter().map(|(m, p)| percent(*p, *m)).collect());
        Some(vec![
            Cell::Text(gpu),
            Cell::Text(kind),
            Cell::Text(precision),
            (power.count as f64).into(),
            (100.0 * middle(group.shares)).into(),
            (100.0 * middle(group.predicted)).into(),
            power.mape.into(),
            signed(&group.watts).into(),
            time.mape.into(),
            signed(&group.seconds).into(),
        ])
    });
    Ok(vec![KERNELS.table(rows)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(watts: f64, seconds: f64, beside: Option<f64>) -> Reading {
        let kernel = Kernel::Product([32_768, 8192, 8192]);
        Reading { gpu: "h200".into(), kernel, dtype: "bfloat16".into(), seconds, watts, limit: 700.0, beside }
    }

    #[test]
    fn short_lone_restless_and_impossible_readings_are_not_believed() {
        assert!(believed(&reading(650.0, 0.02, Some(0.01))));
        for bad in [
            reading(650.0, 0.009, Some(0.01)),
            reading(650.0, 0.02, None),
            reading(650.0, 0.02, Some(0.06)),
            reading(701.0, 0.02, Some(0.01)),
            reading(f64::NAN, 0.02, Some(0.01)),
        ] {
            assert!(!believed(&bad), "{bad:?}");
        }
    }

    #[test]
    fn a_kernel_is_a_network_of_one_layer() -> Result<()> {
        let (linear, batch) = network(Kernel::Product([7, 48, 64]))?;
        let shaped = ShapedNetwork::new(&linear, batch, Precision::Bf16, &[])?;
        assert_eq!(shaped.layers().len(), 1);
        assert_eq!((batch, shaped.layers()[0].output.elements()), (7, 48));
        let (attention, batch) = network(Kernel::Attention([2, 128, 8, 2, 64]))?;
        let shaped = ShapedNetwork::new(&attention, batch, Precision::Bf16, &[])?;
        assert_eq!(shaped.layers()[0].output.dims(), [128, 8 * 64]);
        Ok(())
    }
}
