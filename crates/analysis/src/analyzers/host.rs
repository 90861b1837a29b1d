//! Which hosts exist, and who sees them.

use std::collections::BTreeMap;

use canopus_api::annotations;
use canopus_api::istio::ServiceEntry;
use canopus_api::kube::Service;

use crate::world::World;

pub(super) const ALL_NAMESPACES: &str = "*";
pub(super) const OWN_NAMESPACE: &str = ".";

const SUFFIX: &str = ".svc.cluster.local";

/// A host and the namespace that sees it, `*` for all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ScopedHost {
    pub(super) scope: String,
    pub(super) host: String,
}

impl ScopedHost {
    pub(super) fn new(scope: &str, namespace: &str, host: &str) -> Self {
        Self { scope: scope.to_owned(), host: qualified(namespace, host) }
    }
}

/// What analyzers look at of a host.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    pub(super) ports: Vec<u32>,
    /// The labels of the workloads behind it.
    pub(super) selector: BTreeMap<String, String>,
}

/// All hosts by who sees them.
pub(super) struct Hosts(BTreeMap<ScopedHost, Host>);

impl Hosts {
    pub(super) fn collect(world: &World) -> Self {
        let mut hosts = BTreeMap::new();
        for (resource, entry) in world.each::<ServiceEntry>() {
            let spec = &entry.spec;
            let selector = spec.workload_selector.as_ref().map(|selector| selector.labels.clone());
            let found = Host {
                ports: spec.ports.iter().map(|port| port.number).collect(),
                selector: selector.unwrap_or_default(),
            };
            for scope in scopes(&spec.export_to, resource.namespace()) {
                for host in &spec.hosts {
                    hosts.insert(ScopedHost::new(&scope, resource.namespace(), host), found.clone());
                }
            }
        }
        for (resource, service) in world.each::<Service>() {
            let ports = service.spec.ports.iter().map(|port| port.port.into()).collect();
            let found = Host { ports, selector: BTreeMap::new() };
            let exported = resource.annotation(&annotations::EXPORT_TO).unwrap_or_default();
            let exported: Vec<String> = exported
                .split(',')
                .map(|scope| scope.trim().to_owned())
                .filter(|scope| !scope.is_empty())
                .collect();
            for scope in scopes(&exported, resource.namespace()) {
                hosts.insert(ScopedHost::new(&scope, resource.namespace(), resource.name()), found.clone());
            }
        }
        Self(hosts)
    }

    /// The host that an object of a namespace means.
    pub(super) fn find(&self, namespace: &str, export_to: &[String], host: &str) -> Option<&Host> {
        let in_scope = |scope: &str| self.0.get(&ScopedHost::new(scope, namespace, host));
        if let Some(found) = in_scope(ALL_NAMESPACES) {
            return Some(found);
        }
        let own = [OWN_NAMESPACE.to_owned()];
        let scopes = if export_to.is_empty() { &own[..] } else { export_to };
        let scopes =
            scopes.iter().map(|scope| if scope == OWN_NAMESPACE { namespace } else { scope.as_str() });
        if let Some(found) = scopes.filter_map(in_scope).next() {
            return Some(found);
        }
        let wanted = host.strip_prefix('*').unwrap_or(host);
        let wildcards = self.0.iter().filter(|(scoped, _)| {
            scoped.host.starts_with('*') && (scoped.scope == ALL_NAMESPACES || scoped.scope == namespace)
        });
        let mut matching = wildcards.filter(|(scoped, _)| wanted.ends_with(&scoped.host[1..]));
        matching.next().map(|(_, found)| found)
    }
}

/// The namespaces that an object is exported to; `*` alone if to all.
pub(super) fn scopes(export_to: &[String], namespace: &str) -> Vec<String> {
    if export_to.is_empty() || export_to.iter().any(|scope| scope == ALL_NAMESPACES) {
        return vec![ALL_NAMESPACES.to_owned()];
    }
    let scopes = export_to.iter().map(|scope| if scope == OWN_NAMESPACE { namespace } else { scope });
    let mut scopes: Vec<String> = scopes.map(str::to_owned).collect();
    scopes.sort();
    scopes.dedup();
    scopes
}

/// The host in full: a short name is a service of the namespace.
pub(super) fn qualified(namespace: &str, host: &str) -> String {
    if host.starts_with('*') || host.contains('.') {
        host.to_owned()
    } else {
        format!("{host}.{namespace}{SUFFIX}")
    }
}

/// The namespace and name of the service that a host means; a host elsewhere counts as a name of the namespace.
pub(super) fn service_name(default_namespace: &str, host: &str) -> (String, String) {
    let parts = host.strip_suffix(SUFFIX).and_then(|name| name.rsplit_once('.'));
    match parts {
        Some((name, namespace)) if !name.is_empty() && !namespace.is_empty() => {
            (namespace.to_owned(), name.to_owned())
        }
        _ => (default_namespace.to_owned(), host.to_owned()),
    }
}

/// Splits `namespace/name`; a name alone is of the default namespace.
pub(super) fn short_or_full_name<'a>(default_namespace: &'a str, name: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((default_namespace, name))
}

/// `namespace/name`, or the name alone.
pub(super) fn full_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}
