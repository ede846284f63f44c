//! Packs a data file ([`form`](crate::form)).

use crate::form::{FAR, LEAST_POWER, LONG, LONG_BRANCH, POWER_BITS, SPLIT, Writer, count, from_few_digits, tag};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The sign of the first size in the text of a tree.
const FIRST_SIGN: u8 = b'A';

/// A file's packed form.
///
/// # Errors
/// In words, for what is not TOML, a date, which no data file needs, or a decision tree that is none.
pub fn pack(text: &str) -> Result<Vec<u8>, String> {
    let mut root: Table = toml::from_str(text).map_err(|e| e.to_string())?;
    let models = root.get_mut("model").and_then(Value::as_array_mut);
    models.into_iter().flatten().for_each(fold_terms);
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

/// Deviations from the mean of a term, and what a term may be off there.
const FAR_FROM_MEAN: f64 = 6.0;
const UNSEEN: f64 = 2e-8;

/// The nearest float of few digits, as many as pack.
fn rounded(value: f64) -> f64 {
    let near = |digits: &usize| {
        let near: f64 = format!("{value:.digits$e}").parse().ok()?;
        few_digits(near).map(|_| near)
    };
    [7, 6].iter().find_map(near).unwrap_or(value)
}

/// Most numbers of a large calibration are of terms, and what their means come to is one number: packed, the largest one's term
/// has the mean of them all. Of engines, whose terms add little, scales are folded into coefficients, too.
fn fold_terms(model: &mut Value) {
    let fold = |terms: &mut Vec<Value>, folded: fn(&[Value]) -> Option<Vec<Value>>| {
        if let Some(folded) = folded(terms) {
            *terms = folded;
        }
    };
    if let Some(terms) = model.get_mut("terms").and_then(Value::as_array_mut) {
        fold(terms, without_means);
    }
    let engines = model.get_mut("engines").and_then(Value::as_array_mut).into_iter().flatten();
    engines.filter_map(|engine| engine.get_mut(4)?.as_array_mut()).for_each(|terms| fold(terms, folded));
}

/// `None` where terms are not name, coefficient, mean and scale.
fn without_means(terms: &[Value]) -> Option<Vec<Value>> {
    let (mut list, mut constant, mut largest) = (Vec::new(), 0.0, (0, 0.0));
    for (i, term) in terms.iter().enumerate() {
        let [name, coefficient, mean, scale] = &term.as_array()?[..] else { return None };
        let slope = coefficient.as_float()? / scale.as_float()?;
        constant += slope * mean.as_float()?;
        if slope.abs() > f64::abs(largest.1) {
            largest = (i, slope);
        }
        list.push(vec![name.clone(), coefficient.clone(), Value::Integer(0), scale.clone()]);
    }
    let mean = list.get_mut(largest.0).filter(|_| largest.1 != 0.0)?.get_mut(2)?;
    *mean = Value::Float(constant / largest.1);
    Some(list.into_iter().map(Value::Array).collect())
}

/// A coefficient that readers of calibrations take (MOST_COEFFICIENT in model/src/law/calibration/bounds.rs).
const MOST_SLOPE: f64 = 1e4;

/// `None` where terms are not name, coefficient, mean and scale, or a scale is so small that the slope is no coefficient.
fn folded(terms: &[Value]) -> Option<Vec<Value>> {
    let (mut list, mut constant, mut largest) = (Vec::new(), 0.0, (0, 0.0));
    for (i, term) in terms.iter().enumerate() {
        let [name, coefficient, mean, scale] = &term.as_array()?[..] else { return None };
        let (coefficient, mean, scale) = (coefficient.as_float()?, mean.as_float()?, scale.as_float()?);
        let whole = coefficient / scale;
        // Where the digits that are left out would be seen a few deviations from the mean, all are kept.
        let near = Some(rounded(whole)).filter(|near| (near - whole).abs() * FAR_FROM_MEAN * scale.abs() < UNSEEN);
        let slope = near.unwrap_or(whole);
        if slope.abs() > MOST_SLOPE {
            return None;
        }
        constant += slope * mean;
        if slope.abs() > f64::abs(largest.1) {
            largest = (i, slope);
        }
        list.push(vec![name.clone(), Value::Float(slope)]);
    }
    list.get_mut(largest.0).filter(|_| largest.1 != 0.0)?.push(Value::Float(constant / largest.1));
    Some(list.into_iter().map(Value::Array).collect())
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

/// A decision tree in the order of descent, as its text has it, in the form that [`SPLIT`] says.
///
/// # Errors
/// In words, when the text is no tree.
fn tree(text: &str) -> Result<Vec<u8>, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let wrong = |word: &str| format!("the tree has no node \"{word}\"");
    let is_engine = |word: &&str| word.as_bytes()[0].is_ascii_digit();
    let mut often: BTreeMap<u16, usize> = BTreeMap::new();
    for word in words.iter().filter(|word| is_engine(word)) {
        *often.entry(word.parse().map_err(|_| wrong(word))?).or_default() += 1;
    }
    let mut engines: Vec<u16> = often.keys().copied().collect();
    engines.sort_by_key(|engine| Reverse(often[engine]));
    let places: BTreeMap<u16, usize> = engines.iter().enumerate().map(|(place, engine)| (*engine, place)).collect();
    // From the end on: branches that wait for their split, the first on top, and how many nodes they have.
    let mut branches: Vec<(Vec<u8>, usize)> = Vec::new();
    for word in words.into_iter().rev() {
        let mut bytes = Vec::new();
        if is_engine(&word) {
            let place = word.parse().ok().and_then(|engine: u16| places.get(&engine)).ok_or_else(|| wrong(word))?;
            match place.checked_sub(usize::from(FAR)) {
                None => bytes.push(*place as u8),
                Some(far) => {
                    let high = u8::try_from(far >> 8).ok().filter(|high| *high < SPLIT - FAR);
                    bytes.extend([FAR + high.ok_or("the tree leads to too many engines")?, far as u8]);
                }
            }
            branches.push((bytes, 1));
        } else {
            let size = word.as_bytes()[0].checked_sub(FIRST_SIGN).filter(|size| *size < LONG);
            let size = size.ok_or_else(|| wrong(word))?;
            let at: f64 = word.get(1..).and_then(|number| number.parse().ok()).ok_or_else(|| wrong(word))?;
            let (Some((first, nodes)), Some((other, others))) = (branches.pop(), branches.pop()) else {
                return Err("the tree is cut".to_string());
            };
            if nodes < LONG_BRANCH {
                bytes.push(SPLIT | size);
            } else {
                bytes.push(SPLIT | LONG | size);
                count(first.len() as u64, &mut bytes);
            }
            match few_digits(at) {
                Some(packed) => count(u64::from(packed), &mut bytes),
                None => {
                    bytes.push(0);
                    bytes.extend(at.to_le_bytes());
                }
            }
            bytes.extend(first.iter().chain(&other));
            branches.push((bytes, nodes + others + 1));
        }
    }
    let [(nodes, _)] = &branches[..] else {
        return Err("the tree goes on behind its last branch".to_string());
    };
    let mut whole = Vec::new();
    count(engines.len() as u64, &mut whole);
    engines.iter().for_each(|engine| whole.extend(engine.to_le_bytes()));
    whole.extend(nodes);
    Ok(whole)
}
