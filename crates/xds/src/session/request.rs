//! Requests of both protocol variants in one form.

use std::collections::BTreeMap;

use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use canopus_proto::google::rpc::Status;

/// The two variants of xDS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// State of the world: requests name everything wanted.
    #[default]
    Sotw,
    /// Incremental: requests and responses name what changes.
    Delta,
}

/// A message from a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// URL of the type that the request is about.
    pub type_url: String,
    /// Node of the client; only the first request of a stream has it.
    pub node: Option<Node>,
    /// The nonce of the response it answers, empty if it answers none.
    pub nonce: String,
    /// Why the client refused that response.
    pub error: Option<Status>,
    /// What the client wants.
    pub wish: Wish,
}

/// What a client wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// Exactly these names (state of the world).
    Exactly {
        /// Names of all wanted resources.
        names: Vec<String>,
        /// The version of the state the client has.
        version: String,
    },
    /// A change to what it wanted before (delta).
    Change {
        /// Names wanted from now on.
        subscribe: Vec<String>,
        /// Names no longer wanted.
        unsubscribe: Vec<String>,
        /// Version by name of what the client has from an earlier stream.
        held: BTreeMap<String, String>,
    },
}

impl From<DiscoveryRequest> for Request {
    fn from(request: DiscoveryRequest) -> Self {
        Self {
            type_url: request.type_url,
            node: request.node,
            nonce: request.response_nonce,
            error: request.error_detail,
            wish: Wish::Exactly { names: request.resource_names, version: request.version_info },
        }
    }
}

impl From<DeltaDiscoveryRequest> for Request {
    fn from(request: DeltaDiscoveryRequest) -> Self {
        Self {
            type_url: request.type_url,
            node: request.node,
            nonce: request.response_nonce,
            error: request.error_detail,
            wish: Wish::Change {
                subscribe: request.resource_names_subscribe,
                unsubscribe: request.resource_names_unsubscribe,
                held: request.initial_resource_versions,
            },
        }
    }
}
