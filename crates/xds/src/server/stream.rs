//! The life of one stream: admission, the first request, then requests and revisions until it ends.
//!
//! A stream is idle most of the time, so little is kept of how it was opened: headers, extensions and whatever
//! authenticated the client are dropped as soon as the control plane knows the client.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::Node;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep, timeout};
use tonic::Status;
use tracing::info;

use super::Shared;
use super::body::Slot;
use super::decode::{Kept, Next, RequestMessage, Requests};
use super::start::StartPermit;
use crate::SessionEvent;
use crate::interest::Interest;
use crate::mailbox::{Mailbox, Wakeup};
use crate::plane::{ControlPlane, Peer};
use crate::resource::ResourceSet;
use crate::session::{Protocol, Request, Response, Session};
use crate::source::{Refusal, Source};
use crate::types::{Kind, Types};

/// A stream that has been opened.
pub(super) struct Stream<C: ControlPlane, M> {
    pub(super) shared: Arc<Shared<C>>,
    pub(super) protocol: Protocol,
    pub(super) peer: Peer,
    pub(super) requests: Requests<M>,
    pub(super) slot: Slot,
    /// Permit that counts the stream against the server's limit.
    pub(super) room: OwnedSemaphorePermit,
}

impl<C, M> Stream<C, M>
where
    C: ControlPlane,
    M: RequestMessage + Into<Request>,
{
    /// Runs the stream to its end.
    pub(super) async fn run(self) -> Result<(), Status> {
        let address = self.peer.address;
        // Authentication and the like need much more room than a stream that is open, so that is given back.
        let ended = match Box::pin(self.begin()).await {
            Ok(Some((mut conversation, first))) => conversation.run(first).await,
            Ok(None) => Ok(()),
            Err(status) => Err(status),
        };
        if let Err(status) = &ended {
            info!(peer = ?address, code = ?status.code(), message = status.message(), "stream ended");
        }
        ended
    }

    /// Makes the client known to the control plane; `None` if the stream ends before that.
    async fn begin(mut self) -> Result<Option<(Conversation<C, M>, Request)>, Status> {
        if self.shared.is_draining() {
            return Err(Status::unavailable("the server is shutting down"));
        }
        self.shared.plane.admit(&mut self.peer).await?;
        let Some((first, start)) = self.first_request().await? else {
            return Ok(None);
        };
        let node = first.node.clone().filter(|node| !node.id.is_empty());
        let size = node.as_ref().map_or(0, Message::encoded_len);
        let node_bytes = Kept::new(&self.shared.nodes, size)?;
        let connected = connect(&self.shared, &self.peer, node).await?;
        let conversation = Conversation {
            session: self.shared.session(self.protocol),
            expiry: self.shared.options.draw_connection_age().map(|age| Box::pin(sleep(age))),
            patience: self.shared.options.cluster_patience,
            waiting: None,
            start,
            connected,
            requests: self.requests,
            mailbox: self.peer.mailbox,
            slot: self.slot,
            _held: (self.room, node_bytes),
        };
        Ok(Some((conversation, first)))
    }

    /// The first request that is not a report, with the permission to answer it; `None` if the stream ends without one.
    async fn first_request(&mut self) -> Result<Option<(Request, StartPermit)>, Status> {
        loop {
            let Self { shared, peer, requests, .. } = &mut *self;
            // Revisions before the first request mean nothing to the stream.
            let is_ended = |cx: &mut Context<'_>| peer.mailbox.poll_end(cx).is_ready();
            let arrived = poll_fn(|cx| {
                if is_ended(cx) {
                    Poll::Ready(Ok(false))
                } else {
                    requests.poll_arrived(cx).map_ok(|()| true)
                }
            });
            // The wait for a turn is not the client's, so it has no part in this.
            let allowed = shared.options.first_request_timeout;
            let late = |_| Status::deadline_exceeded(format!("no request within {allowed:?}"));
            if !timeout(allowed, arrived).await.map_err(late)?? {
                return Ok(None);
            }
            let mut turn = pin!(shared.starting.enter());
            let turn =
                poll_fn(|cx| if is_ended(cx) { Poll::Ready(None) } else { turn.as_mut().poll(cx).map(Some) });
            let Some(start) = turn.await else { return Ok(None) };
            let next = poll_fn(|cx| {
                if is_ended(cx) { Poll::Ready(Ok(Next::End)) } else { requests.poll_next(cx, |_, _| false) }
            });
            let Next::Request(request) = next.await? else { return Ok(None) };
            let request: Request = request.into();
            if shared.plane.kind(&request.type_url) != Kind::Report {
                return Ok(Some((request, start)));
            }
        }
    }
}

/// A stream whose client the control plane knows.
struct Conversation<C: ControlPlane, M> {
    session: Session,
    connected: Connected<C>,
    requests: Requests<M>,
    mailbox: Arc<Mailbox>,
    slot: Slot,
    /// Permits that count the stream against the server's bounds while it lasts.
    _held: (OwnedSemaphorePermit, Kept),
    /// Held until the client has all it asked for at first.
    start: StartPermit,
    /// When the client is asked to connect anew.
    expiry: Option<Pin<Box<Sleep>>>,
    /// How long routes wait for clusters and clusters for routes.
    patience: Duration,
    /// When they have waited long enough, if they wait.
    waiting: Option<Pin<Box<Sleep>>>,
}

/// An event of a stream.
enum StreamEvent<M> {
    /// The world is at this revision, and resources of these types may have changed.
    Revised(u64, Types),
    /// The client acknowledged a response, or did not in time; the session knows.
    Noted,
    /// The client wants something.
    Request(M),
    /// The stream has to end, or the client ended it.
    End,
}

impl<C, M> Conversation<C, M>
where
    C: ControlPlane,
    M: RequestMessage + Into<Request>,
{
    async fn run(&mut self, first: Request) -> Result<(), Status> {
        self.session.on_revision(self.mailbox.revision(), Types::ALL);
        self.session.on_request(first, &self.connected)?;
        while self.send_all().await? {
            match poll_fn(|cx| self.poll_event(cx)).await? {
                StreamEvent::Revised(revision, types) => self.session.on_revision(revision, types),
                StreamEvent::Noted => {}
                StreamEvent::Request(request) => self.session.on_request(request.into(), &self.connected)?,
                StreamEvent::End => break,
            }
        }
        Ok(())
    }

    /// Waits for the next event. A request that came with a change is answered from the world after it.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<StreamEvent<M>, Status>> {
        self.start.poll_overdue(cx);
        match self.mailbox.poll(cx) {
            Poll::Ready(Wakeup::Revised(revision, types)) => {
                return Poll::Ready(Ok(StreamEvent::Revised(revision, types)));
            }
            Poll::Ready(Wakeup::End) => return Poll::Ready(Ok(StreamEvent::End)),
            Poll::Pending => {}
        }
        if self.expiry.as_mut().is_some_and(|expiry| expiry.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Ok(StreamEvent::End));
        }
        if self.waiting.as_mut().is_some_and(|waiting| waiting.as_mut().poll(cx).is_ready()) {
            self.waiting = None;
            self.session.stop_waiting();
            return Poll::Ready(Ok(StreamEvent::Noted));
        }
        let session = &mut self.session;
        let next = ready!(self.requests.poll_next(cx, |type_url, nonce| session.on_ack(type_url, nonce)))?;
        Poll::Ready(Ok(match next {
            Next::Acknowledged => StreamEvent::Noted,
            Next::Request(request) => StreamEvent::Request(request),
            Next::End => StreamEvent::End,
        }))
    }

    /// Hands over everything the session has to say, one response at a time as the transport takes them; false if the stream
    /// has to end before that.
    async fn send_all(&mut self) -> Result<bool, Status> {
        loop {
            let response = self.session.next_response(&self.connected)?;
            for event in self.session.take_events() {
                if matches!(event, SessionEvent::Settled { .. }) {
                    self.start.release();
                }
                self.connected.plane.observe(&self.connected.client, event);
            }
            if response.is_none() {
                let is_waiting = self.session.is_waiting();
                self.waiting =
                    is_waiting.then(|| self.waiting.take().unwrap_or_else(|| Box::pin(sleep(self.patience))));
                return Ok(true);
            }
            if !self.hand_over(response).await {
                return Ok(false);
            }
        }
    }

    /// Waits until the transport has room for a response; false if the stream has to end before that.
    async fn hand_over(&mut self, mut response: Option<Response>) -> bool {
        if self.slot.offer(&mut response) {
            self.connected.plane.handed_over(&self.connected.client, Duration::ZERO);
            return true;
        }
        let started = Instant::now();
        let is_taken = poll_fn(|cx| {
            if self.slot.offer(&mut response) {
                return Poll::Ready(true);
            }
            self.start.poll_overdue(cx);
            self.mailbox.poll_end(cx).map(|()| false)
        });
        let is_taken = is_taken.await;
        if is_taken {
            self.connected.plane.handed_over(&self.connected.client, started.elapsed());
        }
        is_taken
    }
}

/// Makes the client known to the control plane.
async fn connect<C: ControlPlane>(
    shared: &Shared<C>,
    peer: &Peer,
    node: Option<Node>,
) -> Result<Connected<C>, Status> {
    let Some(node) = node else {
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
