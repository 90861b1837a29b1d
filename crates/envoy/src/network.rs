//! Network filters: what handles the bytes of a connection.

pub(crate) mod pipeline;
pub(crate) mod protocols;
pub(crate) mod tcp;

use canopus_api::node::Version;
use canopus_mesh::proxy::View;
use canopus_proto::envoy::config::listener::v3::{Filter, filter::ConfigType};
use canopus_proto::{Any, Message, Name};

use crate::telemetry::peer_metadata;

/// A filter under its well-known name.
pub(crate) fn filter<M: Message + Name>(name: &str, config: &M) -> Filter {
    typed(name, Any::pack(config))
}

/// A filter whose configuration is packed already.
pub(crate) fn typed(name: &str, config: Any) -> Filter {
    Filter { name: name.into(), config_type: Some(ConfigType::TypedConfig(config)) }
}

/// What makes a text in filter state count for connection pools. Older proxies of Istio and those of others know only
/// texts that do not.
pub(crate) fn hashable_string(view: &View) -> &'static str {
    const SINCE: Version = Version { major: 1, minor: 29, patch: 2 };
    let known = view.version >= SINCE && peer_metadata::is_known(view);
    if known { "istio.hashable_string" } else { "envoy.string" }
}
