//! Finding out which endpoints are unhealthy.

use canopus_proto::istio::networking::v1alpha3::OutlierDetection;

use super::code::codes;
use super::scope::Scope;
use super::{duration, percent};

codes! {
    CONSECUTIVE_ERRORS: warning "outlier-consecutive-errors-deprecated",
        "use consecutiveGatewayErrors or consecutive5xxErrors";
    LOCAL_ORIGIN: error "outlier-local-origin-without-split", "set splitExternalLocalOriginErrors";
}

/// When to eject an endpoint.
pub fn check(outlier: &OutlierDetection, mut scope: Scope<'_>) {
    duration::optional(outlier.base_ejection_time.as_ref(), scope.field("baseEjectionTime"));
    #[expect(deprecated, reason = "this is where its use is found")]
    let consecutive_errors = outlier.consecutive_errors;
    if consecutive_errors != 0 {
        let message = "outlier detection consecutive errors is deprecated, use consecutiveGatewayErrors or \
                       consecutive5xxErrors instead";
        scope.field("consecutiveErrors").add(CONSECUTIVE_ERRORS.says(message).with_value(consecutive_errors));
    }
    let local = outlier.consecutive_local_origin_failures.is_some_and(|failures| failures.value > 0);
    if local && !outlier.split_external_local_origin_errors {
        let message = "outlier detection consecutive local origin failures is specified, but split external local \
                       origin errors is set to false";
        scope.field("consecutiveLocalOriginFailures").add(LOCAL_ORIGIN.says(message));
    }
    duration::optional(outlier.interval.as_ref(), scope.field("interval"));
    scope.field("maxEjectionPercent").require(percent::whole(outlier.max_ejection_percent));
    scope.field("minHealthPercent").require(percent::whole(outlier.min_health_percent));
}
