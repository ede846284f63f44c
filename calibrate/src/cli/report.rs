//! `calibrate validate --report`.

use super::{Rows, Unseen, Validate, evaluation_calibrations, misuse, networks_role, print, read_runs, rows_for};
use crate::fit::polynomial::Options;
use crate::fit::waiting::FitBar;
use crate::judge::networks;
use crate::judge::report::{Framed, PAGE, Report, add_layers, add_networks, read_verdicts};
use crate::judge::validate;
use crate::rows::dataset::NoRows;
use crate::system::whole;
use anyhow::{Result, bail};
use joulecast_model::rows::splits::Role;
use joulecast_reports::command_line;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Whole networks of the report: those that no evaluation fit saw, where nothing else is asked for.
const ROLE: Role = Role::Development;
/// What calibrations say that saw no shape of a network that is held out.
const EVALUATION: &str = "evaluation";

/// Writes the report of what is asked for, layers, networks or both.
pub fn write(args: &Validate, folder: &Path) -> Result<()> {
    if !args.layers && args.networks.is_empty() {
        return Err(misuse("--report is of --layers, --networks FILE or both"));
    }
    // Minutes before it is written.
    whole::check_free(&folder.join(PAGE), args.force)?;
    let files = make(args, folder)?;
    print(&files.iter().map(|f| format!("{}: written\n", f.display())).collect::<String>())
}

/// Makes it; gives every file that was written.
pub(super) fn make(args: &Validate, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut report = Report::new(folder.to_path_buf(), command_line("calibrate", std::env::args_os().skip(1)))?;
    if let Some(earlier) = &args.since {
        report.since(read_verdicts(earlier)?);
    }
    if !args.networks.is_empty() {
        let runs = read_runs(&args.networks)?;
        let calibrations = evaluation_calibrations(args, &runs)?;
        if let Some(c) = calibrations.iter().find(|c| c.fit != EVALUATION) {
            bail!("calibration {} was fitted on all rows: a report takes those of fit --evaluation", c.id);
        }
        let role = args.role.unwrap_or(ROLE);
        let mut frameworks: BTreeMap<&str, Vec<networks::Run>> = BTreeMap::new();
        for run in runs {
            let own = args.framework.as_deref().unwrap_or(run.framework());
            frameworks.entry(own).or_default().push(run);
        }
        let mut frames = Vec::new();
        for (framework, runs) in &frameworks {
            let mut compared = networks::compare(runs, &calibrations, framework, Some(role))?;
            compared.retain(|r| args.gpu.is_empty() || args.gpu.iter().any(|gpu| gpu.name == r.gpu));
            frames.push(Framed { framework, runs, compared });
        }
        if frames.iter().all(|f| f.compared.is_empty()) {
            return Err(NoRows::Selection(networks_role(Some(role))).into());
        }
        add_networks(&mut report, &frames, &calibrations, Some(role))?;
    }
    if args.layers {
        let Rows { rows: all, .. } = rows_for(&args.dataset, Unseen::of(args.evaluation, &[]))?;
        let rows = super::selected(args, &all)?;
        let bar = FitBar::new(args.quiet);
        let options = Options { bar: Some(&bar), ..Options::default() };
        let held_out = validate::held_out(&rows, &all, &options, args.seeds)?;
        let lines = validate::lines(&rows, &held_out, &options);
        add_layers(&mut report, &rows, &held_out, &lines)?;
    }
    report.finish()
}
