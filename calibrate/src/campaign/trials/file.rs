//! Expanded plans as files, `trials/1`: a header line, then one trial per line, all in JSON.

use super::{Item, Plan, trial_id};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use std::path::Path;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    schema: String,
    plan_id: String,
    seed: u64,
    recipe_sha256: String,
    trials: usize,
}

/// The text of a plan.
///
/// # Errors
/// Only if a number cannot be written as JSON.
pub fn to_text(plan: &Plan) -> Result<String> {
    let header = Header {
        schema: "trials/1".into(),
        plan_id: plan.id.clone(),
        seed: plan.seed,
        recipe_sha256: plan.recipe.clone(),
        trials: plan.items.len(),
    };
    let mut text = serde_json::to_string(&header)? + "\n";
    for item in &plan.items {
        text += &serde_json::to_string(item)?;
        text.push('\n');
    }
    Ok(text)
}

/// Reads a plan.
///
/// # Errors
/// Names the file, and the line that is not a trial or does not have the id it says.
pub fn read(path: &Path) -> Result<Plan> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| {
        format!("no plan {name}: reference, standard, quick, or a file that `calibrate plan` wrote")
    })?;
    from_text(&text).with_context(|| name)
}

fn from_text(text: &str) -> Result<Plan> {
    let mut lines = text.lines();
    let header = lines.next().context("the file is empty")?;
    let header: Header = serde_json::from_str(header)
        .context("line 1 is not the header of an expanded plan; `calibrate plan --recipe FILE` expands a recipe")?;
    if header.schema != "trials/1" {
        bail!("schema is {}, expected trials/1", header.schema);
    }
    let mut seen = HashSet::new();
    let mut items = Vec::new();
    for (i, line) in lines.enumerate() {
        let at = || format!("line {}", i + 2);
        let item: Item = serde_json::from_str(line).with_context(at)?;
        ensure!(trial_id(&item.trial)? == item.trial_id, "{}: the trial is not {}", at(), item.trial_id);
        ensure!(seen.insert(item.trial_id.clone()), "{}: the trial occurs twice", at());
        item.trial.case.output().with_context(at)?;
        items.push(item);
    }
    ensure!(items.len() == header.trials, "{} trials, the header says {}", items.len(), header.trials);
    Ok(Plan { id: header.plan_id, seed: header.seed, recipe: header.recipe_sha256, items })
}

#[cfg(test)]
mod tests {
    use super::super::{Level, REFERENCE, expand};
    use super::*;

    #[test]
    fn a_plan_comes_back_as_it_was_written_and_damage_is_named() -> Result<()> {
        let plan = expand(REFERENCE, Level::Quick)?;
        let text = to_text(&plan)?;
        assert_eq!(from_text(&text)?, plan);
        for (from, to, expected) in [
            ("\"batch\":1,", "\"batch\":2,", "the trial is not"),
            ("trials/1", "trials/2", "trials/2"),
            ("\"trials\":", "\"trials\":1", "the header says"),
        ] {
            let error = format!("{:#}", from_text(&text.replacen(from, to, 1)).expect_err(expected));
            assert!(error.contains(expected), "{error}");
        }
        let cut = &text[..text.len() - 30];
        assert!(from_text(cut).is_err());
        Ok(())
    }
}
