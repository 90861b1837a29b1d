//! What the agent serves: pages, certificates and the bootstrap of proxyless applications. Envoy is a script.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/container.rs"]
mod container;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use canopus_proto::Message as _;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::Secret;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::secret::Type;
use canopus_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use canopus_testkit::Authority;
use container::{Container, ask};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::UnixStream;
use tokio_stream::StreamExt as _;

const SOCKET: &str = "var/run/secrets/workload-spiffe-uds/socket";
const FILES_SOCKET: &str = "var/run/secrets/credential-uds/files-socket";

fn code(container: &Container, method: &str, path: &str) -> u16 {
    let answer = ask(container.status(), method, path, "");
    answer.and_then(|(head, _)| head.split(' ').nth(1)?.parse().ok()).unwrap_or_default()
}

/// An application that answers every request with this page.
fn serve(kind: &'static str, page: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
                page.len()
            );
        }
    });
    port
}

#[test]
fn metrics_are_merged_in_the_format_and_the_encoding_of_the_client() {
    let open = serve("application/openmetrics-text; version=1.0.0", "app_total 1\n# EOF\n");
    let mut container = Container::new("exec sleep 60", &[]);
    container
        .set("ISTIO_PROMETHEUS_ANNOTATIONS", &json!({"port": open.to_string(), "path": "/m"}).to_string());
    container.start();
    container.wait("metrics", || code(&container, "GET", "/stats/prometheus") == 200);
    let get = |headers: &str| ask(container.status(), "GET", "/metrics", headers).unwrap();
    let accept = "accept: application/openmetrics-text;version=1.0.0,text/plain\r\n";

    let (head, plain) = get(accept);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    let text = String::from_utf8(plain).unwrap();
    assert!(
        text.contains("istio_agent_process_resident_memory_bytes") && text.contains("app_total 1"),
        "{text}"
    );
    assert_eq!(text.matches("# EOF").count(), 1);
    assert!(text.ends_with("# EOF\n"), "{text}");
    // Envoy's page cannot be had; that is counted, and no reason to withhold the others.
    assert!(text.contains("istio_agent_scrape_failures_total{type=\"envoy\"}"), "{text}");

    let (head, zipped) = get(&format!("{accept}accept-encoding: gzip\r\n"));
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&zipped[..]).read_to_string(&mut text).unwrap();
    assert!(text.contains("app_total 1") && text.ends_with("# EOF\n"), "{text}");

    let (head, zipped) = get("accept-encoding: zstd, gzip;q=0.5\r\n");
    assert!(head.contains("content-encoding: zstd"), "{head}");
    let text = String::from_utf8(zstd::stream::decode_all(&zipped[..]).unwrap()).unwrap();
    assert!(text.contains("app_total 1"), "{text}");
}

#[test]
fn agent_quits_when_it_is_asked_from_this_machine() {
    let mut container = Container::new("exec sleep 60", &[]);
    container.start();
    container.wait("the status port", || code(&container, "GET", "/quitquitquit") == 405);
    container.wait("Envoy", || container.log().contains("Envoy command"));
    let (head, body) = ask(container.status(), "POST", "/quitquitquit", "").unwrap();
    assert!(head.starts_with("http/1.1 200") && body == b"OK", "{head}");
    container.end().says(0, &["asked to quit", "Envoy has ended"]);
}

#[test]
fn waiting_for_readiness_ends_with_the_reason() {
    let mut container = Container::new("exec sleep 60", &[]);
    container.start();
    container.wait("the status port", || code(&container, "GET", "/healthz/ready") == 503);
    let wait = |path: &str| {
        let url = format!("http://{}{path}", container.status());
        let mut command = Command::new(env!("CARGO_BIN_EXE_canopus-agent"));
        command
            .args(["wait", "--timeoutSeconds", "1", "--periodMillis", "100", "--url", &url])
            .output()
            .unwrap()
    };
    let failed = wait("/healthz/ready");
    let reason = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(
        failed.status.code() == Some(1) && reason.contains("Last error:") && reason.contains("503"),
        "{reason}"
    );
    let passed = wait("/stats/prometheus");
    assert!(passed.status.success(), "{passed:?}");
}

/// Asks a socket for a secret, as Envoy does.
fn secret(socket: &Path, name: &str) -> Option<Type> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = UnixStream::connect(socket).await.ok()?;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let request = DiscoveryRequest {
            node: Some(Node {
                id: "sidecar~127.0.0.1~cart-1.shop~shop.svc.cluster.local".into(),
                ..Default::default()
            }),
            type_url: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret".into(),
            resource_names: vec![name.into()],
            ..Default::default()
        };
        let body = request.encode_to_vec();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let message = Bytes::from([&[0][..], &length, &body].concat());
        let open = tokio_stream::once(Ok::<_, std::convert::Infallible>(Frame::data(message)));
        let request =
            http::Request::post("http://agent/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets")
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(StreamBody::new(open.chain(tokio_stream::pending())))
                .unwrap();
        let mut answer = sender.send_request(request).await.ok()?.into_body();
        let mut data = Vec::new();
        loop {
            let limit = std::time::Duration::from_secs(5);
            data.extend(tokio::time::timeout(limit, answer.frame()).await.ok()??.ok()?.into_data().ok()?);
            let whole = data.len() >= 5
                && data.len() >= 5 + u32::from_be_bytes(data[1..5].try_into().unwrap()) as usize;
            if whole {
                let response = DiscoveryResponse::decode(&data[5..]).unwrap();
                let any = response.resources.into_iter().next()?;
                return Secret::decode(any.value).unwrap().r#type;
            }
        }
    })
}

/// The chain of a certificate, or the roots.
fn text(secret: Option<Type>) -> String {
    use canopus_proto::envoy::config::core::v3::data_source::Specifier;
    let source = match secret {
        Some(Type::TlsCertificate(certificate)) => certificate.certificate_chain,
        Some(Type::ValidationContext(context)) => context.trusted_ca,
        _ => None,
    };
    match source.and_then(|source| source.specifier) {
        Some(Specifier::InlineBytes(bytes)) => String::from_utf8(bytes.into()).unwrap(),
        _ => String::new(),
    }
}

/// Certificates as a mounted Secret has them: links into a directory that is replaced as a whole.
fn mount(container: &Container, directory: &str, version: &str) -> String {
    let authority = Authority::new().unwrap();
    let certified = authority.workload(&["spiffe://cluster.local/ns/shop/sa/cart"]).unwrap();
    for (name, text) in [
        ("cert-chain.pem", certified.certificate.as_str()),
        ("key.pem", &certified.key),
        ("root-cert.pem", &authority.root()),
    ] {
        container.write(&format!("{directory}/..{version}/{name}"), text);
        let link = container.path().join(directory).join(name);
        if !link.exists() {
            let _ = symlink(format!("..data/{name}"), link);
        }
    }
    let directory = container.path().join(directory);
    symlink(format!("..{version}"), directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    certified.certificate
}

#[test]
fn mounted_certificates_are_served_and_followed() {
    for (directory, flag) in [("etc/certs", "true"), ("var/run/secrets/workload-spiffe-credentials", "false")]
    {
        let mut container = Container::new("exec sleep 60", &[]);
        container.set("FILE_MOUNTED_CERTS", flag);
        let first = mount(&container, directory, "first");
        container.start();
        let socket = container.path().join(SOCKET);
        container.wait("the certificate", || text(secret(&socket, "default")).trim() == first.trim());
        let second = mount(&container, directory, "second");
        assert_ne!(first, second);
        container.wait("the new certificate", || text(secret(&socket, "default")).trim() == second.trim());
        assert!(text(secret(&socket, "ROOTCA")).contains("BEGIN CERTIFICATE"));
    }
}

#[test]
fn files_are_served_beside_a_foreign_socket() {
    // Somebody else has the certificate of the workload, as a SPIFFE agent does.
    let mut container = Container::new("cat \"$2\"; exec sleep 60", &[]);
    let socket = container.write(SOCKET, "");
    fs::remove_file(&socket).unwrap();
    let _foreign = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let root = container.write("root.pem", "a root");
    container.start();
    container.wait("the bootstrap", || container.log().contains("sds-files-grpc"));
    let name = format!("file-root:{}", root.display());
    let files = container.path().join(FILES_SOCKET);
    assert_eq!(text(secret(&files, &name)), "a root");
    fs::write(&root, "another root").unwrap();
    container.wait("the changed file", || text(secret(&files, &name)) == "another root");
    assert_eq!(secret(&files, "default"), None, "the certificate is not the agent's");
    assert!(container.log().contains("is served by another process"), "{}", container.log());
}

#[test]
fn proxyless_application_gets_its_bootstrap_and_hears_what_is_missing() {
    let mut container = Container::new("exit 9", &[]);
    container.set("DISABLE_ENVOY", "true");
    container.set("GRPC_XDS_BOOTSTRAP", "./grpc/bootstrap.json");
    container.set("OUTPUT_CERTS", "./certs");
    container.start();
    container.wait("the reason", || {
        let answer = ask(container.status(), "GET", "/healthz/ready", "");
        answer.is_some_and(|(head, body)| {
            head.contains(" 503 ")
                && String::from_utf8_lossy(&body).contains("cert-chain.pem is not there yet")
        })
    });
    let path = container.path().join("grpc/bootstrap.json");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let bootstrap: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let server = bootstrap["xds_servers"][0]["server_uri"].as_str().unwrap();
    let socket = Path::new(server.strip_prefix("unix://").unwrap());
    assert!(socket.exists(), "{server}");
    assert_eq!(bootstrap["node"]["metadata"]["GENERATOR"], "grpc");
    for name in ["cert-chain.pem", "key.pem", "root-cert.pem"] {
        container.write(&format!("certs/{name}"), "");
    }
    container.wait("readiness", || code(&container, "GET", "/healthz/ready") == 200);
    container.signal("TERM");
    container.end().says(0, &["there is no Envoy to run"]);
}
