//! Which namespaces an object is exported to.

use std::collections::BTreeSet;

use canopus_base::labels::is_dns_label;

use super::code::{Fault, codes};
use super::scope::Scope;

codes! {
    DUPLICATE: error "export-to-duplicate", "name each namespace once";
    NOT_A_NAMESPACE: error "export-to-invalid", "use the name of a namespace, * for all or . for this one";
    TO_NOBODY: error "export-to-nobody", "only a ServiceEntry can be exported to nobody; use . instead";
    SELECTOR_BEYOND: error "export-to-beyond-selector",
        "export to . only: a rule for selected workloads ends at its namespace";
    ALL_AND_MORE: error "export-to-all-and-more", "use * alone";
    NOBODY_AND_MORE: error "export-to-nobody-and-more", "use ~ alone";
}

/// The kind of object that has the `exportTo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exporter {
    /// A service entry, which may be exported to nobody.
    ServiceEntry,
    /// A destination rule for selected workloads, which cannot leave its namespace.
    SelectingRule,
    /// Any other kind.
    Other,
}

/// Checks `exportTo` of an object in a namespace.
pub fn check(entries: &[String], namespace: &str, exporter: Exporter, mut scope: Scope<'_>) {
    let mut exported = BTreeSet::new();
    for (index, entry) in entries.iter().enumerate() {
        let mut scope = scope.item(index);
        let target = if entry == "." { namespace } else { entry };
        if exported.contains(target) {
            scope.add(duplicate(entry, target, namespace));
        } else if exporter == Exporter::ServiceEntry && entry == "~" {
            exported.insert(target);
        } else {
            match visibility(target) {
                Ok(()) => drop(exported.insert(target)),
                Err(fault) => scope.add(fault.with_value(entry)),
            }
        }
    }
    together(&exported, entries.len(), namespace, exporter, scope);
}

/// Checks that the entries make sense together.
fn together(
    exported: &BTreeSet<&str>,
    count: usize,
    namespace: &str,
    exporter: Exporter,
    mut scope: Scope<'_>,
) {
    if exporter == Exporter::SelectingRule && !exported.is_empty() {
        if !exported.contains(namespace) {
            let message =
                "destination rule with workload selector cannot have exportTo beyond current namespace";
            scope.add(SELECTOR_BEYOND.says(message));
        } else if exported.len() > 1 {
            let message = "destination rule with workload selector cannot have multiple entries in exportTo";
            scope.add(SELECTOR_BEYOND.says(message));
        }
    }
    if exported.contains("*") && count > 1 {
        let message = "cannot have both public (*) and non-public exportTo values for a resource";
        scope.add(ALL_AND_MORE.says(message));
    }
    if exported.contains("~") && count > 1 {
        scope.add(NOBODY_AND_MORE.says("cannot export service entry to no one (~) and someone"));
    }
}

fn duplicate(entry: &str, target: &str, namespace: &str) -> Fault {
    let message = if entry == target {
        format!("duplicate entries in exportTo for entry {entry}")
    } else {
        format!("duplicate entries in exportTo: . and current namespace {namespace}")
    };
    DUPLICATE.says(message).with_value(entry)
}

fn visibility(target: &str) -> Result<(), Fault> {
    match target {
        "." | "*" => Ok(()),
        "~" => Err(TO_NOBODY.says("exportTo ~ (none) is not allowed for Istio configuration objects")),
        namespace if is_dns_label(namespace) => Ok(()),
        _ => Err(NOT_A_NAMESPACE.says("only .,*, or a valid DNS 1123 label is allowed as exportTo entry")),
    }
}
