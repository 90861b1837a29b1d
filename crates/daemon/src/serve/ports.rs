//! Which ports a process opens, and when.

use std::io::{self, ErrorKind};
use std::time::Duration;

use anyhow::Context as _;
use canopus_runtime::flags::{
    CANOPUS_MAX_NODE_BYTES, Flags, ISTIO_GPRC_MAXRECVMSGSIZE, ISTIO_GPRC_MAXSTREAMS,
};
use canopus_runtime::shutdown::{Phase, Shutdown};
use canopus_runtime::tasks::Tasks;
use canopus_xds::server::{Options, Transport};
use canopus_xds::session::Limits;
use clap::Args;
use tokio::net::TcpListener;
use tokio_stream::Stream;
use tokio_stream::wrappers::TcpListenerStream;
use tracing::info;

use super::certificates::{Certificates, TlsArgs};
use super::grpc::Grpc;
use super::webhook::Admission;
use super::{tls, web, webhook};
use crate::http;

const CONNECTIONS: &str = "Connections";

/// Flags about ports. Names are pilot-discovery's.
#[derive(Args, Debug)]
#[command(next_help_heading = "Ports")]
pub(crate) struct PortArgs {
    /// Address to serve xDS on, without TLS; empty serves it on --httpAddr.
    #[arg(long = "grpcAddr", value_name = "ADDRESS", default_value = ":15010")]
    grpc_addr: String,
    /// Address to serve xDS on, with TLS; empty does not serve it.
    #[arg(long = "secureGRPCAddr", value_name = "ADDRESS", default_value = ":15012")]
    secure_grpc_addr: String,
    /// Address to serve readiness and the debug endpoints on.
    #[arg(long = "httpAddr", value_name = "ADDRESS", default_value = ":8080")]
    http_addr: String,
    /// Address to serve webhooks on, with TLS; empty serves them on --httpAddr, without.
    #[arg(long = "httpsAddr", value_name = "ADDRESS", default_value = ":15017")]
    https_addr: String,
    /// Address to serve metrics, the version and the debug endpoints on; empty for nowhere.
    #[arg(long = "monitoringAddr", value_name = "ADDRESS", default_value = ":15014")]
    monitoring_addr: String,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// How often a quiet connection of a proxy is probed.
    #[arg(help_heading = CONNECTIONS, long = "keepaliveInterval", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    keepalive_interval: Duration,
    /// How long a proxy may take to answer a probe.
    #[arg(help_heading = CONNECTIONS, long = "keepaliveTimeout", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    keepalive_timeout: Duration,
    /// How long a proxy may stay connected before it is asked to connect again; without, for ever.
    #[arg(help_heading = CONNECTIONS, long = "keepaliveMaxServerConnectionAge", value_name = "DURATION", value_parser = duration)]
    pub(crate) keepalive_max_server_connection_age: Option<Duration>,
    /// How long streams may take to end when the process is asked to stop.
    #[arg(help_heading = CONNECTIONS, long = "shutdownDuration", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(crate) shutdown_duration: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed: canopus_base::duration::Duration = text.parse().map_err(|e| format!("{e}"))?;
    parsed.to_std().ok_or_else(|| "must not be negative".to_owned())
}

impl PortArgs {
    /// How the xDS server treats proxies.
    pub(crate) fn options(&self, flags: &Flags) -> Options {
        Options {
            max_request_bytes: request_bytes(flags),
            limits: Limits { node_bytes: node_bytes(flags), ..Limits::default() },
            max_streams_per_connection: streams(flags),
            keepalive_interval: Some(self.keepalive_interval),
            keepalive_timeout: self.keepalive_timeout,
            max_connection_age: self.keepalive_max_server_connection_age,
            drain_timeout: self.shutdown_duration,
            ..Options::default()
        }
    }
}

fn request_bytes(flags: &Flags) -> usize {
    usize::try_from(flags.get(ISTIO_GPRC_MAXRECVMSGSIZE)).unwrap_or_default()
}

fn node_bytes(flags: &Flags) -> usize {
    usize::try_from(flags.get(CANOPUS_MAX_NODE_BYTES)).unwrap_or_default()
}

fn streams(flags: &Flags) -> u32 {
    // Parity: gRPC for Go takes zero for no bound.
    match flags.get(ISTIO_GPRC_MAXSTREAMS) {
        0 => u32::MAX,
        most => u32::try_from(most).unwrap_or(u32::MAX),
    }
}

/// What the ports answer with.
pub(crate) struct Ports<'a> {
    pub(crate) args: &'a PortArgs,
    pub(crate) grpc: Grpc,
    pub(crate) certificates: Certificates,
    pub(crate) served: http::Served,
    pub(crate) admission: Admission,
    pub(crate) shutdown: &'a Shutdown,
}

impl Ports<'_> {
    /// Opens the ports that say how start-up goes, and those that need nothing of the world.
    pub(crate) async fn open_early(&self) -> anyhow::Result<()> {
        let mut router = http::admin(self.served.clone());
        if self.args.https_addr.is_empty() {
            router = router.merge(webhook::router(self.admission.clone()));
        }
        if self.args.grpc_addr.is_empty() {
            router = self.grpc.beside(router);
        }
        let listener = listen(&self.args.http_addr).await?;
        info!(http = %listener.local_addr()?, "serving readiness");
        self.spawn_web("http", TcpListenerStream::new(listener), router);
        if !self.args.monitoring_addr.is_empty() {
            let listener = listen(&self.args.monitoring_addr).await?;
            info!(monitoring = %listener.local_addr()?, "serving metrics");
            self.spawn_web(
                "monitoring",
                TcpListenerStream::new(listener),
                http::monitoring(self.served.clone()),
            );
        }
        // Pods may be created and objects stored before the world is read.
        if !self.args.https_addr.is_empty() {
            let listener = listen(&self.args.https_addr).await?;
            info!(https = %listener.local_addr()?, "serving webhooks");
            let router = http::readiness(self.served.clone()).merge(webhook::router(self.admission.clone()));
            self.spawn_web("webhooks", tls::incoming(listener, self.certificates.for_webhooks()), router);
        }
        Ok(())
    }

    /// Opens the other ports.
    pub(crate) async fn open(self, tasks: &Tasks) -> anyhow::Result<()> {
        if !self.args.secure_grpc_addr.is_empty() {
            let listener = listen(&self.args.secure_grpc_addr).await?;
            info!(grpc = %listener.local_addr()?, "serving proxies with TLS");
            self.spawn_grpc("secure xds", tls::incoming(listener, self.certificates.for_proxies()));
        }
        if self.args.grpc_addr.is_empty() {
            let (grpc, part) = (self.grpc.clone(), self.shutdown.register(Phase::Serving, "xds"));
            tasks.spawn("xds", async move {
                part.stopping().await;
                grpc.drain();
            });
        } else {
            let listener = listen(&self.args.grpc_addr).await?;
            info!(grpc = %listener.local_addr()?, "serving proxies");
            self.spawn_grpc("xds", TcpListenerStream::new(listener));
        }
        tasks.supervise_with("certificates", self.certificates, |mut certificates| async move {
            certificates.follow().await;
        });
        Ok(())
    }

    fn spawn_grpc<IO>(
        &self,
        name: &'static str,
        incoming: impl Stream<Item = io::Result<IO>> + Send + 'static,
    ) where
        IO: Transport,
    {
        let (grpc, part) = (self.grpc.clone(), self.shutdown.register(Phase::Serving, name));
        // A port whose loop panics is closed for good, so the process ends.
        Tasks::new(self.shutdown.clone()).spawn(name, async move {
            grpc.serve_on(incoming, part.stopping()).await;
        });
    }

    fn spawn_web<IO>(
        &self,
        name: &'static str,
        incoming: impl Stream<Item = io::Result<IO>> + Send + 'static,
        router: axum::Router,
    ) where
        IO: web::Transport,
    {
        let part = self.shutdown.register(Phase::Serving, name);
        Tasks::new(self.shutdown.clone()).spawn(name, async move {
            tokio::select! {
                () = web::serve(incoming, router, part.stopping()) => {}
                () = part.forced() => {}
            }
        });
    }
}

/// Binds `host:port`. As in Go, no host means every address of the machine.
async fn listen(address: &str) -> anyhow::Result<TcpListener> {
    let bound = match address.strip_prefix(':') {
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            // A machine without IPv6.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                TcpListener::bind(format!("0.0.0.0:{port}")).await
            }
            bound => bound,
        },
        None => TcpListener::bind(address).await,
    };
    bound.with_context(|| format!("cannot listen on {address}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        ports: PortArgs,
    }

    /// How many streams a connection may have and how long a request may be, when these variables are set.
    fn bounds(streams: &str, bytes: &str) -> (u32, usize) {
        let flags = Flags::read(&[("ISTIO_GPRC_MAXSTREAMS", streams), ("ISTIO_GPRC_MAXRECVMSGSIZE", bytes)]);
        let options = Command::parse_from(["canopusd"]).ports.options(&flags);
        (options.max_streams_per_connection, options.max_request_bytes)
    }

    #[test]
    fn proxies_are_bounded_as_the_environment_says() {
        assert_eq!(bounds("7", "1000"), (7, 1000));
        assert_eq!(bounds("0", "0"), (u32::MAX, 0));
        assert_eq!(bounds("-1", "-1"), (u32::MAX, 0));
        let default = Options::default();
        assert_eq!(bounds("", ""), (default.max_streams_per_connection, default.max_request_bytes));
    }

    #[test]
    fn node_is_bounded_as_the_environment_says() {
        let bound = |bytes| {
            let flags = Flags::read(&[("CANOPUS_MAX_NODE_BYTES", bytes)]);
            Command::parse_from(["canopusd"]).ports.options(&flags).limits.node_bytes
        };
        assert_eq!((bound("1000"), bound("")), (1000, Limits::default().node_bytes));
    }
}
