//! [`ControlPlane`]: the trait through which the server asks who may connect and what a client gets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use canopus_proto::envoy::config::core::v3::Node;
use http::{Extensions, HeaderMap};

use crate::interest::Interest;
use crate::mailbox::Mailbox;
use crate::resource::ResourceSet;
use crate::session::{Protocol, SessionEvent};
use crate::source::Refusal;
use crate::types::Kind;

/// The far end of a stream, as far as the transport knows it.
#[derive(Debug, Default)]
pub struct Peer {
    /// Where it connected from.
    pub address: Option<SocketAddr>,
    /// The variant of xDS it speaks.
    pub protocol: Protocol,
    /// The headers the stream was opened with.
    pub headers: HeaderMap,
    /// What the transport and [`ControlPlane::admit`] found out, such as authenticated identities.
    pub extensions: Extensions,
    /// Wakes the session, or ends it.
    pub mailbox: Arc<Mailbox>,
}

/// Decides who may connect and what they get. The server calls it from the tasks of the streams.
pub trait ControlPlane: Send + Sync + 'static {
    /// State of a connected client.
    type Client: Send + Sync + 'static;

    /// Decides whether a peer may open a stream at all, before it has said anything. What it finds out, such as an
    /// authenticated identity, it leaves in the peer's extensions.
    fn admit(&self, _peer: &mut Peer) -> impl Future<Output = Result<(), Refusal>> + Send {
        async { Ok(()) }
    }

    /// Takes in a client that said who it is; its node has an id.
    ///
    /// From now on the peer's mailbox is told of every revision of the world at which [`resources`](Self::resources) may
    /// give the client something new.
    fn connect(
        &self,
        peer: &Peer,
        node: Node,
    ) -> impl Future<Output = Result<Arc<Self::Client>, Refusal>> + Send;

    /// What requests of this type mean.
    fn kind(&self, type_url: &str) -> Kind {
        Kind::for_type(type_url)
    }

    /// The resources the client gets of this type for this interest.
    ///
    /// The result depends on the arguments and the current state of the world alone, and a call that was made before is
    /// cheap: sessions ask again at every revision they are told of. It runs on a worker thread of the async runtime; if it has to
    /// compute for long it should hand that thread over first (`tokio::task::block_in_place`).
    fn resources(
        &self,
        client: &Self::Client,
        type_url: &str,
        interest: &Interest,
    ) -> Result<ResourceSet, Refusal>;

    /// The control plane's name for itself, if it is to be given with this type.
    fn identifier(&self, _type_url: &str) -> Option<String> {
        None
    }

    /// Takes note of what happens in the client's session.
    fn observe(&self, _client: &Self::Client, _event: SessionEvent) {}

    /// Takes note of how long the transport took to take a response.
    fn handed_over(&self, _client: &Self::Client, _took: Duration) {}

    /// The client's stream has ended.
    fn disconnect(&self, _client: &Self::Client) {}
}
