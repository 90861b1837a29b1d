//! A replica that signs under a root which several processes share.

use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::UnixTime;
use tracing::info;

use super::record::{Contents, Keyed, RecordError};
use super::{Action, Observations, Phase, Policy, Root, State, Step, step};
use crate::bundle::{Bundle, BundleError};
use crate::certificate::Certificate;
use crate::issue::IssueError;
use crate::key::{KeyError, SigningKey};
use crate::self_signed::Profile;
use crate::store::{Record, RootStore, StoreError, Versioned};

/// How many steps and lost races there can be in one tick before something must be wrong.
const MOST_STEPS: usize = 16;

/// Why a replica does not know what to sign with.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The store does not answer.
    #[error("cannot reach the store of the root: {0}")]
    Store(#[from] StoreError),
    /// The record cannot be used.
    #[error("the stored root cannot be used: {0}")]
    Record(#[from] RecordError),
    /// The record does not make a working authority.
    #[error("the stored root cannot be used: {0}")]
    Bundle(#[from] BundleError),
    /// A root could not be made.
    #[error("unable to generate CA cert and key for self-signed CA ({0})")]
    Issue(#[from] IssueError),
    /// A key could not be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Other writers change the record all the time.
    #[error(
        "the stored root changed {MOST_STEPS} times while it was looked at; is somebody else writing it?"
    )]
    Unsettled,
}

/// What a look at the store yielded.
#[derive(Clone, Debug)]
pub struct Tick {
    /// What to sign with and hand out.
    pub bundle: Arc<Bundle>,
    /// The state behind it.
    pub state: State,
    /// Whether this is another bundle than that of the tick before.
    pub changed: bool,
    /// When to look again at the latest, in seconds since 1970.
    pub wake: u64,
}

struct Known {
    stored: Versioned,
    bundle: Arc<Bundle>,
    read_at: u64,
}

/// Keeps a process in step with the stored root, and takes the root further when it is time.
pub struct Replica {
    store: Arc<dyn RootStore>,
    profile: Profile,
    policy: Policy,
    more_roots: Vec<u8>,
    known: Option<Known>,
}

impl Replica {
    /// A replica over a store. `more_roots` are handed out beside those of the store.
    pub fn new(store: Arc<dyn RootStore>, profile: Profile, policy: Policy, more_roots: Vec<u8>) -> Self {
        Self { store, profile, policy, more_roots, known: None }
    }

    /// Reads the store, takes the rotation as far as it goes, and says what to sign with.
    ///
    /// `unconfirmed` is how many verifiers are known to lack the newest root, if somebody can tell.
    pub async fn tick(&mut self, now: UnixTime, unconfirmed: Option<usize>) -> Result<Tick, ReplicaError> {
        let mut stored = self.load(now).await?;
        let mut generated: Option<Keyed> = None;
        for _ in 0..MOST_STEPS {
            let contents = self.read(&stored.record, now)?;
            let new_root = generated.as_ref().map(|one| Root::from_certificate(&one.certificate));
            let observed = Observations { generated: new_root, unconfirmed };
            let Step { next, action, wake } = step(&contents.state, &self.policy, now.as_secs(), &observed);
            match (next, action) {
                (Some(next), _) => {
                    let after = contents.after(next, generated.take())?;
                    stored = self.swap(stored, &after).await?;
                }
                (None, Some(Action::Generate { keep_key })) => {
                    generated = Some(self.generate(&contents, keep_key, now)?);
                }
                (None, None) => return self.settled(stored, contents, now, wake),
            }
        }
        Err(ReplicaError::Unsettled)
    }

    /// Whether the store has been out of reach for so long that others may have gone on without this replica.
    pub fn is_stale(&self, now: UnixTime) -> bool {
        let read_at = self.known.as_ref().map_or(0, |known| known.read_at);
        now.as_secs() > read_at.saturating_add(self.policy.staleness.as_secs())
    }

    /// How long this replica may go on without a look at the store.
    pub fn staleness(&self) -> Duration {
        self.policy.staleness
    }

    /// Asks for a rotation, which begins when none is under way.
    pub async fn request_rotation(&mut self, now: UnixTime) -> Result<(), ReplicaError> {
        self.load(now).await?;
        request(self.store.as_ref(), &self.policy, now).await.map(drop)
    }

    /// The record of the store, made if there is none.
    async fn load(&self, now: UnixTime) -> Result<Versioned, ReplicaError> {
        if let Some(stored) = self.store.load().await? {
            return Ok(stored);
        }
        let record = match &self.known {
            // Somebody removed the record. This replica writes back what it uses, so that replicas which start later use the
            // same roots.
            Some(known) => known.stored.record.clone(),
            None => {
                let (certificate, key) = self.profile.create(now)?;
                Contents::new(Keyed::new(certificate, &key)?).write(Record::default())?
            }
        };
        Ok(self.store.create_if_absent(&record).await?)
    }

    fn read(&self, record: &Record, now: UnixTime) -> Result<Contents, RecordError> {
        Contents::read(record, now.as_secs().saturating_add(self.policy.retirement().as_secs()))
    }

    /// Stores what follows; what is stored then, by whomever.
    async fn swap(&self, stored: Versioned, after: &Contents) -> Result<Versioned, ReplicaError> {
        let record = after.write(stored.record)?;
        match self.store.compare_and_swap(&stored.version, &record).await? {
            Some(now) => {
                announce(&after.state);
                Ok(now)
            }
            // Another replica was faster.
            None => Ok(self.store.load().await?.ok_or(RecordError::Missing("the record"))?),
        }
    }

    fn generate(&self, contents: &Contents, keep_key: bool, now: UnixTime) -> Result<Keyed, ReplicaError> {
        if !keep_key {
            let (certificate, key) = self.profile.create(now)?;
            return Ok(Keyed::new(certificate, &key)?);
        }
        let key = SigningKey::from_pem(&contents.issuer.key)?;
        Ok(Keyed::new(self.profile.renew(&contents.issuer.certificate, &key, now)?, &key)?)
    }

    fn settled(
        &mut self,
        stored: Versioned,
        contents: Contents,
        now: UnixTime,
        wake: u64,
    ) -> Result<Tick, ReplicaError> {
        let same = self.known.as_ref().filter(|known| known.stored == stored);
        let (bundle, changed) = match same {
            Some(known) => (Arc::clone(&known.bundle), false),
            None => (Arc::new(contents.bundle(&self.more_roots, now)?), true),
        };
        self.known = Some(Known { stored, bundle: Arc::clone(&bundle), read_at: now.as_secs() });
        let next_check = now.as_secs().saturating_add(self.policy.check_interval.as_secs());
        Ok(Tick { bundle, state: contents.state, changed, wake: wake.min(next_check) })
    }
}

/// What a store holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// How far a rotation is.
    pub state: State,
    /// The roots that are handed out, the one that issues first.
    pub roots: Vec<Certificate>,
}

/// Looks at a store without changing it; `None` if there is nothing in it.
pub async fn inspect(
    store: &dyn RootStore,
    policy: &Policy,
    now: UnixTime,
) -> Result<Option<Stored>, ReplicaError> {
    let Some(stored) = store.load().await? else { return Ok(None) };
    let retirement = now.as_secs().saturating_add(policy.retirement().as_secs());
    let contents = Contents::read(&stored.record, retirement)?;
    Ok(Some(Stored { roots: contents.roots().to_vec(), state: contents.state }))
}

/// Asks for a rotation of a stored root, which the processes that sign under it begin. False if one was asked for already, or
/// has begun and its new root does not issue yet.
pub async fn request(store: &dyn RootStore, policy: &Policy, now: UnixTime) -> Result<bool, ReplicaError> {
    for _ in 0..MOST_STEPS {
        let stored = store.load().await?.ok_or(RecordError::Missing("a self-signed root"))?;
        let retirement = now.as_secs().saturating_add(policy.retirement().as_secs());
        let contents = Contents::read(&stored.record, retirement)?;
        // A command that is repeated after it was killed means the rotation that has begun since.
        if contents.state.requested || matches!(contents.state.phase, Phase::Distributing { .. }) {
            return Ok(false);
        }
        let asked = contents.after(contents.state.with_request(), None)?;
        let record = asked.write(stored.record)?;
        if store.compare_and_swap(&stored.version, &record).await?.is_some() {
            return Ok(true);
        }
    }
    Err(ReplicaError::Unsettled)
}

/// Says how far a rotation is.
fn announce(state: &State) {
    match &state.phase {
        Phase::Stable => info!(issuer = state.issuer, "root rotation: complete, only this root is trusted"),
        Phase::Distributing { next, since } => {
            info!(issuer = state.issuer, next, since, "root rotation: a new root is being distributed");
        }
        Phase::Retiring { old, until } => {
            info!(
                issuer = state.issuer,
                ?old,
                until,
                "root rotation: the new root issues, old ones are still trusted"
            );
        }
    }
}
