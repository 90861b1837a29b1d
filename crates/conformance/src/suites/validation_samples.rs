//! One valid object per kind and API version, which must be read without a problem and written back the same.

use anyhow::Context;
use canopus_api::{Object, Options};
use canopus_base::tree::Node;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::dump::Dump;

pub(super) struct ValidationSamples;

impl Suite for ValidationSamples {
    fn name(&self) -> &str {
        "validation-samples"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        accepted(case).into()
    }
}

fn accepted(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let documents = case.corpus.documents(&case.path(&case.file))?;
    let mut found = Vec::new();
    for document in documents.iter().filter(|document| !document.is_null()) {
        let object = Object::decode(document, Options::strict())?.value;
        let again = Object::decode(&object.to_node(), Options::strict());
        let again = again.context("cannot read back what was written")?.value;
        if again != object {
            found.push(Difference::new("", shown(document), shown(&object.to_node())));
        }
    }
    Ok(found)
}

fn shown(node: &Node) -> String {
    node.to_json().to_string()
}
