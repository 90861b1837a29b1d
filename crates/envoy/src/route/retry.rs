//! When a request is tried again.

use std::sync::LazyLock;

use canopus_mesh::world::MeshSettings;
use canopus_proto::Any;
use canopus_proto::envoy::config::route::v3::retry_policy::{
    RetryBackOff, RetryHostPredicate, RetryPriority, retry_host_predicate, retry_priority,
};
use canopus_proto::envoy::config::route::v3::{RetryPolicy, RouteAction};
use canopus_proto::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use canopus_proto::envoy::extensions::retry::priority::previous_priorities::v3::PreviousPrioritiesConfig;
use canopus_proto::fields::route_action;
use canopus_proto::istio::networking::v1alpha3::HttpRetry;
use canopus_proto::wire::ProtoWriter;

const RETRY_ON: &str = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes";
const RETRIABLE_CODES: &str = "retriable-status-codes";
/// What never reached the application can be tried again without harm.
const INBOUND_RETRY_ON: &str = "reset-before-request";
const RETRIES: u32 = 2;
const HOST_SELECTION_ATTEMPTS: i64 = 5;
/// Priorities are tried this often before the next ones are.
const PRIORITY_UPDATE_FREQUENCY: i32 = 2;

/// The retries of routes where neither they nor the mesh say anything, as a field of an action: those where a hash does not
/// choose the host, and those where it does.
static USUAL: LazyLock<[ProtoWriter<RouteAction>; 2]> = LazyLock::new(|| {
    [false, true].map(|hashed| {
        let mut action = ProtoWriter::default();
        policy(None, hashed).iter().for_each(|policy| action.message(route_action::RETRY_POLICY, policy));
        action
    })
});

/// Writes the retries of an outbound route: its own, else the mesh's.
pub(super) fn write(
    settings: &MeshSettings,
    wanted: Option<&HttpRetry>,
    hashed: bool,
    action: &mut ProtoWriter<RouteAction>,
) {
    match wanted.or(settings.mesh.default_http_retry_policy.as_ref()) {
        None => action.append(&USUAL[usize::from(hashed)]),
        wanted => policy(wanted, hashed)
            .iter()
            .for_each(|policy| action.message(route_action::RETRY_POLICY, policy)),
    }
}

/// The retries of an outbound route; `None` if they are turned off. Where a hash chooses the host, no other is tried
/// unless that is asked for.
pub(super) fn policy(wanted: Option<&HttpRetry>, hashed: bool) -> Option<RetryPolicy> {
    let default = RetryPolicy {
        retry_on: RETRY_ON.into(),
        num_retries: Some(RETRIES.into()),
        host_selection_retry_max_attempts: HOST_SELECTION_ATTEMPTS,
        retry_host_predicate: if hashed { Vec::new() } else { vec![previous_hosts()] },
        ..Default::default()
    };
    let Some(wanted) = wanted else { return Some(default) };
    let mut policy = customised(default, wanted)?;
    policy.per_try_timeout = wanted.per_try_timeout;
    if let Some(ignore) = wanted.retry_ignore_previous_hosts {
        policy.retry_host_predicate = if ignore.value { vec![previous_hosts()] } else { Vec::new() };
    }
    if wanted.retry_remote_localities.is_some_and(|wanted| wanted.value) {
        policy.retry_priority = Some(previous_priorities());
    }
    Some(policy)
}

/// The retries of an inbound route, which has but one host to try.
pub(super) fn inbound_policy(wanted: Option<&HttpRetry>) -> Option<RetryPolicy> {
    let default = RetryPolicy {
        retry_on: INBOUND_RETRY_ON.into(),
        num_retries: Some(RETRIES.into()),
        ..Default::default()
    };
    match wanted {
        Some(wanted) => customised(default, wanted),
        None => Some(default),
    }
}

/// The default with the attempts, conditions and back-off that are set; `None` if there are no attempts.
fn customised(default: RetryPolicy, wanted: &HttpRetry) -> Option<RetryPolicy> {
    let attempts = u32::try_from(wanted.attempts).ok().filter(|attempts| *attempts > 0)?;
    let mut policy = RetryPolicy {
        num_retries: Some(attempts.into()),
        retry_back_off: wanted
            .backoff
            .map(|interval| RetryBackOff { base_interval: Some(interval), ..Default::default() }),
        ..default
    };
    if !wanted.retry_on.is_empty() {
        (policy.retry_on, policy.retriable_status_codes) = retry_on(&wanted.retry_on);
    }
    Some(policy)
}

/// Numbers among the conditions are status codes.
fn retry_on(text: &str) -> (String, Vec<u32>) {
    let (mut conditions, mut codes) = (Vec::new(), Vec::new());
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.parse() {
            Ok(code) if is_http_status(code) => codes.push(code),
            _ => conditions.push(part),
        }
    }
    let mut conditions = conditions.join(",");
    if !codes.is_empty() && !conditions.contains(RETRIABLE_CODES) {
        // Parity: with nothing before it, the comma stays.
        conditions.push(',');
        conditions.push_str(RETRIABLE_CODES);
    }
    (conditions, codes)
}

/// The status codes that have a name.
fn is_http_status(code: u32) -> bool {
    matches!(
        code,
        100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426 | 428 | 429 | 431 | 451 | 500..=508
            | 510 | 511
    )
}

fn previous_hosts() -> RetryHostPredicate {
    let config = Any::pack(&PreviousHostsPredicate {});
    RetryHostPredicate {
        name: "envoy.retry_host_predicates.previous_hosts".into(),
        config_type: Some(retry_host_predicate::ConfigType::TypedConfig(config)),
    }
}

fn previous_priorities() -> RetryPriority {
    let config = Any::pack(&PreviousPrioritiesConfig { update_frequency: PRIORITY_UPDATE_FREQUENCY });
    RetryPriority {
        name: "envoy.retry_priorities.previous_priorities".into(),
        config_type: Some(retry_priority::ConfigType::TypedConfig(config)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_among_conditions_are_status_codes_that_ask_to_be_looked_at() {
        let read = |text: &str| retry_on(text);
        assert_eq!(read("5xx, reset ,"), ("5xx,reset".to_owned(), vec![]));
        assert_eq!(read("5xx,503"), ("5xx,retriable-status-codes".to_owned(), vec![503]));
        assert_eq!(read("retriable-status-codes,+429"), ("retriable-status-codes".to_owned(), vec![429]));
        assert_eq!(read("503"), (",retriable-status-codes".to_owned(), vec![503]));
        assert_eq!(read("999"), ("999".to_owned(), vec![]));
    }

    #[test]
    fn hash_keeps_retries_on_the_same_host_unless_others_are_asked_for() {
        let wanted = |others: Option<bool>| HttpRetry {
            attempts: 3,
            retry_ignore_previous_hosts: others.map(Into::into),
            ..Default::default()
        };
        let predicates =
            |wanted: Option<&HttpRetry>, hashed| policy(wanted, hashed).unwrap().retry_host_predicate.len();
        assert_eq!((predicates(None, false), predicates(None, true)), (1, 0));
        assert_eq!((predicates(Some(&wanted(None)), false), predicates(Some(&wanted(None)), true)), (1, 0));
        assert_eq!(predicates(Some(&wanted(Some(true))), true), 1);
        assert_eq!(predicates(Some(&wanted(Some(false))), false), 0);
    }

    #[test]
    fn no_attempts_mean_no_policy() {
        let never = HttpRetry::default();
        assert_eq!((policy(Some(&never), false), inbound_policy(Some(&never))), (None, None));
        assert_eq!(inbound_policy(None).unwrap().retry_on, INBOUND_RETRY_ON);
    }
}
