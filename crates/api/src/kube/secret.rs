//! Secrets. Their values never appear in debug output, and in errors only by the name of the key.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::decode::slim;
use crate::resource::Resource;
use crate::value::Base64;

/// Keys, certificates and tokens.
pub type Secret = Resource<SecretData>;

/// What a secret holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, from = "Written")]
pub struct SecretData {
    /// What it is for: `Opaque`, `kubernetes.io/tls`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub r#type: Box<str>,
    /// The values by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<Box<str>, SecretBytes>,
}

/// A secret as a user may write it.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Written {
    r#type: Box<str>,
    data: BTreeMap<Box<str>, SecretBytes>,
    string_data: BTreeMap<Box<str>, String>,
}

impl From<Written> for SecretData {
    /// Merges `stringData` into `data` as the API server does: plain text wins over data with the same key.
    fn from(written: Written) -> Self {
        let plain = written.string_data.into_iter().map(|(key, text)| (key, SecretBytes::new(text)));
        let mut data = written.data;
        data.extend(plain);
        Self { r#type: written.r#type, data }
    }
}

impl SecretData {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Bytes> {
        self.data.get(key).map(SecretBytes::expose)
    }
}

/// A value that is not shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretBytes(Base64);

impl SecretBytes {
    /// A value of these bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(Base64(bytes.into()))
    }

    /// The bytes, to be used and not to be shown.
    pub const fn expose(&self) -> &Bytes {
        &self.0.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<hidden>")
    }
}

slim!(SecretData in Root);
