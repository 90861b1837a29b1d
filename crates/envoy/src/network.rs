//! Network filters: what handles the bytes of a connection.

pub(crate) mod pipeline;
mod protocols;
pub(crate) mod tcp;

use canopus_api::node::Version;
use canopus_proto::envoy::config::listener::v3::{Filter, filter::ConfigType};
use canopus_proto::{Any, Message, Name};

/// A filter under its well-known name.
pub(crate) fn filter<M: Message + Name>(name: &str, config: &M) -> Filter {
    typed(name, Any::pack(config))
}

/// A filter whose configuration is packed already.
pub(crate) fn typed(name: &str, config: Any) -> Filter {
    Filter { name: name.into(), config_type: Some(ConfigType::TypedConfig(config)) }
}

/// What makes a text in filter state count for connection pools; older proxies know another name.
pub(crate) fn hashable_string(proxy: Version) -> &'static str {
    const SINCE: Version = Version { major: 1, minor: 29, patch: 2 };
    if proxy >= SINCE { "istio.hashable_string" } else { "envoy.string" }
}
