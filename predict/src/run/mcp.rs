//! `predict mcp`: questions of an assistant over the Model Context Protocol on standard input and output.
//!
//! JSON-RPC 2.0, a message a line (<https://modelcontextprotocol.io/specification/2025-06-18/basic/transports>, stdio). A tool's
//! arguments are the options of the command of its name, as [`typed`] reads them; its answer is the document that the command
//! prints with `--format json`, and the verdict on it as text. Nothing is written to any file.

use crate::args::Cli;
use crate::ask;
use crate::failure::Failure;
use crate::request::Runner;
use crate::session::Session;
use crate::typed;
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use joulecast_ask::capacity::PlanFile;
use joulecast_reports::export::{Export, Format};
use joulecast_reports::given;
use joulecast_reports::verdict::{Statement, Verdict};
use serde_json::{Map, Value, json};
use std::io::{self, BufRead, Read, Write};
use std::path::Path;

/// Versions of the protocol that are spoken, the newest first; they differ in nothing that is used here.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];

/// No message is longer: plans and options are short.
const LONGEST: u64 = 1 << 20;

// Codes of JSON-RPC 2.0, section 5.1.
const NOT_JSON: i64 = -32700;
const NO_REQUEST: i64 = -32600;
const NO_METHOD: i64 = -32601;
const NO_PARAMS: i64 = -32602;

const INSTRUCTIONS: &str = "Time, power, energy and memory of neural networks on GPUs, predicted before anything runs. Give \
                            figures with their intervals and the verdict's words on how far to trust them. Where the verdict \
                            says that two GPUs cannot be told apart, name neither as the best.";

/// A tool: a command whose answer is a document.
struct Tool {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    answer: fn(&Session, &Map<String, Value>) -> Result<Answered, Wrong>,
}

/// A document and the verdict on it.
struct Answered {
    document: String,
    verdict: String,
}

/// Why a tool has no answer.
enum Wrong {
    /// Arguments that its schema does not have: an error of the protocol.
    Arguments(String),
    /// What the command would say: for the one who asks to read.
    Told(Failure),
}

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Self {
        Self::Told(failure)
    }
}

const TOOLS: [Tool; 4] = [
    Tool {
        name: "predict",
        title: "Predict a step",
        about: "Time, power, energy and memory of a step of a network on a GPU, with 90 % intervals, what bounds it and how far \
                to trust it (document prediction/1). The list of layers is left out unless `layers` is true.",
        answer: predict,
    },
    Tool {
        name: "compare",
        title: "Compare GPUs",
        about: "Networks on GPUs side by side: which takes least time, energy or money, and whether that is sure (document \
                comparison/1).",
        answer: compare,
    },
    Tool {
        name: "optimize",
        title: "Find the best setting",
        about: "The core clock, power limit and batch with the least energy, time or product of both (document optimum/1).",
        answer: optimize,
    },
    Tool {
        name: "plan",
        title: "Plan a fleet",
        about: "How many GPUs a load needs, at which power, cost and carbon, and whether the choice is sure (document \
                capacity_plan/1).",
        answer: plan,
    },
];

/// The text of a plan, of the tool `plan`.
const PLAN_TEXT: &str = "plan";

/// Serves until the input ends.
///
/// # Errors
/// When the input cannot be read or the output not be written.
pub fn serve(session: &Session) -> Result<(), Failure> {
    let (input, mut output) = (io::stdin().lock(), io::stdout().lock());
    converse(session, input, &mut output).map_err(Failure::failed)
}

/// Answers each line of an input on a line of an output.
fn converse(session: &Session, mut input: impl BufRead, output: &mut impl Write) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let cut = line.len() as u64 == LONGEST && line.last() != Some(&b'\n');
        let answer = match cut {
            true => {
                skip_line(&mut input)?;
                Some(error(&Value::Null, NO_REQUEST, format_args!("a message is longer than {LONGEST} bytes")))
            }
            false if line.trim_ascii().is_empty() => None,
            false => answered(session, &line),
        };
        if let Some(answer) = answer {
            writeln!(output, "{answer}")?;
            output.flush()?;
        }
    }
}

/// The rest of a line.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (used, ended) = match buffer.iter().position(|b| *b == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(used);
        if ended {
            return Ok(());
        }
    }
}

fn result(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn error(id: &Value, code: i64, why: impl std::fmt::Display) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why.to_string() } })
}

/// The answer to a message; none to a notification.
fn answered(session: &Session, line: &[u8]) -> Option<Value> {
    let message: Value = match serde_json::from_slice(line) {
        Ok(message) => message,
        Err(why) => return Some(error(&Value::Null, NOT_JSON, format_args!("no JSON: {why}"))),
    };
    let Value::Object(message) = message else {
        return Some(error(&Value::Null, NO_REQUEST, "a message is one object of JSON-RPC 2.0"));
    };
    let id = message.get("id");
    if id.is_some_and(|id| !(id.is_string() || id.is_number())) {
        return Some(error(&Value::Null, NO_REQUEST, "an id is a text or a number"));
    }
    let method = message.get("method").and_then(Value::as_str);
    let (Some("2.0"), Some(method)) = (message.get("jsonrpc").and_then(Value::as_str), method) else {
        // An answer to a question that nobody asked.
        let is_answer = message.contains_key("result") || message.contains_key("error");
        return (!is_answer).then(|| error(id.unwrap_or(&Value::Null), NO_REQUEST, "no method of JSON-RPC 2.0"));
    };
    let id = id?;
    let empty = Map::new();
    let params = match message.get("params") {
        None => &empty,
        Some(Value::Object(params)) => params,
        Some(_) => return Some(error(id, NO_PARAMS, "params are an object")),
    };
    Some(match method {
        "initialize" => result(id, initialized(params)),
        "ping" => result(id, json!({})),
        "tools/list" => result(id, json!({ "tools": TOOLS.iter().map(described).collect::<Vec<_>>() })),
        "tools/call" => match called(session, params) {
            Ok(answer) => result(id, answer),
            Err(why) => error(id, NO_PARAMS, why),
        },
        other => error(id, NO_METHOD, format_args!("no method {other:?}")),
    })
}

fn initialized(params: &Map<String, Value>) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str);
    let version = VERSIONS.into_iter().find(|v| Some(*v) == asked).unwrap_or(VERSIONS[0]);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "joulecast", "version": crate::version() },
        "instructions": INSTRUCTIONS,
    })
}

/// Calls a tool. What the command would refuse is an answer, which says why.
fn called(session: &Session, params: &Map<String, Value>) -> Result<Value, String> {
    let name = params.get("name").and_then(Value::as_str).ok_or("which tool? \"name\" says it")?;
    let tool = TOOLS.iter().find(|tool| tool.name == name);
    let tool = tool.ok_or_else(|| format!("no tool {name:?}; there are {}", TOOLS.map(|t| t.name).join(", ")))?;
    let empty = Map::new();
    let arguments = match params.get("arguments") {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(arguments)) => arguments,
        Some(_) => return Err("arguments are an object".into()),
    };
    let text = |text: String| json!({ "type": "text", "text": text });
    match (tool.answer)(session, arguments) {
        Ok(Answered { document, verdict }) => {
            let parsed: Value = serde_json::from_str(&document).map_err(|e| e.to_string())?;
            let structured = if parsed.is_object() { parsed } else { json!({ "documents": parsed }) };
            let compact = structured.to_string();
            Ok(json!({ "content": [text(verdict), text(compact)], "structuredContent": structured, "isError": false }))
        }
        Err(Wrong::Arguments(why)) => Err(why),
        Err(Wrong::Told(why)) => Ok(json!({ "content": [text(why.to_string())], "isError": true })),
    }
}

/// The command that a tool asks: `predict` itself, or one of its commands.
fn command(name: &str) -> Command {
    let mut all = Cli::command();
    all.build();
    match all.find_subcommand(name) {
        Some(command) => command.clone(),
        None => all,
    }
}

/// Whether an option is of the question, not of where its answer goes.
fn is_asked(option: &Arg) -> bool {
    const OTHERS: [&str; 8] = ["output", "force", "format", "figure", "figures", "new", "help", "version"];
    option.get_long().is_some_and(|long| !OTHERS.contains(&long))
}

/// The name of an option as a key.
fn key(long: &str) -> String {
    long.replace('-', "_")
}

/// What an option takes.
fn schema_of(option: &Arg) -> Value {
    let about = option.get_help().map(ToString::to_string).unwrap_or_default();
    let one = match option.get_possible_values() {
        values if values.is_empty() => json!({ "type": ["string", "number"] }),
        values => json!({ "enum": values.iter().map(clap::builder::PossibleValue::get_name).collect::<Vec<_>>() }),
    };
    let mut schema = match option.get_action() {
        ArgAction::SetTrue => json!({ "type": "boolean" }),
        ArgAction::Append => json!({ "type": "array", "items": one }),
        _ if option.get_value_delimiter().is_some() => json!({ "type": "array", "items": one }),
        _ => one,
    };
    schema["description"] = about.into();
    schema
}

/// A tool with the schema of its arguments.
fn described(tool: &Tool) -> Value {
    let command = command(tool.name);
    let options: Vec<&Arg> = command.get_arguments().filter(|option| is_asked(option)).collect();
    let mut properties: Map<String, Value> = Map::new();
    let mut required: Vec<String> = Vec::new();
    if tool.name == PLAN_TEXT {
        let about = "The plan file's text, as data/capacity/README.md describes it; or `file`, a path to one";
        properties.insert(PLAN_TEXT.into(), json!({ "type": "string", "description": about }));
        properties.insert("file".into(), json!({ "type": "string", "description": "A path to a plan file" }));
    }
    for option in options {
        let Some(long) = option.get_long() else { continue };
        properties.insert(key(long), schema_of(option));
        required.extend(option.is_required_set().then(|| key(long)));
    }
    json!({
        "name": tool.name, "title": tool.title, "description": tool.about,
        "inputSchema": {
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        },
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
    })
}

/// A value as a word.
fn word(key: &str, value: &Value) -> Result<String, Wrong> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(Wrong::Arguments(format!("{key}: must be a text or a number"))),
    }
}

/// Arguments as the words of a command line; options that are lists of words become one with commas.
fn words(tool: &str, arguments: &Map<String, Value>) -> Result<Vec<String>, Wrong> {
    let command = command(tool);
    let mut list = Vec::new();
    for (name, value) in arguments {
        let known =
            command.get_arguments().find(|o| is_asked(o) && o.get_long().is_some_and(|long| key(long) == *name));
        let Some((option, long)) = known.and_then(|o| Some((o, o.get_long()?))) else {
            return Err(Wrong::Arguments(format!("{tool} has no argument {name:?}; tools/list says which it has")));
        };
        let flag = matches!(option.get_action(), ArgAction::SetTrue);
        match value {
            Value::Null => {}
            Value::Bool(set) if flag => list.extend(set.then(|| format!("--{long}"))),
            _ if flag => return Err(Wrong::Arguments(format!("{name}: must be true or false"))),
            Value::Array(items) => {
                let items = items.iter().map(|item| word(name, item)).collect::<Result<Vec<_>, _>>()?;
                match option.get_value_delimiter() {
                    Some(comma) => list.push(format!("--{long}={}", items.join(&comma.to_string()))),
                    None if matches!(option.get_action(), ArgAction::Append) => {
                        list.extend(items.iter().map(|item| format!("--{long}={item}")));
                    }
                    None => return Err(Wrong::Arguments(format!("{name}: takes one value"))),
                }
            }
            one => list.push(format!("--{long}={}", word(name, one)?)),
        }
    }
    Ok(list)
}

fn json_of(result: &(impl Export + ?Sized)) -> Result<String, Wrong> {
    result.export(Format::Json).map_err(|e| Failure::Failed(e.into()).into())
}

/// A document without a list that is long.
fn without(document: &str, key: &str) -> Result<String, Wrong> {
    let mut value: Value = serde_json::from_str(document).map_err(Failure::failed)?;
    if let Some(list) = value.get_mut(key) {
        *list = json!([]);
    }
    Ok(value.to_string())
}

fn predict(session: &Session, arguments: &Map<String, Value>) -> Result<Answered, Wrong> {
    let typed::Step { request, generate, layouts } = typed::predict(&words("predict", arguments)?)?;
    let (document, verdict) = super::predicted(session, &request, (generate, layouts), true, Format::Json)?;
    let layers = arguments.get("layers").and_then(Value::as_bool).unwrap_or(false);
    let document = if layers { document } else { without(&document, "layers")? };
    Ok(Answered { document, verdict })
}

fn compare(session: &Session, arguments: &Map<String, Value>) -> Result<Answered, Wrong> {
    let (request, question) = typed::compare(&words("compare", arguments)?)?;
    let found = ask::compare(session, &request, &question)?;
    let mut lines = found.conclusions();
    lines.extend(found.entries.iter().map(|entry| {
        format!("{} on {} at batch {}: {}", entry.network, entry.gpu, entry.batch, Statement::from(entry).line())
    }));
    Ok(Answered { document: json_of(&found)?, verdict: lines.join("\n") })
}

fn optimize(session: &Session, arguments: &Map<String, Value>) -> Result<Answered, Wrong> {
    let (request, choice) = typed::optimize(&words("optimize", arguments)?)?;
    let found = ask::optimize(session, &request, &choice)?;
    let line = |f: &joulecast_reports::optimum::Found| {
        let best = f.candidates.get(f.best).unwrap_or(&f.default);
        format!("{}, least {}: {}: {}", f.title, f.metric, best.setting(), Verdict::of(&best.prediction).line())
    };
    let verdict = found.iter().map(line).collect::<Vec<_>>().join("\n");
    Ok(Answered { document: json_of(&found[..])?, verdict })
}

fn plan(session: &Session, arguments: &Map<String, Value>) -> Result<Answered, Wrong> {
    let mut arguments = arguments.clone();
    let mut taken = |key: &str| match arguments.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Wrong::Arguments(format!("{key}: must be a text"))),
    };
    let text = match (taken(PLAN_TEXT)?, taken("file")?) {
        (Some(text), None) => text,
        (None, Some(path)) => given::text(Path::new(&path)).map_err(Failure::failed)?,
        _ => return Err(Wrong::Arguments("give \"plan\", a plan file's text, or \"file\", a path to one".into())),
    };
    let file = PlanFile::from_toml(&text).map_err(Failure::failed)?;
    let mut words = words("plan", &arguments)?;
    // The file's place among the words; its text is here already.
    words.push("plan.toml".into());
    let asked = typed::plan(&words)?;
    let runner = Runner { framework: file.framework.clone(), ..asked.runner };
    let found = ask::plan(session, file, &asked.reading, &runner, "predict mcp".into())?;
    let nothing = || "No candidate carries the load within its limits".to_string();
    Ok(Answered { document: json_of(&found)?, verdict: found.conclusion().unwrap_or_else(nothing) + "." })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(session: &Session, lines: &[u8]) -> Vec<Value> {
        let mut output = Vec::new();
        converse(session, lines, &mut output).expect("memory takes everything");
        output
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| serde_json::from_slice(l).expect("JSON"))
            .collect()
    }

    #[test]
    fn what_is_no_message_is_an_error_of_the_protocol() {
        let session = Session::new();
        let long =
            [b"[".repeat(LONGEST as usize + 5), b"\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n".to_vec()]
                .concat();
        let answers = said(&session, &long);
        assert_eq!(
            (answers.len(), answers[0]["error"]["code"].as_i64(), &answers[1]["result"]),
            (2, Some(NO_REQUEST), &json!({}))
        );
        for (line, code) in [
            (&b"nothing"[..], NOT_JSON),
            (b"{\"jsonrpc\":\"2.0\",", NOT_JSON),
            (b"\xff\xfe", NOT_JSON),
            (b"[]", NO_REQUEST),
            (b"3", NO_REQUEST),
            (b"{}", NO_REQUEST),
            (b"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", NO_REQUEST),
            (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", NO_REQUEST),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":3}", NO_REQUEST),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"none\"}", NO_METHOD),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[1]}", NO_PARAMS),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}", NO_PARAMS),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"rm\"}}", NO_PARAMS),
        ] {
            let answers = said(&session, line);
            let text = String::from_utf8_lossy(line);
            assert_eq!(answers.len(), 1, "{text}");
            assert_eq!(answers[0]["error"]["code"].as_i64(), Some(code), "{text}: {}", answers[0]);
        }
    }

    #[test]
    fn notifications_and_answers_have_no_answer() {
        let session = Session::new();
        let lines = b"\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n";
        assert!(said(&session, lines).is_empty());
    }

    #[test]
    fn arguments_are_words_or_refused() {
        let of = |value: Value| words("compare", value.as_object().expect("an object"));
        let list = of(json!({ "net": ["a", "b"], "gpu": "t4", "batch": [1, 8], "weak": null })).err();
        assert!(matches!(list, Some(Wrong::Arguments(why)) if why.contains("weak")));
        let list = of(json!({ "net": ["a", "b"], "gpu": "t4", "batch": [1, 8], "power_cap": "0.2kW", "sure": true }));
        let mut list = list.unwrap_or_default();
        list.sort();
        assert_eq!(list, ["--batch=1,8", "--gpu=t4", "--net=a,b", "--power-cap=0.2kW", "--sure"]);
        for wrong in [json!({ "net": {} }), json!({ "sure": 1 }), json!({ "clock": [1] }), json!({ "output": "x" })] {
            assert!(matches!(of(wrong.clone()), Err(Wrong::Arguments(_))), "{wrong}");
        }
    }
}
