use std::convert::Infallible;

use canopus_proto::Message as _;
use canopus_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use canopus_proto::istio::networking::nds::v1::NameTable;
use http_body_util::{BodyExt as _, Full, StreamBody};
use tokio::net::{TcpListener, UnixStream};
use tokio_stream::StreamExt as _;

use super::*;
use crate::address::HostPort;
use crate::last_good::{Change, LastGoodSettings};
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

/// Envoy's side of a stream.
struct Stream {
    requests: mpsc::UnboundedSender<Message>,
    answer: Response<Incoming>,
    _directory: tempfile::TempDir,
}

async fn open(upstream: HostPort, state: Option<Arc<LastGood>>, patience: Patience) -> Stream {
    open_with(upstream, XdsProxyParts { state, ..Default::default() }, patience).await
}

async fn open_with(upstream: HostPort, parts: XdsProxyParts, patience: Patience) -> Stream {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("XDS");
    let settings = XdsProxySettings {
        socket: socket.clone(),
        upstream: Upstream { address: upstream, tls: None, token: None },
        cluster: "here".into(),
        headers: Vec::new(),
        patience,
    };
    let proxy = XdsProxy::new(settings, parts, &Registry::new());
    tokio::spawn(proxy.serve(sds::bind(&socket).unwrap()));
    let stream = UnixStream::connect(&socket).await.unwrap();
    let (mut sender, connection) =
        client::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let (requests, body) = mpsc::unbounded_channel();
    let request = Request::post(format!("http://agent{SOTW}")).body(RequestBody(body)).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    // The connection lives as long as its sender.
    tokio::spawn(async move {
        std::future::pending::<()>().await;
        drop(sender);
    });
    Stream { requests, answer, _directory: directory }
}

impl Stream {
    fn ask(&self, type_url: &str, version: &str) {
        let request = DiscoveryRequest {
            type_url: type_url.into(),
            version_info: version.into(),
            ..Default::default()
        };
        self.requests.send(Message::new(&request.encode_to_vec())).unwrap();
    }

    /// All responses, and how the stream ended.
    async fn end(self) -> (Bytes, HeaderMap) {
        let headers = self.answer.headers().clone();
        let collected = self.answer.into_body().collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or(headers);
        (collected.to_bytes(), trailers)
    }

    /// The next response.
    async fn next(&mut self) -> DiscoveryResponse {
        loop {
            let frame = self.answer.body_mut().frame().await.unwrap().unwrap();
            let data = frame.into_data().unwrap();
            if !data.is_empty() {
                return DiscoveryResponse::decode(&data[5..]).unwrap();
            }
        }
    }
}

async fn ask(upstream: HostPort, type_url: &str) -> (Bytes, HeaderMap) {
    let stream = open(upstream, None, Patience::default()).await;
    stream.ask(type_url, "");
    stream.end().await
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

/// What Envoy has accepted before.
fn state(directory: &std::path::Path) -> Arc<LastGood> {
    let settings = LastGoodSettings { directory: directory.into(), max_bytes: 1 << 20, owner: "a".into() };
    let state = LastGood::open(&settings, &Registry::new()).unwrap();
    for type_url in [canopus_xds::types::CLUSTER, canopus_xds::types::LISTENER] {
        let body = canopus_proto::Any { type_url: type_url.into(), value: Bytes::new() }.encode_to_vec();
        state.append(type_url, &[Change::Put { name: "one", version: "3", body: &body }]);
    }
    Arc::new(state)
}

const QUICK: Patience = Patience {
    first_response: Duration::from_millis(300),
    keepalive_interval: Duration::from_millis(200),
    keepalive_timeout: Duration::from_millis(200),
};

/// How a control plane behaves that is there, and does not serve.
#[derive(Clone, Copy, Debug)]
enum Absence {
    /// Connections are accepted and never answered, as behind a load balancer without targets.
    Silent,
    /// Connections are accepted and closed.
    Closing,
    /// HTTP/2 works; streams are left without an answer.
    Unanswered,
    /// Answers with an HTTP error, as a proxy does whose upstream is down.
    HttpStatus,
    /// Streams are refused at once.
    Refusing,
    /// Streams are accepted, and end without a response.
    Ending,
}

/// Such a control plane, until it is told to serve.
async fn absent_plane(absence: Absence, mut serves: watch::Receiver<bool>) -> HostPort {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let is_served = *serves.borrow_and_update();
            if !is_served && matches!(absence, Absence::Closing) {
                continue;
            }
            tokio::spawn(async move {
                if !is_served && matches!(absence, Absence::Silent) {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    return drop(stream);
                }
                let service = service_fn(move |request: Request<Incoming>| async move {
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", HeaderValue::from_static("14"));
                    let mut answer = Response::new(Full::new(Bytes::new()).boxed());
                    if is_served {
                        let mut frames = Frames::new(request.into_body());
                        let asked = frames.next().await.unwrap().unwrap();
                        let type_url = peek::request(&asked, Variant::Sotw).unwrap().type_url;
                        let response =
                            DiscoveryResponse { type_url, version_info: "7".into(), ..Default::default() };
                        let message = Message::new(&response.encode_to_vec()).into_bytes();
                        let open =
                            tokio_stream::once(Ok(Frame::data(message))).chain(tokio_stream::pending());
                        *answer.body_mut() = StreamBody::new(open).boxed();
                        return Ok::<_, Infallible>(answer);
                    }
                    match absence {
                        Absence::Unanswered => std::future::pending().await,
                        Absence::HttpStatus => *answer.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE,
                        Absence::Refusing => answer.headers_mut().extend(trailers),
                        _ => {
                            let body = Full::new(Bytes::new());
                            *answer.body_mut() =
                                body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed();
                        }
                    }
                    Ok(answer)
                });
                let io = TokioIo::new(stream);
                let _ = server::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
            });
        }
    });
    HostPort { host: "127.0.0.1".into(), port }
}

#[tokio::test]
async fn control_plane_that_accepts_and_does_not_serve_is_away() {
    let absences = [
        Absence::Silent,
        Absence::Closing,
        Absence::Unanswered,
        Absence::HttpStatus,
        Absence::Refusing,
        Absence::Ending,
    ];
    for absence in absences {
        let directory = tempfile::tempdir().unwrap();
        let (serve, serves) = watch::channel(false);
        let upstream = absent_plane(absence, serves).await;
        let mut stream = open(upstream.clone(), Some(state(directory.path())), QUICK).await;
        stream.ask(canopus_xds::types::CLUSTER, "");
        let response = stream.next().await;
        assert_eq!((response.version_info.as_str(), response.resources.len()), ("3", 1), "{absence:?}");
        // Later requests are answered as well.
        stream.ask(canopus_xds::types::LISTENER, "");
        assert_eq!(stream.next().await.type_url, canopus_xds::types::LISTENER, "{absence:?}");
        // It is not back before it answers; then Envoy is asked to connect anew.
        let (bytes, trailers) = tokio::join!(stream.end(), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            serve.send_replace(true);
        })
        .0;
        assert!(bytes.is_empty(), "{absence:?}");
        assert!(trailers["grpc-message"].to_str().unwrap().contains("back"), "{absence:?}: {trailers:?}");
    }
}

#[tokio::test]
async fn refusal_of_this_proxy_is_not_an_outage() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|_: Request<Incoming>| async {
                let mut answer = Response::new(Full::new(Bytes::new()));
                answer.headers_mut().insert("grpc-status", HeaderValue::from_static("16"));
                Ok::<_, Infallible>(answer)
            });
            let io = TokioIo::new(stream);
            tokio::spawn(server::Builder::new(TokioExecutor::new()).serve_connection(io, service));
        }
    });
    let upstream = HostPort { host: "127.0.0.1".into(), port };
    let stream = open(upstream, Some(state(directory.path())), QUICK).await;
    stream.ask(canopus_xds::types::CLUSTER, "");
    let (bytes, trailers) = stream.end().await;
    assert!(bytes.is_empty());
    assert_eq!(trailers["grpc-status"], "16");
}

#[tokio::test]
async fn envoy_with_a_configuration_waits_for_a_slow_control_plane() {
    let directory = tempfile::tempdir().unwrap();
    let (_serve, serves) = watch::channel(false);
    let upstream = absent_plane(Absence::Unanswered, serves).await;
    let mut stream = open(upstream, Some(state(directory.path())), QUICK).await;
    stream.ask(canopus_xds::types::CLUSTER, "3");
    assert!(tokio::time::timeout(Duration::from_secs(1), stream.next()).await.is_err());
}

/// The control plane answers, and then its machine is gone: nothing is read, and nothing is closed.
#[tokio::test]
async fn connection_that_died_in_silence_is_noticed() {
    let (serve, serves) = watch::channel(true);
    let upstream = absent_plane(Absence::Silent, serves).await;
    let (inner, frozen) = (upstream.clone(), Arc::new(tokio::sync::Notify::new()));
    // What stands between passes bytes until it is frozen.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let freeze = Arc::clone(&frozen);
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = tokio::net::TcpStream::connect((inner.host.as_str(), inner.port)).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
            () = freeze.notified() => {}
        }
        std::future::pending::<()>().await;
        drop((near, far));
    });
    let mut stream = open(HostPort { host: "127.0.0.1".into(), port }, None, QUICK).await;
    stream.ask(canopus_xds::types::CLUSTER, "");
    assert_eq!(stream.next().await.version_info, "7");
    frozen.notify_one();
    let (_, trailers) = tokio::time::timeout(Duration::from_secs(10), stream.end()).await.unwrap();
    assert_eq!(trailers["grpc-status"], "14", "{trailers:?}");
    drop(serve);
}

/// A control plane that tells of every request, and answers the first for names with something that is no table.
async fn confused_plane() -> (HostPort, mpsc::UnboundedReceiver<DiscoveryRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tell = tell.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let (tell, (answers, body)) = (tell.clone(), mpsc::channel(8));
                async move {
                    let mut frames = Frames::new(request.into_body());
                    tokio::spawn(async move {
                        while let Ok(Some(message)) = frames.next().await {
                            let mut body = message.body();
                            let bytes = bytes::Buf::copy_to_bytes(&mut body, message.len() - 5);
                            let asked = DiscoveryRequest::decode(bytes).unwrap();
                            if asked.type_url == canopus_xds::types::NAME_TABLE
                                && asked.response_nonce.is_empty()
                            {
                                let resource = canopus_proto::Any {
                                    type_url: asked.type_url.clone(),
                                    value: Bytes::from_static(b"\xff no table"),
                                };
                                let response = DiscoveryResponse {
                                    type_url: asked.type_url.clone(),
                                    resources: vec![resource],
                                    nonce: "first".into(),
                                    ..Default::default()
                                };
                                let _ = send(Message::new(&response.encode_to_vec()), &answers).await;
                            }
                            let _ = tell.send(asked);
                        }
                    });
                    Ok::<_, Infallible>(grpc_response(body))
                }
            });
            let io = TokioIo::new(stream);
            tokio::spawn(server::Builder::new(TokioExecutor::new()).serve_connection(io, service));
        }
    });
    (HostPort { host: "127.0.0.1".into(), port }, told)
}

#[tokio::test]
async fn agents_own_requests_follow_the_one_for_listeners_and_a_broken_name_table_is_refused() {
    let (upstream, mut asked) = confused_plane().await;
    let sick = HealthReport { problem: Some("status 503".into()) };
    let (reports, health) = watch::channel(Some(sick));
    let names: NameTableSink =
        Arc::new(|bytes| NameTable::decode(bytes).map(drop).map_err(|error| error.to_string()));
    let parts = XdsProxyParts {
        local: LocalTypes { names: Some(names), roots: None },
        health: Some(health),
        ..Default::default()
    };
    let stream = open_with(upstream, parts, Patience::default()).await;
    stream.ask(canopus_xds::types::CLUSTER, "");
    assert_eq!(asked.recv().await.unwrap().type_url, canopus_xds::types::CLUSTER);
    let more = tokio::time::timeout(Duration::from_millis(200), asked.recv()).await;
    assert!(more.is_err(), "asked before Envoy asked for listeners: {more:?}");

    stream.ask(canopus_xds::types::LISTENER, "");
    let (mut listeners, mut names, mut health) = (0, Vec::new(), Vec::new());
    while listeners + names.len() + health.len() < 4 {
        let request = asked.recv().await.unwrap();
        match request.type_url.as_str() {
            canopus_xds::types::NAME_TABLE => names.push(request),
            canopus_xds::types::HEALTH => health.push(request.error_detail.map(|error| error.message)),
            _ => listeners += 1,
        }
    }
    assert_eq!(health, [Some("status 503".to_owned())]);
    assert_eq!((names[0].response_nonce.as_str(), names[1].response_nonce.as_str()), ("", "first"));
    assert!(names[1].error_detail.is_some(), "{names:?}");

    reports.send_replace(Some(HealthReport { problem: None }));
    let request = asked.recv().await.unwrap();
    assert_eq!((request.type_url.as_str(), request.error_detail), (canopus_xds::types::HEALTH, None));
}
