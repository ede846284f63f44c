//! Any table of layer times: a CSV with one layer per line, and a mapping that says what its columns mean.

mod mapping;
mod value;

pub use mapping::{Mapping, MappingError};

use super::columns::{Columns, Record};
use super::{ImportError, Imported, check, count, seconds, shown};
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::Layer;
use joulecast_model::rows::measurement::{Measurement, Order};
use mapping::LayerRule;
use std::collections::HashMap;
use value::{Bound, Outcome};

/// Imports a table by its mapping.
///
/// Rows that the mapping's `where` leaves out, whose value has no counterpart in a map (unless the map says
/// that this is an error), or that are not a possible layer are skipped, with the reason. The mapping's name
/// stands for the file in messages and row ids.
///
/// # Errors
/// When the text is not a table, lacks a column of the mapping, or a map that must cover every value does not.
pub fn import(text: &str, mapping: &Mapping) -> Result<Imported, ImportError> {
    let table = Columns::read(&mapping.name, text)?;
    let bound = Bindings::of(mapping, &table)?;
    let mut imported = Imported::default();
    for record in table.records() {
        match bound.read(&record) {
            Ok(rows) => {
                for row in rows {
                    match row {
                        Ok(m) => imported.rows.push(m),
                        Err(reason) => imported.skip(reason),
                    }
                }
            }
            Err(Outcome::Skip(reason)) => imported.skip(reason),
            Err(Outcome::Fail(what)) => return Err(table.fault(record.line, what)),
        }
    }
    Ok(imported)
}

/// A mapping with its columns found in a table.
struct Bindings<'m> {
    mapping: &'m Mapping,
    filters: Vec<(&'m str, usize, &'m [String])>,
    kind: Bound<'m>,
    gpu: Bound<'m>,
    batch: Bound<'m>,
    /// Text of a measurement, by its name there.
    texts: HashMap<&'m str, Bound<'m>>,
    flags: Vec<usize>,
    layers: HashMap<&'m str, BoundLayer<'m>>,
}

struct BoundLayer<'m> {
    fields: Vec<(&'m str, Bound<'m>)>,
    inputs: Vec<Vec<Bound<'m>>>,
    output: Vec<Bound<'m>>,
    times: Vec<(Phase, usize)>,
}

impl<'m> Bindings<'m> {
    fn of(mapping: &'m Mapping, table: &Columns) -> Result<Self, ImportError> {
        let bind = |value: &'m value::Value| value.bind(table);
        let filters = mapping
            .only
            .iter()
            .map(|(column, allowed)| Ok((column.as_str(), table.require(column)?, allowed.as_slice())));
        let layer = |rule: &'m LayerRule| {
            let times = rule.times.as_ref().unwrap_or(&mapping.times);
            Ok::<_, ImportError>(BoundLayer {
                fields: rule.fields.iter().map(|(name, v)| Ok((name.as_str(), bind(v)?))).collect::<Result<_, _>>()?,
                inputs: rule.inputs.iter().map(|dims| dims.iter().map(bind).collect()).collect::<Result<_, _>>()?,
                output: rule.output.iter().map(bind).collect::<Result<_, _>>()?,
                times: times.iter().map(|(p, c)| Ok((*p, table.require(c)?))).collect::<Result<_, _>>()?,
            })
        };
        Ok(Self {
            mapping,
            filters: filters.collect::<Result<_, _>>()?,
            kind: bind(&mapping.kind)?,
            gpu: bind(&mapping.gpu)?,
            batch: bind(&mapping.batch)?,
            texts: mapping.texts.iter().map(|(n, v)| Ok((n.as_str(), bind(v)?))).collect::<Result<_, _>>()?,
            flags: mapping.flags.iter().map(|c| table.require(c)).collect::<Result<_, _>>()?,
            layers: mapping.layers.iter().map(|(k, r)| Ok((k.as_str(), layer(r)?))).collect::<Result<_, _>>()?,
        })
    }

    /// One measurement or reason per phase.
    fn read(&self, record: &Record<'_>) -> Result<Vec<Result<Measurement, String>>, Outcome> {
        for (column, at, allowed) in &self.filters {
            let text = record.get(Some(*at)).unwrap_or_default();
            if !allowed.iter().any(|pattern| matches_pattern(pattern, text)) {
                return Err(Outcome::Skip(format!("{column} is {}", shown(text))));
            }
        }
        let kind = self.kind.text(record)?;
        let Some(layer) = self.layers.get(kind.as_str()) else {
            return Err(Outcome::Skip(format!("no layer kind for {}", shown(&kind))));
        };
        let gpu = self.gpu.text(record)?;
        let batch = count(self.batch.number(record)?).ok_or("batch is not a whole number from 1")?;
        let case = layer.case(&kind, record)?;
        let precision = match self.text("precision", record)? {
            None => Precision::Fp32,
            Some(name) => Precision::from_name(&name)
                .ok_or_else(|| Outcome::Fail(format!("precision {} is not one of ours", shown(&name))))?,
        };
        let mut m = Measurement::imported(&self.mapping.source, "", &gpu, case, Phase::Forward, batch, 0.0);
        m.licence = Some(self.mapping.licence.clone());
        m.method.clone_from(&self.mapping.method);
        m.n = self.mapping.timings;
        m.precision = precision;
        for (name, slot) in [
            ("form_factor", &mut m.form_factor),
            ("driver", &mut m.driver),
            ("cuda", &mut m.cuda),
            ("cudnn", &mut m.cudnn),
            ("math", &mut m.math),
            ("algo", &mut m.algo),
        ] {
            *slot = self.text(name, record)?;
        }
        m.layout = self
            .text("layout", record)?
            .map(|name| {
                let known = || Order::ALL.iter().map(|o| o.name()).collect::<Vec<_>>().join(", ");
                Order::from_name(&name)
                    .ok_or_else(|| Outcome::Fail(format!("layout {} is not one of {}", shown(&name), known())))
            })
            .transpose()?;
        let flags = self.flags.iter().filter_map(|at| record.get(Some(*at))).flat_map(|text| text.split(';'));
        m.flags = flags.map(str::trim).filter(|f| !f.is_empty()).map(str::to_string).collect();
        Ok(layer.times.iter().map(|(phase, at)| self.timed(&m, *phase, record, *at)).collect())
    }

    fn text(&self, name: &str, record: &Record<'_>) -> Result<Option<String>, Outcome> {
        self.texts.get(name).map_or(Ok(None), |value| value.optional(record))
    }

    fn timed(&self, m: &Measurement, phase: Phase, record: &Record<'_>, at: usize) -> Result<Measurement, String> {
        let Some(text) = record.get(Some(at)) else {
            return Err(format!("no {phase} time"));
        };
        let time_s = text.parse().ok().and_then(|value| seconds(value, self.mapping.unit_s));
        let time_s = time_s.ok_or_else(|| format!("{phase} time is not a time"))?;
        let row_id = format!("{}:{}:{}:{phase}", self.mapping.source, self.mapping.name, record.line);
        Ok(Measurement { trial_id: row_id.clone(), row_id, phase, time_s, ..m.clone() })
    }
}

impl BoundLayer<'_> {
    fn case(&self, kind: &str, record: &Record<'_>) -> Result<LayerCase, Outcome> {
        let shape = |dims: &Vec<Bound<'_>>| {
            let dims = dims.iter().map(|d| d.whole(record)).collect::<Result<Vec<_>, _>>()?;
            Shape::new(&dims).map_err(|e| Outcome::Skip(e.to_string()))
        };
        let inputs = self.inputs.iter().map(shape).collect::<Result<Vec<_>, _>>()?;
        let mut fields = toml::Table::new();
        for (name, value) in &self.fields {
            fields.insert((*name).to_string(), value.toml(record)?);
        }
        let layer = match Layer::from_table(kind, fields) {
            Some(Ok(layer)) => layer,
            Some(Err(e)) => {
                return Err(Outcome::Skip(format!("{kind}: {}", joulecast_model::base::text::toml_message(&e))));
            }
            None => return Err(Outcome::Fail(format!("no layer kind {}", shown(kind)))),
        };
        let case = LayerCase { inputs, layer };
        check(&case)?;
        if !self.output.is_empty() && case.output().ok() != Some(shape(&self.output)?) {
            return Err(Outcome::Skip(format!("{kind}: the published output size is another than its fields give")));
        }
        Ok(case)
    }
}

/// Equal, or beginning alike where the pattern ends in `*`.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == text, |head| text.starts_with(head))
}

#[cfg(test)]
mod tests;
