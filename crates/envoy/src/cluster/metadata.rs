//! What telemetry, tools and EnvoyFilters know a cluster by: its `istio` metadata.

use canopus_mesh::destination_rule::Rule;
use canopus_mesh::service::Service;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::{ClientTlsSettings, TrafficPolicy};

use crate::pieces::Pieces;
use crate::{metadata, names};

/// The field of a cluster that its metadata is.
const METADATA: u32 = 25;
/// Room for what is usually said.
const USUAL_SIZE: usize = 256;

/// The metadata of a cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Metadata {
    /// Each an encoded `google.protobuf.Value`.
    istio: Vec<(&'static str, Pieces)>,
    /// Whether peers are not to be learnt from the baggage of tunnels.
    without_baggage: bool,
}

impl Metadata {
    pub(super) fn is_empty(&self) -> bool {
        self.istio.is_empty() && !self.without_baggage
    }

    /// The services it leads to.
    pub(super) fn add_services<'a>(&mut self, services: impl IntoIterator<Item = &'a Service>) {
        self.set("services", |value| metadata::list(value, services, describe));
    }

    /// A fact that is true.
    pub(super) fn add_flag(&mut self, name: &'static str) {
        self.set(name, metadata::yes);
    }

    /// The rule behind its settings.
    pub(super) fn add_rule(&mut self, rule: &Rule) {
        let path = names::config_path("destination-rule", rule.origin().namespace(), rule.origin().name());
        self.set("config", |value| metadata::text(value, &path));
    }

    /// The subset it is of.
    pub(super) fn add_subset(&mut self, subset: &str) {
        self.set("subset", |value| metadata::text(value, subset));
    }

    /// Servers that the user configures TLS for do not speak the mesh's ALPN.
    pub(super) fn add_alpn(&mut self, policy: Option<&TrafficPolicy>) {
        let mode = policy.and_then(|policy| policy.tls.as_ref()).map(ClientTlsSettings::mode);
        if matches!(mode, Some(Mode::Simple | Mode::Mutual)) {
            self.set("alpn_override", |value| metadata::text(value, "false"));
        }
    }

    /// Peers are not to be learnt from the baggage of tunnels.
    pub(super) fn disable_baggage_discovery(&mut self) {
        self.without_baggage = true;
    }

    /// Adds the field of a cluster that it is; nothing if it says nothing.
    pub(super) fn write(mut self, cluster: &mut Pieces) {
        if self.is_empty() {
            return;
        }
        self.istio.sort_unstable_by_key(|(key, _)| *key);
        cluster.nested(METADATA, |all| {
            if !self.istio.is_empty() {
                metadata::of_filter(all, metadata::ISTIO, |fields| {
                    for (key, value) in &self.istio {
                        metadata::field(fields, key, |field| field.append(value.as_slice()));
                    }
                });
            }
            if self.without_baggage {
                metadata::of_filter(all, "istio.peer_metadata", |fields| {
                    metadata::field(fields, "disable_baggage_discovery", metadata::yes);
                });
            }
        });
    }

    fn set(&mut self, key: &'static str, write: impl FnOnce(&mut Pieces)) {
        let mut value = Pieces::with_capacity(USUAL_SIZE);
        write(&mut value);
        self.istio.retain(|(known, _)| *known != key);
        self.istio.push((key, value));
    }
}

fn describe(value: &mut Pieces, service: &Service) {
    let facts = [("host", &service.host), ("name", &service.name), ("namespace", &service.namespace)];
    metadata::structure(value, |fields| {
        for (key, fact) in facts {
            metadata::field(fields, key, |value| metadata::text(value, fact));
        }
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use canopus_proto::Message;
    use canopus_proto::envoy::config::cluster::v3::Cluster;
    use canopus_proto::google::protobuf::{ListValue, Struct, Value};

    use super::*;

    fn structure<const N: usize>(fields: [(&str, Value); N]) -> Struct {
        Struct::from(
            fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect::<BTreeMap<_, _>>(),
        )
    }

    #[test]
    fn what_is_written_is_what_a_message_would_say() {
        let service = Service::stand_in("a.b.svc".to_owned(), "a", "b".into());
        let mut metadata = Metadata::default();
        assert!(metadata.is_empty());
        metadata.add_subset("old");
        metadata.add_subset("v1");
        metadata.add_flag("external");
        metadata.add_services([&service]);
        metadata.disable_baggage_discovery();
        let mut encoded = Pieces::default();
        metadata.write(&mut encoded);
        let cluster = Cluster::decode(encoded.as_slice()).unwrap();

        let described =
            structure([("host", "a.b.svc".into()), ("name", "a".into()), ("namespace", "b".into())]);
        let services = ListValue::from(vec![Value::from(described)]);
        let istio =
            structure([("external", true.into()), ("services", services.into()), ("subset", "v1".into())]);
        let peers = structure([("disable_baggage_discovery", true.into())]);
        let expected =
            BTreeMap::from([("istio".to_owned(), istio), ("istio.peer_metadata".to_owned(), peers)]);
        assert_eq!(cluster.metadata.unwrap().filter_metadata, expected);
    }
}
