//! Lays a packed file out ([`crate::dense`]).

use crate::dense::{NAMED, packed, stream};
use crate::form::{FAR, LONG, SPLIT, count, tag};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Numbers that occur so often are named by their place.
const OFTEN: usize = 3;

/// A packed file in the form of [`crate::dense`].
///
/// # Errors
/// In words, for what is no packed file, or would not come out again to the last byte.
pub fn dense(file: &[u8]) -> Result<Vec<u8>, String> {
    // How often numbers occur is known once all was seen.
    let mut writer = Writer::new(file);
    writer.file().ok_or("it is no packed file")?;
    let mut often: Vec<([u8; 4], usize)> = writer.numbers.into_iter().filter(|(_, times)| *times >= OFTEN).collect();
    often.sort_by_key(|(number, times)| (Reverse(*times), *number));
    often.truncate(usize::from(u16::MAX));
    let mut again = Writer::new(file);
    for (place, (number, _)) in (0..).zip(&often) {
        again.places.insert(*number, place);
        number.iter().enumerate().for_each(|(plane, byte)| again.streams[stream::OFTEN + plane].push(*byte));
    }
    again.file().ok_or("it is no packed file")?;
    let mut dense = Vec::new();
    for stream in &again.streams {
        dense.extend(u32::try_from(stream.len()).map_err(|_| "it is too long")?.to_le_bytes());
    }
    dense.extend(again.streams.concat());
    if packed(&dense).as_deref() != Some(file) {
        return Err("it does not come out of its dense form".to_string());
    }
    Ok(dense)
}

struct Writer<'f> {
    rest: &'f [u8],
    streams: Vec<Vec<u8>>,
    /// How often numbers occur.
    numbers: BTreeMap<[u8; 4], usize>,
    /// Places of those that are named.
    places: BTreeMap<[u8; 4], u16>,
}

impl<'f> Writer<'f> {
    fn new(file: &'f [u8]) -> Self {
        Self { rest: file, streams: vec![Vec::new(); stream::ALL], numbers: BTreeMap::new(), places: BTreeMap::new() }
    }

    fn take(&mut self, bytes: usize) -> Option<&'f [u8]> {
        let (head, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(head)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    /// The bytes of a number in groups of seven bits, and the number.
    fn grouped(&mut self) -> Option<(&'f [u8], u64)> {
        let end = self.rest.iter().position(|byte| *byte < 0x80)?;
        let bytes = self.take(end + 1)?;
        Some((bytes, bytes.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))))
    }

    fn planes(&mut self, first: usize, bytes: usize) -> Option<()> {
        let taken = self.take(bytes)?;
        taken.iter().zip(&mut self.streams[first..]).for_each(|(byte, plane)| plane.push(*byte));
        Some(())
    }

    fn copied(&mut self, to: usize) -> Option<u64> {
        let (bytes, number) = self.grouped()?;
        self.streams[to].extend(bytes);
        Some(number)
    }

    fn file(&mut self) -> Option<()> {
        let word = |bytes: &[u8]| Some(u32::from_le_bytes(*bytes.first_chunk()?) as usize);
        let strings = word(self.take(4)?)?;
        count(strings as u64, &mut self.streams[stream::LENGTHS]);
        let mut before = 0;
        for _ in 0..strings {
            let end = word(self.take(4)?)?;
            count(end.checked_sub(before)? as u64, &mut self.streams[stream::LENGTHS]);
            before = end;
        }
        let text = self.take(before)?;
        self.streams[stream::TEXT].extend(text);
        self.value()?;
        self.rest.is_empty().then_some(())
    }

    fn value(&mut self) -> Option<()> {
        let tag = self.byte()?;
        if (tag::SHORT..=tag::LAST_SHORT).contains(&tag) {
            let [a, b, c] = *self.take(3)?.first_chunk()?;
            let number = [tag, a, b, c];
            *self.numbers.entry(number).or_default() += 1;
            if let Some(place) = self.places.get(&number) {
                self.streams[stream::TAGS].push(NAMED);
                let bytes = place.to_le_bytes();
                (0..2).for_each(|plane| self.streams[stream::REPEATED + plane].push(bytes[plane]));
            } else {
                self.streams[stream::TAGS].push(tag);
                [a, b, c].iter().enumerate().for_each(|(plane, byte)| self.streams[stream::SHORT + plane].push(*byte));
            }
            return Some(());
        }
        self.streams[stream::TAGS].push(tag);
        match tag {
            tag::TEXT => self.copied(stream::STRINGS).map(|_| ()),
            tag::INTEGER => self.copied(stream::INTEGERS).map(|_| ()),
            tag::DECIMAL => self.planes(stream::DECIMAL, 4),
            tag::FLOAT => self.planes(stream::FLOAT, 8),
            tag::FALSE | tag::TRUE => Some(()),
            tag::WIDE_INTEGER => {
                let bytes = self.take(16)?;
                self.streams[stream::WIDE].extend(bytes);
                Some(())
            }
            tag::LIST | tag::TABLE => {
                self.grouped()?;
                for _ in 0..self.copied(stream::ENTRIES)? {
                    if tag == tag::TABLE {
                        self.copied(stream::KEYS)?;
                    }
                    self.value()?;
                }
                Some(())
            }
            tag::TREE => self.tree(),
            _ => None,
        }
    }

    fn tree(&mut self) -> Option<()> {
        self.grouped()?;
        let engines = self.copied(stream::ENGINES)?;
        let numbers = self.take(usize::try_from(engines).ok()?.checked_mul(2)?)?;
        self.streams[stream::ENGINES].extend(numbers);
        // The first byte of each node, and what else is kept of it.
        let mut nodes: Vec<(u8, &[u8])> = Vec::new();
        let (mut open, mut splits) = (1, 0);
        while open > 0 {
            let head = self.byte()?;
            if head & SPLIT == 0 {
                nodes.push((head, self.take(usize::from(head >= FAR))?));
                open -= 1;
                continue;
            }
            if head & LONG != 0 {
                self.grouped()?;
            }
            let from = self.rest;
            if self.grouped()?.1 == 0 {
                self.take(8)?;
            }
            nodes.push((head & !LONG, &from[..from.len() - self.rest.len()]));
            (open, splits) = (open + 1, splits + 1);
        }
        count(splits, &mut self.streams[stream::ENTRIES]);
        for (head, rest) in nodes.into_iter().rev() {
            self.streams[stream::HEADS].push(head);
            let to = if head & SPLIT == 0 { stream::FAR } else { stream::VALUES + usize::from(head & !SPLIT) };
            self.streams[to].extend(rest);
        }
        Some(())
    }
}
