//! Endpoints (EDS).

use std::collections::BTreeMap;

use canopus_engine::{Ctx, Query};
use canopus_mesh::endpoint::{Endpoint, Endpoints};
use canopus_mesh::proxy::View;
use canopus_mesh::service::{Service, ServicesByHost};
use canopus_proto::envoy::config::core::v3::{
    Address, Locality, Metadata, Pipe, SocketAddress, address, socket_address::PortSpecifier,
};
use canopus_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use canopus_proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint as Target, LbEndpoint, LocalityLbEndpoints,
};
use canopus_proto::google::protobuf::Struct;
use canopus_proto::resource::Resource;
use std::sync::Arc;

use crate::names;

/// The endpoints of one cluster, by its name. A cluster nobody knows has none.
pub struct Assignment;

impl Query for Assignment {
    const NAME: &'static str = "assignment";
    type Key = (View, String);
    type Value = Option<Resource>;

    fn run(ctx: &Ctx<'_>, (_, cluster): &Self::Key) -> Option<Resource> {
        let endpoints = match names::parse_outbound_cluster(cluster) {
            Some((port, _subset, host)) => {
                let services = ctx.get::<ServicesByHost>(&Arc::from(host));
                let of = |service: &Arc<_>| endpoints_at(ctx, service, port);
                services.values().next().map(of).unwrap_or_default()
            }
            None => Vec::new(),
        };
        let assignment = ClusterLoadAssignment {
            cluster_name: cluster.clone(),
            endpoints: by_locality(&endpoints),
            ..Default::default()
        };
        Some(Resource::encode(cluster.as_str(), &assignment))
    }
}

fn endpoints_at(ctx: &Ctx<'_>, service: &Service, port: u32) -> Vec<Arc<Endpoint>> {
    let name = service.port(port).map_or("", |port| &port.name);
    let all = ctx.get::<Endpoints>(&service.key());
    all.iter().filter(|endpoint| endpoint.is_for(name, port)).cloned().collect()
}

fn by_locality(endpoints: &[Arc<Endpoint>]) -> Vec<LocalityLbEndpoints> {
    let mut groups: BTreeMap<&str, Vec<&Endpoint>> = BTreeMap::new();
    for endpoint in endpoints {
        groups.entry(&endpoint.workload.locality).or_default().push(endpoint);
    }
    groups
        .into_iter()
        .map(|(place, members)| LocalityLbEndpoints {
            locality: Some(locality(place)),
            load_balancing_weight: Some(members.iter().map(|e| e.weight.max(1)).sum::<u32>().into()),
            lb_endpoints: members.into_iter().map(lb_endpoint).collect(),
            ..Default::default()
        })
        .collect()
}

fn locality(place: &str) -> Locality {
    let mut parts = place.splitn(3, '/').map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    Locality { region: next(), zone: next(), sub_zone: next() }
}

fn lb_endpoint(endpoint: &Endpoint) -> LbEndpoint {
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(Target {
            address: Some(address(endpoint)),
            ..Default::default()
        })),
        load_balancing_weight: Some(endpoint.weight.max(1).into()),
        metadata: Some(metadata(endpoint)),
        ..Default::default()
    }
}

fn address(endpoint: &Endpoint) -> Address {
    let address = match endpoint.port {
        0 => address::Address::Pipe(Pipe { path: endpoint.address().into(), ..Default::default() }),
        _ => address::Address::SocketAddress(SocketAddress {
            address: endpoint.address().to_owned(),
            port_specifier: Some(PortSpecifier::PortValue(endpoint.port)),
            ..Default::default()
        }),
    };
    Address { address: Some(address) }
}

/// `workload;namespace;canonical name;canonical revision;cluster`, read by the client proxy's telemetry.
fn metadata(endpoint: &Endpoint) -> Metadata {
    let workload = format!(
        "{0};{1};{0};;{2}",
        endpoint.workload.name, endpoint.workload.namespace, endpoint.workload.cluster
    );
    let istio = Struct::from(BTreeMap::from([("workload".to_owned(), workload.into())]));
    Metadata { filter_metadata: BTreeMap::from([("istio".to_owned(), istio)]), ..Default::default() }
}
