//! `predict optimize`

use crate::args::{OptimizeArgs, Over as Typed};
use crate::ask::{self, Choice, Over};
use crate::failure::Failure;
use crate::session::Session;
use joulecast_model::base::units::Seconds;
use joulecast_reports::export::Format;
use joulecast_reports::figure::svg;

/// Time of a change of the core clock where nothing is said.
const SWITCH_LATENCY_MS: f64 = 10.0;

impl OptimizeArgs {
    pub fn choice(&self) -> Choice {
        let over = |what, usual| if self.over.is_empty() { usual } else { self.over.contains(&what) };
        Choice {
            metric: self.metric,
            over: Over {
                cap: over(Typed::Cap, true),
                clock: over(Typed::Clock, true),
                batch: over(Typed::Batch, false),
            },
            max_slowdown: self.max_slowdown,
            min_throughput: self.min_throughput,
            per_layer: self.per_layer.then(|| Seconds::from_ms(self.switch_latency.unwrap_or(SWITCH_LATENCY_MS))),
        }
    }

    /// Options that contradict each other, or would do nothing.
    pub fn check(&self) -> Result<(), Failure> {
        let asked = &self.step;
        let set = |option: bool, over: Typed| option && self.over.contains(&over);
        let wrong = [
            (
                set(asked.operating.clock.is_some(), Typed::Clock),
                "--over clock tries clocks: leave out --clock, or clock from --over",
            ),
            (
                set(asked.operating.power_cap.is_some(), Typed::Cap),
                "--over cap tries power limits: leave out --power-cap, or cap from --over",
            ),
            (self.per_layer && asked.operating.clock.is_some(), "--per-layer chooses clocks: leave out --clock"),
            (
                self.per_layer && self.format == Format::Csv,
                "CSV has no place for a clock per layer: take --format json, markdown or table",
            ),
        ];
        match wrong.into_iter().find(|(wrong, _)| *wrong) {
            Some((_, why)) => Err(Failure::usage(why)),
            None => Ok(()),
        }
    }
}

/// Compares and prints.
pub fn optimize(session: &Session, args: &OptimizeArgs, line: String) -> Result<(), Failure> {
    args.check()?;
    let (request, choice, output) = (args.request(), args.choice(), &args.step.output);
    if args.figure.is_some() {
        choice.axis(request.point)?;
    }
    output.check(args.figure.clone())?;
    let found = ask::optimize(session, &request, &choice)?;
    if let Some(path) = &args.figure {
        let curves = ask::figure(session, &request, &choice, &found, line)?;
        output.write(path, svg(&curves).map_err(Failure::failed)?)?;
    }
    output.export(found.as_slice(), args.format)
}
