//! What a calibration says of where it comes from.

use crate::campaign::device::SIMULATED;
use crate::rows::prepare::Row;
use crate::system::hash::sha256_hex;
use joulecast_model::base::name::Name;
use joulecast_model::law::calibration::{Calibration, LayerModel, Tier};
use std::collections::BTreeSet;

/// A calibration of models with where their rows come from.
pub fn passport(chip: &str, tier: Tier, rows: &[&Row], models: Vec<LayerModel>, evaluation: bool) -> Calibration {
    let unique = |value: fn(&Row) -> &Name| -> Vec<String> {
        rows.iter().map(|r| value(r)).collect::<BTreeSet<_>>().into_iter().map(Name::to_string).collect()
    };
    let simulated = rows.iter().any(|r| r.source == SIMULATED);
    let boards = unique(|r| &r.board);
    let some = |m: &LayerModel| if m.boards == boards { Vec::new() } else { m.boards.clone() };
    let models = models.into_iter().map(|m| LayerModel { boards: some(&m), ..m }).collect();
    Calibration {
        // Rows of the simulated device are told apart wherever the calibration is named.
        id: format!("{}-{}-1", chip.to_lowercase(), if simulated { "simulated" } else { tier.name() }),
        chip: chip.to_string(),
        boards,
        tier,
        software: unique(|r| &r.software).join(", "),
        sources: unique(|r| &r.source),
        fit: if evaluation { "evaluation" } else { "shipped" }.to_string(),
        tool: concat!("joulecast ", env!("CARGO_PKG_VERSION")).to_string(),
        dataset_hash: dataset_hash(rows),
        held_out_hash: None,
        fold_key: "kind and shape without batch".to_string(),
        power: None,
        networks: Vec::new(),
        transfer: None,
        choices: Vec::new(),
        models,
    }
}

/// SHA-256 over row ids and times, whatever their order.
fn dataset_hash(rows: &[&Row]) -> String {
    let mut lines: Vec<String> = rows.iter().map(|r| format!("{} {:?}\n", r.row_id, r.time.get())).collect();
    lines.sort();
    sha256_hex(lines.concat().as_bytes())
}
