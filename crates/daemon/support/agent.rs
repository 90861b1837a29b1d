//! What an agent does for the proxy beside it, as far as these tests need it: it serves the workload's certificate and the
//! roots of the mesh (SDS) on a Unix socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::{DataSource, Node, data_source::Specifier};
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::secret::Type;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate,
};
use canopus_testkit::Authority;
use canopus_xds::server::{self, Options};
use canopus_xds::{ControlPlane, Interest, Peer, Refusal, Resource, ResourceSet};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;

/// The agent of one proxy.
pub(crate) struct Agent {
    socket: PathBuf,
    server: JoinHandle<()>,
}

impl Agent {
    /// Serves a certificate for `spiffe` on a socket in `directory`.
    pub(crate) fn start(directory: &Path, name: &str, authority: &Authority, spiffe: &str) -> Result<Self> {
        let socket = directory.join(format!("{name}.sds"));
        let pair = authority.workload(&[spiffe])?;
        let certificate = Type::TlsCertificate(TlsCertificate {
            certificate_chain: Some(inline(pair.certificate)),
            private_key: Some(inline(pair.key)),
            ..Default::default()
        });
        let roots = Type::ValidationContext(CertificateValidationContext {
            trusted_ca: Some(inline(authority.root())),
            ..Default::default()
        });
        let secrets = [("default", certificate), ("ROOTCA", roots)].map(|(name, secret)| {
            let secret = Secret { name: name.into(), r#type: Some(secret) };
            Resource::new(name, secret.encode_to_vec())
        });
        let served = Arc::new(Served { secrets: secrets.into_iter().collect() });
        let incoming = UnixListenerStream::new(UnixListener::bind(&socket)?);
        let server = tokio::spawn(async move {
            // Serving ends with the task; there is no other way out to report.
            let _ = server::serve(incoming, served, Options::default(), std::future::pending()).await;
        });
        Ok(Self { socket, server })
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Served {
    secrets: ResourceSet,
}

impl ControlPlane for Served {
    type Client = ();

    async fn connect(&self, _: &Peer, _: Node) -> Result<Arc<()>, Refusal> {
        Ok(Arc::new(()))
    }

    fn resources(&self, (): &(), _: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        Ok(self.secrets.iter().filter(|secret| interest.covers(&secret.name)).cloned().collect())
    }
}

fn inline(text: String) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineString(text)), ..Default::default() }
}
