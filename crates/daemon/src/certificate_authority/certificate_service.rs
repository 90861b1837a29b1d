//! Signing by another certificate service (`EXTERNAL_CA=ISTIOD_RA_ISTIO_API`).
//!
//! This process decides who may have a certificate and hands the request on with the API that agents use. The service gets the
//! request, which asks for the caller's own identity alone, that identity once more as `ImpersonatedIdentity`, the signer asked
//! for, and the control plane's token. Its TLS certificate and what it signs must lead to the mounted roots of signers.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use canopus_engine::Engine;
use canopus_identity::authority::{Lifetimes, Order, SignError};
use canopus_identity::external::{ExternalAuthority, Signature, check_chain, check_order};
use canopus_identity::pem::LARGEST_FILE;
use canopus_proto::google::protobuf::Struct;
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use canopus_runtime::flags::{CANOPUS_EXTERNAL_CA_ADDRESS, CANOPUS_EXTERNAL_CA_TOKEN_FILE, Flags};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;
use tonic::metadata::{Ascii, MetadataValue};

use crate::grpc_client::Server;
use crate::trust_anchors::signers;

/// How long a connection may take, and how long an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many certificates an answer may have.
const LONGEST_CHAIN: usize = 32;

/// Hands requests on to a certificate service.
pub(super) struct RemoteCertificateService {
    /// Where it is, as `host:port`.
    address: String,
    name: ServerName<'static>,
    token: Option<PathBuf>,
    engine: Engine,
    lifetimes: Lifetimes,
}

impl RemoteCertificateService {
    /// The service that flags name.
    pub(super) fn new(engine: Engine, flags: &Flags) -> anyhow::Result<Self> {
        let address = flags.get(CANOPUS_EXTERNAL_CA_ADDRESS).to_owned();
        let host = address.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        let context = || {
            format!(
                "CANOPUS_EXTERNAL_CA_ADDRESS: {address:?} is not host:port; EXTERNAL_CA=ISTIOD_RA_ISTIO_API needs it"
            )
        };
        let host = host.map(|(host, _)| host.trim_matches(['[', ']']).to_owned()).with_context(context)?;
        let name = ServerName::try_from(host).ok().with_context(context)?;
        let token = flags.get(CANOPUS_EXTERNAL_CA_TOKEN_FILE);
        let token = (!token.is_empty()).then(|| PathBuf::from(token));
        Ok(Self { address, name, token, engine, lifetimes: super::lifetimes(flags) })
    }

    async fn answer(&self, order: &Order, now: UnixTime) -> Result<Vec<String>, SignError> {
        let request = check_order(order, self.lifetimes)?;
        let roots = signers::mounted(&self.engine).concat();
        let failed = |reason: String| SignError::External(format!("{}: {reason}", self.address));
        let chain = match timeout(PATIENCE, self.ask(order, &roots)).await {
            Ok(answer) => answer.map_err(failed)?,
            Err(_) => return Err(failed(format!("no answer in {} seconds", PATIENCE.as_secs()))),
        };
        check_chain(&request, &order.identities, chain.as_bytes(), roots.as_bytes(), now)
    }

    /// Asks the service, on a connection of its own: its roots and the token may be others each time.
    async fn ask(&self, order: &Order, roots: &str) -> Result<String, String> {
        let tls = Some((self.name.clone(), Arc::new(client(roots)?)));
        let channel = Server { address: self.address.clone(), tls }.connect().await?;
        let mut request = tonic::Request::new(self.request(order));
        if let Some(token) = self.token()? {
            request.metadata_mut().insert("authorization", token);
        }
        let mut client = IstioCertificateServiceClient::new(channel).max_decoding_message_size(LARGEST_FILE);
        let answer = client.create_certificate(request).await;
        let refused = |status: tonic::Status| {
            format!(
                "the certificate service refuses: {:?}: {}",
                status.code(),
                status.message().escape_debug()
            )
        };
        let chain = answer.map_err(refused)?.into_inner().cert_chain;
        if chain.len() > LONGEST_CHAIN {
            return Err(format!("the answer has {} certificates, more than {LONGEST_CHAIN}", chain.len()));
        }
        Ok(chain.join("\n"))
    }

    fn request(&self, order: &Order) -> IstioCertificateRequest {
        let mut fields =
            vec![("ImpersonatedIdentity".to_owned(), order.identities.join(",").as_str().into())];
        if !order.signer.is_empty() {
            fields.push(("CertSigner".to_owned(), order.signer.as_str().into()));
        }
        let seconds = match order.seconds {
            asked if asked > 0 => asked,
            _ => i64::try_from(self.lifetimes.default.as_secs()).unwrap_or(i64::MAX),
        };
        IstioCertificateRequest {
            csr: order.request.clone(),
            validity_duration: seconds,
            metadata: Some(Struct { fields: fields.into_iter().collect() }),
        }
    }

    /// The control plane's token, read anew: whoever mounts it renews it.
    fn token(&self) -> Result<Option<MetadataValue<Ascii>>, String> {
        let Some(path) = &self.token else { return Ok(None) };
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        // What is wrong with a token is told without it.
        let value = format!("Bearer {}", text.trim()).parse();
        let mut value: MetadataValue<Ascii> =
            value.map_err(|_| format!("{}: it is not a token", path.display()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

impl ExternalAuthority for RemoteCertificateService {
    fn sign<'a>(&'a self, order: &'a Order, now: UnixTime) -> Signature<'a> {
        Box::pin(self.answer(order, now))
    }
}

/// How the service is verified.
fn client(roots: &str) -> Result<ClientConfig, String> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(CertificateDer::pem_slice_iter(roots.as_bytes()).flatten());
    if store.is_empty() {
        return Err("no roots are mounted at ./etc/external-ca-cert/root-cert.pem to verify the service by"
            .to_owned());
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
