//! Patches as they are applied: sorted by what they apply to, their values typed.

use std::collections::BTreeSet;

use canopus_api::istio::EnvoyFilter;
use canopus_engine::{Ctx, Query};
use canopus_mesh::world::object;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::core::v3::TypedExtensionConfig;
use canopus_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener, ListenerFilter};
use canopus_proto::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use canopus_proto::google::protobuf::Struct;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::envoy_config_object_match::ObjectTypes;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::patch::Operation;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::{
    ApplyTo, ClusterMatch, EnvoyConfigObjectMatch, EnvoyConfigObjectPatch, ListenerMatch, PatchContext,
    RouteConfigurationMatch,
};
use canopus_proto::json::{self, Unknown};
use canopus_proto::{Message, Name};

use super::Side;
use crate::audience::{PatchId, PatchSet};

/// One patch, with a value of the type it applies to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Patch<M> {
    pub(super) id: PatchId,
    pub(super) operation: Operation,
    pub(super) context: PatchContext,
    matching: Option<ObjectTypes>,
    /// What is added or merged; only removal does without.
    pub(super) value: Option<M>,
}

impl<M> Patch<M> {
    pub(super) fn is_on(&self, side: Side) -> bool {
        side.is_in(self.context)
    }

    pub(super) fn is_merge(&self) -> bool {
        matches!(self.operation, Operation::Merge | Operation::MergeAndReplaceList)
    }

    /// The value of a patch that adds something to this side.
    pub(super) fn addition(&self, side: Side) -> Option<&M> {
        let adds = self.operation == Operation::Add && side.takes_additions(self.context);
        self.value.as_ref().filter(|_| adds)
    }

    pub(super) fn cluster(&self) -> Option<&ClusterMatch> {
        match &self.matching {
            Some(ObjectTypes::Cluster(cluster)) => Some(cluster),
            _ => None,
        }
    }

    pub(super) fn listener(&self) -> Option<&ListenerMatch> {
        match &self.matching {
            Some(ObjectTypes::Listener(listener)) => Some(listener),
            _ => None,
        }
    }

    pub(super) fn route_configuration(&self) -> Option<&RouteConfigurationMatch> {
        match &self.matching {
            Some(ObjectTypes::RouteConfiguration(table)) => Some(table),
            _ => None,
        }
    }
}

/// Patches of a set, in the order they apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Patches {
    pub(super) clusters: Vec<Patch<Cluster>>,
    pub(super) listeners: Vec<Patch<Listener>>,
    pub(super) listener_filters: Vec<Patch<ListenerFilter>>,
    pub(super) filter_chains: Vec<Patch<FilterChain>>,
    pub(super) network_filters: Vec<Patch<Filter>>,
    pub(super) http_filters: Vec<Patch<HttpFilter>>,
    pub(super) tables: Vec<Patch<RouteConfiguration>>,
    pub(super) virtual_hosts: Vec<Patch<VirtualHost>>,
    pub(super) routes: Vec<Patch<Route>>,
    pub(super) extensions: Vec<Patch<TypedExtensionConfig>>,
}

impl Patches {
    /// Whether something may happen to listeners, or to the route tables inside them.
    pub(super) fn touch_listeners(&self) -> bool {
        let none = self.listeners.is_empty()
            && self.listener_filters.is_empty()
            && self.filter_chains.is_empty()
            && self.network_filters.is_empty()
            && self.http_filters.is_empty();
        !none || self.touch_routes()
    }

    /// Whether something may happen to route tables.
    pub(super) fn touch_routes(&self) -> bool {
        !(self.tables.is_empty() && self.virtual_hosts.is_empty() && self.routes.is_empty())
    }

    /// The patches that may happen to listeners, in the order they apply.
    pub(super) fn listener_patches(&self) -> Vec<PatchId> {
        fn ids<M>(patches: &[Patch<M>]) -> impl Iterator<Item = PatchId> {
            patches.iter().map(|patch| patch.id.clone())
        }
        let listeners =
            ids(&self.listeners).chain(ids(&self.listener_filters)).chain(ids(&self.filter_chains));
        let filters = ids(&self.network_filters).chain(ids(&self.http_filters));
        let routes = ids(&self.tables).chain(ids(&self.virtual_hosts)).chain(ids(&self.routes));
        listeners.chain(filters).chain(routes).collect()
    }

    /// The same without these.
    pub(super) fn without(&self, left_out: &BTreeSet<PatchId>) -> Self {
        fn rest<M: Clone>(patches: &[Patch<M>], left_out: &BTreeSet<PatchId>) -> Vec<Patch<M>> {
            patches.iter().filter(|patch| !left_out.contains(&patch.id)).cloned().collect()
        }
        Self {
            clusters: rest(&self.clusters, left_out),
            listeners: rest(&self.listeners, left_out),
            listener_filters: rest(&self.listener_filters, left_out),
            filter_chains: rest(&self.filter_chains, left_out),
            network_filters: rest(&self.network_filters, left_out),
            http_filters: rest(&self.http_filters, left_out),
            tables: rest(&self.tables, left_out),
            virtual_hosts: rest(&self.virtual_hosts, left_out),
            routes: rest(&self.routes, left_out),
            extensions: rest(&self.extensions, left_out),
        }
    }

    fn add(&mut self, id: PatchId, written: &EnvoyConfigObjectPatch) {
        match written.apply_to() {
            ApplyTo::Cluster => self.clusters.extend(compiled(id, written)),
            ApplyTo::Listener => self.listeners.extend(compiled(id, written)),
            ApplyTo::ListenerFilter => self.listener_filters.extend(compiled(id, written)),
            ApplyTo::FilterChain => self.filter_chains.extend(compiled(id, written)),
            ApplyTo::NetworkFilter => self.network_filters.extend(compiled(id, written)),
            ApplyTo::HttpFilter => self.http_filters.extend(compiled(id, written)),
            ApplyTo::RouteConfiguration => self.tables.extend(compiled(id, written)),
            ApplyTo::VirtualHost => self.virtual_hosts.extend(compiled(id, written)),
            ApplyTo::HttpRoute => self.routes.extend(compiled(id, written)),
            ApplyTo::ExtensionConfig => self.extensions.extend(compiled(id, written)),
            // The agent applies patches of the bootstrap.
            ApplyTo::Bootstrap | ApplyTo::Invalid => {}
        }
    }
}

/// The patches of a set, compiled.
pub(super) struct Compiled;

impl Query for Compiled {
    const NAME: &'static str = "envoy_filter_patches";
    type Key = PatchSet;
    type Value = Patches;

    fn run(ctx: &Ctx<'_>, set: &PatchSet) -> Patches {
        let mut patches = Patches::default();
        for id in set.0.iter() {
            let filter = object::<EnvoyFilter>(ctx, &id.filter);
            let written = filter.as_ref().and_then(|filter| filter.spec.config_patches.get(id.index));
            if let Some(written) = written {
                patches.add(id.clone(), written);
            }
        }
        patches
    }
}

/// A patch whose value is of the type it applies to; `None` if it says nothing or its value cannot be read.
fn compiled<M: Message + Name + Default>(id: PatchId, written: &EnvoyConfigObjectPatch) -> Option<Patch<M>> {
    let patch = written.patch.as_ref()?;
    let value = match &patch.value {
        None => None,
        Some(value) => Some(read(value)?),
    };
    let matching = written.r#match.as_ref();
    let operation = match patch.operation() {
        // Only lists of filters and routes have places to insert at.
        Operation::InsertAfter | Operation::InsertBefore | Operation::InsertFirst
            if !is_ordered(written.apply_to()) =>
        {
            Operation::Add
        }
        operation => operation,
    };
    Some(Patch {
        id,
        operation,
        context: matching.map_or(PatchContext::Any, EnvoyConfigObjectMatch::context),
        matching: matching.and_then(|matching| matching.object_types.clone()),
        value,
    })
}

fn is_ordered(apply_to: ApplyTo) -> bool {
    matches!(
        apply_to,
        ApplyTo::HttpFilter | ApplyTo::NetworkFilter | ApplyTo::HttpRoute | ApplyTo::ListenerFilter
    )
}

/// Fields that this build does not know are left out: the patch may be meant for another version too.
fn read<M: Message + Name + Default>(value: &Struct) -> Option<M> {
    json::read(&json::write(value), Unknown::Report).ok().map(|read| read.value)
}

/// Why the value of a patch cannot be read as what it applies to; `None` if it can.
pub(crate) fn problem(written: &EnvoyConfigObjectPatch) -> Option<String> {
    fn unreadable<M: Message + Name + Default>(value: &Struct) -> Option<String> {
        let read = json::read::<M>(&json::write(value), Unknown::Report);
        read.err().map(|error| format!("not a {}: {error}", M::full_name()))
    }
    let value = written.patch.as_ref()?.value.as_ref()?;
    match written.apply_to() {
        ApplyTo::Cluster => unreadable::<Cluster>(value),
        ApplyTo::Listener => unreadable::<Listener>(value),
        ApplyTo::ListenerFilter => unreadable::<ListenerFilter>(value),
        ApplyTo::FilterChain => unreadable::<FilterChain>(value),
        ApplyTo::NetworkFilter => unreadable::<Filter>(value),
        ApplyTo::HttpFilter => unreadable::<HttpFilter>(value),
        ApplyTo::RouteConfiguration => unreadable::<RouteConfiguration>(value),
        ApplyTo::VirtualHost => unreadable::<VirtualHost>(value),
        ApplyTo::HttpRoute => unreadable::<Route>(value),
        ApplyTo::ExtensionConfig => unreadable::<TypedExtensionConfig>(value),
        ApplyTo::Bootstrap | ApplyTo::Invalid => None,
    }
}
