//! Certificates of gateways: from Secrets, for those who have proved who they are.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_testkit::{Authority, Certified, Echo, Envoy, eventually, free_port};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::local_mesh::LocalMesh;
use crate::local_mesh::bootstrap::Bootstrap;
use crate::sidecars::PATIENCE;

const HOST: &str = "shop.example.com";

fn documents(gateway: u16, upstream: u16, certified: &Certified) -> String {
    let encoded = |pem: &str| BASE64_STANDARD.encode(pem);
    format!(
        "
apiVersion: v1
kind: Secret
metadata: {{name: shop-certificate, namespace: demo}}
type: kubernetes.io/tls
data:
  tls.crt: {}
  tls.key: {}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: public, namespace: demo}}
spec:
  selector: {{istio: ingressgateway}}
  servers:
  - port: {{number: {gateway}, name: https, protocol: HTTPS}}
    hosts: [{HOST}]
    tls: {{mode: SIMPLE, credentialName: shop-certificate}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: shop, namespace: demo}}
spec:
  hosts: [shop.internal]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports:
  - {{number: 80, name: http, protocol: HTTP, targetPort: {upstream}}}
  endpoints:
  - address: 127.0.0.1
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: shop, namespace: demo}}
spec:
  hosts: [{HOST}]
  gateways: [public]
  http:
  - route:
    - destination: {{host: shop.internal}}
",
        encoded(&certified.certificate),
        encoded(&certified.key)
    )
}

/// The certificate that a gateway shows, and its answer to a request.
async fn visit(gateway: SocketAddr, root: &str) -> Result<(CertificateDer<'static>, String)> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(gateway).await?;
    let mut stream =
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(HOST)?, stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).context("no certificate")?;
    let shown = shown.clone().into_owned();
    let request = format!("GET /items HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // Not every server says goodbye.
    let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await?;
    Ok((shown, String::from_utf8_lossy(&answer).into_owned()))
}

fn der(certified: &Certified) -> Result<CertificateDer<'static>> {
    Ok(CertificateDer::from_pem_slice(certified.certificate.as_bytes())?)
}

/// A gateway whose certificate is in a Secret.
struct Edge {
    mesh: LocalMesh,
    envoy: Envoy,
    upstream: Echo,
    address: SocketAddr,
}

impl Edge {
    async fn start(certified: &Certified) -> Result<Self> {
        let mesh_authority = Authority::new()?;
        let upstream = Echo::start("shop").await?;
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let secure = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let directory = tempfile::Builder::new().prefix("canopus-mesh-").tempdir()?;
        let files = directory.path().to_owned();
        let server = mesh_authority.server("istiod.istio-system.svc")?;
        let client = mesh_authority.workload(&["spiffe://cluster.local/ns/demo/sa/gateway"])?;
        for (name, pem) in [
            ("root.crt", &mesh_authority.root()),
            ("server.crt", &server.certificate),
            ("server.key", &server.key),
            ("gateway.crt", &client.certificate),
            ("gateway.key", &client.key),
        ] {
            fs::write(files.join(name), pem)?;
        }
        fs::create_dir(files.join("objects"))?;
        let written = documents(address.port(), upstream.address().port(), certified);
        fs::write(files.join("objects/shop.yaml"), written)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
        command.arg("discovery").arg("--configDir").arg(files.join("objects"));
        command.args(["--registries=Mock", "--snapshot="]).arg(format!("--secureGRPCAddr={secure}"));
        for (flag, file) in
            [("caCertFile", "root.crt"), ("tlsCertFile", "server.crt"), ("tlsKeyFile", "server.key")]
        {
            command.arg(format!("--{flag}={}", files.join(file).display()));
        }
        let mesh = LocalMesh::launch(command, directory).await?;
        // The address differs from the upstream's: the mesh finds a proxy's workload by its address.
        let bootstrap = Bootstrap {
            address: "127.0.0.5",
            metadata: "SERVICE_ACCOUNT: gateway, CLUSTER_ID: Kubernetes, LABELS: {istio: ingressgateway}",
            xds: secure,
            certificates: Some(&files),
            ..Bootstrap::default()
        };
        let envoy = Envoy::start(&bootstrap.yaml()).await;
        let envoy = envoy.with_context(|| format!("the log of canopusd:\n{}", mesh.log()))?;
        Ok(Self { mesh, envoy, upstream, address })
    }

    /// Puts another certificate into the Secret.
    fn replace(&self, certified: &Certified) -> Result<()> {
        let written = documents(self.address.port(), self.upstream.address().port(), certified);
        self.mesh.write("shop.yaml", &written)
    }

    /// Waits until the gateway shows this certificate.
    async fn shows(&self, expected: &Certified, root: &str) -> Result<()> {
        let expected = der(expected)?;
        let shown = eventually("the certificate", PATIENCE, async || {
            let (shown, answer) = visit(self.address, root).await?;
            ensure!(shown == expected, "another certificate is shown");
            ensure!(answer.starts_with("HTTP/1.1 200") && answer.contains("shop"), "{answer}");
            Ok(())
        });
        shown.await.with_context(|| format!("canopusd:\n{}\nenvoy:\n{}", self.mesh.log(), self.envoy.log()))
    }
}

#[tokio::test]
async fn gateway_serves_with_the_certificate_of_a_secret_and_follows_it() -> Result<()> {
    let web = Authority::new()?;
    let (first, second) = (web.server(HOST)?, web.server(HOST)?);
    let edge = Edge::start(&first).await?;
    edge.shows(&first, &web.root()).await?;
    edge.replace(&second)?;
    edge.shows(&second, &web.root()).await?;
    assert!(!edge.mesh.log().contains("PRIVATE KEY"), "keys are not logged");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_the_certificate_of_a_gateway_rotates() -> Result<()> {
    let web = Authority::new()?;
    let first = web.server(HOST)?;
    let edge = Edge::start(&first).await?;
    edge.shows(&first, &web.root()).await?;

    let (stop, stopped) = tokio::sync::watch::channel(false);
    let (address, root) = (edge.address, web.root());
    let visitors: Vec<_> = (0..2)
        .map(|_| {
            let (stopped, root) = (stopped.clone(), root.clone());
            tokio::spawn(async move {
                let mut visits = 0;
                while !*stopped.borrow() {
                    let (_, answer) = visit(address, &root).await.context("a visit failed")?;
                    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                    visits += 1;
                }
                Ok(visits)
            })
        })
        .collect();
    for _ in 0..5 {
        let next = web.server(HOST)?;
        edge.replace(&next)?;
        edge.shows(&next, &root).await?;
    }
    stop.send_replace(true);
    for visitor in visitors {
        let visits: u32 = visitor.await??;
        ensure!(visits > 5, "{visits} visits say little");
    }
    Ok(())
}
