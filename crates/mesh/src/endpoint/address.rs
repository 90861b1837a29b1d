//! Endpoints of ServiceEntries by address, to recognise proxies that are not pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_engine::{Ctx, Query};

use super::{Endpoint, Endpoints};
use crate::service::{Service, ServicesIn};
use crate::world::NamespacesWith;

/// An endpoint, and the service it is one of.
type Instance = (Arc<Service>, Arc<Endpoint>);

/// The ServiceEntry endpoints at an address, in one namespace, or in all if `namespace` is empty. Those of the oldest service
/// come first.
pub(crate) fn entry_endpoints_at(ctx: &Ctx<'_>, namespace: &str, address: &str) -> Vec<Instance> {
    let in_namespace =
        |namespace: Arc<str>| ctx.get::<EntryEndpointsAt>(&(namespace, address.into())).to_vec();
    if !namespace.is_empty() {
        return in_namespace(namespace.into());
    }
    let namespaces = ctx.get::<NamespacesWith>(&Kind::ServiceEntry);
    let mut found: Vec<_> = namespaces.iter().cloned().flat_map(in_namespace).collect();
    found.sort_by(|(a, _), (b, _)| {
        (a.created, &a.name, &a.namespace).cmp(&(b.created, &b.name, &b.namespace))
    });
    found
}

/// The ServiceEntry endpoints of a namespace at one address.
struct EntryEndpointsAt;

impl Query for EntryEndpointsAt {
    const NAME: &'static str = "entry_endpoints_at";
    /// Namespace and address.
    type Key = (Arc<str>, Arc<str>);
    type Value = Vec<Instance>;

    fn run(ctx: &Ctx<'_>, (namespace, address): &Self::Key) -> Self::Value {
        ctx.get::<EntryEndpoints>(namespace).get(address).cloned().unwrap_or_default()
    }
}

/// The endpoints of all ServiceEntries of a namespace, by their first address.
struct EntryEndpoints;

impl Query for EntryEndpoints {
    const NAME: &'static str = "entry_endpoints";
    type Key = Arc<str>;
    type Value = BTreeMap<Arc<str>, Vec<Instance>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let mut found = Self::Value::new();
        let services = ctx.get::<ServicesIn>(namespace);
        for service in services.iter().filter(|service| !service.is_kubernetes()) {
            for endpoint in ctx.get::<Endpoints>(&service.key()).iter() {
                if let Some(address) = endpoint.addresses.first() {
                    found.entry(address.clone()).or_default().push((service.clone(), endpoint.clone()));
                }
            }
        }
        found
    }
}
