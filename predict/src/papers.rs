//! `predict papers`: what papers printed beside what is predicted.

use crate::cli::PapersArgs;
use crate::commands::{Failure, read};
use anyhow::{Context, Result, anyhow};
use joulecast_model::catalog;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::rows::papers::{self, Comparison, Options, Paper};
use joulecast_reports::papers::Beside;
use std::fs;
use std::path::Path;

/// Predicts every printed value that can be predicted.
pub fn compare(args: &PapersArgs) -> Result<(), Failure> {
    args.output.check([])?;
    if let Some(name) = &args.framework {
        catalog::framework(name).map_err(|e| Failure::Usage(e.into()))?;
    }
    let failed = |e: String| Failure::Failed(anyhow!(e));
    let shipped = papers::shipped().map_err(failed)?;
    if let Some(unknown) = args.paper.iter().find(|key| !shipped.iter().any(|(paper, _)| paper.key == **key)) {
        let keys = shipped.iter().map(|(paper, _)| paper.key.as_str()).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(anyhow!("no paper \"{unknown}\"; there are {keys}")));
    }
    let calibrations = args.calibrations.as_deref().map(calibrations).transpose().map_err(Failure::Failed)?;
    let options = Options {
        framework: args.framework.as_deref(),
        newest_library: args.newest,
        calibrations: calibrations.as_deref(),
    };
    let wanted = |paper: &Paper| args.paper.is_empty() || args.paper.contains(&paper.key);
    let mut comparison = Comparison::default();
    let mut compared = Vec::new();
    for (paper, text) in shipped.iter().filter(|(paper, _)| wanted(paper)) {
        let one = papers::compare(paper, text, &options).map_err(failed)?;
        comparison.rows.extend(one.rows);
        comparison.not_predicted.extend(one.not_predicted);
        compared.push(paper);
    }
    let command = command(args);
    let beside = Beside { papers: &compared, comparison: &comparison, command: &command, rows: args.rows };
    args.output.export(&beside, args.format)
}

/// The calibrations of a folder, as `calibrate fit` writes them.
fn calibrations(folder: &Path) -> Result<Vec<Calibration>> {
    let shown = folder.display().to_string();
    let mut list = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| shown.clone())? {
        let path = entry.with_context(|| shown.clone())?.path();
        if path.extension().is_some_and(|e| e == "toml") {
            let name = path.display().to_string();
            list.push(Calibration::from_toml(&read(&name)?).with_context(|| name.clone())?);
        }
    }
    if list.is_empty() {
        return Err(anyhow!("{shown} holds no calibration (*.toml)"));
    }
    Ok(list)
}

/// The command line that makes the same page.
fn command(args: &PapersArgs) -> String {
    let mut words = vec!["predict papers".to_string()];
    words.extend(args.paper.iter().map(|key| format!("--paper {key}")));
    words.extend(args.framework.iter().map(|name| format!("--framework {name}")));
    words.extend(args.calibrations.iter().map(|_| "--calibrations DIR".to_string()));
    words.extend(args.newest.then(|| "--newest".to_string()));
    words.push("--format markdown".into());
    words.join(" ")
}
