//! Kubernetes' own types, as Go decodes, encodes and merges them.
//!
//! Pods and workloads that are patched must come out as the API server's own libraries would write them: empty values left
//! out or kept field by field, quantities in canonical form, lists merged by their keys. The table `types.txt` says it for
//! every field of every type that injection and installation touch; it is generated from Kubernetes' Go types by
//! `cargo xtask gen kubernetes`.
//!
//! Objects stay JSON. [`StructType::normalize`] brings one to the form Go would encode, and refuses values of other types than
//! the fields have; [`StructType::merge`] applies a strategic merge patch. Fields that no table knows are kept as they are.

mod merge;
mod normalize;
mod table;
#[cfg(test)]
mod tests;

pub use merge::MergeError;
pub use normalize::TypeError;
pub use table::{Field, FieldType, ListMerge, StructType};

use table::TABLE;

/// The type of an object by its `apiVersion` and `kind`; none for kinds that the table does not have.
pub fn object_type(api_version: &str, kind: &str) -> Option<&'static StructType> {
    let package = match api_version.split_once('/') {
        None => format!("core/{api_version}"),
        Some(("apps.openshift.io", version)) => format!("apps.openshift.io/{version}"),
        Some((group, version)) => format!("{}/{version}", group.split('.').next().unwrap_or(group)),
    };
    struct_type(&format!("{package}.{kind}"))
}

/// A type by its name in the table: `core/v1.Pod`.
pub fn struct_type(name: &str) -> Option<&'static StructType> {
    TABLE.get(name)
}

/// The type of pods.
pub fn pod() -> &'static StructType {
    TABLE.expect("core/v1.Pod")
}

/// The type of containers.
pub fn container() -> &'static StructType {
    TABLE.expect("core/v1.Container")
}
