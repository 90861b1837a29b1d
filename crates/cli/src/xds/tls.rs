//! What a control plane must prove, and what is proved to it.

use anyhow::Context as _;
use canopus_http::tls::{self, Servers};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

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
    let servers = if takes_any { Servers::Any } else { Servers::Trusted(roots(presented, root)?) };
    let builder = tls::client(servers)?;
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
