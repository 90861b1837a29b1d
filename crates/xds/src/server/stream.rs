//! The life of one stream: admission, the first request, then requests and revisions until it ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use canopus_proto::envoy::config::core::v3::Node;
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::Status;
use tracing::info;

use super::body::Slot;
use super::decode::{RequestMessage, Requests};
use super::{Drain, Shared};
use crate::interest::Interest;
use crate::plane::{ControlPlane, Peer, Refusal, Source};
use crate::resource::ResourceSet;
use crate::session::{Protocol, Request, Session};
use crate::types::Kind;

/// Everything a stream is opened with.
pub(super) struct Stream<C: ControlPlane, M> {
    pub(super) shared: Arc<Shared<C>>,
    pub(super) protocol: Protocol,
    pub(super) peer: Peer,
    pub(super) requests: Requests<M>,
    pub(super) slot: Slot,
}

impl<C, M> Stream<C, M>
where
    C: ControlPlane,
    M: RequestMessage + Into<Request>,
{
    /// Runs the stream to its end.
    pub(super) async fn run(self) -> Result<(), Status> {
        let address = self.peer.address;
        let ended = self.live().await;
        if let Err(status) = &ended {
            info!(peer = ?address, code = ?status.code(), message = status.message(), "stream ended");
        }
        ended
    }

    async fn live(mut self) -> Result<(), Status> {
        let mut drain = self.shared.drain.subscribe();
        if *drain.borrow_and_update() {
            return Err(Status::unavailable("the server is shutting down"));
        }
        self.shared.plane.admit(&mut self.peer).await?;
        let Some(first) = self.first_request(&mut drain).await? else {
            return Ok(());
        };
        let connected = connect(&self.shared, &self.peer, first.node.clone()).await?;
        self.converse(&connected, first, drain).await
    }

    /// The first request that is more than a statement; `None` if the stream ends without one.
    async fn first_request(&mut self, drain: &mut Drain) -> Result<Option<Request>, Status> {
        loop {
            let request = tokio::select! {
                request = self.requests.next() => request?.map(Into::into),
                () = drained(drain) => return Ok(None),
            };
            let Some(request): Option<Request> = request else {
                return Ok(None);
            };
            if self.shared.plane.kind(&request.type_url) != Kind::Report {
                return Ok(Some(request));
            }
        }
    }

    async fn converse(
        &mut self,
        connected: &Connected<C>,
        first: Request,
        mut drain: Drain,
    ) -> Result<(), Status> {
        let mut session = self.shared.session(self.protocol);
        let mut revisions = connected.plane.revisions(&connected.client);
        let mut expiry = std::pin::pin!(expiry(self.shared.options.max_connection_age));
        let mut dismissed = std::pin::pin!(connected.plane.dismissed(&connected.client));
        session.on_revision(*revisions.borrow_and_update());
        session.on_request(first, connected)?;
        loop {
            tokio::select! {
                sent = send_all(&self.slot, &mut session, connected) => sent?,
                () = drained(&mut drain) => return Ok(()),
            }
            // A request that came with a change is answered from the world after it.
            tokio::select! {
                biased;
                () = drained(&mut drain) => return Ok(()),
                () = &mut dismissed => return Ok(()),
                () = &mut expiry => return Ok(()),
                revision = next_revision(&mut revisions) => session.on_revision(revision),
                request = self.requests.next() => match request? {
                    Some(request) => session.on_request(request.into(), connected)?,
                    None => return Ok(()),
                },
            }
        }
    }
}

/// Makes the client known to the control plane.
async fn connect<C: ControlPlane>(
    shared: &Shared<C>,
    peer: &Peer,
    node: Option<Node>,
) -> Result<Connected<C>, Status> {
    let Some(node) = node.filter(|node| !node.id.is_empty()) else {
        return Err(Status::invalid_argument("missing node information"));
    };
    let client = shared.plane.connect(peer, node).await?;
    Ok(Connected { plane: shared.plane.clone(), client })
}

/// Hands over everything the session has to say, one response at a time as the transport takes them.
async fn send_all<C: ControlPlane>(
    slot: &Slot,
    session: &mut Session,
    connected: &Connected<C>,
) -> Result<(), Status> {
    loop {
        let response = session.next_response(connected)?;
        for event in session.take_events() {
            connected.plane.observe(&connected.client, event);
        }
        let Some(response) = response else {
            return Ok(());
        };
        let started = Instant::now();
        slot.put(response).await;
        connected.plane.handed_over(&connected.client, started.elapsed());
    }
}

/// A client the control plane knows about, until this is dropped.
struct Connected<C: ControlPlane> {
    plane: Arc<C>,
    client: Arc<C::Client>,
}

impl<C: ControlPlane> Drop for Connected<C> {
    fn drop(&mut self) {
        self.plane.disconnect(&self.client);
    }
}

impl<C: ControlPlane> Source for Connected<C> {
    fn kind(&self, type_url: &str) -> Kind {
        self.plane.kind(type_url)
    }

    fn resources(&self, type_url: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        self.plane.resources(&self.client, type_url, interest)
    }

    fn identifier(&self, type_url: &str) -> Option<String> {
        self.plane.identifier(type_url)
    }
}

/// Waits for the next revision, for ever if there will be none.
async fn next_revision(revisions: &mut watch::Receiver<u64>) -> u64 {
    match revisions.changed().await {
        Ok(()) => *revisions.borrow_and_update(),
        Err(_) => std::future::pending().await,
    }
}

/// Waits until the server stops.
async fn drained(drain: &mut Drain) {
    if drain.wait_for(|draining| *draining).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until a stream is as old as its connection may become.
async fn expiry(age: Option<Duration>) {
    match age {
        Some(age) => sleep(age).await,
        None => std::future::pending().await,
    }
}
