//! Exchange at an OAuth server: the request is passed on with the agent's own credentials.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use zeroize::Zeroizing;

use super::{ACCESS_TOKEN, Exchange, ExchangeError, ExchangeRequest, GRANT, IssuedToken, TokenBackend};
use crate::fetch::{self, Fetch, FetchError, Fetcher};
use crate::wasm::percent_encode;

const MAX_ANSWER: usize = 1 << 20;

/// Which server exchanges, and as whom it is asked.
#[derive(Clone, Debug)]
pub struct OauthSettings {
    /// `CANOPUS_STS_TOKEN_URL`.
    pub url: String,
    /// `CANOPUS_STS_CLIENT_ID`; empty asks as nobody.
    pub client: String,
    /// `CANOPUS_STS_CLIENT_SECRET_FILE`, read for every request.
    pub secret: Option<PathBuf>,
    /// `CANOPUS_STS_AUDIENCE`: for requests that name none.
    pub audience: String,
}

/// Asks the server.
pub struct OauthBackend {
    settings: OauthSettings,
    fetcher: Fetcher,
}

impl OauthBackend {
    /// Exchanges at a server, which is asked over TLS.
    pub fn new(settings: OauthSettings, fetcher: Fetcher) -> Result<Self, FetchError> {
        let url = Fetch::get(&settings.url)?.url;
        let is_local = url.host().is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"));
        if url.scheme_str() != Some("https") && !is_local {
            let reason = "CANOPUS_STS_TOKEN_URL: tokens are sent over https:// alone, but to this machine";
            return Err(FetchError::Url { url: settings.url, reason });
        }
        Ok(Self { settings, fetcher })
    }

    async fn ask(&self, request: ExchangeRequest) -> Result<IssuedToken, ExchangeError> {
        let unavailable =
            |error: FetchError| ExchangeError::new("temporarily_unavailable", error.to_string());
        let mut fetch = Fetch::get(&self.settings.url).map_err(unavailable)?;
        fetch.method = Method::POST;
        fetch.body = Bytes::from(self.form(request));
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        fetch.headers.insert(header::CONTENT_TYPE, kind);
        let length = HeaderValue::from(fetch.body.len());
        fetch.headers.insert(header::CONTENT_LENGTH, length);
        fetch.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(credentials) = self.credentials()? {
            fetch.headers.insert(header::AUTHORIZATION, credentials);
        }
        let answer = self.fetcher.send(&fetch).await.map_err(unavailable)?;
        let status = answer.status();
        let body = fetch::body(answer, MAX_ANSWER).await.map_err(unavailable)?;
        if status == StatusCode::OK {
            let mut token: IssuedToken = serde_json::from_slice(&body).map_err(|error| {
                ExchangeError::new("server_error", format!("the server's answer has no token: {error}"))
            })?;
            if token.issued_token_type.is_empty() {
                ACCESS_TOKEN.clone_into(&mut token.issued_token_type);
            }
            if token.token_type.is_empty() {
                "Bearer".clone_into(&mut token.token_type);
            }
            return Ok(token);
        }
        // What the server says in the words of the RFC is passed on; anything else is its failure.
        Err(serde_json::from_slice(&body).unwrap_or_else(|_| {
            ExchangeError::new("server_error", format!("the server answers with status {status}"))
        }))
    }

    fn form(&self, request: ExchangeRequest) -> String {
        let mut fields: BTreeMap<String, String> = request.parameters;
        fields.insert("grant_type".to_owned(), GRANT.to_owned());
        fields.insert("subject_token".to_owned(), request.subject_token.to_string());
        fields.insert("subject_token_type".to_owned(), request.subject_token_type);
        fields.entry("requested_token_type".to_owned()).or_insert_with(|| ACCESS_TOKEN.to_owned());
        let has_target = fields.contains_key("audience") || fields.contains_key("resource");
        if !has_target && !self.settings.audience.is_empty() {
            fields.insert("audience".to_owned(), self.settings.audience.clone());
        }
        let pairs =
            fields.iter().map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)));
        pairs.collect::<Vec<_>>().join("&")
    }

    fn credentials(&self) -> Result<Option<HeaderValue>, ExchangeError> {
        if self.settings.client.is_empty() {
            return Ok(None);
        }
        let secret = match &self.settings.secret {
            None => Zeroizing::default(),
            Some(path) => {
                let failed = |error: std::io::Error| {
                    let path = path.display();
                    ExchangeError::new(
                        "server_error",
                        format!("CANOPUS_STS_CLIENT_SECRET_FILE: {path}: {error}"),
                    )
                };
                let bytes = Zeroizing::new(crate::upstream::read(path).map_err(failed)?);
                Zeroizing::new(String::from_utf8_lossy(&bytes).trim().to_owned())
            }
        };
        let pair =
            Zeroizing::new(format!("{}:{}", percent_encode(&self.settings.client), percent_encode(&secret)));
        let value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(pair.as_bytes())));
        Ok(value.ok().map(|mut value| {
            value.set_sensitive(true);
            value
        }))
    }
}

impl TokenBackend for OauthBackend {
    fn exchange(&self, request: ExchangeRequest) -> Exchange<'_> {
        Box::pin(self.ask(request))
    }
}
