//! What a session gets of one type, kept up to date and shared by all sessions that get the same.

use std::sync::{Arc, Weak};

use canopus_ambient::{Addresses, Authorizations, Form, Lookup, Question, Workloads};
use canopus_base::FastMap;
use canopus_base::hash::ContentHash;
use canopus_engine::{Engine, Query, QueryError, Root, RootId};
use canopus_envoy::audience::{
    Audiences, EndpointAudience, ExtensionAudience, NameTableAudience, SecretAudience, Shared, TableAudience,
};
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
use canopus_xds::types::{self, Types};
use canopus_xds::{Change, Interest, ResourceSet, SetPool};
use parking_lot::Mutex;

use crate::objects::{self, Served};
use crate::push::{Beacon, Dispatcher, Light};
use crate::trust_anchors::ProxyTrust;

/// Watched results of one type, and the resources they add up to.
pub(super) struct Shelf {
    results: Box<dyn Results>,
    beacon: Arc<Beacon>,
    set: Mutex<ResourceSet>,
}

/// What tells one shelf from another.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    type_url: Box<str>,
    audience: Audience,
    /// The names asked for, where they make a difference.
    names: Option<ContentHash>,
}

/// Whose resources they are.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Audience {
    Proxy(Proxy),
    Endpoints(Shared<EndpointAudience>),
    Routes(TableAudience),
    Names(Shared<NameTableAudience>),
    Secrets(Shared<SecretAudience>),
    Extensions(Shared<ExtensionAudience>),
    /// Clients on a node that ask for single names.
    Node(Arc<str>),
    Everyone,
}

impl Key {
    /// The shelf with what a proxy gets of a type; `None` if nobody knows the type.
    pub(super) fn new(
        proxy: &Proxy,
        audiences: &Audiences,
        type_url: &str,
        interest: &Interest,
    ) -> Option<Self> {
        let library = proxy.is_proxyless();
        let own = || Audience::Proxy(proxy.clone());
        let names = || interest.names().map(canopus_xds::Names::digest);
        let (audience, names) = match type_url {
            types::CLUSTER | types::LISTENER if !library => (own(), None),
            types::LISTENER => (own(), names()),
            types::CLUSTER | types::ROUTE => (Audience::Routes(audiences.routes.clone()), names()),
            types::ENDPOINT => (Audience::Endpoints(audiences.endpoints.clone()), names()),
            types::SECRET => (Audience::Secrets(audiences.secrets.clone()), names()),
            types::EXTENSION => (Audience::Extensions(audiences.extensions.clone()), names()),
            types::NAME_TABLE => (Audience::Names(audiences.names.clone()), None),
            types::ADDRESS | types::WORKLOAD if !interest.is_wildcard() => {
                (Audience::Node(proxy.metadata.node_name.as_str().into()), names())
            }
            types::ADDRESS | types::WORKLOAD | types::AUTHORIZATION | types::PROXY_CONFIG => {
                (Audience::Everyone, None)
            }
            _ if objects::is_served(type_url) => (Audience::Everyone, None),
            _ => return None,
        };
        Some(Self { type_url: type_url.into(), audience, names })
    }

    /// Starts to watch everything the shelf is made of.
    fn watch(&self, engine: &Engine, interest: &Interest) -> Box<dyn Results> {
        let names = || interest.names().into_iter().flat_map(|names| names.iter());
        match &self.audience {
            Audience::Everyone => match &*self.type_url {
                types::ADDRESS => Box::new(Several(vec![engine.watch::<Addresses>(())])),
                types::WORKLOAD => Box::new(Several(vec![engine.watch::<Workloads>(())])),
                types::AUTHORIZATION => Box::new(Several(vec![engine.watch::<Authorizations>(())])),
                types::PROXY_CONFIG => Box::new(Several(vec![engine.watch::<ProxyTrust>(())])),
                objects => Box::new(Several(vec![engine.watch::<Served>(objects.into())])),
            },
            Audience::Node(node) => {
                let form = if *self.type_url == *types::WORKLOAD { Form::Workload } else { Form::Address };
                let near = (!node.is_empty()).then(|| Question::Node(Arc::clone(node)));
                let asked = names().map(|name| Question::Name(Arc::clone(name)));
                let questions = near.into_iter().chain(asked).map(|question| (form, question));
                Box::new(Several(engine.watch_all::<Lookup>(questions)))
            }
            Audience::Proxy(proxy) => match &*self.type_url {
                types::CLUSTER => Box::new(Whole(engine.watch::<Clusters>(proxy.clone()))),
                types::LISTENER if self.names.is_none() => {
                    Box::new(Whole(engine.watch::<Listeners>(proxy.clone())))
                }
                _ => {
                    let keys = names().map(|name| (proxy.clone(), name.to_string()));
                    Box::new(Several(engine.watch_all::<proxyless::Listeners>(keys)))
                }
            },
            Audience::Routes(audience) => match &*self.type_url {
                types::CLUSTER => Named::<proxyless::Clusters>::watch(engine, audience, interest),
                _ if audience.routes.is_proxyless() => {
                    Named::<proxyless::Routes>::watch(engine, audience, interest)
                }
                _ => Named::<Routes>::watch(engine, audience, interest),
            },
            Audience::Endpoints(audience) => Named::<Assignment>::watch(engine, audience, interest),
            Audience::Secrets(audience) => Named::<Secrets>::watch(engine, audience, interest),
            Audience::Extensions(audience) => Named::<Extensions>::watch(engine, audience, interest),
            Audience::Names(audience) => Box::new(Single(engine.watch::<NameTables>(audience.clone()))),
        }
    }
}

impl Shelf {
    pub(super) fn beacon(&self) -> &Arc<Beacon> {
        &self.beacon
    }

    /// What is on it now; equal sets of other shelves are shared.
    pub(super) fn read(&self, pool: &SetPool) -> Result<ResourceSet, QueryError> {
        let mut set = self.set.lock();
        let now = match self.beacon.take() {
            Light::Off => return Ok(set.clone()),
            Light::All => self.results.read(pool),
            Light::Results(roots) => match self.results.changes(&roots) {
                Some(changes) => changes.map(|changes| pool.change(&set, changes)),
                None => self.results.read(pool),
            },
        };
        *set = now.inspect_err(|_| self.beacon.light())?;
        Ok(set.clone())
    }
}

/// The shelves somebody stands before.
#[derive(Default)]
pub(super) struct Shelves {
    open: Mutex<Open>,
    /// What is on them: shelves of many proxies hold the same.
    pub(super) pool: SetPool,
}

#[derive(Default)]
struct Open {
    by_key: FastMap<Key, Weak<Shelf>>,
    /// Size at which shelves nobody needs are dropped next.
    sweep_at: usize,
}

const SMALLEST_SWEEP: usize = 256;

impl Shelves {
    /// The shelf of this key, made if nobody has it.
    pub(super) fn open(&self, dispatcher: &Dispatcher, key: Key, interest: &Interest) -> Arc<Shelf> {
        if let Some(shelf) = self.open.lock().by_key.get(&key).and_then(Weak::upgrade) {
            return shelf;
        }
        // Evaluating may take long. Two who make the same shelf at once share the results all the same.
        let results = key.watch(dispatcher.engine(), interest);
        let beacon = Beacon::new(Types::of(&key.type_url));
        // What changes from here on lights the beacon; it is lit now, so what changed before is read too.
        dispatcher.light(results.roots(), &beacon);
        beacon.light();
        let shelf = Arc::new(Shelf { results, beacon, set: Mutex::default() });
        let mut open = self.open.lock();
        if open.by_key.len() >= open.sweep_at {
            open.by_key.retain(|_, shelf| shelf.strong_count() > 0);
            open.sweep_at = SMALLEST_SWEEP.max(open.by_key.len() * 2);
        }
        open.by_key.insert(key, Arc::downgrade(&shelf));
        shelf
    }
}

/// Results that are watched together.
trait Results: Send + Sync {
    fn roots(&self) -> Vec<RootId>;

    /// What they add up to.
    fn read(&self, pool: &SetPool) -> Result<ResourceSet, QueryError>;

    /// What some of them say now, name by name; `None` if there is no knowing without a look at the others.
    fn changes(&self, _roots: &[RootId]) -> Option<Result<Vec<Change>, QueryError>> {
        None
    }
}

/// One result with all resources.
struct Whole<Q: Query>(Root<Q>);

impl<Q: Query<Value = Resources>> Results for Whole<Q> {
    fn roots(&self) -> Vec<RootId> {
        vec![self.0.id()]
    }

    fn read(&self, pool: &SetPool) -> Result<ResourceSet, QueryError> {
        self.0.value().map(|resources| pool.gather(resources.iter()))
    }
}

/// One result that is the only resource.
struct Single<Q: Query>(Root<Q>);

impl<Q: Query<Value = Resource>> Results for Single<Q> {
    fn roots(&self) -> Vec<RootId> {
        vec![self.0.id()]
    }

    fn read(&self, pool: &SetPool) -> Result<ResourceSet, QueryError> {
        self.0.value().map(|resource| pool.gather(std::iter::once(&*resource)))
    }
}

/// One result for each name, which may be nothing; in the order of their roots.
struct Named<Q: Query>(Vec<Root<Q>>);

impl<A: canopus_engine::Key, Q: Query<Key = (A, String), Value = Option<Resource>>> Named<Q> {
    /// Starts to watch the result of every name that is asked for.
    fn watch(engine: &Engine, audience: &A, interest: &Interest) -> Box<dyn Results> {
        let names = interest.names().into_iter().flat_map(|names| names.iter());
        let keys = names.map(|name| (audience.clone(), name.to_string()));
        let mut roots = engine.watch_all::<Q>(keys);
        roots.sort_unstable_by_key(Root::id);
        Box::new(Self(roots))
    }

    fn change(&self, root: RootId) -> Option<Result<Change, QueryError>> {
        let at = self.0.binary_search_by_key(&root, Root::id).ok()?;
        let (_, name) = self.0[at].key();
        let now = match self.0[at].value() {
            Ok(now) => now.as_ref().clone(),
            Err(error) => return Some(Err(error)),
        };
        // Something of another name would leave the name it had before unaccounted for.
        let is_named = now.as_ref().is_none_or(|resource| *resource.name == **name);
        is_named.then(|| Ok(Change { name: name.as_str().into(), now }))
    }
}

impl<A: canopus_engine::Key, Q: Query<Key = (A, String), Value = Option<Resource>>> Results for Named<Q> {
    fn roots(&self) -> Vec<RootId> {
        self.0.iter().map(Root::id).collect()
    }

    fn read(&self, pool: &SetPool) -> Result<ResourceSet, QueryError> {
        let found = self.0.iter().map(Root::value).collect::<Result<Vec<_>, _>>()?;
        Ok(pool.gather(found.iter().filter_map(|found| found.as_ref().as_ref())))
    }

    fn changes(&self, roots: &[RootId]) -> Option<Result<Vec<Change>, QueryError>> {
        roots.iter().map(|root| self.change(*root)).collect()
    }
}

/// Some resources for each name.
struct Several<Q: Query>(Vec<Root<Q>>);

impl<Q: Query<Value = Vec<Resource>>> Results for Several<Q> {
    fn roots(&self) -> Vec<RootId> {
        self.0.iter().map(Root::id).collect()
    }

    fn read(&self, pool: &SetPool) -> Result<ResourceSet, QueryError> {
        let found = self.0.iter().map(Root::value).collect::<Result<Vec<_>, _>>()?;
        Ok(pool.gather(found.iter().flat_map(|found| found.iter())))
    }
}
