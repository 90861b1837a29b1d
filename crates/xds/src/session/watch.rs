//! One subscription: what the client wants of a type, what it has, and what it has yet to acknowledge.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_base::FastSet;

use super::Protocol;
use super::response::{Selection, State};
use crate::interest::Interest;
use crate::names::Names;
use crate::resource::{Resource, ResourceSet};
use crate::types::{Removals, Rules};

pub(super) struct Watch {
    pub(super) type_url: Arc<str>,
    pub(super) rules: Rules,
    pub(super) interest: Interest,
    pub(super) due: Due,
    /// Number of the last response, zero before the first.
    pub(super) sent: u64,
    /// What the client has once it accepts everything sent.
    held: State,
    /// What it had before the responses it has not acknowledged; `None` if there are none.
    before: Option<ResourceSet>,
    /// One of those responses was refused.
    refused: bool,
    /// Names whose version at the client is uncertain, because it refused a response about them.
    uncertain: Names,
    /// Resources that no longer exist but that the client was not told to drop.
    kept: Vec<Resource>,
}

/// What a watch has to do next.
#[derive(Debug, Default)]
pub(super) enum Due {
    #[default]
    Nothing,
    /// Something may have changed: send what did.
    Check,
    /// The client asked: answer even if there is nothing new.
    Answer(Answer),
}

/// An answer the client waits for.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Names it had not asked for before.
    pub(super) asked: Vec<Arc<str>>,
    /// What it has from an earlier stream.
    pub(super) claims: Claims,
    /// It wants everything again.
    pub(super) afresh: bool,
}

/// What a client says it has from an earlier stream.
#[derive(Debug, Default)]
pub(super) enum Claims {
    #[default]
    Nothing,
    /// A version for each name (delta).
    Each(BTreeMap<String, String>),
    /// One version for all (state of the world).
    Whole(String),
}

/// What [`Watch::advance`] found.
pub(super) enum Step {
    /// There is nothing to send.
    Quiet,
    /// The client said it has the current state, and it does.
    Current,
    /// This is to be sent.
    Send { selection: Selection, removed: Vec<Arc<str>> },
}

impl Watch {
    pub(super) fn new(type_url: Arc<str>, rules: Rules, interest: Interest) -> Self {
        Self {
            type_url,
            rules,
            interest,
            due: Due::Nothing,
            sent: 0,
            held: State::default(),
            before: None,
            refused: false,
            uncertain: Names::default(),
            kept: Vec::new(),
        }
    }

    pub(super) fn held(&self) -> &State {
        &self.held
    }

    /// Whether a response is on its way whose fate is unknown.
    pub(super) fn is_unsettled(&self) -> bool {
        self.before.is_some()
    }

    /// The client should have another look at the state of the world, without forgetting an answer it is owed.
    pub(super) fn check(&mut self) {
        if matches!(self.due, Due::Nothing) {
            self.due = Due::Check;
        }
    }

    /// The client accepted the last response.
    pub(super) fn accept(&mut self) {
        if self.before.take().is_some() && !self.refused {
            self.uncertain = Names::default();
        }
        self.refused = false;
    }

    /// The client refused a response: the last one, or one before it that is still unsettled.
    ///
    /// It may have applied a part. Nothing is sent again by itself, as equal bytes would be refused again; but with the
    /// next change everything goes along that the client may have missed.
    pub(super) fn refuse(&mut self, was_last: bool) {
        let Some(before) = &self.before else { return };
        let lost = self.held.set.since(before);
        let updated = lost.updated.iter().filter_map(|at| self.held.set.get_at(*at as usize));
        let names = updated.map(|resource| &resource.name).chain(&lost.removed);
        self.uncertain = Names::new(self.uncertain.iter().chain(names).cloned());
        self.refused = !was_last;
        if was_last {
            self.before = None;
        }
    }

    /// The client dropped these by itself.
    pub(super) fn forget(&mut self, names: &Names) {
        if names.is_empty() {
            return;
        }
        self.held.set = self.held.set.without(names);
        self.before = self.before.as_ref().map(|before| before.without(names));
        self.uncertain = self.uncertain.changed(&[], names);
        self.kept.retain(|resource| !names.contains(&resource.name));
    }

    /// Moves on to `target` and says what the client has to be told for it.
    pub(super) fn advance(&mut self, protocol: Protocol, target: State) -> Step {
        let answer = match std::mem::take(&mut self.due) {
            Due::Answer(answer) => Some(answer),
            Due::Nothing | Due::Check => None,
        };
        let mut removed = Vec::new();
        match answer.as_ref().map(|answer| &answer.claims) {
            Some(Claims::Whole(version)) if *version == target.version().to_string() => {
                self.held = target;
                return Step::Current;
            }
            Some(Claims::Each(versions)) => removed = self.believe(versions, &target),
            _ => {}
        }
        let pushed = self.pushed(protocol, &target, &mut removed);
        if let Some(answer) = &answer {
            removed.extend(unanswered(&answer.asked, &target.set));
        }
        removed.retain(|_| self.rules.removals != Removals::Silent && protocol == Protocol::Delta);
        removed.sort_unstable();
        removed.dedup();

        let afresh = answer.as_ref().is_some_and(|answer| answer.afresh);
        let selection = match protocol {
            Protocol::Sotw if self.rules.wildcard || afresh => Selection::All,
            _ => pushed.selection,
        };
        let quiet = answer.is_none() && !pushed.reason;
        let previous = std::mem::replace(&mut self.held, target);
        if quiet {
            return Step::Quiet;
        }
        self.before.get_or_insert(previous.set);
        Step::Send { selection, removed }
    }

    /// Takes the client's word for what it has, and returns the names of what it has too much.
    fn believe(&mut self, versions: &BTreeMap<String, String>, target: &State) -> Vec<Arc<str>> {
        let has = |resource: &&Resource| {
            let claimed = versions.get(&*resource.name);
            claimed.is_some_and(|version| *version == target.version_of(resource).to_string())
        };
        self.held =
            State { set: target.set.iter().filter(has).cloned().collect(), parents: target.parents.clone() };
        let names = versions.keys().filter(|name| target.set.get(name).is_none());
        names.map(|name| Arc::from(name.as_str())).collect()
    }

    /// What changed for the client apart from what it asked for.
    fn pushed(&mut self, protocol: Protocol, target: &State, removed: &mut Vec<Arc<str>>) -> Pushed {
        if self.held.set.is_empty() && self.kept.is_empty() && self.uncertain.is_empty() {
            return Pushed { selection: Selection::All, reason: !target.set.is_empty() };
        }
        let difference = target.set.since(&self.held.set);
        let mut own: Vec<u32> = completed(&self.held, target);
        let mut reason = !own.is_empty();
        own.extend(self.uncertain.iter().filter_map(|name| target.set.position(name)));

        let announced =
            self.rules.removals == Removals::Pushed && (protocol == Protocol::Delta || self.rules.wildcard);
        if announced {
            let gone = self.uncertain.iter().filter(|name| target.set.get(name).is_none());
            removed.extend(difference.removed.iter().chain(gone).cloned());
            reason |= !difference.removed.is_empty();
        } else {
            let gone = difference.removed.iter().filter_map(|name| self.held.set.get(name));
            self.kept.extend(gone.cloned());
            // Parity: the disappearance of an extension is told by an empty response.
            reason |= self.rules.removals == Removals::Silent && !difference.removed.is_empty();
        }

        if own.is_empty() && self.kept.is_empty() {
            reason |= !difference.updated.is_empty();
            return Pushed { selection: Selection::Shared(difference), reason };
        }
        let updated = difference.updated.iter().copied();
        let changed: Vec<u32> = updated.filter(|at| !self.has_kept(&target.set, *at)).collect();
        self.kept.retain(|resource| target.set.get(&resource.name).is_none());
        reason |= !changed.is_empty();
        own.extend(changed);
        own.sort_unstable();
        own.dedup();
        Pushed { selection: Selection::Own(own), reason }
    }

    fn has_kept(&self, set: &ResourceSet, at: u32) -> bool {
        let resource = set.get_at(at as usize);
        resource.is_some_and(|new| {
            let kept = |kept: &Resource| kept.name == new.name && kept.version == new.version;
            self.kept.iter().any(kept)
        })
    }
}

/// What changed for the client, and whether that is a reason to send something.
struct Pushed {
    selection: Selection,
    reason: bool,
}

/// Positions of the resources in `target` that complete a resource which is new or changed since `held`.
fn completed(held: &State, target: &State) -> Vec<u32> {
    let Some(parents) = &target.parents else {
        return Vec::new();
    };
    let nothing = ResourceSet::default();
    let changed = parents.since(held.parents.as_ref().unwrap_or(&nothing));
    let changed = changed.updated.iter().filter_map(|at| parents.get_at(*at as usize));
    changed.filter_map(|parent| target.set.position(&parent.name)).collect()
}

/// Those of the names asked for that no resource answers to, by its name or an alias.
fn unanswered(asked: &[Arc<str>], set: &ResourceSet) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = asked.iter().filter(|name| set.get(name).is_none()).cloned().collect();
    if !names.is_empty() {
        let aliases: FastSet<&str> =
            set.iter().flat_map(|resource| resource.aliases.iter().map(|alias| &**alias)).collect();
        names.retain(|name| !aliases.contains(&**name));
    }
    names
}
