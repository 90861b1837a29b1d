//! Which certificate the TLS ports have, and following it when it is replaced.

mod port_signer;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use canopus_controllers::trust::Roots;
use canopus_engine::Engine;
use canopus_identity::authority::{Authority, server_certificate};
use canopus_identity::bundle::Bundle;
use canopus_identity::certificate::Certificate;
use canopus_identity::revocation::RevocationLists;
use canopus_runtime::flags::{
    CITADEL_SELF_SIGNED_CA_CERT_TTL, COMPLIANCE_POLICY, Flags, PILOT_CERT_PROVIDER,
};
use canopus_sources::kubernetes::Cluster;
use clap::Args;
use rustls::ServerConfig;
use rustls::pki_types::UnixTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::tls::{self, Acceptor, Compliance, Material, MinVersion, Policy};
use port_signer::{PortSigner, RETRY, Signed};

/// How often files are looked at.
const PERIOD: Duration = Duration::from_secs(5);

/// What the providers begin with that are signers of the cluster. Parity: the rest is the name of the signer.
const SIGNER_PREFIX: &str = "k8s.io/";

/// Where certificates are mounted if no flag says otherwise.
const MOUNTED: &str = "./var/run/secrets/istiod";

/// Flags about TLS. Names are pilot-discovery's.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// File with the root certificates by which clients are verified.
    #[arg(long = "caCertFile", value_name = "FILE", default_value = "")]
    ca_cert_file: String,
    /// File with the certificate of the TLS ports; without, the one mounted below ./var/run/secrets/istiod, or one that the
    /// process signs itself.
    #[arg(long = "tlsCertFile", value_name = "FILE", default_value = "")]
    tls_cert_file: String,
    /// File with the private key of that certificate.
    #[arg(long = "tlsKeyFile", value_name = "FILE", default_value = "")]
    tls_key_file: String,
    /// Cipher suites of TLS 1.2 that are allowed, separated by commas; without, all that are safe.
    #[arg(long = "tls-cipher-suites", value_name = "NAMES", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// The oldest version of TLS that is spoken: TLSV1_2 or TLSV1_3.
    #[arg(long = "tls-min-version", value_name = "VERSION", default_value = "1.2")]
    tls_min_version: String,
}

impl TlsArgs {
    fn policy(&self, flags: &Flags) -> Result<Policy> {
        let compliance = Compliance::parse(flags.get(COMPLIANCE_POLICY))?;
        let min_version = match self.tls_min_version.as_str() {
            "" | "1.2" | "TLSV1_2" | "VersionTLS12" => MinVersion::Tls12,
            "1.3" | "TLSV1_3" | "VersionTLS13" => MinVersion::Tls13,
            other => bail!("--tls-min-version: {other:?} is neither 1.2 nor 1.3"),
        };
        let suites = self.tls_cipher_suites.iter().map(|name| name.trim().to_owned());
        Ok(Policy {
            compliance,
            min_version,
            cipher_suites: suites.filter(|name| !name.is_empty()).collect(),
        })
    }

    /// The files that count: those of the flags, else those that are mounted, else none.
    fn files(&self) -> Option<Files> {
        if !self.tls_cert_file.is_empty() && !self.tls_key_file.is_empty() {
            let root = (!self.ca_cert_file.is_empty()).then(|| PathBuf::from(&self.ca_cert_file));
            return Some(Files {
                certificate: PathBuf::from(&self.tls_cert_file),
                key: PathBuf::from(&self.tls_key_file),
                root,
            });
        }
        let mounted = Path::new(MOUNTED);
        let roots = [mounted.join("ca/root-cert.pem"), mounted.join("tls/ca.crt")];
        let files = Files {
            certificate: mounted.join("tls/tls.crt"),
            key: mounted.join("tls/tls.key"),
            root: roots.into_iter().find(|path| path.is_file()),
        };
        (files.certificate.is_file() && files.key.is_file()).then_some(files)
    }
}

/// The files of a certificate.
#[derive(Clone, Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    root: Option<PathBuf>,
}

/// What the files hold.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
    root: Vec<u8>,
    /// The lists of the authority, which clients' certificates are of.
    crl: Vec<u8>,
}

impl Files {
    /// Reads the files. Where none holds roots, those of the authority are the ones by which clients are verified.
    fn read(&self, authority: Option<&Arc<Authority>>) -> Result<Contents> {
        let bundle = authority.and_then(|authority| authority.bundle());
        let read = |path: &Path| fs::read(path).with_context(|| format!("{}", path.display()));
        let certificate = read(&self.certificate)?;
        let root = match &self.root {
            Some(root) => read(root)?,
            // The chain of the server's own certificate says nothing about who may call themselves a client.
            None => bundle.as_ref().map(|bundle| bundle.roots_pem().as_bytes().to_vec()).unwrap_or_default(),
        };
        let crl = bundle.as_ref().and_then(|bundle| bundle.crl_pem()).unwrap_or_default().as_bytes().to_vec();
        Ok(Contents { certificate, key: Zeroizing::new(read(&self.key)?), root, crl })
    }
}

impl Contents {
    fn material(&self) -> Result<Material> {
        let revocations = RevocationLists::from_pem(&self.crl).context("revocation lists")?;
        Ok(Material::from_pem(&self.certificate, &self.key, &self.root)?.with_revocations(revocations))
    }
}

/// Where a certificate comes from.
enum Origin {
    /// Files, what they held, and the authority of the process, whose roots count where the files name none.
    Files(Files, Contents, Option<Arc<Authority>>),
    /// The authority of the process, with what it last signed by.
    Authority(Arc<Authority>, Option<Arc<Bundle>>),
    /// A signer of the cluster, with what verifies the certificate, when another one is wanted, and when to ask again.
    Signer { signer: PortSigner, roots: String, renewal: UnixTime, next_try: Instant },
    /// Made for this run and not stored.
    Nowhere,
}

impl Origin {
    /// What is handed out to those who verify the certificate.
    fn roots(&self) -> Option<Roots> {
        match self {
            Self::Files(_, contents, _) => Some(Roots {
                roots: String::from_utf8_lossy(&contents.root).into(),
                crl: String::from_utf8_lossy(&contents.crl).into(),
            }),
            Self::Authority(_, bundle) => bundle.as_ref().map(|bundle| Roots {
                roots: bundle.roots_pem().into(),
                crl: bundle.crl_pem().unwrap_or_default().into(),
            }),
            Self::Signer { roots, .. } => Some(Roots { roots: roots.as_str().into(), crl: Arc::default() }),
            Self::Nowhere => None,
        }
    }
}

/// The certificates of the TLS ports.
pub(crate) struct Certificates {
    policy: Policy,
    engine: Engine,
    names: Vec<String>,
    lifetime: Duration,
    origin: Origin,
    proxies: watch::Sender<Arc<ServerConfig>>,
    webhooks: watch::Sender<Arc<ServerConfig>>,
    /// What verifies the certificate, for those who connect.
    roots: watch::Sender<Option<Roots>>,
    /// The certificate itself, for those who foresee its end.
    leaf: watch::Sender<Option<Arc<Certificate>>>,
}

impl Certificates {
    /// Reads the files, or has the authority sign a certificate for these names, or makes one that nobody vouches for.
    pub(crate) async fn new(
        args: &TlsArgs,
        names: &[String],
        engine: &Engine,
        authority: Option<Arc<Authority>>,
        cluster: Option<&Cluster>,
        flags: &Flags,
    ) -> Result<Self> {
        let policy = args.policy(flags)?;
        let lifetime = flags.get(CITADEL_SELF_SIGNED_CA_CERT_TTL);
        let mut signer = None;
        let authority = match flags.get(PILOT_CERT_PROVIDER) {
            "istiod" => authority,
            name if name.starts_with(SIGNER_PREFIX) => {
                let cluster =
                    cluster.with_context(|| format!("PILOT_CERT_PROVIDER: {name:?} needs a cluster"))?;
                let full_name = name.trim_start_matches(SIGNER_PREFIX).to_owned();
                let engine = engine.clone();
                signer = Some(PortSigner { cluster: cluster.clone(), signer: full_name, engine, lifetime });
                authority
            }
            // Parity: with these, files are all there is.
            "custom" | "none" => None,
            "kubernetes" => bail!(
                "PILOT_CERT_PROVIDER: kubernetes is not supported since Kubernetes signs no certificates for servers; use istiod"
            ),
            other => bail!(
                "PILOT_CERT_PROVIDER: {other:?} is not supported; use istiod, k8s.io/SIGNER, or custom with --tlsCertFile and --tlsKeyFile"
            ),
        };
        let (origin, material) = match (args.files(), signer, authority) {
            (Some(files), _, authority) => {
                let contents = files.read(authority.as_ref()).context("cannot read the certificate")?;
                let material = contents.material()?;
                info!(certificate = %files.certificate.display(), "TLS ports use a certificate from files");
                if contents.root.is_empty() {
                    info!(
                        "there are no root certificates: clients cannot prove their identity by certificates"
                    );
                }
                (Origin::Files(files, contents, authority), material)
            }
            (None, Some(signer), _) => {
                let Signed { material, roots, renewal } = signer.obtain(names).await?;
                info!(signer = signer.signer, "TLS ports use a certificate of a signer of the cluster");
                (Origin::Signer { signer, roots, renewal, next_try: Instant::now() }, material)
            }
            (None, None, Some(authority)) => {
                let bundle = authority.bundle();
                let material = match &bundle {
                    Some(bundle) => signed(bundle, names, lifetime)?,
                    None => Material::self_made(names)?,
                };
                info!("TLS ports use a certificate of the process's own authority");
                (Origin::Authority(authority, bundle), material)
            }
            (None, None, None) => {
                info!(
                    "TLS ports use a certificate made for this run; no client can prove its identity by it"
                );
                (Origin::Nowhere, Material::self_made(names)?)
            }
        };
        let roots = origin.roots();
        let proxies = tls::for_proxies(&material, &policy, engine)?;
        let webhooks = tls::for_webhooks(&material, &policy)?;
        Ok(Self {
            policy,
            engine: engine.clone(),
            names: names.to_vec(),
            lifetime,
            origin,
            proxies: watch::Sender::new(Arc::new(proxies)),
            webhooks: watch::Sender::new(Arc::new(webhooks)),
            roots: watch::Sender::new(roots),
            leaf: watch::Sender::new(leaf(&material)),
        })
    }

    /// The roots that verify the ports, now and from now on; none if nobody vouches for the certificate.
    pub(crate) fn roots(&self) -> watch::Receiver<Option<Roots>> {
        self.roots.subscribe()
    }

    /// The certificate of the ports, now and from now on.
    pub(crate) fn leaf(&self) -> watch::Receiver<Option<Arc<Certificate>>> {
        self.leaf.subscribe()
    }

    /// For the port proxies connect to.
    pub(crate) fn for_proxies(&self) -> Acceptor {
        Acceptor::new(self.proxies.subscribe())
    }

    /// For the port of the webhooks.
    pub(crate) fn for_webhooks(&self) -> Acceptor {
        Acceptor::new(self.webhooks.subscribe())
    }

    /// Follows the files or the authority. New connections get what there is; what cannot be used changes nothing.
    pub(crate) async fn follow(&mut self) {
        let mut exchanges = match &self.origin {
            Origin::Files(..) | Origin::Signer { .. } => None,
            Origin::Authority(authority, _) => Some(authority.exchanges()),
            Origin::Nowhere => return,
        };
        loop {
            match &mut exchanges {
                Some(exchanges) => {
                    // An exchange between the start and now counts as one to come.
                    let _ = timeout(PERIOD, exchanges.changed()).await;
                }
                None => sleep(PERIOD).await,
            }
            if let Err(error) = self.refresh().await {
                warn!("the certificate stays as it was: {error:#}");
            }
        }
    }

    async fn refresh(&mut self) -> Result<()> {
        let Some(material) = self.news().await? else { return Ok(()) };
        self.proxies.send_replace(Arc::new(tls::for_proxies(&material, &self.policy, &self.engine)?));
        self.webhooks.send_replace(Arc::new(tls::for_webhooks(&material, &self.policy)?));
        self.roots.send_replace(self.origin.roots());
        self.leaf.send_replace(leaf(&material));
        info!("the certificate was replaced");
        Ok(())
    }

    /// A new certificate, if it differs from the one in use.
    async fn news(&mut self) -> Result<Option<Material>> {
        match &mut self.origin {
            Origin::Files(files, known, authority) => {
                let now = files.read(authority.as_ref())?;
                if now == *known {
                    return Ok(None);
                }
                let material = now.material()?;
                *known = now;
                Ok(Some(material))
            }
            Origin::Authority(authority, known) => {
                let Some(now) = authority.bundle() else { return Ok(None) };
                if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &now)) {
                    return Ok(None);
                }
                let material = signed(&now, &self.names, self.lifetime)?;
                *known = Some(now);
                Ok(Some(material))
            }
            Origin::Signer { signer, roots, renewal, next_try } => {
                if UnixTime::now() < *renewal || Instant::now() < *next_try {
                    return Ok(None);
                }
                *next_try = Instant::now() + RETRY;
                let signed = signer.obtain(&self.names).await?;
                (*roots, *renewal) = (signed.roots, signed.renewal);
                Ok(Some(signed.material))
            }
            Origin::Nowhere => Ok(None),
        }
    }
}

/// The certificate that a server shows.
fn leaf(material: &Material) -> Option<Arc<Certificate>> {
    Certificate::from_der(material.leaf()?.clone()).ok().map(Arc::new)
}

/// A certificate of the authority.
fn signed(bundle: &Bundle, names: &[String], lifetime: Duration) -> Result<Material> {
    let signed = server_certificate(bundle, names, lifetime, UnixTime::now())?;
    let material =
        Material::from_pem(signed.chain.as_bytes(), signed.key.as_bytes(), signed.roots.as_bytes())?;
    Ok(material.with_revocations(bundle.revocations().clone()))
}

#[cfg(test)]
mod tests {
    use canopus_identity::authority::Lifetimes;
    use canopus_identity::bundle::Parts;
    use canopus_identity::self_signed::Profile;

    use super::*;

    fn bundle() -> Arc<Bundle> {
        let (certificate, key) = Profile::default().create(UnixTime::now()).unwrap();
        let certificate = certificate.to_pem().unwrap().into_bytes();
        let key = key.to_pem().unwrap().as_bytes().to_vec().into();
        let parts = Parts { roots: certificate.clone(), certificate, key, ..Parts::default() };
        Arc::new(Bundle::new(&parts, UnixTime::now()).unwrap())
    }

    #[test]
    fn chain_of_the_server_is_no_root_of_clients() {
        let folder = tempfile::TempDir::new().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let (certificate_file, key_file) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        fs::write(&certificate_file, certificate.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        let files = Files { certificate: certificate_file, key: key_file, root: None };
        assert!(files.read(None).unwrap().root.is_empty());
        let bundle = bundle();
        let authority = Arc::new(Authority::with_bundle(Lifetimes::default(), Arc::clone(&bundle)));
        assert_eq!(files.read(Some(&authority)).unwrap().root, bundle.roots_pem().as_bytes());
        let material = files.read(None).unwrap().material().unwrap();
        let config = tls::for_proxies(&material, &Policy::default(), &Engine::new()).unwrap();
        assert_eq!(config.alpn_protocols, [b"h2".to_vec()]);
    }
}
