//! Calibrations laid out so that what compresses a download finds more in them: what a packed file ([`crate::pack`]) holds one
//! after the other lies here by what it is, tags with tags and first bytes with first bytes, numbers that occur several times
//! are named by their place in a list of such, and lengths are left out. Deflated, that is an eighth less; the packed file comes
//! of it again to the last byte, which the build tries. Trees stay as they are: as kinds of nodes, values and engines they
//! would be a fifth less, for as long again until the first prediction.

use crate::pack::{count, tag};

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
    /// Trees as they are.
    pub const TREES: usize = 27;
    /// How many strings, and how long each is.
    pub const LENGTHS: usize = 28;
    pub const TEXT: usize = 29;
    /// How many there are.
    pub const ALL: usize = 30;
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

    fn number(&mut self) -> Option<usize> {
        let bytes = self.grouped().filter(|bytes| bytes.len() <= 9)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f)))
    }
}

struct Reader<'d> {
    streams: [Stream<'d>; stream::ALL],
    often: Vec<[u8; 4]>,
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
    let mut reader = Reader { streams, often: Vec::new(), out: Vec::with_capacity(dense.len() * 5 / 4) };
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
            tag::TREE => {
                let length = self.of(stream::ENTRIES).grouped()?;
                let nodes = self.of(stream::TREES).take(Stream(length).number()?)?;
                self.out.extend_from_slice(length);
                self.out.extend_from_slice(nodes);
                Some(())
            }
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
