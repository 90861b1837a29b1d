//! A control plane that is an authority, and its clients.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use canopus_identity::token::{self, Grant};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use canopus_testkit::{Certified, channel, free_port};
use canopus_xds::client::AdsClient;
use canopus_xds::session::Protocol;
use canopus_xds::types;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, SanType};
use rustls::pki_types::UnixTime;
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::Channel;

use crate::local_mesh::LocalMesh;

pub(crate) const NAME: &str = "istiod.istio-system.svc";
pub(crate) const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";
const PATIENCE: Duration = Duration::from_secs(30);

/// A running control plane.
pub(crate) struct Plane {
    pub(crate) mesh: LocalMesh,
    /// Where proxies connect with TLS.
    pub(crate) secure: SocketAddr,
    /// Where webhooks are.
    pub(crate) webhooks: SocketAddr,
}

impl Plane {
    /// Starts it on an empty directory.
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(|_, _| Ok(())).await
    }

    /// As [`Plane::start`]; `prepare` may write files into the directory it is started in, and add to its command line.
    pub(crate) async fn start_with(prepare: impl FnOnce(&Path, &mut Command) -> Result<()>) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-identity-").tempdir()?;
        let objects = directory.path().join("objects");
        fs::create_dir(&objects)?;
        let secure = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let webhooks = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
        command.arg("discovery").arg("--configDir").arg(&objects).current_dir(directory.path());
        command.args(["--registries=Mock", "--snapshot="]).arg(format!("--secureGRPCAddr={secure}"));
        command.arg(format!("--httpsAddr={webhooks}"));
        prepare(directory.path(), &mut command)?;
        Ok(Self { mesh: LocalMesh::launch(command, directory).await?, secure, webhooks })
    }

    /// The directory of its authority.
    pub(crate) fn directory(&self) -> PathBuf {
        self.mesh.objects().with_file_name("objects-ca")
    }

    /// The roots of its authority.
    pub(crate) fn roots(&self) -> Result<String> {
        let path = self.directory().join("current/root-cert.pem");
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    /// A join token of `shop/cart`.
    pub(crate) async fn token(&self, single_use: bool) -> Result<String> {
        self.token_of("shop", "cart", single_use).await
    }

    /// A join token of a service account.
    pub(crate) async fn token_of(&self, namespace: &str, account: &str, single_use: bool) -> Result<String> {
        let issuer = token::open_directory(&self.directory(), "istio-ca").await?;
        let grant = Grant {
            namespace: namespace.to_owned(),
            service_account: account.to_owned(),
            lifetime: Duration::from_secs(600),
            single_use,
        };
        Ok(issuer.issue(&grant, UnixTime::now())?)
    }

    /// Asks for a certificate; the chain and the key.
    pub(crate) async fn certify(
        &self,
        token: Option<&str>,
        own: Option<&Certified>,
    ) -> Result<Certified, Status> {
        let failed = |error: anyhow::Error| Status::internal(format!("{error:#}"));
        let roots = self.roots().map_err(failed)?;
        let channel = channel(&roots, self.secure, NAME, own).await.map_err(failed)?;
        // Whatever the request says of names, the caller's own are certified.
        certify(channel, "spiffe://thief.example.com", token).await
    }

    /// A certificate of `shop/cart`.
    pub(crate) async fn cart(&self) -> Result<Certified> {
        let token = self.token(false).await?;
        self.certify(Some(&token), None).await.with_context(|| self.mesh.log())
    }
}

/// Asks for a certificate with a request that names `uri`; the chain and the key.
pub(crate) async fn certify(channel: Channel, uri: &str, token: Option<&str>) -> Result<Certified, Status> {
    let headers = token.map(|token| ("authorization", format!("Bearer {token}")));
    certify_with(channel, uri, headers.as_slice()).await
}

/// As [`certify`], with these headers.
pub(crate) async fn certify_with(
    channel: Channel,
    uri: &str,
    headers: &[(&'static str, String)],
) -> Result<Certified, Status> {
    let key = KeyPair::generate().map_err(|error| Status::internal(error.to_string()))?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names.push(SanType::URI(uri.try_into().expect("it is ASCII")));
    let csr = params.serialize_request(&key).and_then(|csr| csr.pem()).expect("it can be signed");
    let mut request = tonic::Request::new(IstioCertificateRequest { csr, ..Default::default() });
    for (name, value) in headers {
        request.metadata_mut().insert(*name, value.parse().expect("headers are ASCII"));
    }
    let answer = IstioCertificateServiceClient::new(channel).create_certificate(request).await?;
    let chain = answer.into_inner().cert_chain;
    Ok(Certified { certificate: chain.concat(), key: key.serialize_pem() })
}

/// A proxy of `shop/cart` that follows clusters.
pub(crate) fn proxy(channel: Channel) -> AdsClient {
    proxy_as(channel, "sidecar~10.0.0.1~cart-1.shop~shop.svc.cluster.local")
}

/// A proxy of this id that follows clusters.
pub(crate) fn proxy_as(channel: Channel, id: &str) -> AdsClient {
    let id = id.to_owned();
    let mut client = AdsClient::new(channel, Protocol::Delta, Node { id, ..Node::default() });
    client.follower_mut().watch_everything(types::CLUSTER);
    client
}

/// Waits until a proxy has the cluster of a host. It stays on its stream: one that ended is an error.
pub(crate) async fn has_cluster_of(client: &mut AdsClient, host: &str) -> Result<()> {
    let followed = async {
        while !client.follower().held(types::CLUSTER).any(|(name, _)| name.contains(host)) {
            client.step().await?.context("the stream has ended")?;
        }
        Ok(())
    };
    timeout(PATIENCE, followed).await.with_context(|| format!("no cluster of {host}"))?
}

/// A ServiceEntry that makes for one cluster.
pub(crate) fn service(host: &str) -> String {
    let name = host.replace('.', "-");
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{name: {name}, namespace: shop}}, \
         spec: {{hosts: [{host}], resolution: DNS, ports: [{{number: 80, name: http, protocol: HTTP}}]}}}}"
    )
}
