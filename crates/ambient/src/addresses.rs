//! All workloads and services as resources.
//!
//! The resources of one object, or of one namespace, are encoded by a query of their own, so that a change costs its own
//! resources and the list of all.

use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::world::{Origin, settings};
use canopus_proto::istio::workload::{Address, Service, Workload, address::Type};
use canopus_proto::resource::Resource;
use canopus_runtime::flags::AMBIENT_ENABLE_MULTI_NETWORK;

use crate::network::Gateways;
use crate::workload::{self, WorkloadsOf};
use crate::{service, service_name, split_horizon};

/// All workloads and services, sorted by name.
pub(crate) fn all(ctx: &Ctx<'_>) -> Vec<Resource> {
    let mut addresses = Vec::new();
    let is_near = workload::own_network_filter(ctx);
    workload::for_each_object(ctx, |origin| {
        let workloads = ctx.get::<WorkloadsOf>(origin);
        let encoded = ctx.get::<WorkloadAddresses>(origin);
        let near = workloads.iter().zip(encoded.iter()).filter(|(workload, _)| is_near(workload));
        addresses.extend(near.map(|(_, address)| address.clone()));
    });
    addresses.extend(remote_workloads(ctx).iter().map(workload_resource));
    if settings(ctx).flags.get(AMBIENT_ENABLE_MULTI_NETWORK) {
        // With several networks a service is merged over all clusters.
        addresses.extend(all_services(ctx).into_iter().map(service_resource));
    } else {
        for namespace in service::namespaces(ctx) {
            addresses.extend(ctx.get::<ServiceAddresses>(&namespace).iter().cloned());
        }
    }
    addresses.sort_by(|a, b| a.name.cmp(&b.name));
    addresses
}

/// All workloads. Those in other networks are replaced by one per network and service, behind the gateway of the network.
pub(crate) fn all_workloads(ctx: &Ctx<'_>) -> Vec<Arc<Workload>> {
    let is_near = workload::own_network_filter(ctx);
    let mut workloads = workload::in_all_clusters(ctx);
    workloads.retain(|workload| is_near(workload));
    workloads.extend(remote_workloads(ctx).into_iter().map(Arc::new));
    workloads
}

/// The gateways of other networks, and the workloads behind them.
fn remote_workloads(ctx: &Ctx<'_>) -> Vec<Workload> {
    let gateways = ctx.get::<Gateways>(&());
    let mut workloads: Vec<_> = gateways.iter().map(|gateway| gateway.workload(ctx)).collect();
    workloads.extend(split_horizon::workloads(ctx));
    workloads
}

/// All services.
pub(crate) fn all_services(ctx: &Ctx<'_>) -> Vec<Service> {
    let mut services: Vec<_> =
        service::merged(ctx).values().map(|info| service::resource(ctx, info)).collect();
    split_horizon::name_remote_accounts(ctx, &mut services);
    services
}

/// The address resources of an object's workloads, in the order of [`WorkloadsOf`].
struct WorkloadAddresses;

impl Query for WorkloadAddresses {
    const NAME: &'static str = "ambient_workload_addresses";
    type Key = Origin;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        ctx.get::<WorkloadsOf>(origin).iter().map(|workload| workload_resource(workload)).collect()
    }
}

/// The address resources of the services of a namespace in a cluster, in a mesh with one network.
struct ServiceAddresses;

impl Query for ServiceAddresses {
    const NAME: &'static str = "ambient_service_addresses";
    type Key = (Arc<str>, Arc<str>);
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, key: &Self::Key) -> Self::Value {
        service::in_namespace(ctx, key).into_iter().map(service_resource).collect()
    }
}

fn workload_resource(workload: &Workload) -> Resource {
    let kind = Type::Workload(workload.clone());
    Resource::encode(workload.uid.as_str(), &Address { r#type: Some(kind) })
}

fn service_resource(service: Service) -> Resource {
    let name = service_name(&service);
    Resource::encode(name, &Address { r#type: Some(Type::Service(service)) })
}
