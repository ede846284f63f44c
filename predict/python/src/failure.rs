//! Why a question has no answer, as the exception that Python people expect.

use joulecast_model::catalog::CatalogError;
use joulecast_predict::Failure;
use joulecast_reports::export::ExportError;
use joulecast_reports::figure::FigureError;
use pyo3::exceptions::{PyFileNotFoundError, PyTypeError, PyValueError};
use pyo3::prelude::*;

pyo3::import_exception!(joulecast._errors, UnknownName);

/// Options of the command line, which messages name, as Python writes them.
fn named(text: &str) -> String {
    let word =
        |word: &str| match word.strip_prefix("--").filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase())) {
            None => word.to_string(),
            Some(rest) => {
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(rest.len());
                let name = match &rest[..end] {
                    "power-cap" => "power_limit".to_string(),
                    other => other.replace('-', "_"),
                };
                name + &rest[end..]
            }
        };
    // What was read from memory has no folder: its name says what it is.
    let word = |text: &str| match text.strip_prefix("memory:").and_then(|rest| rest.split_once('/')) {
        Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => rest.to_string(),
        _ => word(text),
    };
    // A quote may stand before it.
    let quoted = |part: &str| match part.strip_prefix('\'') {
        Some(rest) => format!("'{}", word(rest)),
        None => word(part),
    };
    let text = text.split(' ').map(quoted).collect::<Vec<_>>().join(" ");
    // What lists names is a function here.
    text.replace("`predict list nets`", "joulecast.nets()").replace("`predict list gpus`", "joulecast.gpus()")
}

/// What clap says of options in the words of Python: without the kind of value, of which the text behind tells more.
fn pythonic(text: &str) -> String {
    if !["invalid value '", "the argument '", MISSING, UNEXPECTED].iter().any(|begin| text.starts_with(begin)) {
        return text.to_string();
    }
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        // `'precision <PRECISION>'`, `dataset_size <N>`
        let is_kind = word.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        match (is_kind, words.last_mut()) {
            (Some((_, rest)), Some(option)) => option.push_str(rest),
            _ => words.push(word.to_string()),
        }
    }
    let text = words.join(" ");
    if let Some(missing) = text.strip_prefix(MISSING) {
        // `<--gpu|--gpus>`: either will do.
        let either = |option: &str| match option.strip_prefix('<').and_then(|names| names.strip_suffix('>')) {
            Some(names) => names.replace("--", "").replace('-', "_").replace('|', " or "),
            None => option.to_string(),
        };
        return format!("{MISSES}{}", missing.split_whitespace().map(either).collect::<Vec<_>>().join(", "));
    }
    match text.strip_prefix(UNEXPECTED).and_then(|rest| rest.split_once("' found")) {
        None => text,
        Some((option, tip)) => {
            let nearest = tip.split('\'').nth(1).map_or(String::new(), |near| format!("; nearest: {near}"));
            format!("{UNKNOWN}{option}{nearest}")
        }
    }
}

/// How clap begins what it says of options that are missing, and of those that there are not; and how it is said here.
const MISSING: &str = "the following required arguments were not provided:";
const MISSES: &str = "missing: ";
const UNEXPECTED: &str = "unexpected argument '";
const UNKNOWN: &str = "there is no option ";

/// A failure in words, options as Python writes them.
pub fn error_text(failure: &Failure) -> String {
    pythonic(&named(&failure.to_string()))
}

/// A failure as an exception.
pub fn error(failure: Failure) -> PyErr {
    let text = error_text(&failure);
    let (Failure::Usage(why) | Failure::Failed(why)) = &failure;
    let unknown = |e: &CatalogError| matches!(e, CatalogError::Unknown(_) | CatalogError::NoFramework { .. });
    if why.chain().any(|e| e.downcast_ref::<CatalogError>().is_some_and(unknown)) {
        return UnknownName::new_err(text);
    }
    let absent = |e: &std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
    if why.chain().any(|e| e.downcast_ref::<std::io::Error>().is_some_and(absent)) {
        return PyFileNotFoundError::new_err(text);
    }
    if text.starts_with(UNKNOWN) || text.starts_with(MISSES) {
        return PyTypeError::new_err(text);
    }
    PyValueError::new_err(text)
}

/// A result that cannot be written.
pub fn unwritten(why: ExportError) -> PyErr {
    PyValueError::new_err(why.to_string())
}

/// A figure that cannot be drawn.
pub fn undrawn(why: FigureError) -> PyErr {
    PyValueError::new_err(why.to_string())
}
