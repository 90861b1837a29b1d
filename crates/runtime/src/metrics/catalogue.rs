//! Every metric there is, by what it speaks of. Constants are named as the metrics are.
//!
//! Names, kinds, labels and buckets are Istio's: dashboards and alerts depend on them. What Istio has no name for is in a
//! list of its own and begins with `canopus_`.

use super::desc::Description;

mod agent;
mod cni;
mod grpc;
mod model;
mod own;
mod process;
mod push;
mod registry;
mod security;
mod webhook;

pub use agent::*;
pub use cni::*;
pub use grpc::*;
pub use model::*;
pub use own::*;
pub use process::*;
pub use push::*;
pub use registry::*;
pub use security::*;
pub use webhook::*;

/// Declares metrics and the list of them: the doc comment is the help text, labels come sorted in brackets, buckets
/// after `in`.
macro_rules! metrics {
    ($list:ident $(
        #[doc = $help:literal]
        $kind:ident $id:ident = $name:literal [$($label:literal),*] $(in [$($bound:literal),*])? ;
    )*) => {
        $(
            #[doc = $help]
            #[doc = ""]
            #[doc = concat!("Exported as `", $name, "`.")]
            pub const $id: $crate::metrics::Metric<
                $crate::metrics::$kind,
                { <[&str]>::len(&[$($label),*]) },
            > = $crate::metrics::Metric::with_buckets($name, &[$($label),*], $help, &[$($($bound),*)?]);
        )*

        pub(super) const $list: &[$crate::metrics::Description] = &[$($id.description()),*];
    };
}
use metrics;

/// All metrics that exist, sorted by name.
pub fn describe() -> Vec<Description> {
    let mut all = [AGENT, CNI, GRPC, MODEL, OWN, PROCESS, PUSH, REGISTRY, SECURITY, WEBHOOK].concat();
    all.sort_by_key(|description| description.name);
    all
}

/// The metrics of the agent, which puts a prefix before their names.
pub fn agent_metrics() -> &'static [Description] {
    AGENT
}
