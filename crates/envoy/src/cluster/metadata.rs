//! What telemetry, tools and EnvoyFilters know a cluster by: its `istio` metadata.

use std::collections::BTreeMap;

use canopus_mesh::destination_rule::Rule;
use canopus_mesh::service::Service;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::google::protobuf::{ListValue, Struct, Value};
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::{ClientTlsSettings, TrafficPolicy};

use crate::names;

const ISTIO: &str = "istio";

/// The fields, to be added to.
fn fields(cluster: &mut Cluster) -> &mut BTreeMap<String, Value> {
    let metadata = cluster.metadata.get_or_insert_default();
    &mut metadata.filter_metadata.entry(ISTIO.to_owned()).or_default().fields
}

/// The services it leads to.
pub(super) fn add_services<'a>(cluster: &mut Cluster, services: impl IntoIterator<Item = &'a Service>) {
    let described: Vec<Value> = services.into_iter().map(describe).collect();
    fields(cluster).insert("services".to_owned(), ListValue::from(described).into());
}

fn describe(service: &Service) -> Value {
    let fields = [("host", &service.host), ("name", &service.name), ("namespace", &service.namespace)];
    let fields: BTreeMap<_, _> =
        fields.into_iter().map(|(key, text)| (key.to_owned(), (&**text).into())).collect();
    Struct::from(fields).into()
}

/// A fact that is true.
pub(super) fn add_flag(cluster: &mut Cluster, name: &str) {
    fields(cluster).insert(name.to_owned(), true.into());
}

/// The rule behind its settings.
pub(super) fn add_rule(cluster: &mut Cluster, rule: &Rule) {
    let path = names::config_path("destination-rule", rule.origin().namespace(), rule.origin().name());
    fields(cluster).insert("config".to_owned(), path.into());
}

/// The subset it is of.
pub(super) fn add_subset(cluster: &mut Cluster, subset: &str) {
    fields(cluster).insert("subset".to_owned(), subset.into());
}

/// Servers that the user configures TLS for do not speak the mesh's ALPN.
pub(super) fn add_alpn(cluster: &mut Cluster, policy: Option<&TrafficPolicy>) {
    let mode = policy.and_then(|policy| policy.tls.as_ref()).map(ClientTlsSettings::mode);
    if matches!(mode, Some(Mode::Simple | Mode::Mutual)) {
        fields(cluster).insert("alpn_override".to_owned(), "false".into());
    }
}
