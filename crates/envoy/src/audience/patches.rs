//! Which patches of EnvoyFilters are for a proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::istio::EnvoyFilter;
use canopus_engine::{Ctx, Query};
use canopus_mesh::attachment::PolicyTarget;
use canopus_mesh::audience::View;
use canopus_mesh::audience::{SelectingKind, policy_target};
use canopus_mesh::envoy_filter::EnvoyFilters;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{Origin, all_objects};
use canopus_proto::istio::networking::v1alpha3::envoy_filter::{ApplyTo, EnvoyConfigObjectPatch, ProxyMatch};
use regex::Regex;

/// Longer expressions cost too much to compile; they match no proxy.
const MAX_VERSION_LENGTH: usize = 1024;

/// Names one patch of an EnvoyFilter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatchId {
    /// The object.
    pub filter: Origin,
    /// The place among its patches.
    pub index: usize,
}

/// Patches that are for a proxy, in the order they apply. Proxies with the same patches have equal sets, whichever of their
/// labels, versions or metadata they were selected by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PatchSet(pub(crate) Arc<[PatchId]>);

impl PatchSet {
    /// Whether there are none, as there mostly are.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The patches of a proxy, by the family of resources they apply to. What applies to routes may be in listeners too.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PatchSets {
    pub(super) clusters: PatchSet,
    pub(super) listeners: PatchSet,
    pub(super) routes: PatchSet,
    pub(super) extensions: PatchSet,
}

/// The patches that are for a proxy.
pub(super) fn patch_sets(ctx: &Ctx<'_>, view: &View) -> PatchSets {
    let candidate = Candidate {
        target: policy_target(ctx, view, &[SelectingKind::EnvoyFilter]),
        traits: ctx.get::<MatchedTraits>(&()).traits(&view.proxy),
    };
    ctx.get::<PatchesFor>(&candidate).as_ref().clone()
}

/// A proxy as EnvoyFilters see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Candidate {
    target: PolicyTarget,
    traits: ProxyTraits,
}

/// What patches may match a proxy by, of what it said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct ProxyTraits {
    version: Box<str>,
    metadata: BTreeMap<String, String>,
}

struct PatchesFor;

impl Query for PatchesFor {
    const NAME: &'static str = "patches_for";
    type Key = Candidate;
    type Value = PatchSets;

    fn run(ctx: &Ctx<'_>, candidate: &Candidate) -> PatchSets {
        let [mut clusters, mut listeners, mut routes, mut extensions] = [const { Vec::new() }; 4];
        for (origin, filter) in ctx.get::<EnvoyFilters>(&candidate.target).iter() {
            for (index, patch) in filter.spec.config_patches.iter().enumerate() {
                if !proxy_match(patch).is_none_or(|wanted| candidate.traits.are_wanted_by(wanted)) {
                    continue;
                }
                let id = PatchId { filter: origin.clone(), index };
                match patch.apply_to() {
                    ApplyTo::Cluster => clusters.push(id),
                    ApplyTo::ExtensionConfig => extensions.push(id),
                    ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute => {
                        listeners.push(id.clone());
                        routes.push(id);
                    }
                    ApplyTo::Listener
                    | ApplyTo::ListenerFilter
                    | ApplyTo::FilterChain
                    | ApplyTo::NetworkFilter
                    | ApplyTo::HttpFilter => listeners.push(id),
                    // The agent applies patches of the bootstrap.
                    ApplyTo::Bootstrap | ApplyTo::Invalid => {}
                }
            }
        }
        let set = |patches: Vec<PatchId>| PatchSet(patches.into());
        PatchSets {
            clusters: set(clusters),
            listeners: set(listeners),
            routes: set(routes),
            extensions: set(extensions),
        }
    }
}

fn proxy_match(patch: &EnvoyConfigObjectPatch) -> Option<&ProxyMatch> {
    patch.r#match.as_ref().and_then(|matching| matching.proxy.as_ref())
}

/// Whether a patch is for a proxy of its version and metadata.
pub(crate) fn is_for(patch: &EnvoyConfigObjectPatch, proxy: &Proxy) -> bool {
    proxy_match(patch).is_none_or(|wanted| {
        let keys = wanted.metadata.keys().cloned().collect();
        MatchedKeys { version: true, metadata: keys }.traits(proxy).are_wanted_by(wanted)
    })
}

impl ProxyTraits {
    fn are_wanted_by(&self, wanted: &ProxyMatch) -> bool {
        let version = &*self.version;
        let of_version = match wanted.proxy_version.as_str() {
            "" => true,
            long if long.len() > MAX_VERSION_LENGTH => false,
            // Parity: an expression that cannot be read excludes nobody.
            written => Regex::new(written)
                .map_or(true, |expression| !version.is_empty() && expression.is_match(version)),
        };
        of_version && wanted.metadata.iter().all(|(key, value)| self.metadata.get(key) == Some(value))
    }
}

/// What some EnvoyFilter of the mesh matches proxies by: those that differ in nothing else share their patches.
#[derive(Clone, Debug, Default, PartialEq)]
struct MatchedKeys {
    version: bool,
    metadata: BTreeSet<String>,
}

impl MatchedKeys {
    fn traits(&self, proxy: &Proxy) -> ProxyTraits {
        let said = |key: &String| Some((key.clone(), proxy.metadata.raw.text(key)?));
        ProxyTraits {
            version: if self.version { proxy.metadata.istio_version.as_str().into() } else { Box::default() },
            metadata: self.metadata.iter().filter_map(said).collect(),
        }
    }
}

struct MatchedTraits;

impl Query for MatchedTraits {
    const NAME: &'static str = "matched_proxy_traits";
    type Key = ();
    type Value = MatchedKeys;

    fn run(ctx: &Ctx<'_>, (): &()) -> MatchedKeys {
        let mut matched = MatchedKeys::default();
        for (_, filter) in all_objects::<EnvoyFilter>(ctx) {
            for wanted in filter.spec.config_patches.iter().filter_map(proxy_match) {
                matched.version |= !wanted.proxy_version.is_empty();
                matched.metadata.extend(wanted.metadata.keys().cloned());
            }
        }
        matched
    }
}
