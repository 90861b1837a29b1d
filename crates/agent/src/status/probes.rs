//! Probes and hooks of the application that the injector has turned over to the agent (`ISTIO_KUBE_APP_PROBERS`).
//!
//! The kubelet asks the agent, the agent asks the application from inside the pod, where traffic is not captured. Rules are
//! the kubelet's: redirects are followed at most ten times and never to another host, certificates are not verified.

mod grpc;
mod web;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use canopus_proto::istio::networking::v1alpha3::HttpHeader;
use canopus_proto::istio::networking::v1alpha3::readiness_probe::HealthCheckMethod;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tracing::warn;

use super::{Answer, text};

/// Parity: the address probes come from, which capture rules and policies let through.
const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);
const NAMES: [&str; 5] = ["livez", "readyz", "startupz", "prestopz", "poststartz"];

/// A probe as the pod's spec has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Probe {
    http_get: Option<HttpGet>,
    tcp_socket: Option<TcpAction>,
    grpc: Option<GrpcAction>,
    timeout_seconds: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HttpGet {
    path: String,
    port: Port,
    host: String,
    scheme: String,
    http_headers: Vec<NamedText>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NamedText {
    name: String,
    value: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TcpAction {
    port: Port,
    host: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct GrpcAction {
    port: u16,
    service: Option<String>,
}

/// A port; names are not known here.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "serde_json::Value")]
struct Port(u16);

impl TryFrom<serde_json::Value> for Port {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
        number.map(Self).ok_or_else(|| format!("{value} is not a port number"))
    }
}

/// How probes are made.
#[derive(Clone, Debug)]
pub struct ProbeSettings {
    /// The address of the pod, or localhost with `REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION`.
    pub destination: IpAddr,
    /// `ISTIO_ENABLE_HTTP2_PROBING`.
    pub http2: bool,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        Self { destination: Ipv4Addr::LOCALHOST.into(), http2: true }
    }
}

/// The probes there are, by path.
#[derive(Clone, Debug, Default)]
pub struct AppProbes {
    probes: BTreeMap<String, Probe>,
    settings: ProbeSettings,
}

impl AppProbes {
    /// Reads the variable; empty means no probes.
    pub fn parse(json: &str, settings: ProbeSettings) -> Result<Self, String> {
        let invalid = |reason: String| format!("ISTIO_KUBE_APP_PROBERS: {reason}");
        if json.is_empty() {
            return Ok(Self { settings, ..Self::default() });
        }
        let probes: BTreeMap<String, Probe> =
            serde_json::from_str(json).map_err(|error| invalid(error.to_string()))?;
        for (path, probe) in &probes {
            if !is_probe_path(path) {
                return Err(invalid(format!("{path:?} is not /app-health/CONTAINER/PROBE")));
            }
            let kinds = [probe.http_get.is_some(), probe.tcp_socket.is_some(), probe.grpc.is_some()];
            if kinds.iter().filter(|given| **given).count() != 1 {
                return Err(invalid(format!("{path}: expected one of httpGet, tcpSocket and grpc")));
            }
        }
        Ok(Self { probes, settings })
    }

    pub(super) async fn answer(&self, path: &str, headers: &HeaderMap) -> Answer {
        let Some(probe) = self.probes.get(path) else {
            warn!("a probe that nobody declared: {path:?}");
            return text(StatusCode::BAD_REQUEST, &format!("app prober config does not exists for {path}\n"));
        };
        let limit = Duration::from_secs(probe.timeout_seconds.max(1));
        match perform(probe, headers, &self.settings, limit).await {
            Ok(status) => text(status, ""),
            Err(reason) => {
                warn!("probe {path}: {reason}");
                text(StatusCode::INTERNAL_SERVER_ERROR, "")
            }
        }
    }
}

/// A probe of a proxy configuration, for workloads that no kubelet probes.
#[derive(Clone, Debug)]
pub struct WorkloadProbe(Probe);

impl WorkloadProbe {
    /// The probe of a method other than a command.
    pub(crate) fn new(method: &HealthCheckMethod) -> Result<Self, String> {
        let port = |port: u32| {
            let number = u16::try_from(port).ok().filter(|number| *number > 0);
            number.map(Port).ok_or_else(|| format!("port: {port} is not a port; use 1 to 65535"))
        };
        let mut probe = Probe::default();
        match method {
            HealthCheckMethod::HttpGet(get) => {
                let header = |header: &HttpHeader| NamedText {
                    name: header.name.clone(),
                    value: header.value.clone(),
                };
                probe.http_get = Some(HttpGet {
                    path: get.path.clone(),
                    port: port(get.port)?,
                    host: get.host.clone(),
                    scheme: get.scheme.clone(),
                    http_headers: get.http_headers.iter().map(header).collect(),
                });
            }
            HealthCheckMethod::TcpSocket(tcp) => {
                probe.tcp_socket = Some(TcpAction { port: port(tcp.port)?, host: tcp.host.clone() });
            }
            HealthCheckMethod::Grpc(grpc) => {
                let service = Some(grpc.service.clone());
                probe.grpc = Some(GrpcAction { port: port(grpc.port)?.0, service });
            }
            HealthCheckMethod::Exec(_) => return Err("a command is not a probe".to_owned()),
        }
        Ok(Self(probe))
    }

    /// Probes once; the reason if the workload is not well.
    pub(crate) async fn check(&self, settings: &ProbeSettings, limit: Duration) -> Result<(), String> {
        let headers =
            HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static("istio-probe/1.0"))]);
        let status = perform(&self.0, &headers, settings, limit).await?;
        if status.is_success() || status.is_redirection() {
            return Ok(());
        }
        Err(format!("status code was not from [200,400), bad code {}", status.as_u16()))
    }
}

async fn perform(
    probe: &Probe,
    headers: &HeaderMap,
    settings: &ProbeSettings,
    limit: Duration,
) -> Result<StatusCode, String> {
    match probe {
        Probe { http_get: Some(get), .. } => web::probe(get, headers, settings, limit).await,
        Probe { tcp_socket: Some(action), .. } => {
            let host = destination(&action.host, settings.destination);
            connect(SocketAddr::new(host, action.port.0), limit).await.map(|_| StatusCode::OK)
        }
        Probe { grpc: Some(action), .. } => grpc::probe(action, settings, limit).await,
        _ => Err("nothing to probe".to_owned()),
    }
}

/// Whether a path is of the form that the injector writes.
fn is_probe_path(path: &str) -> bool {
    let mut parts = path.strip_prefix('/').unwrap_or_default().split('/');
    let kind = parts.next().is_some_and(|kind| matches!(kind, "app-health" | "app-lifecycle"));
    let container = parts.next().is_some_and(|container| !container.is_empty());
    let name = parts.next().is_some_and(|name| NAMES.contains(&name));
    kind && container && name && parts.next().is_none()
}

/// The host a probe names, if it is an address; the pod's otherwise.
fn destination(host: &str, otherwise: IpAddr) -> IpAddr {
    match host {
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        _ => host.parse().unwrap_or(otherwise),
    }
}

/// Connects from the address that capture rules let through.
async fn connect(address: SocketAddr, limit: Duration) -> Result<TcpStream, String> {
    let connecting = async {
        let (socket, source) = match address {
            SocketAddr::V4(_) => (TcpSocket::new_v4()?, SocketAddr::from((SOURCE_V4, 0))),
            SocketAddr::V6(_) => (TcpSocket::new_v6()?, SocketAddr::from((SOURCE_V6, 0))),
        };
        // Where the address does not exist, nothing is captured either.
        let _ = socket.bind(source);
        socket.connect(address).await
    };
    let connected =
        timeout(limit, connecting).await.map_err(|_| format!("{address}: no connection in {limit:?}"))?;
    connected.map_err(|error| format!("{address}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    fn probes(json: &str) -> Result<AppProbes, String> {
        AppProbes::parse(json, ProbeSettings::default())
    }

    #[test]
    fn declarations_are_checked() {
        assert!(probes("").is_ok());
        for (broken, reason) in [
            ("[", "ISTIO_KUBE_APP_PROBERS: "),
            (r#"{"/healthz": {"tcpSocket": {"port": 1}}}"#, "is not /app-health/CONTAINER/PROBE"),
            (r#"{"/app-health/a/livez": {}}"#, "expected one of httpGet, tcpSocket and grpc"),
            (r#"{"/app-health/a/livez": {"tcpSocket": {"port": "http"}}}"#, "is not a port number"),
        ] {
            let error = probes(broken).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[tokio::test]
    async fn tcp_probe_succeeds_when_somebody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let probes =
            probes(&format!(r#"{{"/app-health/a/livez": {{"tcpSocket": {{"port": {port}}}}}}}"#)).unwrap();
        assert_eq!(probes.answer("/app-health/a/livez", &HeaderMap::new()).await.status(), StatusCode::OK);
        drop(listener);
        assert_eq!(probes.answer("/app-health/a/livez", &HeaderMap::new()).await.status(), 500);
        assert_eq!(probes.answer("/app-health/b/livez", &HeaderMap::new()).await.status(), 400);
    }

    #[tokio::test]
    async fn http_probe_has_the_status_of_the_application() {
        let echo = canopus_testkit::Echo::start("app").await.unwrap();
        let port = echo.address().port();
        let probe = |path: &str| {
            let json = format!(
                r#"{{"/app-health/a/readyz": {{"httpGet": {{"path": "{path}", "port": {port}, "httpHeaders": [{{"name": "X-A", "value": "b"}}]}}}}}}"#
            );
            probes(&json).unwrap()
        };
        let answer = probe("/here").answer("/app-health/a/readyz", &HeaderMap::new()).await;
        assert_eq!(answer.status(), StatusCode::OK);
    }
}
