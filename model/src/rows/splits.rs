//! Which network may be used for what: `data/splits.toml`.

use crate::base::file::{FileError, check_schema};
use crate::base::packed::from_toml;
use crate::base::precision::named_enum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

named_enum!(
    /// What a network's measurements may be used for.
    Role {
        /// Its shapes may enter plans and layer fits.
        Layer = "layer",
        /// Its whole runs tune framework profiles.
        Profile = "profile",
        /// Its whole runs calibrate network-level intervals.
        Conformal = "conformal",
        /// Judged on, and left out of every evaluation fit; but features, constants and rules were chosen while errors on it
        /// were in view.
        Development = "development",
        /// Predicted, committed and only then measured.
        Test = "test",
    }
);

impl Role {
    /// Whether no evaluation fit sees shapes of such networks.
    pub fn is_held_out(self) -> bool {
        matches!(self, Self::Development | Self::Test)
    }
}

/// The role of every network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Splits {
    schema: String,
    roles: BTreeMap<String, Role>,
}

impl Splits {
    /// Reads the file.
    ///
    /// # Errors
    /// One line that says where it is malformed.
    pub fn from_toml(text: &str) -> Result<Self, FileError> {
        let splits: Self = from_toml(text)?;
        check_schema(&splits.schema, "splits/1")?;
        Ok(splits)
    }

    /// Those of the networks that are shipped.
    ///
    /// # Errors
    /// Only if the build embedded a malformed file.
    pub fn shipped() -> Result<Self, FileError> {
        Self::from_toml(joulecast_data::SPLITS)
    }

    /// Role of a network; `None` for one that is not listed.
    pub fn role(&self, network: &str) -> Option<Role> {
        self.roles.get(network).copied()
    }

    /// Names of the networks whose shapes enter no evaluation fit: development and test.
    pub fn held_out(&self) -> impl Iterator<Item = &str> {
        self.roles.iter().filter(|(_, r)| r.is_held_out()).map(|(name, _)| name.as_str())
    }

    /// Names of the networks with a role.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = &str> {
        self.roles.iter().filter(move |(_, r)| **r == role).map(|(name, _)| name.as_str())
    }
}
