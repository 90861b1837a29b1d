//! RequestAuthentications: the JWT rules of a workload, and where their keys are fetched from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::Kind;
use canopus_api::istio::RequestAuthentication;
use canopus_engine::{Ctx, Input, Query};
use canopus_proto::istio::security::v1beta1::{JwtRule, RequestAuthentication as Spec};
use canopus_runtime::flags::PILOT_JWT_ENABLE_REMOTE_JWKS;

use crate::attachment::{PolicyAttachment, PolicyTarget};
use crate::world::{ObjectIndex, Origin, all_objects, indexed_objects, oldest_first, settings};

/// The source of a JSON Web Key Set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeySource {
    /// A URI.
    Uri(Box<str>),
    /// The `jwks_uri` in the OpenID configuration of an issuer.
    Issuer(Box<str>),
}

impl KeySource {
    /// The key source of a rule without inline keys.
    pub fn for_rule(rule: &JwtRule) -> Self {
        match rule.jwks_uri.as_str() {
            "" => Self::Issuer(rule.issuer.as_str().into()),
            uri => Self::Uri(uri.into()),
        }
    }
}

/// An engine input with the fetched key sets, as the servers sent them. A source without an entry has not answered yet.
pub struct Jwks;

impl Input for Jwks {
    const NAME: &'static str = "jwks";
    type Key = KeySource;
    type Value = Box<str>;
    type Index = ();
}

/// Which component fetches keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFetcher {
    /// The control plane.
    ControlPlane,
    /// The proxy, for servers that are services of the mesh, and the control plane for others.
    Hybrid,
    /// The proxy.
    Proxy,
}

/// Which component fetches keys in this mesh.
pub fn key_fetcher(ctx: &Ctx<'_>) -> KeyFetcher {
    match settings(ctx).flags.get(PILOT_JWT_ENABLE_REMOTE_JWKS) {
        "true" | "hybrid" => KeyFetcher::Hybrid,
        "envoy" => KeyFetcher::Proxy,
        _ => KeyFetcher::ControlPlane,
    }
}

/// The default timeout of a fetch.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The sources that the control plane fetches from, with their timeouts.
pub struct WantedKeys;

impl Query for WantedKeys {
    const NAME: &'static str = "wanted_keys";
    type Key = ();
    type Value = BTreeMap<KeySource, Duration>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let fetcher = key_fetcher(ctx);
        let wanted = |rule: &&JwtRule| match fetcher {
            KeyFetcher::ControlPlane => rule.jwks.is_empty(),
            KeyFetcher::Hybrid => rule.jwks.is_empty() || !rule.jwks_uri.is_empty(),
            KeyFetcher::Proxy => rule.jwks.is_empty() && rule.jwks_uri.is_empty(),
        };
        let objects = all_objects::<RequestAuthentication>(ctx);
        let rules = objects.iter().flat_map(|(_, object)| &object.spec.jwt_rules);
        let mut sources = BTreeMap::new();
        for rule in rules.filter(wanted) {
            let longest = sources.entry(KeySource::for_rule(rule)).or_default();
            *longest = timeout(rule).max(*longest);
        }
        sources
    }
}

fn timeout(rule: &JwtRule) -> Duration {
    let written = rule.timeout.as_ref().and_then(|timeout| {
        let (seconds, nanos) = (u64::try_from(timeout.seconds).ok()?, u32::try_from(timeout.nanos).ok()?);
        Some(Duration::from_secs(seconds) + Duration::from_nanos(nanos.into()))
    });
    written.filter(|timeout| !timeout.is_zero()).unwrap_or(DEFAULT_TIMEOUT)
}

/// The JWT rules of a workload, sorted by issuer.
pub struct TokenRules;

impl Query for TokenRules {
    const NAME: &'static str = "token_rules";
    type Key = PolicyTarget;
    type Value = Vec<Arc<JwtRule>>;

    fn run(ctx: &Ctx<'_>, target: &PolicyTarget) -> Self::Value {
        let selected = selected_policies(ctx, target);
        let rules = selected.iter().flat_map(|(_, object)| &object.spec.jwt_rules);
        let mut rules: Vec<_> = rules.cloned().map(Arc::new).collect();
        rules.sort_by(|a, b| a.issuer.cmp(&b.issuer));
        rules
    }
}

/// The RequestAuthentications that apply to a workload: those of its namespace, then of the root namespace; each oldest first.
pub(crate) fn selected_policies(
    ctx: &Ctx<'_>,
    target: &PolicyTarget,
) -> Vec<(Origin, Arc<RequestAuthentication>)> {
    let settings = settings(ctx);
    let subject = target.subject(ctx);
    let mut selected = Vec::new();
    for namespace in target.namespaces(&target.namespace, settings.root_namespace()) {
        let index = ObjectIndex::Namespace(Kind::RequestAuthentication, namespace.into());
        let mut found = indexed_objects::<RequestAuthentication>(ctx, &index);
        oldest_first(&mut found);
        found.retain(|(origin, object)| subject.is_targeted_by(&claim(origin.namespace(), &object.spec)));
        selected.append(&mut found);
    }
    selected
}

fn claim<'a>(namespace: &'a str, spec: &'a Spec) -> PolicyAttachment<'a> {
    PolicyAttachment::new(namespace, spec.selector.as_ref(), &spec.target_ref, &spec.target_refs)
}
