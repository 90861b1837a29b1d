//! What spans and metrics say of the workload that reports them.
//!
//! Names of workloads are what makes listeners of workloads differ that are alike otherwise. So they are facts only where
//! something reports them.

use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::Telemetry;
use canopus_base::labels::Labels;
use canopus_engine::{Ctx, Query};
use canopus_mesh::audience::View;
use canopus_mesh::audience::is_reduction_disabled;
use canopus_mesh::world::{ObjectIndex, indexed_objects, settings};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::{
    Provider, ServiceAttributeEnrichment,
};

use super::settings::Config;

/// What spans say of the workload; each is absent where no span can say it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spans {
    /// What Istio's own tags say.
    pub(crate) tags: Option<WorkloadTags>,
    /// The name under which spans are reported to most providers.
    pub(crate) service_cluster: Option<Arc<str>>,
    /// The name under which they are reported by OpenTelemetry's conventions.
    pub(crate) conventional_name: Option<Arc<str>>,
}

/// What Istio's own tags of spans say. Empty values are unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WorkloadTags {
    pub(crate) canonical_revision: Box<str>,
    pub(crate) canonical_service: Box<str>,
    pub(crate) mesh_id: Box<str>,
    pub(crate) namespace: Box<str>,
    pub(crate) cluster: Box<str>,
}

/// What metrics of a stock Envoy say of the workload. Istio's own proxies know it from their bootstrap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reporter {
    pub(crate) workload: Box<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) cluster: Box<str>,
    /// Labels that name the canonical service, application and version.
    pub(crate) labels: Labels,
}

const CANONICAL_NAME: &str = "service.istio.io/canonical-name";
const CANONICAL_REVISION: &str = "service.istio.io/canonical-revision";

impl Reporter {
    pub(super) fn new(view: &View) -> Self {
        const READ: [&str; 6] = [
            CANONICAL_NAME,
            CANONICAL_REVISION,
            "app",
            "version",
            "app.kubernetes.io/name",
            "app.kubernetes.io/version",
        ];
        let metadata = &view.proxy.metadata;
        Self {
            workload: metadata.workload_name.as_str().into(),
            namespace: view.namespace.clone(),
            cluster: metadata.cluster_id.as_str().into(),
            labels: READ.iter().filter_map(|key| Some((*key, view.labels.get(key)?))).collect(),
        }
    }
}

/// What spans of a proxy can say of its workload.
pub(super) fn spans(ctx: &Ctx<'_>, view: &View, config: &Config) -> Spans {
    let used = if is_reduction_disabled(ctx) { Traced::IN_EVERY_WAY } else { *ctx.get::<Tracing>(&()) };
    let by_default = config.tracing.as_ref().and_then(|tracing| tracing.enable_istio_tags);
    let tags_by_default = used.by_bootstrap && by_default.is_none_or(|wanted| wanted.value);
    Spans {
        tags: (tags_by_default || used.by_providers).then(|| WorkloadTags::new(view)),
        service_cluster: used.by_providers.then(|| view.proxy.service_cluster.clone()),
        conventional_name: (used.by_providers && used.by_conventions).then(|| conventional_name(view).into()),
    }
}

impl WorkloadTags {
    fn new(view: &View) -> Self {
        let label = |key: &str| view.labels.get(key).unwrap_or_default().into();
        let metadata = &view.proxy.metadata;
        Self {
            canonical_revision: label(CANONICAL_REVISION),
            canonical_service: label(CANONICAL_NAME),
            mesh_id: metadata.mesh_id.as_str().into(),
            namespace: metadata.namespace.as_str().into(),
            cluster: metadata.cluster_id.as_str().into(),
        }
    }
}

/// The name of the service that OpenTelemetry's conventions give a workload of Kubernetes.
fn conventional_name(view: &View) -> String {
    let metadata = &view.proxy.metadata;
    let label = |key: &str| view.labels.get(key);
    let annotation = metadata.annotations.get("resource.opentelemetry.io/service.name");
    let pod = view.proxy.id.id.split_once('.').map(|(pod, _)| pod);
    let containers = metadata.raw.text("APP_CONTAINERS");
    let candidates = [
        annotation.map(String::as_str),
        label("app.kubernetes.io/instance"),
        label("app.kubernetes.io/name"),
        Some(metadata.workload_name.as_str()),
        pod,
        containers.as_deref().filter(|containers| !containers.contains(',')),
    ];
    let found = candidates.into_iter().flatten().find(|name| !name.is_empty());
    found.unwrap_or("unknown_service").to_owned()
}

/// How requests can be traced in this mesh.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Traced {
    /// By the tracer of the proxies' bootstrap.
    by_bootstrap: bool,
    /// By providers that the mesh configuration or a Telemetry object names.
    by_providers: bool,
    /// Some tracing provider names services by OpenTelemetry's conventions.
    by_conventions: bool,
}

impl Traced {
    const IN_EVERY_WAY: Self = Self { by_bootstrap: true, by_providers: true, by_conventions: true };
}

struct Tracing;

impl Query for Tracing {
    const NAME: &'static str = "tracing_use";
    type Key = ();
    type Value = Traced;

    fn run(ctx: &Ctx<'_>, (): &()) -> Traced {
        let mesh = &settings(ctx).mesh;
        let by_default = mesh.default_providers.as_ref().is_some_and(|defaults| !defaults.tracing.is_empty());
        let telemetries = || indexed_objects::<Telemetry>(ctx, &ObjectIndex::Kind(Kind::Telemetry));
        Traced {
            by_bootstrap: mesh.enable_tracing,
            by_providers: by_default
                || telemetries().iter().any(|(_, object)| !object.spec.tracing.is_empty()),
            by_conventions: mesh.extension_providers.iter().any(follows_conventions),
        }
    }
}

fn follows_conventions(provider: &ExtensionProvider) -> bool {
    match &provider.provider {
        Some(Provider::Opentelemetry(provider)) => {
            provider.service_attribute_enrichment() == ServiceAttributeEnrichment::OtelSemanticConventions
        }
        _ => false,
    }
}
