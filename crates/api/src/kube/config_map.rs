//! ConfigMaps.

use std::collections::BTreeMap;

use crate::decode::slim;
use crate::macros::object;
use crate::resource::Resource;

/// Settings of programs.
pub type ConfigMap = Resource<ConfigMapData>;

object! {
    /// What a config map holds.
    ConfigMapData {
        /// The texts by key.
        data: BTreeMap<Box<str>, Box<str>>,
        /// Bytes by key, in base64.
        binary_data: BTreeMap<Box<str>, Box<str>>,
    }
}

slim!(ConfigMapData in Root);

impl ConfigMapData {
    /// The text of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.data.get(key).map(|text| &**text)
    }
}
