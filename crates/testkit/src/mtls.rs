//! A certificate authority for tests, and gRPC channels that use it.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use anyhow::{Context as _, Result};
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

/// A certificate and its key, both in PEM.
#[derive(Clone, Debug)]
pub struct Certified {
    /// The certificate.
    pub certificate: String,
    /// Private key in PEM.
    pub key: String,
}

/// Signs whatever a test needs.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority that nobody knows yet.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// The root certificate in PEM.
    pub fn root(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for a server of this name.
    pub fn server(&self, name: &str) -> Result<Certified> {
        self.sign(CertificateParams::new([name.to_owned()])?)
    }

    /// A certificate for a workload, which names these URIs.
    pub fn workload(&self, uris: &[&str]) -> Result<Certified> {
        let mut params = CertificateParams::default();
        for uri in uris {
            params.subject_alt_names.push(SanType::URI((*uri).try_into()?));
        }
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Certified> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Certified { certificate, key: key.serialize_pem() })
    }

    /// How a client shakes hands that trusts this authority and says it speaks these protocols.
    pub fn client(&self, as_workload: Option<&Certified>, protocols: &[&str]) -> Result<ClientConfig> {
        client(&self.root(), as_workload, protocols)
    }

    /// A gRPC channel to a server of this name, with a workload's certificate if there is one.
    pub async fn channel(
        &self,
        address: SocketAddr,
        name: &str,
        as_workload: Option<&Certified>,
    ) -> Result<Channel> {
        channel(&self.root(), address, name, as_workload).await
    }
}

/// How a client shakes hands that trusts these roots and says it speaks these protocols.
fn client(roots: &str, as_workload: Option<&Certified>, protocols: &[&str]) -> Result<ClientConfig> {
    let mut store = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(roots.as_bytes()) {
        store.add(root?)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store);
    let mut config = match as_workload {
        Some(Certified { certificate, key }) => builder.with_client_auth_cert(
            CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>()?,
            PrivateKeyDer::from_pem_slice(key.as_bytes())?,
        )?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Ok(config)
}

/// A gRPC channel to a server of this name that some of these roots vouch for, with a workload's certificate if there is one.
pub async fn channel(
    roots: &str,
    address: SocketAddr,
    name: &str,
    as_workload: Option<&Certified>,
) -> Result<Channel> {
    let config = Arc::new(client(roots, as_workload, &["h2"])?);
    let connector = Connector { address, name: ServerName::try_from(name.to_owned())?, config };
    let endpoint = Endpoint::from_shared(format!("http://{name}"))?;
    endpoint.connect_with_connector(connector).await.with_context(|| format!("connecting to {address}"))
}

/// Connects to one address with TLS, whatever it is asked for.
#[derive(Clone)]
struct Connector {
    address: SocketAddr,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl<U> Service<U> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: U) -> Self::Future {
        let Self { address, name, config } = self.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            Ok(TokioIo::new(TlsConnector::from(config).connect(name, stream).await?))
        })
    }
}
