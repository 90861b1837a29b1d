//! Where TCP connections go.

use std::borrow::Cow;

use canopus_api::node::NodeKind;
use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
use canopus_mesh::destination_rule::{Rule, outbound_rule};
use canopus_mesh::scope;
use canopus_mesh::service::{self, Port, Service, ServiceKey};
use canopus_mesh::world::Origin;
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::weighted_cluster::ClusterWeight;
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::{
    ClusterSpecifier, TunnelingConfig, WeightedCluster,
};
use canopus_proto::envoy::r#type::v3::HashPolicy;
use canopus_proto::envoy::r#type::v3::hash_policy::{PolicySpecifier, SourceIp};
use canopus_proto::fields::tcp_proxy;
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::LbPolicy;
use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::consistent_hash_lb::HashKey;
use canopus_proto::istio::networking::v1alpha3::{
    Destination, LoadBalancerSettings, RouteDestination, TrafficPolicy,
};
use canopus_proto::wire::Encoded;

use super::{pipeline, protocols};
use crate::audience::{ListenerAudience, Shared};
use crate::env::{Class, Env};
use crate::filter::Filters;
use crate::names;
use crate::route::Known;
use crate::route::destination::cluster_name;
use crate::stat_name::{self, Placeholders};
use crate::telemetry::{access_log, metrics};
use crate::{dns_cache, durations};

const NAME: &str = "envoy.filters.network.tcp_proxy";

/// Adds the filter that ends connections at once.
pub(crate) fn black_hole(filters: &mut Filters) {
    let to = To::Cluster(names::BLACK_HOLE);
    Proxy { stat_prefix: names::BLACK_HOLE, to, settings: None, logs: Encoded::default() }.add_to(filters);
}

/// Adds the filter that sends connections to a cluster, which also names their statistics.
pub(crate) fn to(filters: &mut Filters, env: &Env<'_>, class: Class, cluster: &str) {
    let settings = with_rule(env, None, "");
    let proxy = Proxy { stat_prefix: cluster, to: To::Cluster(cluster), settings, logs: logs(env, class) };
    proxy.add_to(filters);
}

/// Adds the filter that sends connections through a tunnel to a cluster; failures to open it are logged.
pub(crate) fn tunnel(
    filters: &mut Filters,
    env: &Env<'_>,
    class: Class,
    cluster: &str,
    tunnel: TunnelingConfig,
) {
    let proxy = TcpProxy {
        tunneling_config: Some(tunnel),
        access_log: access_log::tunnel(env, class),
        ..to_cluster(cluster, cluster)
    };
    filters.add(NAME, &proxy);
}

/// Adds the filter that sends the connections of a tunnel on to a cluster.
pub(crate) fn forward(filters: &mut Filters, env: &Env<'_>, class: Class, cluster: &str) {
    let proxy = TcpProxy { access_log: access_log::passed_on(env, class), ..to_cluster(cluster, cluster) };
    filters.add(NAME, &proxy);
}

fn to_cluster(cluster: &str, stat_prefix: &str) -> TcpProxy {
    TcpProxy {
        stat_prefix: stat_prefix.into(),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.into())),
        ..Default::default()
    }
}

/// A filter that sends connections on, and logs them.
pub(super) struct Proxy<'a> {
    /// The `stat_prefix`.
    pub(super) stat_prefix: &'a str,
    /// Where connections go.
    to: To<'a>,
    /// Further settings; mostly there are none.
    settings: Option<Box<TcpProxy>>,
    /// What is logged, encoded.
    logs: Encoded<TcpProxy>,
}

/// Where connections go.
enum To<'a> {
    /// To one cluster.
    Cluster(&'a str),
    /// To one of these, by their weights.
    Weighted(Vec<ClusterWeight>),
}

impl Proxy<'_> {
    /// The cluster that connections go to, or the first of them.
    pub(super) fn cluster(&self) -> &str {
        match &self.to {
            To::Cluster(cluster) => cluster,
            To::Weighted(clusters) => clusters.first().map_or("", |cluster| &cluster.name),
        }
    }

    pub(super) fn add_to(&self, filters: &mut Filters) {
        let size = self.stat_prefix.len() + self.cluster().len() + self.logs.len();
        filters.add_in_place(NAME, size, |fields| {
            fields.string(tcp_proxy::STAT_PREFIX, self.stat_prefix);
            match &self.to {
                To::Cluster(cluster) => fields.string(tcp_proxy::CLUSTER, cluster),
                To::Weighted(clusters) => {
                    let clusters = WeightedCluster { clusters: clusters.clone() };
                    fields.message(tcp_proxy::WEIGHTED_CLUSTERS, &clusters);
                }
            }
            self.settings.iter().for_each(|settings| fields.append_message(settings));
            fields.append(&self.logs);
        });
    }
}

/// What TCP proxies of a class log, as fields of their configuration.
pub(super) fn logs(env: &Env<'_>, class: Class) -> Encoded<TcpProxy> {
    env.ctx.get::<Logs>(&(env.connections().clone(), env.service.map(Service::key), class)).as_ref().clone()
}

/// [`logs`] of all audiences.
struct Logs;

impl Query for Logs {
    const NAME: &'static str = "tcp_proxy_logs";
    /// The service whose traffic is handled, where that makes a difference.
    type Key = (Shared<ListenerAudience>, Option<ServiceKey>, Class);
    type Value = Encoded<TcpProxy>;

    fn run(ctx: &Ctx<'_>, (audience, service, class): &Self::Key) -> Encoded<TcpProxy> {
        let service = service.as_ref().and_then(|key| service::service(ctx, key));
        let env = Env::with_service(ctx, audience, service.as_deref());
        let mut proxy = TcpProxy { access_log: access_log::tcp(&env, *class), ..Default::default() };
        metrics::stock::connections(&env, *class, &mut proxy);
        Encoded::new(&proxy)
    }
}

fn idle_timeout(env: &Env<'_>) -> Option<Duration> {
    durations::go(&env.audience.http.idle_timeout)
}

/// The class of connections that leave a proxy.
fn outbound_class(env: &Env<'_>) -> Class {
    if env.audience.role.kind == NodeKind::Router { Class::Gateway } else { Class::Outbound }
}

/// The filters of connections to one port of a service, given the rule for it. `listener` is the port that clients connect
/// to.
pub(crate) fn to_service(
    env: &Env<'_>,
    service: &Service,
    rule: Option<&Rule>,
    port: u32,
    listener: &Port,
) -> Filters {
    let cluster = names::outbound_cluster(&service.host, port, "");
    let pattern = &env.mesh().outbound_cluster_stat_name;
    let stat_prefix = match pattern.as_str() {
        "" => Cow::Borrowed(cluster.as_str()),
        pattern => Cow::Owned(
            Placeholders {
                host: &service.host,
                kubernetes: stat_name::kubernetes(service),
                subset: "",
                port,
                port_name: "",
                target_port: Some(0),
            }
            .fill(pattern),
        ),
    };
    let class = outbound_class(env);
    let mut before = pipeline::Before { port: listener.number, ..Default::default() };
    if dns_cache::is_for(env.audience.role.kind, class, service) {
        before.resolver = Some(protocols::server_name_resolver(env, &service.host, listener.number));
        before.policy_service = Some(service);
    }
    let settings = with_rule(env, rule, "");
    finish(env, class, (&stat_prefix, To::Cluster(&cluster)), settings, listener.protocol, before)
}

/// The filters of connections that a VirtualService sends on. There is at least one route.
pub(crate) fn routed(
    env: &Env<'_>,
    routes: &[RouteDestination],
    origin: &Origin,
    listener: &Port,
) -> Filters {
    routed_after(env, routes, origin, listener, pipeline::Before::default())
}

/// [`routed`], with something before it.
pub(crate) fn routed_after(
    env: &Env<'_>,
    routes: &[RouteDestination],
    origin: &Origin,
    listener: &Port,
    before: pipeline::Before<'_>,
) -> Filters {
    let before = pipeline::Before { port: listener.number, ..before };
    let seen = |host: &str| scope::scoped_service(env.ctx, env.audience.scope(), host);
    let cluster_of = |to: &Destination| {
        let known = seen(&to.host).map(Known::whole);
        cluster_name(to, known.as_ref(), listener.number)
    };
    let nowhere = Destination::default();
    let first = routes.first().and_then(|route| route.destination.as_ref()).unwrap_or(&nowhere);
    let service = seen(&first.host);
    let rule =
        service.as_ref().and_then(|service| outbound_rule(env.ctx, &env.audience.caller, &service.key()));
    let class = outbound_class(env);
    if let [_] = routes {
        let cluster = cluster_of(first);
        let pattern = &env.mesh().outbound_cluster_stat_name;
        let stat_prefix = match &service {
            Some(service) if !pattern.is_empty() => Placeholders {
                host: &first.host,
                kubernetes: stat_name::kubernetes(service),
                subset: &first.subset,
                port: listener.number,
                port_name: &listener.name,
                target_port: Some(0),
            }
            .fill(pattern),
            _ => cluster.clone(),
        };
        let settings = with_rule(env, rule.as_deref(), &first.subset);
        let to = (stat_prefix.as_str(), To::Cluster(&cluster));
        return finish(env, class, to, settings, listener.protocol, before);
    }
    let weighted = routes.iter().filter_map(|route| {
        let to = route.destination.as_ref()?;
        let weight = u32::try_from(route.weight).ok().filter(|weight| *weight > 0)?;
        Some(ClusterWeight { name: cluster_of(to), weight, ..Default::default() })
    });
    let clusters: Vec<_> = weighted.collect();
    if clusters.is_empty() {
        let mut filters = Filters::default();
        black_hole(&mut filters);
        return filters;
    }
    let stat_prefix = [origin.name(), ".", origin.namespace()].concat();
    let settings = with_rule(env, rule.as_deref(), "");
    finish(env, class, (&stat_prefix, To::Weighted(clusters)), settings, listener.protocol, before)
}

/// The filters of connections whose server name is that of a cluster, or of a subset of it, and whose TLS ends there.
pub(crate) fn passed_on(
    env: &Env<'_>,
    (cluster, stat_prefix): (&str, &str),
    rule: Option<&Rule>,
    subset: &str,
    port: &Port,
) -> Filters {
    let mut settings = with_rule(env, rule, subset);
    // What goes through is the client's TLS, which a tunnel's server could not understand.
    settings.iter_mut().for_each(|settings| settings.tunneling_config = None);
    let before = pipeline::Before { port: port.number, ..Default::default() };
    let to = (stat_prefix, To::Cluster(cluster));
    finish(env, outbound_class(env), to, settings, port.protocol, before)
}

/// What a DestinationRule, or else the proxy itself, says about connections; `None` if nothing.
fn with_rule(env: &Env<'_>, rule: Option<&Rule>, subset: &str) -> Option<Box<TcpProxy>> {
    if rule.is_none() && env.audience.http.idle_timeout.is_empty() {
        return None;
    }
    let mut proxy = Box::<TcpProxy>::default();
    let policy = rule.and_then(|rule| rule.spec.traffic_policy.as_ref());
    let pool = policy.and_then(|policy| policy.connection_pool.as_ref());
    let tcp = pool.and_then(|pool| pool.tcp.as_ref());
    proxy.idle_timeout = tcp.and_then(|tcp| tcp.idle_timeout).or_else(|| idle_timeout(env));
    proxy.max_downstream_connection_duration = tcp.and_then(|tcp| tcp.max_connection_duration);
    let of_subset =
        rule.and_then(|rule| rule.subset(subset)).and_then(|subset| subset.traffic_policy.as_ref());
    let balancer = of_subset.and_then(balancer).or_else(|| policy.and_then(balancer));
    if balancer.is_some_and(hashes_source_address) {
        let source = PolicySpecifier::SourceIp(SourceIp {});
        proxy.hash_policy = vec![HashPolicy { policy_specifier: Some(source) }];
    }
    let tunnelling = if subset.is_empty() { policy } else { of_subset };
    proxy.tunneling_config =
        tunnelling.and_then(|policy| policy.tunnel.as_ref()).map(|tunnel| TunnelingConfig {
            hostname: names::domain(&tunnel.target_host, tunnel.target_port),
            use_post: tunnel.protocol == "POST",
            ..Default::default()
        });
    Some(proxy)
}

fn balancer(policy: &TrafficPolicy) -> Option<&LoadBalancerSettings> {
    policy.load_balancer.as_ref()
}

fn hashes_source_address(balancer: &LoadBalancerSettings) -> bool {
    match &balancer.lb_policy {
        Some(LbPolicy::ConsistentHash(hash)) => matches!(hash.hash_key, Some(HashKey::UseSourceIp(true))),
        _ => false,
    }
}

fn finish(
    env: &Env<'_>,
    class: Class,
    (stat_prefix, to): (&str, To<'_>),
    settings: Option<Box<TcpProxy>>,
    protocol: Protocol,
    before: pipeline::Before<'_>,
) -> Filters {
    let (mut filters, logs) = pipeline::begin(env, class, before);
    protocols::add(&mut filters, env, protocol, &Proxy { stat_prefix, to, settings, logs });
    filters
}

/// The filters of connections that a waypoint takes for a port of a service; `None` for a port of a workload.
///
/// Where they go are clusters by their weights, if there are any routes, else the cluster of the port itself. The settings
/// are those of the first of the services they go to.
pub(crate) fn fronting(
    env: &Env<'_>,
    (cluster, stat_prefix): (&str, &str),
    port: &Port,
    settled: Option<(&Service, &str)>,
    routes: &[ClusterWeight],
    resolver: Option<Filters>,
) -> Filters {
    let to = match routes {
        [] => To::Cluster(cluster),
        [only] => To::Cluster(&only.name),
        _ => To::Weighted(routes.iter().filter(|route| route.weight > 0).cloned().collect()),
    };
    let rule = settled.and_then(|(service, _)| outbound_rule(env.ctx, &env.audience.caller, &service.key()));
    let subset = settled.map_or("", |(_, subset)| subset);
    let settings = with_rule(env, rule.as_deref(), subset);
    let before =
        pipeline::Before { exchanges_metadata: true, port: port.number, resolver, ..Default::default() };
    finish(env, Class::Inbound, (stat_prefix, to), settings, port.protocol, before)
}

/// The filters of connections to the workload.
pub(crate) fn inbound(
    env: &Env<'_>,
    protocol: Protocol,
    cluster: &str,
    stat_prefix: &str,
    before: pipeline::Before<'_>,
) -> Filters {
    let settings = with_rule(env, None, "");
    finish(env, Class::Inbound, (stat_prefix, To::Cluster(cluster)), settings, protocol, before)
}
