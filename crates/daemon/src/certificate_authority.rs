//! The certificate authority of the process: where its root comes from, who keeps it, and the threads that sign.
//!
//! In this order: files in `ROOT_CA_DIR`, those of the Secret `cacerts` with `USE_REMOTE_CERTS`, a root in a Secret of the cluster, a root in a directory beside the configuration.
//! What is started here lives in [`canopus_identity`]; this module gives it files, a cluster, flags and time.

mod certificate_service;
mod kubernetes_signers;
mod nodes;
mod remote_certificates;
mod rotation_report;
mod signers;
pub(crate) mod signing_requests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use canopus_controllers::SecretStore;
use canopus_engine::Engine;
use canopus_identity::authority::{Authority, Lifetimes};
use canopus_identity::bundle::Bundle;
use canopus_identity::external::ExternalAuthority;
use canopus_identity::key::KeyKind;
use canopus_identity::plugged::{self, Files};
use canopus_identity::rotation::{self, Keeper, Policy, Replica, State};
use canopus_identity::self_signed::Profile;
use canopus_identity::store::{CA_SECRET, CACERTS_SECRET, DirectoryStore, RootStore};
use canopus_identity::token::{self, TokenIssuer};
use canopus_identity::watch::Follower;
use canopus_runtime::flags::{
    CANOPUS_ROOT_PROPAGATION, CANOPUS_ROOT_STALENESS, CITADEL_ENABLE_JITTER_FOR_ROOT_CERT_ROTATOR,
    CITADEL_SELF_SIGNED_CA_CERT_TTL, CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE,
    CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL, CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE,
    DEFAULT_WORKLOAD_CERT_TTL, ENABLE_CA_SERVER, EXTERNAL_CA, Flags, ISTIO_MULTIROOT_MESH,
    MAX_WORKLOAD_CERT_TTL, PILOT_ENABLE_CA_CRL, ROOT_CA_DIR, TOKEN_AUDIENCES, USE_CACERTS_FOR_SELF_SIGNED_CA,
    USE_REMOTE_CERTS,
};
use canopus_runtime::metrics::Registry;
use canopus_runtime::tasks::Tasks;
use canopus_sources::kubernetes::Cluster;
use rustls::pki_types::UnixTime;
use tokio::sync::watch;
use tracing::{error, info, warn};

pub use canopus_identity::issued::{Issuance, IssuedCertificates};
use certificate_service::RemoteCertificateService;
use kubernetes_signers::KubernetesSigners;
pub use nodes::Nodes;
use remote_certificates::RemoteCertificates;
pub use signers::{Busy, Signers};

/// Where a self-signed root may be kept.
pub(crate) struct Places {
    /// The cluster and the namespace of the control plane in it.
    pub(crate) cluster: Option<(Cluster, Arc<str>)>,
    /// The configuration that is read from files.
    pub(crate) configuration: Option<PathBuf>,
}

/// The authority, and what keeps it going.
pub(crate) struct CertificateAuthority {
    authority: Arc<Authority>,
    source: Source,
    /// How far the rotation of a self-signed root is; `None` for plugged-in roots.
    rotation: watch::Receiver<Option<State>>,
    /// The Secret with the self-signed root, if it is in one.
    secret: Option<RootSecret>,
}

/// The Secret that a self-signed root is kept in.
#[derive(Clone)]
pub(crate) struct RootSecret {
    cluster: Cluster,
    namespace: Arc<str>,
    name: &'static str,
}

impl RootSecret {
    fn store(&self) -> SecretStore {
        SecretStore::new(self.cluster.clone(), &self.namespace, self.name)
    }
}

/// What the authority's bundle comes from.
enum Source {
    Plugged(Box<Follower>),
    /// Plugged in by a Secret that is read over the API.
    Remote(Box<RemoteCertificates>),
    SelfSigned(Box<Keeper>),
}

impl CertificateAuthority {
    /// Opens the authority that flags and files add up to; `None` if there is to be none.
    pub(crate) async fn open(
        flags: &Flags,
        trust_domain: &str,
        places: Places,
    ) -> anyhow::Result<Option<Self>> {
        if !flags.get(ENABLE_CA_SERVER) {
            info!("ENABLE_CA_SERVER is false: this process signs no certificates");
            return Ok(None);
        }
        let lifetimes = lifetimes(flags);
        let directory = Path::new(flags.get(ROOT_CA_DIR));
        let files = Files::find(directory, flags.get(PILOT_ENABLE_CA_CRL))
            .context("failed to create an istiod CA")?;
        if let (None, true, Some((cluster, namespace))) =
            (&files, flags.get(USE_REMOTE_CERTS), &places.cluster)
        {
            let secret = RootSecret {
                cluster: cluster.clone(),
                namespace: Arc::clone(namespace),
                name: CACERTS_SECRET,
            };
            return Self::remote(flags, secret, lifetimes).await.map(Some);
        }
        let kept_there = flags.get(USE_CACERTS_FOR_SELF_SIGNED_CA);
        match files.filter(|files| !(kept_there && files.is_generated())) {
            Some(files) => Self::plugged(flags, directory, &files, lifetimes).map(Some),
            None => Self::self_signed(flags, trust_domain, places, lifetimes).await,
        }
    }

    fn plugged(flags: &Flags, directory: &Path, files: &Files, lifetimes: Lifetimes) -> anyhow::Result<Self> {
        let context = || format!("{}: the plugged-in CA cannot be used", directory.display());
        let bundle = Bundle::new(&files.read()?, UnixTime::now()).with_context(context)?;
        info!(directory = %directory.display(), "certificates are signed by the plugged-in CA");
        let authority = Arc::new(Authority::with_bundle(lifetimes, Arc::new(bundle)));
        let (multi_root, crl) = (flags.get(ISTIO_MULTIROOT_MESH), flags.get(PILOT_ENABLE_CA_CRL));
        let follower = Follower::new(directory, Arc::clone(&authority), multi_root, crl)?;
        Ok(Self {
            authority,
            source: Source::Plugged(Box::new(follower)),
            rotation: watch::Sender::new(None).subscribe(),
            secret: None,
        })
    }

    async fn remote(flags: &Flags, secret: RootSecret, lifetimes: Lifetimes) -> anyhow::Result<Self> {
        let authority = Arc::new(Authority::new(lifetimes));
        let mut source = RemoteCertificates::new(secret, Arc::clone(&authority), flags);
        source.look().await.context("USE_REMOTE_CERTS")?;
        info!("certificates are signed by the CA of the Secret cacerts");
        Ok(Self {
            authority,
            source: Source::Remote(Box::new(source)),
            rotation: watch::Sender::new(None).subscribe(),
            secret: None,
        })
    }

    async fn self_signed(
        flags: &Flags,
        trust_domain: &str,
        places: Places,
        lifetimes: Lifetimes,
    ) -> anyhow::Result<Option<Self>> {
        let Some((store, secret)) = store(flags, places).await? else {
            warn!("there is no place to keep a root certificate: this process signs no certificates");
            return Ok(None);
        };
        let mut more_roots = Vec::new();
        plugged::append_roots(&mut more_roots, Path::new(flags.get(ROOT_CA_DIR)))?;
        let policy = policy(flags, lifetimes);
        let replica = Replica::new(store, profile(flags, trust_domain)?, policy, more_roots);
        let authority = Arc::new(Authority::new(lifetimes));
        let mut keeper =
            Keeper::new(replica, Arc::clone(&authority), policy.check_interval, rotation::wall_clock());
        if flags.get(CITADEL_ENABLE_JITTER_FOR_ROOT_CERT_ROTATOR) {
            keeper = keeper.spread();
        }
        match keeper.look(None).await {
            Ok(()) => info!("certificates are signed by a self-signed root"),
            // Proxies that have certificates need configuration all the same.
            Err(error) => error!("no certificates are signed yet: {error}"),
        }
        let rotation = keeper.states();
        Ok(Some(Self { authority, source: Source::SelfSigned(Box::new(keeper)), rotation, secret }))
    }

    /// What signs.
    pub(crate) fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.authority)
    }

    /// How far the rotation of the root is, now and from now on.
    pub(crate) fn rotation(&self) -> watch::Receiver<Option<State>> {
        self.rotation.clone()
    }

    /// The Secret that the authority is kept in, or mounted from.
    pub(crate) fn secret(&self) -> &'static str {
        match (&self.source, &self.secret) {
            (_, Some(secret)) => secret.name,
            (Source::Plugged(_) | Source::Remote(_), None) => CACERTS_SECRET,
            (Source::SelfSigned(_), None) => CA_SECRET,
        }
    }

    /// Tells how far the rotation of the root is: in metrics and, where the root is in a Secret, in Events of it.
    pub(crate) fn report_rotation(&mut self, registry: &Registry, tasks: &Tasks) {
        rotation_report::register(self.rotation(), registry);
        if let Some(secret) = self.secret.take() {
            let rotation = self.rotation();
            tasks.supervise("events of root rotation", move || {
                rotation_report::write_events(rotation.clone(), secret.clone())
            });
        }
    }

    /// Keeps the authority up to date, for ever. A new root waits for holders of certificates that were issued before it.
    pub(crate) async fn run(self, issued: Arc<IssuedCertificates>) {
        match self.source {
            Source::Plugged(follower) => follower.run(|_| {}).await,
            Source::Remote(source) => source.run().await,
            Source::SelfSigned(keeper) => keeper.run(&issued).await,
        }
    }
}

/// Where a self-signed root is kept, and the Secret if that is one.
async fn store(
    flags: &Flags,
    places: Places,
) -> anyhow::Result<Option<(Arc<dyn RootStore>, Option<RootSecret>)>> {
    if let Some((cluster, namespace)) = places.cluster {
        let mut secret = RootSecret { cluster, namespace, name: CA_SECRET };
        // Parity: the Secret that is there counts; which one is made where there is none is for the flag to say.
        if flags.get(USE_CACERTS_FOR_SELF_SIGNED_CA) && secret.store().load().await?.is_none() {
            secret.name = CACERTS_SECRET;
        }
        return Ok(Some((Arc::new(secret.store()), Some(secret))));
    }
    let Some(configuration) = places.configuration else { return Ok(None) };
    let directory = beside(&configuration)?;
    info!(directory = %directory.display(), "the root certificate is kept in a directory");
    Ok(Some((Arc::new(DirectoryStore::open(&directory)?), None)))
}

/// The directory of the authority beside a configuration: `mesh` has `mesh-ca`.
pub(crate) fn beside(configuration: &Path) -> anyhow::Result<PathBuf> {
    let path = configuration.canonicalize().with_context(|| configuration.display().to_string())?;
    let name = path.file_name().context("the root directory cannot be a configuration")?;
    Ok(path.with_file_name(format!("{}-ca", name.to_string_lossy())))
}

/// The authority elsewhere that signs workloads' certificates, if there is to be one.
pub(crate) fn external(
    flags: &Flags,
    engine: &Engine,
    places: &Places,
) -> anyhow::Result<Option<Arc<dyn ExternalAuthority>>> {
    match (flags.get(EXTERNAL_CA), &places.cluster) {
        ("", _) => Ok(None),
        ("ISTIOD_RA_KUBERNETES_API", Some((cluster, _))) => {
            info!("workloads' certificates are signed by signers of the Kubernetes CSR API");
            let registration = KubernetesSigners::new(cluster.clone(), engine.clone(), flags);
            Ok(Some(Arc::new(registration)))
        }
        ("ISTIOD_RA_KUBERNETES_API", None) => {
            bail!("EXTERNAL_CA: ISTIOD_RA_KUBERNETES_API needs a cluster, and none is configured")
        }
        ("ISTIOD_RA_ISTIO_API", _) => {
            info!("workloads' certificates are signed by another certificate service");
            Ok(Some(Arc::new(RemoteCertificateService::new(engine.clone(), flags)?)))
        }
        (other, _) => bail!(
            "EXTERNAL_CA: {other:?} is not known; there are ISTIOD_RA_KUBERNETES_API and ISTIOD_RA_ISTIO_API"
        ),
    }
}

/// The issuer of join tokens, where configuration comes from files: its key is in the directory of the authority.
pub(crate) async fn join_tokens(flags: &Flags, places: &Places) -> anyhow::Result<Option<Arc<TokenIssuer>>> {
    let Some(configuration) = places.configuration.as_ref().filter(|_| flags.get(ENABLE_CA_SERVER)) else {
        return Ok(None);
    };
    let directory = beside(configuration)?;
    let audience = flags.get(TOKEN_AUDIENCES).first().map_or("istio-ca", String::as_str);
    let issuer = token::open_directory(&directory, audience).await.context("join tokens")?;
    Ok(Some(Arc::new(issuer)))
}

/// How long certificates live, as flags say.
pub fn lifetimes(flags: &Flags) -> Lifetimes {
    Lifetimes { default: flags.get(DEFAULT_WORKLOAD_CERT_TTL), longest: flags.get(MAX_WORKLOAD_CERT_TTL) }
}

/// What a self-signed root is like, as flags say.
pub fn profile(flags: &Flags, trust_domain: &str) -> anyhow::Result<Profile> {
    let bits = flags.get(CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE);
    let grace = flags.get(CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE);
    let lifetime = flags.get(CITADEL_SELF_SIGNED_CA_CERT_TTL);
    if lifetime.is_zero() {
        bail!("CITADEL_SELF_SIGNED_CA_CERT_TTL must be more than nothing");
    }
    Ok(Profile {
        organization: trust_domain.to_owned(),
        lifetime,
        key: KeyKind::Rsa(usize::try_from(bits).context("CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE")?),
        grace_percent: u32::try_from(grace).unwrap_or_default().min(100),
    })
}

/// A replica looks at the store every ten seconds at the most.
const LEAST_STALENESS: Duration = Duration::from_secs(20);

fn policy(flags: &Flags, lifetimes: Lifetimes) -> Policy {
    let grace = flags.get(CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE);
    Policy {
        grace_percent: u32::try_from(grace).unwrap_or_default().min(100),
        check_interval: flags.get(CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL),
        staleness: flags.get(CANOPUS_ROOT_STALENESS).max(LEAST_STALENESS),
        // Proxies get roots with their certificates, so a bundle is in use for as long as a certificate.
        propagation: flags.get(CANOPUS_ROOT_PROPAGATION).max(lifetimes.default),
        patience: Policy::default().patience.max(lifetimes.longest),
        longest_leaf: lifetimes.longest,
    }
}
