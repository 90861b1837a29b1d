//! The response side of a stream as an HTTP body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use tonic::Status;

use crate::chunk::ChunkPool;
use crate::session::Response;
use crate::wire::Outgoing;

/// Future that runs a stream: it puts responses into a slot and ends with the stream's status.
pub(super) type Driver = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// Holds one response between the session that makes it and the body that sends it.
///
/// The body polls the session, so nobody has to be woken: a session that waits for room is polled once there is some. A
/// channel would do the same and keep kilobytes for each idle stream.
#[derive(Clone, Default)]
pub(super) struct Slot(Arc<Mutex<Option<Response>>>);

impl Slot {
    /// Puts a response in, unless the one before it has not been taken yet.
    pub(super) fn offer(&self, response: &mut Option<Response>) -> bool {
        let mut slot = self.0.lock();
        if slot.is_none() {
            *slot = response.take();
        }
        response.is_none()
    }

    fn take(&self) -> Option<Response> {
        self.0.lock().take()
    }
}

/// Runs a session whenever the transport wants more bytes.
///
/// The session has no task of its own. A client that stops reading stops being polled: its session makes no further
/// responses and reads no further requests until there is room again.
pub(super) struct StreamBody {
    state: State,
    slot: Slot,
    outgoing: Option<Outgoing>,
    chunks: Arc<ChunkPool>,
}

enum State {
    Running(Driver),
    Ended(Result<(), Status>),
    Closed,
}

impl StreamBody {
    pub(super) fn new(driver: Driver, slot: Slot, chunks: Arc<ChunkPool>) -> Self {
        Self { state: State::Running(driver), slot, outgoing: None, chunks }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(piece) = self.outgoing.as_mut().and_then(Iterator::next) {
                return Poll::Ready(Some(piece));
            }
            self.outgoing = None;
            if let Some(response) = self.slot.take() {
                self.send(response);
                continue;
            }
            let State::Running(driver) = &mut self.state else {
                return Poll::Ready(None);
            };
            if let Poll::Ready(result) = driver.as_mut().poll(cx) {
                self.state = State::Ended(result);
                continue;
            }
            match self.slot.take() {
                Some(response) => self.send(response),
                None => return Poll::Pending,
            }
        }
    }

    fn send(&mut self, response: Response) {
        match Outgoing::new(response, &self.chunks) {
            Ok(outgoing) => self.outgoing = Some(outgoing),
            Err(error) => self.state = State::Ended(Err(Status::out_of_range(error.to_string()))),
        }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Poll::Ready(piece) = self.poll_piece(cx) else {
            return Poll::Pending;
        };
        if let Some(piece) = piece {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        Poll::Ready(match std::mem::replace(&mut self.state, State::Closed) {
            State::Ended(result) => Some(trailers(result).map(Frame::trailers)),
            State::Running(_) | State::Closed => None,
        })
    }
}

/// Trailers for a stream that ends like this.
pub(super) fn trailers(result: Result<(), Status>) -> Result<HeaderMap, Status> {
    let mut trailers = HeaderMap::new();
    let status = result.err().unwrap_or_else(|| Status::ok(""));
    status.add_header(&mut trailers)?;
    Ok(trailers)
}
