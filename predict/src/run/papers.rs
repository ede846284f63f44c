//! What papers printed, beside predictions.

use crate::args::PapersArgs;
use crate::ask::{self, Papers};
use crate::failure::Failure;
use joulecast_reports::papers::Beside;

/// `predict papers`
pub fn papers(args: &PapersArgs) -> Result<(), Failure> {
    args.output.check([])?;
    let asked = Papers {
        keys: args.paper.clone(),
        framework: args.framework.clone(),
        newest_library: args.newest,
        calibrations: args.calibrations.clone(),
    };
    let (compared, comparison) = ask::papers(&asked)?;
    let (papers, command) = (compared.iter().collect::<Vec<_>>(), papers_line(args));
    let beside = Beside { papers: &papers, comparison: &comparison, command: &command, rows: args.rows };
    args.output.export(&beside, args.format)
}

/// The command line that makes the same page of papers.
fn papers_line(args: &PapersArgs) -> String {
    let mut words = vec!["predict papers".to_string()];
    words.extend(args.paper.iter().map(|key| format!("--paper {key}")));
    words.extend(args.framework.iter().map(|name| format!("--framework {name}")));
    words.extend(args.calibrations.iter().map(|_| "--calibrations DIR".to_string()));
    words.extend(args.newest.then(|| "--newest".to_string()));
    words.push("--format markdown".into());
    words.join(" ")
}
