//! Retries of HTTP requests.

use canopus_proto::istio::networking::v1alpha3::HttpRetry;

use super::code::codes;
use super::duration;
use super::scope::Scope;
use crate::text::quoted;

codes! {
    NEGATIVE: error "retry-attempts-negative", "give 0 to switch retries off, or more";
    DISABLED: error "retry-settings-without-attempts", "set attempts, or remove the other settings";
    UNKNOWN_CONDITION: error "retry-condition-unknown", "use HTTP status codes and the conditions Envoy lists for x-envoy-retry-on and x-envoy-retry-grpc-on";
}

/// The conditions under which a proxy can retry.
const CONDITIONS: [&str; 16] = [
    "5xx",
    "cancelled",
    "connect-failure",
    "deadline-exceeded",
    "envoy-ratelimited",
    "gateway-error",
    "http3-post-connect-failure",
    "internal",
    "refused-stream",
    "reset",
    "reset-before-request",
    "resource-exhausted",
    "retriable-4xx",
    "retriable-headers",
    "retriable-status-codes",
    "unavailable",
];

/// A policy of retries, of a route or of the mesh.
pub fn check(retries: &HttpRetry, mut scope: Scope<'_>) {
    if retries.attempts < 0 {
        let fault = NEGATIVE.says("attempts cannot be negative").with_value(retries.attempts).listed();
        scope.field("attempts").add(fault);
    }
    let other_settings = retries.per_try_timeout.is_some()
        || !retries.retry_on.is_empty()
        || retries.retry_remote_localities.is_some();
    if retries.attempts == 0 && other_settings {
        let message = "http retry policy configured when attempts are set to 0 (disabled)";
        scope.field("attempts").add(DISABLED.says(message));
    }
    duration::optional(retries.per_try_timeout.as_ref(), scope.field("perTryTimeout"));
    if !retries.retry_on.is_empty() {
        for condition in retries.retry_on.split(',').filter(|condition| !is_condition(condition)) {
            let message = format!("{} is not a valid retryOn policy", quoted(condition));
            scope.field("retryOn").add(UNKNOWN_CONDITION.says(message).with_value(condition));
        }
    }
    duration::optional(retries.backoff.as_ref(), scope.field("backoff"));
}

fn is_condition(text: &str) -> bool {
    text.parse().is_ok_and(is_status) || CONDITIONS.binary_search(&text).is_ok()
}

/// Whether Go has a name for an HTTP status.
const fn is_status(code: i64) -> bool {
    matches!(
        code,
        100..=103 | 200..=208 | 226 | 300..=305 | 307..=308 | 400..=418 | 421..=426 | 428..=429 | 431 | 451
            | 500..=508 | 510..=511
    )
}
