//! Multi-cluster services.

use crate::decode::complete;
use crate::kube::TransportProtocol;
use crate::macros::{object, open_enum};
use crate::resource::Resource;
use crate::value::Condition;

/// Makes a service known to other clusters.
pub type ServiceExport = Resource<ServiceExportSpec, ServiceExportStatus>;
/// A service of other clusters.
pub type ServiceImport = Resource<ServiceImportSpec, ServiceImportStatus>;

open_enum! {
    /// How an imported service is reached.
    ServiceImportType {
        /// By an address of its own.
        ClusterSetIp = "ClusterSetIP",
        /// By those of its endpoints.
        Headless = "Headless",
    }
}

object! {
    /// An export says all by its name.
    ServiceExportSpec {}

    /// What became of an export.
    ServiceExportStatus {
        /// Observations.
        conditions: Vec<Condition>,
    }

    /// What an imported service is.
    ServiceImportSpec {
        /// Ports of the imported service.
        ports: Vec<ServiceImportPort>,
        /// Addresses of the imported service.
        ips: Vec<Box<str>>,
        /// How it is reached.
        r#type: ServiceImportType = ServiceImportType::ClusterSetIp,
        /// `ClientIP` keeps a client with one endpoint.
        session_affinity: Option<Box<str>>,
        /// For how long.
        session_affinity_config: Option<SessionAffinityConfig>,
    }

    /// A port of an imported service.
    ServiceImportPort {
        /// Name of the port.
        name: Box<str>,
        /// The transport protocol.
        protocol: TransportProtocol = TransportProtocol::Tcp,
        /// The application protocol.
        app_protocol: Option<Box<str>>,
        /// The number.
        port: u16,
    }

    /// For how long a client stays with one endpoint.
    SessionAffinityConfig {
        /// By its address.
        #[serde(rename = "clientIP")]
        client_ip: Option<ClientIpConfig>,
    }

    /// For how long a client's address stays with one endpoint.
    ClientIpConfig {
        /// Timeout in seconds.
        timeout_seconds: Option<i32>,
    }

    /// What became of an import.
    ServiceImportStatus {
        /// The clusters it comes from.
        clusters: Vec<ExportingCluster>,
    }

    /// A cluster an import comes from.
    ExportingCluster {
        /// Name of the cluster.
        cluster: Box<str>,
    }
}

complete!(ServiceExportSpec, ServiceExportStatus, ServiceImportSpec, ServiceImportStatus);
