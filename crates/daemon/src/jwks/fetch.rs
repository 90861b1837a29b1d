//! Fetching the keys of an issuer.

use std::net::IpAddr;
use std::time::Duration;

use canopus_http::ReadError;
use canopus_mesh::request_authentication::KeySource;
use http::StatusCode;
use serde_json::Value;

use super::client::Client;

/// Where an issuer says where its keys are, below its own address.
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Why keys could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The address cannot be used.
    #[error("{0:?} is not an http or https address")]
    Uri(String),
    /// The address is one that is not connected to.
    #[error("the address {0} is blocked")]
    Blocked(IpAddr),
    /// The host does not exist.
    #[error("the host {0:?} has no address")]
    Unknown(String),
    /// The server cannot be reached.
    #[error("cannot be reached: {0}")]
    Connection(#[from] std::io::Error),
    /// The server does not speak HTTP.
    #[error("no HTTP answer: {0}")]
    Http(#[from] canopus_http::Error),
    /// No certificate authorities are configured, so no server can be verified.
    #[error("no authorities to check the server by")]
    NoTls,
    /// The server refuses.
    #[error("the server answers {0}")]
    Status(StatusCode),
    /// The server sends the client around.
    #[error("too many redirects")]
    Redirects,
    /// The answer did not come in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The answer is too long, or ended early.
    #[error(transparent)]
    Body(#[from] ReadError),
    /// The fetch panicked.
    #[error("{0}")]
    Panicked(String),
    /// The answer is not what was asked for.
    #[error("the answer is not JSON")]
    NotJson,
    /// The answer is not what was asked for.
    #[error("the answer has no {0:?}")]
    Lacks(&'static str),
}

/// The keys of a source, as its server sent them.
pub(super) async fn keys(
    client: &Client,
    source: &KeySource,
    timeout: Duration,
) -> Result<String, FetchError> {
    let uri = match source {
        KeySource::Uri(uri) => uri.to_string(),
        KeySource::Issuer(issuer) => {
            let place = format!("{}{DISCOVERY}", issuer.strip_suffix('/').unwrap_or(issuer));
            let document = parse(&client.get(&place, timeout).await?)?;
            let uri = document.get("jwks_uri").and_then(Value::as_str);
            uri.ok_or(FetchError::Lacks("jwks_uri"))?.to_owned()
        }
    };
    let text = client.get(&uri, timeout).await?;
    // What is no set of keys must not reach proxies, whose configuration others may read.
    list(&parse(&text)?).ok_or(FetchError::Lacks("keys"))?;
    Ok(text)
}

/// Whether two sets hold the same keys, in whatever order.
pub(super) fn are_the_same(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let sorted = |text: &str| {
        let mut keys: Vec<_> = list(&parse(text).ok()?)?.iter().map(Value::to_string).collect();
        keys.sort();
        Some(keys)
    };
    sorted(a).is_some_and(|keys| Some(keys) == sorted(b))
}

fn parse(text: &str) -> Result<Value, FetchError> {
    serde_json::from_str(text).map_err(|_| FetchError::NotJson)
}

fn list(document: &Value) -> Option<&Vec<Value>> {
    document.get("keys").and_then(Value::as_array)
}
