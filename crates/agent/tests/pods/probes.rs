//! Probes of a kubelet, which reach the application through the agent, and commands inside the pod.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use canopus_testkit::{Authority, eventually, http};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::network::Namespace;
use crate::pod::program;
use crate::world::World;

const WEB: u16 = 8081;
const SECURE: u16 = 8443;
const GRPC: u16 = 8083;

const STRICT: &str = "
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
";

/// What the application says to whom.
async fn answer(request: Request<Incoming>, peer: SocketAddr) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut answer = Response::new(Full::default());
    let mut redirect = |target: String| {
        *answer.status_mut() = StatusCode::FOUND;
        answer.headers_mut().insert("location", target.parse().unwrap());
    };
    let path = request.uri().path();
    if let Some(left) = path.strip_prefix("/redirect/").and_then(|count| count.parse::<u32>().ok()) {
        if left > 0 {
            redirect(format!("/redirect/{}", left - 1));
        }
        return Ok(answer);
    }
    let is_well = match path {
        "/away" => {
            redirect("http://10.78.0.1/elsewhere".to_owned());
            return Ok(answer);
        }
        "/slow" => {
            tokio::time::sleep(Duration::from_secs(5)).await;
            true
        }
        "/header" => request.headers().get("x-probe").is_some_and(|value| value == "yes"),
        "/http2" => request.version() == Version::HTTP_2,
        "/source" => peer.ip().to_canonical() == Ipv4Addr::new(127, 0, 0, 6),
        path => path == "/ok",
    };
    if !is_well {
        *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(answer)
}

async fn web(listener: TcpListener, tls: Option<TlsAcceptor>) {
    while let Ok((stream, peer)) = listener.accept().await {
        let tls = tls.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, peer));
            let Some(tls) = tls else {
                return drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
            };
            let Ok(stream) = tls.accept(stream).await else { return };
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                let io = TokioIo::new(stream);
                drop(http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await);
            }
        });
    }
}

/// A health service that serves, but for the service `sick`.
async fn health(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let service = service_fn(|request: Request<Incoming>| async move {
            let asked = request
                .into_body()
                .collect()
                .await
                .map(http_body_util::Collected::to_bytes)
                .unwrap_or_default();
            let is_sick = asked.ends_with(b"sick");
            let message = Bytes::from(vec![0, 0, 0, 0, 2, 8, if is_sick { 2 } else { 1 }]);
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let body = Full::new(message).with_trailers(std::future::ready(Some(Ok(trailers))));
            let mut answer = Response::new(body);
            answer.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            Ok::<_, Infallible>(answer)
        });
        let io = TokioIo::new(stream);
        tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(io, service));
    }
}

/// TLS with a certificate that nobody signed whom the agent knows.
fn tls() -> Result<TlsAcceptor> {
    let certified = Authority::new()?.server("nobody.example")?;
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

/// Runs the application in a pod until the process ends.
fn serve(namespace: &Namespace) -> Result<()> {
    let (namespace, tls) = (namespace.clone(), tls()?);
    let (ready, started) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        namespace.run(async move || {
            let bind = async |port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await;
            let (plain, secure, grpc) = (bind(WEB).await?, bind(SECURE).await?, bind(GRPC).await?);
            let _ = ready.send(());
            tokio::join!(web(plain, None), web(secure, Some(tls)), health(grpc));
            Ok(())
        })
    });
    Ok(started.recv_timeout(Duration::from_secs(10))?)
}

pub(crate) fn under_capture() -> Result<()> {
    let get = |path: &str| json!({"httpGet": {"path": path, "port": WEB}, "timeoutSeconds": 1});
    let headers = json!([{"name": "X-Probe", "value": "yes"}]);
    let probes = [
        ("http", get("/ok"), 200),
        ("header", json!({"httpGet": {"path": "header", "port": WEB, "httpHeaders": headers}}), 200),
        ("sick", get("/sick"), 503),
        ("slow", get("/slow"), 500),
        ("source", get("/source"), 200),
        ("redirects", get("/redirect/10"), 200),
        ("many-redirects", get("/redirect/11"), 500),
        ("other-host", get("/away"), 302),
        ("https", json!({"httpGet": {"path": "/http2", "port": SECURE, "scheme": "HTTPS"}}), 200),
        ("tcp", json!({"tcpSocket": {"port": WEB}}), 200),
        ("tcp-closed", json!({"tcpSocket": {"port": 8099}}), 500),
        ("grpc", json!({"grpc": {"port": GRPC}}), 200),
        ("grpc-sick", json!({"grpc": {"port": GRPC, "service": "sick"}}), 500),
    ];
    let path = |name: &str| format!("/app-health/{name}/readyz");
    let variable: serde_json::Map<_, _> =
        probes.iter().map(|(name, probe, _)| (path(name), probe.clone())).collect();
    let variable = serde_json::Value::Object(variable).to_string();
    let world = World::start(STRICT, &[], &[("ISTIO_KUBE_APP_PROBERS", &variable)])?;
    let pod = &world.server;
    serve(&pod.namespace)?;
    let address =
        |port: u16| -> Result<SocketAddr> { Ok(format!("{}:{port}", pod.workload.address()).parse()?) };
    let (agent, application) = (address(15020)?, address(WEB)?);
    world.network.node().run(async || {
        // A kubelet that asks the application itself speaks plain text, which is refused.
        eventually("no plain text", Duration::from_secs(20), async || {
            let answer = http::get(application, "/ok").await;
            ensure!(answer.is_err(), "answered: {answer:?}");
            Ok(())
        })
        .await?;
        for (name, _, expected) in &probes {
            let answer = http::get(agent, &path(name)).await.with_context(|| (*name).to_owned())?;
            ensure!(answer.status == *expected, "{name}: {answer:?}");
        }
        let unknown = http::get(agent, &path("nobody")).await?;
        ensure!(unknown.status == 400, "{unknown:?}");
        Ok(())
    })?;
    commands(&pod.namespace)
}

/// What hooks and tools run in the container.
fn commands(namespace: &Namespace) -> Result<()> {
    let run = |arguments: &[&str]| -> Result<String> {
        let output = namespace.command(&program().to_string_lossy()).args(arguments).output()?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    ensure!(run(&["wait"])?.is_empty());
    let info: serde_json::Value = serde_json::from_str(&run(&["request", "GET", "server_info"])?)?;
    ensure!(info["state"] == "LIVE", "{info}");
    let metrics = run(&["request", "GET", "/metrics", "--debug-port", "15020"])?;
    ensure!(metrics.contains("istio_agent_"), "{metrics}");
    Ok(())
}
