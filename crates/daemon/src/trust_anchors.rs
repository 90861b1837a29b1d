//! Roots beside the authority's own: those that the mesh configuration lists (`caCertificates`) and those that SPIFFE bundle
//! endpoints publish.
//!
//! A listed root vouches for the trust domains that its entry names, and for no others; one whose entry names none vouches for
//! the mesh's own domain, provided that the mesh may have several roots (`ISTIO_MULTIROOT_MESH`). Proxies get all of the latter
//! as well (PCDS), so that they accept peers which another authority certified. Roots of signers elsewhere ([`signers`]) vouch for
//! the mesh's own domain wherever such signers are in use.

pub(crate) mod signers;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use canopus_controllers::trust::DistributedRoots;
use canopus_engine::{Batch, Ctx, Engine, Input, Query};
use canopus_identity::certificate::Certificate;
use canopus_identity::trust;
use canopus_mesh::world::{MeshSettings, Settings, settings};
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::CertificateData as Listed;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::certificate_data::CertificateData;
use canopus_proto::resource::Resource;
use canopus_runtime::flags::{Flags, ISTIO_MULTIROOT_MESH};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::jwks::KeyServer;
use crate::timer::until;
use signers::MountedSignerRoots;

/// How often an endpoint is asked.
const REFRESH: Duration = Duration::from_secs(30 * 60);

/// How soon an endpoint that did not answer is asked again.
const RETRY: Duration = Duration::from_secs(60);

/// How long an endpoint may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What SPIFFE bundle endpoints published last, by their address: roots in PEM.
pub(crate) struct FetchedBundles;

impl Input for FetchedBundles {
    const NAME: &'static str = "fetched_bundles";
    type Key = String;
    type Value = Vec<String>;
    type Index = ();
}

/// What proxies are told to trust beside what their agent knows (PCDS). Parity: nothing, unless the mesh has several roots.
pub(crate) struct ProxyTrust;

impl Query for ProxyTrust {
    const NAME: &'static str = "proxy_trust";
    type Key = ();
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let settings = settings(ctx);
        if !settings.flags.get(ISTIO_MULTIROOT_MESH) {
            return Vec::new();
        }
        let own = ctx.read::<DistributedRoots>(&()).map(|roots| roots.roots.to_string()).unwrap_or_default();
        let fetched = |address: &str| ctx.read::<FetchedBundles>(&address.to_owned());
        let mut roots: BTreeSet<String> = split(&own).collect();
        roots.extend(signers::all_signer_roots(&settings, ctx.read::<MountedSignerRoots>(&())));
        for listed in &settings.mesh.ca_certificates {
            roots.extend(roots_of(listed, |address| {
                fetched(address).map(|bundle| bundle.to_vec()).unwrap_or_default()
            }));
        }
        let message =
            ProxyConfig { ca_certificates_pem: roots.into_iter().collect(), ..ProxyConfig::default() };
        vec![Resource::encode("", &message)]
    }
}

/// The roots of signers elsewhere, in PEM; none where the process's own authority signs.
pub(crate) fn signer_roots(engine: &Engine) -> Vec<String> {
    let settings = engine.read::<Settings>(&()).unwrap_or_default();
    signers::all_signer_roots(&settings, engine.read::<MountedSignerRoots>(&()))
}

/// The roots beside the authority's own that vouch for a trust domain, in PEM.
pub(crate) fn listed_roots(engine: &Engine, domain: &str) -> Vec<String> {
    let settings = engine.read::<Settings>(&()).unwrap_or_default();
    let is_own = settings.flags.get(ISTIO_MULTIROOT_MESH) && settings.trust_domain() == domain;
    let vouches = |listed: &&Listed| match listed.trust_domains.as_slice() {
        [] => is_own,
        domains => domains.iter().any(|named| named == domain),
    };
    let fetched = |address: &str| {
        let bundle = engine.read::<FetchedBundles>(&address.to_owned());
        bundle.map(|bundle| bundle.to_vec()).unwrap_or_default()
    };
    let listed = settings.mesh.ca_certificates.iter().filter(vouches);
    let listed = listed.flat_map(|listed| roots_of(listed, fetched));
    let signed_elsewhere = if settings.trust_domain() == domain { signer_roots(engine) } else { Vec::new() };
    listed.chain(signed_elsewhere).collect()
}

/// The roots of an entry, one text each; what cannot be read vouches for nobody.
fn roots_of(listed: &Listed, fetched: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    match &listed.certificate_data {
        Some(CertificateData::Pem(pem)) => split(pem).collect(),
        Some(CertificateData::SpiffeBundleUrl(address)) => fetched(address),
        None => Vec::new(),
    }
}

fn split(pem: &str) -> impl Iterator<Item = String> {
    let roots = Certificate::all_from_pem(pem.as_bytes()).unwrap_or_default();
    roots.into_iter().filter_map(|root| root.to_pem().ok())
}

/// Polls the endpoints that the mesh configuration names.
pub(crate) struct BundleKeeper<S> {
    engine: Engine,
    revisions: watch::Receiver<u64>,
    server: KeyServer,
    store: S,
    /// When each endpoint is asked next.
    due: BTreeMap<String, Instant>,
}

impl<S: Fn(Batch) + Send> BundleKeeper<S> {
    /// Polls what the mesh configuration of `engine` names; `store` takes what changes.
    pub(crate) fn new(engine: Engine, revisions: watch::Receiver<u64>, flags: &Flags, store: S) -> Self {
        Self { engine, revisions, server: KeyServer::new(flags), store, due: BTreeMap::new() }
    }

    /// Polls until nobody changes the world any more.
    pub(crate) async fn run(&mut self) {
        loop {
            self.revisions.borrow_and_update();
            self.look();
            let now = Instant::now();
            let next = self.due.iter().find(|(_, due)| **due <= now).map(|(address, _)| address.clone());
            if let Some(address) = next {
                self.ask(&address).await;
                continue;
            }
            tokio::select! {
                changed = self.revisions.changed() => if changed.is_err() { return },
                () = until(self.due.values().min().copied()) => {}
            }
        }
    }

    /// Learns which endpoints are named now.
    fn look(&mut self) {
        let wanted = endpoints(&self.engine.read::<Settings>(&()).unwrap_or_default());
        let gone: Vec<String> = self.due.keys().filter(|known| !wanted.contains(*known)).cloned().collect();
        let mut batch = Batch::new();
        for address in &gone {
            self.due.remove(address);
            batch.remove::<FetchedBundles>(address);
        }
        if !gone.is_empty() {
            (self.store)(batch);
        }
        for address in wanted {
            self.due.entry(address).or_insert_with(Instant::now);
        }
    }

    /// Asks an endpoint. What it published last stays in force while it does not answer.
    async fn ask(&mut self, address: &str) {
        let fetched = self.server.document(address, PATIENCE).await.map_err(|error| error.to_string());
        let parsed =
            fetched.and_then(|text| trust::parse(text.as_bytes()).map_err(|error| error.to_string()));
        let pause = match parsed {
            Ok(roots) => {
                let pem: Vec<String> = roots.iter().filter_map(|root| root.to_pem().ok()).collect();
                info!(address, roots = pem.len(), "a SPIFFE bundle was fetched");
                let mut batch = Batch::new();
                batch.set::<FetchedBundles>(address.to_owned(), pem);
                (self.store)(batch);
                REFRESH
            }
            Err(error) => {
                warn!(
                    address,
                    error, "a SPIFFE bundle cannot be fetched; what it held before stays in force"
                );
                RETRY
            }
        };
        self.due.insert(address.to_owned(), Instant::now() + pause);
    }
}

/// The endpoints that a mesh configuration names.
fn endpoints(settings: &MeshSettings) -> BTreeSet<String> {
    let listed = settings.mesh.ca_certificates.iter().filter_map(|listed| match &listed.certificate_data {
        Some(CertificateData::SpiffeBundleUrl(address)) if !address.is_empty() => Some(address.clone()),
        _ => None,
    });
    listed.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use canopus_controllers::trust::Roots;
    use canopus_proto::Message as _;

    use super::*;

    fn root(name: &str) -> String {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn world(multi_root: bool, listed: Vec<Listed>) -> Engine {
        let is_on = if multi_root { "true" } else { "false" };
        world_with([("ISTIO_MULTIROOT_MESH", is_on)], listed)
    }

    fn world_with<const N: usize>(flags: [(&str, &str); N], listed: Vec<Listed>) -> Engine {
        let flags = Arc::new(Flags::read(&flags));
        let mut settings = MeshSettings { flags, ..MeshSettings::default() };
        settings.mesh.ca_certificates = listed;
        let mut batch = Batch::new();
        batch.set::<Settings>((), settings);
        batch.set::<DistributedRoots>((), Roots { roots: root("own").into(), crl: "".into() });
        let engine = Engine::new();
        engine.apply(batch);
        engine
    }

    fn pem(text: &str, domains: &[&str]) -> Listed {
        Listed {
            certificate_data: Some(CertificateData::Pem(text.to_owned())),
            trust_domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
            ..Listed::default()
        }
    }

    #[test]
    fn root_vouches_for_the_domains_of_its_entry_alone() {
        let listed = vec![pem(&root("partner"), &["partner.example"]), pem(&root("second"), &[])];
        let engine = world(true, listed.clone());
        assert_eq!(listed_roots(&engine, "partner.example").len(), 1);
        assert_eq!(listed_roots(&engine, "cluster.local").len(), 1);
        assert!(listed_roots(&engine, "elsewhere").is_empty());
        assert!(listed_roots(&world(false, listed), "cluster.local").is_empty());
    }

    #[test]
    fn proxies_get_all_roots_when_the_mesh_has_several() {
        let listed = vec![pem(&root("second"), &[]), pem("garbage", &[])];
        let told = world(true, listed.clone()).get::<ProxyTrust>(&()).unwrap();
        let message = ProxyConfig::decode(told[0].body.clone()).unwrap();
        assert_eq!(message.ca_certificates_pem.len(), 2);
        assert!(world(false, listed).get::<ProxyTrust>(&()).unwrap().is_empty());
    }

    #[test]
    fn fetched_bundle_counts_where_it_is_listed() {
        let address = "https://partner.example/bundle";
        let data = Some(CertificateData::SpiffeBundleUrl(address.to_owned()));
        let domains = vec!["partner.example".to_owned()];
        let engine =
            world(true, vec![Listed { certificate_data: data, trust_domains: domains, ..Listed::default() }]);
        assert!(listed_roots(&engine, "partner.example").is_empty());
        let mut batch = Batch::new();
        batch.set::<FetchedBundles>(address.to_owned(), vec![root("partner")]);
        engine.apply(batch);
        assert_eq!(listed_roots(&engine, "partner.example").len(), 1);
        assert!(listed_roots(&engine, "cluster.local").is_empty());
    }

    #[test]
    fn roots_of_signers_vouch_for_the_mesh_itself_where_signers_are_in_use() {
        let signer =
            Listed { cert_signers: vec!["example.com/mesh".to_owned()], ..pem(&root("signer"), &[]) };
        let mut mounted = Batch::new();
        mounted.set::<MountedSignerRoots>((), vec![root("mounted")]);
        let engine = world_with([("EXTERNAL_CA", "ISTIOD_RA_KUBERNETES_API")], vec![signer.clone()]);
        assert_eq!(listed_roots(&engine, "cluster.local").len(), 1);
        engine.apply(mounted);
        assert_eq!(listed_roots(&engine, "cluster.local").len(), 2);
        assert!(listed_roots(&engine, "elsewhere").is_empty());
        // What is mounted goes first when an answer is checked.
        let signer_roots = signers::signer_roots(&engine, "example.com/mesh");
        assert_eq!(signer_roots, engine.read::<MountedSignerRoots>(&()).unwrap().to_vec());
        assert!(listed_roots(&world(false, vec![signer]), "cluster.local").is_empty());
    }
}
