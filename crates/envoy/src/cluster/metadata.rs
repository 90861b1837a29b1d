//! What telemetry, tools and EnvoyFilters know a cluster by: its `istio` metadata.

use canopus_mesh::destination_rule::Rule;
use canopus_mesh::service::Service;
use canopus_proto::google::protobuf::Value;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::{ClientTlsSettings, TrafficPolicy};

use crate::names;
use crate::pieces::Pieces;

/// The metadata of a cluster, written as `google.protobuf.Struct`s at once: every cluster has some, and as messages they
/// would take longer to make than all the rest of a cluster.
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
        let mut list = Pieces::default();
        for service in services {
            list.body(LIST_VALUES, field(VALUE_STRUCT, describe(service).as_slice()).as_slice());
        }
        self.set("services", field(VALUE_LIST, list.as_slice()));
    }

    /// A fact that is true.
    pub(super) fn add_flag(&mut self, name: &'static str) {
        self.set(name, Pieces::of(&Value::from(true)));
    }

    /// The rule behind its settings.
    pub(super) fn add_rule(&mut self, rule: &Rule) {
        let path = names::config_path("destination-rule", rule.origin().namespace(), rule.origin().name());
        self.set("config", text(&path));
    }

    /// The subset it is of.
    pub(super) fn add_subset(&mut self, subset: &str) {
        self.set("subset", text(subset));
    }

    /// Servers that the user configures TLS for do not speak the mesh's ALPN.
    pub(super) fn add_alpn(&mut self, policy: Option<&TrafficPolicy>) {
        let mode = policy.and_then(|policy| policy.tls.as_ref()).map(ClientTlsSettings::mode);
        if matches!(mode, Some(Mode::Simple | Mode::Mutual)) {
            self.set("alpn_override", text("false"));
        }
    }

    /// Peers are not to be learnt from the baggage of tunnels.
    pub(super) fn disable_baggage_discovery(&mut self) {
        self.without_baggage = true;
    }

    /// The field of a cluster that it is; nothing if it says nothing.
    pub(super) fn encode(mut self) -> Pieces {
        if self.is_empty() {
            return Pieces::default();
        }
        self.istio.sort_unstable_by_key(|(key, _)| *key);
        let mut all = Pieces::default();
        if !self.istio.is_empty() {
            let mut fields = Pieces::default();
            for (key, value) in &self.istio {
                fields.body(STRUCT_FIELDS, entry(key, value).as_slice());
            }
            all.body(METADATA_FILTERS, entry("istio", &fields).as_slice());
        }
        if self.without_baggage {
            let yes = entry("disable_baggage_discovery", &Pieces::of(&Value::from(true)));
            let peers = entry("istio.peer_metadata", &field(STRUCT_FIELDS, yes.as_slice()));
            all.body(METADATA_FILTERS, peers.as_slice());
        }
        field(CLUSTER_METADATA, all.as_slice())
    }

    fn set(&mut self, key: &'static str, value: Pieces) {
        self.istio.retain(|(known, _)| *known != key);
        self.istio.push((key, value));
    }
}

// The numbers of the fields.
const CLUSTER_METADATA: u32 = 25;
const METADATA_FILTERS: u32 = 1;
const STRUCT_FIELDS: u32 = 1;
const LIST_VALUES: u32 = 1;
const VALUE_STRING: u32 = 3;
const VALUE_STRUCT: u32 = 5;
const VALUE_LIST: u32 = 6;

/// One field.
fn field(number: u32, body: &[u8]) -> Pieces {
    let mut field = Pieces::default();
    field.body(number, body);
    field
}

/// An entry of a map.
fn entry(key: &str, value: &Pieces) -> Pieces {
    let mut entry = field(1, key.as_bytes());
    entry.body(2, value.as_slice());
    entry
}

fn text(text: &str) -> Pieces {
    field(VALUE_STRING, text.as_bytes())
}

fn describe(service: &Service) -> Pieces {
    let fields = [("host", &service.host), ("name", &service.name), ("namespace", &service.namespace)];
    let mut described = Pieces::default();
    for (key, value) in fields {
        described.body(STRUCT_FIELDS, entry(key, &text(value)).as_slice());
    }
    described
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use canopus_proto::Message;
    use canopus_proto::envoy::config::cluster::v3::Cluster;
    use canopus_proto::google::protobuf::{ListValue, Struct};

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
        let cluster = Cluster::decode(metadata.encode().as_slice()).unwrap();

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
