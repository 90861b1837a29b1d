//! What telemetry, tools and EnvoyFilters know a cluster by: its `istio` metadata.

use std::borrow::Cow;
use std::sync::Arc;

use canopus_mesh::destination_rule::Rule;
use canopus_mesh::service::Service;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::{ClientTlsSettings, TrafficPolicy};

use crate::pieces::{Pieces, field_size};
use crate::{metadata, names};

/// What filters that learn about peers read.
const PEERS: &str = "istio.peer_metadata";
const WITHOUT_BAGGAGE: &str = "disable_baggage_discovery";
/// The field of a cluster that its metadata is.
const METADATA: u32 = 25;
/// How much is said at most, but for rare cases.
const USUAL_COUNT: usize = 4;

/// The metadata of a cluster.
#[derive(Default)]
pub(super) struct Metadata {
    istio: Vec<(&'static str, Fact)>,
    /// Whether peers are not to be learnt from the baggage of tunnels.
    without_baggage: bool,
}

/// Something that is said about a cluster.
enum Fact {
    /// That it is so.
    Yes,
    Text(Cow<'static, str>),
    /// What it leads to.
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
        self.set("services", Fact::Services(services.into_iter().map(Described::of).collect()));
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
    pub(super) fn write(&mut self, cluster: &mut Pieces) {
        if self.is_empty() {
            return;
        }
        self.istio.sort_unstable_by_key(|(key, _)| *key);
        let istio = self.istio.iter().map(|(key, fact)| metadata::entry_size(key, fact.size())).sum();
        let peers = metadata::entry_size(WITHOUT_BAGGAGE, metadata::YES_SIZE);
        let of_filter =
            |is_said: bool, name, size| if is_said { metadata::entry_size(name, size) } else { 0 };
        let of_istio = of_filter(!self.istio.is_empty(), metadata::ISTIO, istio);
        cluster.header(METADATA, of_istio + of_filter(self.without_baggage, PEERS, peers));
        if !self.istio.is_empty() {
            metadata::entry(cluster, metadata::ISTIO, istio);
            self.istio.iter().for_each(|(key, fact)| fact.write(cluster, key));
        }
        if self.without_baggage {
            metadata::entry(cluster, PEERS, peers);
            metadata::entry(cluster, WITHOUT_BAGGAGE, metadata::YES_SIZE);
            metadata::yes(cluster);
        }
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
    fn write(&self, structure: &mut Pieces, key: &str) {
        metadata::entry(structure, key, self.size());
        match self {
            Self::Yes => metadata::yes(structure),
            Self::Text(text) => metadata::text(structure, text),
            Self::Services(services) => {
                metadata::list(structure, items_size(services));
                services.iter().for_each(|service| service.write(structure));
            }
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Yes => metadata::YES_SIZE,
            Self::Text(text) => metadata::text_size(text),
            Self::Services(services) => field_size(items_size(services)),
        }
    }
}

fn items_size(services: &[Described]) -> usize {
    services.iter().map(|service| field_size(field_size(service.size()))).sum()
}

impl Described {
    fn of(service: &Service) -> Self {
        let Service { host, name, namespace, .. } = service;
        Self([("host", host.clone()), ("name", name.clone()), ("namespace", namespace.clone())])
    }

    fn write(&self, list: &mut Pieces) {
        let size = self.size();
        metadata::item(list, field_size(size));
        metadata::structure(list, size);
        for (key, fact) in &self.0 {
            metadata::entry(list, key, metadata::text_size(fact));
            metadata::text(list, fact);
        }
    }

    fn size(&self) -> usize {
        self.0.iter().map(|(key, fact)| metadata::entry_size(key, metadata::text_size(fact))).sum()
    }
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
