//! Secrets for Envoy (SDS) on a Unix socket: the workload's certificate, the roots with the mesh's revocation lists, and files.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use canopus_proto::envoy::config::core::v3::{DataSource, Node, data_source::Specifier};
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::secret::Type;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate,
};
use canopus_xds::server::{self, Options};
use canopus_xds::types::{self, Types};
use canopus_xds::{ControlPlane, Interest, Mailboxes, Peer, Refusal, Resource, ResourceSet};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tracing::info;

use crate::certificates::Secrets;
use crate::certificates::files::FileSecret;

/// The name of the workload's certificate.
pub const WORKLOAD: &str = "default";
/// The name of the roots of the mesh.
pub const ROOTS: &str = "ROOTCA";
/// Most files in one subscription.
const MAX_FILES: usize = 256;

/// Binds a socket that only this user can connect to. An old socket that nobody serves is replaced.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Whether another process, such as a SPIFFE agent, serves the socket already.
pub async fn is_served(path: &Path) -> bool {
    UnixStream::connect(path).await.is_ok()
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The workload's certificate, and files.
    Workload,
    /// Files alone: somebody else has the certificate.
    Files,
}

/// Serves secrets for as long as it is polled.
pub async fn serve(listener: UnixListener, secrets: Arc<Secrets>, content: Content) {
    let mut revisions = secrets.revisions();
    let plane = Arc::new(SecretPlane { secrets, content, mailboxes: Mailboxes::default() });
    let told = Arc::clone(&plane);
    let telling = async move {
        while revisions.changed().await.is_ok() {
            let revision = *revisions.borrow_and_update();
            told.mailboxes.revise(revision, Types::only(types::SECRET));
        }
    };
    let serving =
        server::serve(UnixListenerStream::new(listener), plane, Options::default(), std::future::pending());
    info!(target: "sds", "secrets are served");
    tokio::join!(telling, serving);
}

struct SecretPlane {
    secrets: Arc<Secrets>,
    content: Content,
    mailboxes: Mailboxes,
}

impl ControlPlane for SecretPlane {
    type Client = ();

    /// Waits for the first certificate: an empty answer would make Envoy complain, a late one does not.
    async fn connect(&self, peer: &Peer, _: Node) -> Result<Arc<()>, Refusal> {
        let mut revisions = self.secrets.revisions();
        while self.content == Content::Workload && self.secrets.identity().is_none() {
            if revisions.changed().await.is_err() {
                break;
            }
        }
        self.mailboxes.add(&peer.mailbox);
        Ok(Arc::new(()))
    }

    fn resources(&self, (): &(), _: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        let names = interest.names().into_iter().flat_map(|names| names.iter());
        Ok(names.take(MAX_FILES).filter_map(|name| self.secret(name)).collect())
    }
}

impl SecretPlane {
    fn secret(&self, name: &str) -> Option<Resource> {
        let secret = match name {
            WORKLOAD => {
                let identity = self.secrets.identity()?;
                certificate(identity.chain, &identity.key)
            }
            ROOTS => roots(self.secrets.roots()?, self.secrets.revocations()),
            _ => match self.secrets.file(name)? {
                FileSecret::Certificate { chain, key } => certificate(chain, &key),
                // The lists are those of the mesh. Envoy, which wants one of every authority or of none, would refuse all others.
                // Parity: pilot-agent adds them here too, and no server outside of the mesh can be reached any more.
                FileSecret::Root(text) => roots(text, None),
            },
        };
        Some(Resource::encode(name, &Secret { name: name.to_owned(), r#type: Some(secret) }))
    }
}

fn certificate(chain: String, key: &str) -> Type {
    Type::TlsCertificate(TlsCertificate {
        certificate_chain: Some(inline(chain)),
        private_key: Some(inline(key.to_owned())),
        ..Default::default()
    })
}

fn roots(text: String, revocations: Option<String>) -> Type {
    Type::ValidationContext(CertificateValidationContext {
        trusted_ca: Some(inline(text)),
        crl: revocations.map(inline),
        ..Default::default()
    })
}

fn inline(text: String) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(text.into_bytes().into())), ..Default::default() }
}
