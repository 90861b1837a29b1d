//! Envoy's principals: which callers a policy matches.

use canopus_base::spiffe;
use canopus_proto::envoy::config::rbac::v3::{
    Principal,
    principal::{Authenticated, Identifier},
};
use canopus_proto::envoy::r#type::matcher::v3::{
    FilterStateMatcher, MetadataMatcher, StringMatcher, filter_state_matcher,
};

use super::rule::{Attribute, Site, Terms, Unsupported};
use super::term::Term;
use super::{Peer, matcher, permission};
use crate::jwt;

const HEADERS: &str = "request.headers";
const CLAIMS: &str = "request.auth.claims";
const REQUEST_PRINCIPAL: &str = "request.auth.principal";
const AUDIENCES: &str = "request.auth.audiences";
const PRESENTER: &str = "request.auth.presenter";

/// Where listeners of tunnels note who is at the other end.
const PEER_STATE: &str = "io.istio.peer_principal";

/// What policies can ask about the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Caller<'a> {
    /// The identity of the peer, without its scheme.
    Principal,
    /// The namespace of the peer.
    Namespace,
    /// The service account of the peer.
    ServiceAccount,
    /// The trust domain of the peer.
    TrustDomain,
    /// The address of the peer.
    SourceIp,
    /// The address of the client, as trusted proxies forward it.
    RemoteIp,
    /// Issuer and subject of the token.
    RequestPrincipal,
    /// The token's `aud` claim.
    Audiences,
    /// The token's `azp` claim.
    Presenter,
    /// A claim of the token; the key says which.
    Claim(&'a str),
    /// A header of the request; the key says which.
    Header(&'a str),
}

impl<'a> Caller<'a> {
    /// The attribute a condition is about; `None` if there is no such attribute.
    pub(super) fn from_key(key: &'a str) -> Option<Self> {
        Some(match key {
            "source.ip" => Self::SourceIp,
            "remote.ip" => Self::RemoteIp,
            "source.namespace" => Self::Namespace,
            "source.trustDomain" => Self::TrustDomain,
            "source.serviceAccount" => Self::ServiceAccount,
            "source.principal" => Self::Principal,
            REQUEST_PRINCIPAL => Self::RequestPrincipal,
            AUDIENCES => Self::Audiences,
            PRESENTER => Self::Presenter,
            _ if key.starts_with(HEADERS) => Self::Header(key),
            _ if key.starts_with(CLAIMS) => Self::Claim(key),
            _ => return None,
        })
    }

    /// The key of an attribute that only requests have.
    fn request_key(self) -> Option<&'a str> {
        match self {
            Self::RequestPrincipal => Some(REQUEST_PRINCIPAL),
            Self::Audiences => Some(AUDIENCES),
            Self::Presenter => Some(PRESENTER),
            Self::Claim(key) | Self::Header(key) => Some(key),
            _ => None,
        }
    }
}

impl Attribute for Caller<'_> {
    type Message = Principal;

    fn terms(&self, values: &[String], site: &Site<'_>) -> Terms<Principal> {
        if let Some(key) = self.request_key().filter(|_| !site.layer.sees_requests()) {
            return Terms::Together(Err(Unsupported::RequestsOnly { key: key.into() }));
        }
        let each = |term: &dyn Fn(&str) -> Result<Term<Principal>, Unsupported>| {
            Terms::Each(values.iter().map(|value| term(value)).collect())
        };
        let peers = |name: &dyn Fn(&str) -> StringMatcher| each(&|value| Ok(peer(name(value), site.peer)));
        match *self {
            Self::Principal => peers(&|value| matcher::wildcard_after(spiffe::SCHEME, value)),
            Self::Namespace => peers(&|value| matcher::regex(namespace(value))),
            Self::ServiceAccount => peers(&|value| matcher::regex(service_account(value, site.namespace))),
            Self::TrustDomain => peers(&trust_domain),
            Self::SourceIp => {
                each(&|value| Ok(principal(Identifier::DirectRemoteIp(permission::range(value)?))))
            }
            Self::RemoteIp => each(&|value| Ok(principal(Identifier::RemoteIp(permission::range(value)?)))),
            Self::Header(key) => {
                let name = key
                    .strip_prefix(HEADERS)
                    .and_then(in_brackets)
                    .ok_or_else(|| Unsupported::Key { key: key.into() });
                each(&|value| Ok(principal(Identifier::Header(matcher::header(name.clone()?, value, false)))))
            }
            Self::RequestPrincipal => Terms::Together(Ok(request_principals(values))),
            Self::Audiences => Terms::Together(Ok(claim(&["aud"], values))),
            Self::Presenter => Terms::Together(Ok(claim(&["azp"], values))),
            Self::Claim(key) => Terms::Together(claim_path(key).map(|path| claim(&path, values))),
        }
    }
}

fn principal(identifier: Identifier) -> Term<Principal> {
    Principal { identifier: Some(identifier) }.into()
}

/// A peer whose whole identity matches.
fn peer(name: StringMatcher, known_by: Peer) -> Term<Principal> {
    principal(match known_by {
        Peer::Certificate => Identifier::Authenticated(Authenticated { principal_name: Some(name) }),
        Peer::FilterState => Identifier::FilterState(FilterStateMatcher {
            key: PEER_STATE.into(),
            matcher: Some(filter_state_matcher::Matcher::StringMatch(name)),
        }),
    })
}

/// An expression for identities of a namespace, in which `*` stands for anything.
fn namespace(value: &str) -> String {
    let mut expression = String::with_capacity(value.len() + 16);
    expression.push_str(".*/ns/");
    for (at, part) in value.split('*').enumerate() {
        if at > 0 {
            expression.push_str(".*");
        }
        matcher::add_quoted(&mut expression, part);
    }
    expression.push_str("/.*");
    expression
}

/// An expression for identities of `account` or `namespace/account`. Identities may have further pairs of keys and values
/// around namespace and account; what follows the account begins with a slash, lest `a` match `ab`.
fn service_account(value: &str, own_namespace: &str) -> String {
    let (namespace, account) = value.split_once('/').unwrap_or((own_namespace, value));
    format!("spiffe://.+/ns/{}/(.+/|)sa/{}(/.+)?", matcher::quote(namespace), matcher::quote(account))
}

fn trust_domain(value: &str) -> StringMatcher {
    match value.split_once('*') {
        _ if value == "*" => matcher::prefix(spiffe::SCHEME),
        None => matcher::prefix(format!("{}{value}/", spiffe::SCHEME)),
        Some((before, after)) => {
            let (before, after) = (matcher::quote(before), matcher::quote(after));
            matcher::regex(format!("{}{before}[^/]*{after}/.*", spiffe::SCHEME))
        }
    }
}

/// Issuers and subjects, each written `issuer/subject`.
fn request_principals(values: &[String]) -> Term<Principal> {
    let mut principals: Vec<_> = values.iter().map(|value| request_principal(value)).collect();
    match principals.len() {
        1 => principals.remove(0),
        _ => Term::one_of(&principals),
    }
}

fn request_principal(value: &str) -> Term<Principal> {
    let present = || matcher::regex(matcher::PRESENT);
    // The issuer may be a URL, so the last slash counts.
    let parts = value.rsplit_once('/');
    let (issuer, subject) = match (value.strip_prefix('*'), value.strip_suffix('*'), parts) {
        _ if value == "*" => (present(), present()),
        (Some(_), _, Some(("*", subject))) => (present(), matcher::exact(subject)),
        (Some(_), _, Some((issuer, subject))) => {
            (matcher::suffix(issuer.strip_prefix('*').unwrap_or(issuer)), matcher::exact(subject))
        }
        (Some(subject), _, None) => (present(), matcher::suffix(subject)),
        (None, Some(_), Some((issuer, "*"))) => (matcher::exact(issuer), present()),
        (None, Some(_), Some((issuer, subject))) => {
            (matcher::exact(issuer), matcher::prefix(subject.strip_suffix('*').unwrap_or(subject)))
        }
        (None, Some(issuer), None) => (matcher::prefix(issuer), present()),
        (None, None, Some((issuer, subject))) => (matcher::exact(issuer), matcher::exact(subject)),
        (None, None, None) => (matcher::exact(value), matcher::exact("")),
    };
    let of_token = |name: &str, text| {
        let value = matcher::text_value(text);
        noted(matcher::metadata(jwt::NAME, [jwt::PAYLOAD, name], value))
    };
    Term::all_of(&[of_token("iss", issuer), of_token("sub", subject)])
}

/// A claim that is one of the values, or a list that has one of them.
fn claim(path: &[&str], values: &[String]) -> Term<Principal> {
    let values = values.iter().map(|value| matcher::text_value(matcher::wildcard(value)));
    let value = matcher::one_of(values.collect());
    let either = matcher::one_of(vec![matcher::list_with(value.clone()), value]);
    let keys = std::iter::once(jwt::PAYLOAD).chain(path.iter().copied());
    noted(matcher::metadata(jwt::NAME, keys, either))
}

/// What a filter noted about the caller.
#[expect(deprecated, reason = "proxies before Envoy 1.35 know no other field")]
fn noted(metadata: MetadataMatcher) -> Term<Principal> {
    principal(Identifier::Metadata(metadata))
}

/// The names that a condition about claims has in brackets.
fn claim_path(key: &str) -> Result<Vec<&str>, Unsupported> {
    let error = || Unsupported::Key { key: key.into() };
    key.strip_prefix(CLAIMS).and_then(in_nested_brackets).ok_or_else(error)
}

/// The name in `[name]`.
pub fn in_brackets(text: &str) -> Option<&str> {
    text.strip_prefix('[')?.strip_suffix(']')
}

/// The names in `[a][b]`. Brackets that do not pair up are part of a single name.
pub fn in_nested_brackets(text: &str) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let name = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let Some((name, after)) = name.filter(|(name, _)| !name.contains('[')) else {
            return in_brackets(text).map(|name| vec![name]);
        };
        names.push(name);
        rest = after;
    }
    Some(names)
}
