//! The status server: what kubelets, scrapers and lifecycle hooks ask the agent.
//!
//! | path | method | from |
//! |---|---|---|
//! | `/healthz/ready` | any | anywhere |
//! | `/metrics`, `/stats/prometheus` | any | anywhere, unless `METRICS_LOCALHOST_ACCESS_ONLY` |
//! | `/app-health/…`, `/app-lifecycle/…` | any | anywhere |
//! | `/quitquitquit`, `/drain` | POST | this machine |
//! | `/debug/ndsz` | any | this machine |

pub mod metrics;
mod page;
pub mod probes;
pub mod ready;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use canopus_runtime::tasks::detach;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Map, Value};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::{debug, info, warn};

use self::metrics::MetricsSettings;
pub use self::page::Page;
use self::probes::AppProbes;
use self::ready::Readiness;
use crate::dns::NameServer;
use crate::envoy::{Admin, Control, Request as ControlRequest};
use crate::xds_proxy::XdsProxy;

/// A client that sends no request for so long is disconnected.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Most connections at once; others wait.
const MAX_CONNECTIONS: usize = 256;

/// The parts that the server answers from.
pub struct Status {
    /// The rule of readiness.
    pub readiness: Arc<Readiness>,
    /// What is merged into metrics.
    pub metrics: MetricsSettings,
    /// Probes of the application.
    pub probes: AppProbes,
    /// Where requests to drain and to quit go.
    pub control: Arc<Control>,
    /// Envoy, unless there is none.
    pub admin: Option<Admin>,
    /// Whether only inbound listeners are drained.
    pub inbound_only: bool,
    /// The name server, unless there is none.
    pub names: Option<Arc<NameServer>>,
    /// Knows whether the control plane is away.
    pub xds: Arc<XdsProxy>,
}

/// The body of an answer.
pub type Answer = Response<Page>;

/// Binds the port for both families where the machine has both.
pub async fn bind(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await,
    }
}

/// Serves for as long as it is polled.
pub async fn serve(listener: TcpListener, status: Arc<Status>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!("status port: cannot accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let status = Arc::clone(&status);
        detach("request to the status port", async move {
            let service = service_fn(move |request| {
                let status = Arc::clone(&status);
                async move { Ok::<_, Infallible>(status.answer(&request, peer.ip().to_canonical()).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(16 << 10)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                debug!("status port: {error}");
            }
            drop(place);
        });
    }
}

impl Status {
    async fn answer(&self, request: &Request<Incoming>, peer: IpAddr) -> Answer {
        match request.uri().path() {
            "/healthz/ready" => self.ready().await,
            "/metrics" | "/stats/prometheus" => {
                if self.metrics.local_only && !peer.is_loopback() {
                    return only_from_localhost();
                }
                metrics::answer(&self.metrics, request).await
            }
            "/quitquitquit" => self.local_post(request, peer, "quit").await,
            "/drain" => self.local_post(request, peer, "drain").await,
            "/debug/ndsz" => self.name_table(peer),
            path if path.starts_with("/app-health/") || path.starts_with("/app-lifecycle/") => {
                self.probes.answer(path, request.headers()).await
            }
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    async fn ready(&self) -> Answer {
        match self.readiness.check(self.control.is_ending()).await {
            // Parity: the answer has no text, but in an outage, of which whoever asks by hand should know.
            Ok(()) => {
                text(StatusCode::OK, &self.xds.outage().map(|outage| outage + "\n").unwrap_or_default())
            }
            Err(reason) => {
                let reason = match self.xds.failure() {
                    Some(failure) => format!("{reason}; {failure}"),
                    None => reason,
                };
                warn!("Envoy proxy is NOT ready: {reason}");
                // Parity: pilot-agent's answer has no text. The reason helps whoever asks by hand.
                text(StatusCode::SERVICE_UNAVAILABLE, &format!("{reason}\n"))
            }
        }
    }

    /// The table that names are resolved from, as proto-JSON.
    fn name_table(&self, peer: IpAddr) -> Answer {
        if !peer.is_loopback() {
            return only_from_localhost();
        }
        let Some(names) = &self.names else {
            return text(StatusCode::NOT_FOUND, "DNS capture is not enabled in this proxy\n");
        };
        let entries = names.table().table.into_iter().map(|(host, info)| {
            let known =
                [("registry", info.registry), ("shortname", info.shortname), ("namespace", info.namespace)];
            let mut entry = Map::from_iter([("ips".to_owned(), info.ips.into())]);
            let given = known.into_iter().filter(|(_, text)| !text.is_empty());
            entry.extend(given.map(|(key, text)| (key.to_owned(), text.into())));
            (host, Value::Object(entry))
        });
        let json = serde_json::json!({"table": entries.collect::<Map<_, _>>()});
        let mut answer = text(StatusCode::OK, &format!("{json:#}\n"));
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        answer
    }

    async fn local_post(&self, request: &Request<Incoming>, peer: IpAddr, action: &str) -> Answer {
        if !peer.is_loopback() {
            return only_from_localhost();
        }
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
        }
        info!("asked to {action}");
        if action == "quit" {
            self.control.ask(ControlRequest::Quit);
            return text(StatusCode::OK, "OK");
        }
        if let Some(admin) = &self.admin
            && let Err(error) = admin.drain(self.inbound_only, true).await
        {
            warn!("listeners cannot be drained: {error}");
        }
        // Even so: whoever asked has waited, and the next signal is to end the agent.
        self.control.set_drained();
        text(StatusCode::OK, "OK")
    }
}

fn only_from_localhost() -> Answer {
    text(StatusCode::FORBIDDEN, "Only requests from localhost are allowed\n")
}

/// A plain answer.
pub(crate) fn text(status: StatusCode, text: &str) -> Answer {
    let mut response = Response::new(Page::from(Bytes::copy_from_slice(text.as_bytes())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
