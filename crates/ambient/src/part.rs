//! Addresses part by part: what one object or one namespace adds is encoded once, so that a change costs its own part and the
//! putting together.

use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::world::{Origin, settings};
use canopus_proto::istio::workload::{Address, Service, Workload, address::Type};
use canopus_proto::resource::Resource;
use canopus_runtime::flags::AMBIENT_ENABLE_MULTI_NETWORK;

use crate::workload::{self, WorkloadsOf};
use crate::{service, service_name};

/// Every workload and service, by name.
pub(crate) fn all(ctx: &Ctx<'_>) -> Vec<Resource> {
    let mut addresses = Vec::new();
    let is_near = workload::nearness(ctx);
    workload::each_object(ctx, |origin| {
        let workloads = ctx.get::<WorkloadsOf>(origin);
        let encoded = ctx.get::<WorkloadAddresses>(origin);
        let near = workloads.iter().zip(encoded.iter()).filter(|(workload, _)| is_near(workload));
        addresses.extend(near.map(|(_, address)| address.clone()));
    });
    addresses.extend(workload::beyond(ctx).iter().map(of_workload));
    if settings(ctx).flags.get(AMBIENT_ENABLE_MULTI_NETWORK) {
        // What a service is depends on all clusters then.
        addresses.extend(service::all(ctx).into_iter().map(of_service));
    } else {
        for place in service::places(ctx) {
            addresses.extend(ctx.get::<ServiceAddresses>(&place).iter().cloned());
        }
    }
    addresses.sort_by(|a, b| a.name.cmp(&b.name));
    addresses
}

/// The workloads that an object is or lists, as addresses, in the order of [`WorkloadsOf`].
struct WorkloadAddresses;

impl Query for WorkloadAddresses {
    const NAME: &'static str = "ambient_workload_addresses";
    type Key = Origin;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        ctx.get::<WorkloadsOf>(origin).iter().map(|workload| of_workload(workload)).collect()
    }
}

/// The services of a cluster and namespace as addresses, where there is one network.
struct ServiceAddresses;

impl Query for ServiceAddresses {
    const NAME: &'static str = "ambient_service_addresses";
    type Key = (Arc<str>, Arc<str>);
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, place: &Self::Key) -> Self::Value {
        service::of_place(ctx, place).into_iter().map(of_service).collect()
    }
}

fn of_workload(workload: &Workload) -> Resource {
    let kind = Type::Workload(workload.clone());
    Resource::encode(workload.uid.as_str(), &Address { r#type: Some(kind) })
}

fn of_service(service: Service) -> Resource {
    let name = service_name(&service);
    Resource::encode(name, &Address { r#type: Some(Type::Service(service)) })
}
