//! What a proxy gets, in the form of Envoy's own dump.

use canopus_base::tree::{Node, Value as Tree};
use canopus_engine::{QueryError, Snapshot};
use canopus_proto::envoy::admin::v3::clusters_config_dump::DynamicCluster;
use canopus_proto::envoy::admin::v3::ecds_config_dump::EcdsFilterConfig;
use canopus_proto::envoy::admin::v3::endpoints_config_dump::DynamicEndpointConfig;
use canopus_proto::envoy::admin::v3::listeners_config_dump::{DynamicListener, DynamicListenerState};
use canopus_proto::envoy::admin::v3::routes_config_dump::DynamicRouteConfig;
use canopus_proto::envoy::admin::v3::secrets_config_dump::DynamicSecret;
use canopus_proto::envoy::admin::v3::{
    BootstrapConfigDump, ClustersConfigDump, EcdsConfigDump, EndpointsConfigDump, ListenersConfigDump,
    RoutesConfigDump, ScopedRoutesConfigDump, SecretsConfigDump,
};
use canopus_proto::{Any, descriptors, json};
use canopus_xds::types;
use serde_json::{Map, Value};

use super::{Answer, Debug, Question, redact};
use crate::family::Family;
use crate::provenance;
use crate::push::Connection;

impl Debug {
    /// The configuration of a proxy, or its resources of some types.
    pub(super) fn config_dump(&self, question: &Question) -> Result<Answer, QueryError> {
        let wanted = question.parameters.get("types").filter(|wanted| !wanted.is_empty());
        match wanted {
            Some(wanted) => self.typed_dump(question, wanted),
            None => self.full_dump(question),
        }
    }

    /// What a proxy gets of EDS.
    pub(super) fn edsz(&self, question: &Question) -> Result<Answer, QueryError> {
        self.typed_dump(question, "EDS")
    }

    /// What a proxy gets of ECDS.
    pub(super) fn ecdsz(&self, question: &Question) -> Result<Answer, QueryError> {
        self.typed_dump(question, "ECDS")
    }

    /// What the agent of a proxy gets of NDS.
    pub(super) fn ndsz(&self, question: &Question) -> Result<Answer, QueryError> {
        self.typed_dump(question, "NDS")
    }

    fn full_dump(&self, question: &Question) -> Result<Answer, QueryError> {
        let client = match self.client(question) {
            Ok(client) => client,
            Err(answer) => return Ok(answer),
        };
        let with_endpoints = question.parameters.has("include_eds");
        let configs = dump(&self.dispatcher.engine_of(client.id).snapshot(), &client, with_endpoints)?;
        Ok(Answer::json(question, &dump_json(&configs)))
    }

    fn typed_dump(&self, question: &Question, wanted: &str) -> Result<Answer, QueryError> {
        let client = match self.client(question) {
            Ok(client) => client,
            Err(answer) => return Ok(answer),
        };
        let world = self.dispatcher.engine_of(client.id).snapshot();
        let mut configs = Vec::new();
        for name in wanted.split(',') {
            configs.extend(
                shown(&world, &client, Family::type_url_by_name(name))?.into_iter().map(|(_, any)| any),
            );
        }
        Ok(Answer::json(question, &dump_json(&configs)))
    }
}

/// What a client gets of a type it watches, by name, without what is secret.
fn shown(world: &Snapshot, client: &Connection, type_url: &str) -> Result<Vec<(String, Any)>, QueryError> {
    let all = provenance::resources(world, client, type_url)?;
    let shown = all.iter().filter_map(|one| Some((one.name.to_string(), redact::shown(type_url, one)?)));
    Ok(shown.collect())
}

/// The sections of a dump, in the order Envoy has them.
pub(super) fn dump(
    world: &Snapshot,
    client: &Connection,
    with_endpoints: bool,
) -> Result<Vec<Any>, QueryError> {
    let version_info = world.revision().number().to_string();
    let of = |type_url| shown(world, client, type_url);
    let clusters = ClustersConfigDump {
        version_info: version_info.clone(),
        dynamic_active_clusters: of(types::CLUSTER)?
            .into_iter()
            .map(|(_, any)| DynamicCluster { cluster: Some(any), ..Default::default() })
            .collect(),
        ..Default::default()
    };
    let endpoints = EndpointsConfigDump {
        dynamic_endpoint_configs: if with_endpoints { of(types::ENDPOINT)? } else { Vec::new() }
            .into_iter()
            .map(|(_, any)| DynamicEndpointConfig {
                version_info: version_info.clone(),
                endpoint_config: Some(any),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let listeners = ListenersConfigDump {
        version_info: version_info.clone(),
        dynamic_listeners: of(types::LISTENER)?
            .into_iter()
            .map(|(name, any)| DynamicListener {
                name,
                active_state: Some(DynamicListenerState {
                    version_info: version_info.clone(),
                    listener: Some(any),
                    ..Default::default()
                }),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let routes = RoutesConfigDump {
        dynamic_route_configs: of(types::ROUTE)?
            .into_iter()
            .map(|(_, any)| DynamicRouteConfig {
                version_info: version_info.clone(),
                route_config: Some(any),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let secrets = SecretsConfigDump {
        dynamic_active_secrets: of(types::SECRET)?
            .into_iter()
            .map(|(_, any)| DynamicSecret {
                version_info: version_info.clone(),
                secret: Some(any),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let extensions = EcdsConfigDump {
        ecds_filters: of(types::EXTENSION)?
            .into_iter()
            .map(|(_, any)| EcdsFilterConfig {
                version_info: version_info.clone(),
                ecds_filter: Some(any),
                ..Default::default()
            })
            .collect(),
    };
    let mut sections = vec![Any::pack(&BootstrapConfigDump::default()), Any::pack(&clusters)];
    if with_endpoints {
        sections.push(Any::pack(&endpoints));
    }
    sections.extend([
        Any::pack(&listeners),
        Any::pack(&ScopedRoutesConfigDump::default()),
        Any::pack(&routes),
        Any::pack(&secrets),
        Any::pack(&extensions),
    ]);
    Ok(sections)
}

/// Messages with their types, as a dump.
fn dump_json(configs: &[Any]) -> Value {
    let configs: Vec<Value> = configs.iter().filter_map(any_json).collect();
    let mut all = Map::new();
    if !configs.is_empty() {
        all.insert("configs".to_owned(), Value::from(configs));
    }
    Value::Object(all)
}

/// A message with its type; `None` if nobody knows the type.
fn any_json(any: &Any) -> Option<Value> {
    let message = descriptors::open(any)?.ok()?;
    let type_url = Node::from(Tree::from(any.type_url.as_str())).to_json();
    let mut all = Map::from_iter([("@type".to_owned(), type_url)]);
    if let Value::Object(fields) = json::write_dynamic(&message).to_json() {
        all.extend(fields);
    }
    Some(Value::Object(all))
}
