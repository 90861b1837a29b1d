//! Services.

use canopus_base::labels::Labels;

use crate::decode::slim;
use crate::macros::{object, open_enum};
use crate::resource::Resource;
use crate::value::{Condition, IntOrString};

/// A set of endpoints under a stable name.
pub type Service = Resource<ServiceSpec, ServiceStatus>;

open_enum! {
    /// How a service is reached.
    ServiceType {
        /// By an address inside the cluster.
        ClusterIp = "ClusterIP",
        /// Also by a port of every node.
        NodePort = "NodePort",
        /// Also by an address from a load balancer outside.
        LoadBalancer = "LoadBalancer",
        /// The service is a DNS alias of a host elsewhere.
        ExternalName = "ExternalName",
    }
}

open_enum! {
    /// A transport protocol.
    TransportProtocol {
        /// TCP.
        Tcp = "TCP",
        /// UDP.
        Udp = "UDP",
        /// SCTP.
        Sctp = "SCTP",
    }
}

object! {
    /// What a service is.
    ServiceSpec {
        /// How it is reached.
        r#type: ServiceType = ServiceType::ClusterIp,
        /// Cluster IP: an address, `None` for a headless service, or empty if none is assigned yet.
        #[serde(rename = "clusterIP")]
        cluster_ip: Box<str>,
        /// All of its addresses inside the cluster, one for each IP family.
        #[serde(rename = "clusterIPs")]
        cluster_ips: Vec<Box<str>>,
        /// Addresses from outside that nodes also accept.
        #[serde(rename = "externalIPs")]
        external_ips: Vec<Box<str>>,
        /// The host that an `ExternalName` service stands for.
        external_name: Box<str>,
        /// The ports.
        ports: Vec<ServicePort>,
        /// The pods behind it. Empty: somebody else writes the endpoints.
        selector: Labels,
        /// Whether endpoints count before they are ready.
        publish_not_ready_addresses: bool,
        /// `Local` keeps traffic from inside the cluster on the node.
        internal_traffic_policy: Option<Box<str>>,
        /// `Local` keeps traffic from outside on the node it came to.
        external_traffic_policy: Option<Box<str>>,
        /// Which endpoints are preferred: `PreferClose`, `PreferSameZone`, `PreferSameNode`.
        traffic_distribution: Option<Box<str>>,
        /// The IP families of the cluster addresses: `IPv4`, `IPv6`.
        ip_families: Vec<Box<str>>,
        /// `SingleStack`, `PreferDualStack` or `RequireDualStack`.
        ip_family_policy: Option<Box<str>>,
    }

    /// A port of a service.
    ServicePort {
        /// The name, which may say the protocol.
        name: Box<str>,
        /// The transport protocol.
        protocol: TransportProtocol = TransportProtocol::Tcp,
        /// The number clients use.
        port: u16,
        /// The number or name of the pods' port; the same as `port` if absent.
        target_port: Option<IntOrString>,
        /// The port of every node.
        node_port: u16,
        /// The application protocol.
        app_protocol: Option<Box<str>>,
    }

    /// What became of a service.
    ServiceStatus {
        /// What the load balancer gave it.
        load_balancer: LoadBalancerStatus,
        /// Observations.
        conditions: Vec<Condition>,
    }

    /// What a load balancer gave.
    LoadBalancerStatus {
        /// Where traffic enters.
        ingress: Vec<LoadBalancerIngress>,
    }

    /// A place where traffic enters: an address or a host.
    LoadBalancerIngress {
        /// An address.
        ip: Box<str>,
        /// A host name.
        hostname: Box<str>,
    }
}

slim!(ServiceSpec, ServiceStatus);

impl ServiceSpec {
    /// Whether the service has no address of its own.
    pub fn is_headless(&self) -> bool {
        &*self.cluster_ip == "None"
    }
}
