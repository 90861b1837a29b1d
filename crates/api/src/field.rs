//! Helpers for the serde implementations that `macros` declares.

use std::fmt;

use serde::de::{self, Deserializer};

/// Whether a field has its default and is not written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads a string and makes something of it, without keeping the string.
pub(crate) fn read_text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    convert: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    struct Visitor<F>(F);

    impl<T, F: FnOnce(&str) -> Result<T, String>> de::Visitor<'_> for Visitor<F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            (self.0)(text).map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Visitor(convert))
}
