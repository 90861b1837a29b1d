//! Filters that know a protocol other than HTTP.

use canopus_base::protocol::Protocol;
use canopus_proto::Name;
use canopus_proto::envoy::extensions::filters::network::mongo_proxy::v3::MongoProxy;
use canopus_proto::envoy::extensions::filters::network::mysql_proxy::v3::MySqlProxy;
use canopus_proto::envoy::extensions::filters::network::redis_proxy::v3::RedisProxy;
use canopus_proto::envoy::extensions::filters::network::redis_proxy::v3::redis_proxy::{
    ConnPoolSettings, PrefixRoutes, prefix_routes::Route,
};
use canopus_proto::envoy::extensions::filters::network::sni_dynamic_forward_proxy::v3::{
    FilterConfig as NameResolver, filter_config::PortSpecifier,
};
use canopus_proto::google::protobuf::Duration;
use canopus_runtime::flags::{
    PILOT_ENABLE_MONGO_FILTER, PILOT_ENABLE_MYSQL_FILTER, PILOT_ENABLE_REDIS_FILTER,
};

use super::tcp::Proxy;
use crate::dns_cache;
use crate::env::Env;
use crate::filter::Filters;

const REDIS_TIMEOUT_SECONDS: i64 = 5;

/// Adds the filters that handle a protocol: `proxy` alone, after a filter that counts, or a filter that proxies by itself.
pub(super) fn add(filters: &mut Filters, env: &Env<'_>, protocol: Protocol, proxy: &Proxy<'_>) {
    let stat_prefix = || proxy.stat_prefix.to_owned();
    match protocol {
        Protocol::Mongo if env.flag(PILOT_ENABLE_MONGO_FILTER) => {
            let mongo = MongoProxy { stat_prefix: stat_prefix(), ..Default::default() };
            filters.add("envoy.filters.network.mongo_proxy", &mongo);
        }
        // These filters are not in every build of Envoy.
        Protocol::MySql
            if env.flag(PILOT_ENABLE_MYSQL_FILTER) && env.audience.build.has(&MySqlProxy::full_name()) =>
        {
            let mysql = MySqlProxy { stat_prefix: stat_prefix(), ..Default::default() };
            filters.add("envoy.filters.network.mysql_proxy", &mysql);
        }
        Protocol::Redis if env.flag(PILOT_ENABLE_REDIS_FILTER) => {
            filters.add("envoy.filters.network.redis_proxy", &redis(stat_prefix(), proxy.cluster()));
            return;
        }
        _ => {}
    }
    proxy.add_to(filters);
}

fn redis(stat_prefix: String, cluster: &str) -> RedisProxy {
    RedisProxy {
        stat_prefix,
        latency_in_micros: true,
        settings: Some(ConnPoolSettings {
            op_timeout: Some(Duration::from_secs(REDIS_TIMEOUT_SECONDS)),
            ..Default::default()
        }),
        prefix_routes: Some(PrefixRoutes {
            catch_all_route: Some(Route { cluster: cluster.into(), ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Resolves the name that a TLS client asks for.
pub(crate) fn server_name_resolver(env: &Env<'_>, host: &str, port: u32) -> Filters {
    let config = NameResolver {
        dns_cache_config: Some(dns_cache::host_cache(&env.settings.flags, &env.audience.addressing, host)),
        port_specifier: Some(PortSpecifier::PortValue(port)),
        ..Default::default()
    };
    let mut filters = Filters::default();
    filters.add("envoy.extensions.filters.network.sni_dynamic_forward_proxy", &config);
    filters
}
