//! Rows of JSON objects as CSV, and what every prediction says of its whole step.

use crate::markup::csv_cell;
use joulecast_model::step::predictor::Summary;
use serde::Serialize;
use serde_json::Value;

/// Totals of a step as they stand in every document; flattened into its objects.
#[derive(Serialize)]
pub(crate) struct Figures {
    time_s: f64,
    time_s_p05: f64,
    time_s_p95: f64,
    power_w: f64,
    power_w_p05: f64,
    power_w_p95: f64,
    energy_j: f64,
    energy_j_p05: f64,
    energy_j_p95: f64,
    edp_js: f64,
    samples_per_s: f64,
    energy_per_sample_j: f64,
    samples_per_s_per_w: f64,
}

impl Figures {
    /// Of a step of so many samples.
    pub(crate) fn of(p: &Summary, batch: u64) -> Self {
        Self {
            time_s: p.time.value.get(),
            time_s_p05: p.time.p05.get(),
            time_s_p95: p.time.p95.get(),
            power_w: p.power.value.get(),
            power_w_p05: p.power.p05.get(),
            power_w_p95: p.power.p95.get(),
            energy_j: p.energy.value.get(),
            energy_j_p05: p.energy.p05.get(),
            energy_j_p95: p.energy.p95.get(),
            edp_js: p.edp().get(),
            samples_per_s: p.samples_per_second(batch),
            energy_per_sample_j: p.energy_per_sample(batch).get(),
            samples_per_s_per_w: p.samples_per_joule(batch),
        }
    }
}

/// A header and a line per object; nested keys are joined by dots, lists of texts by semicolons, what is null or absent is empty.
/// Keys of the first level in `without` are left out.
pub(crate) fn csv(objects: &[Value], without: &[&str]) -> String {
    let rows: Vec<Vec<(String, String)>> = objects.iter().map(|object| cells(object, without)).collect();
    let mut header: Vec<&str> = Vec::new();
    for (key, _) in rows.iter().flatten() {
        if !header.contains(&&key[..]) {
            header.push(key);
        }
    }
    let mut text = if rows.is_empty() { String::new() } else { header.join(",") + "\n" };
    for row in &rows {
        let value = |key: &&str| row.iter().find(|(own, _)| own == key).map_or("", |(_, value)| value);
        text += &(header.iter().map(value).collect::<Vec<_>>().join(",") + "\n");
    }
    text
}

/// Keys and values of an object as they stand in lines.
fn cells(object: &Value, without: &[&str]) -> Vec<(String, String)> {
    let mut cells = Vec::new();
    let map = object.as_object().into_iter().flatten();
    map.filter(|(key, _)| !without.contains(&key.as_str())).for_each(|(k, v)| flatten(k, v, &mut cells));
    cells
}

/// The line of one of them behind those before it; the first is behind its header.
pub(crate) fn csv_line(text: &mut String, object: &Value, without: &[&str]) {
    let (keys, values): (Vec<String>, Vec<String>) = cells(object, without).into_iter().unzip();
    if text.is_empty() {
        *text += &(keys.join(",") + "\n");
    }
    *text += &(values.join(",") + "\n");
}

fn flatten(key: &str, value: &Value, cells: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| flatten(&format!("{key}.{k}"), v, cells)),
        Value::Array(items) => {
            let text = items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ");
            cells.push((key.to_string(), csv_cell(&text).into_owned()));
        }
        Value::Null => cells.push((key.to_string(), String::new())),
        Value::String(text) => cells.push((key.to_string(), csv_cell(text).into_owned())),
        other => cells.push((key.to_string(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_keys_and_lists_become_columns() {
        let rows = [
            serde_json::json!({"a": "x,y", "b": {"c": 1.5, "d": null}, "e": ["p", "q"], "f": [1]}),
            serde_json::json!({"a": "=z", "b": {"c": 2, "d": true}, "e": [], "f": []}),
        ];
        assert_eq!(csv(&rows, &["f"]), "a,b.c,b.d,e\n\"x,y\",1.5,,p; q\n'=z,2,true,\n");
        let ragged = [serde_json::json!({"a": 1}), serde_json::json!({"b": 2, "a": 3}), serde_json::json!({"b": null})];
        assert_eq!(csv(&ragged, &[]), "a,b\n1,\n3,2\n,\n");
        assert_eq!(csv(&[], &[]), "");
    }
}
