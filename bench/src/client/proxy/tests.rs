use canopus_proto::envoy::config::cluster::v3::{Cluster, cluster::EdsClusterConfig};
use canopus_proto::envoy::config::core::v3::{
    AggregatedConfigSource, ConfigSource, config_source::ConfigSourceSpecifier,
};

use super::*;

fn proxy(protocol: Protocol) -> Proxy {
    Proxy::new(Role::plain(3, "shop", "cart"), protocol)
}

fn cluster(name: &str, timeout: i64) -> Vec<u8> {
    let ads = ConfigSourceSpecifier::Ads(AggregatedConfigSource::default());
    let eds_config = Some(ConfigSource { config_source_specifier: Some(ads), ..Default::default() });
    let eds = EdsClusterConfig { eds_config, ..Default::default() };
    let connect_timeout = Some(canopus_proto::google::protobuf::Duration { seconds: timeout, nanos: 0 });
    Cluster { name: name.into(), eds_cluster_config: Some(eds), connect_timeout, ..Default::default() }
        .encode_to_vec()
}

/// Gives a proxy a response; what it says to it.
fn respond(
    proxy: &mut Proxy,
    record: &mut Record,
    kind: Kind,
    resources: &[(&str, Vec<u8>)],
    removed: &[&str],
) -> Vec<Bytes> {
    for (name, body) in resources {
        let entry = Entry { name, version: "v", type_url: kind.type_url(), body };
        assert!(proxy.take(Piece::Resource(entry), record).is_empty());
    }
    for name in removed {
        proxy.take(Piece::Removed(name), record);
    }
    proxy.take(Piece::TypeUrl(kind.type_url()), record);
    proxy.take(Piece::Nonce("nonce"), record);
    proxy.take(Piece::End, record)
}

fn delta(request: &Bytes) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest::decode(&request[5..]).unwrap()
}

/// A proxy with two clusters, one of them with endpoints, and no listeners.
fn settled(record: &mut Record) -> Proxy {
    let mut proxy = proxy(Protocol::Delta);
    proxy.open(record);
    respond(&mut proxy, record, Kind::Cds, &[("a", cluster("a", 1)), ("b", cluster("b", 1))], &[]);
    respond(&mut proxy, record, Kind::Eds, &[("a", b"1".to_vec())], &["b"]);
    respond(&mut proxy, record, Kind::Lds, &[], &[]);
    proxy
}

#[test]
fn clusters_come_first_then_endpoints_then_listeners() {
    let mut record = Record::default();
    let mut proxy = proxy(Protocol::Delta);
    let said = proxy.open(&mut record);
    assert_eq!(said.len(), 1);
    let first = delta(&said[0]);
    assert_eq!(first.type_url, Kind::Cds.type_url());
    assert!(first.node.unwrap().id.starts_with("sidecar~10.64.0.4~cart-3.shop~"));

    let said = respond(&mut proxy, &mut record, Kind::Cds, &[("a", cluster("a", 1))], &[]);
    let said: Vec<_> = said.iter().map(delta).collect();
    assert_eq!(said[0].response_nonce, "nonce");
    assert_eq!(said[1].type_url, Kind::Eds.type_url());
    assert_eq!(said[1].resource_names_subscribe, ["a"]);
    assert_eq!(said.len(), 2, "listeners wait for endpoints");

    let said = respond(&mut proxy, &mut record, Kind::Eds, &[("a", b"1".to_vec())], &[]);
    assert_eq!(delta(&said[1]).type_url, Kind::Lds.type_url());
    assert!(record.ready.is_empty());
    respond(&mut proxy, &mut record, Kind::Lds, &[], &[]);
    assert!(record.ready.contains_key(&3));
}

#[test]
fn cluster_that_goes_takes_its_endpoints_along() {
    let mut record = Record::default();
    let mut proxy = settled(&mut record);
    let said = respond(&mut proxy, &mut record, Kind::Cds, &[], &["a"]);
    assert_eq!(delta(&said[1]).resource_names_unsubscribe, ["a"]);
    assert!(proxy.held(Kind::Eds).is_empty());
    respond(&mut proxy, &mut record, Kind::Eds, &[("a", b"2".to_vec())], &[]);
    assert!(proxy.held(Kind::Eds).is_empty(), "what comes late is not wanted any more");
}

#[test]
fn new_stream_says_what_is_there_already() {
    let mut record = Record::default();
    let mut proxy = settled(&mut record);
    let said: Vec<_> = proxy.open(&mut record).iter().map(delta).collect();
    assert_eq!(said.len(), 3, "no listener wants routes");
    assert!(said[0].node.is_some() && said[1].node.is_none());
    assert_eq!(said[0].initial_resource_versions.len(), 2);
    assert_eq!(said[1].resource_names_subscribe, ["a", "b"]);
    assert_eq!(said[1].initial_resource_versions["a"], "v");
}

#[test]
fn expectation_is_met_by_other_bytes_and_by_removal_alone() {
    let mut record = Record::default();
    let mut proxy = settled(&mut record);
    record.expect(Kind::Eds, "a", 1);
    respond(&mut proxy, &mut record, Kind::Eds, &[("a", b"1".to_vec())], &[]);
    assert!(!record.expectation(Kind::Eds, "a").unwrap().is_met());
    respond(&mut proxy, &mut record, Kind::Eds, &[("a", b"2".to_vec())], &[]);
    assert!(record.take(Kind::Eds, "a").unwrap().last().is_some());
    record.expect(Kind::Cds, "b", 1);
    respond(&mut proxy, &mut record, Kind::Cds, &[], &["b"]);
    assert!(record.take(Kind::Cds, "b").unwrap().is_met());
}

#[test]
fn state_of_the_world_without_a_cluster_drops_it() {
    let mut record = Record::default();
    let mut proxy = proxy(Protocol::Sotw);
    proxy.open(&mut record);
    let both = [("a", cluster("a", 1)), ("b", cluster("b", 1))];
    respond(&mut proxy, &mut record, Kind::Cds, &both, &[]);
    assert_eq!(proxy.held(Kind::Cds).len(), 2);
    let said = respond(&mut proxy, &mut record, Kind::Cds, &both[1..], &[]);
    assert_eq!(proxy.held(Kind::Cds).len(), 1);
    let endpoints = DiscoveryRequest::decode(&said[1][5..]).unwrap();
    assert_eq!(endpoints.resource_names, ["b"]);
    assert_eq!(record.totals.kinds[&Kind::Cds].messages, 2);
}
