//! `predict describe`: a network's layers and what they cost.

use crate::table::{Table, significant};
use joulecast_model::base::precision::{Mode, Phase};
use joulecast_model::net::cost::LayerCost;
use joulecast_model::net::counting::{castro, castro_total};
use joulecast_model::net::network::ShapedNetwork;

/// Layers with shapes, operations, traffic, CTC and parameters; totals in the last row.
pub fn table(network: &ShapedNetwork) -> Table {
    let header = ["layer", "kind", "output", "parameters", "MMAC", "Mop", "read MB", "written MB", "op/byte"];
    let mut table = Table::new(&header, 3);
    let numbers = |c: &LayerCost| {
        let ctc = c.ctc().map_or(String::new(), |v| significant(v.get(), 3));
        [
            significant(c.macs as f64 / 1e6, 4),
            significant(c.ops.to_f64() / 1e6, 4),
            significant(c.read.to_f64() / 1e6, 4),
            significant(c.written.to_f64() / 1e6, 4),
            ctc,
        ]
    };
    let mut total = LayerCost::default();
    for layer in network.layers() {
        let cost = network.cost(layer, Phase::Forward, Mode::Inference);
        let mut cells = vec![
            layer.name.to_string(),
            layer.case.layer.kind().to_string(),
            layer.output.to_string(),
            layer.parameters().to_string(),
        ];
        if let Some(cost) = cost {
            cells.extend(numbers(&cost));
            total = total + cost;
        }
        table.row(cells);
    }
    let mut cells = vec!["total".into(), String::new(), String::new(), network.parameters().to_string()];
    cells.extend(numbers(&total));
    table.row(cells);
    table
}

/// The same as Castro et al. count (2018, Table 1), per sample: millions of operations, MB of 2^20 bytes,
/// operations per word read.
pub fn castro_table(network: &ShapedNetwork) -> Table {
    let header = ["layer", "kind", "output", "10^6 operations", "read MiB", "written MiB", "operations/word read"];
    let mut table = Table::new(&header, 3);
    for layer in network.layers() {
        if let Some(c) = castro(layer) {
            table.row(vec![
                layer.name.to_string(),
                layer.case.layer.kind().to_string(),
                layer.output.to_string(),
                format!("{:.3}", c.ops as f64 / 1e6),
                format!("{:.3}", c.read_mb()),
                format!("{:.3}", c.written_mb()),
                format!("{:.1}", c.ctc()),
            ]);
        }
    }
    let t = castro_total(network);
    table.row(vec![
        "total".into(),
        String::new(),
        String::new(),
        format!("{:.2}", t.ops as f64 / 1e6),
        format!("{:.1}", t.read_mb()),
        format!("{:.1}", t.written_mb()),
        format!("{:.1}", t.ctc()),
    ]);
    table
}
