//! Configuration of ztunnels: the workloads and services of the ambient mesh, and the policies on connections between them.
//!
//! Everything here is a query over the model in `mesh`. A ztunnel receives all resources, or asks for single ones by name or
//! address; waypoints and sidecars that look up peers receive the same. A workload is named by its unique id, a service by
//! `namespace/host`, a policy by `namespace/name`.
//!
//! This crate does not know Envoy's types, sessions or sockets.

mod address;
mod addresses;
mod authorization;
mod lookup;
mod network;
mod peer_authentication;
mod policies;
mod ports;
mod service;
mod split_horizon;
#[cfg(test)]
mod tests;
mod trust_domain;
mod workload;

pub use self::lookup::{Form, Lookup, Question};

use canopus_api::istio::{AuthorizationPolicy, PeerAuthentication};
use canopus_engine::{Ctx, Query};
use canopus_mesh::world::{all_objects, settings};
use canopus_proto::istio::security::Authorization;
use canopus_proto::istio::workload::Service;
use canopus_proto::resource::Resource;
use canopus_runtime::flags::PILOT_ENABLE_AMBIENT;

/// All workloads and services, sorted by name.
pub struct Addresses;

impl Query for Addresses {
    const NAME: &'static str = "ambient_addresses";
    type Key = ();
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        if !settings(ctx).flags.get(PILOT_ENABLE_AMBIENT) {
            return Vec::new();
        }
        addresses::all(ctx)
    }
}

/// All workloads without services, sorted by name.
pub struct Workloads;

impl Query for Workloads {
    const NAME: &'static str = "ambient_workloads";
    type Key = ();
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        if !settings(ctx).flags.get(PILOT_ENABLE_AMBIENT) {
            return Vec::new();
        }
        let all = addresses::all_workloads(ctx);
        let mut workloads: Vec<_> =
            all.iter().map(|workload| Resource::encode(workload.uid.as_str(), &**workload)).collect();
        workloads.sort_by(|a, b| a.name.cmp(&b.name));
        workloads
    }
}

/// The name of a service: `namespace/host`.
fn service_name(service: &Service) -> String {
    format!("{}/{}", service.namespace, service.hostname)
}

/// All policies that ztunnels enforce, sorted by name.
pub struct Authorizations;

impl Query for Authorizations {
    const NAME: &'static str = "ambient_authorizations";
    type Key = ();
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let settings = settings(ctx);
        if !settings.flags.get(PILOT_ENABLE_AMBIENT) {
            return Vec::new();
        }
        let written = all_objects::<AuthorizationPolicy>(ctx);
        let mut policies: Vec<Authorization> =
            written.iter().filter_map(|(_, policy)| authorization::convert(&settings, policy)).collect();
        let peers = all_objects::<PeerAuthentication>(ctx);
        if !peers.is_empty() {
            policies.push(peer_authentication::strict(settings.root_namespace()));
        }
        policies.extend(peers.iter().filter_map(|(_, policy)| peer_authentication::port_policy(ctx, policy)));
        policies.extend(policies::waypoint_policies(ctx));
        let name = |policy: &Authorization| format!("{}/{}", policy.namespace, policy.name);
        let mut resources: Vec<_> =
            policies.iter().map(|policy| Resource::encode(name(policy), policy)).collect();
        resources.sort_by(|a, b| a.name.cmp(&b.name));
        resources
    }
}
