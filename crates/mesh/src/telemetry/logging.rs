//! Access logs: which providers get them.

use std::collections::{BTreeMap, BTreeSet};

use canopus_proto::istio::telemetry::v1alpha1::access_logging::{Filter, LogSelector};
use canopus_proto::istio::telemetry::v1alpha1::{AccessLogging, WorkloadMode};

use super::{Side, names};

/// What a provider gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Whether it gets nothing.
    pub disabled: bool,
    /// What is logged; everything if there is no filter.
    pub filter: Option<Filter>,
}

/// The providers of one side's access logs, given what objects say and whom the mesh uses by default.
pub fn merge(written: &[Vec<AccessLogging>], defaults: &[String], side: Side) -> BTreeMap<String, Log> {
    if written.is_empty() {
        return defaults.iter().map(|name| (name.clone(), Log::default())).collect();
    }
    let (in_scope, filters) = in_scope(written, defaults, side);
    let mut merged = BTreeMap::new();
    let mut inherited = defaults.to_vec();
    for one in written.iter().flatten() {
        if !one.providers.is_empty() {
            inherited = names(&one.providers);
        }
        if !is_about(one.r#match.as_ref(), side) {
            continue;
        }
        let disabled = one.disabled.is_some_and(|disabled| disabled.value);
        for name in inherited.iter().filter(|name| in_scope.contains(*name)) {
            let filter = filters.get(name).cloned().flatten().filter(|_| !disabled);
            merged.insert(name.clone(), Log { disabled, filter });
        }
    }
    merged
}

/// The providers that the narrowest object names, and the filters of all.
fn in_scope(
    written: &[Vec<AccessLogging>],
    defaults: &[String],
    side: Side,
) -> (BTreeSet<String>, BTreeMap<String, Option<Filter>>) {
    let mut in_scope: BTreeSet<String> = defaults.iter().cloned().collect();
    let mut filters = BTreeMap::new();
    for object in written {
        let about = object.iter().filter(|one| is_about(one.r#match.as_ref(), side));
        let mut named = BTreeSet::new();
        for one in about {
            for name in names(&one.providers) {
                filters.insert(name.clone(), one.filter.clone());
                named.insert(name);
            }
        }
        if !named.is_empty() {
            in_scope = named;
        }
    }
    (in_scope, filters)
}

fn is_about(selector: Option<&LogSelector>, side: Side) -> bool {
    selector.is_none_or(|selector| match selector.mode() {
        WorkloadMode::ClientAndServer => true,
        WorkloadMode::Client => side == Side::Client,
        WorkloadMode::Server => side == Side::Server,
    })
}
