//! The AuthorizationPolicies that apply to a workload.

mod connection;

use std::sync::Arc;

use canopus_api::istio::AuthorizationPolicy;
use canopus_api::{Kind, annotations};
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::security::v1beta1::authorization_policy::{Action, ActionDetail};
use canopus_proto::istio::security::v1beta1::{AuthorizationPolicy as Spec, Rule};

use crate::attachment::{PolicyAttachment, PolicyTarget};
use crate::world::{ObjectIndex, Origin, indexed_objects, oldest_first, settings};

pub use connection::{http_attributes, matches_connections};

/// One policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The object.
    pub origin: Origin,
    /// Whether it is reported but not enforced.
    pub dry_run: bool,
    object: Arc<AuthorizationPolicy>,
}

impl Policy {
    /// The spec of the policy.
    pub fn spec(&self) -> &Spec {
        &self.object.spec
    }

    /// The rules. A policy without rules matches nothing.
    pub fn rules(&self) -> &[Rule] {
        &self.object.spec.rules
    }

    /// The extension provider of a CUSTOM policy; empty if there is none.
    pub fn provider(&self) -> &str {
        match &self.object.spec.action_detail {
            Some(ActionDetail::Provider(provider)) => &provider.name,
            None => "",
        }
    }
}

/// The policies of a workload by action. In each list those of the root namespace come first, then older ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policies {
    /// `CUSTOM`: an external authorizer decides.
    pub custom: Vec<Policy>,
    /// `DENY`: matching requests are denied.
    pub deny: Vec<Policy>,
    /// `ALLOW`: if there are any, other requests are denied.
    pub allow: Vec<Policy>,
    /// `AUDIT`: matching requests are logged.
    pub audit: Vec<Policy>,
}

impl Policies {
    fn add(&mut self, policy: Policy) {
        let Ok(action) = Action::try_from(policy.spec().action) else { return };
        let list = match action {
            Action::Allow => &mut self.allow,
            Action::Deny => &mut self.deny,
            Action::Audit => &mut self.audit,
            Action::Custom => &mut self.custom,
        };
        list.push(policy);
    }
}

/// The AuthorizationPolicies of a workload.
pub struct PoliciesOf;

impl Query for PoliciesOf {
    const NAME: &'static str = "authorization_policies_of";
    type Key = PolicyTarget;
    type Value = Policies;

    fn run(ctx: &Ctx<'_>, target: &PolicyTarget) -> Policies {
        let settings = settings(ctx);
        let subject = target.subject(ctx);
        let mut policies = Policies::default();
        for namespace in target.namespaces(settings.root_namespace(), &target.namespace) {
            let index = ObjectIndex::Namespace(Kind::AuthorizationPolicy, namespace.into());
            let mut found = indexed_objects::<AuthorizationPolicy>(ctx, &index);
            oldest_first(&mut found);
            found.retain(|(origin, object)| subject.is_targeted_by(&claim(origin.namespace(), &object.spec)));
            for (origin, object) in found {
                policies.add(Policy { origin, dry_run: is_dry_run(&object), object });
            }
        }
        policies
    }
}

/// Reads the dry-run annotation. Values that Go's `ParseBool` rejects count as false.
fn is_dry_run(object: &AuthorizationPolicy) -> bool {
    let value = object.meta.annotation(annotations::DRY_RUN.name);
    matches!(value, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

fn claim<'a>(namespace: &'a str, spec: &'a Spec) -> PolicyAttachment<'a> {
    PolicyAttachment::new(namespace, spec.selector.as_ref(), &spec.target_ref, &spec.target_refs)
}
