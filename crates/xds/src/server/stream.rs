//! The life of one stream: admission, the first request, then requests and revisions until it ends.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use canopus_proto::envoy::config::core::v3::Node;
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tracing::info;

use super::Shared;
use super::body::Slot;
use super::decode::{RequestMessage, Requests};
use crate::interest::Interest;
use crate::mailbox::{Letter, Mailbox};
use crate::plane::{ControlPlane, Peer, Refusal, Source};
use crate::resource::ResourceSet;
use crate::session::{Protocol, Request, Session};
use crate::types::{Kind, Types};

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
        if self.shared.is_draining() {
            return Err(Status::unavailable("the server is shutting down"));
        }
        self.shared.plane.admit(&mut self.peer).await?;
        let Some(first) = self.first_request().await? else {
            return Ok(());
        };
        let connected = connect(&self.shared, &self.peer, first.node.clone()).await?;
        self.converse(&connected, first).await
    }

    /// The first request that is more than a statement; `None` if the stream ends without one.
    async fn first_request(&mut self) -> Result<Option<Request>, Status> {
        loop {
            let request = poll_fn(|cx| match self.peer.mailbox.poll(cx) {
                Poll::Ready(Letter::Over) => Poll::Ready(Ok(None)),
                // Nobody is told of anything before it has asked.
                Poll::Ready(Letter::News(..)) | Poll::Pending => self.requests.poll_next(cx),
            });
            let Some(request): Option<Request> = request.await?.map(Into::into) else {
                return Ok(None);
            };
            if self.shared.plane.kind(&request.type_url) != Kind::Report {
                return Ok(Some(request));
            }
        }
    }

    async fn converse(&mut self, connected: &Connected<C>, first: Request) -> Result<(), Status> {
        let mut session = self.shared.session(self.protocol);
        let mut expiry = self.shared.options.max_connection_age.map(|age| Box::pin(sleep(age)));
        session.on_revision(self.peer.mailbox.revision(), Types::ALL);
        session.on_request(first, connected)?;
        loop {
            if !send_all(&self.slot, &self.peer.mailbox, &mut session, connected).await? {
                return Ok(());
            }
            match poll_fn(|cx| self.poll_word(expiry.as_mut(), cx)).await? {
                Word::News(revision, types) => session.on_revision(revision, types),
                Word::Request(request) => session.on_request(request.into(), connected)?,
                Word::Over => return Ok(()),
            }
        }
    }

    /// What the stream hears next. A request that came with a change is answered from the world after it.
    fn poll_word(
        &mut self,
        expiry: Option<&mut Pin<Box<Sleep>>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Word<M>, Status>> {
        if let Poll::Ready(letter) = self.peer.mailbox.poll(cx) {
            return Poll::Ready(Ok(match letter {
                Letter::News(revision, types) => Word::News(revision, types),
                Letter::Over => Word::Over,
            }));
        }
        if expiry.is_some_and(|expiry| expiry.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Ok(Word::Over));
        }
        let request = ready!(self.requests.poll_next(cx))?;
        Poll::Ready(Ok(request.map_or(Word::Over, Word::Request)))
    }
}

/// Hands over everything the session has to say, one response at a time as the transport takes them; false if the stream
/// has to end before that.
async fn send_all<C: ControlPlane>(
    slot: &Slot,
    mailbox: &Mailbox,
    session: &mut Session,
    connected: &Connected<C>,
) -> Result<bool, Status> {
    loop {
        let response = session.next_response(connected)?;
        for event in session.take_events() {
            connected.plane.observe(&connected.client, event);
        }
        let Some(response) = response else {
            return Ok(true);
        };
        let started = Instant::now();
        if !slot.put(response, mailbox).await {
            return Ok(false);
        }
        connected.plane.handed_over(&connected.client, started.elapsed());
    }
}

/// What a stream hears.
enum Word<M> {
    News(u64, Types),
    Request(M),
    Over,
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
