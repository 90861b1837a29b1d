//! The collector: takes the events of all watches of one API server and forwards what the mesh may see.
//!
//! Whether an object is visible can depend on others (its namespace's labels, the definition of its kind), and these arrive by
//! watches of their own, in any order. The collector therefore sees all events in one task. When a namespace becomes visible,
//! the kinds are listed again, because objects that were dropped before were not kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::{Kind, Object};
use canopus_runtime::tasks;
use tokio::sync::{Notify, mpsc};

use super::definitions::Definitions;
use super::object;
use super::resource::{Resource, is_defined, is_optional};
use super::select::{Filter, NamespaceChange, Selection};
use super::watch::{Out, Watch, WatchEvent, WatchOptions};
use super::{Cluster, Options};
use crate::change::{Change, SourcePart};
use crate::feed::{Closed, Feed};

/// Messages that wait to be taken. Watches that are faster wait too.
const PENDING: usize = 64;

/// The namespace that every cluster has from its first moment to its last.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// What a watch is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Topic {
    /// Objects of a kind. Watches of the same kind that followed each other are told apart by a number.
    Kind(Kind, u64),
    /// The definitions of kinds.
    Definitions,
}

/// What a watch tells.
#[derive(Debug)]
pub(super) enum Message {
    /// Changes of a kind, and the number of the watch that they come from.
    Kind(Kind, u64, Vec<Change>),
    /// Events of the custom resource definitions.
    Definitions(Vec<WatchEvent>),
}

impl Topic {
    /// What is told, decoded.
    pub(super) fn message(self, told: Vec<WatchEvent>) -> Message {
        match self {
            Self::Kind(kind, number) => Message::Kind(kind, number, object::events(kind, told)),
            Self::Definitions => Message::Definitions(told),
        }
    }
}

/// A watch that runs. It ends when this is dropped.
struct Running {
    number: u64,
    relist: Arc<Notify>,
    _task: tasks::Running,
}

/// Takes what the watches tell and passes on what the mesh may see.
pub(super) struct Collector {
    cluster: Cluster,
    options: Options,
    feed: Feed,
    sender: mpsc::Sender<Message>,
    messages: mpsc::Receiver<Message>,
    definitions: Definitions,
    filter: Filter,
    /// The watches, by kind, and that of the definitions.
    watches: BTreeMap<Option<Kind>, Running>,
    /// Counts the watches.
    number: u64,
    /// The namespaces a listing that has not ended has named.
    listed_namespaces: Option<BTreeSet<Box<str>>>,
    /// Whether all namespaces are known.
    namespaces_known: bool,
    /// What tells this cluster from every other: the UID of the namespace that every cluster has.
    cluster_uid: Box<str>,
}

impl Collector {
    pub(super) fn new(cluster: Cluster, mut options: Options, feed: Feed) -> Self {
        let (sender, messages) = mpsc::channel(PENDING);
        let selection = options.selection.borrow_and_update().clone();
        Self {
            definitions: Definitions::new(&options.kinds),
            filter: Filter::new(selection, options.revision.clone()),
            cluster,
            options,
            feed,
            sender,
            messages,
            watches: BTreeMap::new(),
            number: 0,
            listed_namespaces: None,
            namespaces_known: false,
            cluster_uid: Box::default(),
        }
    }

    /// Runs until nobody listens.
    pub(super) async fn run(mut self) -> Result<(), Closed> {
        let built_in: Vec<Kind> =
            self.options.kinds.iter().copied().filter(|kind| !is_defined(*kind)).collect();
        let mut first: Vec<Change> =
            built_in.iter().map(|kind| Change::Expect(SourcePart::Kind(*kind))).collect();
        // What an earlier life has left of other kinds is not followed any more.
        let unwanted = Kind::ALL.iter().filter(|kind| !self.options.kinds.contains(*kind));
        first.extend(unwanted.map(|kind| Change::Withdraw(*kind)));
        self.feed.send(first).await?;
        self.start(None);
        // Where only some namespaces are seen, nothing can be judged before they are known.
        let selective = !self.options.selection.borrow().is_everything();
        for kind in built_in.into_iter().filter(|kind| *kind == Kind::Namespace || !selective) {
            self.start(Some(kind));
        }
        let mut selections = self.options.selection.clone();
        let mut messages = Vec::new();
        loop {
            let mut events = Vec::new();
            tokio::select! {
                _ = self.messages.recv_many(&mut messages, PENDING) => {
                    for message in messages.drain(..) {
                        self.take(message, &mut events);
                    }
                }
                Ok(()) = selections.changed() => {
                    let selection = selections.borrow_and_update().clone();
                    self.select(selection, &mut events);
                }
                () = self.feed.closed() => return Err(Closed),
            }
            if !events.is_empty() {
                self.feed.send(events).await?;
            }
        }
    }

    fn start(&mut self, kind: Option<Kind>) {
        if self.watches.contains_key(&kind) {
            return;
        }
        self.number += 1;
        let resource = match kind {
            Some(kind) => Resource::for_kind(kind, self.options.namespace.as_deref()),
            None => Resource::definitions(),
        };
        let optional = kind.is_some_and(is_optional);
        let name = format!("watch of {}", resource.path(&[]));
        let cluster = self.cluster.clone();
        let (listing, audit_interval) = (self.options.listing, self.options.audit_interval);
        let options = WatchOptions { listing, optional, audit_interval };
        let topic = kind.map_or(Topic::Definitions, |kind| Topic::Kind(kind, self.number));
        let relist = Arc::new(Notify::new());
        let (notified, sender) = (Arc::clone(&relist), self.sender.clone());
        let teller = sender.clone();
        let task = tasks::keep_running(
            name,
            move || {
                let watch = Watch::new(cluster.clone(), resource.clone(), options);
                watch.run(Arc::clone(&notified), Out::new(topic, sender.clone()))
            },
            move |reason| {
                let out = Out::new(topic, teller.clone());
                async move {
                    // If nobody listens, the watch will not be begun again either.
                    let _ = out.tell(vec![WatchEvent::Lost(reason)]).await;
                }
            },
        );
        self.watches.insert(kind, Running { number: self.number, relist, _task: task });
    }

    fn take(&mut self, message: Message, events: &mut Vec<Change>) {
        match message {
            Message::Kind(kind, number, told) => {
                let current = self.watches.get(&Some(kind)).is_some_and(|running| running.number == number);
                // A watch that was stopped may still have something in the queue.
                if current {
                    for event in told {
                        self.take_event(kind, event, events);
                    }
                }
            }
            Message::Definitions(told) => {
                for told in told {
                    self.take_definition(told, events);
                }
            }
        }
    }

    fn take_event(&mut self, kind: Kind, event: Change, events: &mut Vec<Change>) {
        if kind == Kind::Namespace {
            self.watch_namespaces(&event, events);
        }
        match event {
            Change::Set(object) if !self.filter.admits(&object) => events.push(Change::Remove(object.key())),
            event => events.push(event),
        }
    }

    /// Follows which namespaces there are, and which of them are seen.
    fn watch_namespaces(&mut self, event: &Change, events: &mut Vec<Change>) {
        match event {
            Change::Begin(_) => self.listed_namespaces = Some(BTreeSet::new()),
            Change::Set(Object::Namespace(namespace)) => {
                if *namespace.meta.name == *SYSTEM_NAMESPACE {
                    self.recognise_cluster(&namespace.meta.uid);
                }
                let change = self.filter.namespace(&namespace.meta.name, &namespace.meta.labels);
                self.follow(change, events);
                if let Some(listed) = &mut self.listed_namespaces {
                    listed.insert(namespace.meta.name.clone());
                }
            }
            Change::Keep(key) => {
                if let Some(listed) = &mut self.listed_namespaces {
                    listed.insert(key.name.clone());
                }
            }
            Change::Remove(key) => self.filter.forget(&key.name),
            Change::End(_) => {
                if let Some(listed) = self.listed_namespaces.take() {
                    let names = self.filter.names().filter(|name| !listed.contains(*name));
                    let gone: Vec<Box<str>> = names.map(Box::from).collect();
                    for name in gone {
                        self.filter.forget(&name);
                    }
                }
                self.namespaces_are_known(events);
            }
            _ => {}
        }
    }

    /// Lists everything anew if another cluster answers than before: its versions say nothing about what is held.
    fn recognise_cluster(&mut self, uid: &str) {
        if *self.cluster_uid == *uid || uid.is_empty() {
            return;
        }
        let before = std::mem::replace(&mut self.cluster_uid, uid.into());
        if !before.is_empty() {
            tracing::warn!(
                before,
                now = uid,
                "the API server is that of another cluster: all is listed anew"
            );
            self.watches.values().for_each(|running| running.relist.notify_one());
        }
    }

    fn namespaces_are_known(&mut self, events: &mut Vec<Change>) {
        if std::mem::replace(&mut self.namespaces_known, true) {
            return;
        }
        let selection = self.options.selection.borrow().clone();
        self.select(selection, events);
        let kinds: Vec<Kind> = self.options.kinds.iter().copied().filter(|kind| !is_defined(*kind)).collect();
        for kind in kinds.into_iter().chain(self.definitions.kinds()) {
            self.start(Some(kind));
        }
    }

    fn select(&mut self, selection: Selection, events: &mut Vec<Change>) {
        // What cannot be judged yet is judged once the namespaces are known.
        if self.namespaces_known || selection.is_everything() {
            let change = self.filter.select(selection);
            self.follow(change, events);
        }
    }

    fn follow(&self, change: NamespaceChange, events: &mut Vec<Change>) {
        events.extend(change.deselected.into_iter().map(Change::Deselect));
        for kind in change.relist {
            if let Some(running) = self.watches.get(&Some(kind)) {
                running.relist.notify_one();
            }
        }
    }

    fn take_definition(&mut self, told: WatchEvent, events: &mut Vec<Change>) {
        self.definitions.take(&told);
        match told {
            WatchEvent::Lost(reason) => events.push(Change::Lost(SourcePart::Whole, reason)),
            WatchEvent::Absent(reason) => events.push(Change::Lost(SourcePart::Whole, reason)),
            // All that could be read is known, or the watch goes on after a loss.
            WatchEvent::Live => {
                self.follow_definitions(events);
                events.push(Change::Live(SourcePart::Whole));
            }
            WatchEvent::End => {
                let defined = self.definitions.kinds();
                let undefined =
                    self.options.kinds.iter().filter(|kind| is_defined(**kind) && !defined.contains(kind));
                events.extend(undefined.map(|kind| Change::Withdraw(*kind)));
                self.follow_definitions(events);
                events.push(Change::Live(SourcePart::Whole));
            }
            // In the midst of a listing it is not known yet what is gone.
            WatchEvent::Object(_) | WatchEvent::Gone(_) if self.definitions.is_listed() => {
                self.follow_definitions(events);
            }
            WatchEvent::Begin
            | WatchEvent::Object(_)
            | WatchEvent::Gone(_)
            | WatchEvent::Unread(_)
            | WatchEvent::Problem(_) => {}
        }
    }

    /// Starts to follow the kinds that have a definition now, and stops to follow those that have none any more.
    fn follow_definitions(&mut self, events: &mut Vec<Change>) {
        let defined = self.definitions.kinds();
        let followed = self.watches.keys().flatten().copied().filter(|kind| is_defined(*kind));
        let gone: Vec<Kind> = followed.filter(|kind| !defined.contains(kind)).collect();
        for kind in gone {
            self.watches.remove(&Some(kind));
            events.push(Change::Withdraw(kind));
        }
        let judged = self.namespaces_known || self.options.selection.borrow().is_everything();
        for kind in defined {
            if !self.watches.contains_key(&Some(kind)) {
                events.push(Change::Expect(SourcePart::Kind(kind)));
                if judged {
                    self.start(Some(kind));
                }
            }
        }
    }
}
