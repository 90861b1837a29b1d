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

/// Whether the settings of two transport sockets are of types that are known and differ.
pub(super) fn is_of_other_type(target: &TransportSocket, patch: &TransportSocket) -> bool {
    let (Some(ConfigType::TypedConfig(old)), Some(ConfigType::TypedConfig(new))) =
        (&target.config_type, &patch.config_type)
    else {
        return false;
    };
    let is_known = |settings: &Any| matches!(open(settings), Some(Ok(_)));
    old.message_name() != new.message_name() && is_known(old) && is_known(new)
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::config::cluster::v3::Cluster;
    use canopus_proto::envoy::extensions::filters::http::cors::v3::Cors;
    use canopus_proto::envoy::extensions::filters::http::router::v3::Router;

    use super::*;

    #[test]
    fn packed_messages_are_merged_when_they_are_of_one_type() {
        let old = Any::pack(&Router { suppress_envoy_headers: true, ..Default::default() });
        let new = Any::pack(&Router { suppress_grpc_request_failure_code_stats: true, ..Default::default() });
        let merged: Router = packed(&old, &new).unwrap().unpack().unwrap();
        assert!(merged.suppress_envoy_headers && merged.suppress_grpc_request_failure_code_stats);
    }

    #[test]
    fn nothing_is_merged_when_types_differ_or_are_unknown() {
        let router = Any::pack(&Router::default());
        assert_eq!(packed(&router, &Any::pack(&Cors::default())), None);
        let unknown = Any { type_url: "type.googleapis.com/no.such.Type".into(), ..Default::default() };
        assert_eq!(packed(&unknown, &unknown), None);
    }

    #[test]
    fn lists_are_replaced_only_when_asked() {
        let cluster = |aliases: &[&str]| Cluster {
            transport_socket_matches: aliases
                .iter()
                .map(|name| canopus_proto::envoy::config::cluster::v3::cluster::TransportSocketMatch {
                    name: (*name).into(),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        };
        for (operation, expected) in [(Operation::Merge, 2), (Operation::MergeAndReplaceList, 1)] {
            let mut merged = cluster(&["a"]);
            assert!(into(&mut merged, &cluster(&["b"]), operation));
            assert_eq!(merged.transport_socket_matches.len(), expected, "{operation:?}");
        }
    }
}
