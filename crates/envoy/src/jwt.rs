//! Which tokens are accepted: RequestAuthentications as Envoy's filter for JSON web tokens.

mod key_set;
mod readable;

use canopus_api::node::NodeKind;
use canopus_api::security::jwks::JwksServer;
use canopus_engine::{Ctx, Query};
use canopus_mesh::attachment::PolicyTarget;
use canopus_mesh::request_authentication::{Jwks, KeyFetcher, KeySource, TokenRules, key_fetcher};
use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::{
    DataSource, HttpUri, data_source::Specifier, http_uri::HttpUpstreamType,
};
use canopus_proto::envoy::config::route::v3::{RouteMatch, route_match::PathSpecifier};
use canopus_proto::envoy::extensions::filters::http::jwt_authn::v3::jwt_provider::{
    JwksSourceSpecifier, NormalizePayload,
};
use canopus_proto::envoy::extensions::filters::http::jwt_authn::v3::jwt_requirement::RequiresType;
use canopus_proto::envoy::extensions::filters::http::jwt_authn::v3::requirement_rule::RequirementType;
use canopus_proto::envoy::extensions::filters::http::jwt_authn::v3::{
    JwtAuthentication, JwtClaimToHeader, JwtHeader, JwtProvider, JwtRequirement, JwtRequirementAndList,
    JwtRequirementOrList, RemoteJwks, RequirementRule,
};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use canopus_proto::google::protobuf::{Duration, Empty};
use canopus_proto::istio::security::v1beta1::JwtRule;

use crate::env::{Class, Env};
use crate::filter::packed_http_filter;
use crate::{names, provider};

/// The name of the filter, under which it also notes what it found.
pub(crate) const NAME: &str = "envoy.filters.http.jwt_authn";
/// The key of its notes under which the claims of a token are.
pub(crate) const PAYLOAD: &str = "payload";

const DEFAULT_TIMEOUT_SECONDS: i64 = 5;
const KEYS_ARE_FRESH_SECONDS: i64 = 5 * 60;

/// Claims that are lists written with spaces, whether a rule says so or not.
const LISTS: [&str; 2] = ["permission", "scope"];

/// Stands in for keys that have not been fetched: nobody has the private key that belongs to it, so no token passes.
pub(crate) const UNKNOWN_KEYS: &str = include_str!("jwt/unknown_keys.json").trim_ascii_end();

/// The filter on requests that arrive; `None` if there are no rules about tokens.
pub(crate) fn filter(env: &Env<'_>, class: Class) -> Option<HttpFilter> {
    if class == Class::Outbound {
        return None;
    }
    let protected = env.protected()?;
    if env.ctx.get::<TokenRules>(&protected).is_empty() {
        return None;
    }
    // Routes of gateways may depend on claims; a sidecar has but one.
    let reroutes = env.audience.role.kind != NodeKind::Sidecar;
    let config = env.ctx.get::<TokenFilter>(&(protected, reroutes));
    config
        .as_ref()
        .clone()
        .map(|config| packed_http_filter(NAME, readable::readable_keys(&env.audience.build, config)))
}

/// The configuration of the filter for the tokens of a workload; `None` if it has no rules about any.
pub(crate) struct TokenFilter;

impl Query for TokenFilter {
    const NAME: &'static str = "token_filter";
    /// The workload, and whether routes are chosen anew once the claims are known.
    type Key = (PolicyTarget, bool);
    type Value = Option<Any>;

    fn run(ctx: &Ctx<'_>, (protected, reroutes): &Self::Key) -> Self::Value {
        let rules = ctx.get::<TokenRules>(protected);
        let provider = |(at, rule): (usize, &_)| (format!("origins-{at}"), provider(ctx, rule, *reroutes));
        let providers: Vec<_> = rules.iter().map(|rule| &**rule).enumerate().map(provider).collect();
        if providers.is_empty() {
            return None;
        }
        let names: Vec<&str> = providers.iter().map(|(name, _)| name.as_str()).collect();
        let rule = RequirementRule {
            r#match: Some(RouteMatch {
                path_specifier: Some(PathSpecifier::Prefix("/".into())),
                ..Default::default()
            }),
            requirement_type: Some(RequirementType::Requires(requirement(&names))),
        };
        Some(Any::pack(&JwtAuthentication {
            rules: vec![rule],
            providers: providers.into_iter().collect(),
            bypass_cors_preflight: true,
            ..Default::default()
        }))
    }
}

/// A request without token passes, one with a token only if that is valid.
///
/// With several issuers a token found at a place they share satisfies one of them and not the others, so it is enough if
/// one of them accepts it.
fn requirement(providers: &[&str]) -> JwtRequirement {
    let accepted = |name: &&str| requires(RequiresType::ProviderName((*name).into()));
    let accepted_or_missing = |name: &&str| any_of(vec![accepted(name), missing()]);
    if let [only] = providers {
        return accepted_or_missing(only);
    }
    let each = providers.iter().map(accepted_or_missing).collect();
    let each = requires(RequiresType::RequiresAll(JwtRequirementAndList { requirements: each }));
    any_of(providers.iter().map(accepted).chain([each]).collect())
}

fn requires(requires_type: RequiresType) -> JwtRequirement {
    JwtRequirement { requires_type: Some(requires_type) }
}

fn any_of(requirements: Vec<JwtRequirement>) -> JwtRequirement {
    requires(RequiresType::RequiresAny(JwtRequirementOrList { requirements }))
}

fn missing() -> JwtRequirement {
    requires(RequiresType::AllowMissing(Empty::default()))
}

/// One issuer.
fn provider(ctx: &Ctx<'_>, rule: &JwtRule, reroutes: bool) -> JwtProvider {
    let from_headers = rule.from_headers.iter();
    let claims = rule.output_claim_to_headers.iter();
    JwtProvider {
        issuer: rule.issuer.clone(),
        audiences: rule.audiences.clone(),
        forward: rule.forward_original_token,
        forward_payload_header: rule.output_payload_to_header.clone(),
        payload_in_metadata: PAYLOAD.into(),
        normalize_payload_in_metadata: Some(NormalizePayload { space_delimited_claims: lists(rule) }),
        clear_route_cache: reroutes,
        claim_to_headers: claims
            .map(|claim| JwtClaimToHeader {
                header_name: claim.header.clone(),
                claim_name: claim.claim.clone(),
                ..Default::default()
            })
            .collect(),
        from_headers: from_headers
            .map(|header| JwtHeader { name: header.name.clone(), value_prefix: header.prefix.clone() })
            .collect(),
        from_params: rule.from_params.clone(),
        from_cookies: rule.from_cookies.clone(),
        jwks_source_specifier: Some(keys(ctx, rule)),
        ..Default::default()
    }
}

fn lists(rule: &JwtRule) -> Vec<String> {
    let written = rule.space_delimited_claims.iter().map(String::as_str);
    let all: std::collections::BTreeSet<_> = written.chain(LISTS).collect();
    all.into_iter().map(str::to_owned).collect()
}

fn keys(ctx: &Ctx<'_>, rule: &JwtRule) -> JwksSourceSpecifier {
    let fetcher = key_fetcher(ctx);
    if fetcher == KeyFetcher::ControlPlane || rule.jwks_uri.is_empty() {
        return match rule.jwks.as_str() {
            "" => fetched(ctx, rule),
            written => local(written),
        };
    }
    let server = JwksServer::parse(&rule.jwks_uri).ok();
    let host = server.as_ref().map_or("", |server| &server.host);
    let port = server.as_ref().map_or(0, |server| server.port);
    match provider::upstream(ctx, host, port) {
        Some(upstream) => remote(rule, upstream.cluster),
        None if fetcher == KeyFetcher::Hybrid => fetched(ctx, rule),
        // The proxy reports that there is no such cluster, and refuses all tokens.
        None => remote(rule, names::outbound_cluster(host, port, "")),
    }
}

/// The keys as the control plane fetched them.
fn fetched(ctx: &Ctx<'_>, rule: &JwtRule) -> JwksSourceSpecifier {
    let keys = ctx.read::<Jwks>(&KeySource::for_rule(rule));
    local(keys.as_deref().map_or(UNKNOWN_KEYS, |keys| keys))
}

fn local(keys: &str) -> JwksSourceSpecifier {
    let specifier = Some(Specifier::InlineString(keys.into()));
    JwksSourceSpecifier::LocalJwks(DataSource { specifier, ..Default::default() })
}

/// The proxy fetches the keys from a cluster.
fn remote(rule: &JwtRule, cluster: String) -> JwksSourceSpecifier {
    let timeout = rule.timeout.unwrap_or_else(|| Duration::from_secs(DEFAULT_TIMEOUT_SECONDS));
    JwksSourceSpecifier::RemoteJwks(RemoteJwks {
        http_uri: Some(HttpUri {
            uri: rule.jwks_uri.clone(),
            timeout: Some(timeout),
            http_upstream_type: Some(HttpUpstreamType::Cluster(cluster)),
        }),
        cache_duration: Some(Duration::from_secs(KEYS_ARE_FRESH_SECONDS)),
        ..Default::default()
    })
}
