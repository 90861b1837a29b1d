//! The clients that are connected, and how far each of them is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use canopus_base::hash::ContentHash;
use canopus_mesh::proxy::Proxy;
use canopus_xds::{Interest, SessionEvent};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

/// Everybody who is connected.
#[derive(Default)]
pub struct Connections {
    opened: AtomicU64,
    live: RwLock<BTreeMap<u64, Arc<Connection>>>,
}

/// One stream of a client.
pub struct Connection {
    number: u64,
    proxy: Proxy,
    peer: Option<SocketAddr>,
    since: Timestamp,
    watches: Mutex<BTreeMap<Arc<str>, Watched>>,
    dismissed: watch::Sender<bool>,
}

/// How far a client is with one type.
#[derive(Clone, Debug)]
pub struct Watched {
    /// What it wants.
    pub interest: Interest,
    /// The last response; `None` until there is one.
    pub sent: Option<Sent>,
    /// The nonce of the last response it accepted.
    pub acked: Option<String>,
    /// Why it refused the last response, if it did.
    pub error: Option<String>,
}

/// A response on its way, or arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its nonce.
    pub nonce: String,
    /// The version of the state it led to.
    pub version: ContentHash,
    /// When it was handed to the stream.
    pub time: Timestamp,
}

impl Connections {
    /// Takes note of a client that has connected.
    pub fn open(&self, proxy: Proxy, peer: Option<SocketAddr>) -> Arc<Connection> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let connection = Arc::new(Connection {
            number,
            proxy,
            peer,
            since: Timestamp::now(),
            watches: Mutex::default(),
            dismissed: watch::Sender::new(false),
        });
        self.live.write().insert(number, connection.clone());
        connection
    }

    /// Forgets a client that has left.
    pub fn close(&self, connection: &Connection) {
        self.live.write().remove(&connection.number);
    }

    /// How many clients there are.
    pub fn len(&self) -> usize {
        self.live.read().len()
    }

    /// Whether nobody is connected.
    pub fn is_empty(&self) -> bool {
        self.live.read().is_empty()
    }

    /// All clients, in the order of their ids.
    pub fn all(&self) -> Vec<Arc<Connection>> {
        let mut all: Vec<_> = self.live.read().values().cloned().collect();
        all.sort_by_cached_key(|connection| connection.id());
        all
    }

    /// The client of this proxy id, else the first whose connection id contains the text.
    pub fn find(&self, proxy: &str) -> Option<Arc<Connection>> {
        let all = self.all();
        let exact = all.iter().find(|connection| connection.proxy.id.id == proxy);
        exact.or_else(|| all.iter().find(|connection| connection.id().contains(proxy))).cloned()
    }
}

impl Connection {
    /// The name of the stream: the proxy's, and a number.
    pub fn id(&self) -> String {
        format!("{}-{}", self.proxy.id.id, self.number)
    }

    /// Who is connected.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Where it connected from.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// When it connected.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// How far it is with each type it watches, by type URL.
    pub fn watches(&self) -> BTreeMap<Arc<str>, Watched> {
        self.watches.lock().clone()
    }

    /// Asks the stream to end.
    pub fn dismiss(&self) {
        self.dismissed.send_replace(true);
    }

    /// Waits until the stream is asked to end.
    pub async fn dismissed(&self) {
        let mut dismissed = self.dismissed.subscribe();
        if dismissed.wait_for(|dismissed| *dismissed).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Takes note of what happened in the stream.
    pub fn note(&self, event: &SessionEvent) {
        let mut watches = self.watches.lock();
        match event {
            SessionEvent::Subscribed { type_url, interest } => match watches.get_mut(type_url) {
                Some(watched) => watched.interest = interest.clone(),
                None => {
                    let watched =
                        Watched { interest: interest.clone(), sent: None, acked: None, error: None };
                    watches.insert(type_url.clone(), watched);
                }
            },
            SessionEvent::Sent { type_url, nonce, version, .. } => {
                if let Some(watched) = watches.get_mut(type_url) {
                    let time = Timestamp::now();
                    watched.sent = Some(Sent { nonce: nonce.clone(), version: *version, time });
                }
            }
            SessionEvent::Acked { type_url, nonce } => {
                if let Some(watched) = watches.get_mut(type_url) {
                    watched.acked = Some(nonce.clone());
                    watched.error = None;
                }
            }
            SessionEvent::Nacked { type_url, message, .. } => {
                if let Some(watched) = watches.get_mut(type_url) {
                    watched.error = Some(message.clone());
                }
            }
            SessionEvent::Current { .. }
            | SessionEvent::Expired { .. }
            | SessionEvent::Reported { .. }
            | SessionEvent::Settled { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::config::core::v3::Node;
    use canopus_xds::types::CLUSTER;

    use super::*;

    fn proxy(name: &str) -> Proxy {
        let id = format!("sidecar~10.0.0.1~{name}~shop.svc.cluster.local");
        Proxy::new(&Node { id, ..Node::default() }, None).unwrap()
    }

    #[test]
    fn client_is_found_by_its_proxy_before_any_that_only_contains_the_text() {
        let connections = Connections::default();
        let longer = connections.open(proxy("cart-11.shop"), None);
        connections.open(proxy("cart-1.shop"), None);
        assert_eq!(connections.find("cart-1.shop").unwrap().id(), "cart-1.shop-2");
        assert_eq!(connections.find("cart-11").unwrap().id(), longer.id());
        assert!(connections.find("nope").is_none());
        connections.close(&longer);
        assert!(connections.find("cart-11").is_none());
        assert_eq!(connections.len(), 1);
    }

    #[test]
    fn refusal_stays_until_the_next_acceptance() {
        let connections = Connections::default();
        let client = connections.open(proxy("cart-1.shop"), None);
        let type_url: Arc<str> = CLUSTER.into();
        let interest = Interest::Wildcard;
        client.note(&SessionEvent::Subscribed { type_url: type_url.clone(), interest });
        let sent = |nonce: &str| SessionEvent::Sent {
            type_url: type_url.clone(),
            nonce: nonce.to_owned(),
            version: ContentHash::of(b"1"),
            resources: 1,
            removed: 0,
            bytes: 1,
        };
        client.note(&sent("a"));
        client.note(&SessionEvent::Nacked {
            type_url: type_url.clone(),
            nonce: "a".to_owned(),
            code: 13,
            message: "bad".to_owned(),
        });
        let watched = client.watches()[CLUSTER].clone();
        assert_eq!((watched.acked, watched.error.as_deref()), (None, Some("bad")));
        client.note(&sent("b"));
        client.note(&SessionEvent::Acked { type_url: type_url.clone(), nonce: "b".to_owned() });
        let watched = client.watches()[CLUSTER].clone();
        assert_eq!((watched.acked.as_deref(), watched.error), (Some("b"), None));
        assert_eq!(watched.sent.unwrap().nonce, "b");
    }

    #[tokio::test]
    async fn dismissal_is_seen_also_by_who_asks_later() {
        let client = Connections::default().open(proxy("cart-1.shop"), None);
        client.dismiss();
        client.dismissed().await;
    }
}
