//! One client's stream as a state machine without I/O.
//!
//! The driver feeds it requests and revisions, then takes responses until there are none:
//!
//! ```text
//! on_request / on_revision ──► Session ──► next_response, next_response, … None
//!                                 └──────► take_events
//! ```
//!
//! Three rules make up most of it. A client gets an answer when it asks for something it did not ask for before. It gets
//! a push when something it has differs from what it should have, never otherwise. And while it has not acknowledged a
//! push of a type there is no further push of that type: what changes meanwhile is sent as one difference afterwards.
//! A fourth spans types: nothing names what the client does not have (see `order`).

mod event;
mod order;
mod request;
mod response;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;
use std::sync::Arc;

pub use event::SessionEvent;
pub use request::{Protocol, Request, Wish};
pub use response::Response;

use crate::interest::{EVERYTHING, Interest};
use crate::names::{NamePool, Names};
use crate::resource::ResourceSet;
use crate::source::{Code, Refusal, Source};
use crate::types::{Kind, Rules, Types, rank};
use order::ReferenceOrder;
use response::{Selection, State};
use watch::{Answer, Change, Claims, Due, Step, Watch};

/// How much a client may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Names per type.
    pub names: usize,
    /// Types per stream.
    pub types: usize,
    /// Bytes of all these names and types together.
    pub bytes: usize,
    /// Bytes of the node with which a client introduces itself.
    pub node_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { names: 200_000, types: 64, bytes: 64 * 1024 * 1024, node_bytes: 256 * 1024 }
    }
}

/// The state of one stream.
pub struct Session {
    protocol: Protocol,
    nonces: Nonces,
    limits: Limits,
    pool: Arc<NamePool>,
    /// In push order.
    watches: Vec<Watch>,
    queries: VecDeque<(Arc<str>, Interest)>,
    events: Vec<SessionEvent>,
    order: ReferenceOrder,
    revision: u64,
    settled: Option<u64>,
}

impl Session {
    /// A session that has seen nothing. Its `id` distinguishes its nonces from those of every other stream.
    pub fn new(protocol: Protocol, id: u64, limits: Limits, pool: Arc<NamePool>) -> Self {
        Self {
            protocol,
            nonces: Nonces { id, last: 0 },
            limits,
            pool,
            watches: Vec::new(),
            queries: VecDeque::new(),
            events: Vec::new(),
            order: ReferenceOrder::default(),
            revision: 0,
            settled: None,
        }
    }

    /// Resources of these types may have changed; `revision` names the new state of the world.
    pub fn on_revision(&mut self, revision: u64, types: Types) {
        self.revision = revision;
        let concerned = self.watches.iter_mut().filter(|watch| watch.depends_on.intersects(types));
        concerned.for_each(Watch::check);
    }

    /// Takes a request of the client. An error ends the stream.
    pub fn on_request(&mut self, request: Request, source: &impl Source) -> Result<(), Refusal> {
        match source.kind(&request.type_url) {
            Kind::Report => self.report(request),
            Kind::Query => return self.query(request),
            Kind::Watched(rules) => return self.subscription(request, rules, source),
        }
        Ok(())
    }

    /// Takes an acknowledgement that asks for nothing else. False if the request may mean more than that: then it has to be
    /// given to [`on_request`](Self::on_request).
    pub fn on_ack(&mut self, type_url: &str, nonce: &str) -> bool {
        let Some(at) = self.position(type_url) else { return false };
        // In the state-of-the-world variant, naming nothing can mean to want nothing any more.
        let names_nothing = match self.protocol {
            Protocol::Delta => true,
            Protocol::Sotw => self.watches[at].interest == Interest::Wildcard,
        };
        if names_nothing {
            self.note_nonce(at, nonce, false);
        }
        names_nothing
    }

    /// The next message for the client. An error ends the stream.
    pub fn next_response(&mut self, source: &impl Source) -> Result<Option<Response>, Refusal> {
        if let Some((type_url, interest)) = self.queries.pop_front() {
            return self.answer_query(type_url, &interest, source).map(Some);
        }
        loop {
            let mut is_waiting = false;
            for at in 0..self.watches.len() {
                if !self.is_ready(at) {
                    continue;
                }
                let (response, waits) = self.advance(at, source)?;
                is_waiting |= waits;
                if response.is_some() {
                    return Ok(response);
                }
            }
            if !self.note_waiting(is_waiting) {
                break;
            }
        }
        self.settle();
        Ok(None)
    }

    /// Moves one watch on: what is to be sent for it, if anything, and whether a part of it waits for something else.
    fn advance(&mut self, at: usize, source: &impl Source) -> Result<(Option<Response>, bool), Refusal> {
        let target = self.target(at, source)?;
        if self.must_wait(at, &target, source)? {
            return Ok((None, true));
        }
        let (target, is_retaining) = self.with_named_in_use(at, target, source)?;
        let watch = &mut self.watches[at];
        let before = order::is_of_clusters(watch).then(|| watch.held().set.clone());
        let step = watch.advance(self.protocol, target);
        if is_retaining {
            // What is still in use is looked at again whenever something else is settled.
            watch.check();
        }
        let type_url = watch.type_url.clone();
        let response = match step {
            Step::Quiet => None,
            Step::Current => {
                let (version, accepted) = (watch.held().version(), watch.accepted());
                let revision = self.revision;
                self.events.push(SessionEvent::Current { type_url, version, revision, accepted });
                self.note_kept_parents(at);
                self.check_dependents(at);
                None
            }
            Step::Send(change, pushed) => {
                if let Some(before) = before {
                    self.note_added_clusters(at, &before);
                }
                let response = self.compose(at, change, pushed, source);
                self.check_dependents(at);
                Some(response)
            }
        };
        Ok((response, is_retaining))
    }

    /// Takes the events since the last call.
    pub fn take_events(&mut self) -> Vec<SessionEvent> {
        std::mem::take(&mut self.events)
    }

    /// The client's interest in a type, if it has subscribed to it.
    pub fn interest(&self, type_url: &str) -> Option<&Interest> {
        self.position(type_url).map(|at| &self.watches[at].interest)
    }

    fn position(&self, type_url: &str) -> Option<usize> {
        self.watches.iter().position(|watch| *watch.type_url == *type_url)
    }

    fn report(&mut self, request: Request) {
        self.events.push(SessionEvent::Reported {
            type_url: request.type_url.into(),
            error: request.error.map(|error| error.message),
        });
    }

    fn query(&mut self, request: Request) -> Result<(), Refusal> {
        // An answer that is acknowledged must not be taken for the same question again. Nonces of the client's own making
        // acknowledge nothing: istioctl sends one with its first request.
        if self.nonces.read(&request.nonce).is_some() {
            return Ok(());
        }
        let names = match request.wish {
            Wish::Exactly { names, .. } => names,
            Wish::Change { subscribe, .. } => subscribe,
        };
        self.check_size(names.len())?;
        let wildcard = names.is_empty();
        let interest = Interest::new(wildcard, Names::new(names));
        self.check_bytes(&request.type_url, &interest)?;
        if self.queries.len() >= self.limits.types {
            let message = format!("more than {} questions wait for an answer", self.limits.types);
            return Err(Refusal::new(Code::ResourceExhausted, message));
        }
        self.queries.push_back((request.type_url.into(), interest));
        Ok(())
    }

    fn subscription(&mut self, request: Request, rules: Rules, source: &impl Source) -> Result<(), Refusal> {
        let at = self.position(&request.type_url);
        if let Some(error) = &request.error {
            let (accepted, refused) = at.map(|at| self.watches[at].contested()).unwrap_or_default();
            self.events.push(SessionEvent::Nacked {
                type_url: request.type_url.as_str().into(),
                nonce: request.nonce.clone(),
                code: error.code,
                message: event::reason(&error.message),
                accepted,
                refused,
            });
        }
        match (request.wish, at) {
            (Wish::Exactly { names, .. }, None) if names.is_empty() && !rules.wildcard => Ok(()),
            (Wish::Exactly { names, version }, None) => {
                let (everything, names) = self.names(names)?;
                let interest = Interest::new(everything || names.is_empty(), names);
                // Only of everything a client cannot have dropped a part since it got that version.
                let claims = match interest {
                    Interest::Wildcard => Claims::Whole(version),
                    _ => Claims::Nothing,
                };
                let answer = Answer { claims, afresh: true, ..Answer::default() };
                self.subscribe(request.type_url.into(), rules, interest, answer)
            }
            (Wish::Change { subscribe, unsubscribe, held }, None) => {
                let (interest, asked) = self.first_change(rules, subscribe, unsubscribe, &held)?;
                let answer = Answer { asked, claims: Claims::Each(held), ..Answer::default() };
                self.subscribe(request.type_url.into(), rules, interest, answer)
            }
            (Wish::Exactly { names, .. }, Some(at)) => {
                let current = self.note_nonce(at, &request.nonce, request.error.is_some());
                let afresh = request.nonce.is_empty() || self.watches[at].interest.is_nothing();
                if current || afresh {
                    self.want_exactly(at, names, afresh, source)
                } else {
                    self.want_at_most(at, names, source)
                }
            }
            (Wish::Change { subscribe, unsubscribe, .. }, Some(at)) => {
                self.note_nonce(at, &request.nonce, request.error.is_some());
                self.want_change(at, subscribe, unsubscribe, source)
            }
        }
    }

    /// What the first delta request of a type asks for, and which of the names are new to the client.
    fn first_change(
        &self,
        rules: Rules,
        subscribe: Vec<String>,
        unsubscribe: Vec<String>,
        held: &BTreeMap<String, String>,
    ) -> Result<(Interest, Vec<Arc<str>>), Refusal> {
        let unnamed = subscribe.is_empty() && rules.wildcard;
        let (all, subscribe) = self.names(subscribe)?;
        let (not_all, unsubscribe) = self.names(unsubscribe)?;
        // Subscribing to everything and unsubscribing from it at once asks for nothing, for now.
        let wildcard = (all || unnamed) && !not_all;
        // What the client kept from an earlier stream it still wants, whether it says so or not.
        let kept = held.keys().filter(|_| !wildcard);
        let kept: Vec<Arc<str>> = kept.map(|name| name.as_str().into()).collect();
        let names = subscribe.changed(&kept, &unsubscribe);
        self.check_size(names.len())?;
        let asked = names.iter().filter(|name| !held.contains_key(&***name)).cloned().collect();
        Ok((Interest::new(wildcard, self.pool.share(names)), asked))
    }

    /// A type the client had not asked for on this stream.
    fn subscribe(
        &mut self,
        type_url: Arc<str>,
        rules: Rules,
        interest: Interest,
        answer: Answer,
    ) -> Result<(), Refusal> {
        if self.watches.len() >= self.limits.types {
            let message = format!("more than {} resource types on one stream", self.limits.types);
            return Err(Refusal::new(Code::ResourceExhausted, message));
        }
        self.check_bytes(&type_url, &interest)?;
        let mut watch = Watch::new(type_url, rules, interest);
        if !watch.interest.is_nothing() || rules.wildcard {
            watch.due = Due::Answer(answer);
        }
        let place = |watch: &Watch| (rank(&watch.type_url), watch.type_url.clone());
        let at = self.watches.partition_point(|other| place(other) < place(&watch));
        self.watches.insert(at, watch);
        self.note_resumption(at);
        self.note_interest(at);
        Ok(())
    }

    /// Settles the response that `nonce` belongs to; says whether that was the last one.
    fn note_nonce(&mut self, at: usize, nonce: &str, refused: bool) -> bool {
        if nonce.is_empty() {
            return false;
        }
        let watch = &mut self.watches[at];
        let last = watch.sent.clone().filter(|last| **last == *nonce);
        let was_last = last.is_some();
        if refused {
            watch.refuse(was_last);
        } else if was_last {
            watch.accept();
        }
        let type_url = watch.type_url.clone();
        match last {
            None => self.events.push(SessionEvent::Expired { type_url, nonce: nonce.to_owned() }),
            Some(nonce) if !refused => {
                let accepted = watch.accepted();
                self.events.push(SessionEvent::Acked { type_url, nonce, accepted });
            }
            Some(_) => {}
        }
        if was_last {
            self.note_settled(at, refused);
        }
        // A client that keeps what completes a resource which is gone for good is told the truth about it.
        self.check_dependents(at);
        was_last
    }

    fn want_exactly(
        &mut self,
        at: usize,
        names: Vec<String>,
        afresh: bool,
        source: &impl Source,
    ) -> Result<(), Refusal> {
        let (everything, names) = self.names(names)?;
        let watch = &self.watches[at];
        // Naming nothing means everything until the client has named something.
        let unnamed = names.is_empty() && watch.rules.wildcard && (afresh || watch.interest.is_wildcard());
        let everything = everything || unnamed;
        let interest = Interest::new(everything, names);
        let asked = newly_asked(&watch.interest, &interest);
        let widened = !asked.is_empty() || interest.is_wildcard() && !watch.interest.is_wildcard();
        let wanted_again = watch.rules.wildcard && interest != watch.interest && !interest.is_nothing();
        self.narrow(at, interest, source)?;
        if (afresh || widened || wanted_again) && !self.watches[at].interest.is_nothing() {
            self.answer(at, Answer { asked, afresh, ..Answer::default() });
        }
        Ok(())
    }

    /// A request that crossed a response on the way. The client will repeat what it wants, but not that it had dropped
    /// something meanwhile.
    fn want_at_most(&mut self, at: usize, names: Vec<String>, source: &impl Source) -> Result<(), Refusal> {
        let Interest::Names(wanted) = &self.watches[at].interest else {
            return Ok(());
        };
        let (everything, names) = self.names(names)?;
        let dropped = wanted.missing_from(&names);
        if everything || dropped.is_empty() {
            return Ok(());
        }
        let left = wanted.changed(&[], &Names::new(dropped));
        let left = Interest::Names(self.pool.share(left));
        self.narrow(at, left, source)
    }

    fn want_change(
        &mut self,
        at: usize,
        subscribe: Vec<String>,
        unsubscribe: Vec<String>,
        source: &impl Source,
    ) -> Result<(), Refusal> {
        if subscribe.is_empty() && unsubscribe.is_empty() {
            return Ok(());
        }
        let (all, subscribe) = self.names(subscribe)?;
        let (not_all, unsubscribe) = self.names(unsubscribe)?;
        let current = &self.watches[at].interest;
        let wildcard = (all || current.is_wildcard()) && !not_all;
        let nothing = Names::default();
        let names = self.pool.changed(current.names().unwrap_or(&nothing), &subscribe, &unsubscribe);
        self.check_size(names.len())?;
        let interest = Interest::new(wildcard, names);
        let asked = newly_asked(current, &interest);
        let widened = !asked.is_empty() || wildcard && !current.is_wildcard();
        self.narrow(at, interest, source)?;
        if widened {
            self.answer(at, Answer { asked, ..Answer::default() });
        }
        Ok(())
    }

    /// Replaces an interest. What falls away with it the client drops by itself, so the session forgets it.
    fn narrow(&mut self, at: usize, interest: Interest, source: &impl Source) -> Result<(), Refusal> {
        let watch = &self.watches[at];
        if watch.interest == interest {
            return Ok(());
        }
        self.check_bytes(&watch.type_url, &interest)?;
        let older = resources(source, watch, &watch.interest)?;
        let newer = resources(source, watch, &interest)?;
        let dropped = match (watch.interest.names(), &interest) {
            (Some(names), Interest::Names(wanted)) => names.missing_from(wanted),
            _ => Vec::new(),
        };
        let released = newer.since(&older);
        let released = Names::new(released.removed.iter().cloned().chain(dropped));
        let watch = &mut self.watches[at];
        if interest.is_nothing() && !watch.rules.unasked {
            watch.forget_everything();
        } else {
            watch.forget(&released);
        }
        watch.interest = interest;
        watch.check();
        self.check_dependents(at);
        self.note_interest(at);
        Ok(())
    }

    fn answer(&mut self, at: usize, answer: Answer) {
        self.watches[at].owe(answer);
    }

    /// The set of these names, and whether the name for everything was among them.
    fn names(&self, names: Vec<String>) -> Result<(bool, Names), Refusal> {
        self.check_size(names.len())?;
        let everything = names.iter().any(|name| name == EVERYTHING);
        let names = names.into_iter().filter(|name| name != EVERYTHING);
        Ok((everything, self.pool.share(Names::new(names))))
    }

    fn check_size(&self, names: usize) -> Result<(), Refusal> {
        if names > self.limits.names {
            let message = format!("more than {} resource names of one type", self.limits.names);
            return Err(Refusal::new(Code::ResourceExhausted, message));
        }
        Ok(())
    }

    /// Whether there is room for an interest in this type, in place of the one there may have been before.
    fn check_bytes(&self, type_url: &str, interest: &Interest) -> Result<(), Refusal> {
        let size =
            |type_url: &str, interest: &Interest| type_url.len() + interest.names().map_or(0, Names::bytes);
        let others = self.watches.iter().filter(|watch| *watch.type_url != *type_url);
        let others: usize = others.map(|watch| size(&watch.type_url, &watch.interest)).sum();
        if others + size(type_url, interest) > self.limits.bytes {
            let message = format!("more than {} bytes of resource names on one stream", self.limits.bytes);
            return Err(Refusal::new(Code::ResourceExhausted, message));
        }
        Ok(())
    }

    fn note_interest(&mut self, at: usize) {
        let watch = &self.watches[at];
        self.events.push(SessionEvent::Subscribed {
            type_url: watch.type_url.clone(),
            interest: watch.interest.clone(),
        });
    }

    /// Questions are answered at once; pushes wait until the client has settled the one before.
    fn is_ready(&self, at: usize) -> bool {
        let watch = &self.watches[at];
        match watch.due {
            Due::Nothing => false,
            Due::Check => !watch.is_unsettled(),
            Due::Answer(_) => true,
        }
    }

    /// The state the client should have. Takes note of what it claims to have.
    fn target(&mut self, at: usize, source: &impl Source) -> Result<State, Refusal> {
        let watch = &self.watches[at];
        let set = resources(source, watch, &watch.interest)?;
        let parent = watch.rules.completes.and_then(|parent| self.position(parent));
        let parents = parent.map(|parent| self.watches[parent].held().set.clone());
        let state = State { set, parents };
        self.watches[at].believe(&state);
        self.watches[at].recognise(&state);
        let (Some(parent), watch) = (parent, &self.watches[at]) else { return Ok(state) };
        let parent = &self.watches[parent];
        let parents = resources(source, parent, &parent.interest)?;
        // What completes a resource that is about to go will be unsubscribed from with it: a client that lost it before
        // would fail the requests it still has to serve.
        let set = watch.with_held(state.set, &parent.leaving(&parents));
        Ok(State { set, ..state })
    }

    /// The client has all resources of this type from an earlier stream, so what completes them is in use already.
    fn note_kept_parents(&mut self, at: usize) {
        let (type_url, kept) = (self.watches[at].type_url.clone(), self.watches[at].held().set.clone());
        let dependents = self.watches.iter_mut().filter(|watch| watch.rules.completes == Some(&*type_url));
        dependents.for_each(|watch| watch.keep_parents(&kept));
    }

    fn check_dependents(&mut self, at: usize) {
        let type_url = self.watches[at].type_url.clone();
        for watch in &mut self.watches {
            if watch.rules.completes == Some(&*type_url) {
                watch.check();
            }
        }
    }

    fn compose(&mut self, at: usize, change: Change, pushed: bool, source: &impl Source) -> Response {
        let nonce = self.nonces.next();
        let watch = &mut self.watches[at];
        watch.sent = Some(Arc::clone(&nonce));
        let response = Response {
            protocol: self.protocol,
            type_url: watch.type_url.clone(),
            nonce,
            state: watch.held().clone(),
            selection: change.selection,
            removed: change.removed,
            with_aliases: !watch.interest.is_wildcard(),
            identifier: source.identifier(&watch.type_url),
        };
        self.note_sent(&response, pushed);
        response
    }

    fn answer_query(
        &mut self,
        type_url: Arc<str>,
        interest: &Interest,
        source: &impl Source,
    ) -> Result<Response, Refusal> {
        let set = source.resources(&type_url, interest)?;
        let response = Response {
            protocol: self.protocol,
            nonce: self.nonces.next(),
            state: State { set, parents: None },
            selection: Selection::All,
            removed: Vec::new(),
            with_aliases: true,
            identifier: source.identifier(&type_url),
            type_url,
        };
        self.note_sent(&response, false);
        Ok(response)
    }

    fn note_sent(&mut self, response: &Response, pushed: bool) {
        self.events.push(SessionEvent::Sent {
            type_url: response.type_url().clone(),
            nonce: Arc::clone(&response.nonce),
            version: response.version(),
            revision: self.revision,
            pushed,
            resources: response.len(),
            removed: response.removed().len(),
            bytes: response.body_bytes(),
        });
    }

    fn settle(&mut self) {
        let is_busy = self.watches.iter().any(Watch::is_busy);
        if self.settled == Some(self.revision) || self.watches.is_empty() || is_busy {
            return;
        }
        self.settled = Some(self.revision);
        self.events.push(SessionEvent::Settled { revision: self.revision });
    }
}

/// The resources for an interest in what is watched; without an interest none, unless the type is special.
fn resources(source: &impl Source, watch: &Watch, interest: &Interest) -> Result<ResourceSet, Refusal> {
    if interest.is_nothing() && !watch.rules.unasked {
        return Ok(ResourceSet::default());
    }
    source.resources(&watch.type_url, interest)
}

/// Names asked for in `newer` that were not asked for in `older`.
fn newly_asked(older: &Interest, newer: &Interest) -> Vec<Arc<str>> {
    let nothing = Names::default();
    let newer = newer.names().unwrap_or(&nothing);
    newer.missing_from(older.names().unwrap_or(&nothing))
}

/// Numbers the responses of one stream.
struct Nonces {
    id: u64,
    last: u64,
}

impl Nonces {
    fn next(&mut self) -> Arc<str> {
        self.last += 1;
        // Sixteen digits, a dash, and sixteen digits at the most.
        let mut text = [0; 33];
        let mut rest = &mut text[..];
        let written = write!(rest, "{:016x}-{:x}", self.id, self.last);
        let left = rest.len();
        debug_assert!(written.is_ok());
        str::from_utf8(&text[..text.len() - left]).unwrap_or_default().into()
    }

    /// The number in a nonce of this stream.
    fn read(&self, nonce: &str) -> Option<u64> {
        let (id, number) = nonce.split_once('-')?;
        let ours = u64::from_str_radix(id, 16) == Ok(self.id);
        ours.then(|| u64::from_str_radix(number, 16).ok()).flatten()
    }
}
