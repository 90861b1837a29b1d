//! What a client gets, computed on the spot.

use canopus_engine::{Key, Query, QueryError, Snapshot};
use canopus_envoy::audience::AudiencesOf;
use canopus_envoy::cluster::Clusters;
use canopus_envoy::endpoint::Assignment;
use canopus_envoy::extension::Extensions;
use canopus_envoy::listener::Listeners;
use canopus_envoy::name_table::NameTables;
use canopus_envoy::proxyless;
use canopus_envoy::resources::Resources;
use canopus_envoy::route_config::Routes;
use canopus_envoy::secret::Secrets;
use canopus_mesh::proxy::Proxy;
use canopus_proto::resource::Resource;
use canopus_xds::{Interest, types};

use crate::push::Connection;

/// What a client gets of one type it watches; nothing if it does not watch it.
pub(crate) fn of_client(
    world: &Snapshot,
    client: &Connection,
    type_url: &str,
) -> Result<Vec<Resource>, QueryError> {
    let interest = client.status(type_url).and_then(|status| status.interest);
    let Some(interest) = interest else { return Ok(Vec::new()) };
    let (proxy, audiences) = (&client.proxy, world.get::<AudiencesOf>(&client.proxy)?);
    let asked = Asked { world, proxy, interest: &interest };
    match type_url {
        types::CLUSTER if proxy.is_proxyless() => asked.named::<_, proxyless::Clusters>(&audiences.routes),
        types::CLUSTER => asked.all::<Clusters>(),
        types::LISTENER if proxy.is_proxyless() => asked.library_listeners(),
        types::LISTENER => asked.all::<Listeners>(),
        types::ENDPOINT => asked.named::<_, Assignment>(&audiences.endpoints),
        types::ROUTE if proxy.is_proxyless() => asked.named::<_, proxyless::Routes>(&audiences.routes),
        types::ROUTE => asked.named::<_, Routes>(&audiences.routes),
        types::SECRET => asked.named::<_, Secrets>(&audiences.secrets),
        types::EXTENSION => asked.named::<_, Extensions>(&audiences.extensions),
        types::NAME_TABLE => Ok(vec![world.get::<NameTables>(&audiences.names)?.as_ref().clone()]),
        _ => Ok(Vec::new()),
    }
}

struct Asked<'a> {
    world: &'a Snapshot,
    proxy: &'a Proxy,
    interest: &'a Interest,
}

impl Asked<'_> {
    fn names(&self) -> impl Iterator<Item = String> {
        self.interest.names().into_iter().flat_map(|names| names.iter().map(ToString::to_string))
    }

    fn named<A: Key, Q: Query<Key = (A, String), Value = Option<Resource>>>(
        &self,
        audience: &A,
    ) -> Result<Vec<Resource>, QueryError> {
        let found = |name| self.world.get::<Q>(&(audience.clone(), name)).map(|found| found.as_ref().clone());
        self.names().filter_map(|name| found(name).transpose()).collect()
    }

    fn all<Q: Query<Key = Proxy, Value = Resources>>(&self) -> Result<Vec<Resource>, QueryError> {
        Ok(self.world.get::<Q>(self.proxy)?.iter().cloned().collect())
    }

    fn library_listeners(&self) -> Result<Vec<Resource>, QueryError> {
        let mut all = Vec::new();
        for name in self.names() {
            all.extend(self.world.get::<proxyless::Listeners>(&(self.proxy.clone(), name))?.iter().cloned());
        }
        Ok(all)
    }
}
