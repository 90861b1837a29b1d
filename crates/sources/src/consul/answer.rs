//! What an agent answers: of each answer, what is read.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// An instance of a service, with the node it is on and the checks of both.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Instance {
    pub(super) node: Node,
    pub(super) service: Service,
    #[serde(deserialize_with = "or_default")]
    pub(super) checks: Vec<Check>,
}

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Node {
    pub(super) address: String,
    pub(super) datacenter: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) meta: BTreeMap<String, String>,
    pub(super) locality: Option<Locality>,
}

/// Where something is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Locality {
    pub(super) region: String,
    pub(super) zone: String,
}

/// What an instance says of itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Service {
    pub(super) address: String,
    pub(super) port: i64,
    #[serde(deserialize_with = "or_default")]
    pub(super) tags: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) meta: BTreeMap<String, String>,
    pub(super) weights: Option<Weights>,
    pub(super) locality: Option<Locality>,
}

/// How much an instance can take.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Weights {
    pub(super) passing: u32,
    pub(super) warning: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { passing: 1, warning: 1 }
    }
}

/// A check.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Check {
    pub(super) service_name: String,
    pub(super) node: String,
    #[serde(rename = "CheckID")]
    pub(super) check_id: String,
    pub(super) status: String,
}

/// Go writes what is empty as `null`.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
