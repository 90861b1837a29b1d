//! What ztunnels are told.

use std::net::IpAddr;

use bytes::Bytes;
use canopus_ambient::{Addresses, Authorizations};
use canopus_engine::QueryError;
use canopus_proto::istio::security::Authorization;
use canopus_proto::istio::workload::address::Type;
use canopus_proto::istio::workload::gateway_address::Destination;
use canopus_proto::istio::workload::{Address, GatewayAddress, NetworkAddress, Service, Workload};
use canopus_proto::{Message as _, json};
use serde_json::{Value, json};

use super::{Answer, Debug, Question};

impl Debug {
    /// Workloads, services and policies, each in the order of their names.
    ///
    /// Parity: a list of nothing is null, and bytes of addresses are written as the bytes of their text.
    pub(super) fn ambientz(&self, question: &Question) -> Result<Answer, QueryError> {
        let (mut workloads, mut services) = (Vec::new(), Vec::new());
        for resource in self.engine().get::<Addresses>(&())?.iter() {
            match Address::decode(resource.body.clone()).ok().and_then(|address| address.r#type) {
                Some(Type::Workload(workload)) => {
                    workloads.push(json::write(&readable_workload(workload)).to_json());
                }
                Some(Type::Service(service)) => {
                    services.push(json::write(&readable_service(service)).to_json());
                }
                None => {}
            }
        }
        let policies = self.engine().get::<Authorizations>(&())?;
        let policies =
            policies.iter().filter_map(|resource| Authorization::decode(resource.body.clone()).ok());
        let policies = policies.map(|policy| json::write(&policy).to_json()).collect();
        let all = json!({
            "workloads": or_null(workloads), "services": or_null(services), "policies": or_null(policies),
        });
        Ok(Answer::json(question, &all))
    }
}

fn or_null(items: Vec<Value>) -> Value {
    if items.is_empty() { Value::Null } else { Value::from(items) }
}

fn readable_workload(mut workload: Workload) -> Workload {
    workload.addresses = workload.addresses.into_iter().map(text_of).collect();
    workload.waypoint = workload.waypoint.map(readable_gateway);
    workload.network_gateway = workload.network_gateway.map(readable_gateway);
    workload
}

fn readable_service(mut service: Service) -> Service {
    service.addresses = service.addresses.into_iter().map(readable_address).collect();
    service.waypoint = service.waypoint.map(readable_gateway);
    service
}

fn readable_gateway(gateway: GatewayAddress) -> GatewayAddress {
    let destination = gateway.destination.map(|destination| match destination {
        Destination::Address(address) => Destination::Address(readable_address(address)),
        host @ Destination::Hostname(_) => host,
    });
    GatewayAddress { destination, ..gateway }
}

fn readable_address(address: NetworkAddress) -> NetworkAddress {
    NetworkAddress { address: text_of(address.address), ..address }
}

/// The text of an address, as bytes; what is no address stays as it is.
fn text_of(bytes: Bytes) -> Bytes {
    let four = <[u8; 4]>::try_from(&bytes[..]).map(IpAddr::from);
    let address = four.or_else(|_| <[u8; 16]>::try_from(&bytes[..]).map(IpAddr::from));
    address.map_or(bytes, |address| Bytes::from(address.to_string()))
}
