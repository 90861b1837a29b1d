//! One rule of a policy as RBAC principals and permissions.

use std::borrow::Cow;

use canopus_mesh::trust_domain::TrustDomains;
use canopus_proto::envoy::config::rbac::v3::{Permission, Policy, Principal};
use canopus_proto::fields;
use canopus_proto::istio::security::v1beta1::{Operation, Rule, Source};
use canopus_proto::wire::ProtoWriter;

use super::permission::Permitted;
use super::principal::Caller;
use super::term::{Term, TermMessage};
use super::{Layer, Peer};

/// Why a value cannot be matched where the rule is to be enforced.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unsupported {
    /// Connections have no such attribute.
    #[error("{key:?} is an attribute of requests, and there are only connections")]
    RequestsOnly {
        /// The attribute.
        key: String,
    },
    /// The key of the condition lacks what it must have in brackets.
    #[error("{key:?} should have the form attribute[name]")]
    Key {
        /// The attribute.
        key: String,
    },
    /// The value is not a port.
    #[error("invalid port {value}: not a number below 65536")]
    Port {
        /// The value.
        value: String,
    },
    /// The value is not of the attribute's form.
    #[error("{value:?} is not {expected}")]
    Value {
        /// The value.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
}

/// What decides how a rule is written.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// What is there to be looked at.
    pub layer: Layer,
    /// How callers are known.
    pub peer: Peer,
    /// The namespace of the policy, in which short names of service accounts are.
    pub namespace: &'a str,
    /// Whether a value that cannot be matched makes the rule void, rather than match more: a rule that allows must never
    /// allow more than was written, one that denies must never deny less.
    pub allows: bool,
    /// Trust domains that stand for each other.
    pub domains: &'a TrustDomains,
}

/// What a policy can ask about.
pub trait Attribute {
    /// What terms about it are.
    type Message: TermMessage;

    /// The values as terms.
    fn terms(&self, values: &[String], site: &Site<'_>) -> Terms<Self::Message>;
}

/// What becomes of the values of a clause.
pub enum Terms<M> {
    /// A term for each value.
    Each(Vec<Result<Term<M>, Unsupported>>),
    /// One term for all of them.
    Together(Result<Term<M>, Unsupported>),
}

/// An attribute with the values of which it must have one, and those of which it must have none.
#[derive(Clone)]
pub(super) struct Clause<'a, A> {
    pub(super) attribute: A,
    pub(super) values: Cow<'a, [String]>,
    pub(super) not_values: Cow<'a, [String]>,
}

impl<'a, A> Clause<'a, A> {
    /// A clause; `None` if there are no values.
    pub(super) fn new(attribute: A, values: &'a [String], not_values: &'a [String]) -> Option<Self> {
        let is_empty = values.is_empty() && not_values.is_empty();
        let (values, not_values) = (Cow::Borrowed(values), Cow::Borrowed(not_values));
        (!is_empty).then_some(Self { attribute, values, not_values })
    }
}

impl<A: Attribute> Clause<'_, A> {
    fn terms(&self, site: &Site<'_>) -> Result<impl Iterator<Item = Term<A::Message>>, Unsupported> {
        let wanted = self.one_of(&self.values, site)?;
        let unwanted = self.one_of(&self.not_values, site)?.map(|term| term.not());
        Ok(wanted.into_iter().chain(unwanted))
    }

    /// A term for the case that one of the values is there; `None` if there are none that can be matched.
    fn one_of(&self, values: &[String], site: &Site<'_>) -> Result<Option<Term<A::Message>>, Unsupported> {
        if values.is_empty() {
            return Ok(None);
        }
        match self.attribute.terms(values, site) {
            Terms::Together(Ok(term)) => Ok(Some(term)),
            Terms::Together(Err(error)) if site.allows => Err(error),
            Terms::Together(Err(_)) => Ok(None),
            Terms::Each(terms) if site.allows => {
                let terms = terms.into_iter().collect::<Result<Vec<_>, _>>()?;
                Ok(Some(Term::one_of(&terms)))
            }
            Terms::Each(terms) => {
                let terms: Vec<_> = terms.into_iter().flatten().collect();
                Ok((!terms.is_empty()).then(|| Term::one_of(&terms)))
            }
        }
    }
}

/// A term for the case that all clauses hold.
fn all_of<A: Attribute>(clauses: &[Clause<'_, A>], site: &Site<'_>) -> Result<Term<A::Message>, Unsupported> {
    let mut terms = Vec::with_capacity(clauses.len());
    for clause in clauses {
        terms.extend(clause.terms(site)?);
    }
    if terms.is_empty() {
        terms.push(Term::any());
    }
    Ok(Term::all_of(&terms))
}

/// The rule as a policy of Envoy's RBAC filter, encoded; `None` if it cannot be enforced here at all.
pub(super) fn policy(rule: &Rule, site: &Site<'_>) -> Option<ProtoWriter<Policy>> {
    let mut callers = Vec::new();
    let mut operations = Vec::new();
    for condition in &rule.when {
        let (key, values, not_values) = (condition.key.as_str(), &condition.values, &condition.not_values);
        if let Some(attribute) = Permitted::from_key(key) {
            operations.extend(Clause::new(attribute, values, not_values));
        } else {
            callers.extend(Clause::new(Caller::from_key(key)?, values, not_values));
        }
    }
    let sources = rule.from.iter().map(|from| from.source.as_ref());
    let principals: Result<Vec<_>, _> = or_none(sources)
        .map(|source| {
            let mut clauses: Vec<_> = source.into_iter().flat_map(source_clauses).collect();
            clauses.extend(callers.iter().cloned());
            clauses.iter_mut().for_each(|clause| add_aliases(clause, site.domains));
            all_of(&clauses, site)
        })
        .collect();
    let targets = rule.to.iter().map(|to| to.operation.as_ref());
    let permissions: Result<Vec<_>, _> = or_none(targets)
        .map(|operation| {
            let mut clauses: Vec<_> = operation.into_iter().flat_map(operation_clauses).collect();
            clauses.extend(operations.iter().cloned());
            all_of(&clauses, site)
        })
        .collect();
    Some(matching(&permissions.ok()?, &principals.ok()?))
}

/// The policy that matches one of these operations by one of these callers.
pub(super) fn matching(
    permissions: &[Term<Permission>],
    principals: &[Term<Principal>],
) -> ProtoWriter<Policy> {
    let mut policy = ProtoWriter::default();
    permissions.iter().for_each(|term| policy.encoded(fields::policy::PERMISSIONS, term));
    principals.iter().for_each(|term| policy.encoded(fields::policy::PRINCIPALS, term));
    policy
}

/// The items, or if there are none a single `None`: a list that is left out stands for everything.
fn or_none<T>(items: impl Iterator<Item = Option<T>>) -> impl Iterator<Item = Option<T>> {
    let mut items = items.peekable();
    let none = items.peek().is_none().then_some(None);
    items.chain(none)
}

fn source_clauses(source: &Source) -> impl Iterator<Item = Clause<'_, Caller<'_>>> {
    let s = source;
    [
        Clause::new(Caller::Principal, &s.principals, &s.not_principals),
        Clause::new(Caller::RequestPrincipal, &s.request_principals, &s.not_request_principals),
        Clause::new(Caller::ServiceAccount, &s.service_accounts, &s.not_service_accounts),
        Clause::new(Caller::TrustDomain, &s.trust_domains, &s.not_trust_domains),
        Clause::new(Caller::Namespace, &s.namespaces, &s.not_namespaces),
        Clause::new(Caller::RemoteIp, &s.remote_ip_blocks, &s.not_remote_ip_blocks),
        Clause::new(Caller::SourceIp, &s.ip_blocks, &s.not_ip_blocks),
    ]
    .into_iter()
    .flatten()
}

fn operation_clauses(operation: &Operation) -> impl Iterator<Item = Clause<'_, Permitted<'_>>> {
    let o = operation;
    [
        Clause::new(Permitted::Host, &o.hosts, &o.not_hosts),
        Clause::new(Permitted::Method, &o.methods, &o.not_methods),
        Clause::new(Permitted::Path, &o.paths, &o.not_paths),
        Clause::new(Permitted::Port, &o.ports, &o.not_ports),
    ]
    .into_iter()
    .flatten()
}

/// Adds what stands for the same callers in other trust domains.
fn add_aliases(clause: &mut Clause<'_, Caller<'_>>, domains: &TrustDomains) {
    let alias: fn(&TrustDomains, &[String]) -> Vec<String> = match clause.attribute {
        Caller::Principal => TrustDomains::principals,
        Caller::TrustDomain => TrustDomains::domains,
        _ => return,
    };
    clause.values = Cow::Owned(alias(domains, &clause.values));
    clause.not_values = Cow::Owned(alias(domains, &clause.not_values));
}
