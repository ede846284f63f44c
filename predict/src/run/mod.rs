//! Commands: what was typed becomes a request, the answer becomes text.

mod mcp;
mod optimize;
#[cfg(feature = "papers")]
mod papers;
mod progress;
mod serve;
mod sweep;

use crate::args::{
    self, Cli, Command, CompareArgs, ConvertArgs, Counting, DescribeArgs, Listing, OutputArgs, PlanArgs, PredictArgs,
    Target,
};
use crate::ask::{self, Answer, Generated};
use crate::failure::Failure;
use crate::request::Request;
use crate::session::Session;
use anyhow::{Context as _, anyhow};
use joulecast_ask::capacity::PlanFile;
use joulecast_ask::comparison::Entry;
use joulecast_model::base::order::sort_by;
use joulecast_model::catalog;
use joulecast_model::net::network::folding::Folding;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::training::Training;
use joulecast_reports::compare::Comparison;
use joulecast_reports::export::{Export as _, ExportError, Format};
use joulecast_reports::fleet::FIGURE_NAMES;
use joulecast_reports::prediction::{Asked, Shown};
use joulecast_reports::table::Table;
use joulecast_reports::verdict::Verdict;
use joulecast_reports::warnings::words;
use joulecast_reports::{compare, describe, fleet, given, say};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// Runs a command line of a program that is called so, which was typed as these words, and says how it ended.
pub fn run(cli: Cli, called: &'static str, typed: &[OsString]) -> Result<(), Failure> {
    // A word that a shell would take apart is quoted.
    let line = joulecast_reports::command_line(called, typed.iter().cloned());
    joulecast_reports::made_by(format!("{called} {}", crate::version()), line.clone());
    // What was read goes with the process: taking it apart first would take a tenth of the time.
    let session = ManuallyDrop::new(Session::new());
    match cli.command {
        None => predict(&session, &cli.predict),
        Some(Command::Optimize(args)) => optimize::optimize(&session, &args, line),
        Some(Command::Compare(args)) => compare(&session, &args, line),
        Some(Command::Sweep(args)) => sweep::sweep(&session, &args),
        Some(Command::Serve(args)) => serve::serve(&session, &args),
        Some(Command::Plan(args)) => plan(&session, &args, line),
        Some(Command::Describe(args)) => describe(&session, &args),
        Some(Command::Convert(args)) => convert(&session, &args),
        #[cfg(feature = "papers")]
        Some(Command::Papers(args)) => papers::papers(&args),
        Some(Command::List(args)) => list(args.what),
        Some(Command::Mcp) => mcp::serve(&session),
        Some(Command::Completions { shell }) => completions(shell, called),
    }
}

/// What is to be known of calibrations that were named, where the answer has no place for it.
fn tell_notes(session: &Session, request: &Request) -> Result<(), Failure> {
    session.notes(request)?.iter().for_each(|note| say(format_args!("note: {}", words(note))));
    Ok(())
}

/// Places of a note that are named.
const PLACES: usize = 3;
/// Notes on many predictions that are told.
const MOST_NOTES: usize = 12;

/// Whether two entries are of one network on one GPU; those that are stand side by side.
fn of_one_place(a: &&Entry, b: &&Entry) -> bool {
    (&a.network, &a.gpu) == (&b.network, &b.gpu)
}

/// Where a note is of, by its entries there. `compared`: how many batches there are; all of them need no names.
fn place_words(place: &[&Entry], compared: usize) -> String {
    let named: Vec<String> = place.iter().map(|entry| entry.batch.to_string()).collect();
    let place = place.first().map_or(String::new(), |entry| format!("{} on {}", entry.network, entry.gpu));
    if named.len() == compared { place } else { format!("{place} at batch {}", named.join(" and ")) }
}

/// What predictions have to tell, each once, with what it is of.
fn tell_warnings(found: &Comparison) {
    let compared = found.entries.iter().map(|entry| entry.batch).collect::<BTreeSet<_>>().len();
    let (mut told, mut known) = (Vec::<(&str, Vec<&Entry>)>::new(), HashMap::<&str, usize>::new());
    for (entry, notes) in found.entries.iter().zip(&found.notes) {
        for text in notes {
            let at = *known.entry(text).or_insert(told.len());
            if at == told.len() {
                told.push((text, Vec::new()));
            }
            told[at].1.push(entry);
        }
    }
    // Those of most predictions first, where there are more than anybody reads.
    if told.len() > MOST_NOTES {
        let places = |of: &[&Entry]| of.chunk_by(of_one_place).count();
        sort_by(&mut told, |(_, a), (_, b)| places(b).cmp(&places(a)));
    }
    let further = told.len().saturating_sub(MOST_NOTES);
    for (text, of) in told.into_iter().take(MOST_NOTES) {
        let places: Vec<&[&Entry]> = of.chunk_by(of_one_place).collect();
        let more = places.len().saturating_sub(PLACES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named: Vec<String> = places.iter().take(PLACES).map(|place| place_words(place, compared)).collect();
        say(format_args!("note: {}{more}: {text}", named.join(", ")));
    }
    if further > 0 {
        say(format_args!("note: {further} further notes are of fewer predictions each: predict tells them"));
    }
}

/// What was asked, for the record.
fn asked<'a>(request: &'a Request, predictor: &'a Predictor, source: &'a str, training: Option<Training>) -> Asked<'a> {
    let gpu = request.teams.first().map_or("", |team| &team.name);
    Asked { gpu, source, framework: &predictor.framework().name, launch: predictor.launch(), training }
}

/// What `predict` prints in a form, and the verdict on it; of layouts there is none. The pair: tokens of a language model's
/// answer, and whether all layouts over a node are asked for; `layers`: whether tables show each.
fn predicted(
    session: &Session,
    request: &Request,
    (generate, layouts): (Option<u64>, bool),
    layers: bool,
    format: Format,
) -> Result<(String, String), Failure> {
    let failed = |e: ExportError| Failure::Failed(e.into());
    if layouts {
        let laid = ask::layouts(session, request, generate.unwrap_or(1))?;
        return Ok((laid.shown().export(format).map_err(failed)?, String::new()));
    }
    if let Some(tokens) = generate {
        let Generated { generation, cluster, source } = ask::generate(session, request, tokens)?;
        let (gpu, asked) = (cluster.first().gpu(), asked(request, cluster.first(), source, None));
        let shown = Shown { prediction: &generation, gpu, asked: &asked, layers };
        return Ok((shown.export(format).map_err(failed)?, Verdict::of(&generation.total).line()));
    }
    let Answer { prediction, training, cluster, source } = ask::step(session, request)?;
    let (gpu, asked) = (cluster.first().gpu(), asked(request, cluster.first(), source, training));
    let shown = Shown { prediction: &prediction, gpu, asked: &asked, layers };
    Ok((shown.export(format).map_err(failed)?, Verdict::of(&prediction).line()))
}

/// `predict --net … --gpu … --batch …`
fn predict(session: &Session, args: &PredictArgs) -> Result<(), Failure> {
    args.output().check([])?;
    let asked = (args.generate, args.layouts);
    let (text, _) = predicted(session, &args.request()?, asked, args.layers, args.format)?;
    args.output().emit(&text)
}

/// `predict compare`
fn compare(session: &Session, args: &CompareArgs, line: String) -> Result<(), Failure> {
    let request = args.request()?;
    let question = args.question();
    args.output.check(args.figure.clone())?;
    let found = ask::compare(session, &request, &question)?;
    if let Some(path) = &args.figure {
        args.output.write(path, compare::figure(&found, line).map_err(Failure::failed)?)?;
    }
    args.output.export(&found, args.format)?;
    // After the answer, which they would push off the screen.
    tell_warnings(&found);
    Ok(())
}

/// Where a figure of a name goes.
fn file_of(folder: &Path, figure: &str) -> PathBuf {
    folder.join(format!("{figure}.svg"))
}

/// A plan to begin with: every field, with what it means.
const NEW_PLAN: &str = include_str!("new_plan.toml");

/// `predict plan --new FILE`
fn new_plan(args: &PlanArgs) -> Result<(), Failure> {
    args.output.write(&args.file, NEW_PLAN)?;
    let name = args.file.display();
    say(format_args!("{name}: written with example figures; put in your own, then: predict plan {name}"));
    Ok(())
}

/// A plan file; of several mistakes each is a line, of which the last is the failure.
fn plan_file(path: &Path) -> Result<PlanFile, Failure> {
    let name = path.display().to_string();
    let failed = |why: String| Failure::Failed(anyhow!(why).context(name.clone()));
    let absent = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Failure::Failed(
            anyhow!("there is no such file; predict plan --new {name} writes one to begin with").context(name.clone()),
        ),
        _ => Failure::Failed(anyhow::Error::from(e).context(name.clone())),
    };
    let text = given::text(path).map_err(absent)?;
    PlanFile::from_toml(&text).map_err(|error| {
        let (last, others) =
            error.mistakes().split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
        others.iter().for_each(|mistake| say(format_args!("error: {}", failed(mistake.clone()))));
        failed(last.into())
    })
}

/// `predict plan`
fn plan(session: &Session, args: &PlanArgs, line: String) -> Result<(), Failure> {
    if args.new {
        return new_plan(args);
    }
    let figures = args.figures.iter().flat_map(|folder| FIGURE_NAMES.map(|name| file_of(folder, name)));
    args.output.check(figures)?;
    let file = plan_file(&args.file)?;
    let runner = args.runner(&file.framework);
    let mut plan = ask::plan(session, file, &args.reading(), &runner, line)?;
    plan.figures = args.figures.clone();
    if let Some(folder) = &args.figures {
        let made = std::fs::create_dir_all(folder).with_context(|| folder.display().to_string());
        made.map_err(Failure::Failed)?;
        let figures = fleet::figures(&plan).map_err(Failure::failed)?;
        figures.iter().try_for_each(|(name, svg)| args.output.write(&file_of(folder, name), svg))?;
    }
    args.output.export(&plan, args.format)?;
    if plan.winner.is_some() {
        return Ok(());
    }
    let each = plan.candidates.iter().map(|c| format!("{}: {}", c.name, c.reason.as_deref().unwrap_or_default()));
    Err(Failure::Failed(anyhow!("no candidate carries the load: {}", each.collect::<Vec<_>>().join("; "))))
}

/// `predict describe`
fn describe(session: &Session, args: &DescribeArgs) -> Result<(), Failure> {
    let batch = if args.counting == Counting::Castro2018 { 1 } else { args.batch };
    let network = session.network(args.net.net(), &args.reading())?.shaped(batch, args.precision)?;
    let table = match args.counting {
        Counting::Own => describe::table(&network),
        Counting::Castro2018 => describe::castro_table(&network),
    };
    OutputArgs::default().export(&table, args.format)
}

/// `predict convert`
fn convert(session: &Session, args: &ConvertArgs) -> Result<(), Failure> {
    args.output.check([])?;
    let reading = args.reading();
    if args.target()? == Target::Toml {
        return args.output.emit_bytes(ask::to_toml(session, &args.net, &reading)?.as_bytes());
    }
    if args.output.file().is_none() && std::io::stdout().is_terminal() {
        return Err(Failure::usage("an ONNX file is not for a terminal: --output FILE says where to write it"));
    }
    let (bytes, folded) = ask::to_onnx(session, &args.net, &reading)?;
    // Where folding was undone, there is none left.
    if folded > 0 && reading.folding != Folding::Unfold {
        say(format_args!(
            "note: {folded} layers hold a folded batch norm, which an ONNX file cannot say: --unfold-batch-norm writes it \
             as an operator of its own"
        ));
    }
    args.output.emit_bytes(&bytes)
}

/// `predict list`
fn list(what: Listing) -> Result<(), Failure> {
    let listed = || -> anyhow::Result<Table> {
        Ok(match what {
            Listing::Nets => Table::of(&ask::nets()?),
            Listing::Gpus => Table::of(&ask::gpus()?),
            Listing::Interconnects => Table::of(&catalog::interconnects()?),
            Listing::Frameworks => Table::of(&ask::frameworks()?),
            Listing::Inputs => Table::of(&ask::inputs()?),
            Listing::Calibrations => Table::of(&ask::calibrations()?),
        })
    };
    OutputArgs::default().export(&listed().map_err(Failure::Failed)?, Format::Table)
}

/// `predict completions`
fn completions(shell: clap_complete::Shell, called: &'static str) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(called), called, &mut script);
    OutputArgs::default().emit_bytes(&script)
}
