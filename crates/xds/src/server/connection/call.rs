//! One request and its response on a connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::Response;
use http_body::{Body as _, Frame};
use tonic::Status;
use tonic::body::Body;

use super::super::body::trailers;
use super::guard::{Guarded, Panicked};

/// Answers a request, unless the client gives up before. What answers may panic, which is an error, and the client is told.
pub(super) async fn answer<F>(
    mut answering: Guarded<Pin<Box<F>>>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), Panicked>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    let answered = poll_fn(|cx| {
        if respond.poll_reset(cx).is_ready() {
            return Poll::Ready(None);
        }
        match answering.with(|answering| answering.as_mut().poll(cx)) {
            Ok(answer) => answer.map(|Ok(response)| Some(Ok(response))),
            Err(panicked) => Poll::Ready(Some(Err(panicked))),
        }
    });
    let response = match answered.await {
        Some(Ok(response)) => response,
        Some(Err(panicked)) => {
            // A client that is gone does not care, here and below.
            let _ = respond.send_response(apology().into_http(), true);
            return Err(panicked);
        }
        None => return Ok(()),
    };
    drop(answering);
    let (head, body) = response.into_parts();
    let mut body = Guarded::new(|| body);
    // If it panics now, it has no more to say later.
    let ends = body.with(|body| body.is_end_stream()).unwrap_or(false);
    match respond.send_response(Response::from_parts(head, ()), ends) {
        Ok(mut stream) if !ends => poll_fn(|cx| poll_send(&mut stream, &mut body, cx)).await,
        _ => Ok(()),
    }
}

/// Sends the body of a response piece by piece, each when the client has room for it; ready when that has ended, well or not.
fn poll_send(
    stream: &mut SendStream<Bytes>,
    body: &mut Guarded<Body>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Panicked>> {
    loop {
        if !ready!(poll_room(stream, cx)) {
            return Poll::Ready(Ok(()));
        }
        let polled = match body.with(|body| Pin::new(body).poll_frame(cx)) {
            Ok(polled) => ready!(polled),
            Err(panicked) => {
                let _ = stream.send_trailers(trailers(Err(apology())).unwrap_or_default());
                return Poll::Ready(Err(panicked));
            }
        };
        let frame = match polled {
            Some(Ok(frame)) => frame,
            Some(Err(_)) => {
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Poll::Ready(Ok(()));
            }
            None => {
                let _ = stream.send_data(Bytes::new(), true);
                return Poll::Ready(Ok(()));
            }
        };
        let sent = match frame.into_data() {
            Ok(data) => stream.send_data(data, false),
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                let _ = stream.send_trailers(trailers);
                return Poll::Ready(Ok(()));
            }
        };
        if sent.is_err() {
            return Poll::Ready(Ok(()));
        }
    }
}

/// Status of a call that panicked. It tells nothing of what the server was doing.
fn apology() -> Status {
    Status::internal("internal error")
}

/// Waits until the client can take something; whether it still wants it.
fn poll_room(stream: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Poll<bool> {
    if stream.capacity() > 0 {
        return Poll::Ready(stream.poll_reset(cx).is_pending());
    }
    stream.reserve_capacity(1);
    loop {
        match ready!(stream.poll_capacity(cx)) {
            Some(Ok(0)) => {}
            Some(Ok(_)) => return Poll::Ready(true),
            Some(Err(_)) | None => return Poll::Ready(false),
        }
    }
}

/// The body of a request, as it is received.
pub(super) struct Received(RecvStream);

impl Received {
    pub(super) fn new(stream: RecvStream) -> Self {
        Self(stream)
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let data = ready!(self.0.poll_data(cx));
        Poll::Ready(data.map(|data| {
            let data = data?;
            self.0.flow_control().release_capacity(data.len())?;
            Ok(data)
        }))
    }
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let failed = match ready!(self.poll_data(cx)) {
            Some(Ok(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
            Some(Err(error)) => error,
            None => match ready!(self.0.poll_trailers(cx)) {
                Ok(trailers) => return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
                Err(error) => error,
            },
        };
        Poll::Ready(match failed.reason() {
            // The client wants no more, which it may.
            Some(Reason::NO_ERROR | Reason::CANCEL) => None,
            _ => Some(Err(Status::from_error(Box::new(failed)))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
