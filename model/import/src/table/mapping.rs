//! Mapping files, schema `mapping/1`.

use super::value::Value;
use joulecast_model::base::packed::from_toml;
use joulecast_model::base::precision::Phase;
use joulecast_model::base::text::{closest, in_short};
use joulecast_model::net::layer::Layer;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What the columns of a table mean.
///
/// ```toml
/// schema = "mapping/1"
/// name = "neusight_conv"          # stands for the file in row ids
/// source = "neusight"             # key in data/published/sources.toml
/// licence = "MIT"
/// method = "event_single"         # event_single, loop, graph
/// timings = 3                     # behind each value, optional
/// unit = "ms"                     # of all times: s, ms, us
/// flags = ["flag"]                # columns of reasons to leave a row out, separated by ';'
/// where = { split = ["train", "te*"] }            # only these rows; '*' at the end stands for anything
///
/// kind = "conv2d"                 # a literal, "$column", or a column with a map
/// gpu = { column = "gpu", map = { "Tesla T4" = "t4" }, unmapped = "skip" }   # or "error", the default
/// batch = "$batch"
/// texts = { cudnn = "8.9.2", algo = "$algo" }     # form_factor driver cuda cudnn precision math layout algo
/// times = { forward = "fwd_ms" }  # phase = column
///
/// [layers.conv2d]                 # one table per kind
/// inputs = [["$c_in", "$h", "$w"]]                # dimensions: numbers, columns, products "$c * $h * $w"
/// fields = { channels = "$c_out", kernel = ["$kh", "$kw"], bias = false }    # as in network files
/// output = ["$c_out", "$oh", "$ow"]               # optional: rows that give another size are skipped
/// times = { forward = "fwd_ms", backward_data = "bwd_ms" }    # optional, instead of the times above
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    pub(super) name: String,
    pub(super) source: String,
    pub(super) licence: String,
    pub(super) method: String,
    pub(super) timings: Option<u64>,
    /// Seconds per unit of time.
    pub(super) unit_s: f64,
    pub(super) flags: Vec<String>,
    pub(super) only: BTreeMap<String, Vec<String>>,
    pub(super) kind: Value,
    pub(super) gpu: Value,
    pub(super) batch: Value,
    pub(super) texts: BTreeMap<String, Value>,
    pub(super) times: Vec<(Phase, String)>,
    pub(super) layers: BTreeMap<String, LayerRule>,
}

/// How rows of one kind become a layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LayerRule {
    pub inputs: Vec<Vec<Value>>,
    pub fields: Vec<(String, Value)>,
    pub output: Vec<Value>,
    pub times: Option<Vec<(Phase, String)>>,
}

/// What is wrong with a mapping file, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("mapping: {0}")]
pub struct MappingError(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    name: String,
    source: String,
    licence: String,
    method: String,
    timings: Option<u64>,
    unit: String,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default, rename = "where")]
    only: BTreeMap<String, Vec<String>>,
    kind: toml::Value,
    gpu: toml::Value,
    batch: toml::Value,
    #[serde(default)]
    texts: BTreeMap<String, toml::Value>,
    #[serde(default)]
    times: BTreeMap<String, String>,
    layers: BTreeMap<String, Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    inputs: Vec<Vec<toml::Value>>,
    #[serde(default)]
    fields: toml::Table,
    #[serde(default)]
    output: Vec<toml::Value>,
    times: Option<BTreeMap<String, String>>,
}

/// Names that `texts` may set.
const TEXTS: &[&str] = &["form_factor", "driver", "cuda", "cudnn", "precision", "math", "layout", "algo"];

impl Mapping {
    /// Reads a mapping file.
    ///
    /// # Errors
    /// When it is not TOML, a key is unknown or missing, or a value is not one of those allowed.
    pub fn from_toml(text: &str) -> Result<Self, MappingError> {
        let file: File = from_toml(text).map_err(|e| MappingError(e.to_string()))?;
        Self::from_file(file).map_err(|message| MappingError(in_short(&message)))
    }

    /// Name of the mapping.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Key of the source in `data/published/sources.toml`.
    pub fn source(&self) -> &str {
        &self.source
    }

    fn from_file(file: File) -> Result<Self, String> {
        if file.schema != "mapping/1" {
            return Err(format!("schema is \"{}\", expected \"mapping/1\"", file.schema));
        }
        for (key, value) in
            [("name", &file.name), ("source", &file.source), ("licence", &file.licence), ("method", &file.method)]
        {
            if value.trim().is_empty() {
                return Err(format!("{key} is empty"));
            }
        }
        let unit_s = match file.unit.as_str() {
            "s" => 1.0,
            "ms" => 1e-3,
            "us" => 1e-6,
            other => return Err(format!("unit is \"{other}\", expected s, ms or us")),
        };
        if let Some(name) = file.texts.keys().find(|name| !TEXTS.contains(&name.as_str())) {
            return Err(format!("texts.{name} is unknown{}", closest(name, TEXTS.iter().copied())));
        }
        let value = |key: &str, value: &toml::Value| Value::parse(value).map_err(|e| format!("{key}: {e}"));
        let times = phases(&file.times)?;
        let mut layers = BTreeMap::new();
        for (kind, rule) in file.layers {
            let rule = LayerRule::from_rule(&kind, rule)?;
            if rule.times.as_ref().unwrap_or(&times).is_empty() {
                return Err(format!("layers.{kind} has no column of times"));
            }
            layers.insert(kind, rule);
        }
        Ok(Self {
            kind: value("kind", &file.kind)?,
            gpu: value("gpu", &file.gpu)?,
            batch: value("batch", &file.batch)?,
            texts: file.texts.iter().map(|(k, v)| Ok((k.clone(), value(k, v)?))).collect::<Result<_, String>>()?,
            name: file.name,
            source: file.source,
            licence: file.licence,
            method: file.method,
            timings: file.timings,
            unit_s,
            flags: file.flags,
            only: file.only,
            times,
            layers,
        })
    }
}

impl LayerRule {
    fn from_rule(kind: &str, rule: Rule) -> Result<Self, String> {
        if !Layer::KINDS.contains(&kind) {
            return Err(format!("layers.{kind} is no layer kind{}", closest(kind, Layer::KINDS.iter().copied())));
        }
        let value = |v: &toml::Value| Value::parse(v).map_err(|e| format!("layers.{kind}: {e}"));
        let field = |(name, v): (&String, &toml::Value)| Ok::<_, String>((name.clone(), value(v)?));
        Ok(Self {
            inputs: rule.inputs.iter().map(|dims| dims.iter().map(value).collect()).collect::<Result<_, _>>()?,
            fields: rule.fields.iter().map(field).collect::<Result<_, _>>()?,
            output: rule.output.iter().map(value).collect::<Result<_, _>>()?,
            times: rule.times.as_ref().map(phases).transpose()?,
        })
    }
}

fn phases(times: &BTreeMap<String, String>) -> Result<Vec<(Phase, String)>, String> {
    let mut phases = times
        .iter()
        .map(|(name, column)| {
            let phase = Phase::from_name(name).ok_or_else(|| {
                format!("times.{name} is no phase{}", closest(name, Phase::ALL.iter().map(|p| p.name())))
            })?;
            Ok((phase, column.clone()))
        })
        .collect::<Result<Vec<_>, String>>()?;
    phases.sort();
    Ok(phases)
}
