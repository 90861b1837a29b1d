//! Reading fields of a message one by one.

use bytes::Buf;

use super::field::{Tag, WireType};

/// The longest varint.
const MAX_VARINT: u32 = 10;

/// Why bytes are not a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end too early; with more bytes they may be a field.
    #[error("the message ends within a field")]
    Truncated,
    /// The bytes are not a field, whatever follows.
    #[error("not a protobuf field")]
    Malformed,
}

/// What precedes the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which field it is.
    pub tag: Tag,
    /// How many bytes of the value follow; none do of a varint, which is read with the header.
    pub length: usize,
}

/// Reads up to the value of a field. The value itself need not be there.
pub fn read_header(bytes: &mut impl Buf) -> Result<Header, WireError> {
    let tag = Tag::from_wire(read_varint(bytes)?).ok_or(WireError::Malformed)?;
    let length = match tag.wire_type() {
        WireType::Varint => read_varint(bytes).map(|_| 0)?,
        WireType::Fixed64 => 8,
        WireType::Fixed32 => 4,
        WireType::Delimited => usize::try_from(read_varint(bytes)?).map_err(|_| WireError::Malformed)?,
    };
    Ok(Header { tag, length })
}

/// Takes a field off the front of a message: which it is, and its value if that is delimited or fixed.
pub fn next_field<'a>(message: &mut &'a [u8]) -> Result<(Tag, &'a [u8]), WireError> {
    let Header { tag, length } = read_header(message)?;
    let (value, rest) = message.split_at_checked(length).ok_or(WireError::Truncated)?;
    *message = rest;
    Ok((tag, value))
}

/// Reads a varint.
pub fn read_varint(bytes: &mut impl Buf) -> Result<u64, WireError> {
    let mut value = 0;
    for at in 0..MAX_VARINT {
        let byte = bytes.try_get_u8().map_err(|_| WireError::Truncated)?;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            // The last byte has room for one bit.
            return if at + 1 == MAX_VARINT && byte > 1 { Err(WireError::Malformed) } else { Ok(value) };
        }
    }
    Err(WireError::Malformed)
}
