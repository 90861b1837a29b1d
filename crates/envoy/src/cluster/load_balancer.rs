//! Which endpoint takes the next connection or request.

use canopus_base::protocol::Protocol;
use canopus_mesh::service::Service;
use canopus_mesh::world::MeshSettings;
use canopus_proto::envoy::config::cluster::v3::cluster::common_lb_config::{
    LocalityConfigSpecifier, LocalityWeightedLbConfig, ZoneAwareLbConfig,
};
use canopus_proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, LbConfig, LbPolicy, LeastRequestLbConfig, MaglevLbConfig,
    RingHashLbConfig, RoundRobinLbConfig, SlowStartConfig,
};
use canopus_proto::envoy::config::core::v3::RuntimeDouble;
use canopus_proto::envoy::r#type::v3::Percent;
use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::consistent_hash_lb::HashAlgorithm;
use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::{
    ConsistentHashLb, LbPolicy as Written, SimpleLb,
};
use canopus_proto::istio::networking::v1alpha3::{LoadBalancerSettings, WarmupConfiguration};
use canopus_runtime::flags::{ENABLE_LOCALITY_WEIGHTED_LB_CONFIG, PILOT_ENABLE_REDIS_FILTER};

use super::draft::Draft;
use super::outlier::sends_unhealthy;
use crate::proximity::{self, Proximity};

/// The ring of a consistent hash that says no size.
const DEFAULT_RING_SIZE: u64 = 1024;

/// What a client ramps up with if it is not said: a straight line from a tenth of its share.
const DEFAULT_AGGRESSION: f64 = 1.0;
const DEFAULT_MINIMUM_PERCENT: f64 = 10.0;

/// Sets what a policy says about load balancing, and the mesh's settings where it says nothing.
pub(super) fn apply(
    draft: &mut Draft,
    settings: &MeshSettings,
    service: &Service,
    protocol: Protocol,
    is_waypoint: bool,
    policy: Option<&LoadBalancerSettings>,
) {
    if draft.lb_policy == LbPolicy::ClusterProvided {
        return;
    }
    // With unhealthy endpoints among those sent, panic would route to pods that are not ready.
    if sends_unhealthy(&settings.flags, service) {
        draft.balancing().healthy_panic_threshold.get_or_insert_default();
    }
    prefer_near(draft, settings, service, is_waypoint, policy);
    if draft.is_original_destination() {
        draft.lb_policy = LbPolicy::ClusterProvided;
        return;
    }
    // Redis clients shard by key.
    if protocol == Protocol::Redis && settings.flags.get(PILOT_ENABLE_REDIS_FILTER) {
        draft.lb_policy = LbPolicy::Maglev;
        return;
    }
    choose(draft, policy);
    if let Some(Written::ConsistentHash(hash)) = policy.and_then(|policy| policy.lb_policy.as_ref()) {
        by_hash(draft, hash);
    }
}

fn prefer_near(
    draft: &mut Draft,
    settings: &MeshSettings,
    service: &Service,
    is_waypoint: bool,
    policy: Option<&LoadBalancerSettings>,
) {
    let mut proximity = proximity::find(&settings.mesh, service, policy);
    if is_waypoint {
        // Waypoints do not know the zones of their own kind.
        proximity = proximity.map(Proximity::without_zones);
    }
    let by_weight = match proximity {
        Some(Proximity::Zones(zones)) => {
            let disabled = zones.enabled.as_ref().is_some_and(|enabled| !enabled.value);
            let config = ZoneAwareLbConfig {
                routing_enabled: disabled.then(Percent::default),
                min_cluster_size: zones.min_cluster_size.map(|size| u64::from(size.value).into()),
                ..Default::default()
            };
            draft.balancing().locality_config_specifier =
                Some(LocalityConfigSpecifier::ZoneAwareLbConfig(config));
            return;
        }
        Some(Proximity::Localities { setting, always }) => {
            // Without outlier detection nothing would ever be found to have failed.
            let fails_over = always || draft.detects_outliers();
            let ordered = !setting.failover.is_empty() || !setting.failover_priority.is_empty();
            !setting.distribute.is_empty() || (fails_over && ordered)
        }
        None => false,
    };
    if by_weight || settings.flags.get(ENABLE_LOCALITY_WEIGHTED_LB_CONFIG) {
        draft.balancing().locality_config_specifier =
            Some(LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig {}));
    }
}

fn choose(draft: &mut Draft, policy: Option<&LoadBalancerSettings>) {
    let slow_start = policy.and_then(slow_start);
    match simple(policy) {
        SimpleLb::Random => draft.lb_policy = LbPolicy::Random,
        SimpleLb::RoundRobin => {
            draft.lb_policy = LbPolicy::RoundRobin;
            if let Some(start) = slow_start {
                let config = RoundRobinLbConfig { slow_start_config: Some(start) };
                draft.rest().lb_config = Some(LbConfig::RoundRobinLbConfig(config));
            }
        }
        SimpleLb::Passthrough => {
            draft.lb_policy = LbPolicy::ClusterProvided;
            draft.discovery = ClusterDiscoveryType::Type(DiscoveryType::OriginalDst as i32);
            draft.rest().load_assignment = None;
        }
        // Also the older name of it, and nothing said.
        _ => {
            draft.lb_policy = LbPolicy::LeastRequest;
            if let Some(start) = slow_start {
                let config = LeastRequestLbConfig { slow_start_config: Some(start), ..Default::default() };
                draft.rest().lb_config = Some(LbConfig::LeastRequestLbConfig(config));
            }
        }
    }
}

/// The algorithm a policy names, if it names one.
pub(super) fn simple(policy: Option<&LoadBalancerSettings>) -> SimpleLb {
    match policy.and_then(|policy| policy.lb_policy.as_ref()) {
        Some(Written::Simple(simple)) => SimpleLb::try_from(*simple).unwrap_or_default(),
        _ => SimpleLb::Unspecified,
    }
}

fn slow_start(policy: &LoadBalancerSettings) -> Option<SlowStartConfig> {
    match &policy.warmup {
        Some(warmup) => Some(warm_up(warmup)),
        None => policy
            .warmup_duration_secs
            .map(|window| SlowStartConfig { slow_start_window: Some(window), ..Default::default() }),
    }
}

fn warm_up(warmup: &WarmupConfiguration) -> SlowStartConfig {
    let aggression = warmup.aggression.as_ref().map_or(DEFAULT_AGGRESSION, |aggression| aggression.value);
    let minimum = warmup.minimum_percent.as_ref().map_or(DEFAULT_MINIMUM_PERCENT, |percent| percent.value);
    SlowStartConfig {
        slow_start_window: warmup.duration,
        // Parity: Envoy wants a runtime key, and nobody is to set it.
        aggression: Some(RuntimeDouble { default_value: aggression, runtime_key: "(".to_owned() }),
        min_weight_percent: Some(Percent { value: minimum }),
    }
}

fn by_hash(draft: &mut Draft, hash: &ConsistentHashLb) {
    let (policy, config) = hashing(hash);
    draft.lb_policy = policy;
    if config.is_some() {
        draft.rest().lb_config = config;
    }
}

/// The consistent-hashing policy (ring hash or Maglev) and its settings.
#[expect(deprecated, reason = "the older way to say the size of a ring")]
pub(crate) fn hashing(hash: &ConsistentHashLb) -> (LbPolicy, Option<LbConfig>) {
    let ring = |size: u64| {
        LbConfig::RingHashLbConfig(RingHashLbConfig {
            minimum_ring_size: Some(size.into()),
            ..Default::default()
        })
    };
    match &hash.hash_algorithm {
        Some(HashAlgorithm::Maglev(maglev)) => {
            let table = || MaglevLbConfig { table_size: Some(maglev.table_size.into()) };
            (LbPolicy::Maglev, (maglev.table_size != 0).then(|| LbConfig::MaglevLbConfig(table())))
        }
        Some(HashAlgorithm::RingHash(written)) => {
            (LbPolicy::RingHash, (written.minimum_ring_size != 0).then(|| ring(written.minimum_ring_size)))
        }
        None if hash.minimum_ring_size != 0 => (LbPolicy::RingHash, Some(ring(hash.minimum_ring_size))),
        None => (LbPolicy::RingHash, Some(ring(DEFAULT_RING_SIZE))),
    }
}
