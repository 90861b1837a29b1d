//! Shared subscriptions: the queries of one type, watched once for all sessions that get the same resources.
//!
//! A [`SharedSubscription`] watches the queries of one [`Selection`] and keeps the set of resources that they add up to. Its
//! [`ChangeSignal`] collects which of the queries have changed. The first session that reads the subscription after a change
//! looks at these queries alone and makes the next set; all others are given that set, which also knows how it differs from
//! the one before.
//!
//! A client with an overlay is served from a fork instead, where nothing is watched. What clients with the same overlay get of
//! one selection is evaluated once for each revision.
//!
//! Invariant: the signal is registered before the queries are read for the first time, and is pending from the start. A
//! change between the two is therefore never missed.

use std::sync::{Arc, Weak};

use canopus_base::FastMap;
use canopus_engine::{Engine, Key, Query, QueryError, Revision, Root, RootId};
use canopus_envoy::config_keys::ConfigKeysOf;
use canopus_envoy::resources::Resources;
use canopus_mesh::proxy::Proxy;
use canopus_proto::resource::Resource;
use canopus_xds::types::Types;
use canopus_xds::{Change, Interest, Names, ResourceSet, SetPool};
use parking_lot::Mutex;

use crate::family::{QueryVisitor, Selection};
use crate::push::{ChangeSignal, Dispatcher, Overlay, Pending};

/// The watched queries of a selection, and the resources they add up to.
pub(super) struct SharedSubscription {
    queries: Box<dyn WatchedQueries>,
    signal: Arc<ChangeSignal>,
    set: Mutex<ResourceSet>,
}

impl SharedSubscription {
    pub(super) fn signal(&self) -> &Arc<ChangeSignal> {
        &self.signal
    }

    /// The present resources. Equal sets of different subscriptions are one allocation.
    pub(super) fn read(&self, pool: &SetPool) -> Result<ResourceSet, QueryError> {
        let mut set = self.set.lock();
        let now = match self.signal.take() {
            Pending::Nothing => return Ok(set.clone()),
            Pending::All => self.queries.read(pool),
            Pending::Results(roots) => match self.queries.changes(&roots) {
                Some(changes) => changes.map(|changes| pool.change(&set, changes)),
                None => self.queries.read(pool),
            },
        };
        *set = now.inspect_err(|_| self.signal.raise_all())?;
        Ok(set.clone())
    }
}

/// The subscriptions that sessions have.
#[derive(Default)]
pub(super) struct SharedSubscriptions {
    open: Mutex<OpenSubscriptions>,
    /// Held by the session that makes a subscription.
    opening: Mutex<()>,
    /// The resources of clients with an overlay, with the revision of the world they were made from.
    overlaid: Mutex<FastMap<(u64, Selection), (Revision, ResourceSet)>>,
    /// The sets of all subscriptions: those of many proxies are equal.
    pub(super) pool: SetPool,
}

#[derive(Default)]
struct OpenSubscriptions {
    by_selection: FastMap<Selection, Weak<SharedSubscription>>,
    /// The size at which subscriptions that no session has are dropped next.
    sweep_at: usize,
}

const SMALLEST_SWEEP: usize = 256;

/// Sets of clients with an overlay that are kept; of more, those of earlier revisions are dropped.
const MAX_OVERLAID: usize = 64;

impl SharedSubscriptions {
    /// The subscription to this selection that some session has.
    pub(super) fn find(&self, selection: &Selection) -> Option<Arc<SharedSubscription>> {
        self.open.lock().by_selection.get(selection).and_then(Weak::upgrade)
    }

    /// The subscription to this selection, made if no session has it.
    ///
    /// Selections of different workloads are mostly made from the same results. One after the other finds them; at the same time
    /// each would generate them for itself, as an evaluation does not see what others have under way on another stage.
    pub(super) fn open(
        &self,
        dispatcher: &Dispatcher,
        type_url: &str,
        selection: Selection,
    ) -> Arc<SharedSubscription> {
        let _turn = self.opening.lock();
        if let Some(open) = self.find(&selection) {
            return open;
        }
        // Evaluating may take long, and those who only look for a subscription must not wait for it.
        let queries = selection.visit(Watch(dispatcher.engine()));
        let signal = ChangeSignal::new(Types::only(type_url));
        dispatcher.signal_changes(queries.roots(), &signal);
        signal.raise_all();
        let made = Arc::new(SharedSubscription { queries, signal, set: Mutex::default() });
        let mut open = self.open.lock();
        if open.by_selection.len() >= open.sweep_at {
            open.by_selection.retain(|_, subscription| subscription.strong_count() > 0);
            open.sweep_at = SMALLEST_SWEEP.max(open.by_selection.len() * 2);
        }
        open.by_selection.insert(selection, Arc::downgrade(&made));
        made
    }

    /// The resources of a type for a client with an overlay; `None` if the type is not served to it.
    pub(super) fn overlaid(
        &self,
        dispatcher: &Dispatcher,
        overlay: &Overlay,
        proxy: &Proxy,
        type_url: &str,
        interest: &Interest,
    ) -> Result<Option<ResourceSet>, QueryError> {
        let (revision, engine) = overlay.engine(dispatcher.engine());
        let world = engine.snapshot();
        let keys = world.get::<ConfigKeysOf>(proxy)?;
        let Some(selection) = Selection::new(type_url, proxy, &keys, interest) else { return Ok(None) };
        let key = (overlay.id(), selection);
        if let Some((made_from, set)) = self.overlaid.lock().get(&key)
            && *made_from == revision
        {
            return Ok(Some(set.clone()));
        }
        let set = self.pool.gather(key.1.resources(&world)?.iter());
        let mut overlaid = self.overlaid.lock();
        if overlaid.len() >= MAX_OVERLAID {
            overlaid.retain(|_, (made_from, _)| *made_from == revision);
        }
        overlaid.insert(key, (revision, set.clone()));
        Ok(Some(set))
    }
}

/// Starts to watch the queries of a selection.
struct Watch<'a>(&'a Engine);

impl QueryVisitor for Watch<'_> {
    type Output = Box<dyn WatchedQueries>;

    fn visit_set<Q: Query<Value = Resources>>(self, key: Q::Key) -> Self::Output {
        Box::new(SetQuery { root: self.0.watch::<Q>(key), read: Mutex::default() })
    }

    fn visit_single<Q: Query<Value = Resource>>(self, key: Q::Key) -> Self::Output {
        Box::new(SingleQuery(self.0.watch::<Q>(key)))
    }

    fn visit_names<A: Key, Q: Query<Key = (A, String), Value = Option<Resource>>>(
        self,
        audience: &A,
        names: &Names,
    ) -> Self::Output {
        let keys = names.iter().map(|name| (audience.clone(), name.to_string()));
        let mut roots = self.0.watch_all::<Q>(keys);
        roots.sort_unstable_by_key(Root::id);
        Box::new(QueryByName(roots))
    }

    fn visit_lists<Q: Query<Value = Vec<Resource>>>(self, keys: Vec<Q::Key>) -> Self::Output {
        Box::new(ListQueries(self.0.watch_all::<Q>(keys)))
    }
}

/// Queries that are watched together.
trait WatchedQueries: Send + Sync {
    fn roots(&self) -> Vec<RootId>;

    /// The resources they add up to.
    fn read(&self, pool: &SetPool) -> Result<ResourceSet, QueryError>;

    /// What some of them say now, name by name; `None` if that cannot be told without the others.
    fn changes(&self, _roots: &[RootId]) -> Option<Result<Vec<Change>, QueryError>> {
        None
    }
}

/// One query with all resources.
struct SetQuery<Q: Query> {
    root: Root<Q>,
    /// The value that was read last.
    read: Mutex<Resources>,
}

impl<Q: Query<Value = Resources>> WatchedQueries for SetQuery<Q> {
    fn roots(&self) -> Vec<RootId> {
        vec![self.root.id()]
    }

    fn read(&self, pool: &SetPool) -> Result<ResourceSet, QueryError> {
        let now = self.root.value()?;
        self.read.lock().clone_from(&now);
        Ok(pool.gather(now.iter()))
    }

    fn changes(&self, _roots: &[RootId]) -> Option<Result<Vec<Change>, QueryError>> {
        let now = match self.root.value() {
            Ok(now) => now,
            Err(error) => return Some(Err(error)),
        };
        let mut read = self.read.lock();
        let names = now.names_changed_since(&read)?;
        read.clone_from(&now);
        let change = |name: Arc<str>| Change { now: now.get(&name).cloned(), name };
        Some(Ok(names.into_iter().map(change).collect()))
    }
}

/// One query with the only resource.
struct SingleQuery<Q: Query>(Root<Q>);

impl<Q: Query<Value = Resource>> WatchedQueries for SingleQuery<Q> {
    fn roots(&self) -> Vec<RootId> {
        vec![self.0.id()]
    }

    fn read(&self, pool: &SetPool) -> Result<ResourceSet, QueryError> {
        self.0.value().map(|resource| pool.gather(std::iter::once(&*resource)))
    }
}

/// One query for each name, which may give nothing; sorted by root.
struct QueryByName<Q: Query>(Vec<Root<Q>>);

impl<A: Key, Q: Query<Key = (A, String), Value = Option<Resource>>> QueryByName<Q> {
    fn change(&self, root: RootId) -> Option<Result<Change, QueryError>> {
        let at = self.0.binary_search_by_key(&root, Root::id).ok()?;
        let (_, name) = self.0[at].key();
        let now = match self.0[at].value() {
            Ok(now) => now.as_ref().clone(),
            Err(error) => return Some(Err(error)),
        };
        // A resource of another name would leave the name it had before unaccounted for.
        let is_named = now.as_ref().is_none_or(|resource| *resource.name == **name);
        is_named.then(|| Ok(Change { name: name.as_str().into(), now }))
    }
}

impl<A: Key, Q: Query<Key = (A, String), Value = Option<Resource>>> WatchedQueries for QueryByName<Q> {
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

/// Queries that each give some resources.
struct ListQueries<Q: Query>(Vec<Root<Q>>);

impl<Q: Query<Value = Vec<Resource>>> WatchedQueries for ListQueries<Q> {
    fn roots(&self) -> Vec<RootId> {
        self.0.iter().map(Root::id).collect()
    }

    fn read(&self, pool: &SetPool) -> Result<ResourceSet, QueryError> {
        let found = self.0.iter().map(Root::value).collect::<Result<Vec<_>, _>>()?;
        Ok(pool.gather(found.iter().flat_map(|found| found.iter())))
    }
}
