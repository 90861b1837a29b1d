//! How an endpoint is chosen.

use std::collections::BTreeSet;

use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::consistent_hash_lb::{
    HashAlgorithm, HashKey, HttpCookie, MagLev,
};
use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::{ConsistentHashLb, LbPolicy};
use canopus_proto::istio::networking::v1alpha3::{LoadBalancerSettings, WarmupConfiguration};

use crate::validate::code::codes;
use crate::validate::scope::Scope;
use crate::validate::{duration, locality};

codes! {
    COOKIE_NAME: error "load-balancer-cookie-without-name", "give the cookie a name";
    COOKIE_ATTRIBUTE_NAME: error "load-balancer-cookie-attribute-without-name", "give the attribute a name";
    COOKIE_ATTRIBUTE_TWICE: error "load-balancer-cookie-attribute-twice", "list each attribute once";
    RING_SIZE_DEPRECATED: warning "load-balancer-minimum-ring-size-deprecated", "use ringHash.minimumRingSize";
    RING_SIZE_AND_ALGORITHM: error "load-balancer-ring-size-and-algorithm",
        "remove minimumRingSize, the algorithm has its own size";
    MAGLEV_SIZE: error "load-balancer-maglev-table-size", "use a prime number below 5000011, such as 65537";
    LOCALITY_AND_ZONE_AWARE: error "load-balancer-locality-and-zone-aware",
        "use either localityLbSetting or zoneAwareLbSetting";
    WARMUP_DURATION: error "load-balancer-warmup-without-duration", "give how long the warm-up takes";
    WARMUP_PERCENT: error "load-balancer-warmup-percent", "give at most 100";
    WARMUP_AGGRESSION: error "load-balancer-warmup-aggression", "give a number above 0";
}

const MAGLEV_MAX: u64 = 5_000_011;

/// Load-balancing settings.
pub fn check(settings: &LoadBalancerSettings, has_outlier_detection: bool, mut scope: Scope<'_>) {
    if let Some(LbPolicy::ConsistentHash(hash)) = &settings.lb_policy {
        consistent_hash(hash, scope.field("consistentHash"));
    }
    let LoadBalancerSettings { locality_lb_setting, zone_aware_lb_setting, warmup, .. } = settings;
    if locality_lb_setting.is_some() && zone_aware_lb_setting.is_some() {
        let message = "only one of localityLbSetting and zoneAwareLbSetting can be set";
        scope.add(LOCALITY_AND_ZONE_AWARE.says(message));
    }
    scope.optional("localityLbSetting", locality_lb_setting.as_ref(), |setting, scope| {
        locality::check(setting, has_outlier_detection, scope);
    });
    scope.optional("zoneAwareLbSetting", zone_aware_lb_setting.as_ref(), |setting, scope| {
        locality::zone_aware(setting, has_outlier_detection, scope);
    });
    scope.optional("warmup", warmup.as_ref(), self::warmup);
}

fn consistent_hash(hash: &ConsistentHashLb, mut scope: Scope<'_>) {
    if let Some(HashKey::HttpCookie(cookie)) = &hash.hash_key {
        self::cookie(cookie, scope.field("httpCookie"));
    }
    #[expect(deprecated, reason = "this is where its use is found")]
    let ring_size = hash.minimum_ring_size;
    if ring_size != 0 {
        let message = "consistent hash MinimumRingSize is deprecated, use ConsistentHashLB's RingHash configuration instead";
        let mut scope = scope.field("minimumRingSize");
        scope.add(RING_SIZE_DEPRECATED.says(message).with_value(ring_size));
        scope.add_if(hash.hash_algorithm.is_some(), || {
            RING_SIZE_AND_ALGORITHM.says("only one of MinimumRingSize or Maglev/Ringhash can be specified")
        });
    }
    if let Some(HashAlgorithm::Maglev(maglev)) = &hash.hash_algorithm {
        self::maglev(maglev, scope.field("maglev"));
    }
}

fn cookie(cookie: &HttpCookie, mut scope: Scope<'_>) {
    if cookie.name.is_empty() {
        scope.field("name").add(COOKIE_NAME.says("name required for HttpCookie"));
    }
    let mut names = BTreeSet::new();
    for (index, attribute) in cookie.attributes.iter().enumerate() {
        let name = attribute.name.as_str();
        let mut scope = scope.field("attributes");
        let mut scope = scope.item(index);
        if name.is_empty() {
            scope.add(COOKIE_ATTRIBUTE_NAME.says("cookie attribute name cannot be empty"));
        } else if !names.insert(name) {
            let message = format!("duplicate cookie attribute name: {name}");
            scope.add(COOKIE_ATTRIBUTE_TWICE.says(message).with_value(name));
        }
    }
}

fn maglev(maglev: &MagLev, mut scope: Scope<'_>) {
    let size = maglev.table_size;
    let mut scope = scope.field("tableSize");
    scope.add_if(size == 0, || MAGLEV_SIZE.says("tableSize must be set for maglev"));
    scope.add_if(size >= MAGLEV_MAX, || {
        MAGLEV_SIZE.says("tableSize must be less than 5000011 for maglev").with_value(size)
    });
    scope.add_if(!is_prime(size), || {
        MAGLEV_SIZE.says("tableSize must be a prime number for maglev").with_value(size)
    });
}

/// Whether Envoy takes a number for a prime: 1 counts, 0 does not. Beyond what could be accepted anyway, only small
/// factors are looked for.
fn is_prime(number: u64) -> bool {
    let limit = number.isqrt().min(1 << 16);
    match number {
        1..4 => true,
        _ if number.is_multiple_of(2) => false,
        _ => (3..=limit).step_by(2).all(|factor| !number.is_multiple_of(factor)),
    }
}

fn warmup(warmup: &WarmupConfiguration, mut scope: Scope<'_>) {
    match &warmup.duration {
        Some(duration) => scope.field("duration").require(duration::positive(duration)),
        None => scope.field("duration").add(WARMUP_DURATION.says("duration is required")),
    }
    if let Some(minimum) = warmup.minimum_percent.filter(|minimum| minimum.value > 100.0) {
        let message = "minimumPercent value should be less than or equal to 100";
        scope.field("minimumPercent").add(WARMUP_PERCENT.says(message).with_value(minimum.value));
    }
    if let Some(aggression) = warmup.aggression.filter(|aggression| aggression.value <= 0.0) {
        let message = "aggression should be greater than 0";
        scope.field("aggression").add(WARMUP_AGGRESSION.says(message).with_value(aggression.value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_are_those_of_envoy() {
        for prime in [1, 2, 3, 5, 65_537, 5_000_011] {
            assert!(is_prime(prime), "{prime}");
        }
        for other in [0, 4, 9, 25, 65_536, u64::MAX - 1] {
            assert!(!is_prime(other), "{other}");
        }
    }
}
