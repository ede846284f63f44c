//! Reads packed data files ([`joulecast_data::pack`]). Files of users are packed first (`packed/toml.rs`): every structure has one
//! reader, whose code is a tenth of what programs are large by.

mod toml;

pub(crate) use toml::Parsed;
pub use toml::{Wrong, from_table, from_toml};

use super::file::FileError;
use joulecast_data::pack::{from_few_digits, from_short, tag};
use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, Expected, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use std::fmt;
use std::sync::Arc;

/// A packed file that is damaged, or without the fields of its schema.
#[derive(Debug)]
pub(crate) struct Error(Box<Why>);

#[derive(Debug)]
struct Why {
    message: String,
    /// The address of the first byte of the key or value that is wrong.
    place: Option<usize>,
}

impl Error {
    /// In a key or a value, unless it is known to be in one within that.
    #[cold]
    #[inline(never)]
    fn within(mut self, bytes: &[u8]) -> Self {
        self.0.place.get_or_insert(bytes.as_ptr().addr());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    #[cold]
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(Box::new(Why { message: message.to_string(), place: None }))
    }
}

impl From<Error> for FileError {
    fn from(error: Error) -> Self {
        Self::Syntax(error.0.message)
    }
}

#[cold]
#[inline(never)]
fn damaged() -> Error {
    de::Error::custom("the packed file is damaged")
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
pub(crate) struct Document<'f> {
    strings: Vec<&'f str>,
    body: &'f [u8],
}

impl<'f> Document<'f> {
    /// # Errors
    /// When the table of strings is none.
    pub fn new(bytes: &'f [u8]) -> Result<Self, Error> {
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

    /// Where a name stands among the strings of the file.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.strings.iter().position(|string| *string == name)
    }

    /// The file's table.
    pub fn root(&self) -> Packed<'f, '_> {
        Packed { rest: self.body, strings: &self.strings }
    }
}

/// A value of a file that is read later.
#[derive(Clone)]
pub(crate) struct Kept {
    rest: &'static [u8],
    document: Arc<Document<'static>>,
}

impl Kept {
    /// A value of a file.
    pub fn new(document: &Arc<Document<'static>>, value: Packed<'static, '_>) -> Self {
        Self { rest: value.rest, document: Arc::clone(document) }
    }

    /// A value within it.
    pub fn within(&self, value: Packed<'static, '_>) -> Self {
        Self { rest: value.rest, document: Arc::clone(&self.document) }
    }

    /// The value.
    pub fn value(&self) -> Packed<'static, '_> {
        Packed { rest: self.rest, strings: &self.document.strings }
    }
}

/// A value, at the head of what follows it.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'f, 'd> {
    rest: &'f [u8],
    strings: &'d [&'f str],
}

impl<'f, 'd> Packed<'f, 'd> {
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

    // Once for all structures, as are those below: each of them has hundreds of places that read so.
    #[inline(never)]
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

    #[inline(never)]
    fn string(&mut self) -> Result<&'f str, Error> {
        let position = self.count()? as usize;
        self.strings.get(position).copied().ok_or_else(damaged)
    }

    /// What a length stands before, and goes on behind.
    #[inline]
    fn framed(&mut self) -> Result<&'f [u8], Error> {
        let length = self.count()? as usize;
        let (inside, rest) = self.rest.split_at_checked(length).ok_or_else(damaged)?;
        self.rest = rest;
        Ok(inside)
    }

    /// The values within a list, or the entries within a table.
    #[inline(never)]
    fn entries(&mut self) -> Result<Entries<'f, 'd>, Error> {
        let mut inside = Self { rest: self.framed()?, ..*self };
        let left = inside.count()? as usize;
        Ok(Entries { inside, left, passed_over: &[] })
    }

    /// Goes on behind the value.
    fn skip(&mut self) -> Result<(), Error> {
        match self.byte()? {
            tag::TEXT | tag::INTEGER => self.count().map(drop),
            tag::SHORT..=tag::LAST_SHORT => self.bytes::<3>().map(drop),
            tag::DECIMAL => self.bytes::<4>().map(drop),
            tag::FLOAT => self.bytes::<8>().map(drop),
            tag::WIDE_INTEGER => self.bytes::<16>().map(drop),
            tag::FALSE | tag::TRUE => Ok(()),
            tag::LIST | tag::TABLE | tag::TREE => self.framed().map(drop),
            _ => Err(damaged()),
        }
    }

    /// What it is read into.
    ///
    /// # Errors
    /// When its fields are not those of the structure.
    pub fn read<T: Deserialize<'f>>(mut self) -> Result<T, Error> {
        T::deserialize(&mut self)
    }

    /// A table's structure, of all its fields but some.
    ///
    /// # Errors
    /// When it is no table, or its fields are not those of the structure.
    pub fn without<T: Deserialize<'f>>(mut self, passed_over: &'static [&'static str]) -> Result<T, Error> {
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

    /// Fields of a table whose names stand there among the strings of the file ([`Document::place`]), where it has them.
    ///
    /// # Errors
    /// When it is no table.
    pub fn fields<const N: usize>(mut self, places: &[Option<usize>; N]) -> Result<[Option<Self>; N], Error> {
        self.tagged(tag::TABLE)?;
        let Entries { mut inside, left, .. } = self.entries()?;
        let mut fields = [None; N];
        for _ in 0..left {
            let name = Some(inside.count()? as usize);
            if let Some(at) = places.iter().position(|place| *place == name) {
                fields[at] = Some(inside);
            }
            inside.skip()?;
        }
        Ok(fields)
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
    pub fn tree(mut self) -> Result<&'f [u8], Error> {
        self.tagged(tag::TREE)?;
        self.framed()
    }

    #[inline]
    fn tagged(&mut self, tag: u8) -> Result<(), Error> {
        if self.begins(tag) { Ok(()) } else { Err(damaged()) }
    }

    /// Whether the value is of a kind; behind its tag if so.
    #[inline]
    fn begins(&mut self, tag: u8) -> bool {
        match self.rest {
            [first, rest @ ..] if *first == tag => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    #[inline(never)]
    fn integer(&mut self) -> Result<i64, Error> {
        let packed = self.count()?;
        let number = i64::try_from(packed >> 1).map_err(|_| damaged())?;
        Ok(if packed & 1 == 1 { -number } else { number })
    }

    #[inline(never)]
    fn decimal(&mut self) -> Result<f64, Error> {
        Ok(from_few_digits(u32::from_le_bytes(self.bytes()?)))
    }

    #[cold]
    fn wide<V: Visitor<'f>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        let number = i128::from_le_bytes(self.bytes()?);
        match (i64::try_from(number), u64::try_from(number)) {
            (Ok(number), _) => visitor.visit_i64(number),
            (_, Ok(number)) => visitor.visit_u64(number),
            _ => visitor.visit_i128(number),
        }
    }

    /// What is wrong with a value of a kind that is not expected.
    #[cold]
    #[inline(never)]
    fn unexpected(mut self, expected: &dyn Expected) -> Error {
        let found = match self.byte() {
            Ok(tag::TEXT) => self.string().map(Unexpected::Str),
            Ok(tag::INTEGER) => self.integer().map(Unexpected::Signed),
            Ok(tag::WIDE_INTEGER) => Ok(Unexpected::Other("integer")),
            Ok(tag @ tag::SHORT..=tag::LAST_SHORT) => {
                self.bytes().map(|digits| Unexpected::Float(from_short(tag, digits)))
            }
            Ok(tag::DECIMAL) => self.decimal().map(Unexpected::Float),
            Ok(tag::FLOAT) => self.bytes().map(|bytes| Unexpected::Float(f64::from_le_bytes(bytes))),
            Ok(tag::FALSE) => Ok(Unexpected::Bool(false)),
            Ok(tag::TRUE) => Ok(Unexpected::Bool(true)),
            Ok(tag::LIST) => Ok(Unexpected::Seq),
            Ok(tag::TABLE) => Ok(Unexpected::Map),
            _ => Err(damaged()),
        };
        found.map_or_else(|e| e, |found| de::Error::invalid_type(found, expected))
    }
}

impl<'f> Deserializer<'f> for &mut Packed<'f, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.byte()? {
            tag::TEXT => visitor.visit_borrowed_str(self.string()?),
            tag::INTEGER => visitor.visit_i64(self.integer()?),
            tag::WIDE_INTEGER => self.wide(visitor),
            tag @ tag::SHORT..=tag::LAST_SHORT => visitor.visit_f64(from_short(tag, self.bytes()?)),
            tag::DECIMAL => visitor.visit_f64(self.decimal()?),
            tag::FLOAT => visitor.visit_f64(f64::from_le_bytes(self.bytes()?)),
            tag::FALSE => visitor.visit_bool(false),
            tag::TRUE => visitor.visit_bool(true),
            tag::LIST => visitor.visit_seq(self.entries()?),
            tag::TABLE => visitor.visit_map(self.entries()?),
            tag::TREE => visitor.visit_borrowed_bytes(self.framed()?),
            _ => Err(damaged()),
        }
    }

    // What a structure says of itself decides what is read, so that the code of its other forms is not there.
    #[inline]
    fn deserialize_f64<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        let value = *self;
        match self.byte()? {
            tag @ tag::SHORT..=tag::LAST_SHORT => visitor.visit_f64(from_short(tag, self.bytes()?)),
            tag::DECIMAL => visitor.visit_f64(self.decimal()?),
            tag::FLOAT => visitor.visit_f64(f64::from_le_bytes(self.bytes()?)),
            tag::INTEGER => visitor.visit_i64(self.integer()?),
            tag::WIDE_INTEGER => self.wide(visitor),
            _ => Err(value.unexpected(&visitor)),
        }
    }

    #[inline]
    fn deserialize_u64<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        let value = *self;
        match self.byte()? {
            tag::INTEGER => visitor.visit_i64(self.integer()?),
            tag::WIDE_INTEGER => self.wide(visitor),
            _ => Err(value.unexpected(&visitor)),
        }
    }

    #[inline]
    fn deserialize_bool<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        let value = *self;
        match self.byte()? {
            tag::FALSE => visitor.visit_bool(false),
            tag::TRUE => visitor.visit_bool(true),
            _ => Err(value.unexpected(&visitor)),
        }
    }

    #[inline]
    fn deserialize_str<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.begins(tag::TEXT) {
            return Err(self.unexpected(&visitor));
        }
        visitor.visit_borrowed_str(self.string()?)
    }

    #[inline]
    fn deserialize_string<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.begins(tag::LIST) {
            return Err(self.unexpected(&visitor));
        }
        visitor.visit_seq(self.entries()?)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'f>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'f>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.begins(tag::TABLE) {
            return Err(self.unexpected(&visitor));
        }
        visitor.visit_map(self.entries()?)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'f>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_option<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'f>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'f>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if !self.begins(tag::TEXT) {
            return Err(self.unexpected(&visitor));
        }
        visitor.visit_enum(BorrowedStrDeserializer::new(self.string()?))
    }

    fn deserialize_ignored_any<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }

    fn deserialize_i8<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_i16<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_i32<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_i64<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u8<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u16<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u32<V: Visitor<'f>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_u64(visitor)
    }

    forward_to_deserialize_any! {
        <V: Visitor<'f>>
        f32 char bytes byte_buf unit unit_struct identifier
    }
}

/// The values of a list or the entries of a table that are not read yet.
struct Entries<'f, 'd> {
    inside: Packed<'f, 'd>,
    left: usize,
    passed_over: &'static [&'static str],
}

impl Entries<'_, '_> {
    #[inline]
    fn next(&mut self) -> bool {
        let any = self.left > 0;
        self.left -= usize::from(any);
        any
    }
}

impl<'f> SeqAccess<'f> for Entries<'f, '_> {
    type Error = Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'f>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if !self.next() {
            return Ok(None);
        }
        let here = self.inside.rest;
        seed.deserialize(&mut self.inside).map(Some).map_err(|e| e.within(here))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'f> MapAccess<'f> for Entries<'f, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'f>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        while self.next() {
            let here = self.inside.rest;
            let key = self.inside.string()?;
            if self.passed_over.contains(&key) {
                self.inside.skip()?;
                continue;
            }
            return seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some).map_err(|e: Error| e.within(here));
        }
        Ok(None)
    }

    // Once for all fields of a type, of which a file has many.
    #[inline(never)]
    fn next_value_seed<T: DeserializeSeed<'f>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let here = self.inside.rest;
        seed.deserialize(&mut self.inside).map_err(|e| e.within(here))
    }
}
