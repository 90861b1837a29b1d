//! The merged configuration of an installation.

use serde_json::Value as Json;

use crate::tree::{self, Tree};

/// An IstioOperator with everything merged in: profile, files and flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    pub(crate) tree: Tree,
}

impl Operator {
    /// The configuration as JSON.
    pub fn to_json(&self) -> Json {
        Json::Object(self.tree.clone())
    }

    /// The values for charts.
    pub fn values(&self) -> Json {
        tree::get(&self.tree, "spec.values").cloned().unwrap_or_else(|| Json::Object(Tree::new()))
    }

    /// The mesh configuration, if the operator has one of its own.
    pub fn mesh_config(&self) -> Option<&Json> {
        tree::get(&self.tree, "spec.meshConfig").filter(|mesh| mesh.is_object())
    }
}
