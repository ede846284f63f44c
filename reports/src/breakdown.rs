//! Where a step's time and energy go, as a figure.

use crate::figure::FigureError;
#[cfg(feature = "figures")]
use crate::figure::breakdown::{Breakdown, Panel, Part};
#[cfg(feature = "figures")]
use crate::figure::{drawn, svg};
#[cfg(feature = "figures")]
use crate::prediction::provenance;
#[cfg(feature = "figures")]
use joulecast_model::base::order::sort_by;
use joulecast_model::step::predictor::NetworkPrediction;
#[cfg(feature = "figures")]
use std::collections::HashMap;

/// Parts that have a bar of their own.
#[cfg(feature = "figures")]
const BARS: usize = 12;

/// Where a step's time and energy go, layer by layer, as SVG; layers of one name with all their phases.
///
/// # Errors
/// Where there is nothing to draw, or nothing that draws.
#[cfg(feature = "figures")]
pub fn figure(p: &NetworkPrediction) -> Result<String, FigureError> {
    svg(&parted(p)?)
}

/// The same as drawings for a page.
#[cfg(feature = "figures")]
pub(crate) fn drawings(p: &NetworkPrediction) -> Result<Vec<String>, FigureError> {
    drawn(&Breakdown { notes: Vec::new(), ..parted(p)? })
}

#[cfg(feature = "figures")]
fn parted(p: &NetworkPrediction) -> Result<Breakdown, FigureError> {
    let (mut order, mut sums): (Vec<&str>, HashMap<&str, (f64, f64)>) = (Vec::new(), HashMap::new());
    for layer in &p.layers {
        let sum = sums.entry(&layer.name).or_insert_with(|| {
            order.push(&layer.name);
            (0.0, 0.0)
        });
        *sum = (sum.0 + layer.time.value.get(), sum.1 + layer.energy.get());
    }
    sort_by(&mut order, |a, b| sums[b].0.total_cmp(&sums[a].0));
    // Layers are of one GPU, and so is what their shares are of; of several kinds what their own come to.
    let own = sums.values().map(|(_, energy)| energy).sum::<f64>();
    let energy = match &p.devices[..] {
        [] => p.energy.value.get(),
        [one] => p.energy.value.get() / one.count as f64,
        _ => own,
    };
    let time = p.time.value.get();
    let share = |name: &&str| {
        let (t, e) = sums[*name];
        Part { name: name.to_string(), time: 100.0 * t / time, energy: 100.0 * e / energy }
    };
    let parts: Vec<Part> = order.iter().take(BARS).map(share).collect();
    if parts.is_empty() {
        return Err(FigureError::Nothing("no layer takes time".into()));
    }
    let (t, e): (f64, f64) = (parts.iter().map(|p| p.time).sum(), parts.iter().map(|p| p.energy).sum());
    let rest = match order.len().saturating_sub(BARS) {
        0 => String::new(),
        more => format!(
            "{more} others: {:.0} % of the time, {:.0} % of the energy",
            (100.0 - t).max(0.0),
            (100.0 - e).max(0.0)
        ),
    };
    let title = format!("{}, batch {}, {} {}", p.network, p.batch, p.precision, p.mode);
    let notes = vec![provenance(p)];
    Ok(Breakdown { title: "Where time and energy go".into(), panels: vec![Panel { title, parts, rest }], notes })
}

/// The same of a program that was built without what draws.
///
/// # Errors
/// Always.
#[cfg(not(feature = "figures"))]
pub fn figure(_: &NetworkPrediction) -> Result<String, FigureError> {
    Err(FigureError::Absent)
}

#[cfg(not(feature = "figures"))]
pub(crate) fn drawings(_: &NetworkPrediction) -> Result<Vec<String>, FigureError> {
    Err(FigureError::Absent)
}
