//! Keys of a `config.json`, read one by one: what is missing, absurd or of another kind is named.

use joulecast_model::base::text::{closest, shown};
use joulecast_model::net::layer::Function;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// Why a file is refused, in one line that names the key.
pub(super) type Outcome<T> = Result<T, String>;

/// No size in a published file comes near; sums of products of such sizes can be counted.
const MOST: u64 = 1 << 24;
/// No published model has a tenth of them.
const MOST_LAYERS: u64 = 1 << 10;

/// The fields of a file, or of a part of it.
#[derive(Clone, Copy)]
pub(super) struct Config<'j> {
    fields: &'j Map<String, Value>,
}

impl<'j> Config<'j> {
    pub fn of(value: &'j Value) -> Option<Self> {
        value.as_object().map(|fields| Self { fields })
    }

    /// A field that is there; `null` says as much as nothing.
    fn field(&self, key: &str) -> Option<&'j Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    pub fn has(&self, key: &str) -> bool {
        self.field(key).is_some()
    }

    /// Fields in a field.
    pub fn part(&self, key: &str) -> Option<Self> {
        self.field(key).and_then(Self::of)
    }

    fn whole(key: &str, value: &Value, range: RangeInclusive<u64>) -> Outcome<u64> {
        let (low, high) = (range.start(), range.end());
        let wrong = || format!("{key} is {}, which is not a whole number from {low} to {high}", said(value));
        value.as_u64().filter(|n| range.contains(n)).ok_or_else(wrong)
    }

    /// A size that may be missing.
    pub fn size_if_any(&self, key: &str) -> Outcome<Option<u64>> {
        self.field(key).map(|value| Self::whole(key, value, 1..=MOST)).transpose()
    }

    /// A size without which nothing can be said.
    pub fn size(&self, key: &str) -> Outcome<u64> {
        self.size_if_any(key)?.ok_or_else(|| missing(key))
    }

    /// How many layers there are.
    pub fn layers(&self, key: &str) -> Outcome<u64> {
        Self::whole(key, self.field(key).ok_or_else(|| missing(key))?, 1..=MOST_LAYERS)
    }

    /// A count that may be none.
    pub fn count(&self, key: &str, otherwise: u64) -> Outcome<u64> {
        self.field(key).map_or(Ok(otherwise), |value| Self::whole(key, value, 0..=MOST))
    }

    /// A number from 0 to 1.
    pub fn share(&self, key: &str) -> Outcome<Option<f64>> {
        let wrong = |value| format!("{key} is {}, which is not a number from 0 to 1", said(value));
        let within = |value: &'j Value| value.as_f64().filter(|n| (0.0..=1.0).contains(n)).ok_or_else(|| wrong(value));
        self.field(key).map(within).transpose()
    }

    pub fn truth(&self, key: &str, otherwise: bool) -> Outcome<bool> {
        let wrong = |value| format!("{key} is {}, which is neither true nor false", said(value));
        self.field(key).map_or(Ok(otherwise), |value| value.as_bool().ok_or_else(|| wrong(value)))
    }

    pub fn text(&self, key: &str) -> Outcome<Option<&'j str>> {
        let wrong = |value| format!("{key} is {}, which is no text", said(value));
        self.field(key).map(|value| value.as_str().ok_or_else(|| wrong(value))).transpose()
    }

    pub fn list(&self, key: &str) -> Outcome<Option<&'j [Value]>> {
        let wrong = |value| format!("{key} is {}, which is no list", said(value));
        self.field(key).map(|value| value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(value))).transpose()
    }

    /// What a list of numbers of layers holds; nothing where it is missing.
    pub fn numbers(&self, key: &str) -> Outcome<Vec<u64>> {
        let list = self.list(key)?.unwrap_or_default();
        list.iter().map(|value| Self::whole(key, value, 0..=MOST_LAYERS)).collect()
    }

    /// Refuses what changes the network in a way that is not known.
    pub fn without(&self, key: &str) -> Outcome<()> {
        match self.field(key) {
            None | Some(Value::Bool(false)) => Ok(()),
            Some(value) => Err(format!("{key} is {}, and what that changes is not known here", said(value))),
        }
    }

    /// An activation function by the name that transformers gives it.
    pub fn function(&self, key: &str, otherwise: &str) -> Outcome<Function> {
        let name = self.text(key)?.unwrap_or(otherwise);
        let ours = match name {
            "swish" => "silu",
            "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => "gelu_tanh",
            "gelu_python" => "gelu",
            other => other,
        };
        let near = || closest(name, Function::NAMES.iter().copied());
        Function::from_name(ours)
            .ok_or_else(|| format!("{key} is \"{}\", which is not known here{}", shown(name), near()))
    }
}

fn missing(key: &str) -> String {
    format!("{key} is missing")
}

/// A value as a message may quote it.
fn said(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", shown(text)),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        other => other.to_string(),
    }
}
