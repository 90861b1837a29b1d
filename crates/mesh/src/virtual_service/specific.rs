//! Finding the VirtualService that decides the routes of a host.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_base::host;

use super::VirtualService;

/// The hosts of a list of VirtualServices, each with the first VirtualService that has it.
#[derive(Clone, Debug, Default)]
pub struct HostOwners<'a> {
    owners: BTreeMap<&'a str, &'a Arc<VirtualService>>,
    /// The wildcard hosts, the most specific first.
    wildcards: Vec<&'a str>,
}

impl<'a> HostOwners<'a> {
    /// Indexes a list in order of precedence.
    pub fn new(services: impl IntoIterator<Item = &'a Arc<VirtualService>>) -> Self {
        let mut owners = BTreeMap::new();
        for service in services {
            for name in &service.spec.hosts {
                owners.entry(name.as_str()).or_insert(service);
            }
        }
        let mut wildcards: Vec<&str> =
            owners.keys().copied().filter(|name| host::is_wildcard(name)).collect();
        wildcards.sort_by(|a, b| host::by_specificity(a, b));
        Self { owners, wildcards }
    }

    /// Finds the VirtualService for a host: an exact match, else the most specific wildcard.
    pub fn owner(&self, name: &str) -> Option<&'a Arc<VirtualService>> {
        let covering = || self.wildcards.iter().find(|wildcard| host::subset_of(name, wildcard)).copied();
        let found = self.owners.get_key_value(name).map(|(name, _)| *name).or_else(covering)?;
        self.owners.get(found).copied()
    }
}
