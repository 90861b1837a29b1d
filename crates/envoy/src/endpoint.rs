//! Endpoints (EDS).

use std::collections::BTreeMap;

use canopus_engine::{Ctx, Query};
use canopus_mesh::service::{Endpoint, Endpoints};
use canopus_proto::envoy::config::core::v3::{
    Address, Locality, Metadata, Pipe, SocketAddress, address, socket_address::PortSpecifier,
};
use canopus_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use canopus_proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint as Target, LbEndpoint, LocalityLbEndpoints,
};
use canopus_proto::google::protobuf::Struct;
use canopus_proto::resource::Resource;

use crate::names;

/// The endpoints of one cluster, by its name. A cluster nobody knows has none.
pub struct Assignment;

impl Query for Assignment {
    const NAME: &'static str = "assignment";
    type Key = String;
    type Value = Resource;

    fn run(ctx: &Ctx<'_>, cluster: &String) -> Resource {
        let endpoints = match names::parse_outbound_cluster(cluster) {
            Some((port, _subset, host)) => ctx.get::<Endpoints>(&(host.into(), port)).to_vec(),
            None => Vec::new(),
        };
        let assignment = ClusterLoadAssignment {
            cluster_name: cluster.clone(),
            endpoints: by_locality(&endpoints),
            ..Default::default()
        };
        Resource::encode(cluster.as_str(), &assignment)
    }
}

fn by_locality(endpoints: &[Endpoint]) -> Vec<LocalityLbEndpoints> {
    let mut groups: BTreeMap<&str, Vec<&Endpoint>> = BTreeMap::new();
    for endpoint in endpoints {
        groups.entry(&endpoint.locality).or_default().push(endpoint);
    }
    groups
        .into_iter()
        .map(|(place, members)| LocalityLbEndpoints {
            locality: Some(locality(place)),
            load_balancing_weight: Some(members.iter().map(|e| e.weight).sum::<u32>().into()),
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
        load_balancing_weight: Some(endpoint.weight.into()),
        metadata: Some(metadata(endpoint)),
        ..Default::default()
    }
}

fn address(endpoint: &Endpoint) -> Address {
    let address = match endpoint.address.strip_prefix("unix://") {
        Some(path) => address::Address::Pipe(Pipe { path: path.into(), ..Default::default() }),
        None => address::Address::SocketAddress(SocketAddress {
            address: endpoint.address.clone(),
            port_specifier: Some(PortSpecifier::PortValue(endpoint.port)),
            ..Default::default()
        }),
    };
    Address { address: Some(address) }
}

/// `workload;namespace;canonical name;canonical revision;cluster`, read by the client proxy's telemetry.
fn metadata(endpoint: &Endpoint) -> Metadata {
    let workload = format!("{0};{1};{0};;{2}", endpoint.workload, endpoint.namespace, endpoint.cluster);
    let istio = Struct::from(BTreeMap::from([("workload".to_owned(), workload.into())]));
    Metadata { filter_metadata: BTreeMap::from([("istio".to_owned(), istio)]), ..Default::default() }
}
