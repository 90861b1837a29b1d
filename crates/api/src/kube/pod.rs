//! Pods.

use crate::decode::slim;
use crate::kube::TransportProtocol;
use crate::macros::{object, open_enum};
use crate::resource::Resource;
use crate::value::Condition;

/// A pod.
pub type Pod = Resource<PodSpec, PodStatus>;

open_enum! {
    /// How far a pod has come.
    PodPhase {
        /// Not all containers have started.
        Pending = "Pending",
        /// All containers have started.
        Running = "Running",
        /// All containers ended well.
        Succeeded = "Succeeded",
        /// All containers ended, one badly.
        Failed = "Failed",
        /// The node does not answer.
        Unknown = "Unknown",
    }
}

object! {
    /// What a pod is.
    PodSpec {
        /// The node it runs on; empty until it is scheduled.
        node_name: Box<str>,
        /// Service account that the pod runs as.
        service_account_name: Box<str>,
        /// Whether it shares the node's network.
        host_network: bool,
        /// Host name of the pod in the DNS of its subdomain.
        hostname: Option<Box<str>>,
        /// The headless service it is named below.
        subdomain: Option<Box<str>>,
        /// Containers that run side by side, without init containers.
        containers: Vec<Container>,
        /// Containers that run before; those with restart policy `Always` stay.
        init_containers: Vec<Container>,
    }

    /// A container.
    Container {
        /// Name of the container.
        name: Box<str>,
        /// What it runs.
        image: Box<str>,
        /// The ports it says it has.
        ports: Vec<ContainerPort>,
        /// `Always` on an init container makes it a sidecar.
        restart_policy: Option<Box<str>>,
    }

    /// A port of a container.
    ContainerPort {
        /// The name that a service's target port may use.
        name: Box<str>,
        /// The number.
        container_port: u16,
        /// The transport protocol.
        protocol: TransportProtocol = TransportProtocol::Tcp,
    }

    /// What became of a pod.
    PodStatus {
        /// How far it has come.
        phase: PodPhase = PodPhase::Pending,
        /// Why it is in that phase: `Evicted`.
        reason: Option<Box<str>>,
        /// Primary IP address of the pod; empty until it has one.
        #[serde(rename = "podIP")]
        pod_ip: Box<str>,
        /// All its addresses, one for each IP family.
        #[serde(rename = "podIPs")]
        pod_ips: Vec<PodIp>,
        /// The address of its node.
        #[serde(rename = "hostIP")]
        host_ip: Box<str>,
        /// Observations.
        conditions: Vec<Condition>,
        /// What became of its containers.
        container_statuses: Vec<ContainerStatus>,
        /// What became of its init containers.
        init_container_statuses: Vec<ContainerStatus>,
    }

    /// An address of a pod.
    PodIp {
        /// The address.
        ip: Box<str>,
    }

    /// What became of a container.
    ContainerStatus {
        /// Name of the container.
        name: Box<str>,
        /// Whether it takes traffic.
        ready: bool,
        /// What it does now.
        state: ContainerState,
        /// What it did before it was last restarted.
        last_state: ContainerState,
    }

    /// What a container does.
    ContainerState {
        /// The container has not started; this is why.
        waiting: Option<ContainerWaiting>,
        /// The container has ended; this is how.
        terminated: Option<ContainerTerminated>,
    }

    /// Why a container has not started.
    ContainerWaiting {
        /// The reason as one word.
        reason: Box<str>,
    }

    /// How a container ended.
    ContainerTerminated {
        /// The exit code of its process.
        exit_code: i32,
        /// What it wrote to its termination log.
        message: Box<str>,
    }
}

slim!(PodSpec, PodStatus);
