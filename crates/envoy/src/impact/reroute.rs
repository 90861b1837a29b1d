//! Requests that a change sends another way: witnesses, found by trying.
//!
//! The conditions of routes, filter chains and access rules on both sides suggest requests: a path for each path that is
//! asked for, a header for each header. Each is followed before and after, and one request is kept for each pair of ways that
//! differ. A request that is shown is a proof; that none is shown is none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use canopus_proto::Message as _;
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::envoy::config::rbac::v3::permission::Rule;
use canopus_proto::envoy::config::rbac::v3::principal::Identifier;
use canopus_proto::envoy::config::rbac::v3::{Permission, Principal, Rbac};
use canopus_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use canopus_proto::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use canopus_proto::envoy::config::route::v3::route_match::PathSpecifier;
use canopus_proto::envoy::config::route::v3::{HeaderMatcher, Route, RouteConfiguration, VirtualHost};
use canopus_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use canopus_proto::envoy::r#type::matcher::v3::{StringMatcher, filter_state_matcher, path_matcher};
use canopus_proto::resource::Resource;
use serde::{Deserialize, Serialize};

use crate::simulate::{self, Call, Capture, Config, End, Failure, Tls};

/// Requests that are tried on one resource.
const MAX_TRIES: usize = 2048;

/// Values of one kind that rules suggest.
const MAX_SUGGESTED: usize = 12;

/// What sidecars offer each other.
const MESH_ALPN: &str = "istio-http/1.1";

/// Who calls if no rule names anybody.
const SOMEBODY: &str = "spiffe://cluster.local/ns/default/sa/default";

/// A request that takes another way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reroute {
    /// The request, as `canopus explain` takes it.
    pub request: String,
    /// The route table or listener that decides.
    pub decided_by: String,
    /// What became of it before.
    pub before: String,
    /// What becomes of it.
    pub after: String,
}

type Outcome = Result<End, Failure>;

/// The requests that a route table sends another way.
pub(super) fn of_table(before: &Resource, after: &Resource) -> Vec<Reroute> {
    let (Some(old), Some(new)) = (table(before), table(after)) else { return Vec::new() };
    let mut found = Found::new(&before.name);
    for (table, other) in [(&new, &old), (&old, &new)] {
        let differs =
            |host: &&VirtualHost| other.virtual_hosts.iter().find(|one| one.name == host.name) != Some(*host);
        for host in table.virtual_hosts.iter().filter(differs) {
            let Some(authority) = authority(&host.domains) else { continue };
            let calls = host.routes.iter().filter_map(|route| call_for(route, &authority));
            let plain = Call { host: authority.clone(), ..Call::default() };
            for call in std::iter::once(plain).chain(calls) {
                let way = |table| simulate::follow_table(table, &call);
                found.compare(&call, way(&old), way(&new));
            }
        }
    }
    found.all
}

/// The requests that a listener lets through, denies or sends on otherwise; for listeners of captured inbound traffic.
pub(super) fn of_listener(before: &Resource, after: &Resource) -> Vec<Reroute> {
    let (Some(old), Some(new)) = (listener(before), listener(after)) else { return Vec::new() };
    let mut found = Found::new(&before.name);
    let suggested = Suggested::by(&[&old, &new]);
    let config = |listener: Listener| Config { listeners: vec![listener], routes: BTreeMap::new() };
    let (old, new) = (config(old), config(new));
    for call in suggested.calls() {
        found.compare(&call, old.follow(&call).end, new.follow(&call).end);
    }
    found.all
}

fn table(resource: &Resource) -> Option<RouteConfiguration> {
    RouteConfiguration::decode(resource.body.clone()).ok()
}

fn listener(resource: &Resource) -> Option<Listener> {
    Listener::decode(resource.body.clone()).ok().filter(|listener| listener.name == "virtualInbound")
}

/// Ways that differ, each with the first request that was found to show it.
struct Found {
    decided_by: String,
    pairs: BTreeSet<(String, String, String)>,
    tries: usize,
    all: Vec<Reroute>,
}

impl Found {
    fn new(decided_by: &str) -> Self {
        Self { decided_by: decided_by.to_owned(), pairs: BTreeSet::new(), tries: 0, all: Vec::new() }
    }

    fn compare(&mut self, call: &Call, before: Outcome, after: Outcome) {
        self.tries += 1;
        if self.tries > MAX_TRIES || before == after {
            return;
        }
        let (before, after) = (words(&before), words(&after));
        let place = match call.capture {
            Capture::None => call.host.clone(),
            Capture::Inbound => call.port.to_string(),
        };
        if self.pairs.insert((place, before.clone(), after.clone())) {
            self.all.push(Reroute {
                request: request(call),
                decided_by: self.decided_by.clone(),
                before,
                after,
            });
        }
    }
}

/// A host that a virtual host is for: the first of its domains without a wildcard, or one that fits the wildcard.
fn authority(domains: &[String]) -> Option<String> {
    let exact = domains.iter().find(|domain| !domain.contains('*'));
    let fitting = |domain: &String| match domain.as_str() {
        "*" => "some-host.example".to_owned(),
        other => other.replace('*', "some-host"),
    };
    exact.cloned().or_else(|| domains.first().map(fitting))
}

/// A request that a route takes, as far as one can be made up.
fn call_for(route: &Route, authority: &str) -> Option<Call> {
    let wanted = route.r#match.as_ref()?;
    let mut call = Call { host: authority.to_owned(), ..Call::default() };
    match wanted.path_specifier.as_ref()? {
        PathSpecifier::Prefix(path)
        | PathSpecifier::Path(path)
        | PathSpecifier::PathSeparatedPrefix(path) => {
            call.path.clone_from(path);
        }
        PathSpecifier::SafeRegex(regex) => call.path = made_up(&regex.regex),
        PathSpecifier::ConnectMatcher(_) => "CONNECT".clone_into(&mut call.method),
        PathSpecifier::PathMatchPolicy(_) => return None,
    }
    for header in wanted.headers.iter().filter(|header| !header.invert_match) {
        let value = header_value(header)?;
        match header.name.to_lowercase().as_str() {
            ":method" => call.method = value,
            ":authority" | "host" => call.host = value,
            ":path" => call.path = value,
            ":scheme" => {}
            name => {
                call.headers.insert(name.to_owned(), value);
            }
        }
    }
    let mut separator = '?';
    for parameter in &wanted.query_parameters {
        let value = match &parameter.query_parameter_match_specifier {
            Some(QueryParameterMatchSpecifier::StringMatch(matcher)) => text_for(matcher)?,
            Some(QueryParameterMatchSpecifier::PresentMatch(false)) => continue,
            _ => "x".to_owned(),
        };
        let _ = write!(call.path, "{separator}{}={value}", parameter.name);
        separator = '&';
    }
    simulate::route_takes(route, &call).then_some(call)
}

#[expect(deprecated, reason = "users' own patches may use the older forms")]
fn header_value(header: &HeaderMatcher) -> Option<String> {
    Some(match &header.header_match_specifier {
        Some(HeaderMatchSpecifier::StringMatch(matcher)) => text_for(matcher)?,
        Some(
            HeaderMatchSpecifier::ExactMatch(text)
            | HeaderMatchSpecifier::PrefixMatch(text)
            | HeaderMatchSpecifier::SuffixMatch(text)
            | HeaderMatchSpecifier::ContainsMatch(text),
        ) => text.clone(),
        Some(HeaderMatchSpecifier::SafeRegexMatch(regex)) => made_up(&regex.regex),
        Some(HeaderMatchSpecifier::RangeMatch(range)) => range.start.to_string(),
        Some(HeaderMatchSpecifier::PresentMatch(false)) => return None,
        Some(HeaderMatchSpecifier::PresentMatch(true)) | None => "x".to_owned(),
    })
}

fn text_for(matcher: &StringMatcher) -> Option<String> {
    Some(match matcher.match_pattern.as_ref()? {
        MatchPattern::Exact(text)
        | MatchPattern::Prefix(text)
        | MatchPattern::Suffix(text)
        | MatchPattern::Contains(text) => text.clone(),
        MatchPattern::SafeRegex(regex) => made_up(&regex.regex),
        MatchPattern::Custom(_) => return None,
    })
}

/// A text that a simple expression matches. Whether it does is checked by whoever uses it.
fn made_up(regex: &str) -> String {
    let simple = regex.trim_start_matches('^').trim_end_matches('$');
    // The first of several alternatives of the whole expression.
    let simple = if simple.contains('(') { simple } else { simple.split('|').next().unwrap_or_default() };
    ["[^/]+", "[^/]*", "[0-9]+", "\\d+", "\\w+", "(.*)", "(.+)", ".*", ".+"]
        .into_iter()
        .fold(simple.to_owned(), |text, part| text.replace(part, "1"))
        .replace('\\', "")
}

/// Requests that the rules of a listener suggest.
#[derive(Default)]
struct Suggested {
    ports: BTreeSet<u32>,
    paths: BTreeSet<String>,
    methods: BTreeSet<String>,
    principals: BTreeSet<String>,
    headers: BTreeSet<(String, String)>,
}

impl Suggested {
    fn by(listeners: &[&Listener]) -> Self {
        let mut suggested = Self::default();
        for listener in listeners {
            for chain in &listener.filter_chains {
                let port = chain.filter_chain_match.as_ref().and_then(|asked| asked.destination_port);
                suggested.ports.extend(port.map(|port| port.value).filter(|port| *port > 0));
                simulate::rules_of(chain).iter().for_each(|rules| suggested.add(rules));
            }
            suggested.add_all_ports(listener);
        }
        suggested
    }

    fn add_all_ports(&mut self, listener: &Listener) {
        let has_open_chain = listener.filter_chains.iter().any(|chain| {
            chain.filter_chain_match.as_ref().is_none_or(|asked| asked.destination_port.is_none())
        });
        if has_open_chain && self.ports.is_empty() {
            self.ports.insert(80);
        }
    }

    fn add(&mut self, rules: &Rbac) {
        for policy in rules.policies.values() {
            policy.permissions.iter().for_each(|permission| self.add_permission(permission));
            policy.principals.iter().for_each(|principal| self.add_principal(principal));
        }
    }

    fn add_permission(&mut self, permission: &Permission) {
        match &permission.rule {
            Some(Rule::AndRules(set) | Rule::OrRules(set)) => {
                set.rules.iter().for_each(|rule| self.add_permission(rule));
            }
            Some(Rule::NotRule(rule)) => self.add_permission(rule),
            Some(Rule::Header(header)) => self.add_header(header),
            Some(Rule::UrlPath(matcher)) => {
                if let Some(path_matcher::Rule::Path(matcher)) = &matcher.rule {
                    self.paths.extend(text_for(matcher));
                }
            }
            Some(Rule::DestinationPort(port)) => {
                self.ports.insert(*port);
            }
            _ => {}
        }
    }

    fn add_principal(&mut self, principal: &Principal) {
        match &principal.identifier {
            Some(Identifier::AndIds(set) | Identifier::OrIds(set)) => {
                set.ids.iter().for_each(|one| self.add_principal(one));
            }
            Some(Identifier::NotId(one)) => self.add_principal(one),
            Some(Identifier::Authenticated(peer)) => {
                self.principals.extend(peer.principal_name.as_ref().and_then(text_for));
            }
            Some(Identifier::FilterState(state)) => {
                if let Some(filter_state_matcher::Matcher::StringMatch(name)) = &state.matcher {
                    self.principals.extend(text_for(name));
                }
            }
            Some(Identifier::Header(header)) => self.add_header(header),
            _ => {}
        }
    }

    fn add_header(&mut self, header: &HeaderMatcher) {
        let Some(value) = header_value(header) else { return };
        match header.name.to_lowercase().as_str() {
            ":method" => self.methods.insert(value),
            ":path" => self.paths.insert(value),
            name if name.starts_with(':') => false,
            name => self.headers.insert((name.to_owned(), value)),
        };
    }

    /// All combinations, the plainest first.
    fn calls(&self) -> impl Iterator<Item = Call> {
        let some = |texts: &BTreeSet<String>, usual: &str| -> Vec<String> {
            let usual = std::iter::once(usual.to_owned());
            usual.chain(texts.iter().take(MAX_SUGGESTED).filter(|text| !text.is_empty()).cloned()).collect()
        };
        let (paths, methods) = (some(&self.paths, "/"), some(&self.methods, "GET"));
        let callers: Vec<Option<String>> =
            std::iter::once(None).chain(some(&self.principals, SOMEBODY).into_iter().map(Some)).collect();
        let headers: Vec<Option<&(String, String)>> =
            std::iter::once(None).chain(self.headers.iter().take(MAX_SUGGESTED).map(Some)).collect();
        let mut calls = Vec::new();
        for port in self.ports.iter().take(MAX_SUGGESTED) {
            for header in &headers {
                for caller in &callers {
                    for method in &methods {
                        for path in &paths {
                            calls.push(Call {
                                port: *port,
                                capture: Capture::Inbound,
                                tls: caller.is_some().then(mesh_tls),
                                principal: caller.clone(),
                                method: method.clone(),
                                path: path.clone(),
                                host: "workload".to_owned(),
                                headers: header
                                    .iter()
                                    .map(|(name, value)| (name.clone(), value.clone()))
                                    .collect(),
                                ..Call::default()
                            });
                        }
                    }
                }
            }
        }
        calls.into_iter().take(MAX_TRIES)
    }
}

fn mesh_tls() -> Tls {
    Tls { sni: String::new(), alpn: MESH_ALPN.to_owned(), mutual_with: Some("default".to_owned()) }
}

fn request(call: &Call) -> String {
    let mut text = match call.capture {
        Capture::None => format!("{} http://{}{}", call.method, call.host, call.path),
        Capture::Inbound => {
            let mut text = format!("{} {} to port {}", call.method, call.path, call.port);
            match &call.principal {
                Some(principal) => text.push_str(&format!(" from {principal}")),
                None => text.push_str(" in clear text"),
            }
            text
        }
    };
    for (name, value) in &call.headers {
        let _ = write!(text, " -H '{name}: {value}'");
    }
    text
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Ok(End::Cluster(cluster)) => format!("goes to {cluster}"),
        Ok(End::Weighted(weighted)) => {
            let total: u64 = weighted.iter().map(|(_, weight)| u64::from(*weight)).sum();
            let share = |weight: u32| u64::from(weight) * 100 / total.max(1);
            let parts = weighted.iter().map(|(name, weight)| format!("{name} ({}%)", share(*weight)));
            format!("goes to {}", parts.collect::<Vec<_>>().join(", "))
        }
        Ok(End::ClusterHeader(header)) => format!("goes to the cluster that header {header} names"),
        Ok(End::Redirect(redirect)) => {
            use canopus_proto::envoy::config::route::v3::redirect_action::PathRewriteSpecifier;
            let path = match &redirect.path_rewrite_specifier {
                Some(
                    PathRewriteSpecifier::PathRedirect(path) | PathRewriteSpecifier::PrefixRewrite(path),
                ) => path,
                _ => "",
            };
            format!("is redirected to {}{path}", redirect.host_redirect)
        }
        Ok(End::Response(status)) => format!("is answered with {status}"),
        Ok(End::Fault(status)) => format!("ends with {status} by a fault"),
        Ok(End::Nothing) => "ends in a filter that forwards nothing".to_owned(),
        Err(failure) => failure.to_string(),
    }
}
