use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use canopus_api::decode_documents;
use canopus_base::tree::Limits;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

const KEYS: &str = r#"{"keys":[{"kid":"a"},{"kid":"b"}]}"#;
const TIMEOUT: Duration = Duration::from_secs(5);

fn flags(variables: &[(&str, &str)]) -> Flags {
    let local = ("CANOPUS_ALLOW_LOCAL_JWKS", "true");
    let variables: BTreeMap<String, String> = [local]
        .iter()
        .chain(variables)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Flags::read(&variables)
}

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn fetched(uri: String) -> Result<String, FetchError> {
    fetch::keys(&Client::new(&flags(&[])), &KeySource::Uri(uri.into()), TIMEOUT).await
}

#[tokio::test]
async fn keys_come_from_the_address_or_from_where_the_issuer_says() {
    let address = serve(Router::new().route("/keys", get(|| async { KEYS }))).await;
    assert_eq!(fetched(format!("http://{address}/keys")).await.unwrap(), KEYS);

    let discovery = format!(r#"{{"jwks_uri":"http://{address}/keys"}}"#);
    let issuer = serve(
        Router::new().route("/tenant/.well-known/openid-configuration", get(|| async move { discovery })),
    )
    .await;
    let source = KeySource::Issuer(format!("http://{issuer}/tenant/").into());
    assert_eq!(fetch::keys(&Client::new(&flags(&[])), &source, TIMEOUT).await.unwrap(), KEYS);
}

#[tokio::test]
async fn own_addresses_are_not_asked_unless_that_is_allowed() {
    let address = serve(Router::new().route("/keys", get(|| async { KEYS }))).await;
    let client = Client::new(&Flags::defaults());
    for host in ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"] {
        let source = KeySource::Uri(format!("http://{host}:{}/keys", address.port()).into());
        let error = fetch::keys(&client, &source, TIMEOUT).await.unwrap_err();
        assert!(matches!(error, FetchError::Blocked(_)), "{host}: {error}");
    }
}

#[tokio::test]
async fn redirects_are_followed_but_not_for_ever() {
    let router = Router::new()
        .route("/keys", get(|| async { KEYS }))
        .route("/moved", get(|| async { Redirect::temporary("/keys") }))
        .route("/round", get(|| async { Redirect::temporary("/round") }));
    let address = serve(router).await;
    assert_eq!(fetched(format!("http://{address}/moved")).await.unwrap(), KEYS);
    let error = fetched(format!("http://{address}/round")).await.unwrap_err();
    assert!(matches!(error, FetchError::Redirects), "{error}");
}

#[tokio::test]
async fn what_is_no_set_of_keys_is_refused() {
    let long = format!(r#"{{"keys":["{}"]}}"#, "x".repeat(1 << 20));
    let router = Router::new()
        .route("/text", get(|| async { "secret" }))
        .route("/other", get(|| async { r#"{"keys":{}}"# }))
        .route("/long", get(|| async move { long }));
    let address = serve(router).await;
    for (path, expected) in [
        ("text", "the answer is not JSON"),
        ("other", "the answer has no \"keys\""),
        ("long", "the answer is longer than 1048576 bytes"),
        ("none", "the server answers 404 Not Found"),
    ] {
        assert_eq!(fetched(format!("http://{address}/{path}")).await.unwrap_err().to_string(), expected);
    }
    for uri in ["ftp://127.0.0.1/keys", "keys", "http:///keys"] {
        assert!(matches!(fetched(uri.into()).await, Err(FetchError::Uri(_))), "{uri}");
    }
}

#[tokio::test]
async fn blocked_addresses_are_not_connected_to_whatever_they_are_called() {
    let address = serve(Router::new().route("/keys", get(|| async { KEYS }))).await;
    let client = Client::new(&flags(&[("BLOCKED_CIDRS_IN_JWKS_URIS", "127.0.0.0/8,::1/128")]));
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
        let source = KeySource::Uri(format!("http://{host}:{}/keys", address.port()).into());
        let error = fetch::keys(&client, &source, TIMEOUT).await.unwrap_err();
        assert!(matches!(error, FetchError::Blocked(_)), "{host}: {error}");
    }
    for never in
        ["http://169.254.169.254/", "http://100.100.100.200/", "http://[fe80::1]/", "http://[fd00:ec2::254]/"]
    {
        let error = fetched(never.into()).await.unwrap_err();
        assert!(matches!(error, FetchError::Blocked(_)), "{never}: {error}");
    }
}

/// Answers one connection over TLS with the keys; the certificate of the server's authority.
async fn serve_tls() -> (SocketAddr, String) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 1024]).await;
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{KEYS}", KEYS.len());
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    (address, certified.cert.pem())
}

#[tokio::test]
async fn servers_are_checked_unless_users_ask_not_to() {
    let (address, root) = serve_tls().await;
    let source = KeySource::Uri(format!("https://localhost:{}/keys", address.port()).into());
    let trusting = Client::trusting(&flags(&[]), root.as_bytes());
    assert_eq!(fetch::keys(&trusting, &source, TIMEOUT).await.unwrap(), KEYS);
    let careless = Client::new(&flags(&[("JWKS_RESOLVER_INSECURE_SKIP_VERIFY", "true")]));
    assert_eq!(fetch::keys(&careless, &source, TIMEOUT).await.unwrap(), KEYS);
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let strict = Client::trusting(&flags(&[]), other.cert.pem().as_bytes());
    assert!(matches!(fetch::keys(&strict, &source, TIMEOUT).await, Err(FetchError::Connection(_))));
}

#[test]
fn the_order_of_keys_does_not_matter() {
    assert!(fetch::are_the_same(KEYS, r#"{"keys": [{"kid": "b"}, {"kid": "a"}]}"#));
    assert!(!fetch::are_the_same(KEYS, r#"{"keys": [{"kid": "b"}]}"#));
}

#[test]
fn pauses_double_and_are_longer_while_there_are_keys() {
    let seconds = |failures, has_keys| pause(failures, has_keys).as_secs();
    assert_eq!([seconds(0, false), seconds(1, false), seconds(5, false)], [1, 2, 32]);
    assert_eq!([seconds(0, true), seconds(1, true), seconds(9, true)], [60, 120, 3600]);
}

fn request_authentication(uri: &str) -> Batch {
    let text = format!(
        "
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {{name: tokens, namespace: shop}}
spec:
  jwtRules:
  - issuer: someone
    jwksUri: {uri}
"
    );
    let mut batch = Batch::new();
    for outcome in decode_documents(&text, &Limits::default(), canopus_api::Options::watch()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(Origin::new(Arc::from("Kubernetes"), object.key()), object);
    }
    batch
}

#[tokio::test]
async fn keys_are_known_while_somebody_wants_them() {
    let address = serve(Router::new().route("/keys", get(|| async { KEYS }))).await;
    let engine = Engine::new();
    let mut batch = request_authentication(&format!("http://{address}/keys"));
    batch.set::<Settings>((), MeshSettings::default());
    engine.apply(batch);
    let (announce, revisions) = watch::channel(1);
    let store = {
        let (engine, announce) = (engine.clone(), announce.clone());
        move |batch| {
            announce.send_replace(engine.apply(batch).revision.number());
        }
    };
    let metrics = Registry::new();
    let mut keeper = KeyKeeper::new(engine.clone(), revisions, &flags(&[]), &metrics, store);
    let running = tokio::spawn(async move { keeper.run().await });
    let mut seen = announce.subscribe();
    let source = KeySource::Uri(format!("http://{address}/keys").into());
    let known = || engine.read::<Jwks>(&source).map(|keys| keys.to_string());
    while known().is_none() {
        seen.changed().await.unwrap();
    }
    assert_eq!(known().as_deref(), Some(KEYS));
    assert!(
        metrics.encode().contains("pilot_jwks_resolver_network_fetch_success_total 1"),
        "{}",
        metrics.encode()
    );

    announce.send_replace(engine.apply(request_authentication("http://127.0.0.1:1/keys")).revision.number());
    while known().is_some() {
        seen.changed().await.unwrap();
    }
    running.abort();
}
