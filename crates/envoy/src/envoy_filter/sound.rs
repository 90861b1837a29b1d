//! Whether a proxy would take a patched listener, as far as that can be told beforehand.

use canopus_proto::Any;
use canopus_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter::ConfigType};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType as HttpConfigType;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter,
};
use canopus_proto::udpa::r#type::v1::TypedStruct;

use crate::audience::Build;

const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
const CONNECTION_MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

/// Filters that may only stand at the end of a chain, where one of them has to stand.
const LAST_OF_CHAIN: [&str; 9] = [
    CONNECTION_MANAGER,
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
    "envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy",
    "envoy.extensions.filters.network.dubbo_proxy.v3.DubboProxy",
    "envoy.extensions.filters.network.direct_response.v3.Config",
    "envoy.extensions.filters.network.echo.v3.Echo",
    "envoy.extensions.filters.network.generic_proxy.v3.GenericProxy",
    "envoy.extensions.filters.network.kafka_mesh.v3alpha.KafkaMesh",
];

/// Whether every filter of a listener is one the proxy has, and stands where it may stand.
pub(super) fn is_sound(build: &Build, listener: &Listener) -> bool {
    let has_address = listener.address.is_some() || listener.listener_specifier.is_some();
    let mut chains = listener.filter_chains.iter().chain(&listener.default_filter_chain);
    has_address && !listener.name.is_empty() && chains.all(|chain| is_sound_chain(build, chain))
}

fn is_sound_chain(build: &Build, chain: &FilterChain) -> bool {
    let Some(types) = chain.filters.iter().map(filter_type).collect::<Option<Vec<_>>>() else { return false };
    let is_last = |name: &String| LAST_OF_CHAIN.contains(&name.as_str());
    let Some((last, before)) = types.split_last() else { return true };
    // What the proxy discovers by itself, and what this build does not know, may be anything.
    let ends = last.is_empty() || is_last(last) || !last.starts_with("envoy.");
    ends && !before.iter().any(is_last)
        && types.iter().all(|name| name.is_empty() || build.has(name))
        && chain.filters.iter().all(|filter| is_sound_manager(build, filter))
}

/// Whether the HTTP filters of a connection manager, if it is one, are sound.
fn is_sound_manager(build: &Build, filter: &Filter) -> bool {
    let Some(ConfigType::TypedConfig(config)) = &filter.config_type else { return true };
    if config.message_name() != CONNECTION_MANAGER {
        return true;
    }
    let Ok(manager) = config.unpack::<HttpConnectionManager>() else { return false };
    let filters = &manager.http_filters;
    let Some(types) = filters.iter().map(http_filter_type).collect::<Option<Vec<_>>>() else { return false };
    let Some((last, before)) = types.split_last() else { return false };
    let ends = last == ROUTER || last.is_empty() || !last.starts_with("envoy.");
    let is_had =
        |(filter, name): (&HttpFilter, &String)| filter.is_optional || name.is_empty() || build.has(name);
    ends && !before.iter().any(|name| name == ROUTER) && filters.iter().zip(&types).all(is_had)
}

/// The type of a filter's configuration, empty if the proxy discovers it; `None` if there is none, which no proxy takes.
fn filter_type(filter: &Filter) -> Option<String> {
    match filter.config_type.as_ref()? {
        ConfigType::TypedConfig(config) => configured_type(config),
        ConfigType::ConfigDiscovery(_) => Some(String::new()),
    }
}

fn http_filter_type(filter: &HttpFilter) -> Option<String> {
    match filter.config_type.as_ref()? {
        HttpConfigType::TypedConfig(config) => configured_type(config),
        HttpConfigType::ConfigDiscovery(_) => Some(String::new()),
    }
}

/// The type of a message, or of what a message without its own type stands for.
fn configured_type(config: &Any) -> Option<String> {
    let name = config.message_name();
    let inner = |type_url: &str| type_url.rsplit('/').next().map(str::to_owned);
    match name {
        "" => None,
        "udpa.type.v1.TypedStruct" => inner(&config.unpack::<TypedStruct>().ok()?.type_url),
        "xds.type.v3.TypedStruct" => {
            inner(&config.unpack::<canopus_proto::xds::r#type::v3::TypedStruct>().ok()?.type_url)
        }
        name => Some(name.to_owned()),
    }
}
