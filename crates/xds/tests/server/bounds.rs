//! What the server holds for all clients together is bounded: the newest are refused, those who came before are served.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use canopus_proto::Message as _;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_xds::client::AdsStream;
use canopus_xds::server::Options;
use canopus_xds::session::Protocol;
use canopus_xds::types::LISTENER;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use crate::toy::{Served, Toy, first_delta, node, until};

const PATIENCE: Duration = Duration::from_secs(20);

/// A stream that has had its first answer.
async fn served(server: &Served, node: Node) -> Result<AdsStream, Status> {
    let first = first_delta(LISTENER, Some(node));
    let opened = async {
        let mut stream =
            AdsStream::open(server.channel(), Protocol::Delta, MetadataMap::new(), first).await?;
        stream.next().await?.ok_or_else(|| Status::ok("the stream ended"))?;
        Ok(stream)
    };
    timeout(PATIENCE, opened).await.expect("an answer should have come")
}

async fn gone(toy: &Arc<Toy>, left: usize) {
    until("the client should be gone", || toy.connected.load(Ordering::SeqCst) == left).await;
}

#[tokio::test]
async fn newest_stream_is_refused_when_there_are_too_many() {
    let server = Served::with(Options { max_streams: 2, ..Options::default() }).await;
    server.toy.put(LISTENER, "a", "1");
    let first = served(&server, node("first")).await.unwrap();
    let second = served(&server, node("second")).await.unwrap();
    let status = served(&server, node("third")).await.err().expect("a third is too many");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    drop(first);
    gone(&server.toy, 1).await;
    let third = served(&server, node("third")).await.unwrap();
    drop((second, third));
}

#[tokio::test]
async fn newest_client_is_refused_when_nodes_take_too_much() {
    let large = |id: &str| Node { cluster: "x".repeat(10_000), ..node(id) };
    let room = 2 * large("n").encoded_len() + 100;
    let server = Served::with(Options { max_node_bytes: room, ..Options::default() }).await;
    server.toy.put(LISTENER, "a", "1");
    let first = served(&server, large("1")).await.unwrap();
    let second = served(&server, large("2")).await.unwrap();
    let status = served(&server, large("3")).await.err().expect("a third has no room");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    served(&server, node("small")).await.expect("a small one has");
    drop(first);
    until("the room should be free", || server.toy.connected.load(Ordering::SeqCst) <= 1).await;
    served(&server, large("3")).await.expect("the room is free again");
    drop(second);
}

#[tokio::test]
async fn newest_connection_is_hung_up_on_when_there_are_too_many() {
    let server = Served::with(Options { max_connections: 1, ..Options::default() }).await;
    server.toy.put(LISTENER, "a", "1");
    let first = served(&server, node("first")).await.unwrap();
    let mut second = TcpStream::connect(server.address).await.unwrap();
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, second.read_to_end(&mut rest)).await.expect("the server should hang up");
    assert!(ended.is_err() || rest.is_empty(), "{rest:?}");
    drop(first);
    gone(&server.toy, 0).await;
    let again = timeout(PATIENCE, async {
        while served(&server, node("second")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    again.await.expect("there should be room again");
}

#[tokio::test]
async fn stream_that_says_nothing_is_ended() {
    let options = Options { first_request_timeout: Duration::from_millis(100), ..Options::default() };
    let server = Served::with(options).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&crate::flood::silent_stream()).await.unwrap();
    // The headers and the status of the end come without a word of the client.
    let mut said = Vec::new();
    let ended = timeout(PATIENCE, async {
        while !crate::flood::has_ended(&said) {
            let mut bytes = [0; 1024];
            let read = stream.read(&mut bytes).await.unwrap();
            assert_ne!(read, 0, "the connection ended instead of the stream");
            said.extend_from_slice(&bytes[..read]);
        }
    });
    ended.await.expect("the stream should have ended");
    assert_eq!(server.toy.connected.load(Ordering::SeqCst), 0);
}
