//! The `namespace/host` entries of an egress listener, as a filter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_base::{FastMap, host};

use crate::service::Service;
use crate::virtual_service::VirtualService;

/// Matches every namespace.
const ANY_NAMESPACE: &str = "*";

/// The entries of an egress listener, by namespace.
pub(super) struct HostFilter {
    importer: String,
    by_namespace: BTreeMap<String, Hosts>,
}

/// The entries for one namespace.
#[derive(Default)]
struct Hosts {
    exact: BTreeSet<String>,
    all: Vec<String>,
    excluded: Vec<String>,
}

impl Hosts {
    fn excludes(&self, name: &str) -> bool {
        self.excluded.iter().any(|excluded| host::subset_of(name, excluded))
    }

    /// Whether an entry admits a name. `covers` decides where the name or the entry is a wildcard.
    fn admits(&self, name: &str, covers: impl Fn(&str, &str) -> bool) -> bool {
        let wild = host::is_wildcard(name);
        self.exact.contains(name)
            || self.all.iter().any(|entry| (wild || host::is_wildcard(entry)) && covers(name, entry))
    }
}

impl HostFilter {
    /// Parses the entries of a listener of `namespace`. Entries that are not `namespace/name` are ignored.
    pub(super) fn new(entries: &[String], namespace: &str) -> Self {
        let mut by_namespace: BTreeMap<String, Hosts> = BTreeMap::new();
        for entry in entries {
            let Some((scope, name)) = entry.split_once('/').filter(|(_, name)| !name.contains('/')) else {
                continue;
            };
            let excluded = scope.starts_with('~');
            let scope = match scope.strip_prefix('~').unwrap_or(scope) {
                "" if excluded => ANY_NAMESPACE,
                "." => namespace,
                other => other,
            };
            let hosts = by_namespace.entry(scope.to_owned()).or_default();
            if excluded {
                hosts.excluded.push(name.to_owned());
                continue;
            }
            if !host::is_wildcard(name) {
                hosts.exact.insert(name.to_owned());
            }
            hosts.all.push(name.to_owned());
        }
        Self { importer: namespace.to_owned(), by_namespace }
    }

    /// The admitted namespaces and hosts, if no entry has a wildcard.
    pub(super) fn all_named(&self) -> Option<Vec<(&str, &str)>> {
        let named = self.by_namespace.iter().all(|(scope, hosts)| {
            hosts.all.is_empty()
                || (scope != ANY_NAMESPACE && !hosts.all.iter().any(|host| host::is_wildcard(host)))
        });
        let pairs = || {
            let scopes = self.by_namespace.iter();
            scopes
                .flat_map(|(scope, hosts)| hosts.exact.iter().map(move |host| (&**scope, &**host)))
                .collect()
        };
        named.then(pairs)
    }

    /// The namespaces that entries name; `None` if an entry admits all namespaces.
    pub(super) fn namespaces(&self) -> Option<Vec<Arc<str>>> {
        let any = self.by_namespace.get(ANY_NAMESPACE).is_some_and(|hosts| !hosts.all.is_empty());
        let scopes = || self.by_namespace.iter().filter(|(_, hosts)| !hosts.all.is_empty());
        (!any).then(|| scopes().map(|(scope, _)| scope.as_str().into()).collect())
    }

    /// Whether everything is admitted.
    pub(super) fn is_everything(&self) -> bool {
        let any = self.by_namespace.get(ANY_NAMESPACE);
        self.by_namespace.len() == 1
            && any.is_some_and(|hosts| hosts.excluded.is_empty() && hosts.all == [ANY_NAMESPACE])
    }

    /// The entries that apply to a namespace: its own, then those for all namespaces.
    fn for_namespace(&self, namespace: &str) -> impl Iterator<Item = &Hosts> {
        [namespace, ANY_NAMESPACE].into_iter().filter_map(|scope| self.by_namespace.get(scope))
    }

    fn excludes(&self, namespace: &str, name: &str) -> bool {
        self.for_namespace(namespace).any(|hosts| hosts.excludes(name))
    }

    /// Keeps the VirtualServices with an admitted host.
    pub(super) fn virtual_services<'a>(
        &self,
        offered: impl IntoIterator<Item = &'a Arc<VirtualService>>,
    ) -> Vec<Arc<VirtualService>> {
        let admitted = |service: &&Arc<VirtualService>| {
            // Parity: the entry `a.com` admits a VirtualService for `*.com`, but not a Gateway API route for it.
            let covers = if service.is_gateway_api() { host::subset_of } else { host::matches };
            self.for_namespace(service.namespace()).any(|hosts| {
                let mut names = service.spec.hosts.iter();
                names.any(|name| hosts.admits(name, covers) && !self.excludes(service.namespace(), name))
            })
        };
        offered.into_iter().filter(admitted).cloned().collect()
    }

    /// Keeps the admitted services: of each host, the definitions of one namespace. `trim` may remove ports, or a whole service.
    pub(super) fn services<'a>(
        &self,
        visible: impl IntoIterator<Item = &'a Arc<Service>>,
        trim: impl Fn(Arc<Service>) -> Option<Arc<Service>>,
    ) -> Vec<Arc<Service>> {
        if self.is_everything() {
            return one_namespace_per_host(
                visible.into_iter().cloned().filter_map(trim).collect(),
                &self.importer,
            );
        }
        let mut imported = Vec::new();
        for service in visible {
            if self.excludes(&service.namespace, &service.host) {
                continue;
            }
            let admitted = self.for_namespace(&service.namespace).find_map(|hosts| {
                let trimmed =
                    hosts.admits(&service.host, host::subset_of).then(|| trim(service.clone()))??;
                Some(with_aliases(trimmed, hosts))
            });
            imported.extend(admitted);
        }
        one_namespace_per_host(imported, &self.importer)
    }
}

/// Drops the aliases of a service that are not admitted.
fn with_aliases(service: Arc<Service>, hosts: &Hosts) -> Arc<Service> {
    let admitted = |alias: &crate::service::ServiceKey| hosts.admits(&alias.host, host::subset_of);
    if service.aliases.iter().all(admitted) {
        return service;
    }
    let mut narrowed = Service::clone(&service);
    narrowed.aliases.retain(admitted);
    Arc::new(narrowed)
}

/// Keeps, of each host, the definitions of one namespace: the importing one, else the first with a Kubernetes Service, else
/// the first.
pub(super) fn one_namespace_per_host(mut imported: Vec<Arc<Service>>, importer: &str) -> Vec<Arc<Service>> {
    let mut chosen: FastMap<Arc<str>, (Arc<str>, bool)> = FastMap::default();
    chosen.reserve(imported.len());
    for service in &imported {
        let own = *service.namespace == *importer;
        let better = chosen.get(&service.host).is_none_or(|(namespace, is_kubernetes)| {
            own || (!is_kubernetes && service.is_kubernetes() && **namespace != *importer)
        });
        if better {
            chosen.insert(service.host.clone(), (service.namespace.clone(), service.is_kubernetes()));
        }
    }
    if chosen.len() < imported.len() {
        imported.retain(|service| {
            chosen.get(&service.host).is_some_and(|(namespace, _)| *namespace == service.namespace)
        });
    }
    imported
}
