//! Plans in words.

use canopus_install::cluster::{Action, Owner, Plan};

/// How many objects change, and which are deleted.
pub(super) fn summary(plan: &Plan) -> String {
    let count = |wanted: fn(&Action) -> bool| plan.steps.iter().filter(|step| wanted(&step.action)).count();
    let created = count(|action| *action == Action::Create);
    let changed = count(|action| matches!(action, Action::Change(_)));
    let kept = count(|action| *action == Action::Keep);
    let mut text = format!("{created} objects to create, {changed} to change, {kept} as they should be.\n");
    for object in &plan.prune {
        text.push_str(&format!("  - {object} is not part of the installation any more and is deleted\n"));
    }
    text
}

/// A plan with all that changes.
pub(super) fn plan(plan: &Plan) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        match &step.action {
            Action::Keep => {}
            Action::Create => text.push_str(&format!("+ {}\n", step.object)),
            Action::Change(difference) => text.push_str(&format!("~ {}\n{difference}", step.object)),
        }
    }
    for object in &plan.prune {
        text.push_str(&format!("- {object}\n"));
    }
    text.push_str(&summary(plan));
    text
}

/// What to do next.
pub(super) fn finished(owner: &Owner) -> String {
    let label = match owner.revision.as_str() {
        "default" => "istio-injection=enabled".to_owned(),
        revision => format!("istio.io/rev={revision}"),
    };
    format!(
        "✔ Installed. Next, give a namespace sidecars and restart its workloads:\n  kubectl label namespace NAMESPACE {label}\n  kubectl rollout restart deployment --namespace NAMESPACE\n"
    )
}
