//! The xDS types that proxies are served, in one table.
//!
//! A [`Family`] is a row: the type and the names it has for users. [`Selection::new`] is the other half of the table: it says
//! which queries of the engine give a proxy its resources of a type. Subscriptions watch these queries, debug endpoints and
//! quarantine evaluate them on a snapshot, `why` follows what they read. Each of these is a [`QueryVisitor`], so that a type
//! that is served is also dumped and explained, and by the same queries.
//!
//! To serve another type, add a row, a variant of [`Selection`] and its two matches.

mod snapshot;

use std::sync::Arc;

use canopus_ambient::{Addresses, Authorizations, Form, Lookup, Question, Workloads};
use canopus_engine::{Key, Query};
use canopus_envoy::audience::{
    EndpointAudience, ExtensionAudience, NameTableAudience, SecretAudience, Shared, TableAudience,
};
use canopus_envoy::cluster::{ClusterList, ListedClusters};
use canopus_envoy::config_keys::ConfigKeys;
use canopus_envoy::endpoint::Assignment;
use canopus_envoy::extension::Extensions;
use canopus_envoy::listener::{ListedListeners, ListenerList};
use canopus_envoy::name_table::NameTables;
use canopus_envoy::proxyless;
use canopus_envoy::resources::Resources;
use canopus_envoy::route_config::Routes;
use canopus_envoy::secret::Secrets;
use canopus_mesh::proxy::Proxy;
use canopus_proto::resource::Resource;
use canopus_xds::{Interest, Names, types};

use crate::served_config::{self, ServedConfig};
use crate::trust_anchors::ProxyTrust;

/// A type of resources and the names that users know it by.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) type_url: &'static str,
    /// The name in debug endpoints.
    pub(crate) short_name: Option<&'static str>,
    /// The label in metrics.
    pub(crate) label: &'static str,
    /// The prefix of its nonces on the first level of the synchronisation status.
    pub(crate) status: Option<&'static str>,
    /// Whether quarantine looks for the objects behind a rejected resource.
    pub(crate) is_quarantined: bool,
}

/// A family that proxies are configured with.
const fn proxy_family(type_url: &'static str, short_name: &'static str, label: &'static str) -> Family {
    Family { type_url, short_name: Some(short_name), label, status: None, is_quarantined: true }
}

/// A family that ztunnels are told of, or of which proxies have nothing to get.
const fn other_family(
    type_url: &'static str,
    short_name: Option<&'static str>,
    label: &'static str,
) -> Family {
    Family { type_url, short_name, label, status: None, is_quarantined: false }
}

/// All families.
pub(crate) static FAMILIES: [Family; 12] = [
    Family { status: Some("cluster"), ..proxy_family(types::CLUSTER, "CDS", "cds") },
    Family { status: Some("listener"), ..proxy_family(types::LISTENER, "LDS", "lds") },
    Family { status: Some("route"), ..proxy_family(types::ROUTE, "RDS", "rds") },
    Family { status: Some("endpoint"), ..proxy_family(types::ENDPOINT, "EDS", "eds") },
    Family { status: Some("extensionconfig"), ..proxy_family(types::EXTENSION, "ECDS", "ecds") },
    proxy_family(types::SECRET, "SDS", "sds"),
    proxy_family(types::NAME_TABLE, "NDS", "nds"),
    other_family(types::ADDRESS, Some("WDS"), "wds"),
    other_family(types::WORKLOAD, None, "wds"),
    other_family(types::AUTHORIZATION, Some("WADS"), "wads"),
    other_family(types::PROXY_CONFIG, Some("PCDS"), "pcds"),
    other_family(types::BOOTSTRAP, None, "bds"),
];

impl Family {
    /// The family of a type.
    pub(crate) fn find(type_url: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.type_url == type_url)
    }

    /// The position of a type in the table.
    pub(crate) fn position(type_url: &str) -> Option<usize> {
        FAMILIES.iter().position(|family| family.type_url == type_url)
    }

    /// The type that a short name stands for, in upper or lower case. Any other name stands for itself.
    pub(crate) fn type_url_by_name(name: &str) -> &str {
        let is_called = |short: &str| short.eq_ignore_ascii_case(name);
        let family = FAMILIES.iter().find(|family| family.short_name.is_some_and(is_called));
        family.map_or(name, |family| family.type_url)
    }
}

/// The queries that give a proxy its resources of one type, for what it asked for.
///
/// Equal selections give equal resources, so proxies with equal selections share a subscription.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Selection {
    Clusters(Shared<ClusterList>),
    Listeners(Shared<ListenerList>),
    Routes(TableAudience, Names),
    Endpoints(Shared<EndpointAudience>, Names),
    Secrets(Shared<SecretAudience>, Names),
    Extensions(Shared<ExtensionAudience>, Names),
    NameTable(Shared<NameTableAudience>),
    ProxylessClusters(TableAudience, Names),
    ProxylessListeners(Proxy, Names),
    ProxylessRoutes(TableAudience, Names),
    Addresses,
    Workloads,
    /// Addresses or workloads on a node and those with these names, for clients that ask on demand.
    OnDemand(OnDemandForm, Arc<str>, Names),
    Authorizations,
    /// The roots that proxies trust beside the mesh's own.
    TrustAnchors,
    /// Objects of a kind of configuration, which is named by its type.
    Config(Box<str>),
}

/// What a client that asks on demand is told of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OnDemandForm {
    Address,
    Workload,
}

impl OnDemandForm {
    fn lookup(self) -> Form {
        match self {
            Self::Address => Form::Address,
            Self::Workload => Form::Workload,
        }
    }
}

/// Does something with the queries of a [`Selection`].
pub(crate) trait QueryVisitor: Sized {
    type Output;

    /// Visits a query that gives all resources.
    fn visit_set<Q: Query<Value = Resources>>(self, key: Q::Key) -> Self::Output;

    /// Visits a query that gives the only resource.
    fn visit_single<Q: Query<Value = Resource>>(self, key: Q::Key) -> Self::Output;

    /// Visits a query that gives the resource of one name, if there is one.
    fn visit_names<A: Key, Q: Query<Key = (A, String), Value = Option<Resource>>>(
        self,
        audience: &A,
        names: &Names,
    ) -> Self::Output;

    /// Each query gives some resources.
    fn visit_lists<Q: Query<Value = Vec<Resource>>>(self, keys: Vec<Q::Key>) -> Self::Output;
}

impl Selection {
    /// The queries for what a proxy asked for; `None` if there is nothing to get of this type.
    pub(crate) fn new(type_url: &str, proxy: &Proxy, keys: &ConfigKeys, interest: &Interest) -> Option<Self> {
        let audiences = &keys.audiences;
        let names = || interest.names().cloned().unwrap_or_default();
        let on_demand = |form| {
            let node = proxy.metadata.node_name.as_str().into();
            (!interest.is_wildcard()).then(|| Self::OnDemand(form, node, names()))
        };
        Some(match type_url {
            types::CLUSTER if proxy.is_proxyless() => {
                Self::ProxylessClusters(audiences.routes.clone(), names())
            }
            types::CLUSTER => Self::Clusters(keys.clusters.clone()),
            types::LISTENER if proxy.is_proxyless() => Self::ProxylessListeners(proxy.clone(), names()),
            types::LISTENER => Self::Listeners(keys.listeners.clone()),
            types::ROUTE if proxy.is_proxyless() => Self::ProxylessRoutes(audiences.routes.clone(), names()),
            types::ROUTE => Self::Routes(audiences.routes.clone(), names()),
            types::ENDPOINT => Self::Endpoints(audiences.endpoints.clone(), names()),
            types::SECRET => Self::Secrets(audiences.secrets.clone(), names()),
            types::EXTENSION => Self::Extensions(audiences.extensions.clone(), names()),
            types::NAME_TABLE => Self::NameTable(audiences.names.clone()),
            types::ADDRESS => on_demand(OnDemandForm::Address).unwrap_or(Self::Addresses),
            types::WORKLOAD => on_demand(OnDemandForm::Workload).unwrap_or(Self::Workloads),
            types::AUTHORIZATION => Self::Authorizations,
            types::PROXY_CONFIG => Self::TrustAnchors,
            _ if served_config::is_served(type_url) => Self::Config(type_url.into()),
            _ => return None,
        })
    }

    /// Shows the queries of the selection to a visitor.
    pub(crate) fn visit<V: QueryVisitor>(&self, visitor: V) -> V::Output {
        match self {
            Self::Clusters(list) => visitor.visit_set::<ListedClusters>(list.clone()),
            Self::Listeners(list) => visitor.visit_set::<ListedListeners>(list.clone()),
            Self::Routes(audience, names) => visitor.visit_names::<_, Routes>(audience, names),
            Self::Endpoints(audience, names) => visitor.visit_names::<_, Assignment>(audience, names),
            Self::Secrets(audience, names) => visitor.visit_names::<_, Secrets>(audience, names),
            Self::Extensions(audience, names) => visitor.visit_names::<_, Extensions>(audience, names),
            Self::NameTable(audience) => visitor.visit_single::<NameTables>(audience.clone()),
            Self::ProxylessClusters(audience, names) => {
                visitor.visit_names::<_, proxyless::Clusters>(audience, names)
            }
            Self::ProxylessListeners(proxy, names) => {
                let keys = names.iter().map(|name| (proxy.clone(), name.to_string()));
                visitor.visit_lists::<proxyless::Listeners>(keys.collect())
            }
            Self::ProxylessRoutes(audience, names) => {
                visitor.visit_names::<_, proxyless::Routes>(audience, names)
            }
            Self::Addresses => visitor.visit_lists::<Addresses>(vec![()]),
            Self::Workloads => visitor.visit_lists::<Workloads>(vec![()]),
            Self::OnDemand(form, node, names) => {
                let near = (!node.is_empty()).then(|| Question::Node(Arc::clone(node)));
                let asked = names.iter().map(|name| Question::Name(Arc::clone(name)));
                let questions = near.into_iter().chain(asked).map(|question| (form.lookup(), question));
                visitor.visit_lists::<Lookup>(questions.collect())
            }
            Self::Authorizations => visitor.visit_lists::<Authorizations>(vec![()]),
            Self::TrustAnchors => visitor.visit_lists::<ProxyTrust>(vec![()]),
            Self::Config(type_url) => visitor.visit_lists::<ServedConfig>(vec![type_url.clone()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_of_families_are_unambiguous() {
        let types: BTreeSet<_> = FAMILIES.iter().map(|family| family.type_url).collect();
        assert_eq!(types.len(), FAMILIES.len());
        for family in &FAMILIES {
            assert_eq!(Family::find(family.type_url).map(|found| found.label), Some(family.label));
            if let Some(short) = family.short_name {
                assert_eq!(Family::type_url_by_name(&short.to_lowercase()), family.type_url);
            }
        }
        assert_eq!(Family::type_url_by_name("unknown"), "unknown");
    }
}
