//! Outlier detection: endpoints that fail are left alone for a while.

use canopus_mesh::service::{Service, TrafficDistribution};
use canopus_proto::envoy::config::cluster::v3::OutlierDetection as Detection;
use canopus_proto::envoy::config::common::matcher::v3::match_predicate::{MatchSet, Rule};
use canopus_proto::envoy::config::common::matcher::v3::{HttpHeadersMatch, MatchPredicate};
use canopus_proto::envoy::config::route::v3::HeaderMatcher;
use canopus_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use canopus_proto::envoy::extensions::upstreams::http::v3::http_protocol_options;
use canopus_proto::envoy::r#type::v3::Percent;
use canopus_proto::google::protobuf::UInt32Value;
use canopus_proto::istio::networking::v1alpha3::OutlierDetection;
use canopus_runtime::flags::{Flags, PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS, PILOT_SEND_UNHEALTHY_ENDPOINTS};

use super::draft::Draft;
use crate::tls;

/// Whether proxies receive all unhealthy endpoints.
pub(super) fn sends_unhealthy_everywhere(flags: &Flags) -> bool {
    flags.get(PILOT_SEND_UNHEALTHY_ENDPOINTS)
}

/// Whether proxies receive a service's unhealthy endpoints whatever else is configured.
pub(super) fn always_sends_unhealthy(flags: &Flags, service: &Service) -> bool {
    sends_unhealthy_everywhere(flags) || service.traffic_distribution != TrafficDistribution::Any
}

/// Whether proxies receive a service's unhealthy endpoints.
pub(super) fn sends_unhealthy(flags: &Flags, service: &Service) -> bool {
    flags.get(PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS) || always_sends_unhealthy(flags, service)
}

/// Sets what a policy says about outliers. If unhealthy endpoints are always sent, no minimum of healthy ones is kept.
pub(super) fn apply(draft: &mut Draft, always_unhealthy: bool, policy: &OutlierDetection) {
    draft.rest().outlier_detection = Some(detection(policy));
    // Parity: zero cannot be told from "not said"; Envoy's own default would route to all endpoints once half are out.
    if policy.min_health_percent >= 0 {
        let percent = if always_unhealthy { 0 } else { policy.min_health_percent };
        draft.balancing().healthy_panic_threshold = Some(Percent { value: percent.into() });
    }
    if !policy.outlier_detection_http_error_codes.is_empty() {
        let errors = any_of(&policy.outlier_detection_http_error_codes);
        draft.http().outlier_detection =
            Some(http_protocol_options::OutlierDetection { error_matcher: Some(errors) });
    }
}

fn detection(policy: &OutlierDetection) -> Detection {
    // A count that is set is enforced always or, if it is zero, never.
    let enforced = |count: u32| UInt32Value::from(if count > 0 { 100 } else { 0 });
    let never = Some(0.into());
    let mut detection = Detection {
        enforcing_success_rate: never,
        consecutive_5xx: policy.consecutive_5xx_errors,
        enforcing_consecutive_5xx: policy.consecutive_5xx_errors.map(|count| enforced(count.value)),
        consecutive_gateway_failure: policy.consecutive_gateway_errors,
        enforcing_consecutive_gateway_failure: policy
            .consecutive_gateway_errors
            .map(|count| enforced(count.value)),
        interval: policy.interval,
        base_ejection_time: policy.base_ejection_time,
        ..Default::default()
    };
    if policy.max_ejection_percent > 0 {
        detection.max_ejection_percent = Some(policy.max_ejection_percent.cast_unsigned().into());
    }
    if policy.split_external_local_origin_errors {
        detection.split_external_local_origin_errors = true;
        detection.enforcing_local_origin_success_rate = never;
        if let Some(count) = policy.consecutive_local_origin_failures.filter(|count| count.value > 0) {
            detection.consecutive_local_origin_failure = Some(count);
            detection.enforcing_consecutive_local_origin_failure = Some(enforced(count.value));
        }
    }
    detection
}

/// Responses with one of these codes.
fn any_of(codes: &[u32]) -> MatchPredicate {
    let mut rules: Vec<_> = codes.iter().map(|code| with_status(&code.to_string())).collect();
    if rules.len() == 1 {
        return rules.remove(0);
    }
    MatchPredicate { rule: Some(Rule::OrMatch(MatchSet { rules })) }
}

fn with_status(code: &str) -> MatchPredicate {
    let status = HeaderMatcher {
        name: ":status".to_owned(),
        header_match_specifier: tls::exact([code]).pop().map(HeaderMatchSpecifier::StringMatch),
        ..Default::default()
    };
    MatchPredicate { rule: Some(Rule::HttpResponseHeadersMatch(HttpHeadersMatch { headers: vec![status] })) }
}
