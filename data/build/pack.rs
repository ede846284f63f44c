//! Packs a data file ([`form`](crate::form)).

use crate::form::{LARGE, LEAST_POWER, POWER_BITS, SPLIT, WIDE, from_few_digits, tag};
use std::collections::HashMap;
use toml::{Table, Value};

/// The sign of the first size in the text of a tree.
const FIRST_SIGN: u8 = b'A';

/// A file's packed form.
///
/// # Errors
/// In words, for what is not TOML, a date, which no data file needs, or a decision tree that is none.
pub fn pack(text: &str) -> Result<Vec<u8>, String> {
    let root: Table = toml::from_str(text).map_err(|e| e.to_string())?;
    let (mut strings, mut body) = (Strings::default(), Vec::new());
    write(&Value::Table(root), &mut strings, &mut body)?;
    let mut bytes = Vec::new();
    let length = |n: usize| u32::try_from(n).map(u32::to_le_bytes).map_err(|_| "too long".to_string());
    bytes.extend(length(strings.list.len())?);
    let mut end = 0;
    for string in &strings.list {
        end += string.len();
        bytes.extend(length(end)?);
    }
    strings.list.iter().for_each(|string| bytes.extend(string.as_bytes()));
    bytes.extend(body);
    Ok(bytes)
}

/// Strings, each once, in the order in which they come.
#[derive(Default)]
struct Strings {
    list: Vec<String>,
    known: HashMap<String, u64>,
}

impl Strings {
    fn position(&mut self, string: &str) -> u64 {
        if let Some(known) = self.known.get(string) {
            return *known;
        }
        let next = self.list.len() as u64;
        self.list.push(string.to_string());
        self.known.insert(string.to_string(), next);
        next
    }
}

/// A number in groups of seven bits, the lowest first; all but the last have their highest bit set.
fn count(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// A float as whole digits times a power of ten, where both fit into 32 bits and give the same float back.
fn few_digits(value: f64) -> Option<u32> {
    let text = format!("{value:e}");
    let (digits, power) = text.split_once('e')?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits: i32 = format!("{whole}{fraction}").parse().ok()?;
    let power = power.parse::<i32>().ok()? - fraction.len() as i32;
    let fits = digits.unsigned_abs() < 1 << (31 - POWER_BITS);
    let power = u32::try_from(power + LEAST_POWER).ok().filter(|p| fits && p >> POWER_BITS == 0)?;
    let packed = (digits << POWER_BITS) as u32 | power;
    (from_few_digits(packed).to_bits() == value.to_bits()).then_some(packed)
}

fn write(value: &Value, strings: &mut Strings, bytes: &mut Vec<u8>) -> Result<(), String> {
    let framed = |tag: u8, entries: usize, body: &[u8], bytes: &mut Vec<u8>| {
        let mut head = Vec::new();
        count(entries as u64, &mut head);
        bytes.push(tag);
        count((head.len() + body.len()) as u64, bytes);
        bytes.extend(head.iter().chain(body));
    };
    match value {
        Value::String(text) => {
            bytes.push(tag::TEXT);
            count(strings.position(text), bytes);
        }
        Value::Integer(n) => {
            bytes.push(tag::INTEGER);
            count(n.unsigned_abs() << 1 | u64::from(*n < 0), bytes);
        }
        Value::Float(value) => match few_digits(*value) {
            Some(packed) => {
                bytes.push(tag::DECIMAL);
                bytes.extend(packed.to_le_bytes());
            }
            None => {
                bytes.push(tag::FLOAT);
                bytes.extend(value.to_le_bytes());
            }
        },
        Value::Boolean(value) => bytes.push(if *value { tag::TRUE } else { tag::FALSE }),
        Value::Array(list) => {
            let mut body = Vec::new();
            list.iter().try_for_each(|value| write(value, strings, &mut body))?;
            framed(tag::LIST, list.len(), &body, bytes);
        }
        Value::Table(entries) => {
            let mut body = Vec::new();
            for (key, value) in entries {
                count(strings.position(key), &mut body);
                match value {
                    Value::String(text) if key == "tree" => {
                        let nodes = tree(text)?;
                        body.push(tag::TREE);
                        count(nodes.len() as u64, &mut body);
                        body.extend(nodes);
                    }
                    value => write(value, strings, &mut body)?,
                }
            }
            framed(tag::TABLE, entries.len(), &body, bytes);
        }
        Value::Datetime(date) => return Err(format!("{date}: no data file has dates")),
    }
    Ok(())
}

/// A decision tree in the order of descent, as its text has it: a split ([`SPLIT`]) is followed by how long the branch behind it
/// is, its value, and both branches.
///
/// # Errors
/// In words, when the text is no tree.
fn tree(text: &str) -> Result<Vec<u8>, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    // From the end on: branches that wait for their split, the first on top.
    let mut branches: Vec<Vec<u8>> = Vec::new();
    for word in words.into_iter().rev() {
        let wrong = || format!("the tree has no node \"{word}\"");
        let mut bytes = Vec::new();
        if word.as_bytes()[0].is_ascii_digit() {
            let engine: u16 = word.parse().map_err(|_| wrong())?;
            match u8::try_from(engine) {
                Ok(small) if small < LARGE => bytes.push(small),
                _ => bytes.extend([&[LARGE][..], &engine.to_be_bytes()].concat()),
            }
        } else {
            let size = word.as_bytes()[0].checked_sub(FIRST_SIGN).filter(|size| *size < WIDE).ok_or_else(wrong)?;
            let at: f64 = word.get(1..).and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
            let (Some(first), Some(other)) = (branches.pop(), branches.pop()) else {
                return Err("the tree is cut".to_string());
            };
            let few = few_digits(at);
            bytes.push(SPLIT | size | if few.is_some() { 0 } else { WIDE });
            count(first.len() as u64, &mut bytes);
            match few {
                Some(packed) => count(u64::from(packed), &mut bytes),
                None => bytes.extend(at.to_le_bytes()),
            }
            bytes.extend(first.iter().chain(&other));
        }
        branches.push(bytes);
    }
    match &mut branches[..] {
        [whole] => Ok(std::mem::take(whole)),
        _ => Err("the tree goes on behind its last branch".to_string()),
    }
}
