//! Merging one message into another.
//!
//! Plain protobuf merge (scalars set in the source win, lists are appended, messages merge field by field, map entries
//! are replaced) is [`Message::merge`](prost::Message) on the encoded source. EnvoyFilter needs two departures from it,
//! which [`merge`] offers on dynamic messages.

use prost_reflect::{DynamicMessage, Kind, ReflectMessage, Value};

/// What happens to a list that both sides have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// The source's elements follow the destination's, as protobuf merges.
    Append,
    /// The source's list takes the destination's place, at any depth.
    Replace,
}

/// Merges `source` into `destination`.
///
/// Durations are replaced as a whole: field by field, `5s` merged into `1.5s` would give `5.5s`.
///
/// # Panics
/// If the two are of different types, which is a mistake of the caller.
pub fn merge(destination: &mut DynamicMessage, source: &DynamicMessage, lists: Lists) {
    assert_eq!(destination.descriptor(), source.descriptor(), "only messages of one type can be merged");
    for (field, value) in source.fields() {
        match (value, field.kind()) {
            (Value::List(new), _) if lists == Lists::Append => {
                if let Value::List(old) = destination.get_field_mut(&field) {
                    old.extend(new.iter().cloned());
                }
            }
            (Value::Map(new), _) => {
                if let Value::Map(old) = destination.get_field_mut(&field) {
                    old.extend(new.iter().map(|(k, v)| (k.clone(), v.clone())));
                }
            }
            (Value::Message(new), Kind::Message(kind)) if kind.full_name() != "google.protobuf.Duration" => {
                if let Value::Message(old) = destination.get_field_mut(&field) {
                    merge(old, new, lists);
                }
            }
            _ => destination.set_field(&field, value.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::{from_dynamic, to_dynamic};
    use crate::envoy::config::cluster::v3::{Cluster, cluster};
    use crate::google::protobuf::Duration;
    use prost::Message;

    fn merged(destination: &Cluster, source: &Cluster, lists: Lists) -> Cluster {
        let mut result = to_dynamic(destination);
        merge(&mut result, &to_dynamic(source), lists);
        from_dynamic(&result).unwrap()
    }

    fn cluster(name: &str, seconds: i64, nanos: i32, hosts: &[&str]) -> Cluster {
        Cluster {
            name: name.into(),
            connect_timeout: Some(Duration { seconds, nanos }),
            upstream_bind_config: None,
            eds_cluster_config: Some(cluster::EdsClusterConfig {
                service_name: name.into(),
                ..Default::default()
            }),
            load_balancing_policy: None,
            typed_extension_protocol_options: hosts
                .iter()
                .map(|h| ((*h).to_owned(), crate::Any::default()))
                .collect(),
            transport_socket_matches: hosts
                .iter()
                .map(|h| cluster::TransportSocketMatch { name: (*h).to_owned(), ..Default::default() })
                .collect(),
            ..Default::default()
        }
    }

    #[test]
    fn durations_are_replaced_whole() {
        let result = merged(&cluster("a", 1, 500_000_000, &[]), &cluster("", 5, 0, &[]), Lists::Append);
        assert_eq!(result.connect_timeout, Some(Duration { seconds: 5, nanos: 0 }));
        assert_eq!(result.name, "a", "an unset scalar leaves the destination's");
    }

    #[test]
    fn lists_are_appended_or_replaced_as_asked() {
        let names = |c: Cluster| c.transport_socket_matches.into_iter().map(|m| m.name).collect::<Vec<_>>();
        let (old, new) = (cluster("a", 1, 0, &["x"]), cluster("a", 1, 0, &["y"]));
        assert_eq!(names(merged(&old, &new, Lists::Append)), ["x", "y"]);
        assert_eq!(names(merged(&old, &new, Lists::Replace)), ["y"]);
    }

    #[test]
    fn setting_another_member_of_a_oneof_clears_the_first() {
        let typed = |t| Cluster { cluster_discovery_type: Some(t), ..Default::default() };
        let custom = cluster::ClusterDiscoveryType::ClusterType(cluster::CustomClusterType {
            name: "x".into(),
            typed_config: None,
        });
        let result = merged(
            &typed(cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds as i32)),
            &typed(custom.clone()),
            Lists::Append,
        );
        assert_eq!(result.cluster_discovery_type, Some(custom));
    }

    #[test]
    fn append_equals_the_wire_merge_where_no_duration_is_shared() {
        let (mut old, new) = (cluster("a", 0, 0, &["x"]), cluster("b", 0, 0, &["y", "z"]));
        let reflected = merged(&old, &new, Lists::Append);
        old.merge(new.encode_to_vec().as_slice()).unwrap();
        assert_eq!(reflected, old);
    }
}
