//! Wasm modules that the agent pulls from an image registry with TLS and passwords, and that Envoy runs.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use canopus_parts::Part;
use canopus_testkit::{Authority, Process, eventually, http, wasm_module};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::network::{NODE, Namespace};
use crate::world::{HOST, SERVICE, World};

const PATIENCE: Duration = Duration::from_secs(40);
const PORT: u16 = 5000;
const REPOSITORY: &str = "shop/module";
const PASSWORD: &str = "puller:open sesame";
/// The line of a password file for [`PASSWORD`], by bcrypt.
const USERS: &str = "puller:$2a$04$tjDQBmN9tIqe.Ze6iA954.8vzJU4FxKuX.AVI/icJVhFHdMzC.3S.\n";

const IMAGE_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const ARTIFACT_LAYER: &str = "application/vnd.module.wasm.content.layer.v1+wasm";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// Files of a registry: who may pull, its certificate, and the images.
struct Files {
    directory: TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-registry-").tempdir()?;
        let files = Self { directory, authority: Authority::new()? };
        let server = files.authority.server(NODE)?;
        let config = json!({
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": files.path("images")}},
            "http": {
                "addr": format!("{NODE}:{PORT}"),
                "tls": {"certificate": files.path("cert.pem"), "key": files.path("key.pem")},
            },
            "auth": {"htpasswd": {"realm": "modules", "path": files.path("users")}},
        })
        .to_string();
        for (name, text) in [
            ("users", USERS),
            ("cert.pem", &server.certificate),
            ("key.pem", &server.key),
            ("root.pem", &files.authority.root()),
            ("config.yaml", &config),
        ] {
            fs::write(files.path(name), text)?;
        }
        Ok(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// A registry on the node.
struct Registry<'a> {
    files: &'a Files,
    node: Namespace,
    _process: Process,
}

impl<'a> Registry<'a> {
    fn start(files: &'a Files, node: &Namespace) -> Result<Self> {
        let program = canopus_parts::find(Part::Registry)?.join("registry");
        let mut command = node.command(program.to_str().context("path")?);
        command.arg("serve").arg(files.path("config.yaml")).env("OTEL_TRACES_EXPORTER", "none");
        let mut process = Process::spawn("registry", &mut command, files.directory.path())?;
        node.run(async || {
            let connect = async || Ok(TcpStream::connect((NODE, PORT)).await?);
            process.eventually("the registry", PATIENCE, connect).await.map(drop)
        })?;
        Ok(Self { files, node: node.clone(), _process: process })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: &[u8],
        expected: StatusCode,
    ) -> Result<Response<Bytes>> {
        let config = self.files.authority.client(None, &["http/1.1"])?;
        let name = ServerName::try_from(NODE)?;
        let stream = TcpStream::connect((NODE, PORT)).await?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", format!("{NODE}:{PORT}"))
            .header("authorization", format!("Basic {}", BASE64_STANDARD.encode(PASSWORD)))
            .header("content-type", kind)
            .body(Full::new(Bytes::copy_from_slice(body)))?;
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        ensure!(head.status == expected, "{path}: {}: {}", head.status, String::from_utf8_lossy(&body));
        Ok(Response::from_parts(head, body))
    }

    /// Stores a blob, and describes it as manifests do.
    async fn blob(&self, kind: &str, bytes: &[u8]) -> Result<serde_json::Value> {
        let uploads = format!("/v2/{REPOSITORY}/blobs/uploads/");
        let begun = self.send(Method::POST, &uploads, "", &[], StatusCode::ACCEPTED).await?;
        let location = begun.headers().get("location").context("no location")?.to_str()?;
        let path = location.split_once(&format!("{NODE}:{PORT}")).map_or(location, |(_, path)| path);
        let digest = sha256(bytes);
        let path = format!("{path}&digest={digest}");
        self.send(Method::PUT, &path, "application/octet-stream", bytes, StatusCode::CREATED).await?;
        Ok(json!({"mediaType": kind, "digest": digest, "size": bytes.len()}))
    }

    /// Stores an image of one layer, and gives its digest.
    fn push(&self, tag: &str, kind: &str, layer: &[u8]) -> Result<String> {
        self.node.run(async || {
            let manifest = json!({
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": self.blob(CONFIG, b"{}").await?,
                "layers": [self.blob(kind, layer).await?],
            })
            .to_string();
            let path = format!("/v2/{REPOSITORY}/manifests/{tag}");
            self.send(Method::PUT, &path, MANIFEST, manifest.as_bytes(), StatusCode::CREATED).await?;
            Ok(sha256(manifest.as_bytes()))
        })
    }
}

fn sha256(bytes: &[u8]) -> String {
    let hash = digest(&SHA256, bytes);
    let hexadecimal: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hexadecimal}")
}

/// The layer of a container image with a module in it.
fn layer(module: &[u8]) -> Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(module.len().try_into()?);
    header.set_mode(0o644);
    builder.append_data(&mut header, "plugin.wasm", module)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&builder.into_inner()?)?;
    Ok(encoder.finish()?)
}

/// A plug-in of the server with the module of this image.
fn plugin(image: &str, settings: &str) -> String {
    format!(
        "
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {{name: module, namespace: shop}}
spec:
  selector: {{matchLabels: {{app: reviews}}}}
  url: oci://{NODE}:{PORT}/{REPOSITORY}{image}
  phase: STATS
  {settings}
"
    )
}

/// The Secret with the password, as `kubectl create secret docker-registry` makes it.
fn pull_secret() -> String {
    let entry = json!({"auth": BASE64_STANDARD.encode(PASSWORD)});
    let config = json!({"auths": {format!("{NODE}:{PORT}"): entry}}).to_string();
    format!(
        "
apiVersion: v1
kind: Secret
metadata: {{name: registry, namespace: shop}}
type: kubernetes.io/dockerconfigjson
data:
  .dockerconfigjson: {}
",
        BASE64_STANDARD.encode(config)
    )
}

/// Waits until the server answers with this status and this header of a module.
fn wait_answer(world: &World, status: u16, module: Option<&str>) -> Result<()> {
    let address: SocketAddr = SERVICE.parse()?;
    let answered = world.client.namespace.run(async || {
        eventually("an answer of the module", PATIENCE, async || {
            let answer = http::request(Method::GET, address, "/").host(HOST).send().await?;
            let found = answer.headers.get("x-module").and_then(|value| value.to_str().ok());
            ensure!(answer.status == status && found == module, "{} {found:?}", answer.status);
            Ok(())
        })
        .await
    });
    answered.with_context(|| format!("server:\n{}\ncanopusd:\n{}", world.server.log(), world.plane.log()))
}

pub(crate) fn from_registry() -> Result<()> {
    let files = Files::new()?;
    let roots = files.path("root.pem");
    let world = World::start(&pull_secret(), &[], &[("SSL_CERT_FILE", roots.to_str().context("path")?)])?;
    let registry = Registry::start(&files, world.network.node())?;
    let artifact = wasm_module("x-module", "artifact");
    registry.push("v1", IMAGE_LAYER, &layer(&wasm_module("x-module", "image"))?)?;
    let pinned = registry.push("v2", ARTIFACT_LAYER, &artifact)?;
    registry.push("v3", ARTIFACT_LAYER, &wasm_module("x-module", "third"))?;
    let secret = "imagePullSecret: registry";
    let put = |image: &str, settings: &str| world.plane.write("plugin.yaml", &plugin(image, settings));

    put(":v1", secret)?;
    wait_answer(&world, 200, Some("image"))?;
    put(&format!("@{pinned}"), secret)?;
    wait_answer(&world, 200, Some("artifact"))?;

    // Another image than the one that was reviewed is not run; what becomes of requests is the plug-in's choice.
    let wrong = format!("{secret}\n  sha256: \"{}\"", "0".repeat(64));
    put(":v3", &format!("{wrong}\n  failStrategy: FAIL_OPEN"))?;
    wait_answer(&world, 200, None)?;
    ensure!(world.server.log().contains("does not match"), "{}", world.server.log());
    put(":v3", &format!("{wrong}\n  failStrategy: FAIL_CLOSE"))?;
    wait_answer(&world, 403, None)?;

    // Nobody pulls without the password.
    put(":v3", "priority: 1")?;
    let deadline = std::time::Instant::now() + PATIENCE;
    while !world.server.log().contains("set imagePullSecret of the WasmPlugin") {
        ensure!(std::time::Instant::now() < deadline, "{}", world.server.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    wait_answer(&world, 403, None)?;
    put(":v3", secret)?;
    wait_answer(&world, 200, Some("third"))?;
    let metrics = world.server.status("/metrics")?.ok()?;
    ensure!(metrics.contains("istio_agent_wasm_cache_entries 3"), "{metrics}");
    Ok(())
}
