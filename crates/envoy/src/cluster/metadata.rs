//! What telemetry, tools and EnvoyFilters know a cluster by: its `istio` metadata.

use std::borrow::Cow;
use std::sync::Arc;

use canopus_mesh::destination_rule::Rule;
use canopus_mesh::service::Service;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::fields::{cluster, list_value, value};
use canopus_proto::google::protobuf::{ListValue, Value};
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::{ClientTlsSettings, TrafficPolicy};
use canopus_proto::wire::ProtoWriter;

use crate::{metadata, names};

/// What filters that learn about peers read.
const PEERS: &str = "istio.peer_metadata";
const WITHOUT_BAGGAGE: &str = "disable_baggage_discovery";
/// The bytes of a value that is true.
const TRUE_SIZE: usize = 2;
/// Room for the facts that a cluster usually has.
const USUAL_COUNT: usize = 4;

/// The metadata of a cluster.
#[derive(Default)]
pub(super) struct Metadata {
    istio: Vec<(&'static str, Fact)>,
    /// Whether peers are not to be learnt from the baggage of tunnels.
    without_baggage: bool,
}

/// A value in the `istio` metadata of a cluster.
enum Fact {
    /// `true`.
    Yes,
    Text(Cow<'static, str>),
    /// The services it leads to.
    Services(Vec<Described>),
}

/// A service by its host, its name and its namespace.
struct Described([(&'static str, Arc<str>); 3]);

impl Metadata {
    pub(super) fn is_empty(&self) -> bool {
        self.istio.is_empty() && !self.without_baggage
    }

    /// The services it leads to.
    pub(super) fn add_services<'a>(&mut self, services: impl IntoIterator<Item = &'a Service>) {
        self.set("services", Fact::Services(services.into_iter().map(Described::new).collect()));
    }

    /// A fact that is true.
    pub(super) fn add_flag(&mut self, name: &'static str) {
        self.set(name, Fact::Yes);
    }

    /// The rule behind its settings.
    pub(super) fn add_rule(&mut self, rule: &Rule) {
        let path = names::config_path("destination-rule", rule.origin().namespace(), rule.origin().name());
        self.set("config", Fact::Text(path.into()));
    }

    /// The subset it is of.
    pub(super) fn add_subset(&mut self, subset: &str) {
        self.set("subset", Fact::Text(subset.to_owned().into()));
    }

    /// Servers that the user configures TLS for do not speak the mesh's ALPN.
    pub(super) fn add_alpn(&mut self, policy: Option<&TrafficPolicy>) {
        let mode = policy.and_then(|policy| policy.tls.as_ref()).map(ClientTlsSettings::mode);
        if matches!(mode, Some(Mode::Simple | Mode::Mutual)) {
            self.set("alpn_override", Fact::Text("false".into()));
        }
    }

    /// Peers are not to be learnt from the baggage of tunnels.
    pub(super) fn disable_baggage_discovery(&mut self) {
        self.without_baggage = true;
    }

    /// Adds the field of a cluster that it is; nothing if it says nothing.
    pub(super) fn write(&mut self, cluster: &mut ProtoWriter<Cluster>) {
        if self.is_empty() {
            return;
        }
        self.istio.sort_unstable_by_key(|(key, _)| *key);
        let istio = self.istio.iter().map(|(key, fact)| metadata::key_size(key, fact.size())).sum();
        let peers = metadata::key_size(WITHOUT_BAGGAGE, TRUE_SIZE);
        let filter_size =
            |is_said: bool, name, size| if is_said { metadata::filter_size(name, size) } else { 0 };
        let size = filter_size(!self.istio.is_empty(), metadata::ISTIO, istio)
            + filter_size(self.without_baggage, PEERS, peers);
        cluster.nested_of_exactly(cluster::METADATA, size, |fields| {
            if !self.istio.is_empty() {
                metadata::write_filter(fields, metadata::ISTIO, istio, |structure| {
                    for (key, fact) in &self.istio {
                        metadata::write_key(structure, key, fact.size(), |value| fact.write(value));
                    }
                });
            }
            if self.without_baggage {
                metadata::write_filter(fields, PEERS, peers, |structure| {
                    metadata::write_key(structure, WITHOUT_BAGGAGE, TRUE_SIZE, |value| {
                        value.bool(value::BOOL_VALUE, true);
                    });
                });
            }
        });
    }

    fn set(&mut self, key: &'static str, fact: Fact) {
        if let Some((_, known)) = self.istio.iter_mut().find(|(known, _)| *known == key) {
            *known = fact;
            return;
        }
        if self.istio.is_empty() {
            self.istio.reserve_exact(USUAL_COUNT);
        }
        self.istio.push((key, fact));
    }
}

impl Fact {
    fn write(&self, fields: &mut ProtoWriter<Value>) {
        match self {
            Self::Yes => fields.bool(value::BOOL_VALUE, true),
            Self::Text(text) => fields.string(value::STRING_VALUE, text),
            Self::Services(services) => {
                fields.nested_of_exactly(value::LIST_VALUE, list_size(services), |list| {
                    services.iter().for_each(|service| service.write(list));
                });
            }
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Yes => TRUE_SIZE,
            Self::Text(text) => value::STRING_VALUE.text_size(text.len()),
            Self::Services(services) => value::LIST_VALUE.size(list_size(services)),
        }
    }
}

fn list_size(services: &[Described]) -> usize {
    services.iter().map(|service| list_value::VALUES.size(service.size())).sum()
}

impl Described {
    fn new(service: &Service) -> Self {
        let Service { host, name, namespace, .. } = service;
        Self([("host", host.clone()), ("name", name.clone()), ("namespace", namespace.clone())])
    }

    fn write(&self, list: &mut ProtoWriter<ListValue>) {
        list.nested_of_exactly(list_value::VALUES, self.size(), |fields| {
            fields.nested_of_exactly(value::STRUCT_VALUE, self.structure_size(), |structure| {
                for (key, text) in &self.0 {
                    let size = value::STRING_VALUE.text_size(text.len());
                    metadata::write_key(structure, key, size, |fields| {
                        fields.string(value::STRING_VALUE, text);
                    });
                }
            });
        });
    }

    /// The bytes of the value that it is.
    fn size(&self) -> usize {
        value::STRUCT_VALUE.size(self.structure_size())
    }

    fn structure_size(&self) -> usize {
        let text_size = |text: &str| value::STRING_VALUE.text_size(text.len());
        self.0.iter().map(|(key, text)| metadata::key_size(key, text_size(text))).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use canopus_proto::Message;
    use canopus_proto::google::protobuf::Struct;

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
        let mut encoded = ProtoWriter::default();
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
