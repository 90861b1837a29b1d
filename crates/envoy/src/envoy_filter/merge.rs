//! Merging what a patch says into what was generated.

use canopus_proto::descriptors::{from_dynamic, open, to_dynamic};
use canopus_proto::envoy::config::core::v3::{TransportSocket, transport_socket::ConfigType};
use canopus_proto::istio::networking::v1alpha3::envoy_filter::patch::Operation;
use canopus_proto::merge::{Lists, merge};
use canopus_proto::{Any, Message, Name};

/// Merges a patch into a message of its own type. `false` if the result would not be a message.
pub(super) fn into<M: Message + Name + Default>(target: &mut M, patch: &M, operation: Operation) -> bool {
    let lists = match operation {
        Operation::MergeAndReplaceList => Lists::Replace,
        _ => Lists::Append,
    };
    let mut merged = to_dynamic(target);
    merge(&mut merged, &to_dynamic(patch), lists);
    match from_dynamic(&merged) {
        Ok(merged) => {
            *target = merged;
            true
        }
        Err(_) => false,
    }
}

/// Merges two packed messages; `None` if either is unknown or they are of different types.
pub(super) fn packed(target: &Any, patch: &Any) -> Option<Any> {
    if target.message_name() != patch.message_name() {
        return None;
    }
    let mut merged = open(target)?.ok()?;
    let patch = open(patch)?.ok()?;
    merge(&mut merged, &patch, Lists::Append);
    Some(Any { type_url: target.type_url.clone(), value: merged.encode_to_vec().into() })
}

/// Merges the settings of two transport sockets of one kind. `false` if they cannot be merged.
pub(super) fn transport_socket(target: &mut TransportSocket, patch: &TransportSocket) -> bool {
    let (Some(ConfigType::TypedConfig(old)), Some(ConfigType::TypedConfig(new))) =
        (&mut target.config_type, &patch.config_type)
    else {
        return true;
    };
    match packed(old, new) {
        Some(merged) => {
            *old = merged;
            true
        }
        None => false,
    }
}
