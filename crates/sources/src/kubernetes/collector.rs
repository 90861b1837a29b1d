//! Where what is told of all kinds comes together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::{Kind, Object};
use canopus_runtime::tasks;
use tokio::sync::{Notify, mpsc};

use super::definitions::Definitions;
use super::object;
use super::resource::{Resource, is_defined, is_optional};
use super::select::{Change, Filter, Selection};
use super::watch::{Out, Told, Watch};
use super::{Cluster, Options};
use crate::event::{Event, Part};
use crate::feed::{Closed, Feed};

/// Messages that wait to be taken. Watches that are faster wait too.
const PENDING: usize = 64;

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
    /// Of a kind, and of which watch of it.
    Kind(Kind, u64, Vec<Event>),
    /// Of the definitions of kinds.
    Definitions(Vec<Told>),
}

impl Topic {
    /// What is told, decoded.
    pub(super) fn message(self, told: Vec<Told>) -> Message {
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
        }
    }

    /// Runs until nobody listens.
    pub(super) async fn run(mut self) -> Result<(), Closed> {
        let built_in: Vec<Kind> =
            self.options.kinds.iter().copied().filter(|kind| !is_defined(*kind)).collect();
        let mut first: Vec<Event> = built_in.iter().map(|kind| Event::Expect(Part::Kind(*kind))).collect();
        // What an earlier life has left of other kinds is not followed any more.
        let unwanted = Kind::ALL.iter().filter(|kind| !self.options.kinds.contains(*kind));
        first.extend(unwanted.map(|kind| Event::Withdraw(*kind)));
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
            Some(kind) => Resource::of(kind, self.options.namespace.as_deref()),
            None => Resource::definitions(),
        };
        let optional = kind.is_some_and(is_optional);
        let name = format!("watch of {}", resource.path(&[]));
        let (cluster, listing) = (self.cluster.clone(), self.options.listing);
        let topic = kind.map_or(Topic::Definitions, |kind| Topic::Kind(kind, self.number));
        let relist = Arc::new(Notify::new());
        let (notified, sender) = (Arc::clone(&relist), self.sender.clone());
        let teller = sender.clone();
        let task = tasks::keep_running(
            name,
            move || {
                let watch = Watch::new(cluster.clone(), resource.clone(), listing, optional);
                watch.run(Arc::clone(&notified), Out::new(topic, sender.clone()))
            },
            move |reason| {
                let out = Out::new(topic, teller.clone());
                async move {
                    // If nobody listens, the watch will not be begun again either.
                    let _ = out.tell(vec![Told::Lost(reason)]).await;
                }
            },
        );
        self.watches.insert(kind, Running { number: self.number, relist, _task: task });
    }

    fn take(&mut self, message: Message, events: &mut Vec<Event>) {
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

    fn take_event(&mut self, kind: Kind, event: Event, events: &mut Vec<Event>) {
        if kind == Kind::Namespace {
            self.watch_namespaces(&event, events);
        }
        match event {
            Event::Set(object) if !self.filter.admits(&object) => events.push(Event::Remove(object.key())),
            event => events.push(event),
        }
    }

    /// Follows which namespaces there are, and which of them are seen.
    fn watch_namespaces(&mut self, event: &Event, events: &mut Vec<Event>) {
        match event {
            Event::Begin(_) => self.listed_namespaces = Some(BTreeSet::new()),
            Event::Set(Object::Namespace(namespace)) => {
                let change = self.filter.namespace(&namespace.meta.name, &namespace.meta.labels);
                self.follow(change, events);
                if let Some(listed) = &mut self.listed_namespaces {
                    listed.insert(namespace.meta.name.clone());
                }
            }
            Event::Keep(key) => {
                if let Some(listed) = &mut self.listed_namespaces {
                    listed.insert(key.name.clone());
                }
            }
            Event::Remove(key) => self.filter.forget(&key.name),
            Event::End(_) => {
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

    fn namespaces_are_known(&mut self, events: &mut Vec<Event>) {
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

    fn select(&mut self, selection: Selection, events: &mut Vec<Event>) {
        // What cannot be judged yet is judged once the namespaces are known.
        if self.namespaces_known || selection.is_everything() {
            let change = self.filter.select(selection);
            self.follow(change, events);
        }
    }

    fn follow(&self, change: Change, events: &mut Vec<Event>) {
        events.extend(change.deselected.into_iter().map(Event::Deselect));
        for kind in change.relist {
            if let Some(running) = self.watches.get(&Some(kind)) {
                running.relist.notify_one();
            }
        }
    }

    fn take_definition(&mut self, told: Told, events: &mut Vec<Event>) {
        self.definitions.take(&told);
        match told {
            Told::Lost(reason) => events.push(Event::Lost(Part::Whole, reason)),
            Told::Absent(reason) => events.push(Event::Lost(Part::Whole, reason)),
            Told::Live => events.push(Event::Live(Part::Whole)),
            Told::End => {
                let defined = self.definitions.kinds();
                let undefined =
                    self.options.kinds.iter().filter(|kind| is_defined(**kind) && !defined.contains(kind));
                events.extend(undefined.map(|kind| Event::Withdraw(*kind)));
                self.follow_definitions(events);
                events.push(Event::Live(Part::Whole));
            }
            // In the midst of a listing it is not known yet what is gone.
            Told::Object(_) | Told::Gone(_) if self.definitions.is_listed() => {
                self.follow_definitions(events);
            }
            Told::Begin | Told::Object(_) | Told::Gone(_) | Told::Unread(_) | Told::Problem(_) => {}
        }
    }

    /// Starts to follow the kinds that have a definition now, and stops to follow those that have none any more.
    fn follow_definitions(&mut self, events: &mut Vec<Event>) {
        let defined = self.definitions.kinds();
        let followed = self.watches.keys().flatten().copied().filter(|kind| is_defined(*kind));
        let gone: Vec<Kind> = followed.filter(|kind| !defined.contains(kind)).collect();
        for kind in gone {
            self.watches.remove(&Some(kind));
            events.push(Event::Withdraw(kind));
        }
        let judged = self.namespaces_known || self.options.selection.borrow().is_everything();
        for kind in defined {
            if !self.watches.contains_key(&Some(kind)) {
                events.push(Event::Expect(Part::Kind(kind)));
                if judged {
                    self.start(Some(kind));
                }
            }
        }
    }
}
