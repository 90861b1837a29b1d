use std::convert::Infallible;

use canopus_proto::Message as _;
use canopus_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use http_body_util::{BodyExt as _, Full};
use tokio::net::{TcpListener, UnixStream};

use super::*;
use crate::address::HostPort;
use crate::sds;

/// A control plane that sends nothing, not even headers, before it has read a request. It answers with the request's type.
async fn hesitant_plane() -> HostPort {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|request: Request<Incoming>| async move {
                assert_eq!(request.headers()["clusterid"], "here");
                let mut frames = Frames::new(request.into_body());
                let asked = frames.next().await.unwrap().unwrap();
                let type_url = peek::request(&asked, Variant::Sotw).unwrap().type_url;
                let answer = DiscoveryResponse { type_url, version_info: "7".into(), ..Default::default() };
                let body = Full::new(Message::new(&answer.encode_to_vec()).into_bytes());
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                Ok::<_, Infallible>(Response::new(body.with_trailers(async move { Some(Ok(trailers)) })))
            });
            let io = TokioIo::new(stream);
            tokio::spawn(server::Builder::new(TokioExecutor::new()).serve_connection(io, service));
        }
    });
    HostPort { host: "127.0.0.1".into(), port }
}

async fn ask(upstream: HostPort, type_url: &str) -> (Bytes, HeaderMap) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("XDS");
    let settings = XdsProxySettings {
        socket: socket.clone(),
        upstream: Upstream { address: upstream, tls: None, token: None },
        cluster: "here".into(),
        headers: Vec::new(),
    };
    let proxy = XdsProxy::new(settings, XdsProxyParts::default(), &Registry::new());
    tokio::spawn(proxy.serve(sds::bind(&socket).unwrap()));
    let stream = UnixStream::connect(&socket).await.unwrap();
    let (mut sender, connection) =
        client::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let (requests, body) = mpsc::unbounded_channel();
    let request = DiscoveryRequest { type_url: type_url.into(), ..Default::default() };
    requests.send(Message::new(&request.encode_to_vec())).unwrap();
    let request = Request::post(format!("http://agent{SOTW}")).body(RequestBody(body)).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let headers = answer.headers().clone();
    let collected = answer.into_body().collect().await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or(headers);
    (collected.to_bytes(), trailers)
}

#[tokio::test]
async fn request_reaches_a_server_that_answers_only_then() {
    let (bytes, trailers) = ask(hesitant_plane().await, canopus_xds::types::CLUSTER).await;
    let answer = DiscoveryResponse::decode(&bytes[5..]).unwrap();
    assert_eq!((answer.type_url.as_str(), answer.version_info.as_str()), (canopus_xds::types::CLUSTER, "7"));
    assert_eq!(trailers["grpc-status"], "0");
}

#[tokio::test]
async fn types_envoy_does_not_know_are_dropped() {
    let (bytes, _) = ask(hesitant_plane().await, "type.googleapis.com/istio.security.Authorization").await;
    assert!(bytes.is_empty());
}

#[tokio::test]
async fn stream_ends_with_the_reason_when_nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let (_, trailers) = ask(HostPort { host: "127.0.0.1".into(), port }, canopus_xds::types::CLUSTER).await;
    assert_eq!(trailers["grpc-status"], "14");
    assert!(trailers["grpc-message"].to_str().unwrap().contains("control%20plane"), "{trailers:?}");
}
