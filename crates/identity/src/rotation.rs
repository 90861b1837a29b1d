//! Replacing a root while the mesh runs.
//!
//! ```text
//!            a request, or the issuer is due          everybody has the new root
//!   Stable ──────────────────────────────► Distributing ──────────────────► Retiring
//!     ▲      (a new root joins the bundle)               (the new root issues) │
//!     └────────────────────────────────────────────────────────────────────────┘
//!            the last certificate under the old root has expired (the old root leaves the bundle)
//! ```
//!
//! The state is data in the store, beside the keys it speaks of. [`step`] is a pure function of the state, the time and what
//! was observed; it gives the next state and what has to be done for it. A next state counts once the store has taken it by
//! compare-and-swap, keys and all, so that
//!
//! - a crash at any point leaves the old state or the new one, and the next process goes on from there;
//! - replicas agree: one of them wins each step, the others read what it wrote;
//! - what has to be done follows from the state, not from having been told: [`State::issuer`] signs, [`State::roots`] are
//!   handed out.
//!
//! **Invariant.** Every certificate that is still valid verifies against every bundle that is in use. It holds because a
//! replica that has not read the store for [`Policy::staleness`] stops signing, a bundle reaches every verifier within
//! [`Policy::propagation`], and each step waits for as long as these can add up to: a root issues only when nobody can have a
//! bundle without it, and leaves only when nobody can have a certificate under it.
//!
//! [`Keeper`] is the loop around all this in a process: it looks at the store, exchanges the authority's bundle, and stops it
//! when it has not read the store for too long. Its clock is a parameter, so a day can be simulated in a second.

mod keeper;
mod policy;
mod record;
mod replica;
mod state;

pub use keeper::{Clock, Keeper, wall_clock};
pub use policy::Policy;
pub use record::{NEXT_CERT, NEXT_KEY, RecordError, STATE};
pub use replica::{Replica, ReplicaError, Stored, Tick, inspect, request};
pub use state::{Phase, Root, State};

/// What is known beside the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations {
    /// A root that was made because [`Action::Generate`] asked for it, and that is not in the store yet.
    pub generated: Option<Root>,
    /// How many verifiers are known to have no bundle with the newest root; `None` if nobody can tell.
    pub unconfirmed: Option<usize>,
}

/// What has to be done before the state can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a root and call [`step`] with it.
    Generate {
        /// Whether the key of the root that issues now is certified again. Parity: renewal keeps the key.
        keep_key: bool,
    },
}

/// What follows from a state at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The next state, to be stored; `None` if nothing changes.
    pub next: Option<State>,
    /// What has to be done first.
    pub action: Option<Action>,
    /// When to look again, in seconds since 1970, if nothing is observed before.
    pub wake: u64,
}

impl Step {
    fn wait(wake: u64) -> Self {
        Self { next: None, action: None, wake }
    }

    fn change_to(next: State, now: u64) -> Self {
        Self { next: Some(next), action: None, wake: now }
    }
}

/// What follows from a state at a time, in seconds since 1970.
pub fn step(state: &State, policy: &Policy, now: u64, observed: &Observations) -> Step {
    match &state.phase {
        Phase::Stable => start(state, policy, now, observed),
        Phase::Distributing { since, .. } => switch(state, policy, now, *since, observed),
        Phase::Retiring { until, .. } => retire(state, now, *until),
    }
}

/// Begins a rotation if one is due.
fn start(state: &State, policy: &Policy, now: u64, observed: &Observations) -> Step {
    let due = state.current().map_or(now, |root| policy.renewal(root));
    if !state.requested && now < due {
        return Step::wait(due);
    }
    match &observed.generated {
        Some(root) => Step::change_to(state.distributing(root.clone(), now), now),
        None => {
            let action = Some(Action::Generate { keep_key: !state.requested });
            Step { next: None, action, wake: now }
        }
    }
}

/// Issues under the new root when everybody has it.
fn switch(state: &State, policy: &Policy, now: u64, since: u64, observed: &Observations) -> Step {
    let everywhere = since.saturating_add(policy.distribution().as_secs());
    let patient_until = everywhere.saturating_add(policy.patience.as_secs());
    // An issuer that is about to expire leaves nothing to wait for: under it there is no certificate to be had.
    let last_moment = state.current().map_or(now, |root| root.not_after.saturating_sub(policy.margin()));
    let confirmed = observed.unconfirmed.is_none_or(|count| count == 0);
    let ready = now >= everywhere && (confirmed || now >= patient_until);
    if ready || now >= last_moment {
        return Step::change_to(state.retiring(now.saturating_add(policy.retirement().as_secs())), now);
    }
    let wake =
        if now < everywhere { everywhere } else { now.saturating_add(policy.check_interval.as_secs()) };
    Step::wait(wake.min(last_moment))
}

/// Takes old roots out of the bundle when no certificate under them is left.
fn retire(state: &State, now: u64, until: u64) -> Step {
    // A certificate never outlives its root.
    let until = state.old_roots().map(|root| root.not_after).max().unwrap_or(now).min(until);
    if now < until { Step::wait(until) } else { Step::change_to(state.stable(), now) }
}
