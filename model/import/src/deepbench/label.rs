//! Convolutions whose recorded algorithm cannot be the one that ran.

use super::LABEL_SUSPECT;
use joulecast_model::base::precision::{Mode, Phase};
use joulecast_model::net::layer::Layer;
use joulecast_model::rows::measurement::Measurement;

/// Above the best matrix product of the same sheet by more than this, a direct algorithm is not believed; the
/// best honest ones reach 1.15 times, the two suspect ones 1.3 times.
const MARGIN: f64 = 1.2;

/// Flags such rows among those of one fp32 sheet.
pub(super) fn flag(rows: &mut [Measurement]) {
    let best = rows.iter().filter(|m| matches!(m.case.layer, Layer::Linear(_))).filter_map(rate).fold(0.0, f64::max);
    if best == 0.0 {
        return;
    }
    for m in rows {
        let direct = m.phase == Phase::Forward && m.algo.as_deref().is_some_and(|a| a.ends_with("GEMM"));
        if direct && rate(m).is_some_and(|rate| rate > MARGIN * best) {
            m.flags.push(LABEL_SUSPECT.to_string());
        }
    }
}

/// In operations per second.
fn rate(m: &Measurement) -> Option<f64> {
    let cost = m.case.cost(m.phase, m.batch, m.precision, Mode::Inference).ok()??;
    Some(cost.ops.to_f64() / m.time_s)
}
