//! The form of data files that programs read at once: TOML stays the source, the build packs it (`build/pack.rs`).
//!
//! A packed file is a table of strings (their number, where each ends, their bytes) and the file's table. A value is a tag
//! and what it says: numbers of few digits as four bytes of which the very same float comes back, lists and tables with
//! their length before them, so that what nobody wants is passed over. `joulecast_model::base::packed` reads it, and writes
//! files of users in it, so that there is one reader for both.

use std::collections::HashMap;

/// Tags of values.
pub mod tag {
    /// Position of a string, in groups of seven bits, the lowest first, all but the last with their highest bit set.
    pub const TEXT: u8 = 0;
    /// An integer: its absolute value twice, and one more if negative, in groups of seven bits, the lowest first, all but the last with their highest bit set.
    pub const INTEGER: u8 = 1;
    /// A float of few digits: [`super::from_few_digits`], four bytes.
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
    /// Bytes that follow: a decision tree in the order of descent.
    pub const TREE: u8 = 8;
    /// An integer that has no place in an [`INTEGER`], sixteen bytes.
    pub const WIDE_INTEGER: u8 = 9;
    /// A [`DECIMAL`] of three bytes of digits, the power of ten being the tag's lower bits: up to [`LAST_SHORT`].
    pub const SHORT: u8 = 0x20;
    /// The last tag of such.
    pub const LAST_SHORT: u8 = SHORT | ((1 << super::POWER_BITS) - 1);
}

/// In a packed tree, which begins with how many engines it leads to and their numbers, the most frequent first, of two bytes
/// each, the lower first: the first byte of a split, whose lower bits are its size. Its value follows ([`from_few_digits`], in
/// groups of seven bits, the lowest first; behind a zero a float of eight bytes), and both branches. What else begins a node
/// is the place of an engine.
pub const SPLIT: u8 = 0x80;
/// A split whose first branch has [`LONG_BRANCH`] nodes or more: before its value stands how many bytes that is long, in groups
/// of seven bits. A shorter one is passed over node by node.
pub const LONG: u8 = 0x40;
/// See [`LONG`].
pub const LONG_BRANCH: usize = 16;
/// The first byte of places from this one on: what exceeds it, of which the lower byte follows. Smaller ones are their own byte.
pub const FAR: u8 = 0x70;

/// Powers of ten in [`from_few_digits`] are from minus so many on.
pub const LEAST_POWER: i32 = 22;
/// Bits of the power of ten in [`from_few_digits`].
pub const POWER_BITS: u32 = 5;

/// A float of a [`tag::SHORT`], and what follows it.
#[inline]
pub fn from_short(tag: u8, [low, middle, high]: [u8; 3]) -> f64 {
    let digits = i32::from_le_bytes([0, low, middle, high]) >> (8 - POWER_BITS);
    from_few_digits(digits as u32 | u32::from(tag - tag::SHORT))
}

/// A float packed as whole digits times a power of ten. Both operands are exact, so that the one rounding is that of reading the decimal text.
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

/// Places where something begins, ascending, and what was said of each.
pub type Places = Vec<(usize, usize)>;

/// Writes a packed file.
#[derive(Default)]
pub struct Writer {
    strings: Vec<String>,
    /// Positions of strings, where each is written once.
    positions: Option<HashMap<String, u64>>,
    body: Vec<u8>,
    /// Places in the body.
    marks: Places,
}

impl Writer {
    /// Of a file that is read often: each of its strings stands there once.
    pub fn small() -> Self {
        Self { positions: Some(HashMap::new()), ..Self::default() }
    }

    /// Says something of what is written next.
    pub fn mark(&mut self, what: usize) {
        self.marks.push((self.body.len(), what));
    }

    /// A key of a table, before its value.
    pub fn key(&mut self, key: &str) {
        let position = self.position(key);
        count(position, &mut self.body);
    }

    /// A text.
    pub fn text(&mut self, text: &str) {
        self.body.push(tag::TEXT);
        self.key(text);
    }

    /// An integer.
    pub fn integer(&mut self, number: i128) {
        match u64::try_from(number.unsigned_abs()) {
            Ok(size) if size <= i64::MAX as u64 => {
                self.body.push(tag::INTEGER);
                count(size << 1 | u64::from(number < 0), &mut self.body);
            }
            _ => {
                self.body.push(tag::WIDE_INTEGER);
                self.body.extend(number.to_le_bytes());
            }
        }
    }

    /// A float, in whole.
    pub fn float(&mut self, number: f64) {
        self.body.push(tag::FLOAT);
        self.body.extend(number.to_le_bytes());
    }

    /// A float that [`from_few_digits`] gives back.
    pub fn decimal(&mut self, packed: u32) {
        let power = packed as u8 & ((1 << POWER_BITS) - 1);
        let [low, middle, high, rest] = (packed as i32 >> POWER_BITS).to_le_bytes();
        // What is left out is the sign again.
        if rest == (high as i8 >> 7) as u8 {
            self.body.extend([tag::SHORT | power, low, middle, high]);
        } else {
            self.body.push(tag::DECIMAL);
            self.body.extend(packed.to_le_bytes());
        }
    }

    /// A truth value.
    pub fn truth(&mut self, value: bool) {
        self.body.push(if value { tag::TRUE } else { tag::FALSE });
    }

    /// A packed decision tree.
    pub fn tree(&mut self, nodes: &[u8]) {
        self.body.push(tag::TREE);
        count(nodes.len() as u64, &mut self.body);
        self.body.extend(nodes);
    }

    /// A list ([`tag::LIST`]) or a table ([`tag::TABLE`]) of so many entries, which `write` writes; what that says.
    pub fn framed<R>(&mut self, tag: u8, entries: usize, write: impl FnOnce(&mut Self) -> R) -> R {
        let (start, marked) = (self.body.len(), self.marks.len());
        let said = write(self);
        let (mut number, mut head) = (Vec::new(), vec![tag]);
        count(entries as u64, &mut number);
        count((number.len() + self.body.len() - start) as u64, &mut head);
        head.extend(number);
        self.marks[marked..].iter_mut().for_each(|(at, _)| *at += head.len());
        self.body.splice(start..start, head);
        said
    }

    /// The file, and of each mark its place from the beginning of the file's body, and what it says.
    ///
    /// # Errors
    /// In words, for a file of more than four gigabytes.
    pub fn finish(self) -> Result<(Vec<u8>, Places), String> {
        let mut bytes = Vec::new();
        let length = |n: usize| u32::try_from(n).map(u32::to_le_bytes).map_err(|_| "too long".to_string());
        bytes.extend(length(self.strings.len())?);
        let mut end = 0;
        for string in &self.strings {
            end += string.len();
            bytes.extend(length(end)?);
        }
        self.strings.iter().for_each(|string| bytes.extend(string.as_bytes()));
        bytes.extend(self.body);
        Ok((bytes, self.marks))
    }

    fn position(&mut self, string: &str) -> u64 {
        let next = self.strings.len() as u64;
        if let Some(positions) = &mut self.positions {
            if let Some(known) = positions.get(string) {
                return *known;
            }
            positions.insert(string.to_string(), next);
        }
        self.strings.push(string.to_string());
        next
    }
}

/// A number in groups of seven bits, the lowest first; all but the last have their highest bit set.
pub fn count(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
