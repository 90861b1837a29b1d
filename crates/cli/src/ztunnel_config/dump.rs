//! ztunnel's `/config_dump`, read as far as tables need it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// What a ztunnel knows.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Dump {
    #[serde(deserialize_with = "list_or_map")]
    pub(super) workloads: Vec<Value>,
    #[serde(deserialize_with = "list_or_map")]
    pub(super) services: Vec<Value>,
    #[serde(deserialize_with = "list_or_map")]
    pub(super) policies: Vec<Value>,
    #[serde(deserialize_with = "list_or_map")]
    pub(super) certificates: Vec<Value>,
    workload_state: BTreeMap<String, WorkloadState>,
}

/// The connections of a workload. The order of fields is the order in which they are printed.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WorkloadState {
    state: String,
    pub(super) connections: Connections,
    pub(super) info: WorkloadInfo,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Connections {
    pub(super) inbound: Vec<Connection>,
    pub(super) outbound: Vec<Connection>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Connection {
    #[serde(deserialize_with = "nullable")]
    pub(super) src: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) original_dst: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) actual_dst: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) protocol: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WorkloadInfo {
    pub(super) name: String,
    pub(super) namespace: String,
    trust_domain: String,
    service_account: String,
}

/// Which workloads are meant; empty fields mean all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Selection<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) address: &'a str,
    pub(super) node: &'a str,
}

impl Dump {
    pub(super) fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        serde_json::from_slice(bytes).context("this is no configuration dump of ztunnel")
    }

    pub(super) fn workloads(&self, selection: &Selection<'_>) -> Vec<&Value> {
        let matches = |wanted: &str, got: &Value| {
            wanted.is_empty() || got.as_str().is_some_and(|got| got.eq_ignore_ascii_case(wanted))
        };
        let mut found: Vec<&Value> = self
            .workloads
            .iter()
            .filter(|workload| {
                matches(selection.name, &workload["name"])
                    && matches(selection.namespace, &workload["namespace"])
                    && matches(selection.node, &workload["node"])
                    && (selection.address.is_empty()
                        || list(&workload["workloadIps"]).contains(&selection.address))
            })
            .collect();
        let text = |workload: &Value, key: &str| workload[key].as_str().unwrap_or_default().to_owned();
        found.sort_by_cached_key(|workload| {
            let name = format!("{}.{}", text(workload, "namespace"), text(workload, "name"));
            (name, text(workload, "node"), list(&workload["workloadIps"]).join(","))
        });
        found
    }

    pub(super) fn services(&self, namespace: &str) -> Vec<&Value> {
        sorted(&self.services, namespace, &["namespace", "name", "hostname"])
    }

    pub(super) fn policies(&self, namespace: &str) -> Vec<&Value> {
        sorted(&self.policies, namespace, &["namespace", "name"])
    }

    /// The workloads with their connections.
    pub(super) fn states(&self, selection: &Selection<'_>) -> Vec<&WorkloadState> {
        let matches = |wanted: &str, got: &str| wanted.is_empty() || got.eq_ignore_ascii_case(wanted);
        let mut found: Vec<&WorkloadState> = self
            .workload_state
            .values()
            .filter(|state| {
                matches(selection.name, &state.info.name)
                    && matches(selection.namespace, &state.info.namespace)
            })
            .collect();
        found.sort_by_key(|state| (&state.info.namespace, &state.info.name));
        found
    }
}

fn sorted<'a>(records: &'a [Value], namespace: &str, keys: &[&str]) -> Vec<&'a Value> {
    let mut found: Vec<&Value> = records
        .iter()
        .filter(|record| {
            namespace.is_empty()
                || record["namespace"].as_str().is_some_and(|own| own.eq_ignore_ascii_case(namespace))
        })
        .collect();
    found.sort_by_cached_key(|record| {
        keys.iter().map(|key| record[*key].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    });
    found
}

/// The texts of a list.
pub(super) fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Older ztunnels key records by address, newer ones list them.
fn list_or_map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Array(records) => records,
        Value::Object(records) => records.into_iter().map(|(_, record)| record).collect(),
        Value::Null => Vec::new(),
        other => return Err(serde::de::Error::custom(format!("expected a list of records, found {other}"))),
    })
}

fn nullable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
