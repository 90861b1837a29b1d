//! On-demand lookup of workloads and services.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::world::settings;
use canopus_proto::istio::workload::{Address, Service, Workload, address::Type};
use canopus_proto::resource::Resource;
use canopus_runtime::flags::PILOT_ENABLE_AMBIENT;

use crate::{addresses, service_name};

/// A request on demand: for a single name, or for all workloads of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// A name: the unique id of a workload, `namespace/host` of a service, or `network/address` of either.
    Name(Arc<str>),
    /// The workloads of a node.
    Node(Arc<str>),
}

/// The type of resource a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// Workloads and services as addresses.
    Address,
    /// Workloads only.
    Workload,
}

/// The resources that answer a question. A service comes with its workloads.
pub struct Lookup;

impl Query for Lookup {
    const NAME: &'static str = "ambient_lookup";
    type Key = (Form, Question);
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, (form, question): &Self::Key) -> Self::Value {
        let directory = ctx.get::<Directory>(&());
        let found = match question {
            Question::Name(name) => directory.named(name),
            Question::Node(node) => directory.on_node(node),
        };
        let resources = found.into_iter().map(|entry| match form {
            Form::Address => Some(&entry.address),
            Form::Workload => entry.workload.as_ref(),
        });
        resources.flatten().cloned().collect()
    }
}

/// All workloads and services, indexed for lookup.
struct Directory;

impl Query for Directory {
    const NAME: &'static str = "ambient_directory";
    type Key = ();
    type Value = Entries;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let mut entries = Entries::default();
        if settings(ctx).flags.get(PILOT_ENABLE_AMBIENT) {
            addresses::all_workloads(ctx).iter().for_each(|workload| entries.add_workload(workload));
            addresses::all_services(ctx).into_iter().for_each(|service| entries.add_service(service));
        }
        entries
    }
}

/// A workload or service as resources of each type.
#[derive(PartialEq)]
struct Entry {
    address: Resource,
    workload: Option<Resource>,
}

/// Positions of entries by key.
type Index = BTreeMap<String, Vec<usize>>;

#[derive(Default, PartialEq)]
struct Entries {
    all: Vec<Entry>,
    workloads: Index,
    workloads_at: Index,
    workloads_of: Index,
    workloads_on: Index,
    services: Index,
    services_at: Index,
}

impl Entries {
    fn add_workload(&mut self, workload: &Workload) {
        let at = self.all.len();
        let addresses = workload.addresses.iter();
        let aliases: Vec<String> =
            addresses.filter_map(|octets| alias(&workload.network, octets, None)).collect();
        for alias in &aliases {
            self.workloads_at.entry(alias.clone()).or_default().push(at);
        }
        for service in workload.services.keys() {
            self.workloads_of.entry(service.clone()).or_default().push(at);
        }
        self.workloads_on.entry(workload.node.clone()).or_default().push(at);
        self.workloads.entry(workload.uid.clone()).or_default().push(at);
        let name = workload.uid.as_str();
        let kind = Type::Workload(workload.clone());
        let address = Resource::encode(name, &Address { r#type: Some(kind) });
        self.all.push(Entry {
            address: address.with_aliases(aliases.iter().map(String::as_str)),
            workload: Some(Resource::encode(name, workload).with_aliases(aliases)),
        });
    }

    fn add_service(&mut self, service: Service) {
        let at = self.all.len();
        let addresses = service.addresses.iter();
        let aliases: Vec<String> =
            addresses.filter_map(|one| alias(&one.network, &one.address, one.length)).collect();
        for alias in &aliases {
            self.services_at.entry(alias.clone()).or_default().push(at);
        }
        let name = service_name(&service);
        self.services.entry(name.clone()).or_default().push(at);
        let address = Resource::encode(name, &Address { r#type: Some(Type::Service(service)) });
        self.all.push(Entry { address: address.with_aliases(aliases), workload: None });
    }

    /// Finds entries by name. Workloads win over services with the same address.
    fn named(&self, name: &str) -> Vec<&Entry> {
        let workloads = self.workloads.get(name).or_else(|| self.workloads_at.get(name));
        if let Some(workloads) = workloads {
            return self.at(workloads);
        }
        let service = self.services.get(name).or_else(|| self.services_at.get(name));
        let Some(service) = service.and_then(|services| services.first()) else { return Vec::new() };
        let mut found = self.at(&[*service]);
        let members = self.workloads_of.get(&*self.all[*service].address.name);
        found.extend(members.into_iter().flat_map(|members| self.at(members)));
        found
    }

    fn on_node(&self, node: &str) -> Vec<&Entry> {
        self.workloads_on.get(node).map(|found| self.at(found)).unwrap_or_default()
    }

    fn at(&self, positions: &[usize]) -> Vec<&Entry> {
        positions.iter().map(|at| &self.all[*at]).collect()
    }
}

/// The name of an address in lookups: `network/address`, with the prefix length if it is a range.
fn alias(network: &str, octets: &[u8], length: Option<u32>) -> Option<String> {
    let address: IpAddr = match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok()?.into(),
        _ => <[u8; 16]>::try_from(octets).ok()?.into(),
    };
    let length = length.map(|length| format!("/{length}")).unwrap_or_default();
    Some(format!("{network}/{address}{length}"))
}
