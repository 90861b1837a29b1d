//! What clusters and listeners refer to.

use std::collections::{BTreeMap, BTreeSet};

use canopus_base::tree::{Node, Value};
use canopus_proto::{Any, descriptors, json};

use crate::types::{ENDPOINT, EXTENSION, ROUTE, SECRET};

/// The names of the endpoints, routes, extensions and secrets that these resources want over ADS, by type.
pub fn references<'a>(
    resources: impl IntoIterator<Item = &'a Any>,
) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for resource in resources {
        if let Some(Ok(message)) = descriptors::open(resource) {
            search(&json::write_dynamic(&message), &mut found);
        }
    }
    found
}

fn search(node: &Node, found: &mut BTreeMap<&'static str, BTreeSet<String>>) {
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| search(item, found)),
        Value::Map(map) => {
            for (type_url, name) in referred(node) {
                found.entry(type_url).or_default().insert(name.to_owned());
            }
            map.iter().for_each(|entry| search(&entry.node, found));
        }
        _ => {}
    }
}

/// What one message refers to by itself.
fn referred(node: &Node) -> impl Iterator<Item = (&'static str, &str)> {
    let text = |path: &str| node.pointer(path).and_then(Node::as_str);
    let over_ads = |path: &str| node.pointer(path).is_some_and(|source| source.get("ads").is_some());
    let endpoints = over_ads("/edsClusterConfig/edsConfig")
        .then(|| text("/edsClusterConfig/serviceName").or_else(|| text("/name")))
        .flatten();
    let routes = over_ads("/rds/configSource").then(|| text("/rds/routeConfigName")).flatten();
    let extension = over_ads("/configDiscovery/configSource").then(|| text("/name")).flatten();
    let secret = over_ads("/sdsConfig").then(|| text("/name")).flatten();
    [(ENDPOINT, endpoints), (ROUTE, routes), (EXTENSION, extension), (SECRET, secret)]
        .into_iter()
        .filter_map(|(type_url, name)| Some((type_url, name?)))
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::config::cluster::v3::{Cluster, cluster::EdsClusterConfig};
    use canopus_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
    use canopus_proto::envoy::config::core::v3::{
        AggregatedConfigSource, ApiConfigSource, ConfigSource, ExtensionConfigSource, TransportSocket,
        transport_socket,
    };
    use canopus_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
    use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
    use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
        CommonTlsContext, DownstreamTlsContext, SdsSecretConfig,
    };

    use super::*;

    fn ads() -> Option<ConfigSource> {
        let ads = ConfigSourceSpecifier::Ads(AggregatedConfigSource::default());
        Some(ConfigSource { config_source_specifier: Some(ads), ..Default::default() })
    }

    fn elsewhere() -> Option<ConfigSource> {
        let api = ConfigSourceSpecifier::ApiConfigSource(ApiConfigSource::default());
        Some(ConfigSource { config_source_specifier: Some(api), ..Default::default() })
    }

    fn cluster(name: &str, service_name: &str, eds_config: Option<ConfigSource>) -> Any {
        let eds = EdsClusterConfig { service_name: service_name.into(), eds_config };
        Any::pack(&Cluster { name: name.into(), eds_cluster_config: Some(eds), ..Default::default() })
    }

    fn secret(name: &str, sds_config: Option<ConfigSource>) -> SdsSecretConfig {
        SdsSecretConfig { name: name.into(), sds_config }
    }

    fn listener() -> Any {
        let rds = hcm::Rds { route_config_name: "80".into(), config_source: ads() };
        let discovery = ExtensionConfigSource { config_source: ads(), ..Default::default() };
        let extension = hcm::HttpFilter {
            name: "wasm".into(),
            config_type: Some(hcm::http_filter::ConfigType::ConfigDiscovery(discovery)),
            ..Default::default()
        };
        let manager = hcm::HttpConnectionManager {
            http_filters: vec![extension],
            route_specifier: Some(hcm::http_connection_manager::RouteSpecifier::Rds(rds)),
            ..Default::default()
        };
        let tls = CommonTlsContext {
            tls_certificate_sds_secret_configs: vec![secret("cred", ads()), secret("default", elsewhere())],
            ..Default::default()
        };
        let tls = DownstreamTlsContext { common_tls_context: Some(tls), ..Default::default() };
        let socket = TransportSocket {
            config_type: Some(transport_socket::ConfigType::TypedConfig(Any::pack(&tls))),
            ..Default::default()
        };
        let filter = Filter {
            config_type: Some(filter::ConfigType::TypedConfig(Any::pack(&manager))),
            ..Default::default()
        };
        let chain =
            FilterChain { filters: vec![filter], transport_socket: Some(socket), ..Default::default() };
        Any::pack(&Listener { filter_chains: vec![chain], ..Default::default() })
    }

    #[test]
    fn everything_wanted_over_ads_is_found() {
        let resources = [cluster("a", "", ads()), cluster("b", "b-service", ads()), listener()];
        let found = references(&resources);
        let names = |type_url| found[type_url].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(names(ENDPOINT), ["a", "b-service"]);
        assert_eq!(names(ROUTE), ["80"]);
        assert_eq!(names(EXTENSION), ["wasm"]);
        assert_eq!(names(SECRET), ["cred"]);
    }

    #[test]
    fn what_comes_from_elsewhere_is_left_alone() {
        assert!(references(&[cluster("a", "", elsewhere())]).is_empty());
    }
}
