//! Secrets. Their values never appear in debug output, and in errors only by the name of the key.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::decode::slim;
use crate::resource::Resource;
use crate::value::read_text;

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
    /// As the API server does: plain text takes the place of data with the same key.
    fn from(written: Written) -> Self {
        let plain = written.string_data.into_iter().map(|(key, text)| (key, SecretBytes(text.into())));
        let mut data = written.data;
        data.extend(plain);
        Self { r#type: written.r#type, data }
    }
}

impl SecretData {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Bytes> {
        self.data.get(key).map(|value| &value.0)
    }
}

/// A value that is not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretBytes(pub Bytes);

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<hidden>")
    }
}

impl Serialize for SecretBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for SecretBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_text(deserializer, |text| match STANDARD.decode(text) {
            Ok(bytes) => Ok(Self(bytes.into())),
            Err(_) => Err("is not base64".to_owned()),
        })
    }
}

slim!(SecretData in Root);
