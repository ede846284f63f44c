//! What the rows of a sweep were made from, in a file beside them, so that no other sweep goes on with them.
//!
//! Rows say networks and GPUs by name, and a file may change under its name. `ROWS.sweep.json` (`sweep/1`) has a
//! fingerprint of everything that a row rests on, each under its name. The rows themselves stay as they are for those who
//! read them.

use crate::ask::{Entry, Sweep};
use crate::failure::Failure;
use crate::request::{Request, Runner};
use crate::session::{Session, of_each};
use anyhow::{Context, Result, anyhow};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::text::Fingerprint;
use joulecast_model::catalog;
use joulecast_reports::whole;
use serde_json::{Map, Value, json};
use std::fmt::{Debug, Write as _};
use std::fs;
use std::path::{Path, PathBuf};

const SCHEMA: &str = "sweep/1";

/// Everything that rows rest on besides the settings that they say themselves, each with its fingerprint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity(Map<String, Value>);

/// Of a value as it was read: what its file says otherwise, such as remarks, changes nothing.
fn of(value: &impl Debug) -> Value {
    let mut fingerprint = Fingerprint::default();
    let _ = write!(fingerprint, "{value:?}");
    Value::from(fingerprint.to_string())
}

/// What no column of a row says, and holds for all rows of a sweep.
const SETTINGS: [&str; 5] = ["optimizer", "interconnect", "input rate", "division of the batch", "memory clock"];

impl Identity {
    /// Of this program, and of everything that a sweep was made of but what its rows say.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub fn of_sweep(session: &Session, sweep: &Sweep<'_>) -> Result<Self, Failure> {
        let mut identity = Self::default();
        let (request, runner) = (sweep.request(), &sweep.request().runner);
        let program = format!("{} {}", env!("CARGO_PKG_VERSION"), catalog::SOURCES);
        identity.0.insert("program".into(), program.into());
        // A profile holds the rules of its libraries.
        let framework = session.framework(runner, request.precisions[0])?;
        identity.0.insert(format!("framework profile {}", framework.name), of(&(&framework, runner.library)));
        let of_network = |entry: &Entry| {
            let tokens = entry.sequence.map_or(String::new(), |n| format!(" with {n} tokens"));
            let network = &entry.source.network;
            let bindings = &entry.source.bindings;
            let value = if bindings.is_empty() { of(network) } else { of(&(network, bindings)) };
            (format!("network {}{tokens}", network.name), value)
        };
        identity.0.extend(of_each(&sweep.networks, of_network));
        for team in &sweep.teams {
            for (_, typed) in &team.kinds {
                identity.gpu(&team.name, session, typed, runner)?;
            }
        }
        let Request { optimizer, interconnect, input_rate, weak, .. } = request;
        let clock = sweep.points().iter().find_map(|point| point.memory_clock);
        for (setting, value) in
            SETTINGS.into_iter().zip([of(optimizer), of(interconnect), of(input_rate), of(weak), of(&clock)])
        {
            identity.0.insert(setting.into(), value);
        }
        Ok(identity)
    }

    /// With a GPU and what is known of it: the calibration of its chip, and that of all chips.
    fn gpu(&mut self, name: &str, session: &Session, typed: &str, runner: &Runner) -> Result<(), Failure> {
        let gpu = session.gpu(typed)?;
        self.0.insert(format!("GPU {name}"), of(&gpu));
        let chip = gpu.chip.to_ascii_lowercase();
        if runner.calibration.is_some() {
            let member = session.member(typed, &Runner { launch: None, ..runner.clone() }, Precision::Fp32)?;
            let basis = member.predictor.basis(Precision::Fp32, Mode::Inference).map_err(Failure::failed)?;
            self.0.insert(format!("calibration {chip}"), of(&basis.chip));
            self.0.insert("calibration all_chips".into(), of(&basis.all));
            return Ok(());
        }
        for chip in [&chip[..], "all_chips"] {
            if let Some((_, fingerprint)) = catalog::calibration_files().find(|(name, _)| *name == chip) {
                self.0.insert(format!("calibration {chip}"), fingerprint.into());
            }
        }
        Ok(())
    }

    /// Where that of a file of rows is.
    pub fn path(rows: &Path) -> PathBuf {
        // Beside the file that a link leads to: the two belong together.
        let rows = rows.canonicalize().unwrap_or_else(|_| rows.to_path_buf());
        let mut name = rows.into_os_string();
        name.push(".sweep.json");
        name.into()
    }

    /// The text of its file, which is also what a file of Parquet or Arrow holds of it.
    pub fn text(&self) -> String {
        format!("{:#}\n", json!({"schema": SCHEMA, "made_from": &self.0}))
    }

    /// Writes it beside its rows; a device or pipe has none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, rows: &Path) -> Result<()> {
        match rows.metadata().is_ok_and(|m| m.is_file()) {
            true => Ok(whole::write(&Self::path(rows), self.text())?),
            false => Ok(()),
        }
    }

    /// What it becomes where rows are there that were made from the same: with what these were made from besides.
    ///
    /// # Errors
    /// When the rows do not say what they were made from, or were made from something else; the message says what to do.
    pub fn joined(mut self, rows: &Path) -> Result<Self> {
        let path = Self::path(rows);
        let shown = path.display();
        let text = fs::read_to_string(&path).map_err(|e| {
            anyhow!("{shown} does not say what the rows were made from ({e}): --force makes them anew, or write to another file")
        })?;
        let file: Value = serde_json::from_str(&text).with_context(|| shown.to_string())?;
        let before = match (file["schema"].as_str(), &file["made_from"]) {
            (Some(SCHEMA), Value::Object(map)) => map.clone(),
            _ => return Err(anyhow!("{shown} is not of the schema {SCHEMA}: --force makes the rows anew")),
        };
        if let Some(setting) = SETTINGS.iter().find(|setting| !before.contains_key(**setting)) {
            return Err(anyhow!("{shown} does not say the {setting} of the rows there: --force makes them anew"));
        }
        for (what, fingerprint) in before {
            match self.0.get(&what) {
                Some(now) if *now != fingerprint => {
                    return Err(anyhow!(
                        "the {what} is not the one that the rows there were made from: --force makes them anew, or write \
                         to another file"
                    ));
                }
                _ => self.0.insert(what, fingerprint),
            };
        }
        Ok(self)
    }
}
