//! The token of a request.

use axum::http::{HeaderMap, header};

/// The longest token that is looked at. Those of service accounts have about a thousand bytes.
const LONGEST: usize = 16 << 10;

/// How a client came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// With a call of gRPC.
    Grpc,
    /// With a call of gRPC that asks for a certificate, which is what tokens for a single use are for.
    Certificate,
    /// With a request to one of the HTTP ports.
    Http,
}

/// Why a request has no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoToken {
    #[error("there is no authorization header")]
    Absent,
    #[error("there is no bearer token in the authorization header")]
    NotBearer,
    #[error("the token is longer than {LONGEST} bytes")]
    TooLong,
}

/// The token that the headers of a request carry.
///
/// Parity: the word before the token has to be written exactly so; over gRPC any of several headers may have it, over HTTP
/// only the first counts, and another word will do as well.
pub(super) fn token(headers: &HeaderMap, door: Door) -> Result<&str, NoToken> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter().map(|value| value.to_str().unwrap_or(""));
    let token = match door {
        Door::Grpc | Door::Certificate => {
            if !headers.contains_key(header::AUTHORIZATION) {
                return Err(NoToken::Absent);
            }
            values.find_map(|value| value.strip_prefix("Bearer "))
        }
        Door::Http => {
            let first = values.next().filter(|value| !value.is_empty()).ok_or(NoToken::Absent)?;
            first.strip_prefix("Bearer ").or_else(|| first.strip_prefix("Istio "))
        }
    };
    match token {
        None => Err(NoToken::NotBearer),
        Some(token) if token.len() > LONGEST => Err(NoToken::TooLong),
        Some(token) => Ok(token),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn token_follows_the_word_bearer() {
        assert_eq!(token(&headers(&["Basic x", "Bearer abc"]), Door::Grpc), Ok("abc"));
        assert_eq!(token(&headers(&["Bearer abc"]), Door::Http), Ok("abc"));
        assert_eq!(token(&headers(&["Istio abc"]), Door::Http), Ok("abc"));
    }

    #[test]
    fn request_without_token_says_what_is_missing() {
        assert_eq!(token(&HeaderMap::new(), Door::Grpc), Err(NoToken::Absent));
        assert_eq!(token(&HeaderMap::new(), Door::Http), Err(NoToken::Absent));
        assert_eq!(token(&headers(&["bearer abc"]), Door::Grpc), Err(NoToken::NotBearer));
        assert_eq!(token(&headers(&["Istio abc"]), Door::Grpc), Err(NoToken::NotBearer));
        assert_eq!(token(&headers(&["Basic x", "Bearer abc"]), Door::Http), Err(NoToken::NotBearer));
        let long = format!("Bearer {}", "x".repeat(LONGEST + 1));
        assert_eq!(token(&headers(&[&long]), Door::Grpc), Err(NoToken::TooLong));
    }
}
