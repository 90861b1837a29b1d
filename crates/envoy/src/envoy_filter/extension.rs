//! Configurations of extensions that patches add.

use canopus_engine::Ctx;
use canopus_proto::envoy::config::core::v3::TypedExtensionConfig;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::patch::Operation;

use super::patches;
use crate::audience::PatchSet;

/// The configuration that a patch adds under this name.
pub(crate) fn extension(ctx: &Ctx<'_>, set: &PatchSet, name: &str) -> Option<TypedExtensionConfig> {
    let patches = patches(ctx, set);
    let adding = patches.extensions.iter().filter(|patch| patch.operation == Operation::Add);
    adding.filter_map(|patch| patch.value.as_ref()).find(|value| value.name == name).cloned()
}
