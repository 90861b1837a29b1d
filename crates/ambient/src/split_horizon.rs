//! Split horizon: the workloads of a service in another network are one workload, reached through the network's gateway.

use std::collections::{BTreeMap, BTreeSet};

use canopus_base::spiffe::Identity;
use canopus_engine::Ctx;
use canopus_mesh::network::HBONE_PORT;
use canopus_mesh::world::settings;
use canopus_proto::istio::workload::{
    GatewayAddress, PortList, Service, TunnelProtocol, Workload, WorkloadType,
};
use canopus_runtime::flags::AMBIENT_ENABLE_MULTI_NETWORK;

use crate::network::{self, Gateways};
use crate::trust_domain::trust_domain;
use crate::{service, workload};

/// Builds one workload for each pair of another network and a global service.
pub(crate) fn workloads(ctx: &Ctx<'_>) -> Vec<Workload> {
    let settings = settings(ctx);
    if !settings.flags.get(AMBIENT_ENABLE_MULTI_NETWORK) {
        return Vec::new();
    }
    let own = network::network_of_cluster(ctx, &settings.cluster);
    let mut capacities: BTreeMap<(String, String), u32> = BTreeMap::new();
    for remote in workload::in_all_clusters(ctx).iter().filter(|workload| workload.network != own) {
        let capacity = remote.capacity.as_ref().map_or(0, |capacity| capacity.value).max(1);
        for service in remote.services.keys() {
            *capacities.entry((remote.network.clone(), service.clone())).or_default() += capacity;
        }
    }
    let services = service::merged(ctx);
    let gateways = ctx.get::<Gateways>(&());
    let mut found = Vec::new();
    for ((network, key), capacity) in capacities {
        let Some(info) = services.get(&key).filter(|info| info.is_global) else { continue };
        let Some(gateway) = gateways.iter().find(|gateway| gateway.network == network) else { continue };
        let uid = format!(
            "{network}/SplitHorizonWorkload/{}/{}/{}/{key}",
            gateway.namespace, gateway.name, gateway.address
        );
        found.push(Workload {
            name: uid.clone(),
            uid,
            namespace: info.service.namespace.clone(),
            network,
            trust_domain: trust_domain(ctx),
            capacity: Some(capacity.into()),
            workload_type: WorkloadType::Pod as i32,
            tunnel_protocol: TunnelProtocol::Hbone as i32,
            network_gateway: Some(GatewayAddress {
                hbone_mtls_port: if gateway.port == 0 { HBONE_PORT } else { gateway.port },
                destination: Some(gateway.destination()),
            }),
            cluster_id: gateway.cluster.to_string(),
            services: BTreeMap::from([(key, PortList { ports: info.service.ports.clone() })]),
            ..Default::default()
        });
    }
    found
}

/// Adds the identities of remote workloads to global services, because clients do not receive those workloads.
pub(crate) fn name_remote_accounts(ctx: &Ctx<'_>, services: &mut [Service]) {
    let settings = settings(ctx);
    if !settings.flags.get(AMBIENT_ENABLE_MULTI_NETWORK) {
        return;
    }
    let own = network::network_of_cluster(ctx, &settings.cluster);
    let infos = service::merged(ctx);
    let mut accounts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for remote in workload::in_all_clusters(ctx).iter().filter(|workload| workload.network != own) {
        let identity = Identity::new(settings.trust_domain(), &remote.namespace, &remote.service_account);
        let Ok(identity) = identity else { continue };
        for service in remote.services.keys() {
            accounts.entry(service.clone()).or_default().insert(identity.to_string());
        }
    }
    for service in services {
        let key = format!("{}/{}", service.namespace, service.hostname);
        let is_global = infos.get(&key).is_some_and(|info| info.is_global);
        if let Some(found) = accounts.get(&key).filter(|_| is_global) {
            let known = service.subject_alt_names.iter().cloned();
            service.subject_alt_names =
                known.chain(found.iter().cloned()).collect::<BTreeSet<_>>().into_iter().collect();
        }
    }
}
