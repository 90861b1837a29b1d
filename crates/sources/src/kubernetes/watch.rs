//! Following one resource of an API server: list, then watch, for ever.
//!
//! A listing is asked for as a stream of the objects, which then goes on as the watch; servers that cannot do that are
//! asked for pages. A watch that ends is taken up where it ended. Everything is listed anew when the server no longer knows
//! what happened since (status 410), when its resource versions go backwards (a store that was restored from an older copy),
//! and when an [audit] finds a difference.
//!
//! By hand on `kube`'s client, as objects are decoded by `api`, which names the field that is wrong and lets the last good value
//! stand; the watcher of `kube::runtime` would decode them a first time for itself, and does not look for a restored store or a
//! lost event.

mod audit;
mod page;
mod unread;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use canopus_base::tree::Node;
use kube::client::Body;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::collector::{Message, Topic};
use super::lines::{Line, Lines};
use super::resource::Resource;
use super::server::{Cluster, Failure};
use crate::feed::Closed;
use crate::retry::Retry;
use audit::{Audit, Difference, Versions};
use page::Page;
pub(super) use unread::Unread;
use wire::{WireEvent, parse};

/// What a line of a watch tells of an object; `None` if it tells nothing of one.
pub(super) fn event_in_line(line: &[u8]) -> Option<WatchEvent> {
    match parse(line) {
        Ok(WireEvent::Object(object)) => Some(WatchEvent::Object(object)),
        Ok(WireEvent::Gone(object)) => Some(WatchEvent::Gone(object)),
        Ok(WireEvent::Bookmark(_) | WireEvent::Error(_)) => None,
        Err(failure) => Unread::in_line(line, failure.to_string()).map(|(unread, is_gone)| {
            if is_gone { WatchEvent::Gone(unread.outline()) } else { WatchEvent::Unread(unread) }
        }),
    }
}

/// An object larger than this is not read. The store behind an API server takes an eighth of it.
const MAX_OBJECT_BYTES: usize = 12 << 20;

/// Things told at once.
const CHUNK: usize = 256;

/// How long the server is asked to keep a watch up.
const WATCH_SECONDS: &str = "570";

/// The server sends a bookmark about every minute. Without a word for this long the connection is taken for dead.
const SILENCE: Duration = Duration::from_secs(150);

/// A definition with its schemas takes a few hundred KiB at most.
const MAX_DEFINITION_BYTES: usize = 8 << 20;

/// What is told of the resource.
#[derive(Debug)]
pub(super) enum WatchEvent {
    /// A listing begins.
    Begin,
    /// An object that was added or changed.
    Object(Node),
    /// An object is gone; this is what it was.
    Gone(Node),
    /// The listing is complete.
    End,
    /// All is known again, without a listing.
    Live,
    /// The watch failed permanently.
    Lost(String),
    /// The API server has no such resource, or does not let us read it.
    Absent(String),
    /// An object that cannot be read; its last readable version stays.
    Unread(Unread),
    /// A line that cannot be read and names no object.
    Problem(String),
}

/// How listings are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listing {
    /// As a stream where the server can, else in pages.
    #[default]
    Stream,
    /// In pages of at most so many objects.
    Pages(usize),
}

/// Follows a resource.
pub(super) struct Watch {
    cluster: Cluster,
    resource: Resource,
    listing: Listing,
    /// Whether the mesh can do without.
    optional: bool,
    retry: Retry,
    /// Whether an object of the listing could not be read.
    incomplete: bool,
    /// The objects that were reported.
    known: Versions,
    audit: Audit,
    /// What the last audit found, while it may still be on its way.
    difference: Option<Difference>,
}

/// How a resource is followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchOptions {
    /// How listings are asked for.
    pub(super) listing: Listing,
    /// Whether the mesh can do without the resource.
    pub(super) optional: bool,
    /// How often an audit compares the watch with a listing.
    pub(super) audit_interval: Duration,
}

/// Why following ended.
enum Ended {
    Closed,
    Failed(Failure),
}

impl From<Closed> for Ended {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Where a watch stands: the version of what was last told, and the stream that goes on from there, if one is open.
struct Standing {
    version: Box<str>,
    lines: Option<Lines<Body>>,
    /// Whether the listing is complete: what follows are changes.
    is_listed: bool,
}

/// Where it is told.
pub(super) struct Out {
    topic: Topic,
    queue: mpsc::Sender<Message>,
}

impl Out {
    pub(super) fn new(topic: Topic, queue: mpsc::Sender<Message>) -> Self {
        Self { topic, queue }
    }

    pub(super) async fn tell(&self, told: Vec<WatchEvent>) -> Result<(), Closed> {
        if told.is_empty() {
            return Ok(());
        }
        self.queue.send(self.topic.message(told)).await.map_err(|_| Closed)
    }
}

impl Watch {
    pub(super) fn new(cluster: Cluster, resource: Resource, options: WatchOptions) -> Self {
        let WatchOptions { listing, optional, audit_interval } = options;
        Self {
            audit: Audit::new(cluster.clone(), resource.clone(), audit_interval),
            cluster,
            resource,
            listing,
            optional,
            retry: Retry::default(),
            incomplete: false,
            known: Versions::default(),
            difference: None,
        }
    }

    /// Follows the resource until nobody listens. Lists anew whenever asked to.
    pub(super) async fn run(mut self, relist: Arc<Notify>, out: Out) {
        loop {
            let ended = tokio::select! {
                ended = self.list_and_follow(&out) => ended,
                () = relist.notified() => continue,
            };
            let result = match ended {
                Ended::Closed => return,
                Ended::Failed(failure) => self.cope(failure, &out).await,
            };
            if result.is_err() {
                return;
            }
        }
    }

    async fn list_and_follow(&mut self, out: &Out) -> Ended {
        let listed = match self.listing {
            Listing::Stream => self.list_stream(out).await,
            Listing::Pages(size) => self.list_pages(size, out).await,
        };
        let mut standing = match listed {
            Ok(standing) => standing,
            Err(ended) => return ended,
        };
        loop {
            let followed = match self.follow(&mut standing, out).await {
                Err(Ended::Failed(failure)) if !failure.needs_listing() => self.lose(&failure, out).await,
                Err(ended) => return ended,
                Ok(()) => Ok(()),
            };
            if followed.is_err() {
                return Ended::Closed;
            }
        }
    }

    /// Does what a failed listing, or the end of what the server remembers, asks for.
    async fn cope(&mut self, failure: Failure, out: &Out) -> Result<(), Closed> {
        if failure.is_invalid() && self.listing == Listing::Stream {
            tracing::debug!(resource = self.resource.path(&[]), %failure, "lists are asked for in pages");
            self.listing = Listing::Pages(page::SIZE);
            return Ok(());
        }
        if failure.is_not_found() && self.resource.next_version() {
            self.audit.set_resource(self.resource.clone());
            return Ok(());
        }
        let is_absent = match failure.is_not_found() {
            true => !self.is_to_be_served().await,
            false => failure.is_forbidden() && self.optional,
        };
        if is_absent {
            out.tell(vec![WatchEvent::Absent(failure.to_string())]).await?;
            sleep(self.retry.pause()).await;
            return Ok(());
        }
        if failure.is_not_found() {
            let reason = "its definition is there, but the server does not serve it yet";
            out.tell(vec![WatchEvent::Lost(format!("{reason}: {failure}"))]).await?;
            sleep(self.retry.pause()).await;
            return Ok(());
        }
        if failure.is_inconsistent() {
            out.tell(vec![WatchEvent::Problem(failure.to_string())]).await?;
        }
        self.lose(&failure, out).await
    }

    /// Whether a resource that is not found will be there in a moment: a server that starts, or has just been taught a kind,
    /// has the definition before it serves the objects. Nobody may take that for a cluster without objects of the kind.
    async fn is_to_be_served(&mut self) -> bool {
        let Some(path) = self.resource.definition_path() else { return false };
        match self.cluster.get(&path, "application/json", MAX_DEFINITION_BYTES).await {
            Ok(definition) => serves(&definition, self.resource.versions()),
            Err(failure) => !failure.is_not_found(),
        }
    }

    /// Pauses; tells of the failure unless it was the first: connections come and go, and the next one may do.
    async fn lose(&mut self, failure: &Failure, out: &Out) -> Result<(), Closed> {
        if self.retry.is_failing() && !failure.needs_listing() {
            out.tell(vec![WatchEvent::Lost(failure.to_string())]).await?;
        }
        sleep(self.retry.pause()).await;
        Ok(())
    }

    async fn list_stream(&mut self, out: &Out) -> Result<Standing, Ended> {
        let parameters = [
            ("watch", "true"),
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", WATCH_SECONDS),
        ];
        let path = self.resource.path(&parameters);
        let body = self.cluster.stream(&path, self.resource.object_type()).await?;
        let mut lines = Lines::new(body, MAX_OBJECT_BYTES);
        self.begin(out).await?;
        let mut standing = Standing { version: Box::default(), lines: None, is_listed: false };
        loop {
            let read = self.read(&mut lines, &mut standing, out).await?;
            if read.listed {
                standing.lines = Some(lines);
                return Ok(standing);
            }
            if read.ended {
                return Err(Failure::Transport("the listing ended before it was complete".to_owned()).into());
            }
        }
    }

    async fn begin(&mut self, out: &Out) -> Result<(), Closed> {
        self.incomplete = false;
        self.known.clear();
        self.difference = None;
        out.tell(vec![WatchEvent::Begin]).await
    }

    async fn list_pages(&mut self, mut size: usize, out: &Out) -> Result<Standing, Ended> {
        self.begin(out).await?;
        let mut token = String::new();
        loop {
            let limit = size.to_string();
            let path = self.resource.path(&[("limit", &limit), ("continue", &token)]);
            let answer = self.cluster.get(&path, self.resource.list_type(), page::MAX_BYTES).await;
            let bytes = match answer {
                Err(Failure::TooLarge(_)) if size > 1 => {
                    size = (size / 4).max(1);
                    continue;
                }
                answer => answer?,
            };
            let page = Page::read(bytes).await?;
            let mut items =
                page.items.into_iter().map(|item| self.item(item)).collect::<Vec<_>>().into_iter().peekable();
            while items.peek().is_some() {
                out.tell(items.by_ref().take(CHUNK).collect()).await?;
            }
            token = page.next;
            if token.is_empty() {
                self.retry.reset();
                out.tell(vec![self.end()]).await?;
                return Ok(Standing { version: page.version, lines: None, is_listed: true });
            }
        }
    }

    /// What an item of a page says.
    fn item(&mut self, item: Result<Node, Unread>) -> WatchEvent {
        match item {
            Ok(object) => {
                self.note(&object);
                WatchEvent::Object(object)
            }
            Err(unread) if unread.name.is_empty() => {
                self.incomplete = true;
                WatchEvent::Problem(unread.reason)
            }
            Err(unread) => {
                self.known.insert(&unread.namespace, &unread.name, &unread.version);
                WatchEvent::Unread(unread)
            }
        }
    }

    /// Notes which object was reported.
    fn note(&mut self, object: &Node) {
        let (namespace, name, version) = wire::identity(object);
        self.known.insert(namespace, name, version);
    }

    /// What the end of a listing amounts to. What could not be read may be any object: none is gone for certain.
    fn end(&self) -> WatchEvent {
        if self.incomplete { WatchEvent::Live } else { WatchEvent::End }
    }

    /// Follows one stream to its end.
    async fn follow(&mut self, standing: &mut Standing, out: &Out) -> Result<(), Ended> {
        let mut lines = match standing.lines.take() {
            Some(lines) => lines,
            None => self.resume(&standing.version, out).await?,
        };
        let mut heard = false;
        loop {
            let read = self.read(&mut lines, standing, out).await?;
            self.check_difference(&standing.version)?;
            heard |= !read.ended;
            if read.ended && heard {
                return Ok(());
            }
            if read.ended {
                // A server that closes without an error will do so again, so pause.
                sleep(self.retry.pause()).await;
                return Ok(());
            }
        }
    }

    /// Fails if the last audit found a difference that the watch has not reported by now.
    fn check_difference(&mut self, version: &str) -> Result<(), Failure> {
        let Some(difference) = self.difference.take_if(|difference| difference.is_due(version)) else {
            return Ok(());
        };
        let rest = difference.rest(&self.known);
        self.known.forget_removals();
        rest.map_or(Ok(()), |rest| Err(Failure::Differs(rest)))
    }

    async fn resume(&mut self, version: &str, out: &Out) -> Result<Lines<Body>, Ended> {
        // A server that is behind would take the watch, and tell nothing until its versions come to the same number again.
        let now = audit::current_version(&self.cluster, &self.resource).await?;
        if audit::is_older(&now, version) {
            return Err(Failure::Rewound { now, before: version.into() }.into());
        }
        let parameters = [
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", WATCH_SECONDS),
        ];
        let path = self.resource.path(&parameters);
        let body = self.cluster.stream(&path, self.resource.object_type()).await?;
        if self.retry.is_failing() {
            out.tell(vec![WatchEvent::Live]).await?;
        }
        Ok(Lines::new(body, MAX_OBJECT_BYTES))
    }

    /// Waits for a line, takes all that are there by then and tells what they say.
    async fn read(
        &mut self,
        lines: &mut Lines<Body>,
        standing: &mut Standing,
        out: &Out,
    ) -> Result<Read, Ended> {
        let mut read = Read::default();
        let due = self.difference.as_ref().map(Difference::until);
        let first = tokio::select! {
            line = timeout(SILENCE, lines.next()) => line.map_err(|_| Failure::Silent)??,
            listed = self.audit.next(&mut self.known), if standing.is_listed && due.is_none() => {
                self.compare(listed, &standing.version)?;
                return Ok(read);
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => return Ok(read),
        };
        read.ended = first.is_none();
        let mut told = Vec::new();
        let mut failure = None;
        let mut next = first;
        while let Some(line) = next {
            match self.understand(line, standing, &mut read, &mut told) {
                Ok(()) => self.retry.reset(),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
            next = if told.len() < CHUNK { lines.ready() } else { None };
        }
        out.tell(told).await?;
        failure.map_or(Ok(read), |failure| Err(failure.into()))
    }

    /// Compares the listing of an audit with what the watch has reported.
    fn compare(&mut self, listed: Result<audit::Listed, Failure>, version: &str) -> Result<(), Failure> {
        // A listing that failed says nothing; the watch notices a server that is away by itself.
        let Ok(listed) = listed else { return Ok(()) };
        if audit::is_older(&listed.version, version) {
            return Err(Failure::Rewound { now: listed.version, before: version.into() });
        }
        self.difference = Difference::between(listed, &self.known);
        if self.difference.is_none() {
            self.known.forget_removals();
        }
        Ok(())
    }

    fn understand(
        &mut self,
        line: Line,
        standing: &mut Standing,
        read: &mut Read,
        told: &mut Vec<WatchEvent>,
    ) -> Result<(), Failure> {
        let (message, text) = match line {
            Line::Text(text) => (parse(&text), text),
            Line::TooLong(head) => (Err(Failure::TooLarge(MAX_OBJECT_BYTES)), head),
        };
        match message {
            Ok(WireEvent::Object(object)) => {
                standing.advance(wire::identity(&object).2)?;
                self.note(&object);
                told.push(WatchEvent::Object(object));
            }
            Ok(WireEvent::Gone(object)) => {
                let (namespace, name, version) = wire::identity(&object);
                standing.advance(version)?;
                self.known.remove(namespace, name);
                told.push(WatchEvent::Gone(object));
            }
            Ok(WireEvent::Bookmark(object)) => {
                standing.advance(wire::identity(&object).2)?;
                if wire::ends_listing(&object) {
                    standing.is_listed = true;
                    read.listed = true;
                    told.push(self.end());
                }
            }
            Ok(WireEvent::Error(failure)) => return Err(failure),
            Err(failure) => match Unread::in_line(&text, failure.to_string()) {
                Some((unread, is_gone)) => {
                    standing.advance(&unread.version)?;
                    if is_gone {
                        self.known.remove(&unread.namespace, &unread.name);
                        told.push(WatchEvent::Gone(unread.outline()));
                    } else {
                        self.known.insert(&unread.namespace, &unread.name, &unread.version);
                        told.push(WatchEvent::Unread(unread));
                    }
                }
                None => {
                    self.incomplete = true;
                    told.push(WatchEvent::Problem(failure.to_string()));
                }
            },
        }
        Ok(())
    }
}

impl Standing {
    /// Takes note of a version, so that a watch can go on after it. While objects are listed versions come in any order;
    /// afterwards they only grow.
    fn advance(&mut self, version: &str) -> Result<(), Failure> {
        if version.is_empty() {
            return Ok(());
        }
        if self.is_listed && audit::is_older(version, &self.version) {
            return Err(Failure::Rewound { now: version.into(), before: self.version.clone() });
        }
        self.version = version.into();
        Ok(())
    }
}

/// Whether a definition says that one of these versions is served, now or once it is established.
fn serves(definition: &[u8], versions: &[&str]) -> bool {
    let Ok(definition) = serde_json::from_slice::<serde_json::Value>(definition) else { return true };
    let served = |version: &serde_json::Value| {
        version["served"] == true && versions.iter().any(|known| version["name"] == **known)
    };
    let is_served = definition["spec"]["versions"].as_array().is_some_and(|all| all.iter().any(served));
    let rejected = |condition: &serde_json::Value| {
        condition["type"] == "NamesAccepted" && condition["status"] == "False"
    };
    let conditions = definition["status"]["conditions"].as_array();
    is_served && !conditions.is_some_and(|conditions| conditions.iter().any(rejected))
}

/// What became of a stream.
#[derive(Default)]
struct Read {
    /// The server ended the stream.
    ended: bool,
    /// The listing is complete.
    listed: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_may_come_in_any_order_only_while_objects_are_listed() {
        let mut standing = Standing { version: Box::default(), lines: None, is_listed: false };
        for version in ["7", "5", "", "9"] {
            standing.advance(version).unwrap();
        }
        standing.is_listed = true;
        standing.advance("9").unwrap();
        standing.advance("12").unwrap();
        let failure = standing.advance("11").unwrap_err();
        assert!(failure.needs_listing() && failure.is_inconsistent());
        assert!(failure.to_string().starts_with("the server is at resource version 11 after 12"));
    }

    #[test]
    fn kind_is_to_be_served_as_its_definition_says() {
        let definition = |served: bool, accepted: &str| {
            let versions = json!([{"name": "v1alpha1", "served": true}, {"name": "v1", "served": served}]);
            let conditions = json!([{"type": "NamesAccepted", "status": accepted}]);
            json!({"spec": {"versions": versions}, "status": {"conditions": conditions}}).to_string()
        };
        let serves = |served, accepted| serves(definition(served, accepted).as_bytes(), &["v1", "v1beta1"]);
        assert!(serves(true, "True") && serves(true, "Unknown"));
        assert!(!serves(false, "True"), "no version that can be read is served");
        assert!(!serves(true, "False"), "another definition has its names");
        assert!(super::serves(b"garbage", &["v1"]), "nothing is concluded from what cannot be read");
    }
}
