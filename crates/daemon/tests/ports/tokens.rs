//! Tokens of service accounts, issued and reviewed by a real API server, on the xDS ports and the debug endpoints.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use canopus_daemon::authentication::{Authenticators, TokenClusters};
use canopus_daemon::debug::{self, Debug};
use canopus_runtime::flags::Flags;
use canopus_sources::kubernetes::{Access, Cluster, RateLimit, RemoteRegistry};
use canopus_testkit::{KubeApi, eventually};
use canopus_xds::client::Update;
use canopus_xds::types;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower_service::Service as _;

use crate::{NODE, SHOP, Server, ask, ask_with, node};

const ACCOUNTS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: istio-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: cart, namespace: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: operator, namespace: istio-system}
";

/// A control plane that knows the service accounts of a cluster.
struct Guarded {
    kube: KubeApi,
    server: Server,
    authenticators: Arc<Authenticators>,
}

impl Guarded {
    async fn start<const N: usize>(variables: [(&str, &str); N]) -> Result<Self> {
        let kube = KubeApi::start().await?;
        kube.apply(ACCOUNTS).await?;
        let access = Access::Kubeconfig(kube.kubeconfig().to_owned());
        let cluster = Cluster::connect(&access, RateLimit::default()).await?;
        let tokens = TokenClusters {
            cluster,
            name: "Kubernetes".into(),
            aliases: BTreeMap::from([("alias".to_owned(), "Kubernetes".into())]),
            remote: RemoteRegistry::default(),
        };
        let flags = Arc::new(Flags::read(&variables));
        let mut authenticators = None;
        let server = Server::start_as(&flags, |mesh| {
            let engine = mesh.dispatcher().engine().clone();
            let made = Authenticators::new(engine, &flags, Some(tokens)).map(Arc::new);
            let made = made.expect("the flags are in order");
            authenticators = Some(Arc::clone(&made));
            mesh.recognising(made)
        });
        Ok(Self { kube, server: server.await?, authenticators: authenticators.context("not made")? })
    }

    /// A token of a service account, such as `shop/cart`.
    async fn token(&self, account: &str, audience: &str) -> Result<String> {
        let (namespace, name) = account.split_once('/').context("an account has a namespace")?;
        let (namespace, audience) = (format!("--namespace={namespace}"), format!("--audience={audience}"));
        let token = self.kube.kubectl(&["create", "token", name, &namespace, &audience]).await?;
        Ok(token.trim().to_owned())
    }

    /// What a proxy gets that has no certificate but sends these headers over TLS.
    async fn ask(&self, headers: &[(&'static str, &str)]) -> Result<Update, Status> {
        let channel = self.server.channel(&[]).await.map_err(|error| Status::internal(error.to_string()))?;
        ask_with_headers(channel, headers).await
    }

    /// The status of a question from another machine.
    async fn debug(&self, path: &str, authorization: &str) -> Result<StatusCode> {
        let debug = Arc::new(Debug::new(Arc::clone(&self.server.dispatcher)));
        let mut routes = debug::routes(debug, Arc::clone(&self.authenticators) as _);
        let elsewhere = SocketAddr::from(([10, 0, 0, 9], 1));
        let request = Request::get(format!("/debug/{path}"))
            .header("authorization", authorization)
            .extension(ConnectInfo(elsewhere));
        Ok(routes.call(request.body(Body::empty())?).await?.status())
    }
}

async fn ask_with_headers(channel: Channel, headers: &[(&'static str, &str)]) -> Result<Update, Status> {
    let mut metadata = MetadataMap::new();
    for (name, value) in headers {
        let value = MetadataValue::try_from(*value).map_err(|error| Status::internal(error.to_string()))?;
        metadata.insert(*name, value);
    }
    ask_with(channel, node(NODE), metadata).await
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_the_proxys_own_account_is_as_good_as_a_certificate() -> Result<()> {
    let guarded = Guarded::start([]).await?;
    let token = bearer(&guarded.token("shop/cart", "istio-ca").await?);
    let update = guarded.ask(&[("authorization", &token)]).await?;
    assert_eq!(update.type_url, types::CLUSTER);
    let connection = guarded.server.dispatcher.connections().all().pop().context("nobody is connected")?;
    let identity = connection.proxy.identity.as_ref().map(ToString::to_string);
    assert_eq!(identity.as_deref(), Some(SHOP));

    for cluster in ["Kubernetes", "alias", ""] {
        guarded.ask(&[("authorization", &token), ("clusterid", cluster)]).await?;
    }
    let elsewhere = guarded.ask(&[("authorization", &token), ("clusterid", "elsewhere")]).await.unwrap_err();
    assert_eq!(elsewhere.code(), Code::Unauthenticated);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_do_not_count_are_refused_without_a_reason() -> Result<()> {
    let guarded = Guarded::start([]).await?;
    let good = guarded.token("shop/cart", "istio-ca").await?;
    let foreign = bearer(&guarded.token("shop/cart", "vault").await?);
    let (garbage, broken, lower) = (bearer("garbage"), bearer(&format!("{good}x")), format!("bearer {good}"));
    let administrator = bearer(guarded.kube.token());
    for header in [&foreign, &garbage, &broken, &lower, &administrator] {
        let status = guarded.ask(&[("authorization", header)]).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "authentication failure"));
    }
    let huge = bearer(&"x".repeat(1 << 20));
    assert!(guarded.ask(&[("authorization", &huge)]).await.is_err());
    guarded.server.serves_others().await?;

    let other = bearer(&guarded.token("istio-system/operator", "istio-ca").await?);
    let status = guarded.ask(&[("authorization", &other)]).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert!(guarded.server.dispatcher.connections().all().len() <= 1, "none of them became a connection");

    guarded.kube.kubectl(&["delete", "serviceaccount", "cart", "--namespace=shop"]).await?;
    let status = guarded.ask(&[("authorization", &bearer(&good))]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "its account is gone");
    Ok(())
}

/// A token with this end instead of its own, signed as the API server would.
fn ending_at(token: &str, end: u64, key_pem: &str) -> Result<String> {
    let (header, rest) = token.split_once('.').context("a signed token")?;
    let (claims, _) = rest.split_once('.').context("a signed token")?;
    let mut claims: serde_json::Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims)?)?;
    claims["exp"] = end.into();
    let signed = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()));
    let key = PrivatePkcs8KeyDer::from_pem_slice(key_pem.as_bytes())?;
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_pkcs8_der())?;
    let signature = key.sign(&SystemRandom::new(), signed.as_bytes())?;
    Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_token_is_refused() -> Result<()> {
    let guarded = Guarded::start([]).await?;
    let (token, key) = (guarded.token("shop/cart", "istio-ca").await?, guarded.kube.token_key_pem()?);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let alive = bearer(&ending_at(&token, now + 300, &key)?);
    guarded.ask(&[("authorization", &alive)]).await?;
    let expired = bearer(&ending_at(&token, now - 1, &key)?);
    let status = guarded.ask(&[("authorization", &expired)]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_port_asks_for_a_token_if_told_so() -> Result<()> {
    let guarded = Guarded::start([("XDS_AUTH_PLAINTEXT", "true")]).await?;
    let status = ask(guarded.server.plain_channel().await?, node(NODE)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    let token = bearer(&guarded.token("shop/cart", "istio-ca").await?);
    ask_with_headers(guarded.server.plain_channel().await?, &[("authorization", &token)]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_proves_anything_if_nothing_is_checked() -> Result<()> {
    let flags = Arc::new(Flags::read(&[("XDS_AUTH", "false")]));
    let server = Server::start_as(&flags, |mesh| mesh).await?;
    ask(server.channel(&[]).await?, node(NODE)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn debug_endpoints_answer_other_machines_by_the_namespace_of_their_token() -> Result<()> {
    let guarded = Guarded::start([]).await?;
    let operator = bearer(&guarded.token("istio-system/operator", "istio-ca").await?);
    let cart = bearer(&guarded.token("shop/cart", "istio-ca").await?);
    let foreign = bearer(&guarded.token("istio-system/operator", "vault").await?);
    let huge = bearer(&"x".repeat(1 << 20));
    for (path, token, expected) in [
        ("syncz", &operator, StatusCode::OK),
        ("syncz", &cart, StatusCode::FORBIDDEN),
        ("edsz?proxyID=nobody.shop", &cart, StatusCode::NOT_FOUND),
        ("syncz", &foreign, StatusCode::UNAUTHORIZED),
        ("syncz", &bearer("garbage"), StatusCode::UNAUTHORIZED),
        ("syncz", &huge, StatusCode::UNAUTHORIZED),
        ("nothing", &operator, StatusCode::NOT_FOUND),
    ] {
        assert_eq!(guarded.debug(path, token).await?, expected, "{path}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_of_the_api_server_outlives_a_short_outage() -> Result<()> {
    let mut guarded = Guarded::start([]).await?;
    let known = bearer(&guarded.token("shop/cart", "istio-ca").await?);
    let new = bearer(&guarded.token("istio-system/operator", "istio-ca").await?);
    guarded.ask(&[("authorization", &known)]).await?;
    guarded.kube.stop();
    guarded.ask(&[("authorization", &known)]).await?;
    let status = guarded.ask(&[("authorization", &new)]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "nobody vouches for it");
    guarded.kube.resume().await?;
    eventually("the token counts again", Duration::from_secs(30), async || {
        anyhow::ensure!(guarded.debug("syncz", &new).await? == StatusCode::OK);
        Ok(())
    })
    .await
}
