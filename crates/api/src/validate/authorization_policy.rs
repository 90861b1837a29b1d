//! Authorization policies: who they apply to, what they do, and under which rules.

mod rule;

use canopus_proto::istio::security::v1beta1::authorization_policy::{Action, ActionDetail};
use canopus_proto::istio::security::v1beta1::{self as security, Condition, Source};

use super::code::{Fault, codes};
use super::scope::Scope;
use super::selector;
use crate::istio::AuthorizationPolicy;
use crate::text::quoted;

pub(super) use rule::CODES as RULE_CODES;

codes! {
    DRY_RUN_VALUE: error "policy-dry-run-invalid", "give true or false";
    DRY_RUN_ACTION: error "policy-dry-run-action", "remove the annotation: only ALLOW and DENY can be tried out";
    NEVER_MATCHES: error "policy-without-rules", "add a rule; an empty one, {}, matches every request";
    NO_PROVIDER: error "policy-without-provider", "name an extension provider of the mesh config";
    UNUSED_PROVIDER: error "policy-provider-unused", "remove the provider, or use action CUSTOM";
    CUSTOM_ATTRIBUTE: error "policy-custom-attribute",
        "match on something else: identities are known only after the provider was asked";
    DENIES_TCP: warning "policy-deny-without-port", "add the ports the rule is meant for";
}

const TRUTHS: [&str; 12] = ["1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False"];

/// Checks the annotation with which a policy is tried out before it counts.
pub(super) fn dry_run(policy: &AuthorizationPolicy, annotation: &str, value: &str) -> Result<(), Fault> {
    let (namespace, name) = (&policy.meta.namespace, &policy.meta.name);
    if !matches!(policy.spec.action(), Action::Allow | Action::Deny) {
        let action = action_name(&policy.spec);
        return Err(DRY_RUN_ACTION.says(format!(
            "the annotation {annotation} currently only supports action ALLOW/DENY, found action {action} in \
             {namespace}/{name}"
        )));
    }
    if TRUTHS.contains(&value) {
        return Ok(());
    }
    let message = format!(
        "{namespace}/{name} has annotation {annotation} with invalid value ({value}): strconv.ParseBool: parsing {}: \
         invalid syntax",
        quoted(value)
    );
    Err(DRY_RUN_VALUE.says(message).with_value(value))
}

/// An action by its name, or by its number if nobody knows that one.
fn action_name(policy: &security::AuthorizationPolicy) -> String {
    Action::try_from(policy.action)
        .map_or_else(|_| policy.action.to_string(), |action| action.as_str_name().to_owned())
}

/// Checks an AuthorizationPolicy.
pub fn check(policy: &AuthorizationPolicy, mut scope: Scope<'_>) {
    let prefix = || format!("invalid policy {}.{}:", policy.meta.name, policy.meta.namespace);
    scope.prefixed(prefix, |mut scope| spec(&policy.spec, scope.field("spec")));
}

fn spec(policy: &security::AuthorizationPolicy, mut scope: Scope<'_>) {
    let (selector, target, targets) =
        (policy.selector.as_ref(), policy.target_ref.as_ref(), &policy.target_refs);
    selector::one_way(selector, target, targets, scope.again());
    scope.optional("selector", selector, selector::workload);
    selector::target_refs(target, targets, scope.again());
    // An action nobody knows is none of those below, though protobuf would take it for the first.
    let action = Action::try_from(policy.action).ok();
    if action == Some(Action::Custom) {
        custom(policy, scope.again());
    } else {
        scope.field("provider").add_if(policy.action_detail.is_some(), || {
            let action = action_name(policy);
            UNUSED_PROVIDER.says(format!("`provider` must not be with non CUSTOM action, found {action}"))
        });
    }
    if action == Some(Action::Deny) && policy.rules.is_empty() {
        scope.field("rules").add(never_matches("DENY"));
    }
    let mut rules = scope.field("rules");
    for (place, rule) in policy.rules.iter().enumerate() {
        let mut scope = rules.item(place);
        rule::check(rule, place, scope.again());
        scope.add_if(action == Some(Action::Deny) && rule::is_only_http(rule), || {
            DENIES_TCP.says(
                "configured AuthorizationPolicy will deny all traffic to TCP ports under its scope due to the use of \
                 only HTTP attributes in a DENY rule; it is recommended to explicitly specify the port",
            )
        });
    }
}

fn never_matches(action: &str) -> Fault {
    NEVER_MATCHES.says(format!(
        "{action} action without `rules` is meaningless as it will never be triggered, add an empty rule `{{}}` if you \
         want it be triggered for every request"
    ))
}

/// What an external authorizer needs, and what cannot be matched before it is asked.
fn custom(policy: &security::AuthorizationPolicy, mut scope: Scope<'_>) {
    let named = match &policy.action_detail {
        Some(ActionDetail::Provider(provider)) => !provider.name.is_empty(),
        None => false,
    };
    if policy.rules.is_empty() {
        scope.field("rules").add(never_matches("CUSTOM"));
    } else if !named {
        scope.field("provider").field("name").add(NO_PROVIDER.says("`provider.name` must not be empty"));
    }
    scope.each("rules", &policy.rules, |rule, mut scope| {
        scope.each("from", &rule.from, |from, mut scope| {
            scope.optional("source", from.source.as_ref(), custom_source);
        });
        scope.each("when", &rule.when, custom_condition);
    });
}

fn custom_source(source: &Source, mut scope: Scope<'_>) {
    let lists = [
        ("namespaces", "Namespaces", &source.namespaces),
        ("notNamespaces", "NotNamespaces", &source.not_namespaces),
        ("serviceAccounts", "ServiceAccounts", &source.service_accounts),
        ("notServiceAccounts", "NotServiceAccounts", &source.not_service_accounts),
        ("trustDomains", "TrustDomains", &source.trust_domains),
        ("notTrustDomains", "NotTrustDomains", &source.not_trust_domains),
        ("principals", "Principals", &source.principals),
        ("notPrincipals", "NotPrincipals", &source.not_principals),
        ("requestPrincipals", "RequestPrincipals", &source.request_principals),
        ("notRequestPrincipals", "NotRequestPrincipals", &source.not_request_principals),
    ];
    for (field, name, values) in lists {
        scope.field(field).add_if(!values.is_empty(), || unsupported(&format!("From.{name}")));
    }
}

fn custom_condition(condition: &Condition, mut scope: Scope<'_>) {
    let key = condition.key.as_str();
    let known_later = matches!(
        key,
        "source.namespace" | "source.serviceAccount" | "source.trustDomain" | "source.principal"
    );
    scope
        .field("key")
        .add_if(known_later || key.starts_with("request.auth."), || unsupported(key).with_value(key));
}

fn unsupported(attribute: &str) -> Fault {
    CUSTOM_ATTRIBUTE.says(format!("{attribute} is currently not supported with CUSTOM action"))
}

#[cfg(test)]
mod tests;
