//! Clients that do not behave.

use bytes::Bytes;
use canopus_proto::Message;
use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use canopus_testkit::grpc_call;
use canopus_xds::client::AdsStream;
use canopus_xds::server::Options;
use canopus_xds::session::{Limits, Protocol};
use canopus_xds::types::{CLUSTER, ENDPOINT, LISTENER};
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::toy::{FORBIDDEN, Served, first_delta, next, node};

const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

#[tokio::test]
async fn missing_node_is_an_invalid_argument() {
    let server = Served::new().await;
    for protocol in [Protocol::Sotw, Protocol::Delta] {
        for node in [None, Some(node(""))] {
            let mut stream = open(&server, protocol, MetadataMap::new(), node).await;
            let status = stream.next().await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            assert_eq!(status.message(), "missing node information");
        }
    }
}

#[tokio::test]
async fn refusals_reach_the_client_word_for_word() {
    let server = Served::new().await;
    let mut stream = open(&server, Protocol::Delta, MetadataMap::new(), Some(node("impostor"))).await;
    let status = stream.next().await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(status.message(), "authorization failed: not a 100% match");

    let mut headers = MetadataMap::new();
    headers.insert("x-stranger", "yes".parse().unwrap());
    let mut stream = open(&server, Protocol::Delta, headers, None).await;
    assert_eq!(stream.next().await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn refused_type_ends_its_stream_and_no_other() {
    let server = Served::new().await;
    server.toy.put(LISTENER, "a", "1");
    let mut bystander = server.client(Protocol::Delta);
    bystander.follower_mut().watch_everything(LISTENER);
    next(&mut bystander).await;

    for protocol in [Protocol::Sotw, Protocol::Delta] {
        let mut stream = open(&server, protocol, MetadataMap::new(), Some(node("client"))).await;
        stream.next().await.unwrap().unwrap();
        stream.send(first_delta(FORBIDDEN, None)).await.unwrap();
        let status = stream.next().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "not this type"));
    }
    server.toy.put(LISTENER, "a", "2");
    assert_eq!(next(&mut bystander).await.names(), ["a"]);
}

#[tokio::test]
async fn bytes_that_are_no_request_are_an_invalid_argument() {
    let server = Served::new().await;
    let status = raw(server.channel(), Bytes::from_static(b"\x0a\xff\xff")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("malformed request"), "{}", status.message());
}

#[tokio::test]
async fn request_that_is_too_large_exhausts_resources() {
    let server = Served::with(Options { max_request_bytes: 1000, ..Options::default() }).await;
    let request = DeltaDiscoveryRequest {
        node: Some(node(&"x".repeat(2000))),
        type_url: CLUSTER.into(),
        ..Default::default()
    };
    let status = raw(server.channel(), request.encode_to_vec().into()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn too_many_names_exhaust_resources() {
    let limits = Limits { names: 1000, ..Limits::default() };
    let server = Served::with(Options { limits, ..Options::default() }).await;
    let request = |names: usize| DeltaDiscoveryRequest {
        node: Some(node("client")),
        type_url: ENDPOINT.into(),
        resource_names_subscribe: vec![String::new(); names],
        ..Default::default()
    };
    raw(server.channel(), request(1000).encode_to_vec().into()).await.unwrap();
    let status = raw(server.channel(), request(1001).encode_to_vec().into()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn unknown_method_is_unimplemented() {
    let server = Served::new().await;
    let path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/Other";
    let status = grpc_call(server.channel(), path, Bytes::new()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

async fn open(
    server: &Served,
    protocol: Protocol,
    headers: MetadataMap,
    node: Option<canopus_proto::envoy::config::core::v3::Node>,
) -> AdsStream {
    AdsStream::open(server.channel(), protocol, headers, first_delta(CLUSTER, node)).await.unwrap()
}

/// Sends bytes as the first message of a delta stream and waits for the first answer.
async fn raw(channel: Channel, message: Bytes) -> Result<DeltaDiscoveryResponse, Status> {
    let answer = grpc_call(channel, DELTA, message).await?;
    Ok(DeltaDiscoveryResponse::decode(answer).unwrap())
}
