//! The flags of `canopus-agent proxy`.

use canopus_runtime::log::LogFlags;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// What kind of proxy it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Role {
    /// Beside an application.
    Sidecar,
    /// A gateway.
    Router,
    /// In front of services of an ambient mesh.
    Waypoint,
}

impl Role {
    /// The role as node IDs and the command line spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sidecar => "sidecar",
            Self::Router => "router",
            Self::Waypoint => "waypoint",
        }
    }
}

/// The flags.
#[derive(Args, Clone, Debug)]
pub struct ProxyArgs {
    /// What kind of proxy it is
    #[arg(value_enum, default_value = "sidecar")]
    pub role: Role,

    /// Domain of the workload [default: ${POD_NAMESPACE}.svc.cluster.local]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub domain: String,

    /// Mesh configuration file, of which defaultConfig is read; a missing one is passed over. PROXY_CONFIG and the annotation
    /// proxy.istio.io/config go before it
    #[arg(long = "meshConfig", default_value = "./etc/istio/config/mesh")]
    pub mesh_config: String,

    /// Port on which tokens are exchanged (RFC 8693) at CANOPUS_STS_TOKEN_URL; 0 for none
    #[arg(long = "stsPort", default_value_t = 0)]
    pub sts_port: u16,

    /// Accepted for the sake of old manifests; has no effect
    #[arg(long = "tokenManagerPlugin", default_value = "", hide = true)]
    pub token_manager_plugin: String,

    /// Name of the workload in traces, unless the proxy configuration has one
    #[arg(long = "serviceCluster", default_value = "istio-proxy")]
    pub service_cluster: String,

    /// Envoy's log levels: LEVEL or SCOPE:LEVEL, comma-separated
    #[arg(long = "proxyLogLevel", default_value = "warning")]
    pub proxy_log_level: String,

    /// Envoy's log levels by scope; prefer --proxyLogLevel
    #[arg(long = "proxyComponentLogLevel", default_value = "", hide_default_value = true)]
    pub proxy_component_log_level: String,

    /// Envoy's worker threads; prefer the proxy configuration
    #[arg(long, default_value_t = 0)]
    pub concurrency: u16,

    /// Template of Envoy's bootstrap, as ISTIO_BOOTSTRAP; customConfigFile of the proxy configuration goes before it
    #[arg(long = "templateFile", default_value = "", hide_default_value = true)]
    pub template_file: String,

    /// Where Envoy logs ejected hosts
    #[arg(long = "outlierLogPath", default_value = "", hide_default_value = true)]
    pub outlier_log_path: String,

    /// Accepted for the sake of old manifests; the agent has no profiles to serve
    #[arg(
        long,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "true",
        hide = true
    )]
    pub profiling: String,

    /// The agent's own log, whose flags every command has.
    #[arg(skip)]
    pub log: LogFlags,
}
