//! A control plane whose world is set by the test.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use canopus_proto::Message;
use canopus_proto::envoy::config::cluster::v3::{Cluster, cluster};
use canopus_proto::envoy::config::core::v3::{AggregatedConfigSource, ConfigSource, Node, config_source};
use canopus_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use canopus_xds::client::{AdsClient, Update};
use canopus_xds::server::{Options, serve};
use canopus_xds::session::{Protocol, Request, Wish};
use canopus_xds::types::{CLUSTER, ENDPOINT, Types};
use canopus_xds::{
    Code, ControlPlane, Interest, Mailbox, Mailboxes, Peer, Refusal, Resource, ResourceSet, SessionEvent,
};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint};

/// A type this control plane refuses to everybody.
pub(crate) const FORBIDDEN: &str = "type.googleapis.com/foo.Bar";

/// A type about which this control plane panics.
pub(crate) const BROKEN: &str = "type.googleapis.com/foo.Broken";

pub(crate) struct Toy {
    world: Mutex<BTreeMap<String, BTreeMap<String, Resource>>>,
    revision: AtomicU64,
    mailboxes: Mailboxes,
    pub(crate) connected: AtomicUsize,
    pub(crate) asked: AtomicUsize,
    pub(crate) events: Mutex<Vec<SessionEvent>>,
    /// Whatever is left of each stream that was let in.
    pub(crate) admitted: Mutex<Vec<Weak<Mailbox>>>,
    /// Where the streams come from, in the order of their arrival, and whatever is left of each.
    pub(crate) streams: Mutex<Vec<(SocketAddr, Weak<Mailbox>)>>,
}

impl Toy {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            world: Mutex::default(),
            revision: AtomicU64::new(1),
            mailboxes: Mailboxes::default(),
            connected: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            events: Mutex::default(),
            admitted: Mutex::default(),
            streams: Mutex::default(),
        })
    }

    /// Changes the world and tells the streams.
    pub(crate) fn put(&self, type_url: &str, name: &str, body: impl Into<bytes::Bytes>) {
        let resource = Resource::new(name, body);
        self.world.lock().entry(type_url.into()).or_default().insert(name.into(), resource);
        self.revise(type_url);
    }

    pub(crate) fn delete(&self, type_url: &str, name: &str) {
        self.world.lock().entry(type_url.into()).or_default().remove(name);
        self.revise(type_url);
    }

    fn revise(&self, type_url: &str) {
        let revision = self.revision.fetch_add(1, Ordering::SeqCst) + 1;
        self.mailboxes.revise(revision, Types::only(type_url));
    }

    /// A cluster whose endpoints come over ADS.
    pub(crate) fn put_cluster(&self, name: &str, stat_name: &str) {
        let source = config_source::ConfigSourceSpecifier::Ads(AggregatedConfigSource::default());
        let eds = cluster::EdsClusterConfig {
            eds_config: Some(ConfigSource { config_source_specifier: Some(source), ..Default::default() }),
            ..Default::default()
        };
        let cluster = Cluster {
            name: name.into(),
            alt_stat_name: stat_name.into(),
            eds_cluster_config: Some(eds),
            ..Default::default()
        };
        self.put(CLUSTER, name, cluster.encode_to_vec());
    }

    pub(crate) fn put_endpoints(&self, name: &str) {
        let endpoints = ClusterLoadAssignment { cluster_name: name.into(), ..Default::default() };
        self.put(ENDPOINT, name, endpoints.encode_to_vec());
    }
}

impl ControlPlane for Toy {
    type Client = String;

    async fn admit(&self, peer: &mut Peer) -> Result<(), Refusal> {
        if peer.headers.contains_key("x-stranger") {
            return Err(Refusal::new(Code::Unauthenticated, "who are you?"));
        }
        self.admitted.lock().push(Arc::downgrade(&peer.mailbox));
        Ok(())
    }

    async fn connect(&self, peer: &Peer, node: Node) -> Result<Arc<String>, Refusal> {
        if node.id == "impostor" {
            return Err(Refusal::new(Code::PermissionDenied, "authorization failed: not a 100% match"));
        }
        self.connected.fetch_add(1, Ordering::SeqCst);
        self.streams.lock().extend(peer.address.map(|address| (address, Arc::downgrade(&peer.mailbox))));
        peer.mailbox.revise(self.revision.load(Ordering::SeqCst), Types::ALL);
        self.mailboxes.add(&peer.mailbox);
        Ok(Arc::new(node.id))
    }

    fn resources(&self, _: &String, type_url: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if type_url == FORBIDDEN {
            return Err(Refusal::new(Code::PermissionDenied, "not this type"));
        }
        assert_ne!(type_url, BROKEN, "hunter2");
        let world = self.world.lock();
        let all = world.get(type_url).into_iter().flat_map(BTreeMap::values);
        Ok(all.filter(|resource| interest.covers(&resource.name)).cloned().collect())
    }

    fn observe(&self, _: &String, event: SessionEvent) {
        self.events.lock().push(event);
    }

    fn disconnect(&self, _: &String) {
        self.connected.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A server on a port of its own.
pub(crate) struct Served {
    pub(crate) toy: Arc<Toy>,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let toy = Toy::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        let incoming = TcpListenerStream::new(listener);
        let task = tokio::spawn(serve(incoming, toy.clone(), options, shutdown));
        Self { toy, address, stop: Some(stop), task }
    }

    pub(crate) fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect_lazy()
    }

    pub(crate) fn client(&self, protocol: Protocol) -> AdsClient {
        AdsClient::new(self.channel(), protocol, node("client"))
    }

    /// Asks the server to stop and waits until it has.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.task.await.unwrap();
    }
}

pub(crate) fn node(id: &str) -> Node {
    Node { id: id.into(), ..Default::default() }
}

/// A request that opens a delta stream and asks for everything of a type.
pub(crate) fn first_delta(type_url: &str, node: Option<Node>) -> Request {
    let wish = Wish::Change { subscribe: Vec::new(), unsubscribe: Vec::new(), held: BTreeMap::new() };
    Request { type_url: type_url.into(), node, nonce: String::new(), error: None, wish }
}

/// The next update, which must come.
pub(crate) async fn next(client: &mut AdsClient) -> Update {
    let update = tokio::time::timeout(Duration::from_secs(20), client.step());
    update.await.expect("an update should have come").unwrap().expect("the stream should be open")
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}"));
}
