//! How many connections and requests a cluster takes, how long they live, and how they are kept alive.

use std::sync::LazyLock;

use canopus_base::protocol::Protocol;
use canopus_mesh::world::MeshSettings;
use canopus_proto::envoy::config::cluster::v3::circuit_breakers::{Thresholds, thresholds};
use canopus_proto::envoy::config::cluster::v3::{CircuitBreakers, Cluster, UpstreamConnectionOptions};
use canopus_proto::envoy::config::core::v3::KeepaliveSettings;
use canopus_proto::envoy::r#type::v3::Percent;
use canopus_proto::fields::cluster;
use canopus_proto::google::protobuf::UInt32Value;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::H2UpgradePolicy as MeshUpgrade;
use canopus_proto::istio::networking::v1alpha3::ConnectionPoolSettings;
use canopus_proto::istio::networking::v1alpha3::connection_pool_settings::http_settings::H2UpgradePolicy as Upgrade;
use canopus_proto::istio::networking::v1alpha3::connection_pool_settings::tcp_settings::TcpKeepalive;
use canopus_proto::istio::networking::v1alpha3::traffic_policy::RetryBudget;
use canopus_proto::wire::{Encoded, ProtoWriter};
use canopus_runtime::flags::{DISABLE_TRACK_REMAINING_CB_METRICS, Flags};

use super::draft::Draft;

const DEFAULT_RETRY_PERCENT: f64 = 20.0;
const DEFAULT_RETRY_CONCURRENCY: u32 = 3;

/// How much a cluster takes.
pub(super) enum Limits {
    /// More than any load reaches: Envoy's own limits (1,024 of each, 3 retries) would surprise users who set none.
    Unlimited {
        /// Whether proxies count what is left.
        tracked: bool,
    },
    /// What the user says.
    Limited(Box<Thresholds>),
}

/// Circuit breakers without limits, as a field of a cluster: those that do not count what is left, and those that do.
static UNLIMITED: LazyLock<[Encoded<Cluster>; 2]> = LazyLock::new(|| {
    [false, true].map(|tracked| {
        let circuit_breakers = Some(breakers(unlimited(tracked)));
        Encoded::new(&Cluster { circuit_breakers, ..Default::default() })
    })
});

impl Limits {
    /// Limits above any load.
    pub(super) fn none(flags: &Flags) -> Self {
        Self::Unlimited { tracked: !flags.get(DISABLE_TRACK_REMAINING_CB_METRICS) }
    }

    /// Adds the field of a cluster that they are.
    pub(super) fn write(&self, fields: &mut ProtoWriter<Cluster>) {
        match self {
            Self::Unlimited { tracked } => fields.append(&UNLIMITED[usize::from(*tracked)]),
            Self::Limited(limits) => fields.message(cluster::CIRCUIT_BREAKERS, &breakers(**limits)),
        }
    }
}

fn unlimited(tracked: bool) -> Thresholds {
    let all = Some(u32::MAX.into());
    Thresholds {
        max_connections: all,
        max_pending_requests: all,
        max_requests: all,
        max_retries: all,
        track_remaining: tracked,
        ..Default::default()
    }
}

fn breakers(thresholds: Thresholds) -> CircuitBreakers {
    CircuitBreakers { thresholds: vec![thresholds], ..Default::default() }
}

/// Sets what a connection pool says, and the mesh's settings where it says nothing.
pub(super) fn apply(
    draft: &mut Draft,
    settings: &MeshSettings,
    pool: &ConnectionPoolSettings,
    budget: Option<&RetryBudget>,
) {
    let tcp = pool.tcp.as_ref();
    draft.connect_timeout = tcp.and_then(|tcp| tcp.connect_timeout).or(settings.mesh.connect_timeout);
    draft.limits = Some(limits(&settings.flags, pool, budget));
    let keepalives = [settings.mesh.tcp_keepalive.as_ref(), tcp.and_then(|tcp| tcp.tcp_keepalive.as_ref())];
    for keepalive in keepalives.into_iter().flatten() {
        keep_alive(draft, keepalive);
    }
    set_lifetimes(draft, pool);
    if pool.http.as_ref().is_some_and(|http| http.use_client_protocol) {
        draft.follow_client();
    }
}

fn limits(flags: &Flags, pool: &ConnectionPoolSettings, budget: Option<&RetryBudget>) -> Limits {
    if pool.http.is_none() && pool.tcp.is_none() && budget.is_none() {
        return Limits::none(flags);
    }
    let mut limits = unlimited(!flags.get(DISABLE_TRACK_REMAINING_CB_METRICS));
    limits.retry_budget = budget.map(retry_budget);
    let set = |limit: &mut Option<UInt32Value>, value: i32| {
        if value > 0 {
            *limit = Some(value.cast_unsigned().into());
        }
    };
    if let Some(http) = &pool.http {
        set(&mut limits.max_requests, http.http2_max_requests);
        set(&mut limits.max_pending_requests, http.http1_max_pending_requests);
        set(&mut limits.max_retries, http.max_retries);
    }
    if let Some(tcp) = &pool.tcp {
        set(&mut limits.max_connections, tcp.max_connections);
    }
    Limits::Limited(Box::new(limits))
}

fn retry_budget(budget: &RetryBudget) -> thresholds::RetryBudget {
    let percent = budget.percent.as_ref().map_or(DEFAULT_RETRY_PERCENT, |percent| percent.value);
    let concurrency = match budget.min_retry_concurrency {
        0 => DEFAULT_RETRY_CONCURRENCY,
        concurrency => concurrency,
    };
    thresholds::RetryBudget {
        budget_percent: Some(Percent { value: percent }),
        budget_interval: budget.budget_interval,
        min_retry_concurrency: Some(concurrency.into()),
    }
}

/// Probes idle connections; what is not said is left to the operating system.
fn keep_alive(draft: &mut Draft, keepalive: &TcpKeepalive) {
    let options: &mut UpstreamConnectionOptions =
        draft.rest().upstream_connection_options.get_or_insert_default();
    let tcp = options.tcp_keepalive.get_or_insert_default();
    let seconds = |seconds: i64| UInt32Value::from(u32::try_from(seconds).unwrap_or(u32::MAX));
    if keepalive.probes > 0 {
        tcp.keepalive_probes = Some(keepalive.probes.into());
    }
    if let Some(time) = keepalive.time {
        tcp.keepalive_time = Some(seconds(time.seconds));
    }
    if let Some(interval) = keepalive.interval {
        tcp.keepalive_interval = Some(seconds(interval.seconds));
    }
}

fn set_lifetimes(draft: &mut Draft, pool: &ConnectionPoolSettings) {
    let (http, tcp) = (pool.http.as_ref(), pool.tcp.as_ref());
    let idle = http.and_then(|http| http.idle_timeout).or_else(|| tcp.and_then(|tcp| tcp.idle_timeout));
    let longest = tcp.and_then(|tcp| tcp.max_connection_duration);
    let requests = http.map_or(0, |http| http.max_requests_per_connection.cast_unsigned());
    let streams = http.map_or(0, |http| http.max_concurrent_streams.cast_unsigned());
    let pings = http.and_then(|http| http.http2_keep_alive.as_ref());
    if idle.is_none() && longest.is_none() && requests == 0 && streams == 0 && pings.is_none() {
        return;
    }
    let common = draft.http().common_http_protocol_options.get_or_insert_default();
    if idle.is_some() {
        common.idle_timeout = idle;
    }
    if requests > 0 {
        common.max_requests_per_connection = Some(requests.into());
    }
    if longest.is_some() {
        common.max_connection_duration = longest;
    }
    let Some(http2) = draft.http2() else { return };
    if streams > 0 {
        http2.max_concurrent_streams = Some(streams.into());
    }
    if let Some(pings) = pings {
        http2.connection_keepalive = Some(KeepaliveSettings {
            interval: pings.interval,
            timeout: pings.timeout,
            ..Default::default()
        });
    }
}

/// Whether requests to a port are sent over HTTP/2 although it does not ask for that.
pub(super) fn upgrades_to_http2(
    settings: &MeshSettings,
    protocol: Protocol,
    pool: &ConnectionPoolSettings,
) -> bool {
    if let Some(http) = &pool.http {
        match http.h2_upgrade_policy() {
            _ if http.use_client_protocol => return false,
            // A DestinationRule that asks for the upgrade asserts that the port is HTTP, whatever it is declared as.
            Upgrade::Upgrade => return true,
            Upgrade::DoNotUpgrade => return false,
            Upgrade::Default => {}
        }
    }
    protocol.is_http() && settings.mesh.h2_upgrade_policy() == MeshUpgrade::Upgrade
}
