//! Name tables (NDS): what an agent answers DNS queries of its workload with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_base::net::parse_ip;
use canopus_engine::{Ctx, Query};
use canopus_mesh::endpoint::{Endpoint, Endpoints, Health};
use canopus_mesh::proxy::View;
use canopus_mesh::scope::scope;
use canopus_mesh::service::{NO_ADDRESS, Registry, Resolution, Service, addresses_for};
use canopus_proto::istio::networking::nds::v1::NameTable;
use canopus_proto::istio::networking::nds::v1::name_table::NameInfo;
use canopus_proto::resource::Resource;
use canopus_runtime::flags::ENABLE_MULTICLUSTER_HEADLESS;

use crate::env::Env;

/// The domain of services that clusters share. They have no short names: those mean the cluster's own services.
const SHARED_DOMAIN: &str = ".clusterset.local";

/// The name table of a view. It is the one resource of its type and has no name.
pub struct NameTables;

impl Query for NameTables {
    const NAME: &'static str = "name_table";
    type Key = View;
    type Value = Resource;

    fn run(ctx: &Ctx<'_>, view: &View) -> Resource {
        Resource::encode("", &table(&Env::new(ctx, view)))
    }
}

fn table(env: &Env<'_>) -> NameTable {
    let mut table = BTreeMap::new();
    for listener in &scope(env.ctx, env.view).listeners {
        for service in &listener.services {
            add(env, service, &mut table);
        }
    }
    NameTable { table }
}

fn add(env: &Env<'_>, service: &Service, table: &mut BTreeMap<String, NameInfo>) {
    let mut addresses = addresses_for(env.ctx, service, env.view);
    if addresses.iter().any(|address| address == NO_ADDRESS) {
        addresses = if service.resolution == Resolution::Passthrough && !service.ports.is_empty() {
            of_instances(env, service, table)
        } else {
            Vec::new()
        };
    }
    // Ranges of addresses name nothing.
    addresses.retain(|address| parse_ip(address).is_ok());
    if addresses.is_empty() {
        return;
    }
    let info = NameInfo { ips: addresses, registry: registry(service).to_owned(), ..short_name(service) };
    match table.get_mut(&*service.host) {
        None => {
            table.insert(service.host.to_string(), info);
        }
        // An entry may have several addresses, each a service; one that only decorates Kubernetes' gives way to it.
        Some(present) if present.registry == EXTERNAL && !service.is_kubernetes() => {
            present.ips.extend(info.ips);
        }
        Some(present) if present.registry == EXTERNAL => *present = info,
        Some(_) => {}
    }
}

const EXTERNAL: &str = "External";

fn registry(service: &Service) -> &'static str {
    match service.registry {
        Registry::Kubernetes => "Kubernetes",
        Registry::External => EXTERNAL,
    }
}

/// The agent derives `a`, `a.ns` and so on by itself.
fn short_name(service: &Service) -> NameInfo {
    if !service.is_kubernetes() || service.host.ends_with(SHARED_DOMAIN) {
        return NameInfo::default();
    }
    NameInfo {
        shortname: service.name.to_string(),
        namespace: service.namespace.to_string(),
        ..Default::default()
    }
}

/// The addresses of a service without one: its instances. Those with a name of their own get an entry of their own.
fn of_instances(env: &Env<'_>, service: &Service, table: &mut BTreeMap<String, NameInfo>) -> Vec<String> {
    let early = service.kube.as_ref().is_some_and(|kube| kube.publish_not_ready);
    let across = env.flag(ENABLE_MULTICLUSTER_HEADLESS);
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    let mut named: BTreeMap<(String, String), [Vec<String>; 2]> = BTreeMap::new();
    for endpoint in env.ctx.get::<Endpoints>(&service.key()).iter() {
        let ready = early || endpoint.health == Health::Healthy;
        let usable = ready && !endpoint.addresses.is_empty() && has_only_ips(endpoint);
        if !usable || !seen.insert(endpoint.address().to_owned()) {
            continue;
        }
        let workload = &endpoint.workload;
        let reachable = env.view.is_in_network(&workload.network);
        let here = env.view.is_in_cluster(&workload.cluster);
        let addresses = || endpoint.addresses.iter().map(ToString::to_string);
        if let (Some((host, subdomain)), true) = (&workload.host_name, reachable) {
            let Some((_, domain)) = service.host.split_once('.') else { continue };
            let short = format!("{host}.{subdomain}");
            let of_name = named.entry((format!("{short}.{domain}"), short)).or_default();
            of_name[usize::from(!here)].extend(addresses());
        }
        if reachable && (here || across) {
            all.extend(addresses());
        }
    }
    for ((host, shortname), [here, elsewhere]) in named {
        table.insert(
            host,
            NameInfo {
                ips: if here.is_empty() { elsewhere } else { here },
                registry: registry(service).to_owned(),
                namespace: service.namespace.to_string(),
                shortname,
                ..Default::default()
            },
        );
    }
    all
}

fn has_only_ips(endpoint: &Arc<Endpoint>) -> bool {
    endpoint.addresses.iter().all(|address| parse_ip(address).is_ok())
}
