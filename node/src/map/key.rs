//! Keys as bytes: the same bytes for equal keys, whatever their types are called, in the order of
//! the keys.
//!
//! ```text
//!   text, bytes      as they are                   within another key: 00 becomes 00 FF, 00 00 ends
//!   integer, char    80+n and its n bytes, highest first; below 0: 7F-n and the bytes, inverted
//!   float            8 bytes, so turned that their order is that of the numbers
//!   tuple, list      each element: a byte as it is (within another key as in a text), anything
//!                    else after 01             within another key: 00 00 ends
//!   struct           as a tuple, and each field after its name
//!   enum             the name of the variant, and what it holds
//!   Option           00, or 01 and what it holds
//! ```
//! A `u32` and a `u64` of one value are one key, and so are `[u8; 4]`, `&[u8]` and `Vec<u8>`. All
//! keys that begin with some elements of a tuple begin with the bytes of these.

use crate::error::KeyError;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};
use serde::ser::{self, Serialize};
use std::borrow::Borrow;

/// A key of type `K`, or what it borrows as: `str` for `String`, `[u8]` for `Vec<u8>`. Every such
/// type that serde writes is one.
///
/// ```
/// use doyen::{Error, KeyOf, Map};
///
/// /// Whether a session is known, by its name or any borrowed form of it.
/// async fn knows<Q>(sessions: &Map<String, u64>, name: &Q) -> Result<bool, Error>
/// where
///     Q: KeyOf<String> + ?Sized,
/// {
///     sessions.contains(name).await
/// }
/// ```
pub trait KeyOf<K: ?Sized>: Serialize {}

impl<K: Borrow<Q> + ?Sized, Q: Serialize + ?Sized> KeyOf<K> for Q {}

/// The bytes of a key.
pub(super) fn encode<K: Serialize + ?Sized>(key: &K) -> Result<Vec<u8>, KeyError> {
    let mut out = Vec::new();
    encode_into(key, &mut out)?;
    Ok(out)
}

/// Appends the bytes of a key.
pub(super) fn encode_into<K: Serialize + ?Sized>(
    key: &K,
    out: &mut Vec<u8>,
) -> Result<(), KeyError> {
    key.serialize(Writer { out, nested: false })?;
    Ok(())
}

/// The key of these bytes.
pub(super) fn decode<K: DeserializeOwned>(bytes: &[u8]) -> Result<K, KeyError> {
    let mut left = bytes;
    let key = K::deserialize(KeyPartReader {
        left: &mut left,
        nested: false,
    })?;
    if left.is_empty() {
        Ok(key)
    } else {
        Err(KeyError(format!("{} bytes follow the key", left.len())))
    }
}

/// What ends a text or a list within another key.
const END: [u8; 2] = [0, 0];
/// What stands for a byte of 0 there.
const ZERO: [u8; 2] = [0, 0xFF];
/// What an element that is no byte, and what an Option holds, follows.
const SOME: u8 = 1;
const NONE: u8 = 0;
/// An integer of 0 begins with this, and one of -1 with the byte before.
const NUMBER: u8 = 0x80;

/// Writes one part of a key.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Whether something may follow in the same key.
    nested: bool,
}

impl Writer<'_> {
    fn byte(&mut self, byte: u8) {
        if byte == 0 && self.nested {
            self.out.extend(ZERO);
        } else {
            self.out.push(byte);
        }
    }

    fn bytes(mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.byte(*byte));
        self.end();
    }

    fn end(self) {
        if self.nested {
            self.out.extend(END);
        }
    }

    fn positive(self, number: u128) {
        let bytes = number.to_be_bytes();
        let bytes = &bytes[number.leading_zeros() as usize / 8..];
        self.out.push(NUMBER + bytes.len() as u8);
        self.out.extend(bytes);
    }

    fn integer(self, number: i128) {
        if number >= 0 {
            return self.positive(number.unsigned_abs());
        }
        let inverse = (!number).unsigned_abs();
        let bytes = inverse.to_be_bytes();
        let bytes = &bytes[inverse.leading_zeros() as usize / 8..];
        self.out.push(NUMBER - 1 - bytes.len() as u8);
        self.out.extend(bytes.iter().map(|byte| !byte));
    }

    /// Writes what is within this key.
    fn within(&mut self) -> Writer<'_> {
        Writer {
            out: self.out,
            nested: true,
        }
    }

    /// The name of a variant or a field, which something follows.
    fn name(&mut self, name: &str) {
        self.within().bytes(name.as_bytes());
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), KeyError> {
        let before = self.out.len();
        self.out.push(SOME);
        if let IsByte::Byte(byte) = value.serialize(self.within())? {
            self.out.truncate(before);
            self.byte(byte);
        }
        Ok(())
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), KeyError> {
        self.out.push(SOME);
        self.name(name);
        value.serialize(self.within())?;
        Ok(())
    }
}

/// Whether what was written was one byte, which a list writes in another way.
enum IsByte {
    Byte(u8),
    No,
}

/// Writes numbers as those of a wider type.
macro_rules! widened {
    ($($serialize:ident($kind:ty) $wide:ident;)*) => {$(
        fn $serialize(self, value: $kind) -> Result<IsByte, KeyError> {
            self.$wide(value.into())
        }
    )*};
}

impl ser::Serializer for Writer<'_> {
    type Ok = IsByte;
    type Error = KeyError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = ser::Impossible<IsByte, KeyError>;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    widened! {
        serialize_i8(i8) serialize_i128;
        serialize_i16(i16) serialize_i128;
        serialize_i32(i32) serialize_i128;
        serialize_i64(i64) serialize_i128;
        serialize_u16(u16) serialize_u128;
        serialize_u32(u32) serialize_u128;
        serialize_u64(u64) serialize_u128;
        serialize_f32(f32) serialize_f64;
    }

    fn serialize_bool(self, value: bool) -> Result<IsByte, KeyError> {
        self.positive(value.into());
        Ok(IsByte::No)
    }

    fn serialize_i128(self, value: i128) -> Result<IsByte, KeyError> {
        self.integer(value);
        Ok(IsByte::No)
    }

    fn serialize_u8(self, value: u8) -> Result<IsByte, KeyError> {
        self.positive(value.into());
        Ok(IsByte::Byte(value))
    }

    fn serialize_u128(self, value: u128) -> Result<IsByte, KeyError> {
        self.positive(value);
        Ok(IsByte::No)
    }

    fn serialize_f64(self, value: f64) -> Result<IsByte, KeyError> {
        // Zeros of both signs are equal, so they are one key.
        let bits = if value == 0.0 { 0 } else { value.to_bits() };
        let turned = if bits >> 63 == 0 {
            bits | 1 << 63
        } else {
            !bits
        };
        self.out.extend(turned.to_be_bytes());
        Ok(IsByte::No)
    }

    fn serialize_char(self, value: char) -> Result<IsByte, KeyError> {
        self.serialize_u32(value.into())
    }

    fn serialize_str(self, value: &str) -> Result<IsByte, KeyError> {
        self.serialize_bytes(value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<IsByte, KeyError> {
        self.bytes(value);
        Ok(IsByte::No)
    }

    fn serialize_none(self) -> Result<IsByte, KeyError> {
        self.out.push(NONE);
        Ok(IsByte::No)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<IsByte, KeyError> {
        self.out.push(SOME);
        value.serialize(self)?;
        Ok(IsByte::No)
    }

    fn serialize_unit(self) -> Result<IsByte, KeyError> {
        Ok(IsByte::No)
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<IsByte, KeyError> {
        Ok(IsByte::No)
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<IsByte, KeyError> {
        let mut writer = self;
        writer.name(variant);
        Ok(IsByte::No)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<IsByte, KeyError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        mut self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<IsByte, KeyError> {
        self.name(variant);
        value.serialize(self)?;
        Ok(IsByte::No)
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<Self, KeyError> {
        Ok(self)
    }

    fn serialize_tuple(self, _len: usize) -> Result<Self, KeyError> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _name: &'static str, _len: usize) -> Result<Self, KeyError> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        mut self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Self, KeyError> {
        self.name(variant);
        Ok(self)
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Self::SerializeMap, KeyError> {
        Err(KeyError::no_key("a map"))
    }

    fn serialize_struct(self, _name: &'static str, _len: usize) -> Result<Self, KeyError> {
        Ok(self)
    }

    fn serialize_struct_variant(
        mut self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Self, KeyError> {
        self.name(variant);
        Ok(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Writes the parts of a list, a tuple or a struct.
macro_rules! parts {
    ($($kind:ident $serialize:ident($($name:ident)?) $part:ident;)*) => {$(
        impl ser::$kind for Writer<'_> {
            type Ok = IsByte;
            type Error = KeyError;

            fn $serialize<T: Serialize + ?Sized>(
                &mut self,
                $($name: &'static str,)?
                value: &T,
            ) -> Result<(), KeyError> {
                self.$part($($name,)? value)
            }

            fn end(self) -> Result<IsByte, KeyError> {
                Writer::end(self);
                Ok(IsByte::No)
            }
        }
    )*};
}

parts! {
    SerializeSeq serialize_element() element;
    SerializeTuple serialize_element() element;
    SerializeTupleStruct serialize_field() element;
    SerializeTupleVariant serialize_field() element;
    SerializeStruct serialize_field(name) field;
    SerializeStructVariant serialize_field(name) field;
}

/// Reads one part of a key.
struct KeyPartReader<'a, 'de> {
    left: &'a mut &'de [u8],
    /// Whether something may follow in the same key.
    nested: bool,
}

impl<'de> KeyPartReader<'_, 'de> {
    fn first(&mut self) -> Result<u8, KeyError> {
        let (first, left) = self.left.split_first().ok_or_else(KeyError::ends)?;
        *self.left = left;
        Ok(*first)
    }

    fn take(&mut self, count: usize) -> Result<&'de [u8], KeyError> {
        let (taken, left) = self
            .left
            .split_at_checked(count)
            .ok_or_else(KeyError::ends)?;
        *self.left = left;
        Ok(taken)
    }

    /// A byte of a text or a list.
    fn byte(&mut self) -> Result<u8, KeyError> {
        match self.first()? {
            0 if self.nested => match self.first()? {
                0xFF => Ok(0),
                _ => Err(KeyError::ends()),
            },
            byte => Ok(byte),
        }
    }

    /// Whether a text or a list ends here. Its end is taken.
    fn ends(&mut self) -> bool {
        if !self.nested {
            return self.left.is_empty();
        }
        match self.left.strip_prefix(&END) {
            Some(left) => {
                *self.left = left;
                true
            }
            None => false,
        }
    }

    fn bytes(mut self) -> Result<Vec<u8>, KeyError> {
        if !self.nested {
            return Ok(std::mem::take(self.left).to_vec());
        }
        let mut bytes = Vec::new();
        while !self.ends() {
            bytes.push(self.byte()?);
        }
        Ok(bytes)
    }

    fn text(self) -> Result<String, KeyError> {
        String::from_utf8(self.bytes()?).map_err(|_| KeyError("a text is no UTF-8".to_owned()))
    }

    /// Reads what is within this key.
    fn within(&mut self) -> KeyPartReader<'_, 'de> {
        KeyPartReader {
            left: self.left,
            nested: true,
        }
    }

    fn name(&mut self) -> Result<String, KeyError> {
        self.within().text()
    }

    /// The mark of an element.
    fn mark(&mut self) -> Result<(), KeyError> {
        match self.first()? {
            SOME => Ok(()),
            _ => Err(KeyError("an element is of another type".to_owned())),
        }
    }

    /// An integer: its amount, and whether it is below zero. Then the amount is that of its
    /// inverse.
    fn number(&mut self) -> Result<(u128, bool), KeyError> {
        let first = self.first()?;
        let (count, negative) = if first >= NUMBER {
            (first - NUMBER, false)
        } else {
            (NUMBER - 1 - first, true)
        };
        if count > 16 {
            return Err(KeyError("a part of the key is no number".to_owned()));
        }
        let turn = if negative { 0xFF } else { 0 };
        let bytes = self.take(count.into())?.iter();
        let number = bytes.fold(0, |sum, byte| sum << 8 | u128::from(byte ^ turn));
        Ok((number, negative))
    }

    fn unsigned(&mut self) -> Result<u128, KeyError> {
        match self.number()? {
            (number, false) => Ok(number),
            (_, true) => Err(KeyError("the number is below 0".to_owned())),
        }
    }

    fn signed(&mut self) -> Result<i128, KeyError> {
        let (number, negative) = self.number()?;
        let number =
            i128::try_from(number).map_err(|_| KeyError("the number is too large".to_owned()))?;
        Ok(if negative { !number } else { number })
    }

    fn float(&mut self) -> Result<f64, KeyError> {
        let turned = self
            .take(8)?
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let bits = if turned >> 63 == 1 {
            turned & !(1 << 63)
        } else {
            !turned
        };
        Ok(f64::from_bits(bits))
    }
}

/// Reads integers of one size.
macro_rules! integers {
    ($($deserialize:ident $visit:ident $number:ident $kind:ty;)*) => {$(
        fn $deserialize<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, KeyError> {
            let number = <$kind>::try_from(self.$number()?)
                .map_err(|_| KeyError("the number is too large for its type".to_owned()))?;
            visitor.$visit(number)
        }
    )*};
}

impl<'de> de::Deserializer<'de> for KeyPartReader<'_, 'de> {
    type Error = KeyError;

    integers! {
        deserialize_u8 visit_u8 unsigned u8;
        deserialize_u16 visit_u16 unsigned u16;
        deserialize_u32 visit_u32 unsigned u32;
        deserialize_u64 visit_u64 unsigned u64;
        deserialize_u128 visit_u128 unsigned u128;
        deserialize_i8 visit_i8 signed i8;
        deserialize_i16 visit_i16 signed i16;
        deserialize_i32 visit_i32 signed i32;
        deserialize_i64 visit_i64 signed i64;
        deserialize_i128 visit_i128 signed i128;
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, KeyError> {
        Err(KeyError::other_type())
    }

    fn deserialize_bool<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, KeyError> {
        let number = self.unsigned()?;
        visitor.visit_bool(number != 0)
    }

    fn deserialize_f32<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, KeyError> {
        let number = self.float()?;
        visitor.visit_f32(number as f32)
    }

    fn deserialize_f64<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, KeyError> {
        let number = self.float()?;
        visitor.visit_f64(number)
    }

    fn deserialize_char<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, KeyError> {
        let number = u32::try_from(self.unsigned()?).ok();
        let found = number.and_then(char::from_u32);
        visitor.visit_char(found.ok_or_else(|| KeyError("no character".to_owned()))?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_byte_buf(self.bytes()?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_byte_buf(self.bytes()?)
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, KeyError> {
        match self.first()? {
            NONE => visitor.visit_none(),
            SOME => visitor.visit_some(self),
            _ => Err(KeyError("neither something nor nothing".to_owned())),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_seq(Elements {
            reader: self,
            named: false,
            ended: false,
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.whole_list(false, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.whole_list(false, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, KeyError> {
        Err(KeyError::no_key("a map"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.whole_list(true, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        visitor.visit_enum(self)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, KeyError> {
        Err(KeyError::other_type())
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

impl<'de> KeyPartReader<'_, 'de> {
    /// Reads a list whose length the visitor knows, and its end.
    fn whole_list<V: Visitor<'de>>(self, named: bool, visitor: V) -> Result<V::Value, KeyError> {
        let mut elements = Elements {
            reader: self,
            named,
            ended: false,
        };
        let value = if named {
            visitor.visit_map(&mut elements)?
        } else {
            visitor.visit_seq(&mut elements)?
        };
        if elements.ended || elements.reader.ends() {
            Ok(value)
        } else {
            Err(KeyError("a list is longer than its type".to_owned()))
        }
    }
}

/// The elements of a list, or the fields of a struct.
struct Elements<'a, 'de> {
    reader: KeyPartReader<'a, 'de>,
    named: bool,
    ended: bool,
}

impl<'de> Elements<'_, 'de> {
    fn end(&mut self) -> bool {
        self.ended = self.ended || self.reader.ends();
        self.ended
    }
}

impl<'de> de::SeqAccess<'de> for Elements<'_, 'de> {
    type Error = KeyError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, KeyError> {
        if self.end() {
            return Ok(None);
        }
        let element = KeyPartReader {
            left: self.reader.left,
            nested: self.reader.nested,
        };
        seed.deserialize(KeyElement(element)).map(Some)
    }
}

impl<'de> de::MapAccess<'de> for Elements<'_, 'de> {
    type Error = KeyError;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, KeyError> {
        if !self.named || self.end() {
            return Ok(None);
        }
        self.reader.mark()?;
        let name = self.reader.name()?;
        let name: StrDeserializer<'_, KeyError> = name.as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, KeyError> {
        seed.deserialize(self.reader.within())
    }
}

impl<'de> de::EnumAccess<'de> for KeyPartReader<'_, 'de> {
    type Error = KeyError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(
        mut self,
        seed: T,
    ) -> Result<(T::Value, Self), KeyError> {
        let name = self.name()?;
        let name: StrDeserializer<'_, KeyError> = name.as_str().into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for KeyPartReader<'_, 'de> {
    type Error = KeyError;

    fn unit_variant(self) -> Result<(), KeyError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, KeyError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, KeyError> {
        self.whole_list(false, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.whole_list(true, visitor)
    }
}

/// Reads an element of a list: a byte as it is, and anything else after a mark.
struct KeyElement<'a, 'de>(KeyPartReader<'a, 'de>);

impl<'a, 'de> KeyElement<'a, 'de> {
    /// What follows the mark.
    fn marked(mut self) -> Result<KeyPartReader<'a, 'de>, KeyError> {
        self.0.mark()?;
        Ok(KeyPartReader {
            nested: true,
            ..self.0
        })
    }
}

/// Reads what follows the mark.
macro_rules! marked {
    ($($deserialize:ident($($name:ident: $kind:ty),*);)*) => {$(
        fn $deserialize<V: Visitor<'de>>(
            self,
            $($name: $kind,)*
            visitor: V,
        ) -> Result<V::Value, KeyError> {
            self.marked()?.$deserialize($($name,)* visitor)
        }
    )*};
}

impl<'de> de::Deserializer<'de> for KeyElement<'_, 'de> {
    type Error = KeyError;

    marked! {
        deserialize_any();
        deserialize_bool();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_u128();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_i128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_map();
        deserialize_struct(name: &'static str, fields: &'static [&'static str]);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
        deserialize_ignored_any();
    }

    fn deserialize_u8<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_u8(self.0.byte()?)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        // It is written as what it holds, which may be a byte.
        visitor.visit_newtype_struct(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};
    use std::cmp::Ordering;
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    #[derive(Debug, Clone, PartialEq, PartialOrd, Serialize, Deserialize)]
    struct Place {
        region: String,
        row: Vec<u8>,
        depth: Option<i32>,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Byte(u8);

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Nothing,
        One(Place),
        Two(u8, String),
        Three { byte: u8, list: Vec<(bool, char)> },
    }

    type Any = (
        (u8, i64, u128),
        String,
        Vec<Vec<u8>>,
        Vec<String>,
        Option<Option<String>>,
        Place,
        Vec<Byte>,
    );

    fn place() -> impl Strategy<Value = Place> {
        let bytes = prop::collection::vec(0u8..3, 0..4);
        let region = prop::collection::vec(0u8..3, 0..4);
        let region = region.prop_map(|bytes| bytes.into_iter().map(char::from).collect());
        (region, bytes, prop::option::of(any::<i32>())).prop_map(|(region, row, depth)| Place {
            region,
            row,
            depth,
        })
    }

    fn texts() -> impl Strategy<Value = String> {
        prop::collection::vec(
            prop_oneof![Just('\0'), Just('\u{1}'), Just('a'), Just('é')],
            0..4,
        )
        .prop_map(|chars| chars.into_iter().collect())
    }

    fn any_key() -> impl Strategy<Value = Any> {
        (
            any::<(u8, i64, u128)>(),
            texts(),
            prop::collection::vec(prop::collection::vec(0u8..3, 0..3), 0..3),
            prop::collection::vec(texts(), 0..3),
            prop::option::of(prop::option::of(texts())),
            place(),
            prop::collection::vec((0u8..3).prop_map(Byte), 0..3),
        )
    }

    fn kinds() -> impl Strategy<Value = Kind> {
        let list = prop::collection::vec((any::<bool>(), any::<char>()), 0..3);
        prop_oneof![
            Just(Kind::Nothing),
            place().prop_map(Kind::One),
            (any::<u8>(), texts()).prop_map(|(byte, text)| Kind::Two(byte, text)),
            (any::<u8>(), list).prop_map(|(byte, list)| Kind::Three { byte, list }),
        ]
    }

    /// Numbers of all lengths.
    fn numbers() -> impl Strategy<Value = i128> {
        (any::<i128>(), 0u32..128).prop_map(|(number, shift)| number >> shift)
    }

    fn bytes<K: Serialize + ?Sized>(key: &K) -> Vec<u8> {
        encode(key).expect("a key")
    }

    proptest! {
        #[test]
        fn keys_come_back(key in any_key(), kind in kinds(), float in any::<f64>()) {
            prop_assert_eq!(&decode::<Any>(&bytes(&key)).unwrap(), &key);
            prop_assert_eq!(&decode::<Kind>(&bytes(&kind)).unwrap(), &kind);
            let both = (key, kind);
            prop_assert_eq!(decode::<(Any, Kind)>(&bytes(&both)).unwrap(), both);
            let back: f64 = decode(&bytes(&float)).unwrap();
            prop_assert!(back == float || float.is_nan());
        }

        #[test]
        fn bytes_are_in_the_order_of_keys(
            one in (numbers(), texts(), prop::collection::vec(0u8..3, 0..4)),
            other in (numbers(), texts(), prop::collection::vec(0u8..3, 0..4)),
            places in (place(), place()),
            floats in (any::<f64>(), any::<f64>()),
        ) {
            prop_assert_eq!(bytes(&one).cmp(&bytes(&other)), one.cmp(&other));
            prop_assert_eq!(bytes(&one.0).cmp(&bytes(&other.0)), one.0.cmp(&other.0));
            prop_assert_eq!(bytes(&one.1).cmp(&bytes(&other.1)), one.1.cmp(&other.1));
            prop_assert_eq!(bytes(&one.2).cmp(&bytes(&other.2)), one.2.cmp(&other.2));
            let of_places = bytes(&places.0).cmp(&bytes(&places.1));
            prop_assert_eq!(Some(of_places), places.0.partial_cmp(&places.1));
            if let Some(order) = floats.0.partial_cmp(&floats.1) {
                prop_assert_eq!(bytes(&floats.0).cmp(&bytes(&floats.1)), order);
            }
            // What begins a tuple begins its bytes.
            prop_assert!(bytes(&one).starts_with(&bytes(&(one.0, &one.1))));
        }

        #[test]
        fn any_bytes_are_a_key_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(key) = decode::<Any>(&bytes) {
                let again = super::tests::bytes(&key);
                prop_assert_eq!(decode::<Any>(&again).unwrap(), key);
            }
            let _ = decode::<Kind>(&bytes);
            let _ = decode::<Vec<f32>>(&bytes);
        }
    }

    #[test]
    fn one_key_in_several_types_has_the_same_bytes() {
        let array = [1u8, 0, 2, 255];
        for same in [
            bytes(&array),
            bytes(&array[..]),
            bytes(&array.to_vec()),
            bytes(&(1u8, 0u8, 2u8, 255u8)),
        ] {
            assert_eq!(same, array);
        }
        assert_eq!(bytes("text"), b"text");
        assert_eq!(bytes(&7u8), bytes(&7i128));
        assert_eq!(bytes(&7u64), [0x81, 7]);
        assert_eq!(bytes(&-1i16), bytes(&-1i64));
        // Within another key, too.
        assert_eq!(bytes(&(&array[..], 1u8)), bytes(&(array, 1u64 as u8)));
        assert_eq!(bytes(&(3u32, "a")), bytes(&(3u64, "a".to_owned())));
        assert_eq!(bytes(&-0.0f64), bytes(&0.0f32));
        let there: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(decode::<IpAddr>(&bytes(&there)).unwrap(), there);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let map = BTreeMap::from([(1u8, 2u8)]);
        let why = encode(&map).unwrap_err().to_string();
        assert!(why.contains("a map cannot be a key"), "{why}");
        let why = decode::<(u8, u8)>(&[1, 2, 3]).unwrap_err().to_string();
        assert!(why.contains("longer"), "{why}");
        assert!(decode::<u8>(&bytes(&300u32)).is_err());
        assert!(decode::<u64>(&bytes(&-1i64)).is_err());
        assert!(decode::<String>(&[0xFF]).is_err());
        assert!(decode::<Vec<String>>(b"\x02a").is_err());
        assert_eq!(bytes(&7i32).cmp(&bytes(&-7i32)), Ordering::Greater);
    }
}
