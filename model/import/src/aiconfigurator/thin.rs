//! Which shapes are taken where there are more than a fit needs: by shape alone, never by time, and every (n, k) or set of
//! heads stays.

use super::super::Imported;
use super::Times;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of products taken of a GPU and precision, about, at most.
pub(super) const PRODUCTS: usize = 4000;
/// The same of attention, of prompts and of steps each.
pub(super) const ATTENTION: usize = 1500;
/// The same of mixtures of experts.
pub(super) const EXPERTS: usize = 1500;

/// Rows of a product on the grid: powers of two, three times these, and one more than a tile's side or its multiples hold.
pub(super) fn on_grid(m: u64) -> bool {
    let three = m.is_multiple_of(3) && (m / 3).is_power_of_two();
    m.is_power_of_two() || three || m > 16 && (m - 1).is_power_of_two()
}

/// Points whose size is on a grid; where a GPU still has more than `most` in a precision, every s-th size of every shape,
/// beginning one later with each shape, so that sizes are taken evenly.
pub(super) fn thinned<'t, S: Ord + Clone>(
    times: Times<'t, S>,
    most: usize,
    grid: impl Fn(u64) -> bool,
    imported: &mut Imported,
) -> Times<'t, S> {
    let mut groups: BTreeMap<(&str, &str), Times<'t, S>> = BTreeMap::new();
    for (point, list) in times {
        if grid(point.size) {
            groups.entry((point.gpu, point.precision)).or_default().insert(point, list);
        } else {
            imported.skip("off the grid of sizes");
        }
    }
    let mut kept = Times::new();
    for group in groups.into_values() {
        let stride = group.len().div_ceil(most);
        let shapes = places(group.keys().map(|p| p.shape.clone()));
        let sizes = places(group.keys().map(|p| p.size));
        for (point, list) in group {
            if (shapes[&point.shape] + sizes[&point.size]).is_multiple_of(stride) {
                kept.insert(point, list);
            } else {
                imported.skip("thinned: more shapes than a fit needs");
            }
        }
    }
    kept
}

/// Each value's place among all, in order.
fn places<T: Ord>(values: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    values.collect::<BTreeSet<T>>().into_iter().enumerate().map(|(place, value)| (value, place)).collect()
}
