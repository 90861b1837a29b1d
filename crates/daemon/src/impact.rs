//! What a batch would change at the proxies that are connected, found out on a fork of the engine.
//!
//! The fork watches what the engine watches. Applying the batch to it therefore names the results that would change, and
//! the change signals of the push path name the sessions that these results concern, by type: the very ones that would be
//! woken. Only they are compared, and those that are served from the same selection share the comparison.
//!
//! A cluster or listener that is new makes a proxy ask for more, and one that goes makes it forget something. So names that
//! follow from what a proxy would be sent are compared too.
//!
//! Nothing is written: the fork is dropped, and no session is told of anything. Clients that quarantine serves other values
//! are compared as if it did not.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_base::FastMap;
use canopus_base::hash::ContentHash;
use canopus_engine::{Batch, QueryError, Snapshot};
use canopus_envoy::bundle::References;
use canopus_envoy::config_keys::{ConfigKeys, ConfigKeysOf};
use canopus_envoy::impact::{Difference, Impact, ResourceType, differences, repeated_endpoints};
use canopus_envoy::patch_report::Report;
use canopus_proto::resource::Resource;
use canopus_xds::types::{self, Types};
use canopus_xds::{Interest, Names};

use crate::family::Selection;
use crate::push::{Connection, ConnectionId, Dispatcher};

/// Two states of the world, and the sessions for which they may differ.
pub(crate) struct Worlds {
    pub(crate) before: Snapshot,
    pub(crate) after: Snapshot,
    affected: FastMap<ConnectionId, Types>,
}

impl Worlds {
    /// The present world, and as it would be after this batch.
    pub(crate) fn after(dispatcher: &Dispatcher, batch: Batch) -> Self {
        Self::between(dispatcher, Batch::new(), batch)
    }

    /// The present world with one batch, and with two.
    pub(crate) fn between(dispatcher: &Dispatcher, first: Batch, second: Batch) -> Self {
        let fork = dispatcher.engine().fork();
        // What the first batch changes is the difference from the present, which nobody asks for; but a session that it
        // concerns may subscribe to something else afterwards, so it is looked at too.
        let mut changed = fork.apply(first).changed;
        let before = fork.snapshot();
        changed.extend(fork.apply(second).changed);
        let after = fork.snapshot();
        let affected = dispatcher.concerned(&changed);
        Self { before, after, affected: affected.into_iter().collect() }
    }

    /// What differs at the proxies that are connected.
    pub(crate) fn impact(&self, clients: &[Arc<Connection>]) -> Result<Impact, QueryError> {
        let mut comparison =
            Comparison { worlds: self, compared: FastMap::default(), found: FastMap::default() };
        let proxies: Result<Vec<(String, Vec<Difference>)>, QueryError> = clients
            .iter()
            .map(|client| Ok((client.proxy.id.id.clone(), comparison.client(client)?)))
            .collect();
        Ok(Impact::new(proxies?))
    }

    /// The patches of EnvoyFilters that proxies would refuse the result of after the change and not before, in words.
    pub(crate) fn refused_patches(
        &self,
        clients: &[Arc<Connection>],
    ) -> Result<BTreeSet<String>, QueryError> {
        let mut refused = BTreeSet::new();
        for client in clients.iter().filter(|client| self.affected.contains_key(&client.id)) {
            let before = self.before.get::<Report>(&client.proxy)?;
            for one in self.after.get::<Report>(&client.proxy)?.iter() {
                if one.outcome.remedy().is_none() || before.contains(one) {
                    continue;
                }
                refused.insert(format!(
                    "EnvoyFilter/{}/{}: spec.configPatches[{}]: {} for {}: {}",
                    one.patch.filter.namespace(),
                    one.patch.filter.name(),
                    one.patch.index,
                    one.outcome.name(),
                    one.apply_to,
                    one.outcome.remedy().unwrap_or_default()
                ));
            }
        }
        Ok(refused)
    }
}

type Selections = (Option<Selection>, Option<Selection>);

/// Compares what clients get, each selection once.
struct Comparison<'a> {
    worlds: &'a Worlds,
    compared: FastMap<(&'static str, Selections), Arc<Vec<Difference>>>,
    /// What clusters and listeners refer to, by version.
    found: FastMap<ContentHash, Arc<References>>,
}

impl Comparison<'_> {
    fn client(&mut self, client: &Connection) -> Result<Vec<Difference>, QueryError> {
        let Some(affected) = self.worlds.affected.get(&client.id).copied() else { return Ok(Vec::new()) };
        let old = self.worlds.before.get::<ConfigKeysOf>(&client.proxy)?;
        let new = self.worlds.after.get::<ConfigKeysOf>(&client.proxy)?;
        let mut all = Vec::new();
        for (type_url, status) in client.types() {
            let (Some(kind), Some(interest)) = (ResourceType::from_type_url(&type_url), status.interest)
            else {
                continue;
            };
            let select = |keys: &ConfigKeys| Selection::new(&type_url, &client.proxy, keys, &interest);
            let selections = (select(&old), select(&new));
            if selections.0 != selections.1 || affected.intersects(Types::only(&type_url)) {
                all.extend(self.selections(kind, selections)?.iter().cloned());
            }
        }
        if !client.proxy.is_proxyless() {
            self.follow(client, (&old, &new), &mut all)?;
        }
        Ok(all)
    }

    fn selections(
        &mut self,
        kind: ResourceType,
        selections: Selections,
    ) -> Result<Arc<Vec<Difference>>, QueryError> {
        let key = (kind.name(), selections);
        if let Some(compared) = self.compared.get(&key) {
            return Ok(Arc::clone(compared));
        }
        let evaluate = |selection: &Option<Selection>, world: &Snapshot| match selection {
            Some(selection) => selection.resources(world),
            None => Ok(Vec::new()),
        };
        let before = evaluate(&key.1.0, &self.worlds.before)?;
        let after = evaluate(&key.1.1, &self.worlds.after)?;
        let compared = Arc::new(differences(kind, &before, &after));
        self.compared.insert(key, Arc::clone(&compared));
        Ok(compared)
    }

    /// Adds what a proxy would ask for or forget because of clusters and listeners that differ, and endpoints that are sent
    /// again with their cluster.
    fn follow(
        &mut self,
        client: &Connection,
        (old, new): (&ConfigKeys, &ConfigKeys),
        all: &mut Vec<Difference>,
    ) -> Result<(), QueryError> {
        let refers = |one: &&Difference| matches!(one.kind, ResourceType::Cluster | ResourceType::Listener);
        let roots: Vec<Difference> = all.iter().filter(refers).cloned().collect();
        if roots.is_empty() {
            return Ok(());
        }
        let mut gone = References::default();
        let mut wanted = References::default();
        for root in &roots {
            for (resource, names) in [(&root.before, &mut gone), (&root.after, &mut wanted)] {
                if let Some(resource) = resource {
                    extend(names, &self.references(root.kind, resource));
                }
            }
        }
        let is_lost =
            |(type_url, _): &(&str, _)| !names_of(&gone, type_url).is_subset(names_of(&wanted, type_url));
        if FOLLOWED.iter().any(is_lost) {
            // Something else may refer to it still.
            for (kind, list) in [
                (ResourceType::Listener, Selection::Listeners(new.listeners.clone())),
                (ResourceType::Cluster, Selection::Clusters(new.clusters.clone())),
            ] {
                for resource in list.resources(&self.worlds.after)? {
                    extend(&mut wanted, &self.references(kind, &resource));
                }
            }
        }
        for (type_url, kind) in FOLLOWED {
            let interest = client.status(type_url).and_then(|status| status.interest);
            let known = |name: &str| interest.as_ref().is_some_and(|interest| interest.covers(name));
            let (gone, wanted) = (names_of(&gone, type_url), names_of(&wanted, type_url));
            let asked: Vec<&str> = wanted.iter().map(String::as_str).filter(|name| !known(name)).collect();
            let forgotten: BTreeSet<&str> =
                gone.difference(wanted).map(String::as_str).filter(|name| known(name)).collect();
            let names = |names: Vec<&str>| Interest::Names(Names::new(names));
            let evaluate = |keys: &ConfigKeys, world: &Snapshot, interest: &Interest| {
                let selection = Selection::new(type_url, &client.proxy, keys, interest);
                selection.map_or_else(|| Ok(Vec::new()), |selection| selection.resources(world))
            };
            let found = evaluate(new, &self.worlds.after, &names(asked))?;
            all.extend(differences(kind, &[], &found));
            if !forgotten.is_empty() {
                all.retain(|one| one.kind != kind || !forgotten.contains(&*one.name));
                let lost = evaluate(old, &self.worlds.before, &names(forgotten.into_iter().collect()))?;
                all.extend(differences(kind, &lost, &[]));
            }
        }
        let repeated = repeated_endpoints(all, |name| {
            let interest = Interest::Names(Names::new([name]));
            let selection = Selection::new(types::ENDPOINT, &client.proxy, new, &interest)?;
            selection.resources(&self.worlds.after).ok()?.pop()
        });
        all.extend(repeated);
        Ok(())
    }

    fn references(&mut self, kind: ResourceType, resource: &Resource) -> Arc<References> {
        let find = || {
            let resource = std::slice::from_ref(resource);
            Arc::new(match kind {
                ResourceType::Cluster => References::find(resource, &[]),
                _ => References::find(&[], resource),
            })
        };
        Arc::clone(self.found.entry(resource.version).or_insert_with(find))
    }
}

/// The types that proxies ask for by names that clusters and listeners have given them.
const FOLLOWED: [(&str, ResourceType); 4] = [
    (types::ENDPOINT, ResourceType::Endpoint),
    (types::ROUTE, ResourceType::Route),
    (types::EXTENSION, ResourceType::Extension),
    (types::SECRET, ResourceType::Secret),
];

/// The names of one type in what is referred to.
fn names_of<'a>(references: &'a References, type_url: &str) -> &'a BTreeSet<String> {
    match type_url {
        types::ENDPOINT => &references.assignments,
        types::ROUTE => &references.routes,
        types::EXTENSION => &references.extensions,
        _ => &references.secrets,
    }
}

fn extend(references: &mut References, more: &References) {
    references.assignments.extend(more.assignments.iter().cloned());
    references.routes.extend(more.routes.iter().cloned());
    references.extensions.extend(more.extensions.iter().cloned());
    references.secrets.extend(more.secrets.iter().cloned());
}
