//! Access logging: the effective providers.

use std::collections::{BTreeMap, BTreeSet};

use canopus_proto::istio::telemetry::v1alpha1::access_logging::{Filter, LogSelector};
use canopus_proto::istio::telemetry::v1alpha1::{AccessLogging, WorkloadMode};

use super::{Side, names};

/// The access log settings of a provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Whether logging is disabled.
    pub disabled: bool,
    /// The filter; without one everything is logged.
    pub filter: Option<Filter>,
}

/// Merges access log settings for one side of a connection, starting from the mesh's default providers.
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

/// The providers that the most specific object names, and the filters of all.
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

#[cfg(test)]
mod tests {
    use canopus_proto::istio::telemetry::v1alpha1::ProviderRef;

    use super::*;

    fn to(provider: &str) -> AccessLogging {
        AccessLogging { providers: vec![ProviderRef { name: provider.into() }], ..Default::default() }
    }

    fn merged(written: &[Vec<AccessLogging>], side: Side) -> Vec<(String, bool)> {
        let merged = merge(written, &["default".into()], side).into_iter();
        merged.map(|(name, log)| (name, log.disabled)).collect()
    }

    #[test]
    fn defaults_log_when_no_object_speaks_of_logs() {
        assert_eq!(merged(&[], Side::Client), [("default".into(), false)]);
    }

    #[test]
    fn a_narrower_object_replaces_the_providers_of_a_wider_one() {
        assert_eq!(merged(&[vec![to("a")], vec![to("b")]], Side::Server), [("b".into(), false)]);
    }

    #[test]
    fn an_object_without_providers_disables_those_it_inherits() {
        let off = AccessLogging { disabled: Some(true.into()), ..Default::default() };
        assert_eq!(merged(&[vec![to("a")], vec![off]], Side::Server), [("a".into(), true)]);
    }

    #[test]
    fn nothing_is_said_of_the_other_side() {
        let selector = LogSelector { mode: WorkloadMode::Server as i32 };
        let server = AccessLogging { r#match: Some(selector), ..to("a") };
        assert_eq!(merged(&[vec![server.clone()]], Side::Server), [("a".into(), false)]);
        assert_eq!(merged(&[vec![server]], Side::Client), []);
    }
}
