//! One request and its response on a connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::Response;
use http_body::{Body as _, Frame};
use tonic::Status;
use tonic::body::Body;

/// Answers a request, unless the client gives up before.
pub(super) async fn answer(
    answering: impl Future<Output = Result<Response<Body>, Infallible>>,
    mut respond: SendResponse<Bytes>,
) {
    let mut answering = pin!(answering);
    let response = poll_fn(|cx| {
        if respond.poll_reset(cx).is_ready() {
            return Poll::Ready(None);
        }
        answering.as_mut().poll(cx).map(Some)
    });
    let Some(Ok(response)) = response.await else { return };
    let (head, mut body) = response.into_parts();
    let ends = body.is_end_stream();
    let Ok(mut stream) = respond.send_response(Response::from_parts(head, ()), ends) else { return };
    if !ends {
        poll_fn(|cx| poll_send(&mut stream, &mut body, cx)).await;
    }
}

/// Sends the body of a response piece by piece, each when the client has room for it; ready when that has ended, well or not.
fn poll_send(stream: &mut SendStream<Bytes>, body: &mut Body, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        if !ready!(poll_room(stream, cx)) {
            return Poll::Ready(());
        }
        let frame = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(_)) => {
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Poll::Ready(());
            }
            None => {
                // A client that is gone does not care.
                let _ = stream.send_data(Bytes::new(), true);
                return Poll::Ready(());
            }
        };
        let sent = match frame.into_data() {
            Ok(data) => stream.send_data(data, false),
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                let _ = stream.send_trailers(trailers);
                return Poll::Ready(());
            }
        };
        if sent.is_err() {
            return Poll::Ready(());
        }
    }
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
