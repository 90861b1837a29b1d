//! The beginning of a stream, until the control plane has answered on it.
//!
//! A connection proves little: a load balancer accepts for a control plane that is gone, and one that starts may accept and
//! refuse. What Envoy asks is therefore kept until the first response comes, so that the last good state can answer it in
//! the control plane's place. An Envoy that has a configuration loses nothing by waiting, so only one without is waited
//! for with a limit.

use std::time::Duration;

use bytes::Buf as _;
use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use canopus_proto::{DecodeError, Message as _};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::frame::Message;
use super::peek::RequestSummary;
use super::{Answer, Variant};

/// What Envoy has asked before the first response.
#[derive(Default)]
pub(super) struct Opening {
    state: Mutex<State>,
    first: watch::Sender<Option<FirstRequest>>,
}

#[derive(Default)]
struct State {
    has_answered: bool,
    /// Whether requests are no longer kept.
    is_over: bool,
    requests: Vec<Message>,
}

#[derive(Clone, Debug)]
struct FirstRequest {
    message: Message,
    /// Whether Envoy names versions of what it has.
    is_configured: bool,
}

impl Opening {
    /// Keeps a request that Envoy has made.
    pub(super) fn keep(&self, message: &Message, summary: Option<&RequestSummary>) {
        if self.first.borrow().is_none() {
            let is_configured = summary.is_some_and(|summary| summary.names_versions);
            self.first.send_replace(Some(FirstRequest { message: message.clone(), is_configured }));
        }
        let mut state = self.state.lock();
        if !state.is_over {
            state.requests.push(message.clone());
        }
    }

    /// The control plane has answered: nothing needs to be asked again.
    pub(super) fn set_answered(&self) {
        self.state.lock().has_answered = true;
        self.take();
    }

    /// Whether the control plane has sent a response.
    pub(super) fn is_answered(&self) -> bool {
        self.state.lock().has_answered
    }

    /// What Envoy has asked so far. Later requests are not kept.
    pub(super) fn take(&self) -> Vec<Message> {
        let mut state = self.state.lock();
        state.is_over = true;
        std::mem::take(&mut state.requests)
    }

    /// Envoy's first request, with which the control plane can be asked for a sign of life.
    pub(super) async fn question(&self, variant: Variant) -> Result<Message, DecodeError> {
        let first = self.first().await.message;
        let mut body = first.body();
        let bytes = body.copy_to_bytes(body.remaining());
        // Without versions, so that there is something to answer.
        Ok(match variant {
            Variant::Delta => {
                let request = DeltaDiscoveryRequest::decode(bytes)?;
                let asked =
                    DeltaDiscoveryRequest { initial_resource_versions: Default::default(), ..request };
                Message::new(&asked.encode_to_vec())
            }
            Variant::Sotw => {
                let request = DiscoveryRequest::decode(bytes)?;
                let asked = DiscoveryRequest { version_info: String::new(), ..request };
                Message::new(&asked.encode_to_vec())
            }
        })
    }

    /// Waits until an Envoy that has a configuration has asked.
    pub(super) async fn configured(&self) {
        if !self.first().await.is_configured {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until an Envoy without a configuration has waited for so long.
    pub(super) async fn unanswered(&self, limit: Duration) {
        if self.first().await.is_configured {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(limit).await;
    }

    async fn first(&self) -> FirstRequest {
        let mut first = self.first.subscribe();
        loop {
            if let Some(first) = first.borrow_and_update().clone() {
                return first;
            }
            if first.changed().await.is_err() {
                // The sender lives as long as this.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// How the control plane refuses a stream, if it does.
pub(super) fn refusal(answer: &Response<Incoming>) -> Option<(tonic::Code, String)> {
    if answer.status() != StatusCode::OK {
        let reason = format!("HTTP status {}", answer.status());
        return Some((tonic::Code::Unavailable, reason));
    }
    status(answer.headers())
}

/// The status that headers or trailers tell of, unless all is well.
pub(super) fn status(headers: &HeaderMap) -> Option<(tonic::Code, String)> {
    let status = tonic::Status::from_header_map(headers)?;
    (status.code() != tonic::Code::Ok).then(|| (status.code(), status.message().to_owned()))
}

/// Whether a refusal says that the control plane is not in a state to serve, rather than that it does not want this proxy.
pub(super) fn is_outage(code: tonic::Code) -> bool {
    !matches!(
        code,
        tonic::Code::Unauthenticated | tonic::Code::PermissionDenied | tonic::Code::InvalidArgument
    )
}

/// Waits for the first bytes of a response.
pub(super) async fn first_bytes(answer: Answer) -> Result<(), String> {
    let answer = answer.await.map_err(|error| error.to_string())?;
    if let Some((code, message)) = refusal(&answer) {
        return Err(format!("{code:?}: {message}"));
    }
    let frame = answer.into_body().frame().await;
    let frame = frame.ok_or("the stream ended without a response")?.map_err(|error| error.to_string())?;
    match frame.trailers_ref().and_then(status) {
        Some((code, message)) => Err(format!("{code:?}: {message}")),
        None if frame.is_trailers() => Err("the stream ended without a response".to_owned()),
        None => Ok(()),
    }
}
