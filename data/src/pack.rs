//! The form of data files that programs read at once: TOML stays the source, the build packs it (`build/pack.rs`).
//!
//! A packed file is a table of strings (their number, where each ends, their bytes) and the file's table. A value is a tag
//! and what it says: numbers of few digits as four bytes of which the very same float comes back, lists and tables with
//! their length before them, so that what nobody wants is passed over. `joulecast_model::base::packed` reads it.

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
}

/// In a packed tree: the first byte of a split, whose lower bits are its size. The length of the branch that follows the split
/// comes next, then its value ([`from_few_digits`]), both in groups of seven bits, the lowest first. What else begins a node
/// is an engine's number.
pub const SPLIT: u8 = 0x80;
/// A split whose value is a float of eight bytes.
pub const WIDE: u8 = 0x40;
/// An engine's number stands in the two bytes that follow, the higher first; smaller ones are their own byte.
pub const LARGE: u8 = 0x7f;

/// Powers of ten in [`from_few_digits`] are from minus so many on.
pub const LEAST_POWER: i32 = 22;
/// Bits of the power of ten in [`from_few_digits`].
pub const POWER_BITS: u32 = 5;

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
