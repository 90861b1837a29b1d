//! One subscription: what the client wants of a type, what it has, and what it has yet to acknowledge.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_base::FastSet;
use canopus_base::hash::ContentHash;

use super::Protocol;
use super::response::{Selection, State};
use crate::interest::Interest;
use crate::names::Names;
use crate::resource::{Difference, Resource, ResourceSet};
use crate::types::{Removals, Rules, Types};

pub(super) struct Watch {
    pub(super) type_url: Arc<str>,
    pub(super) rules: Rules,
    /// The types that decide what the client should have.
    pub(super) depends_on: Types,
    pub(super) interest: Interest,
    pub(super) due: Due,
    /// Nonce of the last response, if there was one.
    pub(super) sent: Option<Arc<str>>,
    /// The state the client has once it accepts everything sent.
    held: State,
    /// The responses whose fate is unknown.
    unsettled: Option<Unsettled>,
    /// Names whose version at the client is uncertain, because it refused a response about them.
    uncertain: Names,
    /// Resources that no longer exist but that the client was not told to drop.
    kept: Vec<Resource>,
    /// Whether the client has resources of an earlier stream of which only the versions are known.
    has_stand_ins: bool,
}

/// Responses the client has neither accepted nor refused.
struct Unsettled {
    /// The state the client had before these responses.
    before: ResourceSet,
    /// Names they are about, apart from those that tell `before` from what is held now.
    touched: Names,
    /// The client rejected one of the responses.
    refused: bool,
}

/// The next step of a watch.
#[derive(Debug, Default)]
pub(super) enum Due {
    #[default]
    Nothing,
    /// Something may have changed: send the difference.
    Check,
    /// The client asked: answer even if there is nothing new.
    Answer(Answer),
}

/// An answer the client waits for.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Names it had not asked for before.
    pub(super) asked: Vec<Arc<str>>,
    /// State that the client claims from an earlier stream.
    pub(super) claims: Claims,
    /// The client wants everything again.
    pub(super) afresh: bool,
}

/// State that a client claims from an earlier stream.
#[derive(Debug, Default)]
pub(super) enum Claims {
    #[default]
    Nothing,
    /// A version for each name (delta).
    Each(BTreeMap<String, String>),
    /// One version for all (state of the world).
    Whole(String),
    /// A version for each name, which the watch has taken for what the client has.
    Believed,
}

/// Result of [`Watch::advance`].
pub(super) enum Step {
    /// Nothing to send.
    Quiet,
    /// The client said it has the current state, and it does.
    Current,
    /// Send this change; the flag says whether it is a push, not an answer.
    Send(Change, bool),
}

/// The difference to send to a client.
pub(super) struct Change {
    pub(super) selection: Selection,
    pub(super) removed: Vec<Arc<str>>,
}

impl Watch {
    pub(super) fn new(type_url: Arc<str>, rules: Rules, interest: Interest) -> Self {
        let parent = rules.completes.map(Types::only).unwrap_or_default();
        Self {
            depends_on: Types::only(&type_url).union(parent),
            type_url,
            rules,
            interest,
            due: Due::Nothing,
            sent: None,
            held: State::default(),
            unsettled: None,
            uncertain: Names::default(),
            kept: Vec::new(),
            has_stand_ins: false,
        }
    }

    pub(super) fn held(&self) -> &State {
        &self.held
    }

    /// Names of what the client has, or has not yet acknowledged to have lost, although there is no such thing `now`.
    pub(super) fn leaving(&self, now: &ResourceSet) -> Vec<Arc<str>> {
        let before = self.unsettled.as_ref().map(|unsettled| &unsettled.before);
        let had = [Some(&self.held.set), before].into_iter().flatten().filter(|had| *had != now);
        let mut gone: Vec<Arc<str>> = had.flat_map(|had| now.since(had).removed.clone()).collect();
        gone.sort_unstable();
        gone.dedup();
        gone
    }

    /// `target`, but with what the client has under these names, if it has something.
    pub(super) fn with_held(&self, target: ResourceSet, names: &[Arc<str>]) -> ResourceSet {
        let held = names.iter().filter_map(|name| self.held.set.get(name));
        let held: Vec<&Resource> = held.filter(|held| target.get(&held.name) != Some(held)).collect();
        if held.is_empty() {
            return target;
        }
        target.iter().chain(held).cloned().collect()
    }

    /// The client has these parents, if nothing is known of its parents yet.
    pub(super) fn keep_parents(&mut self, parents: &ResourceSet) {
        self.held.parents.get_or_insert_with(|| parents.clone());
    }

    /// Whether there is something to do for it.
    pub(super) fn is_due(&self) -> bool {
        !matches!(self.due, Due::Nothing)
    }

    /// Whether there is something to do for it, or a response is on its way.
    pub(super) fn is_busy(&self) -> bool {
        self.is_due() || self.is_unsettled()
    }

    /// Whether the client waits for an answer.
    pub(super) fn owes_answer(&self) -> bool {
        matches!(self.due, Due::Answer(_))
    }

    /// Whether the client said that it has something from an earlier stream, and has no answer yet.
    pub(super) fn has_claims(&self) -> bool {
        let Due::Answer(answer) = &self.due else { return false };
        match &answer.claims {
            Claims::Nothing | Claims::Believed => false,
            Claims::Each(versions) => !versions.is_empty(),
            Claims::Whole(version) => !version.is_empty(),
        }
    }

    /// Whether the client said that everything it has from an earlier stream is of this version.
    pub(super) fn claims(&self, version: ContentHash) -> bool {
        let Due::Answer(Answer { claims: Claims::Whole(claimed), .. }) = &self.due else { return false };
        *claimed == version.to_string()
    }

    /// Takes what a delta client claims to have from an earlier stream for what it has, once there is a target to compare
    /// the versions with. The order of clusters then applies to a client that returns as to one that stayed.
    pub(super) fn believe(&mut self, target: &State) {
        let Due::Answer(Answer { claims, .. }) = &mut self.due else { return };
        if let Claims::Each(versions) = claims {
            self.held = believed(versions, target);
            self.has_stand_ins = self.rules.completes.is_some();
            *claims = Claims::Believed;
        }
    }

    /// Finds out what the client has where only a version was known, if the world has it again: such as the endpoints of a
    /// cluster that was gone when the client came back.
    pub(super) fn recognise(&mut self, target: &State) {
        if !self.has_stand_ins {
            return;
        }
        let is_stand_in = |held: &&Resource| held.body.is_empty();
        let found: Vec<Resource> = self
            .held
            .set
            .iter()
            .filter(is_stand_in)
            .filter_map(|held| {
                target.set.get(&held.name).filter(|now| target.version_of(now) == held.version)
            })
            .cloned()
            .collect();
        if !found.is_empty() {
            self.held.set = self.held.set.iter().cloned().chain(found).collect();
        }
        self.has_stand_ins = self.held.set.iter().any(|held| held.body.is_empty());
    }

    /// Whether the client refused something that has not been made up for.
    pub(super) fn is_uncertain(&self) -> bool {
        !self.uncertain.is_empty()
    }

    /// What the client had before the responses whose fate is unknown.
    pub(super) fn accepted_before(&self) -> &ResourceSet {
        self.unsettled.as_ref().map_or(&self.held.set, |unsettled| &unsettled.before)
    }

    /// Whether a response is on its way whose fate is unknown.
    pub(super) fn is_unsettled(&self) -> bool {
        self.unsettled.is_some()
    }

    /// What the client certainly has, if nothing is on its way to it.
    pub(super) fn accepted(&self) -> ResourceSet {
        self.held.set.without(&self.uncertain)
    }

    /// What the client certainly had before what it has not settled yet, and what that leads to.
    pub(super) fn contested(&self) -> (ResourceSet, ResourceSet) {
        (self.accepted_before().without(&self.uncertain), self.held.set.clone())
    }

    /// Schedules a comparison with the present world, without forgetting an answer the client is owed.
    pub(super) fn check(&mut self) {
        if matches!(self.due, Due::Nothing) {
            self.due = Due::Check;
        }
    }

    /// The client waits for an answer, besides one that it may be waiting for already.
    pub(super) fn owe(&mut self, answer: Answer) {
        match &mut self.due {
            Due::Answer(owed) => {
                owed.asked.extend(answer.asked);
                owed.afresh |= answer.afresh;
            }
            due => *due = Due::Answer(answer),
        }
    }

    /// The client accepted the last response.
    pub(super) fn accept(&mut self) {
        if self.unsettled.take().is_some_and(|unsettled| !unsettled.refused) {
            self.uncertain = Names::default();
        }
    }

    /// The client refused a response: the last one, or one before it that is still unsettled.
    ///
    /// The client may have applied a part of it. Nothing is sent again by itself, as equal bytes would be refused again; but with the
    /// next change everything goes along that the client may have missed.
    pub(super) fn refuse(&mut self, was_last: bool) {
        let Some(mut unsettled) = self.unsettled.take() else { return };
        let lost = unsettled.names(&self.held.set);
        self.uncertain = self.uncertain.changed(&lost, &Names::default());
        if !was_last {
            unsettled.refused = true;
            self.unsettled = Some(unsettled);
        }
    }

    /// The client dropped these by itself.
    pub(super) fn forget(&mut self, names: &Names) {
        if names.is_empty() {
            return;
        }
        self.held.set = self.held.set.without(names);
        self.uncertain = self.uncertain.changed(&[], names);
        self.kept.retain(|resource| !names.contains(&resource.name));
        if let Due::Answer(Answer { asked, claims, .. }) = &mut self.due {
            asked.retain(|name| !names.contains(name));
            if let Claims::Each(versions) = claims {
                versions.retain(|name, _| !names.contains(name));
            }
        }
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.before = unsettled.before.without(names);
            unsettled.touched = unsettled.touched.changed(&[], names);
        }
    }

    /// The client dropped all it had.
    pub(super) fn forget_everything(&mut self) {
        self.held = State::default();
        self.has_stand_ins = false;
        self.unsettled = None;
        self.uncertain = Names::default();
        self.kept.clear();
        if let Due::Answer(answer) = &mut self.due {
            *answer = Answer { afresh: answer.afresh, ..Answer::default() };
        }
    }

    /// Moves on to `target` and says what the client has to be told for it.
    pub(super) fn advance(&mut self, protocol: Protocol, target: State) -> Step {
        let answer = match std::mem::take(&mut self.due) {
            Due::Answer(answer) => Some(answer),
            Due::Nothing | Due::Check => None,
        };
        let resumes = match answer.as_ref().map(|answer| &answer.claims) {
            Some(Claims::Whole(version)) if *version == target.version().to_string() => {
                self.held = target;
                return Step::Current;
            }
            Some(Claims::Believed) => true,
            _ => false,
        };
        let (mut change, matters) = self.change(&target, self.tells_removals(protocol, resumes));
        let before = self.move_on(target);
        if answer.is_none() && !matters {
            return Step::Quiet;
        }
        self.unsettled.get_or_insert_with(|| Unsettled::since(before));
        let pushed = answer.is_none();
        let answer = answer.unwrap_or_default();
        change.removed.extend(unanswered(&answer.asked, &self.held.set));
        Step::Send(self.in_terms_of(protocol, change, answer.afresh), pushed)
    }

    /// Whether the client is told of removed resources.
    fn tells_removals(&self, protocol: Protocol, resumes: bool) -> bool {
        match (protocol, self.rules.removals) {
            (Protocol::Sotw, _) => self.rules.wildcard,
            (Protocol::Delta, Removals::Pushed) => true,
            (Protocol::Delta, Removals::Answered) => resumes,
            (Protocol::Delta, Removals::Silent) => false,
        }
    }

    /// What tells `target` from what the client has, and whether that is worth a response by itself.
    fn change(&mut self, target: &State, tell_removals: bool) -> (Change, bool) {
        if self.held.set.is_empty() && self.kept.is_empty() && self.uncertain.is_empty() {
            let everything = Change { selection: Selection::All, removed: Vec::new() };
            return (everything, !target.set.is_empty());
        }
        let difference = target.set.since(&self.held.set);
        let removed = self.removed(&difference, target, tell_removals);
        // Parity: the disappearance of an extension is told by an empty response.
        let removal_matters = tell_removals || self.rules.removals == Removals::Silent;
        let removal_matters = removal_matters && !difference.removed.is_empty();

        let completed = completed(&self.held, target);
        let positions = self.uncertain.iter().filter_map(|name| target.set.position(name));
        let uncertain: Vec<u32> = positions.collect();
        if completed.is_empty() && uncertain.is_empty() && self.kept.is_empty() {
            let matters = removal_matters || !difference.updated.is_empty();
            return (Change { selection: Selection::Shared(difference), removed }, matters);
        }
        let updated = difference.updated.iter().copied();
        let updated = updated.filter(|at| !self.is_kept(&target.set, *at));
        let mut positions: Vec<u32> = updated.chain(completed).collect();
        let matters = removal_matters || !positions.is_empty();
        positions.extend(uncertain);
        positions.sort_unstable();
        positions.dedup();
        self.kept.retain(|resource| target.set.get(&resource.name).is_none());
        (Change { selection: Selection::Own(positions), removed }, matters)
    }

    /// What the client has to drop. If it is not to be told, the watch bears in mind that the client has it.
    fn removed(&mut self, difference: &Difference, target: &State, tell: bool) -> Vec<Arc<str>> {
        if !tell {
            let gone = difference.removed.iter().filter_map(|name| self.held.set.get(name));
            self.kept.extend(gone.cloned());
            return Vec::new();
        }
        let uncertain = self.uncertain.iter().filter(|name| target.set.get(name).is_none());
        difference.removed.iter().chain(uncertain).cloned().collect()
    }

    /// Whether the client still has the resource at this position from before it disappeared.
    fn is_kept(&self, set: &ResourceSet, at: u32) -> bool {
        set.get_at(at as usize).is_some_and(|new| {
            let same = |kept: &Resource| kept.name == new.name && kept.version == new.version;
            self.kept.iter().any(same) && !self.uncertain.contains(&new.name)
        })
    }

    /// Makes `target` what the client has, and returns what it had.
    fn move_on(&mut self, target: State) -> ResourceSet {
        if let Some(unsettled) = &mut self.unsettled
            && target.set != self.held.set
        {
            unsettled.touched = Names::new(unsettled.names(&self.held.set));
        }
        std::mem::replace(&mut self.held, target).set
    }

    /// The change as the protocol can say it.
    fn in_terms_of(&self, protocol: Protocol, mut change: Change, afresh: bool) -> Change {
        match protocol {
            Protocol::Delta if self.rules.removals != Removals::Silent => {
                change.removed.sort_unstable();
                change.removed.dedup();
            }
            _ => change.removed.clear(),
        }
        if protocol == Protocol::Sotw && (self.rules.wildcard || afresh) {
            change.selection = Selection::All;
        }
        change
    }
}

impl Unsettled {
    fn since(before: ResourceSet) -> Self {
        Self { before, touched: Names::default(), refused: false }
    }

    /// The names of everything these responses are about.
    fn names(&self, held: &ResourceSet) -> Vec<Arc<str>> {
        let difference = held.since(&self.before);
        let updated = difference.updated.iter().filter_map(|at| held.get_at(*at as usize));
        let names = updated.map(|resource| &resource.name).chain(&difference.removed);
        self.touched.iter().chain(names).cloned().collect()
    }
}

/// What a client has that claims these versions: resources of `target` where they match, and otherwise stand-ins that have
/// a version and no content.
fn believed(versions: &BTreeMap<String, String>, target: &State) -> State {
    let mut current = target.versions();
    let mut has = |resource: &&Resource| {
        let version = current.next(resource);
        let claimed = versions.get(&*resource.name);
        claimed.is_some_and(|claimed| claimed.parse() == Ok(version))
    };
    let matching: Vec<Resource> = target.set.iter().filter(&mut has).cloned().collect();
    let is_matching = |name: &str| matching.binary_search_by(|resource| (*resource.name).cmp(name)).is_ok();
    let others = versions.iter().filter(|(name, _)| !is_matching(name));
    // A client that is not told to drop it need not be sent it again, should it come back as it was.
    let others = others.map(|(name, version)| Resource {
        version: version.parse().unwrap_or_default(),
        ..Resource::new(name.as_str(), "")
    });
    let others: Vec<Resource> = others.collect();
    State { set: matching.into_iter().chain(others).collect(), parents: target.parents.clone() }
}

/// Positions of the resources in `target` that complete a resource which is new or changed since `held`.
fn completed(held: &State, target: &State) -> Vec<u32> {
    let Some(parents) = &target.parents else {
        return Vec::new();
    };
    let Some(before) = &held.parents else {
        return parents.iter().filter_map(|parent| target.set.position(&parent.name)).collect();
    };
    if parents == before {
        return Vec::new();
    }
    let changed = parents.since(before);
    let changed = changed.updated.iter().filter_map(|at| parents.get_at(*at as usize));
    changed.filter_map(|parent| target.set.position(&parent.name)).collect()
}

/// The requested names that no resource answers to, by its name or an alias.
fn unanswered(asked: &[Arc<str>], set: &ResourceSet) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = asked.iter().filter(|name| set.get(name).is_none()).cloned().collect();
    if !names.is_empty() {
        let aliases: FastSet<&str> =
            set.iter().flat_map(|resource| resource.aliases.iter().map(|alias| &**alias)).collect();
        names.retain(|name| !aliases.contains(&**name));
    }
    names
}
