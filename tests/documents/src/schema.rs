//! JSON Schema (draft 2020-12) as far as `reports/book/src/schemas` uses it: a keyword that is not known is an error, so that
//! nothing is left unchecked in silence.

use serde_json::{Map, Value};

/// What of a value is not as a schema says, one line each with its place; empty where all is.
#[must_use]
pub fn wrong(schema: &Value, value: &Value) -> Vec<String> {
    let mut list = Vec::new();
    check(schema, schema, value, "", &mut list);
    list
}

/// Keywords that say nothing of a value.
const SAYS_NOTHING: [&str; 6] = ["$schema", "$id", "$defs", "title", "description", "$comment"];

fn check(root: &Value, schema: &Value, value: &Value, at: &str, list: &mut Vec<String>) {
    let rules = match schema {
        Value::Bool(true) => return,
        Value::Bool(false) => return list.push(format!("{at}: nothing may stand here")),
        Value::Object(rules) => rules,
        _ => panic!("{at}: a schema is an object: {schema}"),
    };
    for (keyword, rule) in rules {
        match keyword.as_str() {
            "$ref" => check(root, reference(root, rule), value, at, list),
            "type" => {
                let names = rule.as_array().map_or_else(|| vec![rule], |names| names.iter().collect());
                if !names.iter().any(|name| is(name.as_str().unwrap_or_default(), value)) {
                    list.push(format!("{at}: {} is not {rule}", short(value)));
                }
            }
            "const" if rule != value => list.push(format!("{at}: {} is not {rule}", short(value))),
            "enum" if !rule.as_array().is_some_and(|all| all.contains(value)) => {
                list.push(format!("{at}: {} is none of {rule}", short(value)));
            }
            "const" | "enum" => {}
            "anyOf" => {
                let ways = rule.as_array().map_or(&[] as &[Value], Vec::as_slice);
                let tried = ways.iter().map(|way| {
                    let mut of = Vec::new();
                    check(root, way, value, at, &mut of);
                    of
                });
                let tried: Vec<_> = tried.collect();
                if tried.iter().all(|of| !of.is_empty()) {
                    list.extend(tried.into_iter().min_by_key(Vec::len).unwrap_or_default());
                }
            }
            "minimum" | "exclusiveMinimum" | "maximum" => {
                let (Some(bound), Some(number)) = (rule.as_f64(), value.as_f64()) else { continue };
                let holds = match keyword.as_str() {
                    "minimum" => number >= bound,
                    "maximum" => number <= bound,
                    _ => number > bound,
                };
                if !holds {
                    list.push(format!("{at}: {number} against {keyword} {bound}"));
                }
            }
            "minItems" => {
                if value.as_array().is_some_and(|items| (items.len() as u64) < rule.as_u64().unwrap_or_default()) {
                    list.push(format!("{at}: fewer than {rule}"));
                }
            }
            // No other is needed.
            "pattern" if rule == "^\\$" => {
                if value.as_str().is_some_and(|text| !text.starts_with('$')) {
                    list.push(format!("{at}: {} does not begin with $", short(value)));
                }
            }
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{at}/{i}"), list);
                }
            }
            "required" => {
                for key in rule.as_array().into_iter().flatten().filter_map(Value::as_str) {
                    if value.as_object().is_some_and(|fields| !fields.contains_key(key)) {
                        list.push(format!("{at}: no {key}"));
                    }
                }
            }
            "properties" => {
                for (key, field) in value.as_object().into_iter().flatten() {
                    if let Some(rule) = rule.get(key) {
                        check(root, rule, field, &format!("{at}/{key}"), list);
                    }
                }
            }
            "additionalProperties" => others(root, rules, rule, value, at, list),
            _ if SAYS_NOTHING.contains(&keyword.as_str()) => {}
            _ => panic!("{at}: the keyword {keyword} is not known here"),
        }
    }
}

fn others(root: &Value, rules: &Map<String, Value>, rule: &Value, value: &Value, at: &str, list: &mut Vec<String>) {
    let named = rules.get("properties").and_then(Value::as_object);
    for (key, field) in value.as_object().into_iter().flatten() {
        if named.is_some_and(|named| named.contains_key(key)) {
            continue;
        }
        if rule == &Value::Bool(false) {
            list.push(format!("{at}: {key} is not known"));
        } else {
            check(root, rule, field, &format!("{at}/{key}"), list);
        }
    }
}

fn reference<'a>(root: &'a Value, rule: &Value) -> &'a Value {
    let path =
        rule.as_str().and_then(|path| path.strip_prefix('#')).unwrap_or_else(|| panic!("{rule} is no reference"));
    root.pointer(path).unwrap_or_else(|| panic!("{rule} is not there"))
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => panic!("{name} is no type"),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 60 { text.chars().take(60).collect::<String>() + "…" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_differs_is_said_with_its_place() {
        let schema = json!({
            "type": "object",
            "required": ["a"],
            "additionalProperties": false,
            "properties": {
                "a": { "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/positive" } },
                "b": { "enum": ["x", null] },
                "c": { "anyOf": [{ "const": 1 }, { "type": "string" }] }
            },
            "$defs": { "positive": { "type": ["number"], "exclusiveMinimum": 0 } }
        });
        for (value, expected) in [
            (json!({ "a": [1, 2.5], "b": null, "c": "y" }), vec![]),
            (json!({}), vec![": no a"]),
            (json!({ "a": [] }), vec!["/a: fewer than 1"]),
            (
                json!({ "a": [1, 0, "x"] }),
                vec!["/a/1: 0 against exclusiveMinimum 0", "/a/2: \"x\" is not [\"number\"]"],
            ),
            (json!({ "a": [1], "b": "y", "d": 1 }), vec!["/b: \"y\" is none of [\"x\",null]", ": d is not known"]),
            (json!({ "a": [1], "c": 2 }), vec!["/c: 2 is not 1"]),
        ] {
            let mut found = wrong(&schema, &value);
            found.sort();
            assert_eq!(found, expected, "{value}");
        }
    }

    #[test]
    #[should_panic(expected = "pattern is not known")]
    fn a_keyword_that_is_not_checked_is_refused() {
        let _ = wrong(&json!({ "pattern": "x" }), &json!("x"));
    }
}
