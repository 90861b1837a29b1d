//! Writing a message in place.

use std::fmt;
use std::marker::PhantomData;

use prost::encoding::{encode_varint, encoded_len_varint};
use prost::{Message, Name};

use super::encoded::{Encoded, EncodedFields};
use super::field::{
    Bool, Enumeration, Explicit, Field, Map, Nested, Presence, Tag, Text, TypeUrl, Unsigned, WireType,
};
use super::fields;
use crate::Any;

/// An entry of a map is a message of these two fields, whatever the map is of.
const ENTRY_KEY: Tag = Tag::new(1, WireType::Delimited);
const ENTRY_VALUE: Tag = Tag::new(2, WireType::Delimited);

/// A message of type `M` that is being written.
pub struct ProtoWriter<M> {
    bytes: Vec<u8>,
    message: PhantomData<fn() -> M>,
}

impl<M> ProtoWriter<M> {
    /// An empty message, with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self::over(Vec::with_capacity(bytes))
    }

    fn over(bytes: Vec<u8>) -> Self {
        Self { bytes, message: PhantomData }
    }

    /// Makes room for so many more bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// How many bytes are written.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// The written bytes.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }

    /// The written bytes, to be shared.
    pub fn finish(self) -> Encoded<M> {
        Encoded::from_bytes(self.bytes)
    }

    /// Appends fields that are encoded already.
    #[inline]
    pub fn append(&mut self, fields: &impl EncodedFields<M>) {
        self.bytes.extend_from_slice(fields.as_slice());
    }

    /// Appends a part of encoded fields, which ends where a field does, on the caller's word.
    pub fn append_part(&mut self, part: &[u8]) {
        self.bytes.extend_from_slice(part);
    }

    /// Writes a string field.
    #[inline]
    pub fn string<P: Presence>(&mut self, field: Field<M, Text, P>, text: &str) {
        if !(P::OMITS_DEFAULT && text.is_empty()) {
            self.delimited(field.tag(), text.as_bytes());
        }
    }

    /// Writes a string field from the parts of the string.
    pub fn string_of_parts<P: Presence>(&mut self, field: Field<M, Text, P>, parts: &[&str]) {
        let length = parts.iter().map(|part| part.len()).sum();
        if P::OMITS_DEFAULT && length == 0 {
            return;
        }
        field.tag().put_header(&mut self.bytes, length);
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part.as_bytes()));
    }

    /// Writes a bool field.
    #[inline]
    pub fn bool<P: Presence>(&mut self, field: Field<M, Bool, P>, value: bool) {
        self.varint::<P>(field.tag(), value.into());
    }

    /// Writes a number.
    #[inline]
    pub fn unsigned<P: Presence>(&mut self, field: Field<M, Unsigned, P>, value: u32) {
        self.varint::<P>(field.tag(), value.into());
    }

    /// Writes the number of an enum's value.
    #[inline]
    pub fn enumeration<E: Into<i32>, P: Presence>(&mut self, field: Field<M, Enumeration<E>, P>, value: E) {
        // Negative numbers take ten bytes, as those of 64 bits do.
        self.varint::<P>(field.tag(), i64::from(value.into()).cast_unsigned());
    }

    /// Writes a message, or an entry of a list of messages.
    #[inline]
    pub fn message<N: Message>(&mut self, field: Field<M, Nested<N>, Explicit>, message: &N) {
        field.tag().put_header(&mut self.bytes, message.encoded_len());
        message.encode_raw(&mut self.bytes);
    }

    /// Writes a message that is encoded already, or an entry of a list of messages.
    #[inline]
    pub fn encoded<N>(&mut self, field: Field<M, Nested<N>, Explicit>, message: &impl EncodedFields<N>) {
        self.delimited(field.tag(), message.as_slice());
    }

    /// Writes a short message in place.
    #[inline]
    pub fn nested<N>(
        &mut self,
        field: Field<M, Nested<N>, Explicit>,
        write: impl FnOnce(&mut ProtoWriter<N>),
    ) {
        self.nested_of_about(field, 0, write);
    }

    /// Writes a message of about so many bytes in place. Its length precedes it: if that takes as many bytes as the length that
    /// was expected, the message need not be moved.
    #[inline]
    pub fn nested_of_about<N>(
        &mut self,
        field: Field<M, Nested<N>, Explicit>,
        expected: usize,
        write: impl FnOnce(&mut ProtoWriter<N>),
    ) {
        let gap = self.open(field.tag(), expected);
        self.within(write);
        self.close(gap);
    }

    /// Writes a message of exactly so many bytes in place, which is never moved.
    #[inline]
    pub fn nested_of_exactly<N>(
        &mut self,
        field: Field<M, Nested<N>, Explicit>,
        length: usize,
        write: impl FnOnce(&mut ProtoWriter<N>),
    ) {
        field.tag().put_header(&mut self.bytes, length);
        self.within_exactly(length, write);
    }

    /// Writes an entry of a map.
    pub fn entry<N: Message>(&mut self, field: Field<M, Map<Nested<N>>, Explicit>, key: &str, value: &N) {
        let length = value.encoded_len();
        self.begin_entry(field.tag(), key, length);
        value.encode_raw(&mut self.bytes);
    }

    /// Writes an entry of a map whose value is encoded already.
    pub fn encoded_entry<N>(
        &mut self,
        field: Field<M, Map<Nested<N>>, Explicit>,
        key: &str,
        value: &impl EncodedFields<N>,
    ) {
        self.begin_entry(field.tag(), key, value.as_slice().len());
        self.bytes.extend_from_slice(value.as_slice());
    }

    /// Writes an entry of a map whose value, a short message, is written in place.
    pub fn nested_entry<N>(
        &mut self,
        field: Field<M, Map<Nested<N>>, Explicit>,
        key: &str,
        write: impl FnOnce(&mut ProtoWriter<N>),
    ) {
        let entry = self.open(field.tag(), 0);
        ENTRY_KEY.put_str(&mut self.bytes, key);
        let value = self.open(ENTRY_VALUE, 0);
        self.within(write);
        self.close(value);
        self.close(entry);
    }

    /// Writes an entry of a map whose value takes exactly so many bytes and is written in place.
    #[inline]
    pub fn entry_of_exactly<N>(
        &mut self,
        field: Field<M, Map<Nested<N>>, Explicit>,
        key: &str,
        length: usize,
        write: impl FnOnce(&mut ProtoWriter<N>),
    ) {
        self.begin_entry(field.tag(), key, length);
        self.within_exactly(length, write);
    }

    // Called so often for one resource that inlined copies would crowd the instruction cache.
    #[inline(never)]
    fn begin_entry(&mut self, field: Tag, key: &str, value: usize) {
        field.put_header(&mut self.bytes, key_size(key) + ENTRY_VALUE.size(value));
        ENTRY_KEY.put_str(&mut self.bytes, key);
        ENTRY_VALUE.put_header(&mut self.bytes, value);
    }

    fn varint<P: Presence>(&mut self, tag: Tag, value: u64) {
        if !(P::OMITS_DEFAULT && value == 0) {
            tag.put(&mut self.bytes);
            encode_varint(value, &mut self.bytes);
        }
    }

    fn delimited(&mut self, tag: Tag, content: &[u8]) {
        tag.put_delimited(&mut self.bytes, content);
    }

    /// Lets the fields of another message be written here.
    fn within<N>(&mut self, write: impl FnOnce(&mut ProtoWriter<N>)) {
        let mut inner = ProtoWriter::over(std::mem::take(&mut self.bytes));
        write(&mut inner);
        self.bytes = inner.bytes;
    }

    fn within_exactly<N>(&mut self, length: usize, write: impl FnOnce(&mut ProtoWriter<N>)) {
        let end = self.bytes.len() + length;
        self.within(write);
        debug_assert_eq!(self.bytes.len(), end, "the length that precedes the message");
    }

    /// Begins a delimited field, with room for the length of about so many bytes.
    fn open(&mut self, tag: Tag, expected: usize) -> Gap {
        tag.put(&mut self.bytes);
        let gap = Gap { start: self.bytes.len(), size: encoded_len_varint(expected as u64) };
        self.bytes.resize(gap.start + gap.size, 0);
        gap
    }

    /// Fills in the length of a field.
    fn close(&mut self, Gap { start, size }: Gap) {
        let end = self.bytes.len();
        let length = end - start - size;
        let needed = encoded_len_varint(length as u64);
        if needed > size {
            self.bytes.resize(end + needed - size, 0);
        }
        if needed != size {
            self.bytes.copy_within(start + size..end, start + needed);
            self.bytes.truncate(start + needed + length);
        }
        encode_varint(length as u64, &mut &mut self.bytes[start..]);
    }
}

/// Where the length of a field goes.
struct Gap {
    start: usize,
    size: usize,
}

impl<M: Message> ProtoWriter<M> {
    /// Starts with the fields that a message has.
    pub fn from_message(message: &M) -> Self {
        Self::over(message.encode_to_vec())
    }

    /// Appends the fields that a message has.
    pub fn append_message(&mut self, message: &M) {
        message.encode_raw(&mut self.bytes);
    }
}

impl ProtoWriter<Any> {
    /// Packs a message.
    pub fn pack<N: Message + Name>(&mut self, message: &N) {
        self.string(fields::any::TYPE_URL, &N::type_url());
        let length = message.encoded_len();
        if length > 0 {
            fields::any::VALUE.tag().put_header(&mut self.bytes, length);
            message.encode_raw(&mut self.bytes);
        }
    }

    /// Packs a message of about so many bytes, which is written in place.
    pub fn pack_of_about<N: TypeUrl>(&mut self, expected: usize, write: impl FnOnce(&mut ProtoWriter<N>)) {
        self.string(fields::any::TYPE_URL, N::TYPE_URL);
        let start = self.bytes.len();
        let gap = self.open(fields::any::VALUE.tag(), expected);
        let content = gap.start + gap.size;
        self.within(write);
        if self.bytes.len() == content {
            // An empty value is the default and is not written.
            self.bytes.truncate(start);
        } else {
            self.close(gap);
        }
    }

    /// Packs a message of exactly so many bytes, at least one, which is written in place.
    pub fn pack_of_exactly<N: TypeUrl>(&mut self, length: usize, write: impl FnOnce(&mut ProtoWriter<N>)) {
        self.string(fields::any::TYPE_URL, N::TYPE_URL);
        fields::any::VALUE.tag().put_header(&mut self.bytes, length);
        self.within_exactly(length, write);
    }
}

/// The bytes that an `Any` takes around a message `N` of this length, at least one.
pub const fn packed_size<N: TypeUrl>(length: usize) -> usize {
    fields::any::TYPE_URL.size(N::TYPE_URL.len()) + fields::any::VALUE.size(length)
}

/// The bytes that an entry of a map takes whose value is a message of this length.
pub const fn map_entry_size<M, V, P>(field: Field<M, Map<V>, P>, key: &str, value: usize) -> usize {
    field.size(key_size(key) + ENTRY_VALUE.size(value))
}

const fn key_size(key: &str) -> usize {
    if key.is_empty() { 0 } else { ENTRY_KEY.size(key.len()) }
}

impl<M> EncodedFields<M> for ProtoWriter<M> {
    fn as_slice(&self) -> &[u8] {
        &self.bytes
    }
}

impl<M> Default for ProtoWriter<M> {
    fn default() -> Self {
        Self::over(Vec::new())
    }
}

impl<M> Clone for ProtoWriter<M> {
    fn clone(&self) -> Self {
        Self::over(self.bytes.clone())
    }
}

impl<M> PartialEq for ProtoWriter<M> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<M> Eq for ProtoWriter<M> {}

impl<M> fmt::Debug for ProtoWriter<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(f)
    }
}
