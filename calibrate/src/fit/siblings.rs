//! A board by models of other boards of its chip: how far off times are, and how wide intervals must be.

use crate::fit::board::Correction;
use crate::fit::engines;
use crate::fit::polynomial::{Fitted, Options};
use crate::fit::task::{FEWEST_ROWS, Task, options_for};
use crate::rows::prepare::Row;
use anyhow::{Context, Result};
use joulecast_model::base::accuracy::{Accuracy, conformal};
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::Siblings;
use joulecast_reports::siblings::Board;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Fewer rows of a board judge nothing.
const FEWEST: usize = 20;
/// Rows of a board, kind, phase and precision behind the quantiles, at most: none outweighs the others.
const MOST: usize = 200;

/// A row of the board that was left out.
#[derive(Clone, Copy, Debug)]
struct Judged<'a> {
    row: &'a Row,
    measured: f64,
    predicted: f64,
    /// Log quantiles of the model's own interval.
    interval: (f64, f64),
    /// Where the others ran the same trial: how far off their fit without its shape is for them, in percent.
    there: Option<f64>,
}

impl Judged<'_> {
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
    rows: Vec<Judged<'a>>,
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
        let Fitted { model, held_out } =
            engines::fit(task.model, &others, &options_for(task, options)).with_context(label)?;
        let trials = others.iter().zip(&held_out).filter(|(other, _)| !other.trial_id.is_empty());
        let twins: HashMap<&str, (&Row, Seconds)> =
            trials.map(|(other, time)| (other.trial_id.as_str(), (*other, *time))).collect();
        let shapes: HashSet<&str> = others.iter().map(|other| other.key.as_str()).collect();
        // What the others ran, too, is predicted as a shape that they had not seen.
        let judge = |row: &&'a Row| {
            let expected = row.expected(&model);
            let twin = twins.get(row.trial_id.as_str());
            let kernel = match twin {
                Some((other, held_out)) => {
                    row.carry.to_board(other.carry.to_model((*held_out - other.overhead).max(Seconds::ZERO)))
                }
                None if row.own && shapes.contains(row.key.as_str()) => return None,
                None => expected.time(),
            };
            let bucket = model.bucket(kernel)?;
            let there = twin.map(|(other, held_out)| 100.0 * (*held_out / other.time - 1.0).abs());
            let (measured, predicted) = (row.time.get(), (kernel + row.overhead).get());
            let interval = (bucket.low, bucket.high);
            expected.in_domain.then_some(Judged { row, measured, predicted, interval, there })
        };
        let rows: Vec<Judged<'a>> = own.iter().filter_map(judge).collect();
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

/// What a board's own rows change: those of a plan's level are learned from, rows of other shapes are judged.
///
/// # Errors
/// When a least-squares fit fails.
pub fn with_own_rows(boards: &[LeftOut<'_>], level: &HashSet<String>) -> Result<Vec<Option<f64>>> {
    let mut errors: Vec<Option<f64>> = vec![None; boards.len()];
    let names: BTreeSet<&str> = boards.iter().map(|b| b.board).collect();
    for name in names {
        let of_board = || boards.iter().enumerate().filter(|(_, b)| b.board == name);
        let known: Vec<(&Row, f64)> = of_board()
            .flat_map(|(_, b)| &b.rows)
            .filter(|judged| level.contains(&judged.row.trial_id))
            .map(|judged| (judged.row, judged.log()))
            .collect();
        if known.is_empty() {
            continue;
        }
        let correction = Correction::estimate(&known)?;
        let shapes: HashSet<&str> = known.iter().map(|(row, _)| row.key.as_str()).collect();
        for (at, board) in of_board() {
            let others = board.rows.iter().filter(|judged| !shapes.contains(judged.row.key.as_str()));
            let pairs = others.map(|judged| (judged.measured, judged.predicted * correction.of(judged.row).exp()));
            errors[at] = Accuracy::of(pairs).map(|accuracy| accuracy.mape);
        }
    }
    Ok(errors)
}

/// Every board with its error, and how many of its times lie in the model's own interval and in one as wide as the boards of
/// the other chips ask for.
pub fn lines(boards: &[LeftOut<'_>], own: &BTreeMap<&'static str, Vec<Option<f64>>>) -> Vec<Board> {
    let line = |(at, board): (usize, &LeftOut<'_>)| {
        let with = |level: &str| own.get(level).and_then(|errors| *errors.get(at)?);
        let there: Vec<f64> = board.rows.iter().filter_map(|r| r.there).collect();
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
            there: (!there.is_empty()).then(|| there.iter().sum::<f64>() / there.len() as f64),
            with_quick: with("quick"),
            with_standard: with("standard"),
            held: share(&|r| r.interval),
            held_widened: of(&others).map(|s| share(&|r| s.widened(r.interval))),
        })
    };
    boards.iter().enumerate().filter_map(line).collect()
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
