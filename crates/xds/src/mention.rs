//! Which names occur in encoded resources.
//!
//! Listeners and routes refer to clusters in dozens of fields, some of them in extensions that only Envoy knows. All of these
//! fields are strings, and a string field is its length followed by its bytes. So a resource names a cluster exactly if these
//! bytes occur in it; no schema is needed, and one pass finds any number of names.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};

/// The members of `names` that are a whole field of one of the messages, in the order of `names`.
pub(crate) fn mentioned<'a>(
    messages: impl IntoIterator<Item = &'a [u8]>,
    names: &[Arc<str>],
) -> Vec<Arc<str>> {
    let fields: Vec<Vec<u8>> = names.iter().map(|name| field(name)).collect();
    let search = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(&fields);
    // Only patterns of many gigabytes cannot be searched for. Whoever asks then waits for all of them.
    let Ok(search) = search else { return names.to_vec() };
    let mut is_found = vec![false; names.len()];
    for message in messages {
        for found in search.find_iter(message) {
            is_found[found.pattern().as_usize()] = true;
        }
    }
    names.iter().zip(is_found).filter(|(_, is_found)| *is_found).map(|(name, _)| Arc::clone(name)).collect()
}

/// A text as it stands in a message: its length as a varint, then its bytes.
fn field(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + 2);
    let mut length = text.len();
    while length >= 0x80 {
        bytes.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::config::route::v3::weighted_cluster::ClusterWeight;
    use canopus_proto::envoy::config::route::v3::{
        Route, RouteAction, RouteConfiguration, VirtualHost, WeightedCluster, route, route_action,
    };
    use canopus_proto::{Any, Message};

    use super::*;

    fn names<const N: usize>(names: [&str; N]) -> Vec<Arc<str>> {
        names.map(Arc::from).into()
    }

    #[test]
    fn clusters_are_found_wherever_a_message_names_them() {
        let long = format!("outbound|80|{}|shop", "v".repeat(200));
        let weight = |name: &str| ClusterWeight { name: name.into(), ..Default::default() };
        let weighted = WeightedCluster { clusters: vec![weight("one"), weight(&long)], ..Default::default() };
        let action = RouteAction {
            cluster_specifier: Some(route_action::ClusterSpecifier::WeightedClusters(weighted)),
            ..Default::default()
        };
        let route = Route { action: Some(route::Action::Route(action)), ..Default::default() };
        let host = VirtualHost { routes: vec![route], ..Default::default() };
        let table = RouteConfiguration { virtual_hosts: vec![host], ..Default::default() };
        let packed = Any::pack(&table).encode_to_vec();
        let wanted = names(["one", "on", "ne", &long, "other"]);
        assert_eq!(mentioned([&*packed], &wanted), names(["one", &long]));
    }

    #[test]
    fn names_that_are_part_of_others_are_not_found_in_them() {
        let message = RouteConfiguration { name: "outbound|80||a.b.c".into(), ..Default::default() };
        let wanted = names(["outbound|80||a.b", "outbound|80||a.b.c", "a.b.c"]);
        assert_eq!(mentioned([&*message.encode_to_vec()], &wanted), names(["outbound|80||a.b.c"]));
        assert!(mentioned([], &wanted).is_empty());
        assert!(mentioned([&*message.encode_to_vec()], &[]).is_empty());
    }
}
