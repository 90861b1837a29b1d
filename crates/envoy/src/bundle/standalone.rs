//! A bundle as one configuration file: what a proxy would ask for by name stands where it is referred to.
//!
//! Envoy checks such a file without a control plane (`envoy --mode validate`), and serves with it.

use std::collections::{BTreeMap, BTreeSet};

use canopus_base::tree::{Map, Node, Value};
use canopus_proto::Any;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use canopus_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use canopus_proto::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use canopus_proto::envoy::config::core::v3::{
    ApiConfigSource, ApiVersion, ConfigSource, GrpcService, Node as ProxyNode, TransportSocket, TypedExtensionConfig,
    api_config_source::ApiType, transport_socket,
};
use canopus_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use canopus_proto::envoy::config::listener::v3::filter::ConfigType as FilterConfig;
use canopus_proto::envoy::config::listener::v3::{Filter, Listener};
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_filter::ConfigType as HttpFilterConfig,
};
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{Secret, UpstreamTlsContext};
use canopus_proto::resource::Resource;
use canopus_proto::{DecodeError, Message, json};

use super::{Bundle, is_on_same_stream};

/// The clusters that the agent beside a proxy gives it from the start; the paths are the agent's.
const AGENT: [(&str, &str); 2] =
    [("xds-grpc", "./etc/istio/proxy/XDS"), ("sds-grpc", "./var/run/secrets/workload-spiffe-uds/socket")];

impl Bundle {
    /// The configuration file of an Envoy, introduced as `node`, that has all this from the start. Endpoints, route tables and extensions are
    /// in their places; secrets that are not part of the bundle are still asked for.
    pub fn standalone(&self, node: &ProxyNode) -> Result<Node, DecodeError> {
        let parts = Parts::decode(self)?;
        let clusters = self.clusters.iter().map(|resource| parts.cluster(resource));
        let listeners = self.listeners.iter().map(|resource| parts.listener(resource));
        let secrets = self.secrets.iter().map(|resource| Secret::decode(resource.body.clone()));
        let agent =
            AGENT.into_iter().filter(|(name, _)| self.clusters.iter().all(|cluster| *cluster.name != **name));
        let clusters = agent
            .map(|(name, path)| Ok(agent_cluster(name, path)))
            .chain(clusters.map(|cluster| Ok(json::write(&cluster?))));
        let resources = [
            ("clusters", list(clusters)?),
            ("listeners", list(listeners.map(|listener| Ok(json::write(&listener?))))?),
            ("secrets", list(secrets.map(|secret| Ok(json::write(&secret?))))?),
        ];
        let mut node = node.clone();
        if node.cluster.is_empty() {
            // Without one Envoy asks for nothing.
            node.cluster.clone_from(&node.id);
        }
        let mut file = map([
            ("node", json::write(&node)),
            ("bootstrapExtensions", Value::List(vec![internal_listeners()]).into()),
            ("dynamicResources", map([("adsConfig", ads_config())])),
            ("staticResources", map(resources)),
        ]);
        leave_out_uncheckable(&mut file);
        Ok(file)
    }
}

/// What is asked for by name.
struct Parts {
    assignments: BTreeMap<String, ClusterLoadAssignment>,
    routes: BTreeMap<String, RouteConfiguration>,
    extensions: BTreeMap<String, Any>,
    secrets: BTreeSet<String>,
}

impl Parts {
    fn decode(bundle: &Bundle) -> Result<Self, DecodeError> {
        let extensions: BTreeMap<String, TypedExtensionConfig> = named(&bundle.extensions)?;
        let extensions = extensions
            .into_iter()
            .filter_map(|(name, extension)| Some((name, extension.typed_config?)))
            // The agent replaces the address of a module by the file it fetched.
            .filter(|(_, config)| !config.type_url.contains(".wasm."));
        Ok(Self {
            assignments: named(&bundle.endpoints)?,
            routes: named(&bundle.routes)?,
            extensions: extensions.collect(),
            secrets: bundle.secrets.iter().map(|secret| secret.name.to_string()).collect(),
        })
    }

    fn cluster(&self, resource: &Resource) -> Result<Cluster, DecodeError> {
        let mut cluster = Cluster::decode(resource.body.clone())?;
        if cluster.cluster_discovery_type == Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)) {
            let service = cluster.eds_cluster_config.take().map(|config| config.service_name);
            let name = service.filter(|name| !name.is_empty()).unwrap_or_else(|| cluster.name.clone());
            cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::Static as i32));
            cluster.load_assignment = self.assignments.get(&name).cloned();
        }
        let matched =
            cluster.transport_socket_matches.iter_mut().filter_map(|one| one.transport_socket.as_mut());
        for socket in cluster.transport_socket.iter_mut().chain(matched) {
            self.fill_socket(socket);
        }
        Ok(cluster)
    }

    /// Clusters of a file are made before the stream that their secrets would come on, so they must have them.
    fn fill_socket(&self, socket: &mut TransportSocket) {
        let Some(transport_socket::ConfigType::TypedConfig(config)) = &mut socket.config_type else { return };
        let Ok(mut context) = config.unpack::<UpstreamTlsContext>() else { return };
        let Some(common) = &mut context.common_tls_context else { return };
        let roots = match &mut common.validation_context_type {
            Some(ValidationContextType::CombinedValidationContext(combined)) => {
                combined.validation_context_sds_secret_config.as_mut()
            }
            Some(ValidationContextType::ValidationContextSdsSecretConfig(secret)) => Some(secret),
            _ => None,
        };
        let secrets = common.tls_certificate_sds_secret_configs.iter_mut().chain(roots);
        let mut on_stream = secrets.filter(|secret| is_on_same_stream(secret)).peekable();
        if on_stream.peek().is_none() {
            return;
        }
        for secret in on_stream {
            secret.sds_config = (!self.secrets.contains(&secret.name)).then(stream_of_its_own);
        }
        *config = Any::pack(&context);
    }

    fn listener(&self, resource: &Resource) -> Result<Listener, DecodeError> {
        let mut listener = Listener::decode(resource.body.clone())?;
        let chains = listener.filter_chains.iter_mut().chain(&mut listener.default_filter_chain);
        for filter in chains.flat_map(|chain| &mut chain.filters) {
            self.fill(filter);
        }
        Ok(listener)
    }

    fn fill(&self, filter: &mut Filter) {
        match &mut filter.config_type {
            Some(FilterConfig::TypedConfig(config)) => {
                if let Ok(mut manager) = config.unpack::<HttpConnectionManager>() {
                    self.fill_manager(&mut manager);
                    *config = Any::pack(&manager);
                }
            }
            Some(FilterConfig::ConfigDiscovery(_)) => {
                if let Some(config) = self.extensions.get(&filter.name) {
                    filter.config_type = Some(FilterConfig::TypedConfig(config.clone()));
                }
            }
            None => {}
        }
    }

    fn fill_manager(&self, manager: &mut HttpConnectionManager) {
        if let Some(RouteSpecifier::Rds(rds)) = &manager.route_specifier {
            let mut table = self.routes.get(&rds.route_config_name).cloned().unwrap_or_default();
            // Unlike a table that is sent, one that is written down may not name a cluster that is yet to come.
            table.validate_clusters = Some(false.into());
            manager.route_specifier = Some(RouteSpecifier::RouteConfig(table));
        }
        for filter in &mut manager.http_filters {
            let is_asked_for = matches!(filter.config_type, Some(HttpFilterConfig::ConfigDiscovery(_)));
            if let Some(config) = self.extensions.get(&filter.name).filter(|_| is_asked_for) {
                filter.config_type = Some(HttpFilterConfig::TypedConfig(config.clone()));
            }
        }
    }
}

fn named<M: Message + Default>(resources: &[Resource]) -> Result<BTreeMap<String, M>, DecodeError> {
    resources
        .iter()
        .map(|resource| Ok((resource.name.to_string(), M::decode(resource.body.clone())?)))
        .collect()
}

/// Access loggers with which Envoy crashes when it checks a file, though not when they are sent to it.
const UNCHECKABLE: [&str; 2] = [
    "type.googleapis.com/envoy.extensions.access_loggers.stats.v3.Config",
    "type.googleapis.com/envoy.extensions.access_loggers.wasm.v3.WasmAccessLog",
];

fn leave_out_uncheckable(node: &mut Node) {
    let is_uncheckable = |item: &Node| {
        let config = item.get("typedConfig").and_then(|config| config.get("@type")).and_then(Node::as_str);
        config.is_some_and(|name| UNCHECKABLE.contains(&name))
    };
    match &mut node.value {
        Value::List(items) => {
            items.retain(|item| !is_uncheckable(item));
            items.iter_mut().for_each(leave_out_uncheckable);
        }
        Value::Map(map) => {
            let mut entries = std::mem::take(map).into_entries();
            entries.iter_mut().for_each(|entry| leave_out_uncheckable(&mut entry.node));
            *map = entries.into_iter().map(|entry| (entry.key, entry.node)).collect();
        }
        _ => {}
    }
}

/// Asks the control plane for one secret.
fn stream_of_its_own() -> ConfigSource {
    let grpc = EnvoyGrpc { cluster_name: "xds-grpc".to_owned(), ..Default::default() };
    let service =
        GrpcService { target_specifier: Some(TargetSpecifier::EnvoyGrpc(grpc)), ..Default::default() };
    ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::ApiConfigSource(ApiConfigSource {
            api_type: ApiType::Grpc as i32,
            transport_api_version: ApiVersion::V3 as i32,
            grpc_services: vec![service],
            ..Default::default()
        })),
        resource_api_version: ApiVersion::V3 as i32,
        ..Default::default()
    }
}

/// Lets listeners take connections from clusters of the same proxy.
fn internal_listeners() -> Node {
    const TYPE: &str = "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener";
    map([("name", text("envoy.bootstrap.internal_listener")), ("typedConfig", map([("@type", text(TYPE))]))])
}

/// How a proxy asks for what is not in the file.
fn ads_config() -> Node {
    let service = map([("envoyGrpc", map([("clusterName", text("xds-grpc"))]))]);
    map([
        ("apiType", text("DELTA_GRPC")),
        ("transportApiVersion", text("V3")),
        ("grpcServices", Value::List(vec![service]).into()),
    ])
}

/// A cluster behind a socket in the file system that speaks gRPC.
fn agent_cluster(name: &str, path: &str) -> Node {
    const OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let address = map([("pipe", map([("path", text(path))]))]);
    let endpoint = map([("endpoint", map([("address", address)]))]);
    let locality = map([("lbEndpoints", Value::List(vec![endpoint]).into())]);
    let assignment = map([("clusterName", text(name)), ("endpoints", Value::List(vec![locality]).into())]);
    let http2 = map([("http2ProtocolOptions", map([]))]);
    let options =
        map([("@type", text(&format!("type.googleapis.com/{OPTIONS}"))), ("explicitHttpConfig", http2)]);
    map([
        ("name", text(name)),
        ("type", text("STATIC")),
        ("typedExtensionProtocolOptions", map([(OPTIONS, options)])),
        ("loadAssignment", assignment),
    ])
}

fn list(items: impl Iterator<Item = Result<Node, DecodeError>>) -> Result<Node, DecodeError> {
    Ok(Value::List(items.collect::<Result<_, _>>()?).into())
}

fn map<const N: usize>(fields: [(&str, Node); N]) -> Node {
    Value::Map(fields.into_iter().collect::<Map>()).into()
}

fn text(text: &str) -> Node {
    Value::from(text.to_owned()).into()
}
