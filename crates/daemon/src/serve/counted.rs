//! Calls that are counted as their messages pass by.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::HttpBody;
use axum::http::{HeaderMap, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::metrics::Call;

/// What precedes each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The requests of a call, counted.
pub(super) fn requests(call: &Arc<Call>, body: Body) -> Body {
    Body::new(Requests { body, messages: Messages::default(), call: Arc::clone(call) })
}

/// A call until it ends. If this is dropped before, nobody waits for the end any more, or whoever answers has panicked.
#[derive(Default)]
pub(super) struct Open(Option<Arc<Call>>);

impl Open {
    pub(super) fn new(call: Arc<Call>) -> Self {
        Self(Some(call))
    }

    /// The answer to the call, counted.
    pub(super) fn answered(mut self, response: Response<Body>) -> Response<Body> {
        if let Some(code) = code(response.headers()) {
            self.end(code);
            return response;
        }
        response.map(|body| Body::new(Responses { body, messages: Messages::default(), open: self }))
    }

    fn end(&mut self, code: Code) {
        if let Some(call) = self.0.take() {
            call.ended(code);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.end(if std::thread::panicking() { Code::Internal } else { Code::Cancelled });
    }
}

/// How a call ended, if these headers say so.
fn code(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|status| Code::from_bytes(status.as_bytes()))
}

struct Requests {
    body: Body,
    messages: Messages,
    call: Arc<Call>,
}

impl HttpBody for Requests {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self { body, messages, call } = self.get_mut();
        let polled = ready!(Pin::new(body).poll_frame(cx));
        if let Some(Ok(frame)) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            messages.pass(bytes, |length| call.received(length));
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct Responses {
    body: Body,
    messages: Messages,
    open: Open,
}

impl HttpBody for Responses {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self { body, messages, open } = self.get_mut();
        // What is on the way when the body panics is dropped, and the call ends.
        let kept = std::mem::take(open);
        let polled = Pin::new(body).poll_frame(cx);
        *open = kept;
        let polled = ready!(polled);
        match &polled {
            Some(Ok(frame)) => {
                if let (Some(bytes), Some(call)) = (frame.data_ref(), &open.0) {
                    messages.pass(bytes, |_| call.sent());
                }
                if let Some(code) = frame.trailers_ref().and_then(code) {
                    open.end(code);
                }
            }
            Some(Err(status)) => open.end(status.code()),
            None => {}
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Where messages begin in bytes that come in pieces.
#[derive(Default)]
struct Messages {
    prefix: [u8; PREFIX],
    /// How much of the prefix is there.
    filled: usize,
    /// How much of the message is still to come.
    left: usize,
}

impl Messages {
    /// Takes note of bytes; `begins` is told the length of each message that begins in them.
    fn pass(&mut self, mut bytes: &[u8], begins: impl Fn(u32)) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let (of_message, rest) = bytes.split_at(self.left.min(bytes.len()));
                self.left -= of_message.len();
                bytes = rest;
                continue;
            }
            let (head, rest) = bytes.split_at((PREFIX - self.filled).min(bytes.len()));
            self.prefix[self.filled..self.filled + head.len()].copy_from_slice(head);
            self.filled += head.len();
            bytes = rest;
            if self.filled == PREFIX {
                let [_, length @ ..] = self.prefix;
                let length = u32::from_be_bytes(length);
                self.filled = 0;
                self.left = length as usize;
                begins(length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::task::Waker;

    use canopus_runtime::metrics::Registry;
    use proptest::prelude::*;

    use super::*;
    use crate::metrics::CallMetrics;

    struct Broken;

    impl HttpBody for Broken {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            panic!("it is broken");
        }
    }

    #[test]
    fn call_whose_body_panics_ends_as_an_internal_error() {
        let registry = Registry::new();
        let call = Arc::new(CallMetrics::new(&registry)).begin("/grpc.health.v1.Health/Watch").unwrap();
        let mut body = Open::new(Arc::new(call)).answered(Response::new(Body::new(Broken))).into_body();
        let poll = || Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(catch_unwind(AssertUnwindSafe(poll)).is_err());
        drop(body);
        let counted = registry.encode();
        let handled: Vec<&str> =
            counted.lines().filter(|line| line.starts_with("grpc_server_handled_total")).collect();
        assert_eq!(handled.len(), 1, "{handled:?}");
        assert!(handled[0].contains("grpc_code=\"Internal\"") && handled[0].ends_with(" 1"), "{handled:?}");
    }

    proptest! {
        #[test]
        fn every_message_is_seen_however_its_bytes_come(
            lengths in prop::collection::vec(0usize..40, 0..20),
            pieces in prop::collection::vec(1usize..30, 1..20),
        ) {
            let mut bytes = Vec::new();
            for length in &lengths {
                bytes.push(0);
                bytes.extend(u32::try_from(*length).unwrap().to_be_bytes());
                bytes.extend(std::iter::repeat_n(0xff, *length));
            }
            let mut messages = Messages::default();
            let seen = RefCell::new(Vec::new());
            let mut rest = &bytes[..];
            for piece in pieces.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*piece).min(rest.len()));
                messages.pass(now, |length| seen.borrow_mut().push(length as usize));
                rest = later;
            }
            prop_assert_eq!(seen.into_inner(), lengths);
        }
    }
}
