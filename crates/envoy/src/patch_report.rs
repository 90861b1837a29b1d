//! What became of every patch that is for a proxy's workload, for users to see.

use std::collections::BTreeMap;

use canopus_engine::{Ctx, Query};
use canopus_mesh::audience::View;
use canopus_mesh::audience::{SelectingKind, policy_target};
use canopus_mesh::envoy_filter::EnvoyFilters;
use canopus_mesh::proxy::Proxy;

use crate::audience::{AudiencesOf, PatchId, patch_is_for};
use crate::bundle::References;
use crate::cluster::{self, Clusters};
use crate::envoy_filter::{self, Count, Tally};
use crate::listener::{self, Listeners};
use crate::route_config::PatchedTables;

/// One patch, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchReport {
    /// The patch.
    pub patch: PatchId,
    /// What it applies to, in the API's words, such as `HTTP_FILTER`.
    pub apply_to: &'static str,
    /// What it does, in the API's words, such as `INSERT_BEFORE`.
    pub operation: &'static str,
    /// What became of it.
    pub outcome: Outcome,
    /// How many objects it was held against.
    pub count: Count,
}

/// What became of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The patch applied to something.
    Applied,
    /// The patch applied to nothing: its match is probably a mistake.
    Unmatched,
    /// The patch is for proxies of another version or with other metadata.
    OtherProxies,
    /// The patch's value cannot be decoded, for this reason.
    Unreadable(String),
    /// The proxy would refuse the result, so it is left out: a filter without configuration or of a kind the proxy does not
    /// have, or one after the last that a chain may have.
    Refused,
}

impl Outcome {
    /// A word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unmatched => "unmatched",
            Self::OtherProxies => "other-proxies",
            Self::Unreadable(_) => "unreadable",
            Self::Refused => "refused",
        }
    }

    /// What the author of the patch may do about it; `None` if nothing is wrong.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Applied | Self::OtherProxies => None,
            Self::Unmatched => Some("compare its match with the proxy's configuration"),
            Self::Unreadable(_) => Some("give a value of the type that the patch applies to"),
            Self::Refused => {
                Some("give the filter a typed_config the proxy knows, and insert it before the last filter")
            }
        }
    }
}

/// What became of the patches of all EnvoyFilters that select a proxy, in the order they apply.
pub struct Report;

impl Query for Report {
    const NAME: &'static str = "envoy_filter_report";
    type Key = Proxy;
    type Value = Vec<PatchReport>;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Self::Value {
        let target = policy_target(ctx, &View::new(ctx, proxy), &[SelectingKind::EnvoyFilter]);
        let effects = ctx.get::<Effects>(proxy);
        let mut reports = Vec::new();
        for (origin, filter) in ctx.get::<EnvoyFilters>(&target).iter() {
            for (index, written) in filter.spec.config_patches.iter().enumerate() {
                let patch = PatchId { filter: origin.clone(), index };
                let count = effects.get(&patch).copied().unwrap_or_default();
                let outcome = match envoy_filter::problem(written) {
                    Some(problem) => Outcome::Unreadable(problem),
                    None if !patch_is_for(written, proxy) => Outcome::OtherProxies,
                    None if count.refused > 0 => Outcome::Refused,
                    None if count.applied > 0 => Outcome::Applied,
                    None => Outcome::Unmatched,
                };
                let operation = written.patch.as_ref().map(|patch| patch.operation().as_str_name());
                let apply_to = written.apply_to().as_str_name();
                reports.push(PatchReport {
                    patch,
                    apply_to,
                    operation: operation.unwrap_or("INVALID"),
                    outcome,
                    count,
                });
            }
        }
        reports
    }
}

/// What became of the patches that are for a proxy: one that applied to nothing is probably a mistake.
struct Effects;

impl Query for Effects {
    const NAME: &'static str = "envoy_filter_effects";
    type Key = Proxy;
    type Value = BTreeMap<PatchId, Count>;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Self::Value {
        let mut tally = Tally::default();
        for part in cluster::patched(ctx, proxy).iter().chain(&listener::patched(ctx, proxy)) {
            tally.add(&part.tally);
        }
        let routes = ctx.get::<AudiencesOf>(proxy).routes.clone();
        let clusters: Vec<_> = ctx.get::<Clusters>(proxy).iter().cloned().collect();
        let listeners: Vec<_> = ctx.get::<Listeners>(proxy).iter().cloned().collect();
        for name in References::find(&clusters, &listeners).routes {
            tally.add(&ctx.get::<PatchedTables>(&(routes.clone(), name)).tally);
        }
        tally.into_counts()
    }
}
