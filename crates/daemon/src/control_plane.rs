//! What a connected proxy gets: the xDS server's questions, answered from the engine.
//!
//! A session asks for the resources of a type whenever it is woken, so the answer must be cheap when nothing changed and shared
//! when many ask. A [`Client`] therefore keeps, for each type its proxy asked for, a share in a subscription that all proxies
//! with the same [`Selection`](crate::family::Selection) have in common. Which selection a proxy has depends on its
//! [`ConfigKeys`](canopus_envoy::config_keys::ConfigKeys); when these change, the client moves to other subscriptions the next time
//! it is asked.
//!
//! Invariant: between two revisions that a session is told of, it gets the same [`ResourceSet`] for the same question, and
//! proxies that get the same are given one allocation.

mod admission_rate;
mod client;
mod missing_world;
mod peer_allowance;
mod shared_subscription;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::ConnectInfo;
use canopus_base::spiffe::Identity;
use canopus_engine::QueryError;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::Settings;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_runtime::flags::{
    ENABLE_XDS_API_GENERATOR_AUTH, Flag, PILOT_ENABLE_XDS_IDENTITY_CHECK, XDS_AUTH, XDS_AUTH_PLAINTEXT,
    types::Bool,
};
use canopus_runtime::ready::Readiness;
use canopus_xds::{Code, ControlPlane, Interest, Peer, Refusal, ResourceSet, SessionEvent, types};
use tracing::{info, warn};

use self::admission_rate::AdmissionRate;
pub use self::client::Client;
use self::missing_world::MissingWorld;
use self::peer_allowance::PeerAllowance;
use self::shared_subscription::SharedSubscriptions;
use crate::authentication::{Authenticators, Caller, Door, Presented};
use crate::debug::Debug;
use crate::family::Family;
use crate::push::Dispatcher;
use crate::served_config;
use crate::spans::{Attribute, Tracer, Within};

/// Messages of a type to a client that has just connected: removals of clusters may come after other things.
const FIRST_ANSWERS: u64 = 3;

/// The identities that were proved for a stream, in the peer's extensions; absent if none had to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proven(pub Vec<String>);

/// The mesh, as the xDS server sees it.
pub struct Mesh {
    dispatcher: Arc<Dispatcher>,
    subscriptions: SharedSubscriptions,
    debug: Arc<Debug>,
    authenticators: Arc<Authenticators>,
    tracer: Arc<Tracer>,
    admission_rate: AdmissionRate,
    /// What each address has free; `None` if every stream waits for its turn.
    allowance: Option<PeerAllowance>,
    readiness: Option<Readiness>,
    missing_world: MissingWorld,
}

impl Mesh {
    /// Serves what the dispatcher's engine knows, to whoever has a certificate where that is asked for.
    pub fn new(dispatcher: Arc<Dispatcher>) -> Self {
        Self {
            debug: Arc::new(Debug::new(Arc::clone(&dispatcher))),
            authenticators: Arc::new(Authenticators::certificates(dispatcher.engine().clone())),
            tracer: Arc::new(Tracer::off()),
            dispatcher,
            subscriptions: SharedSubscriptions::default(),
            admission_rate: AdmissionRate::new(0.0),
            allowance: None,
            readiness: None,
            missing_world: MissingWorld::default(),
        }
    }

    /// The same, but only once the process is ready, and for no more than so many new streams in a second (zero: any).
    #[must_use]
    pub fn guarded(self, readiness: Readiness, streams_per_second: f64) -> Self {
        Self { admission_rate: AdmissionRate::new(streams_per_second), readiness: Some(readiness), ..self }
    }

    /// The same, with some streams of each address not counted, so that a fleet that comes back is not slowed down.
    #[must_use]
    pub fn with_peer_allowance(self) -> Self {
        Self { allowance: Some(PeerAllowance::default()), ..self }
    }

    /// The same, for whoever these authenticators recognise.
    #[must_use]
    pub fn recognising(self, authenticators: Arc<Authenticators>) -> Self {
        Self { authenticators, ..self }
    }

    /// The same, with these answers to those who ask debug questions over xDS.
    #[must_use]
    pub fn answering(self, debug: Arc<Debug>) -> Self {
        Self { debug, ..self }
    }

    /// The same, with spans of what is generated.
    #[must_use]
    pub fn traced(self, tracer: Arc<Tracer>) -> Self {
        Self { tracer, ..self }
    }

    /// Whether a stream from an address is let in without a turn of its own. Streams of this machine always are.
    fn allows(&self, address: Option<SocketAddr>) -> bool {
        let (Some(allowance), Some(address)) = (&self.allowance, address) else { return false };
        let address = address.ip().to_canonical();
        address.is_loopback() || allowance.take(address)
    }

    /// What the process has to wait for before it serves, if anything.
    pub(crate) fn readiness(&self) -> Option<&Readiness> {
        self.readiness.as_ref()
    }

    /// The push path this serves from.
    pub fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    /// Whether a feature is on.
    fn flag(&self, flag: Flag<Bool>) -> bool {
        self.dispatcher.engine().read::<Settings>(&()).unwrap_or_default().flags.get(flag)
    }

    /// Authenticates a proxy: its identity, as far as its credentials fit what its node says.
    fn identity(&self, peer: &Peer, proxy: &Proxy) -> Result<Option<Identity>, Refusal> {
        let Some(Proven(proven)) = peer.extensions.get::<Proven>() else { return Ok(None) };
        // Parity: what is not checked does not count.
        if !self.flag(PILOT_ENABLE_XDS_IDENTITY_CHECK) {
            return Ok(None);
        }
        let account = &proxy.metadata.service_account;
        let fits = |identity: &Identity| {
            *identity.namespace == *proxy.namespace()
                && (account.is_empty() || *identity.service_account == **account)
        };
        let identity = proven.iter().filter_map(|text| text.parse().ok()).find(fits);
        identity.map(Some).ok_or_else(|| {
            let (proven, namespace) = (proven.join(" "), proxy.namespace());
            let message =
                format!("authorization failed: no identities ([{proven}]) matched {namespace}/{account}");
            Refusal::new(Code::PermissionDenied, message)
        })
    }

    /// Records that what a client gets of a type was looked up or made.
    fn trace(&self, client: &Client, type_url: &str, started: SystemTime, succeeded: bool) {
        let attributes = [
            ("canopus.proxy", Attribute::Text(client.connection.proxy.id.id.clone())),
            ("canopus.type", Attribute::Text(type_url.to_owned())),
            ("canopus.succeeded", Attribute::Truth(succeeded)),
        ];
        let revision = self.dispatcher.engine().revision().number();
        self.tracer.record("generate", Within::Revision(revision), started, attributes);
    }

    /// Warns if one of the first answers of a type removes most of what the client says it has.
    fn look_at_removals(&self, client: &Client, type_url: &str, removed: usize) {
        let status = client.connection.status(type_url).filter(|status| status.messages < FIRST_ANSWERS);
        let Some(interest) = status.and_then(|status| status.interest) else { return };
        let now = client.resources(&self.dispatcher, &self.subscriptions, type_url, &interest);
        let left = now.ok().flatten().map_or(0, |set| set.len());
        if self.missing_world.is_sign(type_url, removed, left) {
            warn!(
                proxy = client.connection.proxy.node_id,
                type_url,
                removed,
                left,
                "a proxy that connects has much that is not there any more; see whether the sources are complete"
            );
        }
    }

    /// Whether a client may read the configuration of the mesh, and ask for types that could be configuration.
    fn check_reader(&self, client: &Client) -> Result<(), Refusal> {
        let settings = self.dispatcher.engine().read::<Settings>(&()).unwrap_or_default();
        if !settings.flags.get(ENABLE_XDS_API_GENERATOR_AUTH) {
            return Ok(());
        }
        let Some(identity) = &client.connection.proxy.identity else {
            let message = "the api generator requires an authenticated control-plane identity";
            return Err(Refusal::new(Code::Unauthenticated, message));
        };
        if *identity.namespace != *settings.root_namespace() {
            let message = "the api generator is restricted to the control-plane (root) namespace";
            return Err(Refusal::new(Code::PermissionDenied, message));
        }
        Ok(())
    }
}

impl ControlPlane for Mesh {
    type Client = Client;

    async fn admit(&self, peer: &mut Peer) -> Result<(), Refusal> {
        if self.readiness.as_ref().is_some_and(|readiness| !readiness.is_ready()) {
            let message = "server is not ready to serve discovery information";
            return Err(Refusal::new(Code::Unavailable, message));
        }
        let caller = peer.extensions.get::<Caller>().cloned();
        let of_web_port =
            peer.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| *address);
        let of_transport = caller.as_ref().and_then(|caller| caller.address);
        peer.address = of_transport.or(peer.address).or(of_web_port);
        if !self.allows(peer.address) && self.admission_rate.pass().await.is_err() {
            let message = "request rate limit exceeded: too many new streams";
            return Err(Refusal::new(Code::ResourceExhausted, message));
        }
        let certified = caller.and_then(|caller| caller.identities);
        // Parity: nobody proves anything over a connection that anybody could listen to, unless it is said to be safe.
        if !self.flag(XDS_AUTH) || (certified.is_none() && !self.flag(XDS_AUTH_PLAINTEXT)) {
            return Ok(());
        }
        let presented = Presented {
            address: peer.address,
            certified: certified.as_deref().unwrap_or_default(),
            headers: &peer.headers,
            door: Door::Grpc,
        };
        match self.authenticators.identities(&presented).await {
            Ok(identities) => {
                peer.extensions.insert(Proven(identities));
                Ok(())
            }
            Err(reasons) => {
                warn!(peer = ?peer.address, %reasons, "a client is not authenticated");
                // Parity: Istio hides the reason from unauthenticated callers.
                Err(Refusal::new(Code::Unauthenticated, "authentication failure"))
            }
        }
    }

    async fn connect(&self, peer: &Peer, node: Node) -> Result<Arc<Client>, Refusal> {
        let read = |identity| {
            let proxy = Proxy::new(&node, identity);
            proxy.map_err(|error| Refusal::new(Code::InvalidArgument, error.to_string()))
        };
        let claimed = read(None)?;
        let proxy = match self.identity(peer, &claimed)? {
            Some(identity) => read(Some(identity))?,
            None => claimed,
        };
        let revision = self.dispatcher.engine().revision().number();
        let connection = self.dispatcher.connections().connect(proxy, peer, revision);
        info!(proxy = connection.proxy.node_id, peer = ?peer.address, "connected");
        Ok(Arc::new(tokio::task::block_in_place(|| Client::new(&self.dispatcher, connection))))
    }

    fn resources(
        &self,
        client: &Client,
        type_url: &str,
        interest: &Interest,
    ) -> Result<ResourceSet, Refusal> {
        if type_url.starts_with(types::DEBUG) {
            let answer = || self.debug.answer_xds(&client.connection, type_url, interest);
            return tokio::task::block_in_place(answer);
        }
        if served_config::is_served(type_url) {
            self.check_reader(client)?;
        }
        let started = self.tracer.is_on().then(SystemTime::now);
        let found = client.resources(&self.dispatcher, &self.subscriptions, type_url, interest);
        if let Some(started) = started {
            self.trace(client, type_url, started, found.is_ok());
        }
        match found {
            Ok(Some(set)) => Ok(set),
            // The type is known, but the proxy has no resources of it.
            Ok(None) if Family::find(type_url).is_some() => Ok(ResourceSet::default()),
            Ok(None) => self.check_reader(client).map(|()| ResourceSet::default()),
            Err(error) => {
                self.dispatcher.connections().generation_failed();
                Err(failed(client, type_url, &error))
            }
        }
    }

    fn identifier(&self, type_url: &str) -> Option<String> {
        self.debug.identifier(type_url)
    }

    fn observe(&self, client: &Client, event: SessionEvent) {
        if let SessionEvent::Nacked { type_url, message, .. } = &event {
            warn!(proxy = client.connection.proxy.node_id, %type_url, reason = %message, "rejected by the proxy");
        }
        if let SessionEvent::Sent { type_url, removed: removed @ 1.., .. } = &event {
            self.look_at_removals(client, type_url, *removed);
        }
        self.dispatcher.connections().record(&client.connection, &event);
    }

    fn handed_over(&self, _: &Client, took: Duration) {
        self.dispatcher.connections().handed_over(took);
    }

    fn disconnect(&self, client: &Client) {
        info!(proxy = client.connection.proxy.node_id, "disconnected");
        self.dispatcher.connections().disconnect(&client.connection);
    }
}

fn failed(client: &Client, type_url: &str, error: &QueryError) -> Refusal {
    warn!(proxy = client.connection.proxy.node_id, type_url, %error, "cannot be generated");
    Refusal::new(Code::Internal, error.to_string())
}

#[cfg(test)]
mod tests;
