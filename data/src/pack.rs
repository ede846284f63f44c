//! Data files in a form that programs read at once: TOML stays the source, the build packs it.
//!
//! A packed file is a table of strings (their number, where each ends, their bytes) and the file's table. A value is a tag
//! and what it says: numbers of few digits as four bytes of which the very same float comes back, lists and tables with
//! their length before them, so that what nobody wants is passed over. `joulecast_model::base::packed` reads it.

use std::collections::HashMap;

/// Tags of values.
pub mod tag {
    /// Position of a string, as a [`super::count`].
    pub const TEXT: u8 = 0;
    /// An integer: its absolute value twice, and one more if negative, as a [`super::count`].
    pub const INTEGER: u8 = 1;
    /// A float of few digits: [`super::few_digits`], four bytes.
    pub const DECIMAL: u8 = 2;
    /// Any other float, eight bytes.
    pub const FLOAT: u8 = 3;
    /// `false`.
    pub const FALSE: u8 = 4;
    /// `true`.
    pub const TRUE: u8 = 5;
    /// Bytes that follow, values that they hold, these.
    pub const LIST: u8 = 6;
    /// Bytes that follow, entries that they hold, these: the position of the key's string, the value.
    pub const TABLE: u8 = 7;
    /// Bytes that follow: a decision tree, [`super::tree`].
    pub const TREE: u8 = 8;
}

/// In a packed tree: the first byte of a split, whose lower bits are its size. What else begins a node is an engine's number
/// in two bytes, the higher first.
pub const SPLIT: u8 = 0x80;
/// A split whose value is a float of eight bytes instead of [`few_digits`].
pub const WIDE: u8 = 0x40;
/// The sign of the first size in the text of a tree.
const FIRST_SIGN: u8 = b'A';

/// Powers of ten in [`few_digits`] are from minus so many on.
pub const LEAST_POWER: i32 = 22;
/// Bits of the power of ten in [`few_digits`].
pub const POWER_BITS: u32 = 5;

/// A value of a file.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    List(Vec<Value>),
    Table(Vec<(String, Value)>),
}

/// A file's packed form.
///
/// # Errors
/// In words, with the line, for what is not TOML or of a form that no data file needs: dates, numbers that are not decimal,
/// quoted keys.
pub fn pack(text: &str) -> Result<Vec<u8>, String> {
    let mut parser = Parser { text, at: 0 };
    let root = parser.document().map_err(|why| {
        let line = text.get(..parser.at).map_or(0, |head| head.matches('\n').count() + 1);
        format!("line {line}: {why}")
    })?;
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
pub fn few_digits(value: f64) -> Option<u32> {
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

/// The float of [`few_digits`]. Both operands are exact, so that the one rounding is that of reading the decimal text.
#[inline]
pub fn from_few_digits(packed: u32) -> f64 {
    const POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
        1e20, 1e21, 1e22,
    ];
    let digits = f64::from(packed as i32 >> POWER_BITS);
    let power = (packed & ((1 << POWER_BITS) - 1)) as i32 - LEAST_POWER;
    let scale = POWERS[power.unsigned_abs() as usize];
    if power < 0 { digits / scale } else { digits * scale }
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
        Value::Text(text) => {
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
        Value::List(list) => {
            let mut body = Vec::new();
            list.iter().try_for_each(|value| write(value, strings, &mut body))?;
            framed(tag::LIST, list.len(), &body, bytes);
        }
        Value::Table(entries) => {
            let mut body = Vec::new();
            for (key, value) in entries {
                count(strings.position(key), &mut body);
                match value {
                    Value::Text(text) if key == "tree" => {
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
    }
    Ok(())
}

/// A decision tree in the order of descent, as its text has it: a split ([`SPLIT`]) is followed by where its other branch
/// begins, four bytes, and its value; an engine is its number.
///
/// # Errors
/// In words, when the text is no tree.
pub fn tree(text: &str) -> Result<Vec<u8>, String> {
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

/// Reads the TOML that data files are written in.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

type Table = Vec<(String, Value)>;

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn takes(&mut self, token: &str) -> bool {
        let there = self.rest().starts_with(token);
        self.at += if there { token.len() } else { 0 };
        there
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.takes(token) { Ok(()) } else { Err(format!("expected {token}")) }
    }

    /// Passes over what stands between tokens of a line; over lines and remarks too.
    fn blank(&mut self, lines: bool) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\n' | b'\r') if lines => self.at += 1,
                Some(b'#') => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                _ => return,
            }
        }
    }

    fn document(&mut self) -> Result<Table, String> {
        let mut root = Table::new();
        let mut place: Vec<String> = Vec::new();
        loop {
            self.blank(true);
            if self.peek().is_none() {
                return Ok(root);
            }
            if self.takes("[") {
                let several = self.takes("[");
                self.blank(false);
                place = self.keys()?;
                self.blank(false);
                self.expect(if several { "]]" } else { "]" })?;
                if several {
                    let (last, before) = place.split_last().ok_or("a table without a name")?;
                    match entry(within(&mut root, before)?, last, || Value::List(Vec::new())) {
                        Value::List(list) => list.push(Value::Table(Table::new())),
                        _ => return Err(format!("{last} is no list of tables")),
                    }
                } else {
                    within(&mut root, &place)?;
                }
            } else {
                self.assignment(within(&mut root, &place)?)?;
            }
            self.blank(false);
            if self.peek().is_some() && !self.takes("\n") && !self.takes("\r\n") {
                return Err("expected the end of the line".into());
            }
        }
    }

    /// `key = value`, into a table.
    fn assignment(&mut self, table: &mut Table) -> Result<(), String> {
        let keys = self.keys()?;
        self.blank(false);
        self.expect("=")?;
        self.blank(false);
        let value = self.value()?;
        let (last, before) = keys.split_last().ok_or("a value without a name")?;
        let table = within(table, before)?;
        if table.iter().any(|(key, _)| key == last) {
            return Err(format!("{last} is there twice"));
        }
        table.push((last.clone(), value));
        Ok(())
    }

    /// Names with dots between them.
    fn keys(&mut self) -> Result<Vec<String>, String> {
        let mut keys = Vec::new();
        loop {
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            let length = self.rest().find(|c| !legal(c)).unwrap_or(self.rest().len());
            if length == 0 {
                return Err("expected a name".into());
            }
            keys.push(self.rest()[..length].to_string());
            self.at += length;
            if !self.takes(".") {
                return Ok(keys);
            }
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        match self.peek() {
            Some(b'"' | b'\'') => self.string().map(Value::Text),
            Some(b'[') => {
                self.at += 1;
                let mut list = Vec::new();
                loop {
                    self.blank(true);
                    if self.takes("]") {
                        return Ok(Value::List(list));
                    }
                    list.push(self.value()?);
                    self.blank(true);
                    if !self.takes(",") {
                        self.expect("]")?;
                        return Ok(Value::List(list));
                    }
                }
            }
            Some(b'{') => {
                self.at += 1;
                let mut table = Table::new();
                self.blank(false);
                if self.takes("}") {
                    return Ok(Value::Table(table));
                }
                loop {
                    self.blank(false);
                    self.assignment(&mut table)?;
                    self.blank(false);
                    if !self.takes(",") {
                        self.expect("}")?;
                        return Ok(Value::Table(table));
                    }
                }
            }
            _ => self.word(),
        }
    }

    fn string(&mut self) -> Result<String, String> {
        if self.takes("'''") {
            self.takes("\n");
            let end = self.rest().find("'''").ok_or("a text without an end")?;
            let text = self.rest()[..end].to_string();
            self.at += end + 3;
            return Ok(text);
        }
        if self.rest().starts_with("\"\"\"") {
            return Err("texts of several lines stand between '''".into());
        }
        let quote = if self.takes("'") { '\'' } else { '"' };
        self.at += usize::from(quote == '"');
        let mut text = String::new();
        loop {
            let c = self.rest().chars().next().filter(|c| *c != '\n').ok_or("a text without an end")?;
            self.at += c.len_utf8();
            match c {
                _ if c == quote => return Ok(text),
                '\\' if quote == '"' => {
                    let escaped = self.peek().ok_or("a text without an end")?;
                    self.at += 1;
                    text.push(match escaped {
                        b'"' => '"',
                        b'\\' => '\\',
                        b'n' => '\n',
                        b't' => '\t',
                        _ => return Err("an escape that no data file needs".into()),
                    });
                }
                c => text.push(c),
            }
        }
    }

    /// A number or truth value.
    fn word(&mut self) -> Result<Value, String> {
        let legal = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
        let length = self.rest().find(|c| !legal(c)).unwrap_or(self.rest().len());
        let word = &self.rest()[..length];
        self.at += length;
        let number = word.replace('_', "");
        match word.trim_start_matches(['+', '-']) {
            "true" => Ok(Value::Boolean(true)),
            "false" => Ok(Value::Boolean(false)),
            "inf" | "nan" => number.parse().map(Value::Float).map_err(|_| format!("no value {word}")),
            digits if !digits.starts_with(|c: char| c.is_ascii_digit()) => Err(format!("no value \"{word}\"")),
            digits if digits.contains(['.', 'e', 'E']) && !digits.starts_with("0x") => {
                number.parse().map(Value::Float).map_err(|_| format!("no value {word}"))
            }
            _ => number.parse().map(Value::Integer).map_err(|_| format!("no value {word}")),
        }
    }
}

/// The entry of a key, made where there is none.
fn entry<'t>(table: &'t mut Table, key: &str, made: impl FnOnce() -> Value) -> &'t mut Value {
    let at = table.iter().position(|(k, _)| k == key).unwrap_or(table.len());
    if at == table.len() {
        table.push((key.to_string(), made()));
    }
    &mut table[at].1
}

/// The table at a place, made where there is none; of a list of tables the last.
fn within<'t>(mut table: &'t mut Table, place: &[String]) -> Result<&'t mut Table, String> {
    for key in place {
        let mut value = entry(table, key, || Value::Table(Table::new()));
        if let Value::List(list) = value {
            value = list.last_mut().ok_or("an empty list")?;
        }
        match value {
            Value::Table(inner) => table = inner,
            _ => return Err(format!("{key} is no table")),
        }
    }
    Ok(table)
}

/// Of a text, to tell whether it is the one that something was made from: FNV-1a of 128 bits, in hexadecimal.
pub fn fingerprint(text: &str) -> String {
    const PRIME: u128 = (1 << 88) + 0x13b;
    let start = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    let hash = text.bytes().fold(start, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}
