//! What a control plane must prove, and what is proved to it.

use std::sync::Arc;

use anyhow::Context as _;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

/// A certificate to present, and the roots it comes with, in PEM.
pub(super) struct Presented {
    pub(super) chain: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) root: Vec<u8>,
}

/// How a client shakes hands. Roots are those that come with the certificate, `root`, and those of the operating system.
pub(super) fn config(
    presented: Option<&Presented>,
    root: Option<&str>,
    takes_any: bool,
) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = if takes_any {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
    } else {
        builder.with_root_certificates(roots(presented, root)?)
    };
    let mut config = match presented {
        Some(Presented { chain, key, .. }) => {
            let chain: Vec<CertificateDer<'static>> =
                CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().context("cert-chain.pem")?;
            let key = PrivateKeyDer::from_pem_slice(key).context("key.pem")?;
            builder.with_client_auth_cert(chain, key).context("--cert-dir")?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn roots(presented: Option<&Presented>, root: Option<&str>) -> anyhow::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    let given = presented.map(|presented| presented.root.as_slice()).into_iter();
    for pem in given.chain(root.map(str::as_bytes)) {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            store.add(certificate.context("a root certificate is no PEM")?)?;
        }
    }
    // What the system has and nobody can read is no reason to stop.
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Ok(store)
}

/// Takes any certificate whose key the server has.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
