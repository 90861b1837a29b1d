//! Labels, reduced to those that selectors pick a workload by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, PeerAuthentication, RequestAuthentication, Telemetry,
    TrafficExtension, VirtualService, WasmPlugin,
};
use canopus_base::labels::Labels;
use canopus_engine::{Ctx, Query};

use super::is_reduction_disabled;
use crate::gateway::{Gateways, ProxyBinding};
use crate::namespaces::NamespacesWith;
use crate::world::{ObjectIndex, indexed_objects};

/// The labels of a workload that some selector picks it by.
///
/// They answer for every selector that was considered as all labels of the workload do. A selector that picks the workload
/// has all its labels among them; one that does not lacks a label that the workload does not have either. Workloads that
/// the same selectors pick have equal labels, whatever else they are labelled with.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectorLabels(Labels);

impl SelectorLabels {
    /// Reduces labels to what objects of these kinds and namespaces select by.
    pub fn reduce(ctx: &Ctx<'_>, labels: &Labels, sources: &[(SelectingKind, Arc<str>)]) -> Self {
        if is_reduction_disabled(ctx) {
            return Self::unreduced(labels);
        }
        let mut reduced = Self::default();
        for source in sources {
            reduced.keep(labels, &ctx.get::<Selectors>(source));
        }
        reduced
    }

    /// Reduces labels to what Gateways of the whole mesh select by.
    pub fn for_gateways(ctx: &Ctx<'_>, labels: &Labels) -> Self {
        if is_reduction_disabled(ctx) {
            return Self::unreduced(labels);
        }
        let mut reduced = Self::default();
        reduced.keep(labels, &ctx.get::<GatewaySelectors>(&()));
        reduced
    }

    /// Reduces labels to what routes of VirtualServices match sources by.
    pub fn for_route_sources(ctx: &Ctx<'_>, labels: &Labels) -> Self {
        if is_reduction_disabled(ctx) {
            return Self::unreduced(labels);
        }
        let mut reduced = Self::default();
        reduced.keep(labels, &ctx.get::<SourceSelectors>(&()));
        reduced
    }

    /// All labels, for where any selector may be asked.
    pub fn unreduced(labels: &Labels) -> Self {
        Self(labels.clone())
    }

    /// Whether a selector picks the workload; one without labels does.
    pub fn are_selected_by<'a>(&self, selector: impl IntoIterator<Item = (&'a String, &'a String)>) -> bool {
        selector.into_iter().all(|(key, value)| self.0.get(key) == Some(value.as_str()))
    }

    /// The labels themselves, for selectors that are [`Labels`].
    pub(crate) fn as_labels(&self) -> &Labels {
        &self.0
    }

    fn keep(&mut self, labels: &Labels, selectors: &BTreeSet<Labels>) {
        for selector in selectors.iter().filter(|selector| selector.subset_of(labels)) {
            selector.iter().for_each(|(key, value)| self.0.insert(key, value));
        }
    }
}

/// The kinds of objects that select workloads by their labels, within a namespace or from the root namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SelectingKind {
    /// Rules for the calls of some workloads.
    DestinationRule,
    /// Patches.
    EnvoyFilter,
    /// Metrics, logs and traces.
    Telemetry,
    /// WasmPlugins and TrafficExtensions.
    Extension,
    /// Who may call.
    AuthorizationPolicy,
    /// Which tokens are taken.
    RequestAuthentication,
    /// Whether callers must use mutual TLS.
    PeerAuthentication,
}

/// The distinct selectors of the objects of a kind in a namespace, but for those that select everything.
struct Selectors;

impl Query for Selectors {
    const NAME: &'static str = "selectors";
    type Key = (SelectingKind, Arc<str>);
    type Value = BTreeSet<Labels>;

    fn run(ctx: &Ctx<'_>, (kind, namespace): &Self::Key) -> Self::Value {
        let shelf = |kind| ObjectIndex::Namespace(kind, namespace.as_ref().into());
        let mut found = BTreeSet::new();
        let mut add = |selector: Option<&BTreeMap<String, String>>| {
            found.extend(selector.filter(|labels| !labels.is_empty()).map(to_labels));
        };
        match kind {
            SelectingKind::DestinationRule => {
                for (_, object) in indexed_objects::<DestinationRule>(ctx, &shelf(Kind::DestinationRule)) {
                    add(object.spec.workload_selector.as_ref().map(|selector| &selector.match_labels));
                }
            }
            SelectingKind::EnvoyFilter => {
                for (_, object) in indexed_objects::<EnvoyFilter>(ctx, &shelf(Kind::EnvoyFilter)) {
                    add(object.spec.workload_selector.as_ref().map(|selector| &selector.labels));
                }
            }
            SelectingKind::Telemetry => {
                for (_, object) in indexed_objects::<Telemetry>(ctx, &shelf(Kind::Telemetry)) {
                    add(object.spec.selector.as_ref().map(|selector| &selector.match_labels));
                }
            }
            SelectingKind::Extension => {
                for (_, object) in indexed_objects::<WasmPlugin>(ctx, &shelf(Kind::WasmPlugin)) {
                    add(object.spec.selector.as_ref().map(|selector| &selector.match_labels));
                }
                for (_, object) in indexed_objects::<TrafficExtension>(ctx, &shelf(Kind::TrafficExtension)) {
                    add(object.spec.selector.as_ref().map(|selector| &selector.match_labels));
                }
            }
            SelectingKind::AuthorizationPolicy => {
                for (_, object) in
                    indexed_objects::<AuthorizationPolicy>(ctx, &shelf(Kind::AuthorizationPolicy))
                {
                    add(object.spec.selector.as_ref().map(|selector| &selector.match_labels));
                }
            }
            SelectingKind::RequestAuthentication => {
                let shelf = shelf(Kind::RequestAuthentication);
                for (_, object) in indexed_objects::<RequestAuthentication>(ctx, &shelf) {
                    add(object.spec.selector.as_ref().map(|selector| &selector.match_labels));
                }
            }
            SelectingKind::PeerAuthentication => {
                for (_, object) in
                    indexed_objects::<PeerAuthentication>(ctx, &shelf(Kind::PeerAuthentication))
                {
                    add(object.spec.selector.as_ref().map(|selector| &selector.match_labels));
                }
            }
        }
        found
    }
}

/// The distinct selectors of all Gateways.
struct GatewaySelectors;

impl Query for GatewaySelectors {
    const NAME: &'static str = "gateway_selectors";
    type Key = ();
    type Value = BTreeSet<Labels>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let all = ctx.get::<Gateways>(&());
        let by_labels = all.iter().filter(|gateway| gateway.binding == ProxyBinding::Selector);
        by_labels.map(|gateway| to_labels(&gateway.spec.selector)).collect()
    }
}

/// The distinct labels of callers that routes of the whole mesh ask for.
struct SourceSelectors;

impl Query for SourceSelectors {
    const NAME: &'static str = "source_selectors";
    type Key = ();
    type Value = BTreeSet<Labels>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let namespaces = ctx.get::<NamespacesWith>(&Kind::VirtualService);
        let of_namespaces = ctx.get_all::<SourceSelectorsIn>(&namespaces);
        of_namespaces.iter().flat_map(|selectors| selectors.iter().cloned()).collect()
    }
}

/// The same for the routes of one namespace.
struct SourceSelectorsIn;

impl Query for SourceSelectorsIn {
    const NAME: &'static str = "source_selectors_in";
    type Key = Arc<str>;
    type Value = BTreeSet<Labels>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let shelf = ObjectIndex::Namespace(Kind::VirtualService, namespace.as_ref().into());
        let mut found = BTreeSet::new();
        for (_, object) in indexed_objects::<VirtualService>(ctx, &shelf) {
            let spec = &object.spec;
            let http = spec.http.iter().flat_map(|route| &route.r#match).map(|found| &found.source_labels);
            let tls = spec.tls.iter().flat_map(|route| &route.r#match).map(|found| &found.source_labels);
            let tcp = spec.tcp.iter().flat_map(|route| &route.r#match).map(|found| &found.source_labels);
            let written = http.chain(tls).chain(tcp).filter(|labels| !labels.is_empty());
            found.extend(written.map(to_labels));
        }
        found
    }
}

fn to_labels(labels: &BTreeMap<String, String>) -> Labels {
    labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}
