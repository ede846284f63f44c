//! Questions of the page as JSON, answered with the documents that the command prints.

use crate::catalog::Catalog;
use joulecast_ask::capacity::PlanFile;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::shape::MAX_DIMENSION;
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::net::layer::Optimizer;
use joulecast_model::step::framework::Launch;
use joulecast_model::step::predictor::OperatingPoint;
use joulecast_predict::ask::{self, Choice, Over};
use joulecast_predict::request::{Batch, Reading, Runner, Team};
use joulecast_predict::{Request, Session};
use joulecast_reports::export::{Export, Format};
use joulecast_reports::prediction::{Asked, Shown};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A question; every part of a setup that is left out is as the command has it without.
#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// What is built in.
    Catalog,
    /// One step: `prediction/1`.
    Step(Setup),
    /// The same at each power limit and each clock: `optimum/1`, with the least energy as the best.
    Curves(Setup),
    /// One step on several GPUs: `comparison/1`, and the notes of each.
    Compare(Setup),
    /// A fleet for the load of a plan file: `capacity_plan/1`.
    Plan {
        /// The file's text.
        file: String,
    },
}

/// What is to run on what.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    net: String,
    /// One GPU, or of a comparison several.
    gpus: Vec<String>,
    batch: u64,
    #[serde(default)]
    precision: Option<String>,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    framework: Option<String>,
    #[serde(default)]
    launch: Option<String>,
    #[serde(default)]
    optimizer: Option<String>,
    #[serde(default)]
    sequence: Option<u64>,
    #[serde(default)]
    clock_mhz: Option<f64>,
    #[serde(default)]
    power_cap_w: Option<f64>,
}

/// A value by its name, or why there is none.
fn by_name<T>(what: &str, name: Option<&str>, find: impl Fn(&str) -> Option<T>) -> Result<Option<T>, String> {
    name.map(|name| find(name).ok_or_else(|| format!("no {what} \"{name}\""))).transpose()
}

/// A whole number that sizes may have.
fn size(what: &str, number: u64) -> Result<u64, String> {
    let fine = (1..=MAX_DIMENSION).contains(&number);
    fine.then_some(number).ok_or_else(|| format!("{what}: must be a whole number from 1 to {MAX_DIMENSION}"))
}

/// A number above zero.
fn positive(what: &str, number: Option<f64>) -> Result<Option<f64>, String> {
    let wrong = number.is_some_and(|v| !v.is_finite() || v <= 0.0);
    if wrong { Err(format!("{what}: must be a number above 0")) } else { Ok(number) }
}

impl Setup {
    fn request(&self) -> Result<Request, String> {
        let mode = by_name("mode", self.mode.as_deref(), Mode::from_name)?;
        let precision = by_name("precision", self.precision.as_deref(), Precision::from_name)?;
        let launch = by_name("launch", self.launch.as_deref(), Launch::from_name)?;
        let optimizer = by_name("optimizer", self.optimizer.as_deref(), Optimizer::from_name)?;
        let sequence = self.sequence.map(|tokens| size("tokens", tokens)).transpose()?;
        let usual = Request::new(&self.net, "");
        let runner = match &self.framework {
            Some(name) => Runner::through(name),
            None => usual.runner.clone(),
        };
        Ok(Request {
            teams: self.gpus.iter().map(|gpu| Team::of(1, gpu)).collect(),
            batches: vec![Batch::Samples(size("batch", self.batch)?)],
            reading: Reading { sequence, ..Reading::default() },
            precisions: precision.map_or_else(|| usual.precisions.clone(), |p| vec![p]),
            modes: mode.map_or_else(|| usual.modes.clone(), |m| vec![m]),
            runner: Runner { launch, ..runner },
            optimizer,
            point: OperatingPoint {
                core_clock: positive("clock", self.clock_mhz)?.map(Hertz::from_mhz),
                power_cap: positive("power limit", self.power_cap_w)?.map(Watts::new),
                ..OperatingPoint::default()
            },
            ..usual
        })
    }
}

/// Notes on a GPU's prediction, as the command words them.
#[derive(Serialize)]
struct Notes<'a> {
    gpu: &'a str,
    warnings: Vec<&'a str>,
}

/// A comparison with what its document has no place for.
#[derive(Serialize)]
struct Compared<'a> {
    comparison: Value,
    notes: Vec<Notes<'a>>,
}

fn json(result: &(impl Export + ?Sized)) -> Result<String, String> {
    result.export(Format::Json).map_err(|e| e.to_string())
}

fn step(session: &Session, setup: &Setup) -> Result<String, String> {
    let request = setup.request()?;
    let answer = ask::step(session, &request).map_err(|e| e.to_string())?;
    let predictor = answer.cluster.first();
    let asked = Asked {
        gpu: request.teams.first().map_or("", |team| &team.name),
        source: answer.source,
        framework: &predictor.framework().name,
        launch: predictor.launch(),
        training: answer.training,
    };
    json(&Shown { prediction: &answer.prediction, gpu: predictor.gpu(), asked: &asked, layers: true })
}

fn curves(session: &Session, setup: &Setup) -> Result<String, String> {
    let choice = Choice { over: Over { cap: true, clock: true, batch: false }, ..Choice::default() };
    let found = ask::optimize(session, &setup.request()?, &choice).map_err(|e| e.to_string())?;
    json(&found[..])
}

fn compare(session: &Session, setup: &Setup) -> Result<String, String> {
    let found = ask::compare(session, &setup.request()?, &ask::Question::default()).map_err(|e| e.to_string())?;
    let each = found.entries.iter().zip(&found.notes);
    let notes =
        each.map(|(entry, notes)| Notes { gpu: &entry.gpu, warnings: notes.iter().map(|note| &**note).collect() });
    let comparison = serde_json::from_str(&json(&found)?).map_err(|e| e.to_string())?;
    serde_json::to_string(&Compared { comparison, notes: notes.collect() }).map_err(|e| e.to_string())
}

fn plan(session: &Session, file: &str) -> Result<String, String> {
    let file = PlanFile::from_toml(file).map_err(|e| e.to_string())?;
    let runner = Runner::through(&file.framework);
    let found = ask::plan(session, file, &Reading::default(), &runner, String::new()).map_err(|e| e.to_string())?;
    json(&found)
}

/// The answer to a question, or `{"error": "why there is none"}`.
pub fn answer(session: &Session, question: &[u8]) -> String {
    let answered = serde_json::from_slice(question).map_err(|e| format!("the question: {e}")).and_then(|q| match q {
        Question::Catalog => serde_json::to_string(&Catalog::shipped()?).map_err(|e| e.to_string()),
        Question::Step(setup) => step(session, &setup),
        Question::Curves(setup) => curves(session, &setup),
        Question::Compare(setup) => compare(session, &setup),
        Question::Plan { file } => plan(session, &file),
    });
    answered.unwrap_or_else(|why| serde_json::json!({ "error": why }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(session: &Session, question: &str) -> Value {
        serde_json::from_str(&answer(session, question.as_bytes())).expect("JSON")
    }

    #[test]
    fn questions_are_answered_with_the_documents_of_the_command() {
        let session = Session::new();
        for (ask, at) in [
            (r#"{"ask":"step","net":"alexnet","gpus":["t4"],"batch":8}"#, "/time_s"),
            (r#"{"ask":"curves","net":"alexnet","gpus":["v100"],"batch":8,"mode":"training"}"#, "/points/10/energy_j"),
            (r#"{"ask":"compare","net":"alexnet","gpus":["t4","v100"],"batch":8}"#, "/comparison/rows/1/time_s"),
            (r#"{"ask":"catalog"}"#, "/gpus/0/memory_gib"),
        ] {
            let answer = asked(&session, ask);
            let value = answer.pointer(at).and_then(Value::as_f64);
            assert!(value.is_some_and(|v| v > 0.0), "{ask}: {answer}");
        }
    }

    #[test]
    fn what_is_wrong_is_one_line() {
        let session = Session::new();
        for (ask, says) in [
            ("nothing", "the question"),
            (r#"{"ask":"step","net":"alexnet","gpus":["t4"],"batch":0}"#, "batch"),
            (r#"{"ask":"step","net":"alexnet","gpus":["t5"],"batch":1}"#, "nearest"),
            (r#"{"ask":"step","net":"alexnet","gpus":["t4"],"batch":1,"precision":"fp3"}"#, "fp3"),
            (r#"{"ask":"step","net":"alexnet","gpus":["t4"],"batch":1,"clock_mhz":-1}"#, "clock"),
            (r#"{"ask":"step","net":"alexnet","gpus":["t4"],"batch":1,"unknown":1}"#, "unknown"),
            (r#"{"ask":"step","net":"x.onnx","gpus":["t4"],"batch":1}"#, "x.onnx"),
            (r#"{"ask":"plan","file":"schema = 1"}"#, "line 1"),
        ] {
            let error = asked(&session, ask);
            let error = error["error"].as_str().unwrap_or_default();
            assert!(error.contains(says) && !error.contains('\n'), "{ask}: {error}");
        }
    }
}
