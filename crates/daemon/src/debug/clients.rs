//! Connected proxies and their state.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use canopus_engine::{Batch, QueryError};
use canopus_mesh::proxy_workload::DescriptionOf;
use canopus_mesh::target::Targets;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::registry::{service_json, time};
use super::{Answer, Debug, Question};
use crate::family::FAMILIES;
use crate::push::{Cause, Connection, Reason, Stamp, TypeStatus};

/// What Istio shows of a node's metadata: what the control plane reads of it.
const SHOWN_METADATA: &[&str] = &[
    "PROXY_CONFIG",
    "ISTIO_VERSION",
    "ISTIO_REVISION",
    "LABELS",
    "STATIC_LABELS",
    "ANNOTATIONS",
    "INSTANCE_IPS",
    "NAMESPACE",
    "NODE_NAME",
    "WORKLOAD_NAME",
    "INTERCEPTION_MODE",
    "SERVICE_ACCOUNT",
    "HTTP_PROXY_PORT",
    "MESH_ID",
    "CLUSTER_ID",
    "NETWORK",
    "REQUESTED_NETWORK_VIEW",
    "POD_PORTS",
    "TLS_SERVER_CERT_CHAIN",
    "TLS_SERVER_KEY",
    "TLS_SERVER_ROOT_CERT",
    "TLS_CLIENT_CERT_CHAIN",
    "TLS_CLIENT_KEY",
    "TLS_CLIENT_ROOT_CERT",
    "BASE",
    "IDLE_TIMEOUT",
    "HTTP10",
    "GENERATOR",
    "ENABLE_SELF_DISCOVERY",
    "DNS_CAPTURE",
    "DNS_AUTO_ALLOCATE",
    "DNS_PROXY_ADDR",
    "ENABLE_HBONE",
    "DISABLE_HBONE_SEND",
    "AUTO_REGISTER_GROUP",
    "WORKLOAD_ENTRY",
    "UNPRIVILEGED_POD",
    "PLATFORM_METADATA",
    "STS_PORT",
    "ENVOY_STATUS_PORT",
    "ENVOY_PROMETHEUS_PORT",
    "ENVOY_SECURE_METRICS_PORT",
    "ENVOY_SECURE_MERGED_METRICS_PORT",
    "EXIT_ON_ZERO_ACTIVE_CONNECTIONS",
    "INBOUND_LISTENER_EXACT_BALANCE",
    "OUTBOUND_LISTENER_EXACT_BALANCE",
    "CLOUDRUN_ADDR",
    "METADATA_DISCOVERY",
    "ENVOY_SKIP_DEPRECATED_LOGS",
    "WORKLOAD_IDENTITY_SOCKET_FILE",
];

impl Debug {
    /// How far each client is, type by type.
    pub(super) fn syncz(&self, question: &Question) -> Result<Answer, QueryError> {
        let namespace = question.parameters.get("namespace").filter(|namespace| !namespace.is_empty());
        let mut clients = self.clients();
        clients.retain(|client| namespace.is_none_or(|namespace| client.proxy.namespace() == namespace));
        let all: Vec<Value> = clients.iter().map(|client| sync_json(client)).collect();
        Ok(Answer::json(question, &Value::from(all)))
    }

    /// Lists connected proxies, with address and time of connection.
    pub(super) fn connections(&self, question: &Question) -> Result<Answer, QueryError> {
        let clients: Vec<Value> =
            self.clients().iter().map(|client| Value::Object(connection_json(client))).collect();
        Ok(Answer::json(question, &clients_json(clients)))
    }

    /// Who is connected, with what they said about themselves and what they watch; or everybody is looked after at once.
    pub(super) fn adsz(&self, question: &Question) -> Result<Answer, QueryError> {
        if question.parameters.says("push") {
            return Ok(self.push());
        }
        let clients = match self.optional_client(question) {
            Ok(Some(client)) => vec![client],
            Ok(None) => self.clients(),
            Err(answer) => return Ok(answer),
        };
        let clients: Result<Vec<Value>, QueryError> =
            clients.iter().map(|client| self.client_json(client)).collect();
        Ok(Answer::json(question, &clients_json(clients?)))
    }

    /// Parity: any value of the parameter will do, and the answer names everybody who is connected. Nobody is sent what
    /// they have.
    fn push(&self) -> Answer {
        self.dispatcher.apply(Batch::new(), Cause::reason(Reason::Debug));
        let clients = self.dispatcher.connections().len();
        Answer::text(StatusCode::OK, format!("Pushed to {clients} servers\n"))
    }

    /// Ends the stream of a client.
    pub(super) fn force_disconnect(&self, question: &Question) -> Result<Answer, QueryError> {
        Ok(match self.client(question) {
            Ok(client) => {
                client.dismiss();
                Answer::text(StatusCode::OK, "OK")
            }
            Err(answer) => answer,
        })
    }

    /// The services each client stands for, and on which ports.
    pub(super) fn instancesz(&self, question: &Question) -> Result<Answer, QueryError> {
        let mut all = Map::new();
        for client in self.clients() {
            let targets = self.engine().get::<Targets>(&client.proxy)?;
            let targets = targets.iter().map(|target| {
                json!({
                    "Service": service_json(self.engine(), &target.service),
                    "Port": {
                        "name": &*target.port.name,
                        "port": target.port.number,
                        "protocol": target.port.protocol.to_string(),
                        "TargetPort": target.target_port,
                    },
                })
            });
            all.insert(client.proxy.id.id.clone(), targets.collect());
        }
        Ok(Answer::json(question, &Value::Object(all)))
    }

    fn client_json(&self, client: &Connection) -> Result<Value, QueryError> {
        let described = self.engine().get::<DescriptionOf>(&client.proxy)?;
        let mut all = connection_json(client);
        if !described.labels.is_empty() {
            all.insert("labels".to_owned(), described.labels.iter().collect());
        }
        all.insert("metadata".to_owned(), metadata_json(client));
        let locality = &described.locality;
        let parts = [("region", &locality.region), ("zone", &locality.zone), ("sub_zone", &locality.subzone)];
        let parts = parts.into_iter().filter(|(_, text)| !text.is_empty());
        let locality: Map<String, Value> =
            parts.map(|(key, text)| (key.to_owned(), Value::from(text.as_str()))).collect();
        if !locality.is_empty() {
            all.insert("locality".to_owned(), Value::Object(locality));
        }
        let watches: Map<String, Value> = watched(client)
            .map(|(type_url, status)| {
                let names = status.interest.iter().filter_map(|interest| interest.names());
                let names = names.flat_map(|names| names.iter().map(|name| Value::from(&**name)));
                (type_url, names.collect())
            })
            .collect();
        if !watches.is_empty() {
            all.insert("watches".to_owned(), Value::Object(watches));
        }
        Ok(Value::Object(all))
    }
}

/// The types a client watches. Questions are answered and forgotten.
pub(super) fn watched(client: &Connection) -> impl Iterator<Item = (String, TypeStatus)> {
    let types = client.types().into_iter().filter(|(_, status)| status.interest.is_some());
    types.map(|(type_url, status)| (type_url.to_string(), status))
}

/// A point in time as Istio writes it.
pub(super) fn stamp(stamp: Stamp) -> String {
    Timestamp::try_from(stamp.time).map_or_else(|_| time(None), |stamp| stamp.to_string())
}

fn clients_json(clients: Vec<Value>) -> Value {
    let mut all = Map::from_iter([("totalClients".to_owned(), Value::from(clients.len()))]);
    if !clients.is_empty() {
        all.insert("clients".to_owned(), Value::from(clients));
    }
    Value::Object(all)
}

fn connection_json(client: &Connection) -> Map<String, Value> {
    let address = client.address.map(|address| address.to_string()).unwrap_or_default();
    let texts =
        [("connectionId", client.name()), ("connectedAt", stamp(client.connected)), ("address", address)];
    texts.into_iter().map(|(key, text)| (key.to_owned(), Value::from(text))).collect()
}

fn metadata_json(client: &Connection) -> Value {
    let Value::Object(raw) = client.proxy.metadata.raw.to_json() else { return json!({}) };
    raw.into_iter()
        .filter(|(key, value)| SHOWN_METADATA.contains(&key.as_str()) && !is_empty(value))
        .collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn sync_json(client: &Connection) -> Value {
    let metadata = &client.proxy.metadata;
    let mut all = Map::new();
    let mut say = |key: String, text: &str| {
        if !text.is_empty() {
            all.insert(key, Value::from(text));
        }
    };
    say("cluster_id".to_owned(), &metadata.cluster_id);
    say("proxy".to_owned(), &client.proxy.id.id);
    say("proxy_type".to_owned(), client.proxy.id.kind.as_str());
    say("istio_version".to_owned(), &metadata.istio_version);
    let watches: BTreeMap<String, TypeStatus> = watched(client).collect();
    for (name, type_url) in FAMILIES.iter().filter_map(|family| Some((family.status?, family.type_url))) {
        let Some(status) = watches.get(type_url) else { continue };
        say(format!("{name}_sent"), status.sent.as_ref().map_or("", |sent| &sent.nonce));
        say(format!("{name}_acked"), status.acked.as_ref().map_or("", |acked| &acked.nonce));
    }
    let resources: Map<String, Value> =
        watches.iter().map(|(type_url, status)| (type_url.clone(), status_json(status))).collect();
    if !resources.is_empty() {
        all.insert("resources".to_owned(), Value::Object(resources));
    }
    Value::Object(all)
}

fn status_json(status: &TypeStatus) -> Value {
    let mut all = Map::new();
    let mut say = |key: &str, text: &str| {
        if !text.is_empty() {
            all.insert(key.to_owned(), Value::from(text));
        }
    };
    say("sent", status.sent.as_ref().map_or("", |sent| &sent.nonce));
    say("acked", status.acked.as_ref().map_or("", |acked| &acked.nonce));
    say("sentTime", &status.sent.as_ref().map_or_else(|| time(None), |sent| stamp(sent.time)));
    say("lastError", status.rejected.as_ref().map_or("", |rejected| &rejected.message));
    Value::Object(all)
}
