//! Calibrations laid out so that what compresses a download finds more in them: what a packed file ([`crate::pack`]) holds one
//! after the other lies here by what it is, tags with tags and first bytes with first bytes, numbers that occur several times
//! are named by their place in a list of such, lengths are left out, and trees are kinds of nodes, values and engines. Deflated,
//! that is a fifth less; the packed file comes of it again to the last byte, which the build tries.

use crate::pack::{FAR, LONG, LONG_BRANCH, SPLIT, count, tag};

/// Where what lies.
pub mod stream {
    pub const TAGS: usize = 0;
    /// Of numbers that are named by their place: the lower byte, the higher one.
    pub const REPEATED: usize = 1;
    /// The list of such numbers: tags, and three bytes each.
    pub const OFTEN: usize = 3;
    /// Bytes of [`super::tag::SHORT`]s.
    pub const SHORT: usize = 7;
    pub const STRINGS: usize = 10;
    pub const KEYS: usize = 11;
    pub const INTEGERS: usize = 12;
    pub const ENTRIES: usize = 13;
    pub const WIDE: usize = 14;
    pub const DECIMAL: usize = 15;
    pub const FLOAT: usize = 19;
    /// Of trees: splits' first bytes without [`super::LONG`], and [`super::LEAF`].
    pub const NODES: usize = 27;
    pub const LEAVES: usize = 28;
    pub const FAR_LEAVES: usize = 29;
    /// Places of splits' values among those of their size, the most frequent first.
    pub const VALUES: usize = 30;
    pub const FAR_VALUES: usize = 31;
    /// By size: how many values, and these.
    pub const SIZES: usize = 32;
    /// Engines' lower bytes, their higher ones.
    pub const ENGINES: usize = 33;
    /// How many strings, and how long each is.
    pub const LENGTHS: usize = 35;
    pub const TEXT: usize = 36;
    /// How many there are.
    pub const ALL: usize = 37;
}

/// The tag of a number that is named by its place.
pub const NAMED: u8 = 0x40;
/// In [`stream::NODES`]: not a split.
pub const LEAF: u8 = 0;
/// The first byte of a value's place from this one on: what exceeds it, of which the lower byte follows.
pub const FAR_VALUE: u8 = 0xe0;
/// How many sizes splits may have.
pub const MOST_SIZES: usize = LONG as usize;

/// What lies in one stream, read from its beginning.
#[derive(Clone, Copy, Default)]
struct Stream<'d>(&'d [u8]);

impl<'d> Stream<'d> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, bytes: usize) -> Option<&'d [u8]> {
        let (head, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(head)
    }

    /// The bytes of a number in groups of seven bits.
    fn grouped(&mut self) -> Option<&'d [u8]> {
        let end = self.0.iter().position(|byte| *byte < 0x80)?;
        self.take(end + 1)
    }

    fn number(&mut self) -> Option<usize> {
        let bytes = self.grouped().filter(|bytes| bytes.len() <= 9)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f)))
    }

    /// A value of a split: a number in groups, or nothing and a float.
    fn threshold(&mut self) -> Option<Threshold> {
        let bytes = if *self.0.first()? == 0 { self.take(9)? } else { self.grouped()? };
        let mut last = [0; WIDTH];
        last[WIDTH.checked_sub(bytes.len())?..].copy_from_slice(bytes);
        Some(Threshold { last, length: bytes.len() })
    }
}

/// No value of a split is longer; all are written as long, each over what was too long of the one behind it.
const WIDTH: usize = 16;

/// Nor is any length of a branch.
const LONGEST_NUMBER: usize = 5;

/// A split's value as a packed file has it.
#[derive(Clone, Copy)]
struct Threshold {
    /// The last bytes are its own.
    last: [u8; WIDTH],
    length: usize,
}

struct Reader<'d> {
    streams: [Stream<'d>; stream::ALL],
    often: Vec<[u8; 4]>,
    /// Values of splits, by size.
    thresholds: Vec<Vec<Threshold>>,
    /// Bytes of the longest of them.
    longest: usize,
    out: Vec<u8>,
    /// Trees are written into this from its end on.
    tree: Vec<u8>,
    branches: Vec<(usize, usize)>,
}

/// The packed file again; `None` for what is none.
pub fn packed(dense: &[u8]) -> Option<Vec<u8>> {
    let mut streams = [Stream::default(); stream::ALL];
    let (lengths, mut rest) = dense.split_at_checked(4 * stream::ALL)?;
    for (stream, length) in streams.iter_mut().zip(lengths.as_chunks::<4>().0) {
        let (own, others) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        (*stream, rest) = (Stream(own), others);
    }
    let mut reader = Reader {
        streams,
        often: Vec::new(),
        thresholds: Vec::new(),
        longest: 0,
        out: Vec::with_capacity(dense.len() * 5 / 4),
        tree: Vec::new(),
        branches: Vec::new(),
    };
    reader.lists()?;
    reader.strings()?;
    reader.value(0)?;
    let is_all = rest.is_empty() && reader.streams.iter().all(|stream| stream.0.is_empty());
    is_all.then_some(reader.out)
}

/// Values within values of a damaged file are no deeper.
const DEEPEST: usize = 64;

impl<'d> Reader<'d> {
    fn of(&mut self, stream: usize) -> &mut Stream<'d> {
        &mut self.streams[stream]
    }

    fn lists(&mut self) -> Option<()> {
        for _ in 0..self.streams[stream::OFTEN].0.len() {
            let mut number = [0; 4];
            for (plane, byte) in number.iter_mut().enumerate() {
                *byte = self.of(stream::OFTEN + plane).byte()?;
            }
            self.often.push(number);
        }
        while !self.streams[stream::SIZES].0.is_empty() && self.thresholds.len() < MOST_SIZES {
            let of = self.of(stream::SIZES);
            let values = of.number()?;
            let values = (0..values).map(|_| of.threshold()).collect::<Option<Vec<_>>>()?;
            self.longest = values.iter().fold(self.longest, |longest, value| longest.max(value.length));
            self.thresholds.push(values);
        }
        Some(())
    }

    fn strings(&mut self) -> Option<()> {
        let text = std::mem::take(self.of(stream::TEXT)).0;
        let strings = self.of(stream::LENGTHS).number()?;
        self.out.extend(u32::try_from(strings).ok()?.to_le_bytes());
        let mut end = 0usize;
        for _ in 0..strings {
            end = end.checked_add(self.of(stream::LENGTHS).number()?)?;
            self.out.extend(u32::try_from(end).ok()?.to_le_bytes());
        }
        self.out.extend(text);
        (end == text.len()).then_some(())
    }

    fn planes<const N: usize>(&mut self, first: usize) -> Option<()> {
        let mut bytes = [0; N];
        for (plane, byte) in bytes.iter_mut().enumerate() {
            *byte = self.of(first + plane).byte()?;
        }
        self.out.extend_from_slice(&bytes);
        Some(())
    }

    /// A number in groups, as it stands.
    fn copied(&mut self, from: usize) -> Option<()> {
        let stream = self.of(from);
        match *stream.0.first()? {
            byte if byte < 0x80 => {
                stream.0 = &stream.0[1..];
                self.out.push(byte);
            }
            _ => {
                let bytes = stream.grouped()?;
                self.out.extend_from_slice(bytes);
            }
        }
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        let tag = self.of(stream::TAGS).byte()?;
        if tag == NAMED {
            let [low, high] = [0, 1].map(|plane| self.of(stream::REPEATED + plane).byte());
            let number = self.often.get(usize::from(u16::from_le_bytes([low?, high?])))?;
            self.out.extend_from_slice(number);
            return Some(());
        }
        self.out.push(tag);
        match tag {
            tag::SHORT..=tag::LAST_SHORT => self.planes::<3>(stream::SHORT),
            tag::TEXT => self.copied(stream::STRINGS),
            tag::INTEGER => self.copied(stream::INTEGERS),
            tag::DECIMAL => self.planes::<4>(stream::DECIMAL),
            tag::FLOAT => self.planes::<8>(stream::FLOAT),
            tag::FALSE | tag::TRUE => Some(()),
            tag::WIDE_INTEGER => {
                let bytes = self.of(stream::WIDE).take(16)?;
                self.out.extend(bytes);
                Some(())
            }
            tag::LIST | tag::TABLE if depth < DEEPEST => {
                let start = self.out.len();
                let entries = self.of(stream::ENTRIES).grouped()?;
                self.out.push(0);
                self.out.extend(entries);
                for _ in 0..Stream(entries).number()? {
                    if tag == tag::TABLE {
                        self.copied(stream::KEYS)?;
                    }
                    self.value(depth + 1)?;
                }
                self.framed(start);
                Some(())
            }
            tag::TREE => self.tree(),
            _ => None,
        }
    }

    /// Writes how much stands behind a byte that was left for that.
    fn framed(&mut self, start: usize) {
        let length = self.out.len() - start - 1;
        if length < 0x80 {
            self.out[start] = length as u8;
        } else {
            let mut head = Vec::new();
            count(length as u64, &mut head);
            self.out.splice(start..=start, head);
        }
    }

    fn tree(&mut self) -> Option<()> {
        let start = self.out.len();
        let engines = self.of(stream::ENTRIES).grouped()?;
        self.out.push(0);
        self.out.extend(engines);
        for _ in 0..Stream(engines).number()? {
            self.planes::<2>(stream::ENGINES)?;
        }
        let from = self.nodes()?;
        self.out.extend_from_slice(self.tree.get(from..)?);
        self.framed(start);
        Some(())
    }

    /// Writes the nodes of a tree in the order of descent from the end on, where it is known how long branches are that come
    /// first: where they begin.
    fn nodes(&mut self) -> Option<usize> {
        let of = |stream: usize| self.streams[stream].0;
        let (mut open, mut splits) = (1usize, 0usize);
        let mut kinds = of(stream::NODES).iter();
        while open > 0 {
            let is_split = *kinds.next()? != LEAF;
            splits += usize::from(is_split);
            open = if is_split { open + 1 } else { open - 1 };
        }
        let beyond = |bytes: &[u8], from: u8| bytes.iter().filter(|byte| **byte >= from).count();
        let (leaves, values) = (of(stream::LEAVES), of(stream::VALUES));
        let far_leaves = beyond(leaves.get(..=splits)?, FAR);
        let far_values = beyond(values.get(..splits)?, FAR_VALUE);
        let lengths = [
            (stream::NODES, 2 * splits + 1),
            (stream::LEAVES, splits + 1),
            (stream::VALUES, splits),
            (stream::FAR_LEAVES, far_leaves),
            (stream::FAR_VALUES, far_values),
        ];
        let mut taken = [&[][..]; 5];
        for (taken, (stream, length)) in taken.iter_mut().zip(lengths) {
            *taken = self.of(stream).take(length)?;
        }
        let [kinds, mut leaves, mut values, mut far_leaves, mut far_values] = taken.map(<[u8]>::iter);
        // A leaf is two bytes at most, a split one, a value and how long a branch is; before the first one a value may be written
        // too long.
        let most = 2 * (splits + 1) + splits * (1 + self.longest + LONGEST_NUMBER) + WIDTH;
        if self.tree.len() < most {
            self.tree.resize(most, 0);
        }
        let mut at = self.tree.len();
        // Branches that wait for their split, the first on top: where they begin, and how many nodes they have.
        self.branches.clear();
        for kind in kinds.rev() {
            if *kind == LEAF {
                let leaf = *leaves.next_back()?;
                if leaf >= FAR {
                    at -= 1;
                    self.tree[at] = *far_leaves.next_back()?;
                }
                at -= 1;
                self.tree[at] = leaf;
                self.branches.push((at, 1));
                continue;
            }
            let mut place = usize::from(*values.next_back()?);
            if let Some(beyond) = place.checked_sub(usize::from(FAR_VALUE)) {
                place = usize::from(FAR_VALUE) + (beyond << 8 | usize::from(*far_values.next_back()?));
            }
            let size = usize::from(kind.checked_sub(SPLIT)?);
            let Threshold { last, length } = self.thresholds.get(size)?.get(place)?;
            let ((_, of_first), (other, of_other)) = (self.branches.pop()?, self.branches.pop()?);
            let first = at;
            self.tree.get_mut(at - WIDTH..at)?.copy_from_slice(last);
            at -= length;
            let mut byte = *kind;
            if of_first >= LONG_BRANCH {
                byte |= LONG;
                let mut number = other - first;
                let groups = grouped_length(number);
                at -= groups;
                for group in &mut self.tree[at..at + groups] {
                    *group = number as u8 | 0x80;
                    number >>= 7;
                }
                self.tree[at + groups - 1] &= 0x7f;
            }
            at -= 1;
            self.tree[at] = byte;
            self.branches.push((at, 1 + of_first + of_other));
        }
        Some(at)
    }
}

/// Bytes of a number in groups of seven bits.
fn grouped_length(number: usize) -> usize {
    (usize::BITS - number.leading_zeros()).div_ceil(7).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_is_none() {
        assert_eq!(packed(&[]), None);
        assert_eq!(packed(&[0; 4 * stream::ALL]), None);
        assert_eq!(packed(&[0xff; 4 * stream::ALL + 9]), None);
    }

    /// Cut anywhere, or with any byte changed, it is none or another file, and nothing worse.
    #[cfg(feature = "dense")]
    #[test]
    fn what_is_damaged_somewhere_harms_nobody() {
        let by_size = |file: &&crate::Packed| file.bytes.len();
        let file = crate::PACKED_CALIBRATIONS.iter().filter(|file| !file.bytes.is_empty()).min_by_key(by_size);
        let whole = file.expect("one").bytes;
        let same = packed(whole).expect("whole");
        assert!(same.len() > 5000 && crate::calibration_bytes(file.expect("one")) == Some(&same[..]));
        for end in 0..whole.len() {
            assert_eq!(packed(&whole[..end]), None, "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut other = whole.to_vec();
            other[at] ^= 0x55;
            assert_ne!(packed(&other), Some(same.clone()), "{at}");
        }
    }

    #[test]
    fn numbers_in_groups_are_as_long_as_they_are_written() {
        for number in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, 1 << 40] {
            let mut bytes = Vec::new();
            count(number, &mut bytes);
            assert_eq!(grouped_length(number as usize), bytes.len(), "{number}");
            assert_eq!(Stream(&bytes).number(), Some(number as usize));
        }
    }
}
