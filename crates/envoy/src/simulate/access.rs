//! Whether filters of a chain let a request or a connection through: RBAC, and faults that a route injects.

use canopus_base::net::IpNet;
use canopus_proto::envoy::config::core::v3::{CidrRange, TypedExtensionConfig};
use canopus_proto::envoy::config::rbac::v3::permission::Rule;
use canopus_proto::envoy::config::rbac::v3::principal::Identifier;
use canopus_proto::envoy::config::rbac::v3::rbac::Action;
use canopus_proto::envoy::config::rbac::v3::{Permission, Policy, Principal, Rbac};
use canopus_proto::envoy::config::route::v3::Route;
use canopus_proto::envoy::extensions::filters::http::fault::v3::HttpFault;
use canopus_proto::envoy::extensions::filters::http::fault::v3::fault_abort::ErrorType;
use canopus_proto::envoy::extensions::path::r#match::uri_template::v3::UriTemplateMatchConfig;
use canopus_proto::envoy::r#type::matcher::v3::{filter_state_matcher, path_matcher};
use canopus_proto::envoy::r#type::v3::FractionalPercent;
use canopus_proto::envoy::r#type::v3::fractional_percent::DenominatorType;

use super::{Call, route, text};

/// The filter by which a route injects faults.
pub(super) const FAULT: &str = "envoy.filters.http.fault";

/// What an RBAC filter made of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the filter's policies deny what they match; otherwise they deny what none of them matches.
    pub denies: bool,
    /// The policy that matched, such as `ns[shop]-policy[readers]-rule[0]`.
    pub matched: Option<String>,
    /// The policies of the filter.
    pub policies: Vec<String>,
    /// Whether the request goes on.
    pub passes: bool,
}

/// The verdict of rules that are enforced; `None` if they only log.
pub(super) fn verdict(rules: &Rbac, call: &Call) -> Option<Verdict> {
    let denies = match rules.action() {
        Action::Allow => false,
        Action::Deny => true,
        Action::Log => return None,
    };
    // Envoy looks at policies in the order of their names, and stops at the first that matches.
    let mut policies: Vec<(&String, &Policy)> = rules.policies.iter().collect();
    policies.sort_by_key(|(name, _)| *name);
    let matched = policies.iter().find(|(_, policy)| matches(policy, call)).map(|(name, _)| (*name).clone());
    let passes = matched.is_some() != denies;
    Some(Verdict {
        denies,
        matched,
        policies: policies.iter().map(|(name, _)| (*name).clone()).collect(),
        passes,
    })
}

fn matches(policy: &Policy, call: &Call) -> bool {
    policy.permissions.iter().any(|permission| permits(permission, call))
        && policy.principals.iter().any(|principal| is_caller(principal, call))
}

/// Whether a request is one that a permission is about. What cannot be told from the request alone does not match.
#[expect(deprecated, reason = "proxies before Envoy 1.35 know no other field")]
fn permits(permission: &Permission, call: &Call) -> bool {
    let path = call.path.split('?').next().unwrap_or_default();
    match &permission.rule {
        Some(Rule::AndRules(set)) => set.rules.iter().all(|one| permits(one, call)),
        Some(Rule::OrRules(set)) => set.rules.iter().any(|one| permits(one, call)),
        Some(Rule::NotRule(not)) => !permits(not, call),
        Some(Rule::Any(any)) => *any,
        Some(Rule::Header(header)) => route::header_matches(header, call),
        Some(Rule::UrlPath(matcher)) => match &matcher.rule {
            Some(path_matcher::Rule::Path(matcher)) => text::matches(matcher, path),
            None => false,
        },
        Some(Rule::UriTemplate(template)) => template_matches(template, path),
        Some(Rule::DestinationIp(range)) => covers(range, Some(call.address)),
        Some(Rule::DestinationPort(port)) => *port == call.port,
        Some(Rule::DestinationPortRange(range)) => {
            (i64::from(range.start)..i64::from(range.end)).contains(&i64::from(call.port))
        }
        Some(Rule::RequestedServerName(matcher)) => {
            text::matches(matcher, call.tls.as_ref().map_or("", |tls| &tls.sni))
        }
        Some(Rule::Metadata(matcher)) => text::metadata_matches(matcher, call.metadata.get(&matcher.filter)),
        Some(Rule::SourcedMetadata(_) | Rule::Matcher(_)) | None => false,
    }
}

/// Whether a principal is who calls.
#[expect(deprecated, reason = "proxies before Envoy 1.35 know no other field")]
fn is_caller(principal: &Principal, call: &Call) -> bool {
    match &principal.identifier {
        Some(Identifier::AndIds(set)) => set.ids.iter().all(|one| is_caller(one, call)),
        Some(Identifier::OrIds(set)) => set.ids.iter().any(|one| is_caller(one, call)),
        Some(Identifier::NotId(not)) => !is_caller(not, call),
        Some(Identifier::Any(any)) => *any,
        Some(Identifier::Authenticated(peer)) => match (&call.principal, &peer.principal_name) {
            (Some(caller), Some(name)) => text::matches(name, caller),
            (caller, None) => caller.is_some(),
            (None, Some(_)) => false,
        },
        Some(Identifier::FilterState(state)) => match (&call.principal, &state.matcher) {
            (Some(caller), Some(filter_state_matcher::Matcher::StringMatch(name))) => {
                text::matches(name, caller)
            }
            _ => false,
        },
        Some(
            Identifier::SourceIp(range) | Identifier::DirectRemoteIp(range) | Identifier::RemoteIp(range),
        ) => covers(range, call.source),
        Some(Identifier::Header(header)) => route::header_matches(header, call),
        Some(Identifier::UrlPath(matcher)) => match &matcher.rule {
            Some(path_matcher::Rule::Path(matcher)) => {
                text::matches(matcher, call.path.split('?').next().unwrap_or_default())
            }
            None => false,
        },
        Some(Identifier::Metadata(matcher)) => {
            text::metadata_matches(matcher, call.metadata.get(&matcher.filter))
        }
        Some(Identifier::SourcedMetadata(_) | Identifier::Custom(_)) | None => false,
    }
}

fn covers(range: &CidrRange, address: Option<std::net::IpAddr>) -> bool {
    let length = range.prefix_len.map_or(0, |length| length.value);
    let network = range.address_prefix.parse().ok().zip(u8::try_from(length).ok());
    let network = network.and_then(|(prefix, length)| IpNet::new(prefix, length).ok());
    network.zip(address).is_some_and(|(network, address)| network.contains(&address))
}

/// In a template `*` is one part of a path, `**` any number of them.
fn template_matches(config: &TypedExtensionConfig, path: &str) -> bool {
    let template = config.typed_config.as_ref().and_then(|any| any.unpack::<UriTemplateMatchConfig>().ok());
    let Some(template) = template else { return false };
    let part = |part: &str| match part {
        "*" => "[^/]+".to_owned(),
        "**" => ".*".to_owned(),
        literal => regex::escape(literal),
    };
    let parts: Vec<String> = template.path_template.split('/').map(part).collect();
    text::is_full_match(&parts.join("/"), path)
}

/// The status with which a route aborts every request; `None` if it aborts none, or some by chance.
pub(super) fn abort(found: &Route, call: &Call) -> Option<u32> {
    let fault: HttpFault = found.typed_per_filter_config.get(FAULT)?.unpack().ok()?;
    let abort =
        fault.abort.filter(|_| fault.headers.iter().all(|header| route::header_matches(header, call)))?;
    match abort.error_type? {
        ErrorType::HttpStatus(status) => abort.percentage.as_ref().is_some_and(is_always).then_some(status),
        // gRPC's status travels in an answer that HTTP thinks well of.
        ErrorType::GrpcStatus(_) => abort.percentage.as_ref().is_some_and(is_always).then_some(200),
        ErrorType::HeaderAbort(_) => None,
    }
}

fn is_always(share: &FractionalPercent) -> bool {
    let whole = match share.denominator() {
        DenominatorType::Hundred => 100,
        DenominatorType::TenThousand => 10_000,
        DenominatorType::Million => 1_000_000,
    };
    share.numerator >= whole
}

#[cfg(test)]
mod tests {
    use canopus_proto::Any;
    use canopus_proto::envoy::config::rbac::v3::principal::Authenticated;
    use canopus_proto::envoy::extensions::filters::http::fault::v3::FaultAbort;
    use canopus_proto::envoy::r#type::matcher::v3::{
        PathMatcher, StringMatcher, string_matcher::MatchPattern,
    };

    use super::*;

    fn text(pattern: MatchPattern) -> StringMatcher {
        StringMatcher { match_pattern: Some(pattern), ..Default::default() }
    }

    fn on_path(prefix: &str) -> Permission {
        let matcher = text(MatchPattern::Prefix(prefix.to_owned()));
        Permission {
            rule: Some(Rule::UrlPath(PathMatcher { rule: Some(path_matcher::Rule::Path(matcher)) })),
        }
    }

    fn named(name: &str) -> Principal {
        let principal_name = Some(text(MatchPattern::Exact(name.to_owned())));
        Principal { identifier: Some(Identifier::Authenticated(Authenticated { principal_name })) }
    }

    fn rules(action: Action, policies: &[(&str, Permission, Principal)]) -> Rbac {
        let policy = |(name, permission, principal): &(&str, Permission, Principal)| {
            let policy = Policy {
                permissions: vec![permission.clone()],
                principals: vec![principal.clone()],
                ..Default::default()
            };
            ((*name).to_owned(), policy)
        };
        Rbac { action: action.into(), policies: policies.iter().map(policy).collect(), ..Default::default() }
    }

    fn call(path: &str, principal: Option<&str>) -> Call {
        Call { path: path.to_owned(), principal: principal.map(str::to_owned), ..Call::default() }
    }

    #[test]
    fn policies_that_allow_deny_what_none_of_them_matches() {
        let rules =
            rules(Action::Allow, &[("b", on_path("/b"), named("web")), ("a", on_path("/a"), named("web"))]);
        let verdict = |path, principal| verdict(&rules, &call(path, principal)).unwrap();
        assert_eq!(verdict("/a?q", Some("web")).matched.as_deref(), Some("a"));
        assert!(verdict("/b", Some("web")).passes);
        for (path, principal) in [("/c", Some("web")), ("/a", Some("other")), ("/a", None)] {
            let verdict = verdict(path, principal);
            assert!(!verdict.passes && verdict.matched.is_none(), "{path} {principal:?}");
            assert_eq!(verdict.policies, ["a", "b"]);
        }
    }

    #[test]
    fn policies_that_deny_let_everything_else_pass_and_those_that_log_say_nothing() {
        let not_web = Principal { identifier: Some(Identifier::NotId(Box::new(named("web")))) };
        let denied = rules(Action::Deny, &[("strangers", on_path("/"), not_web.clone())]);
        assert!(verdict(&denied, &call("/", Some("web"))).unwrap().passes);
        // Who presents no certificate is not the one that is excepted.
        assert!(!verdict(&denied, &call("/", None)).unwrap().passes);
        assert_eq!(verdict(&rules(Action::Log, &[("l", on_path("/"), not_web)]), &call("/", None)), None);
    }

    #[test]
    fn templates_match_parts_of_paths() {
        let matches = |template: &str, path: &str| {
            let config = UriTemplateMatchConfig { path_template: template.to_owned() };
            let config =
                TypedExtensionConfig { name: "t".to_owned(), typed_config: Some(Any::pack(&config)) };
            template_matches(&config, path)
        };
        assert!(matches("/c/*", "/c/d") && !matches("/c/*", "/c/d/e") && !matches("/c/*", "/c/"));
        assert!(matches("/c/**/z", "/c/d/e/z") && matches("/a.b", "/a.b") && !matches("/a.b", "/axb"));
    }

    #[test]
    fn only_faults_that_meet_everybody_are_foretold() {
        let route = |numerator| {
            let share = FractionalPercent { numerator, denominator: DenominatorType::Hundred.into() };
            let abort = FaultAbort {
                percentage: Some(share),
                error_type: Some(ErrorType::HttpStatus(418)),
                ..Default::default()
            };
            let fault = HttpFault { abort: Some(abort), ..Default::default() };
            Route {
                typed_per_filter_config: [(FAULT.to_owned(), Any::pack(&fault))].into_iter().collect(),
                ..Default::default()
            }
        };
        assert_eq!(abort(&route(100), &Call::default()), Some(418));
        assert_eq!(abort(&route(99), &Call::default()), None);
    }
}
