use canopus_api::labels;
use serde_json::{Value as Json, json};

use crate::tree;
use crate::{Manifest, Operator};

/// The label with the name of the IstioOperator that an object is kept from.
pub(super) const OWNER: &str = "install.operator.istio.io/owning-resource";
pub(super) const OWNER_NAMESPACE: &str = "install.operator.istio.io/owning-resource-namespace";

/// Objects with this label are never pruned.
pub(super) const NOT_PRUNED: &str = "install.operator.istio.io/owning-resource-not-pruned";

/// Identifies the objects of one installation by their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The name of the IstioOperator.
    pub name: String,
    /// The namespace of the mesh.
    pub namespace: String,
    /// The revision; `default` if it names none.
    pub revision: String,
}

impl Owner {
    /// The owner of what an operator describes. Parity: one without a name is called after its revision.
    pub fn new(operator: &Operator) -> Self {
        let text = |path: &str| tree::get_text(&operator.tree, path).to_owned();
        let or = |text: String, default: &str| if text.is_empty() { default.to_owned() } else { text };
        let revision = or(text("spec.values.revision"), "default");
        let unnamed = match revision.as_str() {
            "default" => "installed-state".to_owned(),
            revision => format!("installed-state-{revision}"),
        };
        Self {
            name: or(text("metadata.name"), &unnamed),
            namespace: or(text("metadata.namespace"), "istio-system"),
            revision,
        }
    }

    /// Marks an object as the owner's, and puts it into the namespace if it is in none though it must be in one.
    pub(super) fn mark(&self, manifest: &mut Manifest) {
        let labels = [
            (OWNER, self.name.as_str()),
            (OWNER_NAMESPACE, &self.namespace),
            (labels::OPERATOR_COMPONENT.name, manifest.component),
            (labels::OPERATOR_MANAGED.name, "Reconcile"),
            (labels::OPERATOR_VERSION.name, env!("CARGO_PKG_VERSION")),
            (labels::REVISION.name, &self.revision),
        ];
        let Some(object) = manifest.object.as_object_mut() else { return };
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        let Some(metadata) = metadata.as_object_mut() else { return };
        let own = metadata.entry("labels").or_insert_with(|| json!({}));
        if own.is_null() {
            *own = json!({});
        }
        for (label, value) in labels {
            // The base is shared by revisions, so that it belongs to none.
            let is_shared = label == labels::REVISION.name && manifest.component == "Base";
            if let Some(own) = own.as_object_mut()
                && (!is_shared || own.contains_key(label))
                && !(label == labels::REVISION.name && own.contains_key(label))
            {
                own.insert(label.to_owned(), Json::from(value));
            }
        }
    }

    /// Selects the owner's objects of a component.
    pub(super) fn selector(&self, component: &str) -> String {
        format!(
            "{OWNER}={},{OWNER_NAMESPACE}={},{}={component}",
            self.name,
            self.namespace,
            labels::OPERATOR_COMPONENT.name
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Package, merge_inputs};

    fn owner(flags: &[&str]) -> Owner {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Owner::new(&merge_inputs(&Package::built_in(), &[], &flags).unwrap())
    }

    #[test]
    fn owner_is_named_after_the_revision() {
        let unnamed = owner(&[]);
        assert_eq!((unnamed.name.as_str(), unnamed.revision.as_str()), ("installed-state", "default"));
        assert_eq!(owner(&["revision=canary"]).name, "installed-state-canary");
    }

    #[test]
    fn shared_objects_belong_to_no_revision() {
        let object = json!({"kind": "ClusterRole", "metadata": {"name": "x", "labels": null}});
        let mut manifest = Manifest { object, component: "Base" };
        owner(&["revision=canary"]).mark(&mut manifest);
        assert_eq!(manifest.label("istio.io/rev"), "");
        assert_eq!(manifest.label("operator.istio.io/component"), "Base");
        manifest.component = "Pilot";
        owner(&["revision=canary"]).mark(&mut manifest);
        assert_eq!(manifest.label("istio.io/rev"), "canary");
    }
}
