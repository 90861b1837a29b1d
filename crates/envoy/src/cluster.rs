//! Clusters (CDS).

use std::collections::BTreeMap;

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::{Proxy, View, ViewOf};
use canopus_mesh::service::{AllServices, Port, Resolution, Service};
use canopus_mesh::world::{MeshSettings, settings};
use canopus_proto::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use canopus_proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CommonLbConfig, DiscoveryType, EdsClusterConfig, LbPolicy,
};
use canopus_proto::envoy::config::cluster::v3::{CircuitBreakers, Cluster};
use canopus_proto::envoy::config::core::v3::Metadata;
use canopus_proto::envoy::r#type::v3::Percent;
use canopus_proto::google::protobuf::{Duration, ListValue, Struct, Value};
use canopus_proto::resource::Resource;

use crate::names::{self, BLACK_HOLE};
use crate::resources::Resources;
use crate::telemetry;

/// Every cluster of a proxy.
pub struct Clusters;

impl Query for Clusters {
    const NAME: &'static str = "clusters";
    type Key = Proxy;
    type Value = Resources;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Resources {
        let view = ctx.get::<ViewOf>(proxy);
        let settings = settings(ctx);
        let mut clusters = vec![black_hole(settings.mesh.connect_timeout)];
        for service in ctx.get::<AllServices>(&()).iter() {
            clusters
                .extend(service.ports.iter().filter_map(|port| outbound(&view, service, port, &settings)));
        }
        let encode = |cluster: &Cluster| Resource::encode(cluster.name.as_str(), cluster);
        clusters.iter().map(encode).collect::<Vec<_>>().into()
    }
}

/// Where traffic goes that may go nowhere.
fn black_hole(connect_timeout: Option<Duration>) -> Cluster {
    Cluster {
        name: BLACK_HOLE.into(),
        alt_stat_name: names::stat_name(BLACK_HOLE),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static as i32)),
        connect_timeout,
        ..Default::default()
    }
}

/// The cluster of one port of a service whose endpoints the control plane lists.
fn outbound(view: &View, service: &Service, port: &Port, settings: &MeshSettings) -> Option<Cluster> {
    if service.resolution != Resolution::Listed {
        return None;
    }
    let name = names::outbound_cluster(&service.host, port.number, "");
    Some(Cluster {
        alt_stat_name: names::stat_name(&name),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(names::ads()),
            service_name: name.clone(),
        }),
        connect_timeout: settings.mesh.connect_timeout,
        lb_policy: LbPolicy::LeastRequest as i32,
        circuit_breakers: Some(unlimited()),
        common_lb_config: Some(CommonLbConfig {
            healthy_panic_threshold: Some(Percent::default()),
            ..Default::default()
        }),
        metadata: Some(metadata(service)),
        filters: telemetry::peer_metadata::upstream(settings, view).into_iter().collect(),
        name,
        ..Default::default()
    })
}

/// Envoy's own limits (1,024 of each) would surprise users who set none.
fn unlimited() -> CircuitBreakers {
    let all = Some(u32::MAX.into());
    CircuitBreakers {
        thresholds: vec![Thresholds {
            max_connections: all,
            max_pending_requests: all,
            max_requests: all,
            max_retries: all,
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// What the proxy's telemetry and EnvoyFilters know a cluster by.
fn metadata(service: &Service) -> Metadata {
    // A service without a Kubernetes name is named by its host.
    let fields: [(&str, &str); 3] =
        [("host", &service.host), ("name", &service.host), ("namespace", &service.namespace)];
    let described: BTreeMap<_, _> = fields.into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
    let services = ListValue::from(vec![Value::from(Struct::from(described))]);
    let mut istio = BTreeMap::from([("services".to_owned(), Value::from(services))]);
    if service.external {
        istio.insert("external".to_owned(), true.into());
    }
    Metadata {
        filter_metadata: BTreeMap::from([("istio".to_owned(), Struct::from(istio))]),
        ..Default::default()
    }
}
