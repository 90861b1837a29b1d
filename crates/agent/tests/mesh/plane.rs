//! `canopusd` on a directory, with an authority that believes tokens of a key made for the test.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use canopus_identity::key::{KeyKind, SigningKey};
use canopus_testkit::{Process, free_port, http};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);
const ISSUER: &str = "https://tokens.test";

/// A running control plane.
pub(crate) struct Plane {
    directory: TempDir,
    key: SigningKey,
    process: Option<Process>,
    http: SocketAddr,
    /// Where proxies connect with TLS.
    pub(crate) xds: SocketAddr,
    /// Where the gateway that it configures listens.
    pub(crate) gateway: SocketAddr,
}

fn local() -> Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}

impl Plane {
    /// Starts it with a gateway that routes to this port.
    pub(crate) async fn start(port: u16) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-agent-plane-").tempdir()?;
        fs::create_dir(directory.path().join("objects"))?;
        let key = SigningKey::generate(KeyKind::P256)?;
        let mut plane =
            Self { directory, key, process: None, http: local()?, xds: local()?, gateway: local()? };
        plane.route_to(port)?;
        plane.restart().await?;
        Ok(plane)
    }

    /// Has the gateway route to this port.
    pub(crate) fn route_to(&self, port: u16) -> Result<()> {
        let documents = include_str!("gateway.yaml")
            .replace("GATEWAY_PORT", &self.gateway.port().to_string())
            .replace("UPSTREAM_PORT", &port.to_string());
        Ok(fs::write(self.directory.path().join("objects/gateway.yaml"), documents)?)
    }

    /// Kills it without a chance to say goodbye.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again on the same directory and ports.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.kill();
        let mut command = Command::new(canopusd()?);
        command.arg("discovery").arg("--config").arg(self.directory.path().join("objects"));
        command.args([
            "--registries=Mock",
            "--snapshot=",
            "--httpsAddr=",
            "--grpcAddr=",
            "--monitoringAddr=",
        ]);
        command.arg(format!("--httpAddr={}", self.http)).arg(format!("--secureGRPCAddr={}", self.xds));
        command.env("JWT_RULE", self.rule().to_string());
        let mut process = Process::spawn("canopusd", &mut command, self.directory.path())?;
        let ready = async || http::get(self.http, "/ready").await?.ok();
        process.eventually("canopusd's readiness", PATIENCE, ready).await?;
        self.process = Some(process);
        Ok(())
    }

    /// The root that its certificates have.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("objects-ca/current/root-cert.pem")
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        self.process.as_ref().map(Process::log).unwrap_or_default()
    }

    /// A token of a service account.
    pub(crate) fn token(&self, namespace: &str, account: &str) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let claims = json!({
            "iss": ISSUER,
            "aud": ["istio-ca"],
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
            "exp": now + 3600,
        });
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some("test".to_owned());
        let key = EncodingKey::from_ec_der(&self.key.to_pkcs8()?);
        Ok(jsonwebtoken::encode(&header, &claims, &key)?)
    }

    fn rule(&self) -> serde_json::Value {
        // An uncompressed point: a byte that says so, and two coordinates.
        let point = self.key.raw_public_key();
        let coordinate = |range| BASE64.encode(&point[range]);
        let key = json!({
            "kty": "EC", "crv": "P-256", "kid": "test", "alg": "ES256", "use": "sig",
            "x": coordinate(1..33), "y": coordinate(33..65),
        });
        json!({"issuer": ISSUER, "audiences": ["istio-ca"], "jwks": json!({"keys": [key]}).to_string()})
    }
}

/// The control plane that was built beside the agent.
fn canopusd() -> Result<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_canopus-agent")).with_file_name("canopusd");
    ensure!(beside.exists(), "{} is missing; run `cargo build -p canopus-daemon`", beside.display());
    beside.canonicalize().context("canopusd")
}
