//! The part of the apply loop that decides what is held.

mod case;
mod end;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use canopus_api::Object;
use canopus_mesh::world::{Objects, Origin};
use tokio::time::{Instant, timeout_at};
use tracing::{error, info, warn};

use self::case::{Case, Suspect, Verdict};
use super::history::{History, is_written};
use super::siblings;
use super::suspects::Question;
use super::trial::Trial;
use super::{Contested, Grounds, Hold, HoldKey, NAMED, Nack, Quarantine};
use crate::push::{Cause, Connection, Dispatcher, Stamp};

/// How long rejections are gathered before they are looked into, so that proxies which accept the same are heard too.
const GATHER: Duration = Duration::from_millis(50);

/// How long a proxy may take to answer before it is no judge.
const PATIENCE: Duration = Duration::from_secs(10);

/// After a look into rejections, others are applied for so many times as long before the next one.
const REST: u32 = 10;

/// Tells the time. A simulation has a clock of its own, so that a seed leads to the same decisions each time.
pub(crate) type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// Looks into rejections and holds what is guilty of them.
pub(crate) struct QuarantineController {
    dispatcher: Arc<Dispatcher>,
    quarantine: Arc<Quarantine>,
    clock: Clock,
    history: History,
    /// What the changes that are about to be applied replace.
    replaced: Vec<(Origin, Option<Arc<Object>>)>,
    case: Option<Case>,
    /// When the rejections that wait are looked into.
    gathered: Option<Instant>,
    /// When whoever waits for the answers of others has waited long enough.
    awaited: Option<Instant>,
    /// When holds are looked at again.
    review: Option<Instant>,
    /// The name of the last case.
    last_case: u64,
    /// What was tried again in vain, and how often.
    tried: BTreeMap<Origin, (Arc<Object>, u32)>,
    /// A defect for tests: the next decision panics.
    #[cfg(test)]
    is_broken: bool,
}

/// How often what others change meanwhile is taken into a case; one that is disturbed more often is begun anew.
const MOST_DISTURBED: usize = 8;

/// Why nothing is held for a client that rejects what another accepts.
const ALONE: &str = "others accept the same; the proxy is alone with it, and nothing is held";

/// What a look into a rejection leads to.
enum Look {
    Case(Box<Case>),
    /// Nothing, for this reason.
    Nothing(String),
    /// Objects that are held already are held for the client too.
    Joined,
    /// Some judge has yet to answer.
    Later,
}

impl QuarantineController {
    /// Decides by what `quarantine` was told as an observer of the dispatcher.
    pub(crate) fn new(dispatcher: Arc<Dispatcher>, quarantine: Arc<Quarantine>) -> Self {
        Self {
            dispatcher,
            quarantine,
            clock: Arc::new(Instant::now),
            history: History::default(),
            replaced: Vec::new(),
            case: None,
            gathered: None,
            awaited: None,
            review: None,
            last_case: 0,
            tried: BTreeMap::new(),
            #[cfg(test)]
            is_broken: false,
        }
    }

    /// The same with another clock.
    #[cfg(test)]
    pub(crate) fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// What is rejected, and what is held for it.
    pub(crate) fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    fn now(&self) -> Instant {
        (self.clock)()
    }

    /// Waits until there may be something to decide.
    pub(crate) async fn due(&self) {
        let rung = self.quarantine().bell.notified();
        let case = self.case.as_ref().map(|case| case.deadline).or(self.gathered);
        let alarm = [case, self.review].into_iter().flatten().min();
        match alarm {
            Some(at) => {
                // Either is a reason to look.
                let _ = timeout_at(at, rung).await;
            }
            None => rung.await,
        }
    }

    /// The owner of an object is about to change it. If it is held, the new value is tried, unless it says the same again.
    pub(crate) fn admit(&mut self, origin: &Origin, object: Option<&Object>) {
        self.contained(|controller| controller.weigh(origin, object));
    }

    fn weigh(&mut self, origin: &Origin, object: Option<&Object>) {
        if !self.quarantine().is_enabled() {
            return;
        }
        let wanted =
            self.case.as_ref().and_then(|case| case.suspects.get(origin)).map(|suspect| &suspect.wanted);
        let same = |wanted: &Arc<Object>| object.is_some_and(|object| wanted.same_but_for_version(object));
        if wanted.is_some_and(|wanted| !same(wanted)) {
            self.close();
        }
        let mut ended = self.quarantine().holds_of(origin);
        ended.retain(|(_, hold)| !same(&hold.wanted));
        if !ended.is_empty() {
            info!(object = %origin, "no longer held: its owner has changed it");
            self.tried.remove(origin);
            self.quarantine().write(ended.into_iter().map(|(key, _)| (key, None)), self.case.is_some());
            self.dispatcher.overlay_with_next(self.quarantine().replaced());
        }
        if is_written(origin.key.kind) {
            self.replaced.push((origin.clone(), self.dispatcher.engine().read::<Objects>(origin)));
        }
    }

    /// The admitted changes led to a revision.
    pub(crate) fn applied(&mut self, revision: u64) {
        self.history.record(revision, std::mem::take(&mut self.replaced));
    }

    /// Decides what can be decided now.
    pub(crate) fn act(&mut self, now: Instant) {
        self.contained(|controller| controller.decide(now));
    }

    /// Does something that must not stop the apply loop: what panics is given up, and objects are applied as before.
    fn contained<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(done) => Some(done),
            Err(_) => {
                error!(
                    "quarantine panicked; the case it was at is dropped, and what was only suspected is served"
                );
                // A second panic is logged like the first, and leaves the holds as they are.
                let _ = catch_unwind(AssertUnwindSafe(|| self.give_up()));
                None
            }
        }
    }

    /// Forgets everything that is undecided and serves whatever is held without being known to be guilty.
    fn give_up(&mut self) {
        (self.case, self.gathered, self.awaited) = (None, None, None);
        self.quarantine().take_waiting();
        self.quarantine().panicked();
        let mut suspected = self.quarantine().entries();
        suspected.retain(|(_, hold)| !hold.is_guilty);
        self.release(suspected.into_iter().map(|(key, _)| key).collect());
    }

    fn decide(&mut self, now: Instant) {
        #[cfg(test)]
        assert!(!std::mem::take(&mut self.is_broken), "a defect");
        self.pardon();
        self.hear(now);
        self.review(now);
        if self.case.is_some() || !self.quarantine().has_waiting() {
            self.gathered = None;
        } else if self.gathered.is_none_or(|at| at <= now) {
            // The first look only starts the clock.
            match self.gathered.take() {
                Some(_) => {
                    let started = self.now();
                    self.look_into(now);
                    if self.case.is_none() && self.quarantine().has_waiting() {
                        let took = self.now() - started;
                        self.gathered = Some(now + GATHER.max(took * REST));
                    }
                }
                None => self.gathered = Some(now + GATHER),
            }
        }
    }

    /// Advances the case as far as its judges have answered.
    fn hear(&mut self, now: Instant) {
        while let Some(case) = &mut self.case {
            let judges = case.judges(&self.dispatcher);
            if judges.is_empty() {
                case.grounds.nack.conclude("the proxies that reject it have left");
                self.close();
            } else if judges.iter().any(|judge| !judge.has_answered(case.revision)) {
                if now < case.deadline {
                    break;
                }
                case.grounds
                    .nack
                    .conclude("the proxies that reject it do not answer what is tried; nothing is held");
                self.quarantine.clear(&case.grounds);
                self.close();
            } else {
                match case.verdict(&self.dispatcher, &self.quarantine, &self.history, &judges) {
                    Verdict::Disturbed(_) if case.disturbed >= MOST_DISTURBED => self.close(),
                    Verdict::Disturbed(newcomers) => {
                        case.take_in(newcomers);
                        self.arrange(now);
                    }
                    Verdict::Of(accepted) => self.go_on(accepted, now),
                    Verdict::Divided => self.drop_case("the proxies that rejected it disagree", now),
                }
            }
        }
    }

    /// Ends the case with nobody guilty; the same is not looked into again.
    fn drop_case(&mut self, reason: &str, now: Instant) {
        let Some(case) = &mut self.case else { return };
        case.grounds.nack.conclude(reason);
        case.trial.dismiss();
        self.quarantine.clear(&case.grounds);
        self.arrange(now);
    }

    /// Advances the case, given whether its judge accepts the present arrangement.
    fn go_on(&mut self, accepted: bool, now: Instant) {
        let Some(case) = &mut self.case else { return };
        case.trial.answer(accepted);
        if case.trial.is_over() && case.trial.held().is_empty() {
            // The resources will be rejected again, with the same result.
            self.quarantine.clear(&case.grounds);
        }
        self.arrange(now);
    }

    /// Opens the next case there is.
    fn look_into(&mut self, now: Instant) {
        let connections = self.dispatcher.connections();
        self.quarantine().forget_all_but(|id| connections.get(id).is_some());
        let is_patient = self.awaited.is_none_or(|until| now < until);
        let mut waiting = self.quarantine().take_waiting().into_iter();
        let mut later = Vec::new();
        while self.case.is_none()
            && let Some(nack) = waiting.next()
        {
            match self.open(&nack, waiting.as_slice(), is_patient, now) {
                Look::Case(case) => self.case = Some(*case),
                Look::Joined => nack.conclude("what is held for others is held for it too"),
                Look::Later => later.push(nack),
                Look::Nothing(reason) => {
                    info!(proxy = nack.proxy, type_url = %nack.type_url, words = %nack.message, "rejected: {reason}");
                    nack.conclude(reason);
                }
            }
        }
        self.awaited = (!later.is_empty()).then(|| self.awaited.unwrap_or(now + PATIENCE));
        self.quarantine().put_back(later.into_iter().chain(waiting));
        if self.case.is_some() {
            self.arrange(now);
            self.hear(now);
        }
    }

    /// What a rejection leads to.
    fn open(&mut self, nack: &Arc<Nack>, others: &[Arc<Nack>], is_patient: bool, now: Instant) -> Look {
        let nothing = |reason: &str| Look::Nothing(reason.to_owned());
        let Some(client) = self.dispatcher.connections().get(nack.connection) else {
            return nothing("the proxy has left");
        };
        if self.quarantine().rejection(client.id, &nack.type_url).is_none() {
            return nothing("the proxy has accepted a later message");
        }
        let question = |resources| Question {
            dispatcher: &self.dispatcher,
            quarantine: &self.quarantine,
            client: &client,
            type_url: &nack.type_url,
            resources,
        };
        let is_current = question(&nack.resources).is_current();
        let mut resources = question(&nack.resources).as_they_are();
        resources.retain(|one| !self.is_accepted(&nack.type_url, one));
        if resources.is_empty() {
            return nothing(ALONE);
        }
        if self.join(nack, &client, &resources) {
            return Look::Joined;
        }
        // What changed after the rejected message is no reason for it; if that is still what is served, nothing did.
        let until = if is_current { u64::MAX } else { nack.revision };
        let later = self.history.since(until);
        let question = question(&resources);
        let values = match nack.accepted {
            Some(revision) => {
                let mut before = self.history.since(revision);
                before.retain(|origin, _| !later.contains_key(origin));
                // What it accepted then may have been something else than the owners wanted.
                before.extend(self.dispatcher.overlays().past(client.id, revision));
                question.among(before).into_iter().collect()
            }
            None => {
                let mut suspects = question.all();
                suspects.retain(|origin| !later.contains_key(origin));
                suspects.into_iter().map(|origin| (origin, None)).collect::<Vec<_>>()
            }
        };
        if values.is_empty() {
            return nothing("no object that may be held explains it");
        }
        let siblings = siblings::find(&self.dispatcher, &self.quarantine, &nack.type_url, &resources);
        if siblings.content.is_some() {
            return nothing(ALONE);
        }
        if is_patient && !siblings.awaited.is_empty() {
            return Look::Later;
        }
        if !siblings.are_enough() {
            return nothing("not all proxies that are sent the same have answered; nothing is held");
        }
        let mut members = siblings.rejecting;
        members.connections.insert(client.id);
        members.identities.extend(nack.identity.clone());
        if self.quarantine().is_full(values.len(), &members) {
            return nothing("too many objects are held already");
        }
        let names: BTreeSet<_> = resources.iter().map(|one| Arc::clone(&one.name)).collect();
        let same = |other: &&Arc<Nack>| other.resources.iter().any(|one| names.contains(&one.name));
        let proxies = others.iter().filter(same).map(|other| other.proxy.clone());
        let proxies = std::iter::once(nack.proxy.clone()).chain(proxies).take(NAMED).collect();
        let engine = self.dispatcher.engine();
        let origins: Vec<Origin> = values.iter().map(|(origin, _)| origin.clone()).collect();
        let is_first = nack.accepted.is_none();
        let suspect = |(origin, served)| {
            let wanted = engine.read::<Objects>(&origin)?;
            Some((origin, Suspect { wanted, served }))
        };
        self.last_case += 1;
        Look::Case(Box::new(Case {
            id: self.last_case,
            trial: if is_first { Trial::by_hold(origins) } else { Trial::by_release(origins) },
            is_first,
            opened: until.min(engine.revision().number()),
            disturbed: 0,
            suspects: values.into_iter().filter_map(suspect).collect(),
            members,
            grounds: Arc::new(Grounds { nack: Arc::clone(nack), resources, proxies }),
            revision: 0,
            deadline: now + PATIENCE,
        }))
    }

    /// Serves a client what is held for others already, if it rejects what they rejected, or has proved to be one of them and
    /// rejects the same resource; and so all others that do.
    fn join(&self, nack: &Nack, client: &Connection, resources: &[Contested]) -> bool {
        let is_same = |hold: &Hold, identity: Option<&Arc<str>>| {
            let is_member = identity.is_some_and(|identity| hold.members.identities.contains(identity));
            let mut pairs =
                hold.grounds.resources.iter().flat_map(|own| resources.iter().map(move |one| (own, one)));
            pairs.any(|(own, one)| own.name == one.name && (is_member || own.rejected == one.rejected))
        };
        let mut holds = self.quarantine().entries();
        holds.retain(|(_, hold)| {
            hold.is_guilty
                && hold.grounds.nack.type_url == nack.type_url
                && !hold.members.connections.contains(&client.id)
                && is_same(hold, nack.identity.as_ref())
        });
        if holds.is_empty() {
            return false;
        }
        let mut more =
            siblings::find(&self.dispatcher, &self.quarantine, &nack.type_url, resources).rejecting;
        more.connections.insert(client.id);
        more.identities.extend(nack.identity.clone());
        for (key, _) in &holds {
            info!(proxy = nack.proxy, object = %key.0, "held for this proxy too");
            self.quarantine().join(key, &more);
        }
        self.redraw(holds.into_iter().map(|((origin, _), _)| origin).collect());
        true
    }

    /// Whether a client has accepted the very bytes.
    fn is_accepted(&self, type_url: &str, one: &Contested) -> bool {
        let all = self.dispatcher.connections().all();
        all.iter().any(|client| client.has_accepted(type_url, &one.name, one.rejected))
            || self.quarantine().is_cleared(type_url, one)
    }

    /// Serves the members what the trial says, and ends the case if that is its last word.
    fn arrange(&mut self, now: Instant) {
        let Some(case) = &mut self.case else { return };
        let (held, is_over) = (case.trial.held(), case.trial.is_over());
        let mut holds = Vec::new();
        for (origin, Suspect { wanted, served }) in &case.suspects {
            let before = self.tried.get(origin).filter(|(tried, _)| tried.same_but_for_version(wanted));
            let hold = held.contains(origin).then(|| Hold {
                wanted: Arc::clone(wanted),
                served: served.clone(),
                since: Stamp::now(),
                is_guilty: is_over,
                grounds: Arc::clone(&case.grounds),
                members: case.members.clone(),
                tries: before.map_or(0, |(_, tries)| *tries),
                held_at: now,
            });
            holds.push(((origin.clone(), case.id), hold));
        }
        let suspects = case.suspects.keys().cloned().collect();
        // Written down first: whoever accepts what is served must find it.
        self.quarantine.write(holds, !is_over);
        let revision = self.redraw(suspects);
        if let Some(case) = &mut self.case {
            (case.revision, case.deadline) = (revision, now + PATIENCE);
        }
        if is_over && let Some(case) = self.case.take() {
            self.review.get_or_insert(now + end::REVIEW);
            report(&case);
        }
    }

    /// Ends the case with what is known.
    fn close(&mut self) {
        if let Some(case) = &mut self.case {
            case.trial.stop();
            self.arrange(self.now());
        }
    }

    /// Serves again what was held for something that a client has accepted after all.
    fn pardon(&mut self) {
        let pardoned = self.quarantine().take_pardoned();
        if let Some(case) = &mut self.case
            && pardoned.iter().any(|(_, id)| *id == case.id)
        {
            case.trial.dismiss();
            self.arrange(self.now());
        }
        let mut released = self.quarantine().entries();
        released.retain(|(key, _)| pardoned.contains(key));
        for ((origin, _), _) in &released {
            info!(object = %origin, "no longer held: a proxy has accepted what follows from it");
        }
        self.release(released.into_iter().map(|(key, _)| key).collect());
    }

    /// Ends holds: their members are served what the owners want.
    fn release(&self, released: Vec<HoldKey>) {
        if released.is_empty() {
            return;
        }
        let origins = released.iter().map(|(origin, _)| origin.clone()).collect();
        self.quarantine().write(released.into_iter().map(|key| (key, None)), self.case.is_some());
        self.redraw(origins);
    }

    /// Serves everybody what is held for them now, and nobody else; the revision from which on it is so.
    fn redraw(&self, about: Vec<Origin>) -> u64 {
        let connections = self.dispatcher.connections();
        let mut replaced = self.quarantine().replaced();
        replaced.retain(|client, _| connections.get(*client).is_some());
        self.dispatcher.overlay(replaced, Cause::quarantine(about))
    }
}

/// Tells whoever reads the log how a case ended.
fn report(case: &Case) {
    let Grounds { nack, resources, proxies } = &*case.grounds;
    let resources: Vec<_> = resources.iter().map(|one| &one.name).collect();
    let (field, reason) = (nack.field(), &nack.message);
    let guilty = case.trial.held();
    for origin in &guilty {
        let kept = case.suspects.get(origin).is_some_and(|suspect| suspect.served.is_some());
        let served = if kept { "the value accepted before" } else { "nothing" };
        warn!(object = %origin, field, ?proxies, ?resources, %reason, served,
            "held for the proxies that reject what follows from it; it is tried again when its owner changes it, and now and then");
    }
    if guilty.is_empty() {
        warn!(proxy = nack.proxy, type_url = %nack.type_url, ?resources, %reason,
            "rejected, and none of the objects behind it is found to be the reason");
    }
}
