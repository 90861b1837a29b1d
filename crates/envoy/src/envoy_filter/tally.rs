//! What became of each patch.

use std::collections::BTreeMap;

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::Proxy;

use crate::audience::{AudiencesOf, PatchId};
use crate::bundle::References;
use crate::cluster::{self, Clusters};
use crate::listener::{self, Listeners};
use crate::route_config::PatchedTables;

/// How many of the objects a patch was held against it applied to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Those it applied to.
    pub applied: usize,
    /// Those it was not for, or could not be applied to.
    pub passed_over: usize,
    /// Those that the proxy would have refused after it, so it was left out.
    pub refused: usize,
}

/// The counts of all patches that something was held against.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally(BTreeMap<PatchId, Count>);

impl Tally {
    pub(super) fn note(&mut self, patch: &PatchId, applied: bool) {
        let count = self.0.entry(patch.clone()).or_default();
        if applied {
            count.applied += 1;
        } else {
            count.passed_over += 1;
        }
    }

    /// Notes that a patch was left out because the proxy would have refused the result.
    pub(super) fn refuse(&mut self, patch: &PatchId) {
        self.0.entry(patch.clone()).or_default().refused += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (patch, count) in &other.0 {
            let sum = self.0.entry(patch.clone()).or_default();
            sum.applied += count.applied;
            sum.passed_over += count.passed_over;
            sum.refused += count.refused;
        }
    }
}

/// What became of the patches that are for a proxy: one that applied to nothing is probably a mistake.
pub struct Effects;

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
        for name in References::of(&clusters, &listeners).routes {
            tally.add(&ctx.get::<PatchedTables>(&(routes.clone(), name)).tally);
        }
        tally.0
    }
}
