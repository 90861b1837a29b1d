use proptest::prelude::*;

use super::*;
use crate::fetch::{AddressGuard, Fetch, Fetcher, body};
use crate::upstream::Roots;

/// An OAuth server that issues a token for a good one, to a client that it knows.
struct Server;

impl TokenBackend for Server {
    fn exchange(&self, request: ExchangeRequest) -> Exchange<'_> {
        Box::pin(async move {
            if request.subject_token.as_str() != "a good token" {
                return Err(ExchangeError::new("invalid_grant", "the token is not good"));
            }
            let audience = request.parameters.get("audience").cloned().unwrap_or_default();
            Ok(IssuedToken { access_token: format!("for {audience}"), ..Default::default() })
        })
    }
}

async fn start(backend: Arc<dyn TokenBackend>) -> u16 {
    let listener = bind(0).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(serve(listener, backend));
    port
}

async fn post(port: u16, form: &str) -> (u16, serde_json::Value) {
    let fetcher = Fetcher::new(AddressGuard::open(), Roots::System);
    let mut fetch = Fetch::get(&format!("http://127.0.0.1:{port}/token")).unwrap();
    fetch.method = Method::POST;
    fetch.body = Bytes::from(form.to_owned());
    let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
    fetch.headers.insert(header::CONTENT_TYPE, kind);
    let answer = fetcher.send(&fetch).await.unwrap();
    let status = answer.status().as_u16();
    assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-store");
    (status, serde_json::from_slice(&body(answer, 1 << 20).await.unwrap()).unwrap())
}

fn form(token: &str) -> String {
    let kind = "urn:ietf:params:oauth:token-type:jwt";
    format!("grant_type={GRANT}&subject_token={token}&subject_token_type={kind}")
}

#[tokio::test]
async fn token_is_exchanged_at_the_configured_server() {
    let server = start(Arc::new(Server)).await;
    let settings = OauthSettings {
        url: format!("http://127.0.0.1:{server}/token"),
        client: "agent".into(),
        secret: None,
        audience: "shop".into(),
    };
    let backend = OauthBackend::new(settings, Fetcher::new(AddressGuard::open(), Roots::System)).unwrap();
    let port = start(Arc::new(backend)).await;
    let (status, token) = post(port, &form("a+good%20token")).await;
    assert_eq!((status, &token["access_token"]), (200, &"for shop".into()), "{token}");
    assert_eq!((&token["token_type"], &token["issued_token_type"]), (&"Bearer".into(), &ACCESS_TOKEN.into()));
    let (status, error) = post(port, &form("another")).await;
    assert_eq!((status, &error["error"]), (400, &"invalid_grant".into()), "{error}");
}

#[tokio::test]
async fn failure_of_the_server_is_told_apart_from_a_bad_token() {
    let listener = bind(0).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("http://127.0.0.1:{port}/token");
    let settings = OauthSettings { url, client: String::new(), secret: None, audience: String::new() };
    let backend = OauthBackend::new(settings, Fetcher::new(AddressGuard::open(), Roots::System)).unwrap();
    let port = start(Arc::new(backend)).await;
    let (status, error) = post(port, &form("x")).await;
    assert_eq!((status, &error["error"]), (502, &"temporarily_unavailable".into()), "{error}");
}

#[test]
fn tokens_are_not_sent_in_the_clear() {
    let settings = OauthSettings {
        url: "http://tokens.example/".into(),
        client: String::new(),
        secret: None,
        audience: String::new(),
    };
    let error = OauthBackend::new(settings, Fetcher::new(AddressGuard::open(), Roots::System)).err().unwrap();
    assert!(error.to_string().contains("https://"), "{error}");
}

#[test]
fn form_is_read_as_the_rfc_says() {
    let missing = |form: &str| parse_form(form).unwrap_err().error;
    assert_eq!(missing("grant_type=password"), "unsupported_grant_type");
    assert_eq!(missing(&format!("grant_type={GRANT}")), "invalid_request");
    assert_eq!(missing(&format!("grant_type={GRANT}&subject_token=%zz")), "invalid_request");
    let wanted = parse_form(&format!("{}&scope=a+b&audience=x%26y", form("t"))).unwrap();
    assert_eq!(wanted.parameters["scope"], "a b");
    assert_eq!(wanted.parameters["audience"], "x&y");
    assert!(!format!("{wanted:?}").contains("\"t\""));
}

proptest! {
    #[test]
    fn any_form_is_survived(form in ".{0,200}") {
        let _ = parse_form(&form);
    }
}
