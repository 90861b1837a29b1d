//! Responses of a control plane that pass the agent on their way to Envoy.
//!
//! Control plane and Envoy are threads of the bench; what is measured is the agent's processor time. Nothing is acknowledged,
//! so nothing is written to disk.

use std::convert::Infallible;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::{Bytes, BytesMut};
use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};
use canopus_testkit::{Authority, Certified};
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2 as client;
use hyper::server::conn::http2 as server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_stream::StreamExt as _;

use super::books::Books;
use super::start::{agent, script};
use crate::Figure;

const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// Responses on a stream, each of a mebibyte: clusters of 500 services.
const RESPONSES: usize = 64;
const ROUNDS: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(20);

/// How many bytes pass in a second of the agent's processor time.
pub(crate) fn rates() -> Result<Vec<Figure>> {
    Ok(vec![
        Figure {
            what: "responses passed on to Envoy, per core of the agent",
            measured: rate(false)?,
            budget: "≥ 1 GB a second",
        },
        Figure { what: "the same from a control plane with TLS", measured: rate(true)?, budget: "" },
    ])
}

fn rate(tls: bool) -> Result<String> {
    let directory = tempfile::tempdir()?;
    let authority = Authority::new()?;
    let tls = tls.then(|| acceptor(&authority.server("istiod.istio-system.svc")?)).transpose()?;
    let roots = directory.path().join("var/run/secrets/istio");
    fs::create_dir_all(&roots)?;
    fs::write(roots.join("root-cert.pem"), authority.root())?;
    let others = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = others.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    let config = json!({
        "discoveryAddress": format!("localhost:{}", listener.local_addr()?.port()),
        "controlPlaneAuthPolicy": if tls.is_some() { "MUTUAL_TLS" } else { "NONE" },
        "binaryPath": script(directory.path(), "exec sleep 600")?,
    });
    let message = response(1 << 20);
    let size = message.len() * RESPONSES;
    others.spawn(plane(listener, message, tls));
    // There is no authority; making RSA keys to ask it again would be measured too.
    let mut agent = agent(directory.path(), &config, &[("ECC_SIGNATURE_ALGORITHM", "ECDSA")])?;
    let measured = measure(&others, &mut agent, directory.path(), size);
    agent.kill()?;
    agent.wait()?;
    measured
}

fn measure(others: &Runtime, agent: &mut Child, directory: &Path, size: usize) -> Result<String> {
    let socket = directory.join("etc/istio/proxy/XDS");
    let started = Instant::now();
    while !socket.exists() {
        ensure!(started.elapsed() < PATIENCE && agent.try_wait()?.is_none(), "the agent has no socket");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The first transfer may meet a part of the agent that is still starting.
    others.block_on(transfer(&socket))?;
    let before = Books::read(agent.id())?;
    for _ in 0..ROUNDS {
        let received = others.block_on(transfer(&socket))?;
        ensure!(received == size, "{received} of {size} bytes came through");
    }
    let busy = Books::read(agent.id())?.busy - before.busy;
    Ok(format!("{:.2} GB a second", (size as f64) * f64::from(ROUNDS) / busy.as_secs_f64() / 1e9))
}

/// A response of about `bytes` bytes, with its gRPC prefix.
fn response(bytes: usize) -> Bytes {
    let resource = |number: usize| Resource {
        name: format!("outbound|80||service-{number}.namespace-1.svc.cluster.local"),
        version: "0123456789abcdef".to_owned(),
        resource: Some(canopus_proto::Any {
            type_url: canopus_xds::types::CLUSTER.to_owned(),
            value: vec![7; 2000].into(),
        }),
        ..Default::default()
    };
    framed(&DeltaDiscoveryResponse {
        type_url: canopus_xds::types::CLUSTER.to_owned(),
        resources: (0..bytes / 2100).map(resource).collect(),
        nonce: "1".to_owned(),
        ..Default::default()
    })
}

fn framed(message: &impl canopus_proto::Message) -> Bytes {
    let body = message.encode_to_vec();
    let mut framed = BytesMut::with_capacity(body.len() + 5);
    framed.extend_from_slice(&[0]);
    framed.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
    framed.extend_from_slice(&body);
    framed.freeze()
}

fn acceptor(certified: &Certified) -> Result<TlsAcceptor> {
    let chain =
        CertificateDer::pem_slice_iter(certified.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(certified.key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A control plane that sends its responses on every stream, and then ends it.
async fn plane(listener: TcpListener, message: Bytes, tls: Option<TlsAcceptor>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let (message, tls) = (message.clone(), tls.clone());
        tokio::spawn(async move {
            let Some(tls) = tls else { return serve(stream, message).await };
            if let Ok(stream) = tls.accept(stream).await {
                serve(stream, message).await;
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, message: Bytes) {
    let service = service_fn(move |request: Request<Incoming>| {
        let count = if request.uri().path() == DELTA { RESPONSES } else { 0 };
        let frames = std::iter::repeat_n(message.clone(), count);
        let frames = frames.map(|message| Ok::<_, Infallible>(Frame::data(message)));
        let body = StreamBody::new(tokio_stream::iter(frames));
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let _ = server::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// Opens a stream as Envoy does, asks for clusters, and counts the bytes that come.
async fn transfer(socket: &Path) -> Result<usize> {
    let stream = UnixStream::connect(socket).await.context("the agent's socket")?;
    let (mut sender, connection) = client::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(1 << 20)
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::spawn(connection);
    let asked =
        DeltaDiscoveryRequest { type_url: canopus_xds::types::CLUSTER.to_owned(), ..Default::default() };
    let first = tokio_stream::once(Ok::<_, Infallible>(Frame::data(framed(&asked))));
    let body = StreamBody::new(first.chain(tokio_stream::pending()));
    let request = Request::post(format!("http://agent{DELTA}")).body(body)?;
    let mut answer = sender.send_request(request).await?.into_body();
    let mut received = 0;
    while let Some(frame) = answer.frame().await {
        let Ok(frame) = frame else { break };
        received += frame.data_ref().map_or(0, Bytes::len);
    }
    Ok(received)
}
