//! How many trials of what, and sizes within reason.

use super::Level;
use anyhow::{Result, ensure};
use serde::Deserialize;

/// Most of a size in a recipe.
const MOST: u64 = 1 << 20;

/// A size of a recipe.
///
/// # Errors
/// When it is zero or beyond what any layer has.
pub(super) fn bounded(what: &str, value: u64) -> Result<()> {
    ensure!((1..=MOST).contains(&value), "{what}: {value} is not from 1 to {MOST}");
    Ok(())
}

/// Trials of a stratum per level; each level's are among those of the level above.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// Of the smallest plan.
    pub quick: usize,
    /// Of the middle one.
    pub standard: usize,
    /// Of the whole.
    pub reference: usize,
}

impl Count {
    /// Whether every level's trials can be among those of the level above.
    ///
    /// # Errors
    /// When a level has more than the one above.
    pub(super) fn check(&self) -> Result<()> {
        let Self { quick, standard, reference } = *self;
        ensure!(quick <= standard && standard <= reference, "count must not fall from quick to standard to reference");
        Ok(())
    }

    /// Of a level.
    pub fn at(&self, level: Level) -> usize {
        match level {
            Level::Quick => self.quick,
            Level::Standard => self.standard,
            Level::Reference => self.reference,
        }
    }
}
