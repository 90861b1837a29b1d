//! Another certificate service signs: the control plane decides who may have a certificate, and believes no answer unseen.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_daemon::serve::tls::{self, Acceptor, Material, Policy};
use canopus_identity::authority::server_certificate;
use canopus_identity::bundle::{Bundle, Parts};
use canopus_identity::issue::Leaf;
use canopus_identity::key::KeyKind;
use canopus_identity::pem;
use canopus_identity::request::Request as Csr;
use canopus_identity::self_signed::Profile;
use canopus_proto::google::protobuf::value::Kind;
use canopus_proto::istio::v1::auth::istio_certificate_service_server::{
    IstioCertificateService, IstioCertificateServiceServer,
};
use canopus_proto::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use canopus_testkit::{Certified, channel};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::UnixTime;
use tokio::net::TcpListener;
use tokio_stream::StreamExt as _;
use tonic::codegen::async_trait;
use tonic::{Code, Request, Response, Status};

use crate::plane::{CART, NAME, Plane, certify};

const TOKEN: &str = "token-of-the-control-plane";

/// A certificate service that believes the control plane, whoever it asks for.
#[derive(Clone)]
struct Signer {
    bundle: Arc<Bundle>,
    asked: Arc<AtomicUsize>,
    /// Signs for this name instead of the one asked for.
    lies: Option<&'static str>,
}

impl Signer {
    fn new() -> Result<Self> {
        let now = UnixTime::now();
        let profile =
            Profile { key: KeyKind::P256, organization: "elsewhere".to_owned(), ..Profile::default() };
        let (certificate, key) = profile.create(now)?;
        let certificate = certificate.to_pem()?.into_bytes();
        let key = key.to_pem()?.as_bytes().to_vec().into();
        let parts = Parts { roots: certificate.clone(), certificate, key, ..Parts::default() };
        Ok(Self { bundle: Arc::new(Bundle::new(&parts, now)?), asked: Arc::default(), lies: None })
    }

    /// Answers on a port of its own with TLS.
    async fn serve(&self) -> Result<SocketAddr> {
        let names = ["localhost".to_owned()];
        let own = server_certificate(&self.bundle, &names, Duration::from_secs(3600), UnixTime::now())?;
        let material = Material::from_pem(own.chain.as_bytes(), own.key.as_bytes(), b"")?;
        let acceptor = Acceptor::fixed(tls::for_webhooks(&material, &Policy::default())?);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let service = IstioCertificateServiceServer::new(self.clone());
        tokio::spawn(async move {
            let mut connections = pin!(tls::incoming(listener, acceptor));
            while let Some(Ok(connection)) = connections.next().await {
                let service = TowerToHyperService::new(service.clone());
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(connection), service).await;
                });
            }
        });
        Ok(address)
    }
}

#[async_trait]
impl IstioCertificateService for Signer {
    async fn create_certificate(
        &self,
        request: Request<IstioCertificateRequest>,
    ) -> Result<Response<IstioCertificateResponse>, Status> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let token = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        if token != Some(&format!("Bearer {TOKEN}")) {
            return Err(Status::unauthenticated("who are you"));
        }
        let request = request.into_inner();
        let asked =
            request.metadata.as_ref().and_then(|metadata| metadata.fields.get("ImpersonatedIdentity"));
        let Some(Kind::StringValue(name)) = asked.and_then(|value| value.kind.clone()) else {
            return Err(Status::invalid_argument("for whom"));
        };
        let failed = |error: &dyn std::fmt::Display| Status::internal(error.to_string());
        let csr = Csr::from_pem(&request.csr).map_err(|error| failed(&error))?;
        let now = Duration::from_secs(UnixTime::now().as_secs());
        let lifetime =
            Duration::from_secs(request.validity_duration.try_into().map_err(|error| failed(&error))?);
        let der = self.bundle.signer().issue(&Leaf {
            public_key: csr.public_key(),
            names: &[self.lies.map_or(name, str::to_owned)],
            has_common_name: false,
            not_before: UnixTime::since_unix_epoch(now - Duration::from_secs(60)),
            not_after: UnixTime::since_unix_epoch(now + lifetime),
        });
        let der = der.map_err(|error| failed(&error))?;
        let leaf = pem::encode("CERTIFICATE", &der).map_err(|error| failed(&error))?;
        let cert_chain = vec![leaf, self.bundle.roots_pem().to_owned()];
        Ok(Response::new(IstioCertificateResponse { cert_chain }))
    }
}

fn set_up(
    directory: &Path,
    command: &mut Command,
    address: SocketAddr,
    roots: &str,
    token: &str,
) -> Result<()> {
    fs::create_dir_all(directory.join("etc/external-ca-cert"))?;
    fs::write(directory.join("etc/external-ca-cert/root-cert.pem"), roots)?;
    fs::write(directory.join("token"), token)?;
    command.env("EXTERNAL_CA", "ISTIOD_RA_ISTIO_API");
    command.env("CANOPUS_EXTERNAL_CA_ADDRESS", format!("localhost:{}", address.port()));
    command.env("CANOPUS_EXTERNAL_CA_TOKEN_FILE", directory.join("token"));
    Ok(())
}

async fn ask(plane: &Plane, name: &str, own: Option<&Certified>) -> Result<Certified, Status> {
    let failed = |error: anyhow::Error| Status::unknown(format!("{error:#}"));
    let token = plane.token(false).await.map_err(failed)?;
    let roots = plane.roots().map_err(failed)?;
    let channel = channel(&roots, plane.secure, NAME, own).await.map_err(failed)?;
    certify(channel, name, own.is_none().then_some(&*token)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_service_elsewhere_signs_what_the_caller_may_have() -> Result<()> {
    let signer = Signer::new()?;
    let address = signer.serve().await?;
    let roots = signer.bundle.roots_pem().to_owned();
    let plane =
        Plane::start_with(|directory, command| set_up(directory, command, address, &roots, TOKEN)).await?;
    let own = ask(&plane, CART, None).await.with_context(|| plane.mesh.log())?;
    ensure!(own.certificate.trim_end().ends_with(roots.trim_end()), "the chain has another root");

    // It counts on the TLS port, where it renews itself.
    ask(&plane, CART, Some(&own)).await.with_context(|| plane.mesh.log())?;
    assert_eq!(signer.asked.load(Ordering::Relaxed), 2);

    // Nothing is handed on for a name that is not the caller's.
    let refused = ask(&plane, "spiffe://cluster.local/ns/istio-system/sa/istiod", None).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert_eq!(signer.asked.load(Ordering::Relaxed), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_a_certificate_service_are_not_taken_on_trust() -> Result<()> {
    let honest = Signer::new()?;
    let liar = Signer { lies: Some("spiffe://cluster.local/ns/istio-system/sa/istiod"), ..honest.clone() };
    let (honest_address, liar_address) = (honest.serve().await?, liar.serve().await?);
    let roots = honest.bundle.roots_pem().to_owned();
    let others = Signer::new()?.bundle.roots_pem().to_owned();
    let nobody: SocketAddr = "127.0.0.1:9".parse()?;
    for (address, roots, token, reason) in [
        (liar_address, &roots, TOKEN, "other names than the caller"),
        (honest_address, &roots, "stolen", "who are you"),
        (honest_address, &others, TOKEN, "invalid peer certificate"),
        (nobody, &roots, TOKEN, "localhost:9: "),
    ] {
        let plane =
            Plane::start_with(|directory, command| set_up(directory, command, address, roots, token)).await?;
        let refused = ask(&plane, CART, None).await.unwrap_err();
        assert_eq!(refused.code(), Code::Internal, "{refused}");
        ensure!(refused.message().contains(reason), "{reason}: {refused}");
        ensure!(
            !refused.message().contains(token) && !plane.mesh.log().contains(token),
            "the token is shown"
        );
    }
    Ok(())
}
