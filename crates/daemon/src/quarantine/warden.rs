//! The part of the apply loop that decides what is held.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use canopus_api::Object;
use canopus_engine::Batch;
use canopus_mesh::world::{Objects, Origin};
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::history::{History, is_written};
use super::suspects::{Question, Served};
use super::trial::Trial;
use super::{Contested, Grounds, Hold, MOST_HELD, NAMED, Nack, Quarantine};
use crate::push::{Cause, Connection, ConnectionId, Dispatcher, Stamp};

/// How long rejections are gathered before they are looked into, so that proxies which accept the same are heard too.
const GATHER: Duration = Duration::from_millis(50);

/// How long a proxy may take to answer before it is no judge.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks into rejections and holds what is guilty of them.
pub(crate) struct Warden {
    dispatcher: Arc<Dispatcher>,
    history: History,
    /// What the changes that are about to be applied replace.
    replaced: Vec<(Origin, Option<Arc<Object>>)>,
    case: Option<Case>,
    /// When the rejections that wait are looked into.
    gathered: Option<Instant>,
}

/// How often what others change meanwhile is taken into a case; one that is disturbed more often is begun anew.
const MOST_DISTURBED: usize = 8;

/// A rejection under investigation.
struct Case {
    trial: Trial,
    /// Whether the judge has accepted nothing yet.
    is_first: bool,
    /// The revision that the suspects were looked for at: who changed later is none of them.
    opened: u64,
    disturbed: usize,
    suspects: BTreeMap<Origin, Suspect>,
    judge: ConnectionId,
    grounds: Arc<Grounds>,
    /// The revision that shows the present arrangement.
    revision: u64,
    deadline: Instant,
}

struct Suspect {
    wanted: Arc<Object>,
    served: Served,
}

impl Warden {
    /// Holds objects, or never does.
    pub(crate) fn new(dispatcher: Arc<Dispatcher>, enabled: bool) -> Self {
        dispatcher.quarantine().enabled.store(enabled, Ordering::Relaxed);
        Self { dispatcher, history: History::default(), replaced: Vec::new(), case: None, gathered: None }
    }

    fn quarantine(&self) -> &Quarantine {
        self.dispatcher.quarantine()
    }

    /// Waits until there may be something to decide.
    pub(crate) async fn due(&self) {
        let rung = self.quarantine().bell.notified();
        let alarm = self.case.as_ref().map(|case| case.deadline).or(self.gathered);
        match alarm {
            Some(at) => {
                // Either is a reason to look.
                let _ = timeout_at(at, rung).await;
            }
            None => rung.await,
        }
    }

    /// Whether a change by an object's owner is to be served; not if it says again what is held back.
    pub(crate) fn admit(&mut self, origin: &Origin, object: Option<&Object>) -> bool {
        if !self.quarantine().is_enabled() {
            return true;
        }
        let wanted =
            self.case.as_ref().and_then(|case| case.suspects.get(origin)).map(|suspect| &suspect.wanted);
        let same = |wanted: &Arc<Object>| object.is_some_and(|object| wanted.same_but_for_version(object));
        if wanted.is_some_and(|wanted| !same(wanted)) {
            self.close();
        }
        if let Some(hold) = self.quarantine().hold(origin) {
            if same(&hold.wanted) {
                return false;
            }
            info!(object = %origin, "no longer held: its owner has changed it");
            self.quarantine().write([(origin.clone(), None)], self.case.is_some());
        }
        if is_written(origin.key.kind) {
            self.replaced.push((origin.clone(), self.dispatcher.engine().read::<Objects>(origin)));
        }
        true
    }

    /// The admitted changes led to a revision.
    pub(crate) fn applied(&mut self, revision: u64) {
        self.history.record(revision, std::mem::take(&mut self.replaced));
    }

    /// Decides what can be decided now.
    pub(crate) fn act(&mut self, now: Instant) {
        self.pardon();
        self.hear(now);
        if self.case.is_some() || !self.quarantine().has_waiting() {
            self.gathered = None;
        } else if self.gathered.is_none_or(|at| at <= now) {
            // The first look only starts the clock.
            match self.gathered.take() {
                Some(_) => self.look_into(now),
                None => self.gathered = Some(now + GATHER),
            }
        }
    }

    /// Goes on with the case as far as its judge has answered.
    fn hear(&mut self, now: Instant) {
        while let Some(case) = &mut self.case {
            let judge = self.dispatcher.connections().get(case.judge);
            match judge {
                Some(judge) if judge.has_answered(case.revision) => {
                    match verdict(&self.dispatcher, &self.history, case, &judge) {
                        Verdict::Disturbed(_) if case.disturbed >= MOST_DISTURBED => self.close(),
                        Verdict::Disturbed(newcomers) => {
                            case.take_in(newcomers);
                            self.arrange(now);
                        }
                        Verdict::Of(accepted) => self.go_on(accepted, now),
                    }
                }
                Some(_) if now < case.deadline => break,
                Some(_) => {
                    self.dispatcher.quarantine().clear(&case.grounds);
                    self.close();
                }
                None => self.close(),
            }
        }
    }

    /// Goes on with the case, given whether its judge accepts the present arrangement.
    fn go_on(&mut self, accepted: bool, now: Instant) {
        let Some(case) = &mut self.case else { return };
        case.trial.answer(accepted);
        if case.trial.is_over() && case.trial.held().is_empty() {
            // They will be rejected again, and nothing else will come of it.
            self.dispatcher.quarantine().clear(&case.grounds);
        }
        self.arrange(now);
    }

    /// Opens the next case there is.
    fn look_into(&mut self, now: Instant) {
        let mut waiting = self.quarantine().take_waiting().into_iter();
        while self.case.is_none()
            && let Some(nack) = waiting.next()
        {
            self.case = self.open(nack, waiting.as_slice(), now);
        }
        self.quarantine().put_back(waiting);
        if self.case.is_some() {
            self.arrange(now);
            self.hear(now);
        }
    }

    /// The case of a rejection; `None` if it is over by now, somebody else accepts the same, or nothing explains it.
    fn open(&self, nack: Arc<Nack>, others: &[Arc<Nack>], now: Instant) -> Option<Case> {
        let client = self.dispatcher.connections().get(nack.connection)?;
        if !client.rejects(&nack.type_url) {
            return None;
        }
        let question = |resources| Question {
            dispatcher: &self.dispatcher,
            client: &client,
            type_url: &nack.type_url,
            resources,
        };
        let is_current = question(&nack.resources).is_current();
        let mut resources = question(&nack.resources).as_they_are();
        resources.retain(|one| !self.is_accepted(&nack.type_url, one));
        if resources.is_empty() {
            info!(proxy = nack.proxy, reason = %nack.message, "rejects what others accept; nothing is held for that");
            return None;
        }
        // What changed after the rejected message is no reason for it; if that is still what is served, nothing did.
        let until = if is_current { u64::MAX } else { nack.revision };
        let later = self.history.since(until);
        let question = question(&resources);
        let (trial, values) = match nack.accepted {
            Some(revision) => {
                let mut before = self.history.since(revision);
                before.retain(|origin, _| !later.contains_key(origin));
                let values = question.among(before);
                (Trial::by_release(values.keys().cloned().collect()), values)
            }
            None => {
                let mut suspects = question.all();
                suspects.retain(|origin| !later.contains_key(origin));
                let values = suspects.iter().map(|origin| (origin.clone(), None)).collect();
                (Trial::by_hold(suspects), values)
            }
        };
        let names: BTreeSet<_> = resources.iter().map(|one| Arc::clone(&one.name)).collect();
        if values.is_empty() || self.quarantine().len() + values.len() > MOST_HELD {
            warn!(proxy = nack.proxy, type_url = %nack.type_url, resources = ?names, suspects = values.len(),
                reason = %nack.message, "rejected, and no object can be held for it");
            return None;
        }
        let engine = self.dispatcher.engine();
        let suspect = |(origin, served)| {
            let wanted = engine.read::<Objects>(&origin)?;
            Some((origin, Suspect { wanted, served }))
        };
        let same = |other: &&Arc<Nack>| other.resources.iter().any(|one| names.contains(&one.name));
        let proxies = others.iter().filter(same).map(|other| other.proxy.clone());
        let proxies = std::iter::once(nack.proxy.clone()).chain(proxies).take(NAMED).collect();
        Some(Case {
            trial,
            is_first: nack.accepted.is_none(),
            opened: until.min(engine.revision().number()),
            disturbed: 0,
            suspects: values.into_iter().filter_map(suspect).collect(),
            judge: nack.connection,
            grounds: Arc::new(Grounds { nack, resources, proxies }),
            revision: 0,
            deadline: now + PATIENCE,
        })
    }

    /// Whether a client has accepted the very bytes.
    fn is_accepted(&self, type_url: &str, one: &Contested) -> bool {
        let all = self.dispatcher.connections().all();
        all.iter().any(|client| client.has_accepted(type_url, &one.name, one.rejected))
            || self.quarantine().is_cleared(type_url, one)
    }

    /// Serves what the trial says, and ends the case if that is its last word.
    fn arrange(&mut self, now: Instant) {
        let Some(case) = &self.case else { return };
        let (held, is_over) = (case.trial.held(), case.trial.is_over());
        let mut batch = Batch::new();
        let mut holds = Vec::new();
        for (origin, Suspect { wanted, served }) in &case.suspects {
            let is_held = held.contains(origin);
            serve(&mut batch, origin, if is_held { served.clone() } else { Some(Arc::clone(wanted)) });
            let hold = is_held.then(|| Hold {
                wanted: Arc::clone(wanted),
                served: served.clone(),
                since: Stamp::now(),
                is_guilty: is_over,
                grounds: Arc::clone(&case.grounds),
            });
            holds.push((origin.clone(), hold));
        }
        let released = case.suspects.iter().filter(|(origin, _)| !held.contains(origin));
        let released: Vec<Origin> = released.map(|(origin, _)| origin.clone()).collect();
        let cause = Cause::quarantine(case.suspects.keys().cloned());
        // Written down first: whoever accepts what is served must find it.
        self.dispatcher.quarantine().write(holds, !is_over);
        let revision = self.release(batch, released, cause);
        if let Some(case) = &mut self.case {
            (case.revision, case.deadline) = (revision, now + PATIENCE);
        }
        if is_over && let Some(case) = self.case.take() {
            report(&case);
        }
    }

    /// Ends the case with what is known.
    fn close(&mut self) {
        if let Some(case) = &mut self.case {
            case.trial.stop();
            self.arrange(Instant::now());
        }
    }

    /// Serves again what was held for something that a client has accepted after all.
    fn pardon(&mut self) {
        let pardoned = self.quarantine().take_pardoned();
        if let Some(case) = &mut self.case
            && pardoned.iter().any(|origin| case.suspects.contains_key(origin))
        {
            case.trial.dismiss();
            self.arrange(Instant::now());
        }
        let mut batch = Batch::new();
        let mut released = Vec::new();
        for origin in pardoned {
            if let Some(hold) = self.quarantine().hold(&origin) {
                info!(object = %origin, "no longer held: a proxy has accepted what follows from it");
                serve(&mut batch, &origin, Some(hold.wanted));
                released.push(origin);
            }
        }
        if !released.is_empty() {
            self.quarantine()
                .write(released.iter().map(|origin| (origin.clone(), None)), self.case.is_some());
            let cause = Cause::quarantine(released.iter().cloned());
            self.release(batch, released, cause);
        }
    }

    /// Applies a batch in which these objects are what their owners want; if they were not, that is a change like any other.
    fn release(&mut self, batch: Batch, released: Vec<Origin>, cause: Cause) -> u64 {
        let engine = self.dispatcher.engine();
        let before: Vec<_> =
            released.into_iter().map(|origin| (engine.read::<Objects>(&origin), origin)).collect();
        let revision = self.dispatcher.apply(batch, cause);
        let engine = self.dispatcher.engine();
        let changed = before.into_iter().filter(|(before, origin)| engine.read::<Objects>(origin) != *before);
        self.history.record(revision, changed.map(|(before, origin)| (origin, before)));
        revision
    }
}

impl Case {
    /// Begins again with these beside the suspects there are.
    fn take_in(&mut self, newcomers: BTreeMap<Origin, Suspect>) {
        self.disturbed += 1;
        let names = newcomers.keys().chain(self.suspects.keys()).cloned().collect();
        self.trial = if self.is_first { Trial::by_hold(names) } else { Trial::by_release(names) };
        self.suspects.extend(newcomers);
    }
}

/// What an answer of a judge says about the suspects.
enum Verdict {
    /// Whether what the case is about is accepted.
    Of(bool),
    /// Nothing: it is rejected, and these objects, which changed since the case was opened, may be why.
    Disturbed(BTreeMap<Origin, Suspect>),
}

fn verdict(dispatcher: &Dispatcher, history: &History, case: &Case, judge: &Connection) -> Verdict {
    let Grounds { nack, resources, .. } = &*case.grounds;
    if !judge.rejects(&nack.type_url) {
        return Verdict::Of(true);
    }
    let Some(last) = dispatcher.quarantine().last_of(judge.id, &nack.type_url) else {
        return Verdict::Of(false);
    };
    // A proxy that names others has taken these; the others are a case of their own.
    if !last.resources.iter().any(|one| resources.iter().any(|own| own.name == one.name)) {
        return Verdict::Of(true);
    }
    let mut later = history.since(case.opened);
    later.retain(|origin, _| !case.suspects.contains_key(origin));
    let question = |resources| Question { dispatcher, client: judge, type_url: &nack.type_url, resources };
    let rejected = question(&last.resources).as_they_are();
    let newcomers = question(&rejected).among(later).into_iter().filter_map(|(origin, served)| {
        let wanted = dispatcher.engine().read::<Objects>(&origin)?;
        Some((origin, Suspect { wanted, served }))
    });
    let newcomers: BTreeMap<_, _> = newcomers.collect();
    let all = dispatcher.quarantine().len() + newcomers.len();
    if newcomers.is_empty() || all > MOST_HELD {
        return Verdict::Of(false);
    }
    Verdict::Disturbed(newcomers)
}

fn serve(batch: &mut Batch, origin: &Origin, value: Served) {
    match value {
        Some(object) => batch.set_shared::<Objects>(origin.clone(), object),
        None => batch.remove::<Objects>(origin),
    };
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
            "held: proxies reject what follows from it; it is tried again when its owner changes it");
    }
    if guilty.is_empty() {
        warn!(proxy = nack.proxy, type_url = %nack.type_url, ?resources, %reason,
            "rejected, and none of the objects behind it is found to be the reason");
    }
}
