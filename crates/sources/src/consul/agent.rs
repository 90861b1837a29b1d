//! Asking a Consul agent.

use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::answer::Instance;

/// How long the agent may wait for something to change. It may take a sixteenth longer.
const WAIT_SECONDS: u64 = 55;

/// Consul answers a blocking query within its wait time, so without an answer for this long none will come.
const PATIENCE: Duration = Duration::from_secs(WAIT_SECONDS + 20);

/// Larger answers are refused.
const MAX_BYTES: usize = 64 << 20;

/// How to reach an agent.
#[derive(Clone)]
pub struct AgentOptions {
    /// Where it listens: `http://127.0.0.1:8500`.
    pub url: String,
    /// The token it wants, if it wants one.
    pub token: Option<String>,
}

/// Why an agent cannot be asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The address is not one.
    #[error("{url:?} is not the address of a Consul agent; it looks like http://127.0.0.1:8500")]
    Url {
        /// The address.
        url: String,
    },
    /// The token has characters that a header cannot have.
    #[error("the Consul token has characters that cannot be sent")]
    Token,
    /// The agent did not answer.
    #[error("the Consul agent cannot be asked: {0}")]
    Transport(String),
    /// The agent refused.
    #[error("the Consul agent refused {path}: {message} (status {code})")]
    Refused {
        /// What it was asked for.
        path: String,
        /// The HTTP status.
        code: u16,
        /// Consul's answer.
        message: String,
    },
    /// The agent said something that cannot be understood.
    #[error("the answer of the Consul agent to {path} cannot be understood: {message}")]
    Malformed {
        /// What it was asked for.
        path: String,
        /// What is wrong.
        message: String,
    },
}

/// An agent.
#[derive(Clone)]
pub(super) struct Agent {
    client: Client<HttpConnector, Empty<Bytes>>,
    base: String,
    token: Option<HeaderValue>,
}

/// An answer, and what to wait for a change of it with.
pub(super) struct Answer<T> {
    pub(super) content: T,
    pub(super) index: u64,
}

impl Agent {
    pub(super) fn new(options: &AgentOptions) -> Result<Self, AgentError> {
        let bad_url = || AgentError::Url { url: options.url.clone() };
        let url: Uri = options.url.parse().map_err(|_| bad_url())?;
        let authority = url.authority().filter(|_| url.scheme_str() == Some("http")).ok_or_else(bad_url)?;
        let token = options.token.as_deref().map(|token| {
            let mut value = HeaderValue::from_str(token).map_err(|_| AgentError::Token)?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
            base: format!("http://{authority}{}", url.path().trim_end_matches('/')),
            token: token.transpose()?,
        })
    }

    /// The answer to a question, once it differs from the one of this index.
    pub(super) async fn wait<T: DeserializeOwned>(
        &self,
        path: &str,
        index: u64,
    ) -> Result<Answer<T>, AgentError> {
        self.ask(path, &format!("?index={index}&wait={WAIT_SECONDS}s")).await
    }

    /// The instances of a service.
    pub(super) async fn instances(&self, service: &str) -> Result<Vec<Instance>, AgentError> {
        let answer: Answer<Option<Vec<Instance>>> =
            self.ask(&format!("/v1/health/service/{}", encoded(service)), "").await?;
        Ok(answer.content.unwrap_or_default())
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str, query: &str) -> Result<Answer<T>, AgentError> {
        let answer = timeout(PATIENCE, self.exchange(path, query)).await;
        let (index, bytes) = answer.unwrap_or_else(|_| Err(AgentError::Transport("no answer".to_owned())))?;
        let content = serde_json::from_slice(&bytes)
            .map_err(|error| AgentError::Malformed { path: path.to_owned(), message: error.to_string() })?;
        Ok(Answer { content, index })
    }

    async fn exchange(&self, path: &str, query: &str) -> Result<(u64, Bytes), AgentError> {
        let lost = |error: &dyn std::error::Error| {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            AgentError::Transport(format!("{error}{cause}"))
        };
        let mut request = Request::get(format!("{}{path}{query}", self.base));
        if let Some(token) = &self.token {
            request = request.header("x-consul-token", token);
        }
        let request = request.body(Empty::new()).map_err(|error| lost(&error))?;
        let response = self.client.request(request).await.map_err(|error| lost(&error))?;
        let status = response.status();
        let index =
            response.headers().get("x-consul-index").and_then(|index| index.to_str().ok()?.parse().ok());
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let body = body.map_err(|error| AgentError::Transport(error.to_string()))?.to_bytes();
        if !status.is_success() {
            let message = String::from_utf8_lossy(&body).trim().chars().take(200).collect();
            return Err(AgentError::Refused { path: path.to_owned(), code: status.as_u16(), message });
        }
        Ok((index.unwrap_or(0), body))
    }
}

/// A name as part of a path.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let encode = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_are_taken() {
        let agent = |url: &str| Agent::new(&AgentOptions { url: url.to_owned(), token: None });
        assert_eq!(agent("http://127.0.0.1:8500").unwrap().base, "http://127.0.0.1:8500");
        assert_eq!(agent("http://consul/below/").unwrap().base, "http://consul/below");
        for bad in ["", "127.0.0.1:8500", "https://consul", "http://", "ftp://consul"] {
            assert!(agent(bad).is_err(), "{bad}");
        }
        let token = AgentOptions { url: "http://consul".to_owned(), token: Some("a\nb".to_owned()) };
        assert!(matches!(Agent::new(&token), Err(AgentError::Token)));
    }

    #[test]
    fn odd_names_stay_one_step_of_a_path() {
        assert_eq!(encoded("a/b?c d"), "a%2Fb%3Fc%20d");
    }
}
