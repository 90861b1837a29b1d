//! What is fetched from elsewhere and kept up to date.

use std::sync::Arc;

use canopus_sources::kubernetes::Cluster;

use super::DiscoveryArgs;
use super::process::Process;
use super::push_path::PushPath;
use crate::controllers::follow_templates;
use crate::envoy_filters;
use crate::injection::{Injection, InjectionKeeper};
use crate::jwks::KeyKeeper;
use crate::push::Reason;
use crate::trust_anchors::BundleKeeper;

/// Starts what keeps keys, trust bundles and the injector's configuration; the injector, if there is to be one.
pub(super) fn start(
    process: &Process,
    push: &PushPath,
    args: &DiscoveryArgs,
    cluster: Option<&Cluster>,
) -> Option<Arc<Injection>> {
    let Process { flags, tasks, registry, .. } = process;
    let engine = push.dispatcher.engine();
    let revision = || push.revision.clone();
    let fetched = || push.store(Reason::DependentResource);
    let keys = KeyKeeper::new(engine.clone(), revision(), flags, registry, fetched());
    tasks.supervise_with("jwks", keys, |mut keys| async move { keys.run().await });
    let bundles = BundleKeeper::new(engine.clone(), revision(), flags, fetched());
    tasks.supervise_with("SPIFFE bundles", bundles, |mut bundles| async move { bundles.run().await });
    envoy_filters::register(registry, flags, &push.dispatcher);
    let injection = Injection::new(engine.clone(), process.readiness.clone(), flags)?;
    let directory = args.injection_directory.clone();
    let keeper = InjectionKeeper::new(Arc::clone(&injection), directory, revision(), flags);
    tasks.supervise_with("injector configuration", keeper, |mut keeper| async move { keeper.run().await });
    if let Some(cluster) = cluster {
        let (injectors, cluster) = (injection.injectors(), cluster.clone());
        let store = push.store(Reason::Global);
        tasks.supervise("gateway templates", move || {
            follow_templates(injectors.clone(), cluster.clone(), store.clone())
        });
    }
    Some(injection)
}
