//! Packs a data file ([`form`](crate::form)).

use crate::form::{LEAST_POWER, POWER_BITS, SPLIT, WIDE, from_few_digits, tag};
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

/// A decision tree in the order of descent, as its text has it: a split ([`SPLIT`]) is followed by where its other branch
/// begins, four bytes, and its value; an engine is its number.
///
/// # Errors
/// In words, when the text is no tree.
fn tree(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes: Vec<u8> = Vec::new();
    // Where splits say where their other branch begins.
    let mut waiting: Vec<usize> = Vec::new();
    for word in text.split_ascii_whitespace() {
        let wrong = || format!("the tree has no node \"{word}\"");
        if word.as_bytes()[0].is_ascii_digit() {
            let engine: u16 = word.parse().map_err(|_| wrong())?;
            let [high, low] = engine.to_be_bytes();
            if high >= SPLIT {
                return Err(wrong());
            }
            bytes.extend([high, low]);
            if let Some(split) = waiting.pop() {
                let next = u32::try_from(bytes.len()).map_err(|_| wrong())?;
                bytes[split..split + 4].copy_from_slice(&next.to_le_bytes());
            }
        } else {
            let size = word.as_bytes()[0].checked_sub(FIRST_SIGN).filter(|size| *size < WIDE).ok_or_else(wrong)?;
            let at: f64 = word.get(1..).and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
            let few = few_digits(at);
            bytes.push(SPLIT | size | if few.is_some() { 0 } else { WIDE });
            waiting.push(bytes.len());
            bytes.extend([0; 4]);
            match few {
                Some(packed) => bytes.extend(packed.to_le_bytes()),
                None => bytes.extend(at.to_le_bytes()),
            }
        }
    }
    Ok(bytes)
}
