//! A plugged-in authority that is not mounted: the Secret `cacerts` of the cluster that configures this control plane
//! (`USE_REMOTE_CERTS`), for one that runs elsewhere.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use canopus_identity::authority::Authority;
use canopus_identity::bundle::Bundle;
use canopus_identity::plugged;
use canopus_identity::store::RootStore as _;
use canopus_runtime::flags::{Flags, ISTIO_MULTIROOT_MESH, PILOT_ENABLE_CA_CRL};
use rustls::pki_types::UnixTime;
use tokio::time::sleep;
use tracing::{info, warn};

use super::RootSecret;

/// How often the Secret is read.
const PERIOD: Duration = Duration::from_secs(30);

/// Keeps an authority as the Secret says.
pub(super) struct RemoteCertificates {
    secret: RootSecret,
    authority: Arc<Authority>,
    multi_root: bool,
    with_crl: bool,
}

impl RemoteCertificates {
    pub(super) fn new(secret: RootSecret, authority: Arc<Authority>, flags: &Flags) -> Self {
        let (multi_root, with_crl) = (flags.get(ISTIO_MULTIROOT_MESH), flags.get(PILOT_ENABLE_CA_CRL));
        Self { secret, authority, multi_root, with_crl }
    }

    /// Reads the Secret. What it holds is taken by the rules for files that change.
    pub(super) async fn look(&mut self) -> anyhow::Result<()> {
        let RootSecret { namespace, name, .. } = &self.secret;
        let place = format!("Secret {namespace}/{name}");
        let Some(stored) = self.secret.store().load().await? else {
            bail!("{place} is not there; make it, or mount the files of the CA");
        };
        let parts = plugged::parts(&stored.record, self.with_crl).with_context(|| place.clone())?;
        let next = Bundle::new(&parts, UnixTime::now()).with_context(|| place.clone())?;
        if let Some(current) = self.authority.bundle() {
            if current.is_same(&next) {
                return Ok(());
            }
            plugged::may_replace(&current, &next, self.multi_root).with_context(|| place.clone())?;
            info!(place, "the plugged-in CA was replaced");
        }
        self.authority.replace(Some(Arc::new(next)));
        Ok(())
    }

    /// Reads it again now and then, for ever.
    pub(super) async fn run(mut self) {
        loop {
            sleep(PERIOD).await;
            if let Err(error) = self.look().await {
                warn!("the plugged-in CA stays as it was: {error:#}");
            }
        }
    }
}
