//! What is said on a stream in good order.

use std::sync::atomic::Ordering;

use canopus_xds::SessionEvent;
use canopus_xds::session::Protocol;
use canopus_xds::types::{CLUSTER, ENDPOINT, HEALTH, LISTENER};

use crate::toy::{Served, first_delta, next, node, until};

#[tokio::test]
async fn delta_client_follows_clusters_to_endpoints_and_gets_changes() {
    let server = Served::new().await;
    server.toy.put_cluster("a", "");
    server.toy.put_endpoints("a");
    let mut client = server.client(Protocol::Delta);
    client.follower_mut().follow_references();
    client.follower_mut().watch_everything(CLUSTER);

    assert_eq!(next(&mut client).await.names(), ["a"]);
    let endpoints = next(&mut client).await;
    assert_eq!((endpoints.type_url.as_str(), endpoints.names()), (ENDPOINT, vec!["a"]));

    server.toy.put_cluster("b", "");
    let cluster = next(&mut client).await;
    assert_eq!((cluster.names(), cluster.removed.len()), (vec!["b"], 0));

    server.toy.delete(CLUSTER, "a");
    loop {
        let update = next(&mut client).await;
        if update.type_url == CLUSTER {
            assert_eq!((update.names().len(), update.removed), (0, vec!["a".to_owned()]));
            break;
        }
    }
    assert_eq!(client.follower().held(CLUSTER).map(|(name, _)| name).collect::<Vec<_>>(), ["b"]);
}

#[tokio::test]
async fn sotw_client_follows_clusters_to_endpoints_and_gets_changes() {
    let server = Served::new().await;
    server.toy.put_cluster("a", "");
    server.toy.put_cluster("b", "");
    server.toy.put_endpoints("a");
    server.toy.put_endpoints("b");
    let mut client = server.client(Protocol::Sotw);
    client.follower_mut().follow_references();
    client.follower_mut().watch_everything(CLUSTER);

    assert_eq!(next(&mut client).await.names(), ["a", "b"]);
    assert_eq!(next(&mut client).await.names(), ["a", "b"]);
    server.toy.put_cluster("a", "renamed");
    assert_eq!(next(&mut client).await.names(), ["a", "b"]);
    let endpoints = next(&mut client).await;
    assert_eq!((endpoints.type_url.as_str(), endpoints.names()), (ENDPOINT, vec!["a"]));
}

#[tokio::test]
async fn reconnected_client_gets_only_what_changed() {
    let server = Served::new().await;
    for name in ["a", "b", "c"] {
        server.toy.put(LISTENER, name, "1");
    }
    let mut client = server.client(Protocol::Delta);
    client.follower_mut().watch_everything(LISTENER);
    assert_eq!(next(&mut client).await.names(), ["a", "b", "c"]);
    client.disconnect();
    server.toy.put(LISTENER, "b", "2");
    server.toy.delete(LISTENER, "c");
    let update = next(&mut client).await;
    assert_eq!(update.names(), ["b"]);
    assert_eq!(update.removed, ["c"]);
}

#[tokio::test]
async fn control_plane_hears_what_happens() {
    let server = Served::new().await;
    server.toy.put(LISTENER, "a", "1");
    let mut client = server.client(Protocol::Delta);
    client.follower_mut().watch_everything(LISTENER);
    let update = next(&mut client).await;
    let acked =
        |event: &SessionEvent| matches!(event, SessionEvent::Acked { nonce, .. } if **nonce == *update.nonce);
    until("the acknowledgement should be noted", || server.toy.events.lock().iter().any(acked)).await;
    let settled = |event: &SessionEvent| matches!(event, SessionEvent::Settled { revision: 2 });
    until("the session should settle", || server.toy.events.lock().iter().any(settled)).await;
    assert_eq!(server.toy.connected.load(Ordering::SeqCst), 1);
    drop(client);
    until("the client should be gone", || server.toy.connected.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn statements_before_the_first_request_are_ignored() {
    let server = Served::new().await;
    server.toy.put(LISTENER, "a", "1");
    let report = first_delta(HEALTH, None);
    let headers = tonic::metadata::MetadataMap::new();
    let opened = canopus_xds::client::AdsStream::open(server.channel(), Protocol::Delta, headers, report);
    let mut stream = opened.await.unwrap();
    stream.send(first_delta(LISTENER, Some(node("client")))).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().names(), ["a"]);
}
