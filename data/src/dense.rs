//! Calibrations laid out so that what compresses a download finds more in them: what a packed file ([`crate::pack`]) holds one
//! after the other lies here by what it is, tags with tags and first bytes with first bytes, numbers that occur several times
//! are named by their place in a list of such, and lengths are left out. Of decision trees the values lie by the size that they
//! are of, and nodes from the last to the first, so that a split's branches are known when it comes. Deflated, that is a fifth
//! less; the packed file comes of it again to the last byte, which the build tries.

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
    /// Of trees: how many engines they lead to, and their numbers.
    pub const ENGINES: usize = 27;
    /// How many strings, and how long each is.
    pub const LENGTHS: usize = 28;
    pub const TEXT: usize = 29;
    /// The first bytes of nodes, without what says that a branch is long.
    pub const HEADS: usize = 30;
    /// The second bytes of places of engines.
    pub const FAR: usize = 31;
    /// Values of splits, a stream for each size.
    pub const VALUES: usize = 32;
    /// How many there are.
    pub const ALL: usize = VALUES + crate::pack::LONG as usize;
}

/// The tag of a number that is named by its place.
pub const NAMED: u8 = 0x40;
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

    /// A split's value as it stands: behind a zero are eight bytes.
    fn split(&mut self) -> Option<&'d [u8]> {
        match self.0.first()? {
            0 => self.take(9),
            _ => self.grouped(),
        }
    }

    fn number(&mut self) -> Option<usize> {
        let bytes = self.grouped().filter(|bytes| bytes.len() <= 9)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f)))
    }
}

/// Bytes of numbers, the first of all, then the second ones.
struct Planes<'d, const N: usize> {
    planes: [&'d [u8]; N],
    read: usize,
}

impl<'d, const N: usize> Planes<'d, N> {
    /// Those from a stream on, which are as many.
    fn new(streams: &mut [Stream<'d>; stream::ALL], first: usize) -> Option<Self> {
        let planes = std::array::from_fn(|plane| std::mem::take(&mut streams[first + plane]).0);
        planes.iter().all(|plane| plane.len() == planes[0].len()).then_some(Self { planes, read: 0 })
    }

    #[inline]
    fn next(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for (byte, plane) in bytes.iter_mut().zip(&self.planes) {
            *byte = *plane.get(self.read)?;
        }
        self.read += 1;
        Some(bytes)
    }

    fn is_read(&self) -> bool {
        self.read == self.planes[0].len()
    }
}

struct Reader<'d> {
    streams: [Stream<'d>; stream::ALL],
    often: Vec<[u8; 4]>,
    repeated: Planes<'d, 2>,
    short: Planes<'d, 3>,
    decimal: Planes<'d, 4>,
    float: Planes<'d, 8>,
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
    let mut often = Planes::<4>::new(&mut streams, stream::OFTEN)?;
    let mut reader = Reader {
        often: std::iter::from_fn(|| often.next()).collect(),
        repeated: Planes::new(&mut streams, stream::REPEATED)?,
        short: Planes::new(&mut streams, stream::SHORT)?,
        decimal: Planes::new(&mut streams, stream::DECIMAL)?,
        float: Planes::new(&mut streams, stream::FLOAT)?,
        streams,
        out: Vec::with_capacity(dense.len() * 5 / 4),
    };
    reader.strings()?;
    reader.value(0)?;
    let planes = [reader.repeated.is_read(), reader.short.is_read(), reader.decimal.is_read(), reader.float.is_read()];
    let is_all = rest.is_empty() && planes == [true; 4] && reader.streams.iter().all(|stream| stream.0.is_empty());
    is_all.then_some(reader.out)
}

/// Values within values of a damaged file are no deeper.
const DEEPEST: usize = 64;

impl<'d> Reader<'d> {
    fn of(&mut self, stream: usize) -> &mut Stream<'d> {
        &mut self.streams[stream]
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

    /// A number in groups, as it stands; most are of one byte.
    #[inline(always)]
    fn copied(&mut self, from: usize) -> Option<()> {
        match self.streams[from].0 {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.streams[from].0 = rest;
                self.out.push(*byte);
                Some(())
            }
            _ => self.copied_long(from),
        }
    }

    #[inline(never)]
    fn copied_long(&mut self, from: usize) -> Option<()> {
        let bytes = self.of(from).grouped()?;
        self.out.extend_from_slice(bytes);
        Some(())
    }

    /// How many entries follow, which is written, too.
    #[inline(always)]
    fn entries(&mut self) -> Option<usize> {
        let before = self.streams[stream::ENTRIES];
        self.copied(stream::ENTRIES)?;
        match before.0 {
            [few, ..] if *few < 0x80 => Some(usize::from(*few)),
            _ => Stream(before.0).number(),
        }
    }

    /// A value, where it is of the kinds of which a file has most; whether it was.
    #[inline(always)]
    fn usual(&mut self, tag: u8) -> Option<bool> {
        match tag {
            NAMED => {
                let number = self.often.get(usize::from(u16::from_le_bytes(self.repeated.next()?)))?;
                self.out.extend_from_slice(number);
            }
            tag::SHORT..=tag::LAST_SHORT => {
                let [a, b, c] = self.short.next()?;
                self.out.extend_from_slice(&[tag, a, b, c]);
            }
            tag::TEXT => {
                self.out.push(tag);
                self.copied(stream::STRINGS)?;
            }
            _ => return Some(false),
        }
        Some(true)
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        let tag = self.of(stream::TAGS).byte()?;
        if self.usual(tag)? { Some(()) } else { self.other(tag, depth) }
    }

    /// A value of another kind.
    fn other(&mut self, tag: u8, depth: usize) -> Option<()> {
        self.out.push(tag);
        match tag {
            tag::INTEGER => self.copied(stream::INTEGERS),
            tag::DECIMAL => {
                self.out.extend_from_slice(&self.decimal.next()?);
                Some(())
            }
            tag::FLOAT => {
                self.out.extend_from_slice(&self.float.next()?);
                Some(())
            }
            tag::FALSE | tag::TRUE => Some(()),
            tag::WIDE_INTEGER => {
                let bytes = self.of(stream::WIDE).take(16)?;
                self.out.extend(bytes);
                Some(())
            }
            tag::LIST | tag::TABLE if depth < DEEPEST => {
                let start = self.out.len();
                self.out.push(0);
                for _ in 0..self.entries()? {
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

    /// A tree behind how long it is. Its nodes are read from the last to the first, and written so into what is turned around.
    fn tree(&mut self) -> Option<()> {
        let splits = self.of(stream::ENTRIES).number()?;
        let own = self.of(stream::ENGINES);
        let before = own.0;
        let engines = own.number()?;
        own.take(engines.checked_mul(2)?)?;
        let engines = &before[..before.len() - own.0.len()];
        let heads = self.of(stream::HEADS).take(splits.checked_mul(2)?.checked_add(1)?)?;
        let mut far = *self.of(stream::FAR);
        let values: &mut [Stream<'d>; LONG as usize] = self.streams[stream::VALUES..].first_chunk_mut()?;
        let mut back: Vec<u8> = Vec::with_capacity(3 * heads.len());
        // Branches that wait for their split, the first on top: their bytes, and how many nodes they have.
        let mut branches: Vec<(usize, usize)> = Vec::new();
        for &head in heads {
            if head < FAR {
                back.push(head);
                branches.push((1, 1));
                continue;
            }
            if head & SPLIT == 0 {
                back.extend_from_slice(&[far.byte()?, head]);
                branches.push((2, 1));
                continue;
            }
            let begin = back.len();
            let (first, nodes) = branches.pop()?;
            let (other, others) = branches.last_mut()?;
            let value = &mut values[usize::from(head & !(SPLIT | LONG))];
            match value.0 {
                // Most are of two bytes.
                [low, high, rest @ ..] if *low >= 0x80 && *high < 0x80 => {
                    back.extend_from_slice(&[*high, *low]);
                    value.0 = rest;
                }
                _ => back.extend(value.split()?.iter().rev()),
            }
            if nodes < LONG_BRANCH {
                back.push(head);
            } else {
                let mut length = Vec::with_capacity(8);
                count(first as u64, &mut length);
                back.extend(length.iter().rev());
                back.push(head | LONG);
            }
            *other += first + back.len() - begin;
            *others += nodes + 1;
        }
        *self.of(stream::FAR) = far;
        if branches.len() != 1 {
            return None;
        }
        count((engines.len() + back.len()) as u64, &mut self.out);
        self.out.extend_from_slice(engines);
        back.reverse();
        self.out.extend_from_slice(&back);
        Some(())
    }

    /// Writes how much stands behind a byte that was left for that.
    fn framed(&mut self, start: usize) {
        let end = self.out.len();
        let length = end - start - 1;
        if length < 0x80 {
            self.out[start] = length as u8;
            return;
        }
        let mut head = [0; 10];
        let (mut room, mut left) = (0, length);
        while left >= 0x80 {
            head[room] = left as u8 | 0x80;
            (room, left) = (room + 1, left >> 7);
        }
        head[room] = left as u8;
        self.out.resize(end + room, 0);
        self.out.copy_within(start + 1..end, start + 1 + room);
        self.out[start..=start + room].copy_from_slice(&head[..=room]);
    }
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
    fn numbers_in_groups_are_read_as_they_are_written() {
        for number in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, 1 << 40] {
            let mut bytes = Vec::new();
            count(number, &mut bytes);
            assert_eq!(Stream(&bytes).number(), Some(number as usize));
        }
    }
}
