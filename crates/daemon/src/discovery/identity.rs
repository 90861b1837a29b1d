//! Identity: authenticators, the certificate authority, and the server's own certificate.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use canopus_identity::authority::Authority;
use canopus_identity::service::CertificateService;
use canopus_identity::token::TokenIssuer;
use canopus_mesh::world::MeshSettings;
use canopus_runtime::flags::{Flags, ISTIOD_CUSTOM_HOST};
use canopus_sources::kubernetes::{Cluster, RemoteRegistry};

use super::DiscoveryArgs;
use super::process::Process;
use super::push_path::PushPath;
use crate::authentication::{Authenticators, TokenClusters};
use crate::certificate_authority::{self, CertificateAuthority, IssuedCertificates, Nodes, Places, Signers};
use crate::controllers::follow_roots;
use crate::forecast::Forecast;
use crate::metrics::IssuingMetrics;
use crate::push::Reason;
use crate::serve::certificates::Certificates;
use crate::serve::issuing::Issuing;
use crate::trust_anchors::signers;

/// The parts that decide who clients are, and what certificates say.
pub(super) struct Identity {
    pub(super) authenticators: Arc<Authenticators>,
    /// The process's own authority, if it is one.
    pub(super) authority: Option<Arc<Authority>>,
    pub(super) join_tokens: Option<Arc<TokenIssuer>>,
    pub(super) issuing: Option<Issuing>,
    /// What the ports present.
    pub(super) certificates: Certificates,
    pub(super) forecast: Arc<Forecast>,
}

impl Identity {
    /// Opens the authority, if the process is one, and keeps certificates up to date from now on.
    pub(super) async fn start(
        process: &Process,
        push: &PushPath,
        args: &DiscoveryArgs,
        settings: &MeshSettings,
        cluster: Option<&Cluster>,
        remote: &RemoteRegistry,
    ) -> anyhow::Result<Self> {
        let Process { flags, tasks, registry, .. } = process;
        let engine = push.dispatcher.engine();
        let places = Places {
            cluster: cluster.map(|cluster| (cluster.clone(), Arc::clone(&settings.system_namespace))),
            configuration: args.sources.configuration(),
        };
        let join_tokens = certificate_authority::join_tokens(flags, &places).await?;
        let tokens = cluster.map(|cluster| TokenClusters {
            cluster: cluster.clone(),
            name: Arc::clone(&settings.cluster),
            aliases: aliases(&args.cluster_aliases),
            remote: remote.clone(),
        });
        let mut authenticators = Authenticators::new(engine.clone(), flags, tokens)?;
        if let Some(issuer) = &join_tokens {
            authenticators = authenticators.with_join_tokens(Arc::clone(issuer));
        }
        let authenticators = Arc::new(authenticators);

        let external = certificate_authority::external(flags, engine, &places)?;
        if external.is_some() {
            let store = push.store(Reason::Global);
            tasks.supervise("signer roots", move || signers::follow(store.clone()));
        }
        let ca = CertificateAuthority::open(flags, settings.trust_domain(), places).await?;
        let authority = ca.as_ref().map(CertificateAuthority::authority);
        let issued = Arc::new(IssuedCertificates::default());
        let mut forecast = Forecast::new(engine.clone());
        if let Some(mut ca) = ca {
            forecast = forecast
                .with_authority(ca.authority(), ca.rotation(), Arc::clone(&issued))
                .with_secret(ca.secret());
            ca.report_rotation(registry, tasks);
            tasks.spawn("certificate authority", ca.run(Arc::clone(&issued)));
        }
        let issuing = match &authority {
            Some(authority) => {
                let metrics = Arc::new(IssuingMetrics::new(registry, authority));
                let mut service = CertificateService::new(metrics);
                if let Some(nodes) = Nodes::new(engine, &settings.cluster, flags) {
                    service = service.with_nodes(Arc::new(nodes));
                }
                let mut signers = Signers::new(Arc::clone(authority)).context("threads that sign")?;
                if let Some(external) = external {
                    signers = signers.handing_on(external);
                }
                Some(Issuing::new(service, signers, Arc::clone(&authenticators), issued))
            }
            None => None,
        };

        let names = certificate_names(settings, flags, cluster.is_some());
        let certificates =
            Certificates::new(&args.ports.tls, &names, engine, authority.clone(), cluster, flags).await?;
        let (roots, store) = (certificates.roots(), push.store(Reason::Global));
        tasks.supervise("distributed roots", move || follow_roots(roots.clone(), store.clone()));
        let forecast = Arc::new(forecast.with_server(certificates.leaf()));
        forecast.register(registry);
        let reminding = Arc::clone(&forecast);
        tasks.supervise("certificate reminders", move || Forecast::clone(&reminding).remind());
        Ok(Self { authenticators, authority, join_tokens, issuing, certificates, forecast })
    }
}

/// Names of clusters by the aliases that stand for them.
fn aliases(pairs: &[String]) -> BTreeMap<String, Arc<str>> {
    let pairs = pairs.iter().filter_map(|alias| alias.split_once('='));
    pairs.map(|(alias, name)| (alias.trim().to_owned(), name.trim().into())).collect()
}

/// The names the control plane is called by, for a certificate of its own.
fn certificate_names(settings: &MeshSettings, flags: &Flags, has_cluster: bool) -> Vec<String> {
    let namespace = &settings.system_namespace;
    let mut services = vec!["istiod".to_owned(), "istiod-remote".to_owned(), "istio-pilot".to_owned()];
    if !matches!(&*settings.revision, "" | "default") {
        services.push(format!("istiod-{}", settings.revision));
    }
    let mut names: Vec<String> =
        services.iter().map(|service| format!("{service}.{namespace}.svc")).collect();
    let discovery = settings.mesh.default_config.as_ref().map(|config| config.discovery_address.as_str());
    let host = discovery.and_then(|address| address.rsplit_once(':')).map(|(host, _)| host.to_owned());
    names.extend(host);
    names.extend(flags.get(ISTIOD_CUSTOM_HOST).iter().cloned());
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    if !has_cluster {
        // Without a cluster there is nobody who would resolve the names of services.
        names.push("localhost".to_owned());
    }
    names
}
