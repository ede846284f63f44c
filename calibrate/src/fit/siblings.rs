//! A board by models of other boards of its chip: how far off times are, and how wide intervals must be.

use crate::fit::polynomial::{Options, fit};
use crate::fit::task::{FEWEST_ROWS, Task, options_for};
use crate::rows::prepare::Row;
use anyhow::{Context, Result};
use joulecast_model::base::accuracy::{Accuracy, conformal};
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::Siblings;
use joulecast_reports::siblings::Board;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Fewer rows of a board judge nothing.
const FEWEST: usize = 20;
/// Rows of a board, kind, phase and precision behind the quantiles, at most: none outweighs the others.
const MOST: usize = 200;

/// A row of the board that was left out.
#[derive(Clone, Copy, Debug)]
struct Judged {
    measured: f64,
    predicted: f64,
    /// Log quantiles of the model's own interval.
    interval: (f64, f64),
}

impl Judged {
    fn log(&self) -> f64 {
        (self.measured / self.predicted).ln()
    }
}

/// Rows of a board within what the other boards of its chip measured, predicted by a fit to these.
#[derive(Clone, Debug)]
pub struct LeftOut<'a> {
    task: &'a Task,
    board: &'a str,
    others: BTreeSet<&'a str>,
    rows: Vec<Judged>,
}

/// Leaves every board out of every model that has rows of several.
///
/// # Errors
/// When a fit fails.
pub fn left_out<'a>(tasks: &'a BTreeMap<Task, Vec<&'a Row>>, options: &Options) -> Result<Vec<LeftOut<'a>>> {
    let usual = |task: &Task| task.framework.is_none() && task.model != ModelKey::Stream && !task.model.is_asked_for();
    let pairs: Vec<(&Task, &str, &Vec<&Row>)> = tasks
        .iter()
        .filter(|(task, _)| usual(task))
        .flat_map(|(task, rows)| {
            let boards: BTreeSet<&str> = rows.iter().map(|r| r.board.as_str()).collect();
            boards.into_iter().map(move |board| (task, board, rows))
        })
        .collect();
    let judged = pairs.par_iter().map(|&(task, board, rows)| {
        let (own, others): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|r| r.board == board);
        if own.len() < FEWEST || others.len() < FEWEST_ROWS {
            return Ok(None);
        }
        let label = || format!("{task} without {board}");
        let model = fit(task.model, &others, &options_for(task, options)).with_context(label)?.model;
        let judge = |row: &&Row| {
            let expected = row.expected(&model);
            let kernel = expected.time();
            let bucket = model.bucket(kernel)?;
            let (measured, predicted) = (row.time.get(), (kernel + row.overhead).get());
            expected.in_domain.then_some(Judged { measured, predicted, interval: (bucket.low, bucket.high) })
        };
        let rows: Vec<Judged> = own.iter().filter_map(judge).collect();
        let others = others.iter().map(|r| r.board.as_str()).collect();
        Ok((rows.len() >= FEWEST).then_some(LeftOut { task, board, others, rows }))
    });
    Ok(judged.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Quantiles over boards, each with at most [`MOST`] rows; `None` where no chip has rows of several.
pub fn quantiles(boards: &[LeftOut<'_>]) -> Option<Siblings> {
    of(&boards.iter().collect::<Vec<_>>())
}

fn of(boards: &[&LeftOut<'_>]) -> Option<Siblings> {
    let mut values = Vec::new();
    for board in boards {
        let mut logs: Vec<f64> = board.rows.iter().map(Judged::log).collect();
        logs.sort_by(f64::total_cmp);
        let every = logs.len().div_ceil(MOST).max(1);
        values.extend(logs.into_iter().skip(every / 2).step_by(every));
    }
    let (low, high) = conformal(&values, 0.9)?;
    Some(Siblings { low, high, boards: boards.len(), rows: values.len() })
}

/// Every board with its error, and how many of its times lie in the model's own interval and in one as wide as the boards of
/// the other chips ask for.
pub fn lines(boards: &[LeftOut<'_>]) -> Vec<Board> {
    let line = |board: &LeftOut<'_>| {
        let chip = &board.task.chip;
        let others: Vec<&LeftOut<'_>> = boards.iter().filter(|b| b.task.chip != *chip).collect();
        let share = |within: &dyn Fn(&Judged) -> (f64, f64)| {
            let held = board.rows.iter().filter(|r| {
                let (low, high) = within(r);
                (low..=high).contains(&r.log())
            });
            100.0 * held.count() as f64 / board.rows.len() as f64
        };
        let error = Accuracy::of(board.rows.iter().map(|r| (r.measured, r.predicted)))?;
        Some(Board {
            chip: chip.clone(),
            board: board.board.to_string(),
            predicted_by: board.others.iter().copied().collect::<Vec<_>>().join(", "),
            model: board.task.model.to_string(),
            phase: board.task.phase.to_string(),
            precision: board.task.precision.to_string(),
            rows: board.rows.len(),
            mape: error.mape,
            bias: error.bias,
            held: share(&|r| r.interval),
            held_widened: of(&others).map(|s| share(&|r| s.widened(r.interval))),
        })
    };
    boards.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::task::tasks;
    use crate::rows::prepare::testing;

    fn rows(chip: &str, board: &str, slower: f64) -> Vec<Row> {
        let of = |batch: u64| {
            let row = testing::row(chip, batch, slower.ln() + 0.02 * (batch % 3) as f64);
            Row { row_id: format!("{board} {batch}"), board: board.into(), ..row }
        };
        (1..=60).map(of).collect()
    }

    #[test]
    fn a_board_that_is_left_out_says_how_wide_its_sibling_must_be() -> Result<()> {
        let all = [rows("T", "fast", 1.0), rows("T", "slow", 1.5), rows("U", "alone", 1.0)].concat();
        let tasks = tasks(&all);
        let boards = left_out(&tasks, &Options::default())?;
        let found: Vec<(&str, Vec<&str>)> =
            boards.iter().map(|b| (b.board, b.others.iter().copied().collect())).collect();
        assert_eq!(found, [("fast", vec!["slow"]), ("slow", vec!["fast"])], "chips of one board judge nothing");
        let median = |board: &LeftOut<'_>| {
            let mut logs: Vec<f64> = board.rows.iter().map(Judged::log).collect();
            logs.sort_by(f64::total_cmp);
            logs[logs.len() / 2]
        };
        assert!((median(&boards[0]) + 1.5f64.ln()).abs() < 0.05 && (median(&boards[1]) - 1.5f64.ln()).abs() < 0.05);
        let siblings = quantiles(&boards).context("two boards")?;
        assert!(siblings.low < -0.35 && siblings.high > 0.35 && siblings.boards == 2, "{siblings:?}");
        // The model's own interval is narrow; widened it holds both.
        let own = boards[0].rows[0].interval;
        assert!(own.1 - own.0 < 0.2 && siblings.widened(own) == (siblings.low, siblings.high), "{own:?}");
        assert_eq!(siblings.widened((-2.0, 3.0)), (-2.0, 3.0), "a wide interval stays");
        Ok(())
    }
}
