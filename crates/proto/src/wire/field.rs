//! What the wire format says about a field, and what its message says.

use std::fmt;
use std::marker::PhantomData;

use bytes::BufMut;
use prost::encoding::{encode_varint, encoded_len_varint};

/// How the value of a field is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireType {
    /// Seven bits to a byte, least significant first.
    Varint = 0,
    /// Eight bytes.
    Fixed64 = 1,
    /// A length and so many bytes: a string, bytes, a message, or a packed list.
    Delimited = 2,
    /// Four bytes.
    Fixed32 = 5,
}

/// The number and wire type of a field, as they stand before its value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tag(u32);

impl Tag {
    pub(super) const fn new(number: u32, wire_type: WireType) -> Self {
        Self(number << 3 | wire_type as u32)
    }

    /// The tag with this value on the wire; `None` if there is no such field or wire type. Groups count as such: nothing that
    /// is read has any.
    pub(super) fn from_wire(key: u64) -> Option<Self> {
        let tag = Self(u32::try_from(key).ok()?);
        (tag.number() > 0 && matches!(key & 7, 0 | 1 | 2 | 5)).then_some(tag)
    }

    /// The number of the field.
    pub const fn number(self) -> u32 {
        self.0 >> 3
    }

    /// How the value is laid out.
    pub const fn wire_type(self) -> WireType {
        match self.0 & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            5 => WireType::Fixed32,
            _ => WireType::Delimited,
        }
    }

    /// The bytes that a delimited field of this length takes.
    pub const fn size(self, length: usize) -> usize {
        encoded_len_varint(self.0 as u64) + encoded_len_varint(length as u64) + length
    }

    /// Writes the tag alone.
    #[inline]
    pub(super) fn put(self, out: &mut impl BufMut) {
        encode_varint(self.0.into(), out);
    }

    /// Begins a delimited field of this length; the caller writes its content.
    #[inline]
    pub fn put_header(self, out: &mut impl BufMut, length: usize) {
        self.put(out);
        encode_varint(length as u64, out);
    }

    /// Writes a delimited field, even if it is empty.
    #[inline]
    pub fn put_delimited(self, out: &mut impl BufMut, content: &[u8]) {
        self.put_header(out, content.len());
        out.put_slice(content);
    }

    /// Writes a string field unless the string is empty, which is its default.
    pub fn put_str(self, out: &mut impl BufMut, text: &str) {
        if !text.is_empty() {
            self.put_delimited(out, text.as_bytes());
        }
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.number(), self.wire_type())
    }
}

/// A type that a field mentions without holding a value of it.
type Owned<T> = fn() -> T;

/// A field of message `M` that holds a `K`. The constants are in [`super::fields`].
pub struct Field<M, K, P = Implicit> {
    tag: Tag,
    types: PhantomData<(Owned<M>, Owned<K>, Owned<P>)>,
}

impl<M, K, P> Field<M, K, P> {
    pub(super) const fn new(number: u32, wire_type: WireType) -> Self {
        Self { tag: Tag::new(number, wire_type), types: PhantomData }
    }

    /// The field's number and wire type.
    pub const fn tag(self) -> Tag {
        self.tag
    }

    /// The bytes that it takes if its content is of this length. Only of delimited fields.
    pub const fn size(self, length: usize) -> usize {
        self.tag.size(length)
    }
}

impl<M, P: Presence> Field<M, Text, P> {
    /// The bytes that it takes with a string of this length.
    pub const fn text_size(self, length: usize) -> usize {
        if length == 0 && P::OMITS_DEFAULT { 0 } else { self.tag.size(length) }
    }
}

impl<M, K, P> Clone for Field<M, K, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M, K, P> Copy for Field<M, K, P> {}

/// Whether a field tells a default from nothing.
pub trait Presence {
    /// The default is not written.
    const OMITS_DEFAULT: bool;
}

/// A singular string or number: proto3 does not write its default.
pub enum Implicit {}

/// A message, an alternative of a oneof, an optional field, or an entry of a list: it is written whatever it holds.
pub enum Explicit {}

impl Presence for Implicit {
    const OMITS_DEFAULT: bool = true;
}

impl Presence for Explicit {
    const OMITS_DEFAULT: bool = false;
}

/// The kind of a string field.
pub enum Text {}
/// The kind of a field of bytes.
pub enum Binary {}
/// The kind of a `bool` field.
pub enum Bool {}
/// The kind of a `uint32` field.
pub enum Unsigned {}
/// The kind of a field that is an enum `E`.
pub struct Enumeration<E>(PhantomData<fn() -> E>);
/// The kind of a field that is a message `N`, or a list of them.
pub struct Nested<N>(PhantomData<fn() -> N>);
/// The kind of a map from strings to a kind.
pub struct Map<V>(PhantomData<fn() -> V>);
/// The kind of a field that nobody writes in place.
pub enum Other {}

/// Messages whose type URL is known when the code is compiled.
pub trait TypeUrl {
    /// What `Any` calls the type.
    const TYPE_URL: &'static str;
}
