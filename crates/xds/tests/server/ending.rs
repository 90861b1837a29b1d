//! How streams and servers end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use canopus_xds::client::AdsStream;
use canopus_xds::server::Options;
use canopus_xds::session::Protocol;
use canopus_xds::types::LISTENER;
use tonic::metadata::MetadataMap;

use crate::toy::{Served, first_delta, next, node, until};

#[tokio::test]
async fn streams_end_in_good_order_when_the_server_stops() {
    let server = Served::new().await;
    server.toy.put(LISTENER, "a", "1");
    let first = first_delta(LISTENER, Some(node("client")));
    let mut stream =
        AdsStream::open(server.channel(), Protocol::Delta, MetadataMap::new(), first).await.unwrap();
    stream.next().await.unwrap().unwrap();
    let toy = server.toy.clone();
    let stopping = tokio::spawn(server.stop());
    assert!(stream.next().await.unwrap().is_none());
    drop(stream);
    stopping.await.unwrap();
    until("the client should be gone", || toy.connected.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn server_stops_although_a_client_never_reads() {
    let server =
        Served::with(Options { drain_timeout: Duration::from_millis(50), ..Options::default() }).await;
    server.toy.put(LISTENER, "a", vec![1; 30_000_000]);
    let first = first_delta(LISTENER, Some(node("client")));
    let stuck = AdsStream::open(server.channel(), Protocol::Delta, MetadataMap::new(), first).await.unwrap();
    until("the client should be connected", || server.toy.connected.load(Ordering::SeqCst) == 1).await;
    server.stop().await;
    drop(stuck);
}

#[tokio::test]
async fn stream_ends_when_its_connection_is_old() {
    let server =
        Served::with(Options { max_connection_age: Some(Duration::from_millis(100)), ..Options::default() })
            .await;
    server.toy.put(LISTENER, "a", "1");
    let mut client = server.client(Protocol::Delta);
    client.follower_mut().watch_everything(LISTENER);
    assert_eq!(next(&mut client).await.names(), ["a"]);
    assert!(client.step().await.unwrap().is_none());
    // The next step opens another stream, which has nothing new to say.
    assert!(next(&mut client).await.resources.is_empty());
}
