//! Packs a data file ([`form`](crate::form)).

use crate::form::{LARGE, LEAST_POWER, POWER_BITS, SPLIT, WIDE, Writer, count, from_few_digits, tag};
use toml::{Table, Value};

/// The sign of the first size in the text of a tree.
const FIRST_SIGN: u8 = b'A';

/// A file's packed form.
///
/// # Errors
/// In words, for what is not TOML, a date, which no data file needs, or a decision tree that is none.
pub fn pack(text: &str) -> Result<Vec<u8>, String> {
    let root: Table = toml::from_str(text).map_err(|e| e.to_string())?;
    let mut file = Writer::small();
    write(&Value::Table(root), &mut file)?;
    Ok(file.finish()?.0)
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

fn write(value: &Value, file: &mut Writer) -> Result<(), String> {
    match value {
        Value::String(text) => file.text(text),
        Value::Integer(number) => file.integer((*number).into()),
        Value::Float(number) => match few_digits(*number) {
            Some(packed) => file.decimal(packed),
            None => file.float(*number),
        },
        Value::Boolean(value) => file.truth(*value),
        Value::Array(list) => {
            file.framed(tag::LIST, list.len(), |file| list.iter().try_for_each(|value| write(value, file)))?;
        }
        Value::Table(entries) => file.framed(tag::TABLE, entries.len(), |file| {
            entries.iter().try_for_each(|(key, value)| {
                file.key(key);
                match value {
                    Value::String(text) if key == "tree" => tree(text).map(|nodes| file.tree(&nodes)),
                    value => write(value, file),
                }
            })
        })?,
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
