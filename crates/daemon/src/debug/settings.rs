//! The mesh as a whole.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use canopus_engine::QueryError;
use canopus_mesh::network::{NetworkGateway, NetworkGateways};
use canopus_mesh::world::Objects;
use canopus_proto::json;
use canopus_sources::kubernetes::RemoteCluster;
use canopus_sources::status::{Phase, SourceStatus};
use serde_json::{Map, Value, json};

use super::objects::PoliciesByNamespace;
use super::{Answer, Debug, Question};

impl Debug {
    /// The mesh configuration in force.
    pub(super) fn mesh(&self, question: &Question) -> Result<Answer, QueryError> {
        Ok(Answer::json(question, &json::write(&self.settings().mesh).to_json()))
    }

    /// The gateways between networks.
    pub(super) fn networkz(&self, question: &Question) -> Result<Answer, QueryError> {
        Ok(Answer::json(question, &self.gateways_json()?))
    }

    /// The clusters whose objects are known, and how far each can be trusted.
    pub(super) fn clusterz(&self, question: &Question) -> Result<Answer, QueryError> {
        let own = self.settings().cluster.clone();
        let remote = self.remote.current();
        let keys = self.engine().keys::<Objects>();
        let others: BTreeSet<_> = keys
            .iter()
            .map(|origin| &origin.cluster)
            .chain(remote.clusters.keys())
            .filter(|name| **name != own)
            .collect();
        let all = std::iter::once(&own).chain(others);
        let sources = self.sources.current();
        let all = all.map(|name| {
            let own: Vec<_> = sources.iter().filter(|status| *status.source.cluster == **name).collect();
            cluster_json(name, &own, remote.clusters.get(name))
        });
        let refused = remote.refused.iter().map(|(name, reason)| {
            json!({"id": &**name, "secretName": "", "syncStatus": "closed", "problem": reason})
        });
        Ok(Answer::json(question, &all.chain(refused).collect()))
    }

    /// Policies and networks in force.
    pub(super) fn pushcontext(&self, question: &Question) -> Result<Answer, QueryError> {
        let policies = self.engine().get::<PoliciesByNamespace>(&())?;
        let all = json!({
            "AuthorizationPolicies": *policies,
            "NetworkGateways": self.gateways_json()?,
            "UnresolvedGateways": self.unresolved_json()?,
        });
        Ok(Answer::json(question, &all))
    }

    /// Problems are diagnostics of the objects that have them, not of a push: there are none to tell here.
    pub(super) fn push_status(&self, question: &Question) -> Result<Answer, QueryError> {
        Ok(Answer::json(question, &json!({})))
    }

    /// There is no cache to look into: a resource is kept as long as somebody is subscribed to it, and made again when what
    /// it was made from changes.
    pub(super) fn cachez(&self, question: &Question) -> Result<Answer, QueryError> {
        if question.parameters.says("clear") {
            return Ok(Answer::text(StatusCode::OK, "Cache cleared\n"));
        }
        let cached = if question.parameters.says("sizes") { json!({"total": "0B"}) } else { json!({}) };
        Ok(Answer::json(question, &cached))
    }

    /// The templates of the injector by name: none in a process that does not inject.
    pub(super) fn inject(&self, question: &Question) -> Result<Answer, QueryError> {
        Ok(Answer::json(question, &json!({})))
    }

    /// Services of the multi-cluster API.
    pub(super) fn mcsz(&self, question: &Question) -> Result<Answer, QueryError> {
        Ok(Answer::json(question, &Value::Null))
    }

    /// How often each kind of result was computed.
    pub(super) fn krtz(&self, question: &Question) -> Result<Answer, QueryError> {
        let families = self.engine().evaluations().into_iter();
        let all =
            families.map(|(name, times)| json!({"name": name, "uid": name, "state": {"evaluations": times}}));
        Ok(Answer::json(question, &all.collect()))
    }

    fn gateways_json(&self) -> Result<Value, QueryError> {
        let gateways = self.engine().get::<NetworkGateways>(&())?;
        let resolved = gateways.iter().filter(|gateway| is_address(gateway));
        Ok(or_null(resolved.map(gateway_json).collect()))
    }

    fn unresolved_json(&self) -> Result<Value, QueryError> {
        let gateways = self.engine().get::<NetworkGateways>(&())?;
        let unresolved = gateways.iter().filter(|gateway| !is_address(gateway));
        Ok(or_null(unresolved.map(gateway_json).collect()))
    }
}

/// A cluster in Istio's words, and where they do not do, why in ours.
fn cluster_json(name: &str, sources: &[&SourceStatus], remote: Option<&RemoteCluster>) -> Value {
    let state = match sources {
        [] if remote.is_some() => "syncing",
        sources if sources.iter().all(|source| source.is_live()) => "synced",
        sources if !sources.iter().all(|source| source.is_known()) => "syncing",
        _ => "timeout",
    };
    let definition = remote.map_or("", |remote| &*remote.definition);
    let mut cluster = json!({"id": name, "secretName": definition, "syncStatus": state});
    if let Some(problem) = remote.and_then(|remote| remote.problem.as_ref()) {
        cluster["problem"] = Value::from(problem.as_str());
    }
    if remote.is_some_and(|remote| remote.is_dropped) {
        cluster["dropped"] = Value::from(true);
    }
    let behind: Vec<Value> = sources
        .iter()
        .flat_map(|source| source.parts.iter().map(move |part| (&source.source.name, part)))
        .filter(|(_, part)| !matches!(part.phase, Phase::Live | Phase::Absent { .. }))
        .map(|(source, part)| json!({"source": source, "part": part.part.to_string(), "state": part.phase.to_string()}))
        .collect();
    if !behind.is_empty() {
        cluster["behind"] = Value::from(behind);
    }
    cluster
}

fn is_address(gateway: &NetworkGateway) -> bool {
    canopus_base::net::parse_ip(&gateway.address).is_ok()
}

/// Parity: a list that was never filled is written as null.
fn or_null(items: Vec<Value>) -> Value {
    if items.is_empty() { Value::Null } else { Value::from(items) }
}

fn gateway_json(gateway: &NetworkGateway) -> Value {
    let mut account = gateway.service_account.rsplit('/');
    let (name, namespace) = (account.next().unwrap_or_default(), account.nth(1).unwrap_or_default());
    let account = Map::from_iter([
        ("Namespace".to_owned(), Value::from(namespace)),
        ("Name".to_owned(), Value::from(name)),
    ]);
    json!({
        "Network": gateway.network,
        "Cluster": &*gateway.cluster,
        "Addr": gateway.address,
        "Port": gateway.port,
        "HBONEPort": gateway.hbone_port,
        "ServiceAccount": account,
    })
}
