//! The whole configuration of one proxy, asked for as a proxy asks: clusters and listeners, then whatever those refer to.

mod standalone;

use std::collections::BTreeSet;

use canopus_engine::{QueryError, Snapshot};
use canopus_mesh::proxy::{Proxy, };
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use canopus_proto::envoy::config::listener::v3::filter::ConfigType as FilterConfig;
use canopus_proto::envoy::config::listener::v3::{FilterChain, Listener};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_filter::ConfigType as HttpFilterConfig,
};
use canopus_proto::Message;
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use canopus_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use canopus_proto::envoy::config::core::v3::{TransportSocket, transport_socket};
use canopus_proto::envoy::extensions::transport_sockets::quic::v3::QuicDownstreamTransport;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, UpstreamTlsContext,
};
use canopus_proto::resource::Resource;

use crate::audience::AudiencesOf;
use crate::cluster::Clusters;
use crate::endpoint::Assignment;
use crate::extension::Extensions;
use crate::listener::Listeners;
use crate::name_table::NameTables;
use crate::proxyless;
use crate::route_config::Routes;
use crate::secret::Secrets;

/// All resources of a proxy, by type.
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    /// CDS.
    pub clusters: Vec<Resource>,
    /// EDS, for the clusters that ask for it.
    pub endpoints: Vec<Resource>,
    /// LDS.
    pub listeners: Vec<Resource>,
    /// RDS, for the tables the listeners name.
    pub routes: Vec<Resource>,
    /// ECDS, for the extensions whose configuration the listeners leave to be asked for.
    pub extensions: Vec<Resource>,
    /// NDS: what the agent answers DNS queries with.
    pub names: Vec<Resource>,
    /// SDS, for the secrets that clusters and listeners expect from the control plane.
    pub secrets: Vec<Resource>,
}

impl Bundle {
    /// What `proxy` gets in this state of the world.
    pub fn generate(world: &Snapshot, proxy: &Proxy) -> Result<Self, QueryError> {
        let audiences = world.get::<AudiencesOf>(proxy)?;
        let clusters: Vec<Resource> = world.get::<Clusters>(proxy)?.iter().cloned().collect();
        let listeners: Vec<Resource> = world.get::<Listeners>(proxy)?.iter().cloned().collect();
        let references = References::find(&clusters, &listeners);
        let mut bundle = Self { clusters, listeners, ..Self::default() };
        for name in references.assignments {
            let found = world.get::<Assignment>(&(audiences.endpoints.clone(), name))?;
            bundle.endpoints.extend(found.as_ref().clone());
        }
        for name in references.routes {
            let found = world.get::<Routes>(&(audiences.routes.clone(), name))?;
            bundle.routes.extend(found.as_ref().clone());
        }
        for name in references.secrets {
            let found = world.get::<Secrets>(&(audiences.secrets.clone(), name))?;
            bundle.secrets.extend(found.as_ref().clone());
        }
        for name in references.extensions {
            let found = world.get::<Extensions>(&(audiences.extensions.clone(), name))?;
            bundle.extensions.extend(found.as_ref().clone());
        }
        bundle.names.push(world.get::<NameTables>(&audiences.names)?.as_ref().clone());
        Ok(bundle)
    }
}

impl Bundle {
    /// What a gRPC library gets that asks for these listeners.
    pub fn generate_proxyless(
        world: &Snapshot,
        proxy: &Proxy,
        listeners: &[String],
    ) -> Result<Self, QueryError> {
        let audiences = world.get::<AudiencesOf>(proxy)?;
        let mut bundle = Self::default();
        for name in listeners {
            let found = world.get::<proxyless::Listeners>(&(proxy.clone(), name.clone()))?;
            bundle.listeners.extend(found.iter().cloned());
        }
        for name in References::find(&[], &bundle.listeners).routes {
            let found = world.get::<proxyless::Routes>(&(audiences.routes.clone(), name))?;
            bundle.routes.extend(found.as_ref().clone());
        }
        for name in clusters_of(&bundle.routes) {
            let found = world.get::<proxyless::Clusters>(&(audiences.routes.clone(), name))?;
            bundle.clusters.extend(found.as_ref().clone());
        }
        for name in References::find(&bundle.clusters, &[]).assignments {
            let found = world.get::<Assignment>(&(audiences.endpoints.clone(), name))?;
            bundle.endpoints.extend(found.as_ref().clone());
        }
        Ok(bundle)
    }
}

/// The clusters that route tables send to.
fn clusters_of(routes: &[Resource]) -> BTreeSet<String> {
    let tables = routes.iter().filter_map(|resource| RouteConfiguration::decode(resource.body.clone()).ok());
    let routes = tables.flat_map(|table| table.virtual_hosts).flat_map(|host| host.routes);
    let mut names = BTreeSet::new();
    for route in routes {
        let Some(Action::Route(action)) = route.action else { continue };
        match action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(name)) => {
                names.insert(name);
            }
            Some(ClusterSpecifier::WeightedClusters(weighted)) => {
                names.extend(weighted.clusters.into_iter().map(|cluster| cluster.name));
            }
            _ => {}
        }
    }
    names
}

/// The names that clusters and listeners make a proxy ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Names of endpoint assignments.
    pub assignments: BTreeSet<String>,
    /// Names of route tables.
    pub routes: BTreeSet<String>,
    /// Names of extension configurations.
    pub extensions: BTreeSet<String>,
    /// Names of secrets that come on the same stream.
    pub secrets: BTreeSet<String>,
}

impl References {
    /// Reads encoded clusters and listeners; what cannot be read refers to nothing.
    pub fn find(clusters: &[Resource], listeners: &[Resource]) -> Self {
        let mut found = Self::default();
        for cluster in clusters.iter().filter_map(|resource| Cluster::decode(resource.body.clone()).ok()) {
            found.add_cluster(cluster);
        }
        for listener in listeners.iter().filter_map(|resource| Listener::decode(resource.body.clone()).ok()) {
            let api = listener.api_listener.and_then(|api| api.api_listener);
            if let Some(Ok(manager)) = api.map(|api| api.unpack::<HttpConnectionManager>()) {
                found.add_manager(manager);
            }
            for chain in listener.filter_chains.iter().chain(&listener.default_filter_chain) {
                found.add_chain(chain);
            }
        }
        found
    }

    fn add_cluster(&mut self, cluster: Cluster) {
        let matched = cluster.transport_socket_matches.iter().filter_map(|one| one.transport_socket.as_ref());
        for socket in cluster.transport_socket.iter().chain(matched) {
            self.add_socket(socket);
        }
        let eds = ClusterDiscoveryType::Type(DiscoveryType::Eds as i32);
        if cluster.cluster_discovery_type == Some(eds) {
            let service = cluster.eds_cluster_config.map(|config| config.service_name).unwrap_or_default();
            self.assignments.insert(if service.is_empty() { cluster.name } else { service });
        }
    }

    fn add_chain(&mut self, chain: &FilterChain) {
        if let Some(socket) = &chain.transport_socket {
            self.add_socket(socket);
        }
        for filter in &chain.filters {
            match &filter.config_type {
                Some(FilterConfig::TypedConfig(config)) => {
                    if let Ok(manager) = config.unpack::<HttpConnectionManager>() {
                        self.add_manager(manager);
                    }
                }
                Some(FilterConfig::ConfigDiscovery(_)) => {
                    self.extensions.insert(filter.name.clone());
                }
                None => {}
            }
        }
    }

    fn add_manager(&mut self, manager: HttpConnectionManager) {
        if let Some(RouteSpecifier::Rds(rds)) = manager.route_specifier {
            self.routes.insert(rds.route_config_name);
        }
        for filter in manager.http_filters {
            if matches!(filter.config_type, Some(HttpFilterConfig::ConfigDiscovery(_))) {
                self.extensions.insert(filter.name);
            }
        }
    }

    fn add_socket(&mut self, socket: &TransportSocket) {
        let Some(transport_socket::ConfigType::TypedConfig(config)) = &socket.config_type else { return };
        let common = if let Ok(context) = config.unpack::<UpstreamTlsContext>() {
            context.common_tls_context
        } else if let Ok(context) = config.unpack::<DownstreamTlsContext>() {
            context.common_tls_context
        } else if let Ok(quic) = config.unpack::<QuicDownstreamTransport>() {
            quic.downstream_tls_context.and_then(|context| context.common_tls_context)
        } else {
            None
        };
        if let Some(common) = common {
            self.add_tls(&common);
        }
    }

    fn add_tls(&mut self, common: &CommonTlsContext) {
        let roots = match &common.validation_context_type {
            Some(ValidationContextType::CombinedValidationContext(combined)) => {
                combined.validation_context_sds_secret_config.as_ref()
            }
            Some(ValidationContextType::ValidationContextSdsSecretConfig(secret)) => Some(secret),
            _ => None,
        };
        let secrets = common.tls_certificate_sds_secret_configs.iter().chain(roots);
        self.secrets
            .extend(secrets.filter(|secret| is_on_same_stream(secret)).map(|secret| secret.name.clone()));
    }
}

fn is_on_same_stream(secret: &SdsSecretConfig) -> bool {
    let source = secret.sds_config.as_ref().and_then(|config| config.config_source_specifier.as_ref());
    matches!(source, Some(ConfigSourceSpecifier::Ads(_)))
}
