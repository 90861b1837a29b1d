//! Routes and matches that no request ever reaches.

mod overlap;

use canopus_base::FastMap;
use canopus_proto::Message;
use canopus_proto::istio::networking::v1alpha3::{
    HttpMatchRequest, HttpRoute, L4MatchAttributes, TcpRoute, TlsMatchAttributes, TlsRoute,
};

use crate::text::quoted;
use crate::validate::code::codes;
use crate::validate::scope::Scope;

codes! {
    UNREACHABLE: warning "virtual-service-unreachable-rule", "remove the rule, or move it before the ones that hide it";
    INEFFECTIVE: warning "virtual-service-ineffective-match", "remove the match, or move it before the one that hides it";
}

/// A route of any protocol.
trait Rule {
    type Match: Message + Clone;

    fn matches(&self) -> &[Self::Match];

    /// What a user called the route.
    fn name(&self) -> &str {
        ""
    }

    /// What a user called a match.
    fn match_name(_: &Self::Match) -> &str {
        ""
    }

    /// The same match without what a user called it.
    fn nameless(matching: &Self::Match) -> Self::Match {
        matching.clone()
    }
}

impl Rule for HttpRoute {
    type Match = HttpMatchRequest;

    fn matches(&self) -> &[HttpMatchRequest] {
        &self.r#match
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn match_name(matching: &HttpMatchRequest) -> &str {
        &matching.name
    }

    fn nameless(matching: &HttpMatchRequest) -> HttpMatchRequest {
        HttpMatchRequest { name: String::new(), ..matching.clone() }
    }
}

impl Rule for TcpRoute {
    type Match = L4MatchAttributes;

    fn matches(&self) -> &[L4MatchAttributes] {
        &self.r#match
    }
}

impl Rule for TlsRoute {
    type Match = TlsMatchAttributes;

    fn matches(&self) -> &[TlsMatchAttributes] {
        &self.r#match
    }
}

/// A name in quotes, or the place in the list.
fn label(name: &str, index: usize) -> String {
    if name.is_empty() { format!("#{index}") } else { quoted(name) }
}

/// Warns of HTTP routes. `scope` is the list's.
pub(super) fn http(routes: &[HttpRoute], mut scope: Scope<'_>) {
    let mut prefixes = Vec::new();
    each_new_match(routes, scope.again(), |rule, index| {
        prefixes.extend(overlap::PrefixMatch::from_route(&routes[rule], rule, index));
    });
    overlap::check(&prefixes, scope);
}

/// Warns of TCP routes. `scope` is the list's.
pub(super) fn tcp(routes: &[TcpRoute], scope: Scope<'_>) {
    each_new_match(routes, scope, |_, _| {});
}

/// Warns of TLS routes. `scope` is the list's.
pub(super) fn tls(routes: &[TlsRoute], scope: Scope<'_>) {
    each_new_match(routes, scope, |_, _| {});
}

/// Warns of rules behind one that takes everything, and of repeated matches; tells of the matches that are neither.
fn each_new_match<R: Rule>(routes: &[R], mut scope: Scope<'_>, mut new_match: impl FnMut(usize, usize)) {
    let mut seen = FastMap::<Vec<u8>, usize>::default();
    let mut takes_everything = false;
    for (rule, route) in routes.iter().enumerate() {
        let mut scope = scope.item(rule);
        if route.matches().is_empty() {
            if takes_everything {
                unreachable(route, rule, "only the last rule can have no matches", scope);
            }
            takes_everything = true;
            continue;
        }
        let mut repeated = 0;
        for (index, matching) in route.matches().iter().enumerate() {
            if takes_everything {
                unreachable(route, rule, "route without matches defined before", scope.again());
                continue;
            }
            match seen.get(&key::<R>(matching)) {
                Some(&earlier) => {
                    let rule = label(route.name(), rule);
                    let matching = label(R::match_name(matching), index);
                    let earlier = label(routes[earlier].name(), earlier);
                    ineffective(rule, matching, earlier, scope.field("match").item(index));
                    repeated += 1;
                }
                None => {
                    seen.insert(key::<R>(matching), rule);
                    new_match(rule, index);
                }
            }
        }
        if repeated == route.matches().len() {
            unreachable(route, rule, "all matches used by prior rules", scope);
        }
    }
}

/// Equal for matches that match the same.
fn key<R: Rule>(matching: &R::Match) -> Vec<u8> {
    if R::match_name(matching).is_empty() {
        matching.encode_to_vec()
    } else {
        R::nameless(matching).encode_to_vec()
    }
}

fn unreachable<R: Rule>(route: &R, rule: usize, reason: &str, mut scope: Scope<'_>) {
    let rule = label(route.name(), rule);
    let message = format!("virtualService rule {rule} not used ({reason})");
    scope.add(UNREACHABLE.says(message).with([rule, reason.to_owned()]));
}

fn ineffective(rule: String, matching: String, earlier: String, mut scope: Scope<'_>) {
    let message = format!(
        "virtualService rule {rule} match {matching} is not used (duplicate/overlapping match in rule {earlier})"
    );
    scope.add(INEFFECTIVE.says(message).with([rule, matching, earlier]));
}
