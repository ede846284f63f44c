//! Messages of protobuf as structs: what prost's derive makes of them, which takes another syn and its time to compile.

use prost::DecodeError;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType};

/// What a field of a message may be. Its type says how it is written.
pub trait Field: Default + PartialEq {
    /// With its tag, also where it is the default.
    fn write(&self, tag: u32, to: &mut impl BufMut);
    /// What comes behind its tag.
    fn read(&mut self, wire: WireType, from: &mut impl Buf, context: DecodeContext) -> Result<(), DecodeError>;
    /// Bytes that are written.
    fn length(&self, tag: u32) -> usize;
    /// Whether it is left out of its message.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What is written whenever it is said, be it a default.
impl<F: Field> Field for Option<F> {
    fn write(&self, tag: u32, to: &mut impl BufMut) {
        if let Some(value) = self {
            value.write(tag, to);
        }
    }

    fn read(&mut self, wire: WireType, from: &mut impl Buf, context: DecodeContext) -> Result<(), DecodeError> {
        self.get_or_insert_default().read(wire, from, context)
    }

    fn length(&self, tag: u32) -> usize {
        self.as_ref().map_or(0, |value| value.length(tag))
    }
}

/// Fields by prost's functions for their kind.
macro_rules! fields {
    ($($type:ty => $kind:ident::{$write:ident, $read:ident, $length:ident};)*) => {$(
        impl $crate::onnx::message::Field for $type {
            fn write(&self, tag: u32, to: &mut impl prost::bytes::BufMut) {
                prost::encoding::$kind::$write(tag, self, to);
            }

            fn read(
                &mut self,
                wire: prost::encoding::WireType,
                from: &mut impl prost::bytes::Buf,
                context: prost::encoding::DecodeContext,
            ) -> Result<(), prost::DecodeError> {
                prost::encoding::$kind::$read(wire, self, from, context)
            }

            fn length(&self, tag: u32) -> usize {
                prost::encoding::$kind::$length(tag, self)
            }
        }
    )*};
}

// Numbers of a list are packed; those that are not are read all the same.
fields! {
    i32 => int32::{encode, merge, encoded_len};
    i64 => int64::{encode, merge, encoded_len};
    f32 => float::{encode, merge, encoded_len};
    String => string::{encode, merge, encoded_len};
    Vec<u8> => bytes::{encode, merge, encoded_len};
    Vec<i64> => int64::{encode_packed, merge_repeated, encoded_len_packed};
    Vec<f32> => float::{encode_packed, merge_repeated, encoded_len_packed};
    Vec<String> => string::{encode_repeated, merge_repeated, encoded_len_repeated};
}

/// Structs that are messages: fields, all of them public, with their tags in ascending order. A field that is not named is
/// skipped; an error names message and field.
macro_rules! messages {
    ($(pub struct $name:ident { $($(#[$about:meta])* $field:ident: $type:ty = $tag:literal,)* })*) => {$(
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $($(#[$about])* pub $field: $type,)*
        }

        impl prost::Message for $name {
            fn encode_raw(&self, to: &mut impl prost::bytes::BufMut) {
                $(if !self.$field.is_default() {
                    self.$field.write($tag, to);
                })*
            }

            fn merge_field(
                &mut self,
                tag: u32,
                wire: prost::encoding::WireType,
                from: &mut impl prost::bytes::Buf,
                context: prost::encoding::DecodeContext,
            ) -> Result<(), prost::DecodeError> {
                let (field, read) = match tag {
                    $($tag => (stringify!($field), self.$field.read(wire, from, context)),)*
                    _ => return prost::encoding::skip_field(wire, tag, from, context),
                };
                read.map_err(|mut error| {
                    error.push(stringify!($name), field);
                    error
                })
            }

            fn encoded_len(&self) -> usize {
                0 $(+ if self.$field.is_default() { 0 } else { self.$field.length($tag) })*
            }

            fn clear(&mut self) {
                *self = Self::default();
            }
        }

        $crate::onnx::message::fields! {
            $name => message::{encode, merge, encoded_len};
            Box<$name> => message::{encode, merge, encoded_len};
            Vec<$name> => message::{encode_repeated, merge_repeated, encoded_len_repeated};
        }
    )*};
}

pub(super) use {fields, messages};

#[cfg(test)]
mod tests {
    use super::Field as _;
    use prost::Message as _;

    messages! {
        pub struct Outer {
            count: i64 = 1,
            name: String = 2,
            numbers: Vec<i64> = 3,
            factors: Vec<f32> = 4,
            names: Vec<String> = 5,
            inner: Option<Box<Outer>> = 6,
            inners: Vec<Outer> = 7,
            maybe: Option<i64> = 20,
        }
    }

    #[test]
    fn defaults_are_left_out_unless_they_were_said() {
        assert!(Outer::default().encode_to_vec().is_empty());
        let said =
            Outer { maybe: Some(0), inner: Some(Box::default()), inners: vec![Outer::default()], ..Outer::default() };
        let bytes = [0x32, 0, 0x3a, 0, 0xa0, 1, 0];
        assert_eq!((&said.encode_to_vec()[..], said.encoded_len()), (&bytes[..], bytes.len()));
        assert_eq!(Outer::decode(&bytes[..]), Ok(said));
    }

    #[test]
    fn fields_come_by_their_tags_and_numbers_of_a_list_are_packed() {
        let inner = Outer { count: -1, ..Outer::default() };
        let outer = Outer {
            count: 300,
            name: "a".into(),
            numbers: vec![1, 0, 300],
            factors: vec![1.0],
            names: vec!["b".into(), String::new()],
            inner: Some(Box::new(inner.clone())),
            inners: vec![inner],
            maybe: Some(5),
        };
        let minus_one = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let bytes = [
            &[0x08, 0xac, 2, 0x12, 1, b'a', 0x1a, 4, 1, 0, 0xac, 2, 0x22, 4, 0, 0, 0x80, 0x3f][..],
            &[0x2a, 1, b'b', 0x2a, 0, 0x32, 11],
            &minus_one,
            &[0x3a, 11],
            &minus_one,
            &[0xa0, 1, 5],
        ]
        .concat();
        assert_eq!((outer.encode_to_vec(), outer.encoded_len()), (bytes.clone(), bytes.len()));
        assert_eq!(Outer::decode(&bytes[..]), Ok(outer));
    }

    #[test]
    fn numbers_one_by_one_and_fields_without_a_name_are_read_over() {
        // Tags 3, three times; 30 as number, text, and in 32 and 64 bits.
        let bytes = [
            &[0x18, 1, 0x1a, 2, 2, 3, 0x18, 4][..],
            &[0xf0, 1, 7, 0xf2, 1, 2, b'x', b'y', 0xf5, 1, 0, 0, 0, 0, 0xf1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 9],
        ]
        .concat();
        let read = Outer::decode(&bytes[..]).map(|outer| (outer.numbers, outer.count));
        assert_eq!(read, Ok((vec![1, 2, 3, 4], 9)));
        // What comes twice is the last; messages become one.
        let twice =
            Outer::decode(&[0x08, 1, 0x08, 2, 0x32, 2, 0x08, 3, 0x32, 3, 0x12, 1, b'a'][..]).expect("a message");
        let inner = twice.inner.expect("a message");
        assert_eq!((twice.count, inner.count, &inner.name[..]), (2, 3, "a"));
    }

    #[test]
    fn errors_name_message_and_field() {
        // A text where a number should be, in a message; and a message of itself without end.
        let error = Outer::decode(&[0x32, 3, 0x0a, 1, b'x'][..]).expect_err("no number").to_string();
        assert!(error.contains("Outer.count: Outer.inner: "), "{error}");
        let deep = (0..200).fold(Vec::new(), |inner: Vec<u8>, _| {
            let mut outer = vec![0x32];
            prost::encoding::encode_varint(inner.len() as u64, &mut outer);
            outer.extend(inner);
            outer
        });
        assert!(Outer::decode(&deep[..]).expect_err("too deep").to_string().contains("recursion limit"));
    }
}
