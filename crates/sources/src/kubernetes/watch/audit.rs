//! The audit of a watch: now and then the objects are listed, and names and versions are compared with what the watch has
//! reported.
//!
//! A watch reports every change, and yet its result can differ from the truth: an etcd that was restored from an older copy
//! repeats resource versions, and a defect of a server or a proxy in between can lose an event. The listing asks for metadata
//! alone, page by page, while the watch goes on. What differs at first may only be on its way; it counts once the watch has
//! passed the version of the listing, or has had time to.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, sleep, sleep_until};

use super::page;
use crate::kubernetes::resource::Resource;
use crate::kubernetes::server::{Cluster, Failure};

/// How long the watch may take to report what a listing has shown. Servers send a bookmark about every minute.
const PATIENCE: Duration = Duration::from_secs(90);

/// The pause between two pages: an audit is never urgent.
const PAGE_PAUSE: Duration = Duration::from_millis(50);

/// The most objects that a report names.
const MAX_NAMED: usize = 5;

/// The resource version of each object, by a keyed hash of its name: some twenty bytes for an object, whatever its name is.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    keys: RandomState,
    versions: BTreeMap<u64, u64>,
    /// Objects that went since a listing began, while one is compared.
    removed: Option<BTreeSet<u64>>,
}

impl Versions {
    /// An empty record that hashes names as `self` does.
    fn cleared(&self) -> Self {
        Self { keys: self.keys.clone(), versions: BTreeMap::new(), removed: None }
    }

    /// Begins to remember what goes.
    fn track_removals(&mut self) {
        self.removed = Some(BTreeSet::new());
    }

    /// Ends to remember what goes.
    pub(super) fn forget_removals(&mut self) {
        self.removed = None;
    }

    fn is_removed(&self, key: u64) -> bool {
        self.removed.as_ref().is_some_and(|removed| removed.contains(&key))
    }

    /// Forgets all objects.
    pub(super) fn clear(&mut self) {
        self.versions.clear();
    }

    /// Notes that an object has this version.
    pub(super) fn insert(&mut self, namespace: &str, name: &str, version: &str) {
        let number = number(version).unwrap_or_else(|| self.keys.hash_one(version));
        self.versions.insert(self.keys.hash_one((namespace, name)), number);
    }

    /// Notes that an object is gone.
    pub(super) fn remove(&mut self, namespace: &str, name: &str) {
        let key = self.keys.hash_one((namespace, name));
        self.versions.remove(&key);
        if let Some(removed) = &mut self.removed {
            removed.insert(key);
        }
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.versions.get(&key).copied()
    }
}

/// A resource version as a number. Servers promise that versions of one resource can be compared; what is no number is
/// compared for equality alone.
pub(super) fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// Whether a version is older than one that the same server has shown before.
pub(super) fn is_older(version: &str, known: &str) -> bool {
    matches!((number(version), number(known)), (Some(version), Some(known)) if version < known)
}

/// What a listing has shown.
#[derive(Debug)]
pub(super) struct Listed {
    /// The version of the listing.
    pub(super) version: Box<str>,
    objects: Versions,
    /// Names for reports, by the hash of the name.
    names: BTreeMap<u64, Box<str>>,
}

/// What a listing and a watch say differently.
#[derive(Debug)]
pub(super) struct Difference {
    listed: Listed,
    keys: BTreeSet<u64>,
    until: Instant,
}

impl Difference {
    /// What differs between a listing and the objects of a watch; `None` if nothing does.
    pub(super) fn between(mut listed: Listed, known: &Versions) -> Option<Self> {
        let changed = listed.objects.versions.iter();
        let changed =
            changed.filter(|(key, version)| known.get(**key) != Some(**version)).map(|(key, _)| *key);
        let gone = known.versions.keys().filter(|key| listed.objects.get(**key).is_none()).copied();
        let keys: BTreeSet<u64> = changed.chain(gone).collect();
        listed.names.retain(|key, _| keys.contains(key));
        (!keys.is_empty()).then(|| Self { listed, keys, until: Instant::now() + PATIENCE })
    }

    /// When a difference that is left counts as one, whatever the watch has reported.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether the watch has reported all that the listing has shown, or has had time to.
    pub(super) fn is_due(&self, version: &str) -> bool {
        Instant::now() >= self.until || !is_older(version, &self.listed.version)
    }

    /// What is left of the difference, for people; `None` if the watch has reported all of it meanwhile.
    pub(super) fn rest(&self, known: &Versions) -> Option<String> {
        let at = number(&self.listed.version).unwrap_or(u64::MAX);
        let differs = |key: &&u64| match (known.get(**key), self.listed.objects.get(**key)) {
            // Reported after the listing, which therefore says nothing about it.
            (Some(known), _) if known > at => false,
            (None, _) if known.is_removed(**key) => false,
            (known, listed) => known != listed,
        };
        let left: Vec<&u64> = self.keys.iter().filter(differs).collect();
        if left.is_empty() {
            return None;
        }
        let mut names: Vec<&str> =
            left.iter().filter_map(|key| self.listed.names.get(*key)).map(|name| &**name).collect();
        names.sort_unstable();
        names.truncate(MAX_NAMED);
        let named = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        let count = left.len();
        Some(format!("{count} objects differed from a listing{named}: everything is listed anew"))
    }
}

type Listing = Pin<Box<dyn Future<Output = Result<Listed, Failure>> + Send>>;

/// Lists now and then.
pub(super) struct Audit {
    cluster: Cluster,
    resource: Resource,
    interval: Duration,
    due: Instant,
    listing: Option<Listing>,
}

impl Audit {
    /// Lists the resource about this often.
    pub(super) fn new(cluster: Cluster, resource: Resource, interval: Duration) -> Self {
        let due = Instant::now() + jittered(interval);
        Self { cluster, resource, interval, due, listing: None }
    }

    /// The resource is another version of the same now.
    pub(super) fn set_resource(&mut self, resource: Resource) {
        self.resource = resource;
    }

    /// Waits until a listing is due, and then for the listing. Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self, known: &mut Versions) -> Result<Listed, Failure> {
        if self.listing.is_none() {
            sleep_until(self.due).await;
        }
        let listing = self.listing.get_or_insert_with(|| {
            known.track_removals();
            Box::pin(list(self.cluster.clone(), self.resource.clone(), known.cleared()))
        });
        let listed = listing.as_mut().await;
        self.listing = None;
        self.due = Instant::now() + jittered(self.interval);
        listed
    }
}

/// Between half of a pause and all of it, so that kinds are not listed all at once.
fn jittered(pause: Duration) -> Duration {
    let share = u32::try_from(RandomState::new().hash_one(pause) % 512).unwrap_or_default();
    pause - pause / 1024 * share
}

#[derive(Deserialize)]
struct MetadataPage {
    #[serde(default)]
    metadata: page::ListMeta,
    #[serde(default)]
    items: Option<Vec<super::unread::Named>>,
}

/// Lists names and versions.
async fn list(cluster: Cluster, resource: Resource, mut objects: Versions) -> Result<Listed, Failure> {
    let mut names = BTreeMap::new();
    let mut token = String::new();
    let limit = page::SIZE.to_string();
    loop {
        let path = resource.path(&[("limit", &limit), ("continue", &token)]);
        let bytes = cluster.get(&path, Resource::METADATA_LIST, page::MAX_BYTES).await?;
        let page: MetadataPage =
            serde_json::from_slice(&bytes).map_err(|error| Failure::Malformed(error.to_string()))?;
        for super::unread::Named { metadata } in page.items.unwrap_or_default() {
            if !metadata.name.is_empty() {
                objects.insert(&metadata.namespace, &metadata.name, &metadata.version);
                let key = objects.keys.hash_one((&*metadata.namespace, &*metadata.name));
                names.insert(key, format!("{}/{}", metadata.namespace, metadata.name).into());
            }
        }
        token = page.metadata.next.unwrap_or_default();
        if token.is_empty() {
            let version = page.metadata.version.unwrap_or_default().into();
            return Ok(Listed { version, objects, names });
        }
        sleep(PAGE_PAUSE).await;
    }
}

/// The version that a resource is at.
pub(super) async fn current_version(cluster: &Cluster, resource: &Resource) -> Result<Box<str>, Failure> {
    let path = resource.path(&[("limit", "1")]);
    let bytes = cluster.get(&path, Resource::METADATA_LIST, page::MAX_BYTES).await?;
    let page: MetadataPage =
        serde_json::from_slice(&bytes).map_err(|error| Failure::Malformed(error.to_string()))?;
    Ok(page.metadata.version.unwrap_or_default().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(known: &Versions, version: &str, objects: &[(&str, &str)]) -> Listed {
        let mut listed = Listed { version: version.into(), objects: known.cleared(), names: BTreeMap::new() };
        for (name, version) in objects {
            listed.objects.insert("a", name, version);
            listed.names.insert(known.keys.hash_one(("a", *name)), format!("a/{name}").into());
        }
        listed
    }

    fn known(objects: &[(&str, &str)]) -> Versions {
        let mut known = Versions::default();
        for (name, version) in objects {
            known.insert("a", name, version);
        }
        known
    }

    #[tokio::test]
    async fn equal_listings_differ_in_nothing() {
        let known = known(&[("one", "5"), ("two", "7")]);
        let listed = listed(&known, "9", &[("two", "7"), ("one", "5")]);
        assert!(Difference::between(listed, &known).is_none());
    }

    #[tokio::test]
    async fn difference_ends_when_the_watch_reports_it() {
        let mut known = known(&[("one", "5"), ("gone", "6")]);
        let listed = listed(&known, "9", &[("one", "8"), ("new", "9")]);
        let difference = Difference::between(listed, &known).unwrap();
        assert!(!difference.is_due("7"));
        known.insert("a", "one", "8");
        known.remove("a", "gone");
        known.insert("a", "new", "12");
        assert!(difference.is_due("12"));
        assert_eq!(difference.rest(&known), None);
    }

    #[tokio::test(start_paused = true)]
    async fn difference_counts_when_the_watch_passed_the_listing_or_had_time_to() {
        let known = known(&[("one", "5"), ("gone", "6")]);
        let listed = listed(&known, "9", &[("one", "8")]);
        let difference = Difference::between(listed, &known).unwrap();
        assert!(difference.is_due("9") && !difference.is_due("8"));
        let rest = difference.rest(&known).unwrap();
        assert_eq!(rest, "2 objects differed from a listing (a/one): everything is listed anew");
        tokio::time::advance(PATIENCE).await;
        assert!(difference.is_due("8"));
    }

    #[tokio::test]
    async fn object_that_went_after_the_listing_began_makes_no_difference() {
        let mut known = known(&[("one", "5")]);
        known.track_removals();
        let listed = listed(&known, "9", &[("one", "5")]);
        known.remove("a", "one");
        let difference = Difference::between(listed, &known).unwrap();
        assert_eq!(difference.rest(&known), None);
        known.forget_removals();
        assert!(difference.rest(&known).is_some());
    }

    #[test]
    fn versions_that_are_no_numbers_are_never_older() {
        assert!(is_older("9", "10") && !is_older("10", "9") && !is_older("10", "10"));
        assert!(!is_older("a", "b") && !is_older("", "1") && !is_older("1", ""));
    }
}
