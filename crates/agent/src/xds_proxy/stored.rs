//! Serves Envoy from the last good state while the control plane is away.
//!
//! Envoy asks as it always does and is told what some Envoy of this proxy has accepted before, with the versions of the
//! control plane. When that is back, the stream ends; Envoy's next one names these versions, and only differences flow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Buf as _;
use canopus_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use canopus_proto::{Any, DecodeError, Message as _};
use canopus_xds::types;
use tracing::{info, warn};

use super::Variant;
use super::frame::Message;
use crate::last_good::{Catalogue, LastGood};

const WILDCARD: &str = "*";

/// One stream of Envoy.
pub(super) struct StoredSession {
    state: Arc<LastGood>,
    variant: Variant,
    /// The names of each type, as SotW requests repeat them.
    names: BTreeMap<String, BTreeSet<String>>,
    nonce: u64,
}

impl StoredSession {
    pub(super) fn new(state: Arc<LastGood>, variant: Variant) -> Self {
        Self { state, variant, names: BTreeMap::new(), nonce: 0 }
    }

    /// The response to a request, if it wants one.
    pub(super) fn answer(&mut self, message: &Message) -> Result<Option<Message>, DecodeError> {
        let mut body = message.body();
        let bytes = body.copy_to_bytes(body.remaining());
        Ok(match self.variant {
            Variant::Delta => self.answer_delta(DeltaDiscoveryRequest::decode(bytes)?),
            Variant::Sotw => self.answer_sotw(DiscoveryRequest::decode(bytes)?),
        })
    }

    fn next_nonce(&mut self) -> String {
        self.nonce += 1;
        format!("last-good-{}", self.nonce)
    }

    fn answer_delta(&mut self, request: DeltaDiscoveryRequest) -> Option<Message> {
        let DeltaDiscoveryRequest { type_url, resource_names_subscribe: subscribed, .. } = request;
        if let Some(error) = &request.error_detail {
            warn!(target: "xdsproxy", "Envoy rejects stored resources of the type {type_url}: {}", error.message);
        }
        let is_first = !self.names.contains_key(&type_url);
        self.names.entry(type_url.clone()).or_default();
        if !is_first && subscribed.is_empty() {
            return None;
        }
        let catalogue = self.state.catalogue(&type_url);
        let is_wildcard = subscribed.iter().any(|name| name == WILDCARD)
            || (is_first && subscribed.is_empty() && is_wildcard_type(&type_url));
        let wanted: Vec<&str> = match &catalogue {
            Some(catalogue) if is_wildcard => catalogue.names().collect(),
            _ => subscribed.iter().map(String::as_str).filter(|name| *name != WILDCARD).collect(),
        };
        let known = &request.initial_resource_versions;
        let (mut resources, mut missing) = (Vec::new(), Vec::new());
        for name in wanted {
            let version = catalogue.as_ref().and_then(|catalogue| catalogue.version_of(name));
            match version {
                Some(version) if known.get(name).is_some_and(|known| known == version) => {}
                Some(_) => {
                    resources.extend(catalogue.as_ref().and_then(|catalogue| resource(catalogue, name)));
                }
                // Without a word about it, Envoy would wait for the resource, and everything else for Envoy.
                None if !known.contains_key(name) => missing.push(name.to_owned()),
                None => {}
            }
        }
        if resources.is_empty() && missing.is_empty() && !known.is_empty() {
            return None;
        }
        info!(target: "xdsproxy", "{} stored resources of the type {type_url} are served", resources.len());
        let nonce = self.next_nonce();
        let response = DeltaDiscoveryResponse {
            type_url,
            resources,
            removed_resources: missing,
            nonce,
            ..Default::default()
        };
        Some(Message::new(&response.encode_to_vec()))
    }

    fn answer_sotw(&mut self, request: DiscoveryRequest) -> Option<Message> {
        let type_url = request.type_url;
        if let Some(error) = &request.error_detail {
            warn!(target: "xdsproxy", "Envoy rejects stored resources of the type {type_url}: {}", error.message);
        }
        let names: BTreeSet<String> = request.resource_names.into_iter().collect();
        let earlier = self.names.insert(type_url.clone(), names.clone());
        if earlier.is_some_and(|earlier| earlier == names) {
            return None;
        }
        let catalogue = self.state.catalogue(&type_url);
        let resources: Vec<Any> = match &catalogue {
            Some(catalogue) if is_wildcard_type(&type_url) => {
                catalogue.names().filter_map(|name| resource(catalogue, name)?.resource).collect()
            }
            Some(catalogue) => names.iter().filter_map(|name| resource(catalogue, name)?.resource).collect(),
            None => Vec::new(),
        };
        info!(target: "xdsproxy", "{} stored resources of the type {type_url} are served", resources.len());
        let version_info = catalogue.map(|catalogue| catalogue.last_version().to_owned()).unwrap_or_default();
        let response = DiscoveryResponse {
            type_url,
            version_info,
            resources,
            nonce: self.next_nonce(),
            ..Default::default()
        };
        Some(Message::new(&response.encode_to_vec()))
    }
}

/// Whether a request without names means all resources.
fn is_wildcard_type(type_url: &str) -> bool {
    matches!(type_url, types::CLUSTER | types::LISTENER)
}

fn resource(catalogue: &Catalogue, name: &str) -> Option<Resource> {
    let stored = catalogue.read(name)?;
    let any = Any::decode(stored.body).ok()?;
    Some(Resource {
        name: name.to_owned(),
        version: stored.version,
        resource: Some(any),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::last_good::LastGoodSettings;
    use crate::xds_proxy::recorder::record;
    use canopus_proto::envoy::config::cluster::v3::Cluster;
    use canopus_runtime::metrics::Registry;

    fn any(name: &str) -> Any {
        let cluster = Cluster { name: name.to_owned(), ..Default::default() };
        Any { type_url: types::CLUSTER.to_owned(), value: cluster.encode_to_vec().into() }
    }

    fn state(directory: &std::path::Path) -> Arc<LastGood> {
        let settings =
            LastGoodSettings { directory: directory.to_owned(), max_bytes: 1 << 20, owner: "test".into() };
        Arc::new(LastGood::open(&settings, &Registry::new()).unwrap())
    }

    fn delta(session: &mut StoredSession, request: DeltaDiscoveryRequest) -> Option<DeltaDiscoveryResponse> {
        let answer = session.answer(&Message::new(&request.encode_to_vec())).unwrap()?;
        Some(DeltaDiscoveryResponse::decode(answer.body()).unwrap())
    }

    #[test]
    fn envoy_is_sent_what_it_lacks_of_what_was_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let state = state(directory.path());
        let resource = |name: &str, version: &str| Resource {
            name: name.into(),
            version: version.into(),
            resource: Some(any(name)),
            ..Default::default()
        };
        let sent = DeltaDiscoveryResponse {
            type_url: types::CLUSTER.into(),
            resources: vec![resource("a", "1"), resource("b", "2")],
            ..Default::default()
        };
        record(&state, types::CLUSTER, &Message::new(&sent.encode_to_vec()), Variant::Delta);
        let mut session = StoredSession::new(Arc::clone(&state), Variant::Delta);
        let all = DeltaDiscoveryRequest { type_url: types::CLUSTER.into(), ..Default::default() };
        let answer = delta(&mut session, all.clone()).unwrap();
        let mut names: Vec<_> = answer.resources.iter().map(|resource| resource.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(answer.resources[0].resource.as_ref().unwrap().type_url, types::CLUSTER);
        let acknowledgement = DeltaDiscoveryRequest { response_nonce: answer.nonce, ..all.clone() };
        assert!(delta(&mut session, acknowledgement).is_none());
        let mut session = StoredSession::new(Arc::clone(&state), Variant::Delta);
        let versions = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "1".to_owned())].into();
        let again = DeltaDiscoveryRequest { initial_resource_versions: versions, ..all };
        let answer = delta(&mut session, again).unwrap();
        assert_eq!(answer.resources.iter().map(|resource| resource.name.as_str()).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn envoy_hears_of_names_that_are_not_stored() {
        let directory = tempfile::tempdir().unwrap();
        let mut session = StoredSession::new(state(directory.path()), Variant::Delta);
        let request = DeltaDiscoveryRequest {
            type_url: types::ENDPOINT.into(),
            resource_names_subscribe: vec!["x".into()],
            ..Default::default()
        };
        assert_eq!(delta(&mut session, request).unwrap().removed_resources, ["x"]);
    }

    #[test]
    fn sotw_is_served_whole_for_clusters_and_by_name_for_the_rest() {
        let directory = tempfile::tempdir().unwrap();
        let state = state(directory.path());
        for (type_url, names) in
            [(types::CLUSTER, vec!["a", "b"]), (types::CLUSTER, vec!["a"]), (types::ROUTE, vec!["r", "s"])]
        {
            let resources = names.into_iter().map(any).collect();
            let sent = DiscoveryResponse { version_info: "9".into(), resources, ..Default::default() };
            record(&state, type_url, &Message::new(&sent.encode_to_vec()), Variant::Sotw);
        }
        let mut session = StoredSession::new(state, Variant::Sotw);
        let mut ask = |type_url: &str, names: &[&str]| {
            let resource_names = names.iter().map(|&name| name.to_owned()).collect();
            let request =
                DiscoveryRequest { type_url: type_url.into(), resource_names, ..Default::default() };
            let answer = session.answer(&Message::new(&request.encode_to_vec())).unwrap()?;
            let answer = DiscoveryResponse::decode(answer.body()).unwrap();
            assert_eq!(answer.version_info, "9");
            Some(answer.resources.len())
        };
        assert_eq!(ask(types::CLUSTER, &[]), Some(1));
        assert_eq!(ask(types::CLUSTER, &[]), None, "an acknowledgement");
        assert_eq!(ask(types::ROUTE, &["r"]), Some(1));
        assert_eq!(ask(types::ROUTE, &["r", "s"]), Some(2));
    }
}
