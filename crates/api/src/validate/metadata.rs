//! Annotations that no user may set, and the one that asks for a refusal.

use super::authorization_policy;
use super::code::{Fault, codes};
use super::scope::Scope;
use crate::kinds::Object;
use crate::text::quoted;

const DRY_RUN: &str = "istio.io/dry-run";
const ALWAYS_REJECT: &str = "internal.istio.io/webhook-always-reject";
/// Set by the control plane on objects it makes itself; they widen what an object may reach.
const PRIVILEGED: [&str; 2] = ["internal.istio.io/parent-namespace", "internal.istio.io/parents"];

codes! {
    DRY_RUN_UNSUPPORTED: error "annotation-dry-run-unsupported",
        "remove the annotation: only an AuthorizationPolicy can be tried out";
    REJECTED: error "annotation-always-reject", "remove the annotation, it is for testing admission";
    PRIVILEGED_ANNOTATION: error "annotation-privileged", "remove the annotation";
}

/// Checks the metadata every kind has; tells whether it is refused.
pub(super) fn check(object: &Object, scope: &mut Scope<'_>) -> bool {
    scope.fails(|mut scope| {
        scope.first_only(|mut scope| {
            let mut scope = scope.field("metadata");
            annotations(object, scope.field("annotations"));
        });
    })
}

fn annotations(object: &Object, mut scope: Scope<'_>) {
    let meta = object.meta();
    if let Some(value) = meta.annotation(DRY_RUN) {
        scope.entry(DRY_RUN).require(dry_run(object, value));
    }
    if meta.annotation(ALWAYS_REJECT).is_some() {
        let message = format!("{} annotation found, rejecting", quoted(ALWAYS_REJECT));
        scope.entry(ALWAYS_REJECT).add(REJECTED.says(message));
    }
    for name in PRIVILEGED {
        if meta.annotation(name).is_some() {
            let message = format!("{} annotation found, this may not be set by users", quoted(name));
            scope.entry(name).add(PRIVILEGED_ANNOTATION.says(message));
        }
    }
}

fn dry_run(object: &Object, value: &str) -> Result<(), Fault> {
    if let Object::AuthorizationPolicy(policy) = object {
        return authorization_policy::dry_run(policy, DRY_RUN, value);
    }
    let (namespace, name) = (&object.meta().namespace, &object.meta().name);
    Err(DRY_RUN_UNSUPPORTED.says(format!(
        "{namespace}/{name} has unsupported annotation {DRY_RUN}, please remove the annotation"
    )))
}
