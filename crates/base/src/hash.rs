//! A stable 128-bit content hash.
//!
//! The hash is XXH3-128 with seed zero. It depends on the bytes alone: the same on every run, platform and version of this
//! project, so it may be stored, compared between processes and shown to users. It is not cryptographic: it tells
//! accidental differences apart, not forged ones.

use std::fmt;
use std::io;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The hash of some content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ContentHash(u128);

impl ContentHash {
    /// The hash of these bytes.
    pub fn compute(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes))
    }

    /// The hash as a number.
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for ContentHash {
    /// Thirty-two hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not thirty-two lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a content hash is 32 lower-case hexadecimal digits")]
pub struct InvalidHash;

impl FromStr for ContentHash {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, InvalidHash> {
        let well_formed = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let digits = if well_formed { text } else { "" };
        u128::from_str_radix(digits, 16).map(Self).map_err(|_| InvalidHash)
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Builds a [`ContentHash`] piece by piece.
///
/// Only the concatenation counts, not where it was cut; a caller that hashes fields must delimit them, for which
/// [`field`](Self::field) is there.
#[derive(Clone, Default)]
pub struct Hasher(Xxh3);

impl Hasher {
    /// A hasher that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update(bytes);
        self
    }

    /// Adds bytes preceded by their length, so that `("ab", "c")` and `("a", "bc")` differ.
    pub fn field(&mut self, bytes: &[u8]) -> &mut Self {
        self.update(&(bytes.len() as u64).to_le_bytes()).update(bytes)
    }

    /// The hash of everything added so far.
    pub fn finish(&self) -> ContentHash {
        ContentHash(self.0.digest128())
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hasher").field(&self.finish()).finish()
    }
}

impl io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Write for Hasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.update(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_values_never_change() {
        for (text, hex) in [
            ("", "99aa06d3014798d86001c324468d497f"),
            ("a", "a96faf705af16834e6c632b61e964e1f"),
            ("canopus", "03f7eb57be5b813884ff85a92baf42b4"),
        ] {
            assert_eq!(ContentHash::compute(text.as_bytes()).to_string(), hex, "{text}");
        }
    }

    #[test]
    fn text_form_reads_back_and_nothing_else_does() {
        let hash = ContentHash::compute(b"x");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        let json = serde_json::to_string(&hash).unwrap();
        assert_eq!(serde_json::from_str::<ContentHash>(&json).unwrap(), hash);
        for bad in
            ["", "0", &"A".repeat(32), &"g".repeat(32), &format!("+{}", "0".repeat(31)), &"0".repeat(33)]
        {
            assert_eq!(bad.parse::<ContentHash>(), Err(InvalidHash), "{bad}");
        }
    }

    #[test]
    fn fields_are_delimited() {
        let hash = |fields: [&str; 2]| {
            fields
                .iter()
                .fold(Hasher::new(), |mut hasher, field| {
                    hasher.field(field.as_bytes());
                    hasher
                })
                .finish()
        };
        assert_ne!(hash(["ab", "c"]), hash(["a", "bc"]));
    }

    proptest! {
        #[test]
        fn pieces_hash_as_the_whole(whole in proptest::collection::vec(any::<u8>(), 0..600), cut in any::<prop::sample::Index>()) {
            let (head, tail) = whole.split_at(cut.index(whole.len() + 1));
            prop_assert_eq!(Hasher::new().update(head).update(tail).finish(), ContentHash::compute(&whole));
        }
    }
}
