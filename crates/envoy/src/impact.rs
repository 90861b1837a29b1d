//! What a change of the world does to proxies: which resources differ, in which fields, how many bytes that is, which
//! connections are drained, and which requests are routed otherwise.
//!
//! ```text
//! before ─┐
//!         ├─► differences, per proxy ──► groups of proxies with equal ones ──► fields, drains, witness requests
//! after ──┘
//! ```
//!
//! Whoever asks has generated both sides: the command line from files, the control plane on a fork of its engine. This
//! module only compares them, so both give the same account of the same change. Proxies with equal differences are one
//! group, and what is said of a group is worked out once: a change that reaches a thousand sidecars is described once, not a
//! thousand times.
//!
//! Invariant: no value of a secret is shown. Of resources that may carry credentials only the fields' names are.

mod drain;
mod fields;
mod reroute;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_base::FastMap;
use canopus_base::hash::ContentHash;
use canopus_proto::resource::Resource;
use serde::{Deserialize, Serialize};

pub use fields::FieldChange;
pub use reroute::Reroute;

use crate::bundle::Bundle;

/// Distinct resources that are described field by field; of others only the size is told.
const MAX_DESCRIBED: usize = 128;

/// Requests that are shown of one group of proxies.
const MAX_REROUTES: usize = 16;

/// A type of resources that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// LDS.
    Listener,
    /// RDS.
    Route,
    /// CDS.
    Cluster,
    /// EDS.
    Endpoint,
    /// ECDS.
    Extension,
    /// SDS.
    Secret,
    /// NDS.
    NameTable,
    /// What ztunnels are told of workloads and services.
    Address,
    /// What ztunnels are told of workloads.
    Workload,
    /// What ztunnels are told of policies.
    Authorization,
}

impl ResourceType {
    /// The word for it in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Route => "route",
            Self::Cluster => "cluster",
            Self::Endpoint => "endpoint",
            Self::Extension => "extension",
            Self::Secret => "secret",
            Self::NameTable => "name table",
            Self::Address => "address",
            Self::Workload => "workload",
            Self::Authorization => "authorization",
        }
    }

    /// The message in its resources.
    fn message(self) -> &'static str {
        match self {
            Self::Listener => "envoy.config.listener.v3.Listener",
            Self::Route => "envoy.config.route.v3.RouteConfiguration",
            Self::Cluster => "envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Extension => "envoy.config.core.v3.TypedExtensionConfig",
            Self::Secret => "envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::NameTable => "istio.networking.nds.v1.NameTable",
            Self::Address => "istio.workload.Address",
            Self::Workload => "istio.workload.Workload",
            Self::Authorization => "istio.security.Authorization",
        }
    }

    /// Whether values in it may be credentials: keys, or what a Wasm module is pulled with.
    fn has_credentials(self) -> bool {
        matches!(self, Self::Secret | Self::Extension)
    }

    /// The type of this URL, if its resources are compared.
    pub fn from_type_url(type_url: &str) -> Option<Self> {
        let name = type_url.strip_prefix("type.googleapis.com/")?;
        let all = [
            Self::Listener,
            Self::Route,
            Self::Cluster,
            Self::Endpoint,
            Self::Extension,
            Self::Secret,
            Self::NameTable,
            Self::Address,
            Self::Workload,
            Self::Authorization,
        ];
        all.into_iter().find(|known| known.message() == name)
    }
}

/// A resource that a proxy is sent because of a change, or loses.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its type.
    pub kind: ResourceType,
    /// Its name.
    pub name: Arc<str>,
    /// What the proxy has; `None` if it is new.
    pub before: Option<Resource>,
    /// What the proxy gets; `None` if it goes. Equal to `before` if it is sent again with something that it is a part of.
    pub after: Option<Resource>,
}

impl Difference {
    fn key(&self) -> DifferenceKey {
        let version = |resource: &Option<Resource>| resource.as_ref().map(|resource| resource.version);
        (self.kind, Arc::clone(&self.name), version(&self.before), version(&self.after))
    }

    fn is_repeated(&self) -> bool {
        self.before.is_some() && self.before == self.after
    }

    fn what(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "added",
            (_, None) => "removed",
            _ if self.is_repeated() => "sent again",
            _ => "changed",
        }
    }
}

type DifferenceKey = (ResourceType, Arc<str>, Option<ContentHash>, Option<ContentHash>);

/// The resources of one type that differ, by name.
pub fn differences<'a>(
    kind: ResourceType,
    before: impl IntoIterator<Item = &'a Resource>,
    after: impl IntoIterator<Item = &'a Resource>,
) -> Vec<Difference> {
    let before: Vec<&Resource> = before.into_iter().collect();
    let after: Vec<&Resource> = after.into_iter().collect();
    // Both sides mostly have the same order, and most of them is equal.
    let begin = before.iter().zip(&after).take_while(|(old, new)| old == new).count();
    let (before, after) = (&before[begin..], &after[begin..]);
    let end = before.iter().rev().zip(after.iter().rev()).take_while(|(old, new)| old == new).count();
    let by_name = |resources: &[&'a Resource]| -> BTreeMap<&'a str, &'a Resource> {
        resources.iter().map(|resource| (&*resource.name, *resource)).collect()
    };
    let before = by_name(&before[..before.len() - end]);
    let after = by_name(&after[..after.len() - end]);
    let names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    let differing = names.into_iter().filter(|name| before.get(name) != after.get(name));
    differing
        .map(|name| Difference {
            kind,
            name: name.into(),
            before: before.get(name).map(|resource| (*resource).clone()),
            after: after.get(name).map(|resource| (*resource).clone()),
        })
        .collect()
}

/// The endpoints that are sent again because their cluster is: Envoy waits for the endpoints of a cluster that is new to it,
/// also if it has them from the one before. `endpoints` gives those of a name.
pub fn repeated_endpoints(
    differences: &[Difference],
    endpoints: impl Fn(&str) -> Option<Resource>,
) -> Vec<Difference> {
    let of = |kind| differences.iter().filter(move |difference| difference.kind == kind);
    let told: BTreeSet<&str> = of(ResourceType::Endpoint).map(|difference| &*difference.name).collect();
    of(ResourceType::Cluster)
        .filter(|cluster| cluster.after.is_some() && !told.contains(&*cluster.name))
        .filter_map(|cluster| {
            let found = endpoints(&cluster.name)?;
            Some(Difference {
                kind: ResourceType::Endpoint,
                name: Arc::clone(&found.name),
                before: Some(found.clone()),
                after: Some(found),
            })
        })
        .collect()
}

impl Bundle {
    /// What a proxy with this configuration is sent, and loses, on its way to another.
    pub fn differences(&self, after: &Self) -> Vec<Difference> {
        let families = [
            (ResourceType::Listener, &self.listeners, &after.listeners),
            (ResourceType::Route, &self.routes, &after.routes),
            (ResourceType::Cluster, &self.clusters, &after.clusters),
            (ResourceType::Endpoint, &self.endpoints, &after.endpoints),
            (ResourceType::Extension, &self.extensions, &after.extensions),
            (ResourceType::Secret, &self.secrets, &after.secrets),
            (ResourceType::NameTable, &self.names, &after.names),
        ];
        let mut all: Vec<Difference> = Vec::new();
        for (kind, before, after) in families {
            all.extend(differences(kind, before, after));
        }
        let repeated = repeated_endpoints(&all, |name| {
            after.endpoints.iter().find(|resource| *resource.name == *name).cloned()
        });
        all.extend(repeated);
        all
    }
}

/// What a change does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Impact {
    /// How many proxies were looked at.
    pub proxies: usize,
    /// How many of them would be sent something.
    pub changed_proxies: usize,
    /// How many resources that are, counted for each proxy.
    pub changed_resources: usize,
    /// The size of the resources that would be sent to all proxies.
    pub bytes: usize,
    /// The groups of proxies with equal changes, the largest group first.
    pub changes: Vec<GroupImpact>,
}

/// What a change does to proxies with equal changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupImpact {
    /// The proxies, as `workload.namespace`.
    pub proxies: Vec<String>,
    /// The resources that each of them would be sent or lose.
    pub changes: Vec<ResourceImpact>,
    /// Requests that take another way, one for each pair of ways.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<Reroute>,
}

/// What a change does to a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceImpact {
    /// The type.
    pub resource: String,
    /// The name.
    pub name: String,
    /// `added`, `removed`, `changed` or `sent again`.
    pub change: String,
    /// The size before.
    pub bytes_before: Option<usize>,
    /// The size after.
    pub bytes_after: Option<usize>,
    /// Whether connections are drained.
    #[serde(default)]
    pub drains: bool,
    /// The filter chains whose connections are drained; if there are none, all of the listener's are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drained_chains: Vec<String>,
    /// The fields that differ; not all if there are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
    /// How many more fields differ.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_fields: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Impact {
    /// Describes what differs at each of these proxies.
    pub fn new(proxies: impl IntoIterator<Item = (String, Vec<Difference>)>) -> Self {
        let mut impact = Self::default();
        let mut groups: FastMap<Vec<DifferenceKey>, (Vec<String>, Vec<Difference>)> = FastMap::default();
        for (proxy, differences) in proxies {
            impact.proxies += 1;
            if differences.is_empty() {
                continue;
            }
            impact.changed_proxies += 1;
            impact.changed_resources += differences.len();
            let sizes = differences.iter().filter_map(|difference| difference.after.as_ref());
            impact.bytes += sizes.map(|after| after.body.len()).sum::<usize>();
            let key = differences.iter().map(Difference::key).collect();
            groups.entry(key).or_insert_with(|| (Vec::new(), differences)).0.push(proxy);
        }
        let mut groups: Vec<(Vec<String>, Vec<Difference>)> = groups.into_values().collect();
        groups.iter_mut().for_each(|(proxies, _)| proxies.sort());
        groups.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        let mut describer = Describer::default();
        impact.changes = groups
            .into_iter()
            .map(|(proxies, differences)| GroupImpact {
                proxies,
                changes: differences.iter().map(|difference| describer.describe(difference)).collect(),
                requests: describer.reroutes(&differences),
            })
            .collect();
        impact
    }

    /// The accounts of several control planes as one; each knows its own proxies.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.proxies += other.proxies;
        self.changed_proxies += other.changed_proxies;
        self.changed_resources += other.changed_resources;
        self.bytes += other.bytes;
        for group in other.changes {
            let same = self
                .changes
                .iter_mut()
                .find(|own| own.changes == group.changes && own.requests == group.requests);
            match same {
                Some(own) => own.proxies.extend(group.proxies),
                None => self.changes.push(group),
            }
        }
        self.changes.iter_mut().for_each(|group| group.proxies.sort());
        self
    }
}

/// Describes differences, each once.
#[derive(Default)]
struct Describer {
    described: FastMap<DifferenceKey, ResourceImpact>,
    rerouted: FastMap<DifferenceKey, Vec<Reroute>>,
}

impl Describer {
    fn describe(&mut self, difference: &Difference) -> ResourceImpact {
        let key = difference.key();
        if let Some(described) = self.described.get(&key) {
            return described.clone();
        }
        let size = |resource: &Option<Resource>| resource.as_ref().map(|resource| resource.body.len());
        let mut impact = ResourceImpact {
            resource: difference.kind.name().to_owned(),
            name: difference.name.to_string(),
            change: difference.what().to_owned(),
            bytes_before: size(&difference.before),
            bytes_after: size(&difference.after),
            drains: false,
            drained_chains: Vec::new(),
            fields: Vec::new(),
            more_fields: 0,
        };
        if difference.kind == ResourceType::Listener
            && let Some(drain) = drain::of(difference)
        {
            impact.drains = true;
            impact.drained_chains = drain.chains;
        }
        if self.described.len() < MAX_DESCRIBED
            && let (Some(before), Some(after)) = (&difference.before, &difference.after)
            && !difference.is_repeated()
        {
            (impact.fields, impact.more_fields) = fields::compare(difference.kind, before, after);
        }
        self.described.insert(key, impact.clone());
        impact
    }

    /// The requests that take another way. A table that comes or goes does so with its listener, so only tables that stay
    /// are compared.
    fn reroutes(&mut self, differences: &[Difference]) -> Vec<Reroute> {
        let mut all = Vec::new();
        for difference in differences {
            let (Some(before), Some(after)) = (&difference.before, &difference.after) else { continue };
            if difference.is_repeated() || self.rerouted.len() >= MAX_DESCRIBED {
                continue;
            }
            let found = self.rerouted.entry(difference.key()).or_insert_with(|| match difference.kind {
                ResourceType::Route => reroute::of_table(before, after),
                ResourceType::Listener => reroute::of_listener(before, after),
                _ => Vec::new(),
            });
            all.extend(found.iter().cloned());
        }
        all.truncate(MAX_REROUTES);
        all
    }
}

#[cfg(test)]
mod tests;
