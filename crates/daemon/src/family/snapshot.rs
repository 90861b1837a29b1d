//! What the queries of a selection give and read in one revision of the world.

use canopus_api::Kind;
use canopus_engine::{Key, Query, QueryError, Read, Snapshot};
use canopus_envoy::cluster::{self, Clusters};
use canopus_envoy::listener::{self, Listeners};
use canopus_envoy::resources::Resources;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::Objects;
use canopus_proto::resource::Resource;
use canopus_xds::Names;

use super::{QueryVisitor, Selection};

impl Selection {
    /// All resources in a revision of the world.
    pub(crate) fn resources(&self, world: &Snapshot) -> Result<Vec<Resource>, QueryError> {
        self.visit(Evaluate(world))
    }

    /// All reads behind the resource of this name for a proxy, as the engine has recorded them.
    pub(crate) fn reads(&self, world: &Snapshot, proxy: &Proxy, name: &str) -> Vec<Read> {
        match self {
            Self::Clusters(_) => {
                with_patches(cluster::reads_of(world, proxy, name), world.provenance::<Clusters>(proxy))
            }
            Self::Listeners(_) => {
                with_patches(listener::reads_of(world, proxy, name), world.provenance::<Listeners>(proxy))
            }
            _ => self.visit(Explain { world, name }),
        }
    }
}

/// Evaluates queries.
struct Evaluate<'a>(&'a Snapshot);

impl QueryVisitor for Evaluate<'_> {
    type Output = Result<Vec<Resource>, QueryError>;

    fn visit_set<Q: Query<Value = Resources>>(self, key: Q::Key) -> Self::Output {
        Ok(self.0.get::<Q>(&key)?.iter().cloned().collect())
    }

    fn visit_single<Q: Query<Value = Resource>>(self, key: Q::Key) -> Self::Output {
        Ok(vec![self.0.get::<Q>(&key)?.as_ref().clone()])
    }

    fn visit_names<A: Key, Q: Query<Key = (A, String), Value = Option<Resource>>>(
        self,
        audience: &A,
        names: &Names,
    ) -> Self::Output {
        let found = |name: String| self.0.get::<Q>(&(audience.clone(), name)).map(|it| it.as_ref().clone());
        names.iter().filter_map(|name| found(name.to_string()).transpose()).collect()
    }

    fn visit_lists<Q: Query<Value = Vec<Resource>>>(self, keys: Vec<Q::Key>) -> Self::Output {
        let mut all = Vec::new();
        for key in keys {
            all.extend(self.0.get::<Q>(&key)?.iter().cloned());
        }
        Ok(all)
    }
}

/// Collects what queries have read for the resource of a name.
struct Explain<'a> {
    world: &'a Snapshot,
    name: &'a str,
}

impl QueryVisitor for Explain<'_> {
    type Output = Vec<Read>;

    fn visit_set<Q: Query<Value = Resources>>(self, key: Q::Key) -> Vec<Read> {
        self.world.provenance::<Q>(&key)
    }

    fn visit_single<Q: Query<Value = Resource>>(self, key: Q::Key) -> Vec<Read> {
        self.world.provenance::<Q>(&key)
    }

    fn visit_names<A: Key, Q: Query<Key = (A, String), Value = Option<Resource>>>(
        self,
        audience: &A,
        _: &Names,
    ) -> Vec<Read> {
        self.world.provenance::<Q>(&(audience.clone(), self.name.to_owned()))
    }

    fn visit_lists<Q: Query<Value = Vec<Resource>>>(self, keys: Vec<Q::Key>) -> Vec<Read> {
        let has = |key: &Q::Key| {
            let found = self.world.get::<Q>(key);
            found.is_ok_and(|found| found.iter().any(|resource| resource.answers(self.name)))
        };
        keys.iter().find(|key| has(key)).map(|key| self.world.provenance::<Q>(key)).unwrap_or_default()
    }
}

/// What a resource was made from, given that and what all resources of its type were made from: EnvoyFilters patch resources
/// after they are made.
fn with_patches(made: Vec<Read>, all: Vec<Read>) -> Vec<Read> {
    let is_filter = |read: &Read| {
        read.subject.input::<Objects>().is_some_and(|origin| origin.key.kind == Kind::EnvoyFilter)
    };
    let is_new = |read: &Read| made.iter().all(|known| known.subject != read.subject);
    let patches = all.into_iter().filter(|read| is_filter(read) && is_new(read));
    let patches: Vec<Read> = patches.map(|read| Read { depth: 1, via: None, ..read }).collect();
    made.into_iter().chain(patches).collect()
}
