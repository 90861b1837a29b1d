//! The bytes of a log.
//!
//! A file begins with a mark and the owner. A record is its length, the checksum of its body, and the body: what kind of
//! change, the name and the version of a resource, and the resource itself.

use xxhash_rust::xxh3::xxh3_64;

/// The beginning of a file; the digit is the version of the format.
pub(super) const MARK: [u8; 8] = *b"CNPLOG1\n";
/// The mark and the owner.
pub(super) const HEADER: usize = 16;
/// Length and checksum before a record's body.
pub(super) const PREFIX: usize = 12;
/// A longer record is none.
pub(super) const MAX_BODY: usize = 256 << 20;

const PUT: u8 = 1;
const REMOVE: u8 = 2;
const CLEAR: u8 = 3;

/// What happened to a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A resource is new or another.
    Put {
        /// Name of the resource.
        name: &'a str,
        /// Version of the resource.
        version: &'a str,
        /// The resource as an encoded `Any`.
        body: &'a [u8],
    },
    /// A resource is gone.
    Remove {
        /// Name of the removed resource.
        name: &'a str,
    },
    /// All resources are gone.
    Clear,
}

/// Adds the record of a change.
pub(super) fn encode(change: &Change<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    match change {
        Change::Put { name, version, body } => {
            out.push(PUT);
            text(name, out);
            text(version, out);
            out.extend_from_slice(body);
        }
        Change::Remove { name } => {
            out.push(REMOVE);
            text(name, out);
        }
        Change::Clear => out.push(CLEAR),
    }
    let body = start + PREFIX;
    let length = u32::try_from(out.len() - body).unwrap_or(u32::MAX);
    let checksum = xxh3_64(&out[body..]);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..body].copy_from_slice(&checksum.to_le_bytes());
}

fn text(text: &str, out: &mut Vec<u8>) {
    // Names of resources are short; a longer one is cut and then matches nothing.
    let bytes = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The length and the checksum of the record that begins here; `None` if none does.
pub(super) fn prefix(bytes: &[u8; PREFIX]) -> Option<(usize, u64)> {
    let (length, checksum) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let checksum = u64::from_le_bytes(checksum.try_into().ok()?);
    (1..=MAX_BODY).contains(&length).then_some((length, checksum))
}

/// The change of a record's body, if the checksum fits.
pub(super) fn decode(body: &[u8], checksum: u64) -> Option<Change<'_>> {
    if xxh3_64(body) != checksum {
        return None;
    }
    let (kind, rest) = body.split_first()?;
    match *kind {
        PUT => {
            let (name, rest) = take_text(rest)?;
            let (version, body) = take_text(rest)?;
            Some(Change::Put { name, version, body })
        }
        REMOVE => Some(Change::Remove { name: take_text(rest)?.0 }),
        CLEAR => Some(Change::Clear),
        _ => None,
    }
}

fn take_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((std::str::from_utf8(text).ok()?, rest))
}
