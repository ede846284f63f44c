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
    fn threshold(&mut self) -> Option<&'d [u8]> {
        if *self.0.first()? == 0 { self.take(9) } else { self.grouped() }
    }
}

struct Reader<'d> {
    streams: [Stream<'d>; stream::ALL],
    often: Vec<[u8; 4]>,
    /// Values of splits, by size.
    thresholds: Vec<Vec<&'d [u8]>>,
    out: Vec<u8>,
}

/// The packed file again; `None` for what is none.
pub fn packed(dense: &[u8]) -> Option<Vec<u8>> {
    let mut streams = [Stream::default(); stream::ALL];
    let (lengths, mut rest) = dense.split_at_checked(4 * stream::ALL)?;
    for (stream, length) in streams.iter_mut().zip(lengths.as_chunks::<4>().0) {
        let (own, others) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        (*stream, rest) = (Stream(own), others);
    }
    let mut reader =
        Reader { streams, often: Vec::new(), thresholds: Vec::new(), out: Vec::with_capacity(dense.len() * 5 / 4) };
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
            let values = (0..values).map(|_| of.threshold()).collect::<Option<_>>()?;
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
        for plane in first..first + N {
            let byte = self.of(plane).byte()?;
            self.out.push(byte);
        }
        Some(())
    }

    /// A number in groups, as it stands.
    fn copied(&mut self, from: usize) -> Option<()> {
        let bytes = self.of(from).grouped()?;
        self.out.extend(bytes);
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        let tag = self.of(stream::TAGS).byte()?;
        if tag == NAMED {
            let [low, high] = [0, 1].map(|plane| self.of(stream::REPEATED + plane).byte());
            let number = self.often.get(usize::from(u16::from_le_bytes([low?, high?])))?;
            self.out.extend(number);
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
        for Node { first, behind, far, branch } in self.nodes()? {
            self.out.push(first | if branch > 0 { LONG } else { 0 });
            if branch > 0 {
                count(branch as u64, &mut self.out);
            }
            self.out.extend(behind);
            self.out.extend(far);
        }
        self.framed(start);
        Some(())
    }

    /// The nodes of a tree in the order of descent.
    fn nodes(&mut self) -> Option<Vec<Node<'d>>> {
        let (mut nodes, mut open) = (Vec::new(), 1usize);
        while open > 0 {
            let node = match self.of(stream::NODES).byte()? {
                LEAF => {
                    open -= 1;
                    let first = self.of(stream::LEAVES).byte()?;
                    let far = if first < FAR { None } else { Some(self.of(stream::FAR_LEAVES).byte()?) };
                    Node { first, behind: &[], far, branch: 0 }
                }
                first => {
                    open += 1;
                    let mut place = usize::from(self.of(stream::VALUES).byte()?);
                    if let Some(beyond) = place.checked_sub(usize::from(FAR_VALUE)) {
                        let low = self.of(stream::FAR_VALUES).byte()?;
                        place = usize::from(FAR_VALUE) + (beyond << 8 | usize::from(low));
                    }
                    let size = usize::from(first.checked_sub(SPLIT)?);
                    Node { first, behind: self.thresholds.get(size)?.get(place)?, far: None, branch: 0 }
                }
            };
            nodes.push(node);
        }
        // From the end on: how many bytes branches have that wait for their split, the first on top, and how many nodes.
        let mut branches: Vec<(usize, usize)> = Vec::new();
        for node in nodes.iter_mut().rev() {
            let own = 1 + node.behind.len() + usize::from(node.far.is_some());
            if node.first < SPLIT {
                branches.push((own, 1));
                continue;
            }
            let ((bytes, of_first), (others, of_other)) = (branches.pop()?, branches.pop()?);
            let mut whole = own + bytes + others;
            if of_first >= LONG_BRANCH {
                node.branch = bytes;
                whole += grouped_length(bytes);
            }
            branches.push((whole, 1 + of_first + of_other));
        }
        Some(nodes)
    }
}

/// A node of a tree as a packed file has it.
struct Node<'d> {
    /// Its first byte, without [`LONG`].
    first: u8,
    /// A split's value.
    behind: &'d [u8],
    /// The second byte of an engine's place.
    far: Option<u8>,
    /// Bytes of the first branch, where that is long.
    branch: usize,
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
