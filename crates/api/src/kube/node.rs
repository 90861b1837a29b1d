//! Nodes.

use crate::decode::slim;
use crate::macros::object;
use crate::resource::Resource;

/// A machine that runs pods. Its labels say where it is.
pub type Node = Resource<NodeSpec, NodeStatus>;

object! {
    /// What a node is.
    NodeSpec {
        /// What keeps pods away.
        taints: Vec<Taint>,
    }

    /// Keeps pods off a node unless they tolerate it.
    Taint {
        /// What it is about.
        key: Box<str>,
        /// Value of the taint.
        value: Box<str>,
        /// What it does: `NoSchedule`, `PreferNoSchedule`, `NoExecute`.
        effect: Box<str>,
    }

    /// What became of a node.
    NodeStatus {
        /// Where it is reached.
        addresses: Vec<NodeAddress>,
        /// What it runs.
        node_info: NodeInfo,
    }

    /// Where a node is reached.
    NodeAddress {
        /// `InternalIP`, `ExternalIP`, `Hostname`.
        r#type: Box<str>,
        /// The address.
        address: Box<str>,
    }

    /// What a node runs.
    NodeInfo {
        /// The version of its kubelet: `v1.33.0`.
        kubelet_version: Box<str>,
    }
}

slim!(NodeSpec, NodeStatus);
