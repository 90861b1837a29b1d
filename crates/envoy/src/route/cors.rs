//! Cross-origin resource sharing.

use canopus_proto::envoy::config::core::v3::RuntimeFractionalPercent;
use canopus_proto::envoy::extensions::filters::http::cors::v3::CorsPolicy as Policy;
use canopus_proto::istio::networking::v1alpha3::cors_policy::UnmatchedPreflights;
use canopus_proto::istio::networking::v1alpha3::string_match::MatchType;
use canopus_proto::istio::networking::v1alpha3::{CorsPolicy, StringMatch};

use super::fault::whole_percent;
use super::matching::string_matcher;

/// The policy of a route.
pub(super) fn policy(policy: &CorsPolicy) -> Policy {
    Policy {
        allow_origin_string_match: origins(policy).iter().filter_map(string_matcher).collect(),
        allow_methods: policy.allow_methods.join(","),
        allow_headers: policy.allow_headers.join(","),
        expose_headers: policy.expose_headers.join(","),
        max_age: policy.max_age.map(|age| age.seconds.to_string()).unwrap_or_default(),
        allow_credentials: policy.allow_credentials,
        filter_enabled: Some(RuntimeFractionalPercent {
            default_value: Some(whole_percent(100)),
            ..Default::default()
        }),
        forward_not_matching_preflights: Some(
            (policy.unmatched_preflights() != UnmatchedPreflights::Ignore).into(),
        ),
        ..Default::default()
    }
}

#[expect(deprecated, reason = "exact origins are the old way to say it")]
fn origins(policy: &CorsPolicy) -> Vec<StringMatch> {
    if !policy.allow_origins.is_empty() {
        return policy.allow_origins.clone();
    }
    let exact = |origin: &String| StringMatch { match_type: Some(MatchType::Exact(origin.clone())) };
    policy.allow_origin.iter().map(exact).collect()
}
