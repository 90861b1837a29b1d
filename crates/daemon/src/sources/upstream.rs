//! Control planes whose configuration is read over xDS: where they are, and what is proved to whom.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::Struct;
use canopus_proto::istio::mesh::v1alpha1::ConfigSource;
use canopus_proto::istio::networking::v1alpha3::ClientTlsSettings;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_runtime::version::BuildInfo;
use canopus_sources::mcp::Connect;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tonic::transport::Channel;

use crate::grpc_client::Server;

/// A control plane that serves configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Upstream {
    /// Where it is, as `host:port`.
    pub(super) address: String,
    tls: Option<Tls>,
}

/// What both sides prove. Files are read for each connection, so that they may be renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tls {
    /// The name that the server's certificate must have.
    name: ServerName<'static>,
    /// Roots of the server's certificate; without, those of the operating system.
    roots: Option<PathBuf>,
    /// The certificate and the key that are presented.
    own: Option<(PathBuf, PathBuf)>,
}

impl Upstream {
    /// The control plane that an entry `xds://address` of the mesh configuration names.
    pub(super) fn new(address: &str, source: &ConfigSource) -> anyhow::Result<Self> {
        let whole = || format!("configuration source {:?} of the mesh configuration", source.address);
        let parts = address.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        let Some((host, _)) = parts.filter(|(host, _)| !host.is_empty()) else {
            bail!("{}: it is not xds://HOST:PORT; name the host and the port", whole());
        };
        let tls = source.tls_settings.as_ref().map(|settings| Tls::new(settings, host));
        let tls = tls.transpose().with_context(whole)?.flatten();
        Ok(Self { address: address.to_owned(), tls })
    }

    fn server(&self) -> Result<Server, String> {
        let tls = self.tls.as_ref().map(|tls| Ok((tls.name.clone(), Arc::new(tls.client()?)))).transpose();
        let tls = tls.map_err(|error: anyhow::Error| format!("{error:#}"))?;
        Ok(Server { address: self.address.clone(), tls })
    }
}

impl Connect for Upstream {
    async fn connect(&self) -> Result<Channel, String> {
        self.server()?.connect().await
    }
}

impl Tls {
    fn new(settings: &ClientTlsSettings, host: &str) -> anyhow::Result<Option<Self>> {
        match settings.mode() {
            Mode::Disable => return Ok(None),
            Mode::Simple | Mode::Mutual => {}
            Mode::IstioMutual => bail!(
                "tlsSettings.mode ISTIO_MUTUAL: this process has no certificate of the mesh before it knows its configuration; use \
                 MUTUAL with files"
            ),
        }
        if !settings.credential_name.is_empty() {
            bail!(
                "tlsSettings.credentialName: Secrets are not read here; mount the Secret and name its files"
            );
        }
        if settings.insecure_skip_verify.as_ref().is_some_and(|skip| skip.value) {
            bail!(
                "tlsSettings.insecureSkipVerify: whoever answers would configure the mesh; give caCertificates"
            );
        }
        let name = match (settings.sni.as_str(), &settings.subject_alt_names[..]) {
            (_, [only]) => only,
            ("", []) => host.trim_matches(['[', ']']),
            (sni, []) => sni,
            _ => bail!("tlsSettings.subjectAltNames: only one name can be checked; leave the others out"),
        };
        let name = ServerName::try_from(name.to_owned()).with_context(|| {
            format!("tlsSettings: {name:?} is no name that a server's certificate can have")
        })?;
        let file = |path: &str| (!path.is_empty()).then(|| PathBuf::from(path));
        let own = match (file(&settings.client_certificate), file(&settings.private_key)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) if settings.mode() == Mode::Simple => None,
            _ => bail!("tlsSettings: MUTUAL needs the files clientCertificate and privateKey"),
        };
        Ok(Some(Self { name, roots: file(&settings.ca_certificates), own }))
    }

    fn client(&self) -> anyhow::Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        match &self.roots {
            Some(path) => {
                for certificate in certificates(path)? {
                    roots.add(certificate).with_context(|| format!("{}", path.display()))?;
                }
            }
            // What the system has and nobody can read is no reason to stop.
            None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.with_root_certificates(roots);
        let mut config = match &self.own {
            Some((certificate, key)) => {
                let pem = fs::read(key).with_context(|| format!("{}", key.display()))?;
                let private = PrivateKeyDer::from_pem_slice(&pem)
                    .with_context(|| format!("{}: it is no private key", key.display()))?;
                builder.with_client_auth_cert(certificates(certificate)?, private)?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn certificates(path: &PathBuf) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let context = || format!("{}", path.display());
    let pem = fs::read(path).with_context(context)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.with_context(context)?;
    if found.is_empty() {
        bail!("{}: there is no certificate in it", path.display());
    }
    Ok(found)
}

/// How this process introduces itself to other control planes: as a client of configuration and not as a proxy.
pub(super) fn introduction(cluster: &str, namespace: &str, pod: &str) -> Node {
    let version = BuildInfo::current().version;
    let fields = [
        ("GENERATOR", "api"),
        ("ISTIO_VERSION", version.as_str()),
        ("CLUSTER_ID", cluster),
        ("NAMESPACE", namespace),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.into()));
    Node {
        id: format!("sidecar~0.0.0.0~{pod}.{namespace}~{namespace}.svc.cluster.local"),
        metadata: Some(Struct { fields: fields.into_iter().collect() }),
        ..Node::default()
    }
}
