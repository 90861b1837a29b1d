//! Tokens of service accounts, checked by the API server that issued them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Context, SHA256};
use axum::http::HeaderMap;
use canopus_sources::kubernetes::{Cluster, RateLimit, RemoteRegistry, TokenError, TokenOwner};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::TokenClusters;
use super::jwt::expiry;

/// The header by which a client says which cluster its token is from.
const CLUSTER: &str = "clusterid";

/// How long the API server's yes counts, so that a proxy that connects again is not asked about again.
const ACCEPTED: Duration = Duration::from_secs(60);

/// How long its no counts.
const REFUSED: Duration = Duration::from_secs(10);

/// How many answers of either kind are kept.
const KEPT: usize = 4096;

/// How many questions may be under way.
const AT_ONCE: usize = 32;

/// How many of them may be for clients of one address: nobody who tries tokens keeps others from connecting.
const AT_ONCE_EACH: usize = 8;

/// How long an answer may take, the wait for a turn included.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why a token of a service account proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("the client says it is in cluster {named:?}, but only {known} is known")]
    Cluster { named: String, known: String },
    #[error("the token has expired")]
    Expired,
    #[error("too many tokens of the same address are being checked")]
    Crowded,
    #[error("the API server has not answered in time")]
    Late,
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// Checks the tokens of service accounts, each by the cluster that the client says it is in.
pub(super) struct KubernetesTokens {
    cluster: Cluster,
    name: Arc<str>,
    aliases: BTreeMap<String, Arc<str>>,
    remote: RemoteRegistry,
    audiences: Vec<String>,
    turns: Semaphore,
    /// Questions under way for each address.
    asking: Mutex<BTreeMap<IpAddr, usize>>,
    verdicts: Mutex<Verdicts>,
}

impl KubernetesTokens {
    /// Takes tokens that are meant for one of these audiences.
    pub(super) fn new(clusters: TokenClusters, audiences: Vec<String>) -> Self {
        let TokenClusters { cluster, name, aliases, remote } = clusters;
        Self {
            // TokenReviews have a rate limit of their own: a client that tries tokens must not slow down watches.
            cluster: cluster.limited(RateLimit::default()),
            name,
            aliases,
            remote,
            audiences,
            turns: Semaphore::new(AT_ONCE),
            asking: Mutex::default(),
            verdicts: Mutex::default(),
        }
    }

    /// The owner of a token.
    pub(super) async fn owner(
        &self,
        token: &str,
        headers: &HeaderMap,
        address: Option<IpAddr>,
    ) -> Result<TokenOwner, Refused> {
        let (name, cluster) = self.cluster_of(headers)?;
        let expires = expiry(token);
        if expires.is_some_and(|expires| expires <= SystemTime::now()) {
            return Err(Refused::Expired);
        }
        let digest = fingerprint(&name, token);
        if let Some(verdict) = self.verdicts.lock().get(&digest, Instant::now()) {
            return verdict.map_err(Refused::from);
        }
        let _share = Share::take(&self.asking, address)?;
        let asked = async {
            // The semaphore is never closed.
            let _turn = self.turns.acquire().await;
            cluster.owner_of_token(token, &self.audiences).await
        };
        let verdict = timeout(PATIENCE, asked).await.map_err(|_| Refused::Late)?;
        let left = expires.and_then(|expires| expires.duration_since(SystemTime::now()).ok());
        self.verdicts.lock().keep(digest, &verdict, left, Instant::now());
        Ok(verdict?)
    }

    /// The cluster that issued the token, by what the client says.
    ///
    /// Parity: a header that is there several times does not count.
    fn cluster_of(&self, headers: &HeaderMap) -> Result<(Arc<str>, Cluster), Refused> {
        let own = || Ok((Arc::clone(&self.name), self.cluster.clone()));
        let mut named = headers.get_all(CLUSTER).iter();
        let (Some(named), None) = (named.next(), named.next()) else { return own() };
        let named = named.to_str().unwrap_or_default();
        let name = self.aliases.get(named).map_or(named, |name| name);
        if name.is_empty() || *name == *self.name {
            return own();
        }
        match self.remote.cluster(name) {
            Some(cluster) => Ok((name.into(), cluster.limited(RateLimit::default()))),
            None => Err(Refused::Cluster { named: named.to_owned(), known: self.known() }),
        }
    }

    fn known(&self) -> String {
        let remote = self.remote.current();
        let names = std::iter::once(&self.name).chain(remote.clusters.keys());
        names.map(|name| &**name).collect::<Vec<_>>().join(", ")
    }
}

/// Counts one review against the limit of its client's address, until dropped.
struct Share<'a> {
    asking: &'a Mutex<BTreeMap<IpAddr, usize>>,
    address: Option<IpAddr>,
}

impl<'a> Share<'a> {
    fn take(asking: &'a Mutex<BTreeMap<IpAddr, usize>>, address: Option<IpAddr>) -> Result<Self, Refused> {
        let address = address.map(|address| address.to_canonical());
        if let Some(address) = address {
            let mut counts = asking.lock();
            let count = counts.entry(address).or_default();
            if *count >= AT_ONCE_EACH {
                return Err(Refused::Crowded);
            }
            *count += 1;
        }
        Ok(Self { asking, address })
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let Some(address) = &self.address else { return };
        let mut counts = self.asking.lock();
        if let Some(count) = counts.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(address);
            }
        }
    }
}

type Digest = [u8; 32];

/// Identifies a question. The cluster is a part of it: what one API server says of a token is not what another would.
fn fingerprint(cluster: &str, token: &str) -> Digest {
    let mut context = Context::new(&SHA256);
    context.update(&(cluster.len() as u64).to_be_bytes());
    context.update(cluster.as_bytes());
    context.update(token.as_bytes());
    let mut bytes = Digest::default();
    bytes.copy_from_slice(context.finish().as_ref());
    bytes
}

/// What the API server said of tokens, for a while. Yes and no have their own place: no number of bad tokens drives out a
/// good one.
#[derive(Debug, Default)]
struct Verdicts {
    accepted: BTreeMap<Digest, (Instant, TokenOwner)>,
    refused: BTreeMap<Digest, (Instant, TokenError)>,
}

impl Verdicts {
    fn get(&self, token: &Digest, now: Instant) -> Option<Result<TokenOwner, TokenError>> {
        if let Some((_, owner)) = self.accepted.get(token).filter(|(until, _)| *until > now) {
            return Some(Ok(owner.clone()));
        }
        let (_, error) = self.refused.get(token).filter(|(until, _)| *until > now)?;
        Some(Err(error.clone()))
    }

    /// Keeps an answer about a token that has this long to live. That there was none is not worth keeping.
    fn keep(
        &mut self,
        token: Digest,
        verdict: &Result<TokenOwner, TokenError>,
        left: Option<Duration>,
        now: Instant,
    ) {
        match verdict {
            Ok(owner) => {
                let until = now + left.map_or(ACCEPTED, |left| left.min(ACCEPTED));
                make_room(&mut self.accepted, now);
                self.accepted.insert(token, (until, owner.clone()));
            }
            Err(TokenError::Unanswered(_)) => {}
            Err(error) => {
                make_room(&mut self.refused, now);
                self.refused.insert(token, (now + REFUSED, error.clone()));
            }
        }
    }
}

/// Forgets what counts no longer, and if there is still no room, what would be the next.
fn make_room<T>(kept: &mut BTreeMap<Digest, (Instant, T)>, now: Instant) {
    if kept.len() < KEPT {
        return;
    }
    kept.retain(|_, (until, _)| *until > now);
    if kept.len() >= KEPT {
        let next = kept.iter().min_by_key(|(_, (until, _))| *until).map(|(token, _)| *token);
        next.and_then(|token| kept.remove(&token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> TokenOwner {
        TokenOwner { namespace: "shop".into(), service_account: "cart".into(), pod: None }
    }

    #[test]
    fn address_has_a_share_of_the_questions_and_no_more() {
        let asking = Mutex::default();
        let address = |text: &str| Some(text.parse().unwrap());
        let shares: Vec<_> =
            (0..AT_ONCE_EACH).map(|_| Share::take(&asking, address("10.0.0.1")).unwrap()).collect();
        assert_eq!(Share::take(&asking, address("::ffff:10.0.0.1")).err(), Some(Refused::Crowded));
        assert!(Share::take(&asking, address("10.0.0.2")).is_ok());
        assert!(Share::take(&asking, None).is_ok());
        drop(shares);
        assert!(Share::take(&asking, address("10.0.0.1")).is_ok());
        assert!(asking.lock().is_empty(), "nothing is kept of those who are gone");
    }

    #[test]
    fn answers_count_for_a_while_and_never_longer_than_the_token() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        let second = Duration::from_secs(1);
        verdicts.keep([1; 32], &Ok(owner()), None, now);
        verdicts.keep([2; 32], &Ok(owner()), Some(second), now);
        let refused = TokenError::Refused("expired".to_owned());
        verdicts.keep([3; 32], &Err(refused.clone()), None, now);
        verdicts.keep([4; 32], &Err(TokenError::Unanswered("gone".to_owned())), None, now);

        let at = |token: u8, later| verdicts.get(&[token; 32], now + later);
        assert_eq!(at(1, ACCEPTED - second), Some(Ok(owner())));
        assert_eq!(at(1, ACCEPTED), None);
        assert_eq!(at(2, second / 2), Some(Ok(owner())));
        assert_eq!(at(2, second), None);
        assert_eq!(at(3, REFUSED - second), Some(Err(refused)));
        assert_eq!(at(3, REFUSED), None);
        assert_eq!(at(4, Duration::ZERO), None);
    }

    #[test]
    fn bad_tokens_are_bounded_and_drive_out_no_good_one() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        verdicts.keep(fingerprint("Kubernetes", "good"), &Ok(owner()), None, now);
        for n in 0..KEPT + 10 {
            let refused = Err(TokenError::Refused(String::new()));
            verdicts.keep(fingerprint("Kubernetes", &n.to_string()), &refused, None, now);
        }
        assert_eq!(verdicts.refused.len(), KEPT);
        assert_eq!(verdicts.get(&fingerprint("Kubernetes", "good"), now), Some(Ok(owner())));
    }
}
