//! Protobuf by hand, for the few small messages that are not part of the APIs in `canopus-proto`: gRPC's own health and
//! reflection, and spans.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

/// A message being written. Fields keep the order in which they are put.
#[derive(Debug, Default)]
pub(crate) struct Writer(BytesMut);

impl Writer {
    /// An empty message.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A number; zero is left out, as in proto3.
    #[must_use]
    pub(crate) fn number(mut self, field: u32, value: u64) -> Self {
        if value != 0 {
            self.key(field, VARINT);
            self.varint(value);
        }
        self
    }

    /// A number of eight bytes.
    #[must_use]
    pub(crate) fn fixed64(mut self, field: u32, value: u64) -> Self {
        self.key(field, FIXED64);
        self.0.put_u64_le(value);
        self
    }

    /// Bytes, a text or a message; written even if empty, so that a message is there.
    #[must_use]
    pub(crate) fn bytes(mut self, field: u32, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        self.key(field, DELIMITED);
        self.varint(value.len() as u64);
        self.0.put_slice(value);
        self
    }

    /// What was written.
    pub(crate) fn finish(self) -> Bytes {
        self.0.freeze()
    }

    fn key(&mut self, field: u32, kind: u64) {
        self.varint(u64::from(field) << 3 | kind);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.put_u8(value as u8);
    }
}

impl AsRef<[u8]> for Writer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A number of any width.
    Number(u64),
    /// Bytes, a text or a message.
    Bytes(Bytes),
}

/// The fields of a message in the order they came; `None` if it is none.
pub(crate) fn fields(mut message: Bytes) -> Option<Vec<(u32, Value)>> {
    let mut fields = Vec::new();
    while message.has_remaining() {
        let key = varint(&mut message)?;
        let value = match key & 7 {
            VARINT => Value::Number(varint(&mut message)?),
            FIXED64 => Value::Number(message.try_get_u64_le().ok()?),
            FIXED32 => Value::Number(message.try_get_u32_le().ok()?.into()),
            DELIMITED => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                Value::Bytes((length <= message.len()).then(|| message.split_to(length))?)
            }
            _ => return None,
        };
        fields.push((u32::try_from(key >> 3).ok()?, value));
    }
    Some(fields)
}

/// The text in a field; empty if the field is not there, `None` if it is no text.
pub(crate) fn text(fields: &[(u32, Value)], field: u32) -> Option<&str> {
    match fields.iter().rfind(|(own, _)| *own == field) {
        Some((_, Value::Bytes(bytes))) => std::str::from_utf8(bytes).ok(),
        Some(_) => None,
        None => Some(""),
    }
}

fn varint(bytes: &mut Bytes) -> Option<u64> {
    let mut value = 0_u64;
    for at in 0..10 {
        let byte = bytes.try_get_u8().ok()?;
        value |= u64::from(byte & 0x7f).checked_shl(at * 7)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let inner = Writer::new().bytes(1, "text").number(2, 0);
        let message =
            Writer::new().number(1, 300).bytes(2, &inner).fixed64(15, u64::MAX).number(16, u64::MAX);
        let read = fields(message.finish()).unwrap();
        let expected = [
            (1, Value::Number(300)),
            (2, Value::Bytes(Bytes::from_static(b"\x0a\x04text"))),
            (15, Value::Number(u64::MAX)),
            (16, Value::Number(u64::MAX)),
        ];
        assert_eq!(read, expected);
        assert_eq!(text(&fields(inner.finish()).unwrap(), 1), Some("text"));
        assert_eq!(text(&read, 1), None);
        assert_eq!(text(&read, 7), Some(""));
    }

    #[test]
    fn what_is_no_message_is_not_read() {
        for bytes in [
            &b"\x0a\x05text"[..],
            b"\x08",
            b"\x0b",
            b"\x09\x00",
            b"\x0d\x00",
            &[0xff; 11],
            b"\x0a\xff\xff\xff\xff\x0f",
        ] {
            assert_eq!(fields(Bytes::copy_from_slice(bytes)), None, "{bytes:?}");
        }
    }
}
