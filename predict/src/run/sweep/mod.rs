//! `predict sweep`: rows go to a file or standard output as they are made.

#[cfg(feature = "arrow")]
mod arrow;
#[cfg(any(feature = "arrow", feature = "parquet"))]
mod columns;
mod identity;
#[cfg(feature = "parquet")]
mod parquet;
mod writer;

use crate::args::SweepArgs;
use crate::ask::{Errors, Sweep};
use crate::failure::Failure;
use crate::session::Session;
use anyhow::anyhow;
use identity::Identity;
use joulecast_model::base::shard::Shard;
use joulecast_reports::say;
use writer::Writer;

fn broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}

/// What has no prediction is said on standard error; where nothing of a whole sweep was predicted, a failure. `made`: rows
/// that came; `all`: whether they are the whole sweep.
fn tell(errors: Errors, made: u64, all: bool) -> Result<(), Failure> {
    let Some(first) = errors.first else { return Ok(()) };
    let count = errors.count;
    if all && count == made {
        return Err(Failure::Failed(anyhow!("no row has a prediction; the first: {first}")));
    }
    say(format_args!("note: {count} of {made} rows have an error instead of a prediction; the first: {first}"));
    Ok(())
}

/// Makes the rows and writes them.
pub fn sweep(session: &Session, args: &SweepArgs) -> Result<(), Failure> {
    let sweep = Sweep::new(session, &args.request()?, &args.sequence, args.points())?.shard(args.shard);
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    if threads == 0 {
        return Err(Failure::usage("--threads must be above 0"));
    }
    super::tell_notes(session, sweep.request())?;
    let identity = Identity::of_sweep(session, &sweep)?;
    let (mut writer, done) = Writer::open(args, identity, |row| sweep.key(row))?;
    if done > sweep.rows() {
        return Err(Failure::usage("there are more rows already than this sweep has"));
    }
    let bar = super::progress::bar(sweep.rows(), "predictions", ", {per_sec}", !args.quiet);
    bar.set_position(done);
    bar.reset_eta();
    let mut errors = Errors::default();
    let format = args.format;
    let written = sweep.run(
        done,
        threads,
        |rows| (Errors::of(&rows), writer::render(format, &rows)),
        |rows, (wrong, chunk)| {
            errors.add(wrong);
            writer.write(&chunk).map_err(Failure::Failed)?;
            bar.inc(rows);
            Ok(())
        },
    );
    match written.and_then(|()| writer.finish().map_err(Failure::Failed)) {
        // Whoever reads has seen enough.
        Err(Failure::Failed(e)) if broken_pipe(&e) => return Ok(()),
        other => other?,
    }
    bar.finish_and_clear();
    let made = sweep.rows() - done;
    if !args.quiet && args.file().is_some() {
        let seconds = bar.elapsed().as_secs_f64();
        let what = if made == 1 { "prediction" } else { "predictions" };
        say(format_args!("{made} {what} in {seconds:.1} s, {:.0} per second", made as f64 / seconds));
    }
    tell(errors, made, done == 0 && args.shard == Shard::default())
}
