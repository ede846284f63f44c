//! Text form of which engines a library chooses, `[[choice]]`.

use super::CalibrationError;
use super::bounds::number;
use crate::base::file::within;
use crate::base::precision::{Phase, Precision};
use crate::base::text::names;
use crate::law::choice::{Choice, Tree};
use serde::Deserialize;
use std::fmt::Write as _;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChoiceFile {
    phase: Phase,
    precisions: Vec<Precision>,
    asked: usize,
    right: f64,
    #[serde(deserialize_with = "names")]
    engines: Vec<String>,
    tree: String,
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
    let _ = write!(text, "]\ntree = '''\n{}'''\n", choice.tree.to_text());
}

pub(super) fn read_choice(file: ChoiceFile) -> Result<Choice, CalibrationError> {
    let ChoiceFile { phase, precisions, asked, right, engines, tree } = file;
    let fail = |why: String| CalibrationError(format!("choice {phase}: {why}"));
    within("right", right, 0.0..=1.0).map_err(|why| fail(why.to_string()))?;
    let tree = Tree::from_text(&tree, engines.len()).map_err(fail)?;
    Ok(Choice { phase, precisions, engines, asked, right, tree })
}
