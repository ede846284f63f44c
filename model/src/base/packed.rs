//! Reads packed data files ([`joulecast_data::pack`]): the fields of the same structures that TOML is read into.

use super::file::FileError;
use joulecast_data::pack::{from_few_digits, tag};
use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use std::fmt;
use std::sync::Arc;

/// A packed file that is damaged, or without the fields of its schema.
#[derive(Debug)]
pub(crate) struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl From<Error> for FileError {
    fn from(error: Error) -> Self {
        Self::Syntax(error.0)
    }
}

#[cold]
fn damaged() -> Error {
    Error("the packed file is damaged".into())
}

/// A file's fields.
///
/// # Errors
/// For bytes that are no packed file, or has other fields.
pub(crate) fn from_packed<T: Deserialize<'static>>(bytes: &'static [u8]) -> Result<T, FileError> {
    let document = Document::new(bytes)?;
    Ok(document.root().read()?)
}

/// A packed file with its strings.
pub(crate) struct Document {
    strings: Vec<&'static str>,
    body: &'static [u8],
}

impl Document {
    /// # Errors
    /// When the table of strings is none.
    pub fn new(bytes: &'static [u8]) -> Result<Self, Error> {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at * 4..)?.first_chunk()?) as usize);
        let read = || {
            let strings = word(0)?;
            let end = if strings == 0 { 0 } else { word(strings)? };
            let text = bytes.get(4 + strings.checked_mul(4)?..)?;
            let (text, body) = (str::from_utf8(text.get(..end)?).ok()?, text.get(end..)?);
            let mut start = 0;
            let string = |i: usize| {
                let end = word(i + 1)?;
                text.get(std::mem::replace(&mut start, end)..end)
            };
            Some(Self { strings: (0..strings).map(string).collect::<Option<_>>()?, body })
        };
        read().ok_or_else(damaged)
    }

    /// The file's table.
    pub fn root(&self) -> Packed<'_> {
        Packed { rest: self.body, strings: &self.strings }
    }
}

/// A value of a file that is read later.
#[derive(Clone)]
pub(crate) struct Kept {
    rest: &'static [u8],
    document: Arc<Document>,
}

impl Kept {
    /// A value of a file.
    pub fn new(document: &Arc<Document>, value: Packed<'_>) -> Self {
        Self { rest: value.rest, document: Arc::clone(document) }
    }

    /// A value within it.
    pub fn within(&self, value: Packed<'_>) -> Self {
        Self { rest: value.rest, document: Arc::clone(&self.document) }
    }

    /// The value.
    pub fn value(&self) -> Packed<'_> {
        Packed { rest: self.rest, strings: &self.document.strings }
    }
}

/// A value, at the head of what follows it.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'d> {
    rest: &'static [u8],
    strings: &'d [&'static str],
}

impl<'d> Packed<'d> {
    #[inline]
    fn byte(&mut self) -> Result<u8, Error> {
        let (first, rest) = self.rest.split_first().ok_or_else(damaged)?;
        self.rest = rest;
        Ok(*first)
    }

    #[inline]
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, rest) = self.rest.split_first_chunk().ok_or_else(damaged)?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    fn count(&mut self) -> Result<u64, Error> {
        if let Some((&small, rest)) = self.rest.split_first()
            && small < 0x80
        {
            self.rest = rest;
            return Ok(u64::from(small));
        }
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged())
    }

    #[inline]
    fn string(&mut self) -> Result<&'static str, Error> {
        let position = self.count()? as usize;
        self.strings.get(position).copied().ok_or_else(damaged)
    }

    /// What a length stands before, and goes on behind.
    #[inline]
    fn framed(&mut self) -> Result<&'static [u8], Error> {
        let length = self.count()? as usize;
        let (inside, rest) = self.rest.split_at_checked(length).ok_or_else(damaged)?;
        self.rest = rest;
        Ok(inside)
    }

    /// The values within a list, or the entries within a table.
    #[inline]
    fn entries(&mut self) -> Result<Entries<'d>, Error> {
        let mut inside = Self { rest: self.framed()?, ..*self };
        let left = inside.count()? as usize;
        Ok(Entries { inside, left, passed_over: &[] })
    }

    /// Goes on behind the value.
    fn skip(&mut self) -> Result<(), Error> {
        match self.byte()? {
            tag::TEXT | tag::INTEGER => self.count().map(drop),
            tag::DECIMAL => self.bytes::<4>().map(drop),
            tag::FLOAT => self.bytes::<8>().map(drop),
            tag::FALSE | tag::TRUE => Ok(()),
            tag::LIST | tag::TABLE | tag::TREE => self.framed().map(drop),
            _ => Err(damaged()),
        }
    }

    /// What it is read into.
    ///
    /// # Errors
    /// When its fields are not those of the structure.
    pub fn read<T: Deserialize<'static>>(mut self) -> Result<T, Error> {
        T::deserialize(&mut self)
    }

    /// A table's structure, of all its fields but some.
    ///
    /// # Errors
    /// When it is no table, or its fields are not those of the structure.
    pub fn without<T: Deserialize<'static>>(mut self, passed_over: &'static [&'static str]) -> Result<T, Error> {
        self.tagged(tag::TABLE)?;
        T::deserialize(MapAccessDeserializer::new(Entries { passed_over, ..self.entries()? }))
    }

    /// A field of a table, where it has that.
    ///
    /// # Errors
    /// When it is no table.
    pub fn field(mut self, name: &str) -> Result<Option<Self>, Error> {
        self.tagged(tag::TABLE)?;
        let Entries { mut inside, left, .. } = self.entries()?;
        for _ in 0..left {
            if inside.string()? == name {
                return Ok(Some(inside));
            }
            inside.skip()?;
        }
        Ok(None)
    }

    /// The values of a list.
    ///
    /// # Errors
    /// When it is none.
    pub fn items(mut self) -> Result<Vec<Self>, Error> {
        self.tagged(tag::LIST)?;
        let Entries { mut inside, left, .. } = self.entries()?;
        let mut item = || {
            let value = inside;
            inside.skip()?;
            Ok(value)
        };
        (0..left).map(|_| item()).collect()
    }

    /// A packed decision tree.
    ///
    /// # Errors
    /// When it is none.
    pub fn tree(mut self) -> Result<&'static [u8], Error> {
        self.tagged(tag::TREE)?;
        self.framed()
    }

    #[inline]
    fn tagged(&mut self, tag: u8) -> Result<(), Error> {
        if self.byte()? == tag { Ok(()) } else { Err(damaged()) }
    }
}

impl Deserializer<'static> for &mut Packed<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.byte()? {
            tag::TEXT => visitor.visit_borrowed_str(self.string()?),
            tag::INTEGER => {
                let packed = self.count()?;
                let number = i64::try_from(packed >> 1).map_err(|_| damaged())?;
                visitor.visit_i64(if packed & 1 == 1 { -number } else { number })
            }
            tag::DECIMAL => visitor.visit_f64(from_few_digits(u32::from_le_bytes(self.bytes()?))),
            tag::FLOAT => visitor.visit_f64(f64::from_le_bytes(self.bytes()?)),
            tag::FALSE => visitor.visit_bool(false),
            tag::TRUE => visitor.visit_bool(true),
            tag::LIST => visitor.visit_seq(self.entries()?),
            tag::TABLE => visitor.visit_map(self.entries()?),
            tag::TREE => visitor.visit_borrowed_bytes(self.framed()?),
            _ => Err(damaged()),
        }
    }

    // Most of a file are numbers and names: they are read without looking at every tag.
    #[inline]
    fn deserialize_f64<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.rest {
            [tag::DECIMAL, a, b, c, d, rest @ ..] => {
                self.rest = rest;
                visitor.visit_f64(from_few_digits(u32::from_le_bytes([*a, *b, *c, *d])))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    #[inline]
    fn deserialize_str<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        self.tagged(tag::TEXT)?;
        visitor.visit_borrowed_str(self.string()?)
    }

    #[inline]
    fn deserialize_string<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        self.tagged(tag::LIST)?;
        visitor.visit_seq(self.entries()?)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'static>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_option<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'static>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'static>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.tagged(tag::TEXT)?;
        visitor.visit_enum(BorrowedStrDeserializer::new(self.string()?))
    }

    fn deserialize_ignored_any<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        <V: Visitor<'static>>
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 char bytes byte_buf unit unit_struct tuple_struct map struct identifier
    }
}

/// The values of a list or the entries of a table that are not read yet.
struct Entries<'d> {
    inside: Packed<'d>,
    left: usize,
    passed_over: &'static [&'static str],
}

impl Entries<'_> {
    #[inline]
    fn next(&mut self) -> bool {
        let any = self.left > 0;
        self.left -= usize::from(any);
        any
    }
}

impl SeqAccess<'static> for Entries<'_> {
    type Error = Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'static>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.next() { seed.deserialize(&mut self.inside).map(Some) } else { Ok(None) }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl MapAccess<'static> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'static>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        while self.next() {
            let key = self.inside.string()?;
            if self.passed_over.contains(&key) {
                self.inside.skip()?;
                continue;
            }
            return seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'static>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut self.inside)
    }
}
