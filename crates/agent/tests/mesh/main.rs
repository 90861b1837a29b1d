//! The agent with real parts: `canopusd` with its certificate authority, a stock Envoy, and a request through it.

mod place;
mod plane;
#[path = "../support/tokens.rs"]
mod tokens;

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{Echo, Echoed, eventually, http};
use place::Place;
use plane::Plane;

const PATIENCE: Duration = Duration::from_secs(30);

/// A control plane, an application and a gateway with its agent, which is ready.
struct Mesh {
    plane: Plane,
    echo: Echo,
    place: Place,
}

impl Mesh {
    async fn start() -> Result<Self> {
        let echo = Echo::start("first").await?;
        let plane = Plane::start(echo.address().port()).await?;
        let mut place = Place::new(&plane)?;
        place.start()?;
        place.wait_ready().await.with_context(|| format!("canopusd:\n{}", plane.log()))?;
        Ok(Self { plane, echo, place })
    }

    async fn answered_by(&self) -> Result<String> {
        let request = http::request(http::Method::GET, self.plane.gateway, "/").host("shop.example.com");
        let answer = request.send().await?.ok()?;
        Ok(Echoed::from_body(&answer)?.upstream)
    }

    async fn wait_answer(&self, expected: &str) -> Result<()> {
        eventually("an answer through the gateway", PATIENCE, async || {
            let upstream = self.answered_by().await?;
            ensure!(upstream == expected, "answered by {upstream}");
            Ok(())
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_flows_through_an_envoy_that_the_agent_made_ready() -> Result<()> {
    let mesh = Mesh::start().await?;
    mesh.wait_answer("first").await?;
    // The certificate came from the control plane's authority, and Envoy has it.
    let certificates = mesh.place.admin("/certs").await?;
    assert!(certificates.contains("spiffe://cluster.local/ns/demo/sa/gateway"), "{certificates}");
    let page = mesh.place.status("/metrics").await?.ok()?;
    for metric in
        ["istio_agent_process_resident_memory_bytes", "istio_agent_xds_proxy_responses", "envoy_server_live"]
    {
        assert!(page.contains(metric), "{metric} is missing");
    }
    // A day, as the authority gives it.
    let left = page
        .lines()
        .find_map(|line| line.strip_prefix(r#"istio_agent_cert_expiry_seconds{resource_name="default"} "#));
    let left: f64 = left.context("no expiry")?.parse()?;
    assert!((3600.0..90_000.0).contains(&left), "{left}");
    assert!(mesh.place.path("etc/istio/proxy/grpc-bootstrap.json").exists());
    let ready = http::get(mesh.place.readiness_address(), "/healthz/ready").await?;
    assert_eq!(ready.status, 200, "readiness through Envoy's own listener");
    assert_eq!(mesh.echo.address().ip().to_string(), "127.0.0.1");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_resume_when_the_control_plane_comes_back() -> Result<()> {
    let mut mesh = Mesh::start().await?;
    mesh.wait_answer("first").await?;
    mesh.plane.kill();
    assert_eq!(mesh.answered_by().await?, "first", "traffic flows without a control plane");
    let second = Echo::start("second").await?;
    mesh.plane.route_to(second.address().port())?;
    mesh.plane.restart().await?;
    mesh.wait_answer("second").await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_envoy_is_left_when_the_agent_is_killed() -> Result<()> {
    let mut mesh = Mesh::start().await?;
    let envoy = mesh.place.envoy_id()?;
    mesh.place.signal("KILL")?;
    eventually("Envoy's end", PATIENCE, async || {
        ensure!(!place::is_alive(envoy), "process {envoy} is still there");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_drains_and_ends_when_it_is_terminated() -> Result<()> {
    let mut mesh = Mesh::start().await?;
    let envoy = mesh.place.envoy_id()?;
    mesh.place.signal("TERM")?;
    let status = mesh.place.wait_end().await?;
    assert_eq!(status, Some(0), "{}", mesh.place.log());
    assert!(!place::is_alive(envoy));
    assert!(mesh.place.log().contains("draining for 1s"), "{}", mesh.place.log());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reasons_are_told_when_the_control_plane_is_away_at_the_start() -> Result<()> {
    let echo = Echo::start("first").await?;
    let mut plane = Plane::start(echo.address().port()).await?;
    plane.kill();
    let mut place = Place::new(&plane)?;
    place.start()?;
    eventually("the reason", PATIENCE, async || {
        let answer = place.status("/healthz/ready").await?;
        ensure!(answer.status == 503 && answer.body.contains("config not received"), "{}", answer.body);
        let log = place.log();
        ensure!(log.contains("is the control plane running"), "{log}");
        Ok(())
    })
    .await?;
    plane.restart().await?;
    place.wait_ready().await
}

const TOKEN: &str = "var/run/secrets/tokens/istio-token";
const ROOT: &str = "var/run/secrets/istio/root-cert.pem";

/// Waits until the agent's log has these words.
async fn wait_log(place: &Place, words: &[&str]) -> Result<()> {
    eventually("words in the log", PATIENCE, async || {
        let log = place.log();
        for word in words {
            ensure!(log.contains(word), "{word:?} is missing:\n{log}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_token_is_named_and_a_new_one_is_taken() -> Result<()> {
    let echo = Echo::start("first").await?;
    let plane = Plane::start(echo.address().port()).await?;
    let mut place = Place::new(&plane)?;
    fs::write(place.path(TOKEN), plane.expired_token("demo", "gateway")?)?;
    place.start()?;
    wait_log(&place, &["Unauthenticated", "the token is missing, expired or of an audience"]).await?;
    assert_eq!(place.status("/healthz/ready").await?.status, 503);
    fs::write(place.path(TOKEN), plane.token("demo", "gateway")?)?;
    place.wait_ready().await
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_token_is_named_and_a_readable_one_is_taken() -> Result<()> {
    let echo = Echo::start("first").await?;
    let plane = Plane::start(echo.address().port()).await?;
    let mut place = Place::new(&plane)?;
    fs::remove_file(place.path(TOKEN))?;
    // What a mount leaves whose Secret has no such key.
    fs::create_dir(place.path(TOKEN))?;
    place.start()?;
    wait_log(&place, &[TOKEN, "mount the file, or see to it that this user may read it"]).await?;
    assert_eq!(place.status("/healthz/ready").await?.status, 503);
    fs::remove_dir(place.path(TOKEN))?;
    fs::write(place.path(TOKEN), plane.token("demo", "gateway")?)?;
    place.wait_ready().await
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_root_is_named_and_the_right_one_is_taken() -> Result<()> {
    let echo = Echo::start("first").await?;
    let plane = Plane::start(echo.address().port()).await?;
    let mut place = Place::new(&plane)?;
    fs::write(place.path(ROOT), canopus_testkit::Authority::new()?.root())?;
    place.start()?;
    wait_log(&place, &["TLS handshake failed", "the root certificate must have signed the server's"]).await?;
    fs::copy(plane.root(), place.path(ROOT))?;
    place.wait_ready().await
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_joins_with_a_token_and_stays_with_its_certificate() -> Result<()> {
    let echo = Echo::start("first").await?;
    let plane = Plane::start(echo.address().port()).await?;
    let mut place = Place::new(&plane)?;
    fs::remove_file(place.path(TOKEN))?;
    fs::create_dir(place.path("certs"))?;
    fs::copy(plane.root(), place.path("certs/root-cert.pem"))?;
    fs::write(place.path("join-token"), plane.token("demo", "gateway")?)?;
    place.set("CANOPUS_JOIN_TOKEN_FILE", "./join-token");
    place.set("PROV_CERT", "./certs");
    place.set("OUTPUT_CERTS", "./certs");
    place.start()?;
    place.wait_ready().await?;
    assert!(place.path("certs/cert-chain.pem").exists());
    // From now on the certificate says who the machine is.
    place.signal("KILL")?;
    place.wait_end().await?;
    fs::remove_file(place.path("join-token"))?;
    fs::remove_dir_all(place.path("var/lib/istio"))?;
    place.start()?;
    place.wait_ready().await
}

/// As `workload entry configure` writes it.
const CLUSTER_ENV: &str = r#"CA_ADDR='localhost:PORT'
CANONICAL_REVISION='latest'
CANONICAL_SERVICE='gateway'
ISTIO_INBOUND_PORTS='*'
ISTIO_LOCAL_EXCLUDE_PORTS='22,15090,15021,15020'
ISTIO_METAJSON_LABELS='{"istio":"ingressgateway","service.istio.io/canonical-name":"gateway"}'
ISTIO_META_CLUSTER_ID='Kubernetes'
ISTIO_META_WORKLOAD_NAME='gateway'
ISTIO_NAMESPACE='demo'
ISTIO_SERVICE='gateway.demo'
ISTIO_SERVICE_CIDR='*'
ISTIO_SVC_IP='127.0.0.1'
POD_NAMESPACE='demo'
SERVICE_ACCOUNT='gateway'
TRUST_DOMAIN='cluster.local'
"#;

#[tokio::test(flavor = "multi_thread")]
async fn machine_starts_from_the_files_that_configure_writes() -> Result<()> {
    let echo = Echo::start("first").await?;
    let plane = Plane::start(echo.address().port()).await?;
    let mut place = Place::new(&plane)?;
    let port = plane.xds.port();
    fs::create_dir(place.path("certs"))?;
    fs::copy(plane.root(), place.path("certs/root-cert.pem"))?;
    fs::create_dir_all(place.path("etc/istio/config"))?;
    let mesh = format!("defaultConfig:\n  discoveryAddress: localhost:{port}\n");
    fs::write(place.path("etc/istio/config/mesh"), mesh)?;
    fs::write(place.path("cluster.env"), CLUSTER_ENV.replace("PORT", &port.to_string()))?;
    let sidecar =
        "PROV_CERT=./certs\nOUTPUT_CERTS=./certs\nISTIO_AGENT_FLAGS=\"router --proxyLogLevel=info\"\n";
    fs::write(place.path("sidecar.env"), sidecar)?;
    for name in [
        "POD_NAME",
        "POD_NAMESPACE",
        "SERVICE_ACCOUNT",
        "INSTANCE_IP",
        "ISTIO_META_CLUSTER_ID",
        "ISTIO_METAJSON_LABELS",
    ] {
        place.unset(name);
    }
    place.forget_address()?;
    place.start_by_script()?;
    place.wait_ready().await?;
    let certificates = place.admin("/certs").await?;
    assert!(certificates.contains("spiffe://cluster.local/ns/demo/sa/gateway"), "{certificates}");
    assert!(place.path("certs/cert-chain.pem").exists());
    let mesh = Mesh { plane, echo, place };
    mesh.wait_answer("first").await
}
