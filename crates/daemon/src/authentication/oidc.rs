//! Tokens of an outside issuer, checked by the keys it publishes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use canopus_mesh::request_authentication::KeySource;
use canopus_runtime::flags::{Flags, PILOT_JWT_PUB_KEY_REFRESH_INTERVAL};
use canopus_runtime::tasks;
use canopus_sources::kubernetes::TokenOwner;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::jwt::{Jwt, Key, Malformed, moment};
use crate::jwks::KeyServer;

/// How long the server of keys may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The shortest time between two questions to the server of keys, whatever tokens come.
const PAUSE: Duration = Duration::from_secs(10);

/// How far the issuer's clock may be ahead.
const LEEWAY: Duration = Duration::from_secs(5 * 60);

/// An issuer whose tokens are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) issuer: String,
    audiences: Vec<String>,
    keys: Keys,
}

/// Where the keys of an issuer are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Keys {
    Given(Vec<Key>),
    At(KeySource),
}

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RuleError {
    #[error("it is not a JSON object: {0}")]
    Json(String),
    #[error("it has no issuer")]
    NoIssuer,
    #[error("its jwks is not a set of keys")]
    Keys,
}

impl Rule {
    /// Reads `{"issuer": …, "jwks_uri": …, "audiences": […]}`, with names in either spelling of proto-JSON.
    pub(super) fn parse(text: &str) -> Result<Self, RuleError> {
        let rule: Value = serde_json::from_str(text).map_err(|error| RuleError::Json(error.to_string()))?;
        let text = |names: &[&str]| {
            names.iter().find_map(|name| rule[*name].as_str()).filter(|text| !text.is_empty())
        };
        let issuer = text(&["issuer"]).ok_or(RuleError::NoIssuer)?.to_owned();
        let keys = match (text(&["jwks"]), text(&["jwks_uri", "jwksUri"])) {
            (Some(set), _) => Keys::Given(Key::read_set(set).ok_or(RuleError::Keys)?),
            (None, Some(uri)) => Keys::At(KeySource::Uri(uri.into())),
            (None, None) => Keys::At(KeySource::Issuer(issuer.as_str().into())),
        };
        Ok(Self { issuer, audiences: texts(&rule["audiences"]), keys })
    }

    /// Tokens of this issuer for these audiences, with keys from where it says in its OpenID configuration.
    pub(super) fn for_issuer(issuer: &str, audiences: Vec<String>) -> Self {
        Self { issuer: issuer.to_owned(), audiences, keys: Keys::At(KeySource::Issuer(issuer.into())) }
    }
}

/// Why a token of an issuer proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("it is from another issuer")]
    Issuer,
    #[error("it has expired")]
    Expired,
    #[error("it does not count yet")]
    Early,
    #[error("it is not meant for us")]
    Audience,
    #[error("it is not that of a service account")]
    Subject,
    #[error("no key of the issuer has signed it")]
    Signature,
}

/// Checks the tokens of one issuer.
pub(super) struct IssuedTokens {
    rule: Rule,
    server: KeyServer,
    refresh: Duration,
    /// What the server of keys said. The lock is never held while the server is asked.
    fetched: Arc<Mutex<Fetched>>,
}

#[derive(Debug, Default)]
struct Fetched {
    keys: Arc<[Key]>,
    asked: Option<Instant>,
    /// Signals the answer to the request that is under way.
    answered: Option<watch::Receiver<()>>,
}

impl IssuedTokens {
    pub(super) fn new(rule: Rule, flags: &Flags) -> Self {
        let refresh = flags.get(PILOT_JWT_PUB_KEY_REFRESH_INTERVAL).max(PAUSE);
        Self { rule, server: KeyServer::new(flags), refresh, fetched: Arc::default() }
    }

    /// URL of the issuer.
    pub(super) fn issuer(&self) -> &str {
        &self.rule.issuer
    }

    /// The service account a token belongs to.
    pub(super) async fn owner(&self, token: &str) -> Result<TokenOwner, Refused> {
        let token = Jwt::parse(token)?;
        // What is cheap comes first: only a token that claims all the right things is worth asking for keys.
        let owner = self.claimed(&token.claims, SystemTime::now())?;
        if self.is_signed(&token).await { Ok(owner) } else { Err(Refused::Signature) }
    }

    /// The account the claims of a token name, if they are what is expected.
    fn claimed(&self, claims: &Value, now: SystemTime) -> Result<TokenOwner, Refused> {
        if claims["iss"] != *self.rule.issuer {
            return Err(Refused::Issuer);
        }
        if moment(&claims["exp"]).is_none_or(|end| end <= now) {
            return Err(Refused::Expired);
        }
        if moment(&claims["nbf"]).is_some_and(|start| start > now + LEEWAY) {
            return Err(Refused::Early);
        }
        if !texts(&claims["aud"]).iter().any(|audience| self.rule.audiences.contains(audience)) {
            return Err(Refused::Audience);
        }
        let subject = claims["sub"].as_str().unwrap_or_default();
        match subject.split(':').collect::<Vec<_>>()[..] {
            ["system", "serviceaccount", namespace, account]
                if !namespace.is_empty() && !account.is_empty() =>
            {
                Ok(TokenOwner { namespace: namespace.into(), service_account: account.into(), pod: None })
            }
            _ => Err(Refused::Subject),
        }
    }

    async fn is_signed(&self, token: &Jwt<'_>) -> bool {
        let source = match &self.rule.keys {
            Keys::Given(keys) => return token.is_signed_by_any(keys),
            Keys::At(source) => source,
        };
        let (keys, age) = self.known();
        if age.is_some_and(|age| age < self.refresh) && token.is_signed_by_any(&keys) {
            return true;
        }
        if let Some(mut answered) = self.ask(source) {
            // Whether the question was answered or given up, what is known by then counts.
            let _ = timeout(PATIENCE, answered.changed()).await;
        }
        token.is_signed_by_any(&self.known().0)
    }

    /// The keys that are known, and how long ago they were asked for.
    fn known(&self) -> (Arc<[Key]>, Option<Duration>) {
        let fetched = self.fetched.lock();
        (Arc::clone(&fetched.keys), fetched.asked.map(|asked| asked.elapsed()))
    }

    /// Asks for keys, unless that is under way or was done a moment ago; where to wait for the answer.
    fn ask(&self, source: &KeySource) -> Option<watch::Receiver<()>> {
        let mut fetched = self.fetched.lock();
        if let Some(answered) = &fetched.answered {
            return Some(answered.clone());
        }
        if fetched.asked.is_some_and(|asked| asked.elapsed() < PAUSE) {
            return None;
        }
        fetched.asked = Some(Instant::now());
        let (answer, answered) = watch::channel(());
        fetched.answered = Some(answered.clone());
        let (server, source) = (self.server.clone(), source.clone());
        let (store, issuer) = (Arc::clone(&self.fetched), self.rule.issuer.clone());
        // Apart from whoever asks: a client that leaves does not take the answer of the others with it.
        tasks::detach("fetch of an issuer's keys", async move {
            let asking = async move { server.keys(&source, PATIENCE).await };
            let keys = match tasks::contain("fetch of an issuer's keys", asking).await {
                Ok(Ok(text)) => Key::read_set(&text),
                Ok(Err(error)) => {
                    warn!(issuer, %error, "its keys stay as they were");
                    None
                }
                Err(_) => None,
            };
            let mut fetched = store.lock();
            if let Some(keys) = keys {
                fetched.keys = keys.into();
            }
            fetched.answered = None;
            drop(fetched);
            answer.send_replace(());
        });
        Some(answered)
    }
}

/// The values of a claim that is one text or a list.
fn texts(value: &Value) -> Vec<String> {
    let several = value.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(value));
    several.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::super::jwt::tests::{p256, token};
    use super::*;

    fn seconds_from_now(seconds: i64) -> i64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        now.as_secs().cast_signed() + seconds
    }

    fn claims() -> Value {
        json!({
            "iss": "https://issuer.example", "aud": ["other", "istio-ca"], "exp": seconds_from_now(60),
            "sub": "system:serviceaccount:shop:cart",
        })
    }

    fn issued(rule: &Value) -> IssuedTokens {
        let flags = Flags::read(&[("CANOPUS_ALLOW_LOCAL_JWKS", "true")]);
        IssuedTokens::new(Rule::parse(&rule.to_string()).unwrap(), &flags)
    }

    fn cart() -> TokenOwner {
        TokenOwner { namespace: "shop".into(), service_account: "cart".into(), pod: None }
    }

    #[tokio::test]
    async fn token_with_the_right_claims_belongs_to_its_subject() {
        let (key, sign) = p256("a");
        let set = json!({ "keys": [key] }).to_string();
        let tokens =
            issued(&json!({"issuer": "https://issuer.example", "audiences": ["istio-ca"], "jwks": set}));
        let owner = async |claims: &Value| {
            tokens.owner(&token(&json!({"alg": "ES256", "kid": "a"}), claims, &sign)).await
        };
        assert_eq!(owner(&claims()).await, Ok(cart()));
        for (claim, value, refused) in [
            ("iss", json!("https://elsewhere"), Refused::Issuer),
            ("exp", json!(seconds_from_now(-1)), Refused::Expired),
            ("exp", Value::Null, Refused::Expired),
            ("nbf", json!(seconds_from_now(3600)), Refused::Early),
            ("aud", json!("vault"), Refused::Audience),
            ("sub", json!("system:serviceaccount:shop"), Refused::Subject),
            ("sub", json!("somebody"), Refused::Subject),
        ] {
            let mut wrong = claims();
            wrong[claim] = value;
            assert_eq!(owner(&wrong).await, Err(refused), "{claim}");
        }
        let (_, stranger) = p256("a");
        let forged = token(&json!({"alg": "ES256", "kid": "a"}), &claims(), stranger);
        assert_eq!(tokens.owner(&forged).await, Err(Refused::Signature));
        assert_eq!(tokens.owner("garbage").await, Err(Refused::Malformed(Malformed)));
    }

    /// No earlier time is remembered: when the clock is right again, so are the decisions.
    #[test]
    fn clock_that_jumps_a_day_and_back_decides_by_its_time_alone() {
        let tokens = issued(
            &json!({"issuer": "https://issuer.example", "audiences": ["istio-ca"], "jwks": r#"{"keys": []}"#}),
        );
        let mut claims = claims();
        claims["nbf"] = json!(seconds_from_now(-60));
        let (now, day) = (SystemTime::now(), Duration::from_secs(24 * 60 * 60));
        for (clock, expected) in [
            (now, Ok(cart())),
            (now + day, Err(Refused::Expired)),
            (now, Ok(cart())),
            (now - day, Err(Refused::Early)),
            (now, Ok(cart())),
        ] {
            assert_eq!(tokens.claimed(&claims, clock), expected);
        }
    }

    #[tokio::test]
    async fn keys_are_fetched_once_until_a_token_needs_others() {
        let (key, sign) = p256("a");
        let (published, keys) = watch::channel(json!({ "keys": [key] }).to_string());
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = asked.clone();
        let serve = move || {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let text = keys.borrow().clone();
            async move { text }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/keys", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/keys", get(serve))).await });
        let tokens =
            issued(&json!({"issuer": "https://issuer.example", "audiences": ["istio-ca"], "jwks_uri": uri}));

        let signed = token(&json!({"alg": "ES256", "kid": "a"}), &claims(), sign);
        assert_eq!(tokens.owner(&signed).await, Ok(cart()));
        assert_eq!(tokens.owner(&signed).await, Ok(cart()));
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);

        let (next, sign) = p256("b");
        published.send_replace(json!({ "keys": [next] }).to_string());
        let signed = token(&json!({"alg": "ES256", "kid": "b"}), &claims(), sign);
        assert_eq!(tokens.owner(&signed).await, Err(Refused::Signature), "it was asked a moment ago");
        tokens.fetched.lock().asked = Instant::now().checked_sub(PAUSE);
        assert_eq!(tokens.owner(&signed).await, Ok(cart()));
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn token_with_a_known_key_does_not_wait_for_a_server_that_hangs() {
        let (key, sign) = p256("a");
        let keys = json!({ "keys": [key] }).to_string();
        let hangs = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let hanging = hangs.clone();
        let serve = move || {
            let (keys, hangs) = (keys.clone(), hanging.load(std::sync::atomic::Ordering::Relaxed));
            async move { if hangs { std::future::pending().await } else { keys } }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/keys", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/keys", get(serve))).await });
        let tokens = Arc::new(issued(
            &json!({"issuer": "https://issuer.example", "audiences": ["istio-ca"], "jwks_uri": uri}),
        ));
        let good = token(&json!({"alg": "ES256", "kid": "a"}), &claims(), sign);
        assert_eq!(tokens.owner(&good).await, Ok(cart()));

        hangs.store(true, std::sync::atomic::Ordering::Relaxed);
        tokens.fetched.lock().asked = Instant::now().checked_sub(PAUSE);
        let (_, stranger) = p256("b");
        let unknown = token(&json!({"alg": "ES256", "kid": "b"}), &claims(), stranger);
        let waiting = tokio::spawn({
            let tokens = tokens.clone();
            async move { tokens.owner(&unknown).await }
        });
        while tokens.fetched.lock().answered.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(tokens.owner(&good).await, Ok(cart()));
        assert!(!waiting.is_finished(), "the server has not answered");
        waiting.abort();
    }

    #[test]
    fn rules_are_read_in_either_spelling() {
        let uri = |text: &str| match Rule::parse(text).unwrap().keys {
            Keys::At(KeySource::Uri(uri)) => uri.into_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(uri(r#"{"issuer": "i", "jwks_uri": "http://a"}"#), "http://a");
        assert_eq!(uri(r#"{"issuer": "i", "jwksUri": "http://a"}"#), "http://a");
        assert_eq!(Rule::parse(r#"{"issuer": "i"}"#).unwrap(), Rule::for_issuer("i", Vec::new()));
        assert_eq!(Rule::parse("{}"), Err(RuleError::NoIssuer));
        assert_eq!(Rule::parse(r#"{"issuer": "i", "jwks": "x"}"#), Err(RuleError::Keys));
        assert!(matches!(Rule::parse("nonsense"), Err(RuleError::Json(_))));
    }
}
