//! Name tables (NDS): what an agent answers DNS queries of its workload with.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use canopus_base::net::parse_ip;
use canopus_engine::{Ctx, Query};
use canopus_mesh::audience::{Addressing, is_in_network};
use canopus_mesh::endpoint::{Endpoint, Endpoints, Health};
use canopus_mesh::list::List;
use canopus_mesh::scope::scope;
use canopus_mesh::service::{NO_ADDRESS, Registry, Resolution, Service, known_addresses};
use canopus_proto::fields::{name_info, name_table};
use canopus_proto::istio::networking::nds::v1::NameTable;
use canopus_proto::resource::Resource;
use canopus_proto::wire::ProtoWriter;
use canopus_runtime::flags::ENABLE_MULTICLUSTER_HEADLESS;

use crate::audience::{NameTableAudience, Shared};
use crate::env::Inputs;
use crate::pool;

/// What name tables are generated from.
type Env<'a> = Inputs<'a, NameTableKey>;

/// The domain of services that clusters share. They have no short names: those mean the cluster's own services.
const SHARED_DOMAIN: &str = ".clusterset.local";

/// Room for an entry that is not out of the ordinary.
const USUAL_SIZE: usize = 128;

/// The name table of an audience. It is the one resource of its type and has no name.
pub struct NameTables;

impl Query for NameTables {
    const NAME: &'static str = "name_table";
    type Key = Shared<NameTableAudience>;
    type Value = Resource;

    fn run(ctx: &Ctx<'_>, audience: &Shared<NameTableAudience>) -> Resource {
        let scope = scope(ctx, &audience.caller.scope);
        let services: Vec<_> = scope.listeners.iter().map(|listener| listener.services.clone()).collect();
        let mut addressing = audience.addressing.clone();
        let is_allocated =
            |service: &Arc<Service>| service.allocated_v4.is_some() || service.allocated_v6.is_some();
        addressing.uses_allocated &= services.iter().flatten().any(is_allocated);
        let key = NameTableKey { services, addressing, network: audience.network.clone() };
        ctx.get::<NameTableOf>(&key).as_ref().clone()
    }
}

/// Identifies a name table: proxies that see the same services from the same network share one.
#[derive(Clone, PartialEq, Eq)]
struct NameTableKey {
    /// The services, by egress listener.
    services: Vec<List<Service>>,
    addressing: Addressing,
    network: Arc<str>,
}

impl Hash for NameTableKey {
    /// Which services are seen is hashed in part: there are few lists of one length.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.addressing, &self.network).hash(state);
        for services in &self.services {
            (services.len(), services.iter().next().map(|service| &service.host)).hash(state);
        }
    }
}

impl fmt::Debug for NameTableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let services = self.services.iter().map(List::len).sum::<usize>();
        write!(f, "{services} services from {:?} in {:?}", self.network, self.addressing)
    }
}

struct NameTableOf;

impl Query for NameTableOf {
    const NAME: &'static str = "name_table_of";
    type Key = NameTableKey;
    type Value = Resource;

    fn run(ctx: &Ctx<'_>, key: &NameTableKey) -> Resource {
        pool::NAME_TABLES.share(Resource::new("", table(&Env::new(ctx, key))))
    }
}

/// The addresses that one service or instance gives to a name.
struct Entry<'a> {
    name: Cow<'a, str>,
    ips: Cow<'a, [String]>,
    registry: Registry,
    shortname: Cow<'a, str>,
    namespace: &'a str,
    /// Whether it stands for an instance and not for a service.
    is_instance: bool,
}

/// The encoded table.
fn table(env: &Env<'_>) -> Vec<u8> {
    let mut said = Vec::new();
    for service in env.audience.services.iter().flatten() {
        add(env, service, &mut said);
    }
    // Stable: entries of one name keep the order of their services.
    said.sort_by(|a, b| a.name.cmp(&b.name));
    let mut table = ProtoWriter::with_capacity(said.len() * USUAL_SIZE);
    let mut said = said.into_iter().peekable();
    while let Some(mut entry) = said.next() {
        while let Some(later) = said.next_if(|later| later.name == entry.name) {
            entry.merge(later);
        }
        entry.write(&mut table);
    }
    table.into_vec()
}

impl Entry<'_> {
    /// Merges a later entry of the same name.
    fn merge(&mut self, later: Self) {
        let is_kubernetes = later.registry == Registry::Kubernetes;
        if later.is_instance || (self.registry == Registry::External && is_kubernetes) {
            // An entry that only decorates Kubernetes' gives way to it.
            *self = later;
        } else if self.registry == Registry::External {
            // An entry may have several addresses, each a service.
            self.ips.to_mut().extend(later.ips.into_owned());
        }
    }

    fn write(&self, table: &mut ProtoWriter<NameTable>) {
        table.nested_entry(name_table::TABLE, &self.name, |info| {
            self.ips.iter().for_each(|ip| info.string(name_info::IPS, ip));
            info.string(name_info::REGISTRY, registry(self.registry));
            info.string(name_info::SHORTNAME, &self.shortname);
            info.string(name_info::NAMESPACE, self.namespace);
        });
    }
}

fn registry(registry: Registry) -> &'static str {
    match registry {
        Registry::Kubernetes => "Kubernetes",
        Registry::External => "External",
    }
}

/// Adds the entries of a service and, if it is headless, of its instances.
fn add<'a>(env: &Env<'_>, service: &'a Service, said: &mut Vec<Entry<'a>>) {
    let mut ips = known_addresses(&env.settings, service, &env.audience.addressing);
    if ips.iter().any(|address| address == NO_ADDRESS) {
        ips = if service.resolution == Resolution::Passthrough && !service.ports.is_empty() {
            add_instances(env, service, said).into()
        } else {
            Cow::Borrowed(&[])
        };
    }
    // Ranges of addresses name nothing.
    if !ips.iter().all(|address| is_ip(address)) {
        ips.to_mut().retain(|address| is_ip(address));
    }
    if ips.is_empty() {
        return;
    }
    // The agent derives `a`, `a.ns` and so on by itself.
    let has_short_name = service.is_kubernetes() && !service.host.ends_with(SHARED_DOMAIN);
    let (shortname, namespace) =
        if has_short_name { (&*service.name, &*service.namespace) } else { Default::default() };
    said.push(Entry {
        name: Cow::Borrowed(&service.host),
        ips,
        registry: service.registry,
        shortname: shortname.into(),
        namespace,
        is_instance: false,
    });
}

/// The addresses of a service without one: its instances. Those with a name of their own get an entry of their own.
fn add_instances<'a>(env: &Env<'_>, service: &'a Service, said: &mut Vec<Entry<'a>>) -> Vec<String> {
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
        let reachable = is_in_network(&env.audience.network, &workload.network);
        let here = env.audience.addressing.is_in_cluster(&workload.cluster);
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
    said.extend(named.into_iter().map(|((name, shortname), [here, elsewhere])| Entry {
        name: name.into(),
        ips: if here.is_empty() { elsewhere } else { here }.into(),
        registry: service.registry,
        shortname: shortname.into(),
        namespace: &service.namespace,
        is_instance: true,
    }));
    all
}

fn has_only_ips(endpoint: &Arc<Endpoint>) -> bool {
    endpoint.addresses.iter().all(|address| is_ip(address))
}

fn is_ip(address: &str) -> bool {
    parse_ip(address).is_ok()
}
