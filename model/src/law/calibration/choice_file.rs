//! Text form of which engines a library chooses, `[[choice]]`.

use super::CalibrationError;
use super::bounds::number;
use super::layer_model::engine_alone;
use crate::base::file::within;
use crate::base::packed::{self, Packed};
use crate::base::precision::{Phase, Precision};
use crate::base::text::{names, shown};
use crate::law::choice::{Choice, Tree, Workspace, engine_of_key};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::ops::RangeInclusive;

/// Multiples that scratch memory can be of what a convolution reads, writes or learned.
const WORKSPACES: RangeInclusive<f64> = 0.0..=1e4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChoiceFile {
    phase: Phase,
    precisions: Vec<Precision>,
    asked: usize,
    right: f64,
    #[serde(deserialize_with = "names")]
    engines: Vec<String>,
    /// Multiples as of [`Workspace::parts`], by engine.
    #[serde(default)]
    workspaces: BTreeMap<String, [f64; 4]>,
    #[serde(default)]
    tree: String,
    /// In place of its text.
    #[serde(skip)]
    packed: Option<&'static [u8]>,
}

impl ChoiceFile {
    /// From a section of a packed file.
    ///
    /// # Errors
    /// When the section is damaged.
    pub(super) fn from_packed(section: Packed<'static, '_>) -> Result<Self, packed::Error> {
        let tree = section.field("tree")?.map(Packed::tree).transpose()?;
        Ok(Self { packed: tree, ..section.without(&["tree"])? })
    }
}

/// Whether every engine has a name of its own.
///
/// # Errors
/// In words, when one has not.
pub(super) fn each_once<T: AsRef<str>>(engines: &[T]) -> Result<(), String> {
    let mut seen = HashSet::new();
    for engine in engines.iter().map(AsRef::as_ref) {
        if engine.trim().is_empty() {
            return Err("an engine has no name".into());
        }
        if !seen.insert(engine) {
            return Err(format!("engine {} is there twice", shown(engine)));
        }
    }
    Ok(())
}

/// Whether no two speak of the same kernels.
///
/// # Errors
/// One line, when two do.
pub(super) fn apart(choices: &[Choice]) -> Result<(), CalibrationError> {
    let mut seen = HashSet::new();
    for choice in choices {
        for precision in &choice.precisions {
            if !seen.insert((choice.phase, *precision)) {
                return Err(CalibrationError(format!("choice {} {precision} is there twice", choice.phase)));
            }
        }
    }
    Ok(())
}

pub(super) fn write_choice(text: &mut String, choice: &Choice) {
    let names: Vec<&str> = choice.precisions.iter().copied().map(Precision::name).collect();
    let _ = write!(
        text,
        "\n[[choice]]\nphase = \"{}\"\nprecisions = {names:?}\nasked = {}\nright = {}\nengines = [\n",
        choice.phase,
        choice.asked,
        number(choice.right),
    );
    for engine in &choice.engines {
        let _ = writeln!(text, "  {engine:?},");
    }
    text.push_str("]\n");
    if !choice.workspaces.is_empty() {
        let one = |(engine, workspace): (&String, &Workspace)| {
            format!("{engine} = [{}]", workspace.multiples().map(number).join(", "))
        };
        let all: Vec<String> = choice.workspaces.iter().map(one).collect();
        let _ = writeln!(text, "workspaces = {{ {} }}", all.join(", "));
    }
    let _ = write!(text, "tree = '''\n{}'''\n", choice.tree.to_text());
}

pub(super) fn read_choice(file: ChoiceFile) -> Result<Choice, CalibrationError> {
    let ChoiceFile { phase, precisions, asked, right, engines, workspaces, tree, packed } = file;
    let formats: Vec<&str> = precisions.iter().copied().map(Precision::name).collect();
    let fail = |why: String| CalibrationError(format!("choice {phase} {}: {why}", formats.join(", ")));
    if precisions.is_empty() {
        return Err(CalibrationError(format!("choice {phase}: no precisions")));
    }
    within("right", right, 0.0..=1.0).map_err(|why| fail(why.to_string()))?;
    if asked == 0 {
        return Err(fail("asked is 0: nothing is learned from no answer".into()));
    }
    each_once(&engines).map_err(fail)?;
    let known = |name: &str| engines.iter().any(|engine| engine_alone(engine) == name);
    let mut read = BTreeMap::new();
    for (engine, multiples) in workspaces {
        if !known(engine_of_key(&engine)) {
            return Err(fail(format!("workspace of {}, which is no engine of it", shown(&engine))));
        }
        for multiple in multiples {
            within("workspace", multiple, WORKSPACES).map_err(|why| fail(format!("{}: {why}", shown(&engine))))?;
        }
        read.insert(engine, Workspace::new(multiples));
    }
    let tree = packed.map_or_else(|| Tree::from_text(&tree, engines.len()), Tree::packed);
    let tree = tree.map_err(fail)?;
    Ok(Choice { phase, precisions, engines, asked, right, tree, workspaces: read })
}
