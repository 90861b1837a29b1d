//! Workload labels, reduced to those that selectors match.
//!
//! Pods of one workload differ in labels such as their template hash. If such labels were part of a query key, nothing would
//! be shared between pods. [`SelectorLabels`] keeps only the labels of those selectors that match the workload, so workloads
//! that the same selectors match have equal keys. The set of selectors is itself a query: a new selector changes the keys of
//! the workloads it matches and of no others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, PeerAuthentication, RequestAuthentication, Telemetry,
    TrafficExtension, VirtualService, WasmPlugin,
};
use canopus_base::labels::Labels;
use canopus_engine::{Ctx, EagerCtx, EagerQuery, Input};

use crate::world::{NamespacesWith, ObjectIndex, Objects, indexed_objects};

/// An input that tests set to disable reduction: audiences then keep every fact.
///
/// Tests compare what is generated from reduced audiences with what is generated from complete ones.
pub struct Unreduced;

impl Input for Unreduced {
    const NAME: &'static str = "unreduced_audiences";
    type Key = ();
    type Value = ();
    type Index = ();
}

/// Whether reduction is disabled; see [`Unreduced`].
pub fn is_reduction_disabled(ctx: &EagerCtx<'_>) -> bool {
    ctx.read::<Unreduced>(&()).is_some()
}

/// The labels of a workload that some selector matches.
///
/// Invariant: every selector that was considered matches these labels exactly if it matches all labels of the workload. A
/// matching selector has all its labels in the reduced set. One that does not match requires a label that the workload
/// lacks, and the reduced set lacks it too.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectorLabels(Labels);

impl SelectorLabels {
    /// Keeps the labels that selectors of these kinds and namespaces match.
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

    /// Keeps the labels that `sourceLabels` of VirtualService routes match.
    pub fn for_route_sources(ctx: &Ctx<'_>, labels: &Labels) -> Self {
        if is_reduction_disabled(ctx) {
            return Self::unreduced(labels);
        }
        Self::matched_by(labels, &ctx.get::<SourceSelectors>(&()))
    }

    /// Keeps the labels that these selectors match.
    pub(crate) fn matched_by(labels: &Labels, selectors: &BTreeSet<Labels>) -> Self {
        let mut reduced = Self::default();
        reduced.keep(labels, selectors);
        reduced
    }

    /// Keeps all labels, for keys that any selector may be matched against.
    pub fn unreduced(labels: &Labels) -> Self {
        Self(labels.clone())
    }

    /// Whether a selector matches the workload. An empty selector matches all.
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

/// The kinds of objects that select workloads by label, in their namespace or from the root namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SelectingKind {
    /// DestinationRule.
    DestinationRule,
    /// EnvoyFilter.
    EnvoyFilter,
    /// Telemetry.
    Telemetry,
    /// WasmPlugins and TrafficExtensions.
    Extension,
    /// AuthorizationPolicy.
    AuthorizationPolicy,
    /// RequestAuthentication.
    RequestAuthentication,
    /// PeerAuthentication.
    PeerAuthentication,
}

impl SelectingKind {
    /// The kinds of the objects themselves.
    fn objects(self) -> &'static [Kind] {
        match self {
            Self::DestinationRule => &[Kind::DestinationRule],
            Self::EnvoyFilter => &[Kind::EnvoyFilter],
            Self::Telemetry => &[Kind::Telemetry],
            Self::Extension => &[Kind::WasmPlugin, Kind::TrafficExtension],
            Self::AuthorizationPolicy => &[Kind::AuthorizationPolicy],
            Self::RequestAuthentication => &[Kind::RequestAuthentication],
            Self::PeerAuthentication => &[Kind::PeerAuthentication],
        }
    }
}

/// Whether a namespace has objects of some kinds, whoever they are for.
pub(crate) fn has_objects(ctx: &Ctx<'_>, kinds: &[SelectingKind], namespace: &Arc<str>) -> bool {
    let kinds = kinds.iter().flat_map(|kind| kind.objects());
    kinds.copied().any(|kind| *ctx.get::<HasObjects>(&(kind, namespace.clone())))
}

/// Whether a namespace has objects of some kinds that select a workload by its labels, or all workloads.
pub(crate) fn is_selected(
    ctx: &Ctx<'_>,
    kinds: &[SelectingKind],
    namespace: &Arc<str>,
    labels: &Labels,
) -> bool {
    kinds.iter().any(|kind| {
        let selectors = ctx.get::<Selectors>(&(*kind, namespace.clone()));
        selectors.iter().any(|selector| selector.subset_of(labels))
    })
}

/// Whether a namespace has objects of a kind, however many.
struct HasObjects;

impl EagerQuery for HasObjects {
    const NAME: &'static str = "namespace_has_objects";
    type Key = (Kind, Arc<str>);
    type Value = bool;

    fn run(ctx: &EagerCtx<'_>, (kind, namespace): &Self::Key) -> bool {
        !ctx.members::<Objects>(&ObjectIndex::Namespace(*kind, namespace.as_ref().into())).is_empty()
    }
}

/// The distinct selectors of the objects of a kind in a namespace; an empty one for objects that select everything.
struct Selectors;

impl EagerQuery for Selectors {
    const NAME: &'static str = "selectors";
    type Key = (SelectingKind, Arc<str>);
    type Value = BTreeSet<Labels>;

    fn run(ctx: &EagerCtx<'_>, (kind, namespace): &Self::Key) -> Self::Value {
        let index = |kind| ObjectIndex::Namespace(kind, namespace.as_ref().into());
        let mut found = BTreeSet::new();
        let mut add = |selector: Option<&BTreeMap<String, String>>| {
            found.insert(selector.map(to_labels).unwrap_or_default());
        };
        match kind {
            SelectingKind::DestinationRule => {
                for (_, object) in indexed_objects::<DestinationRule>(ctx, &index(Kind::DestinationRule)) {
                    add(object.spec.workload_selector.as_ref().map(|selector| &selector.match_labels));
                }
            }
            SelectingKind::EnvoyFilter => {
                for (_, object) in indexed_objects::<EnvoyFilter>(ctx, &index(Kind::EnvoyFilter)) {
                    add(object.spec.workload_selector.as_ref().map(|selector| &selector.labels));
                }
            }
            SelectingKind::Telemetry => {
                for (_, object) in indexed_objects::<Telemetry>(ctx, &index(Kind::Telemetry)) {
                    add(object.spec.selector.as_ref().map(|selector| &selector.match_labels));
                }
            }
            SelectingKind::Extension => {
                for (_, object) in indexed_objects::<WasmPlugin>(ctx, &index(Kind::WasmPlugin)) {
                    add(object.spec.selector.as_ref().map(|selector| &selector.match_labels));
                }
                for (_, object) in indexed_objects::<TrafficExtension>(ctx, &index(Kind::TrafficExtension)) {
                    add(object.spec.selector.as_ref().map(|selector| &selector.match_labels));
                }
            }
            SelectingKind::AuthorizationPolicy => {
                for (_, object) in
                    indexed_objects::<AuthorizationPolicy>(ctx, &index(Kind::AuthorizationPolicy))
                {
                    add(object.spec.selector.as_ref().map(|selector| &selector.match_labels));
                }
            }
            SelectingKind::RequestAuthentication => {
                let index = index(Kind::RequestAuthentication);
                for (_, object) in indexed_objects::<RequestAuthentication>(ctx, &index) {
                    add(object.spec.selector.as_ref().map(|selector| &selector.match_labels));
                }
            }
            SelectingKind::PeerAuthentication => {
                for (_, object) in
                    indexed_objects::<PeerAuthentication>(ctx, &index(Kind::PeerAuthentication))
                {
                    add(object.spec.selector.as_ref().map(|selector| &selector.match_labels));
                }
            }
        }
        found
    }
}

/// The distinct `sourceLabels` of all VirtualService routes.
struct SourceSelectors;

impl EagerQuery for SourceSelectors {
    const NAME: &'static str = "source_selectors";
    type Key = ();
    type Value = BTreeSet<Labels>;

    fn run(ctx: &EagerCtx<'_>, (): &()) -> Self::Value {
        let namespaces = ctx.get::<NamespacesWith>(&Kind::VirtualService);
        let of_namespaces = ctx.get_all::<SourceSelectorsIn>(&namespaces);
        of_namespaces.iter().flat_map(|selectors| selectors.iter().cloned()).collect()
    }
}

/// The distinct `sourceLabels` of the VirtualService routes of a namespace.
struct SourceSelectorsIn;

impl EagerQuery for SourceSelectorsIn {
    const NAME: &'static str = "source_selectors_in";
    type Key = Arc<str>;
    type Value = BTreeSet<Labels>;

    fn run(ctx: &EagerCtx<'_>, namespace: &Arc<str>) -> Self::Value {
        let index = ObjectIndex::Namespace(Kind::VirtualService, namespace.as_ref().into());
        let mut found = BTreeSet::new();
        for (_, object) in indexed_objects::<VirtualService>(ctx, &index) {
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

/// Converts a selector of the API.
pub(crate) fn to_labels(labels: &BTreeMap<String, String>) -> Labels {
    labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}
