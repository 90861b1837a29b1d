//! Locality-aware load balancing: weights of localities, failover between regions.

use std::collections::BTreeMap;

use canopus_proto::istio::networking::v1alpha3::locality_load_balancer_setting::Distribute;
use canopus_proto::istio::networking::v1alpha3::{LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting};

use super::code::{Code, Fault, codes};
use super::scope::Scope;

codes! {
    DISTRIBUTE_AND_FAILOVER: error "locality-distribute-and-failover", "use either distribute or failover";
    FAILOVER_AND_TOPOLOGY: error "locality-failover-and-topology-priority",
        "use either failover or topology labels in failoverPriority";
    BAD_WEIGHT: error "locality-weight-out-of-range", "give each locality between 1 and 100";
    TOTAL_WEIGHT: error "locality-weights-not-100", "make the weights add up to 100";
    WILDCARD: error "locality-wildcard-misplaced", "use at most one *, at the end";
    EMPTY_PART: error "locality-part-empty", "write localities as region/zone/subzone, leaving parts out at the end";
    OVERLAP: error "locality-overlap", "make sure that no two localities contain each other";
    NO_OUTLIER_DETECTION: warning "locality-failover-without-outlier-detection",
        "add outlierDetection: without it no endpoint is ever found unhealthy";
    SAME_REGION: error "locality-failover-to-itself", "fail over to another region";
    NOT_A_REGION: error "locality-failover-not-a-region", "name regions only";
    REGION_WILDCARD: error "locality-failover-wildcard", "name each region in full";
    ZONE_AWARE_TOPOLOGY: error "zone-aware-topology-priority",
        "remove the topology label: regions and zones are ordered anyway";
}

const TOPOLOGY: [&str; 3] =
    ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"];

/// Weights or failover of localities. Failover needs somebody to find out that an endpoint is unhealthy.
pub fn check(setting: &LocalityLoadBalancerSetting, has_outlier_detection: bool, mut scope: Scope<'_>) {
    let LocalityLoadBalancerSetting { distribute, failover, failover_priority, .. } = setting;
    if !distribute.is_empty() && !failover.is_empty() {
        let message = "can not simultaneously specify 'distribute' and 'failover'";
        scope.add(DISTRIBUTE_AND_FAILOVER.says(message));
        return rest(setting, has_outlier_detection, scope.ours());
    }
    let topology = failover_priority.iter().find(|label| is_topology(label));
    if let (false, Some(label)) = (failover.is_empty(), topology) {
        let message = format!(
            "can not simultaneously set 'failover' and topology label '{label}' in 'failover_priority'"
        );
        scope.field("failoverPriority").add(FAILOVER_AND_TOPOLOGY.says(message).with_value(label));
        return rest(setting, has_outlier_detection, scope.ours());
    }
    rest(setting, has_outlier_detection, scope);
}

fn is_topology(label: &str) -> bool {
    TOPOLOGY.contains(&label)
}

fn rest(setting: &LocalityLoadBalancerSetting, has_outlier_detection: bool, mut scope: Scope<'_>) {
    let mut sound = true;
    scope.each("distribute", &setting.distribute, |distribute, scope| {
        // Parity: Istio looks at nothing more once the weights of one locality are wrong.
        let scope = if sound { scope } else { scope.ours() };
        sound &= distribution(distribute, scope);
    });
    let mut scope = if sound { scope } else { scope.ours() };
    let sources = setting.distribute.iter().map(|distribute| distribute.from.as_str());
    scope.field("distribute").require(distinct(sources));
    let failover = setting.failover.iter().map(|failover| (&*failover.from, &*failover.to));
    let has_failover = !setting.failover.is_empty() || !setting.failover_priority.is_empty();
    outliers(has_failover, has_outlier_detection, scope.again());
    regions(failover, scope, FailoverWords::LOCALITY);
}

/// The weights of the localities traffic from one locality goes to; tells whether they are sound.
fn distribution(distribute: &Distribute, mut scope: Scope<'_>) -> bool {
    let wrong_weights = scope.fails(|mut scope| scope.field("to").require(weights(&distribute.to)));
    let mut scope = if wrong_weights { scope.ours() } else { scope };
    scope.field("to").require(distinct(distribute.to.keys().map(String::as_str)));
    !wrong_weights
}

fn weights(to: &BTreeMap<String, u32>) -> Result<(), Fault> {
    if let Some(weight) = to.values().find(|weight| !(1..=100).contains(*weight)) {
        return Err(BAD_WEIGHT.says("locality weight must be in range [1, 100]").with_value(weight));
    }
    let total: u64 = to.values().map(|weight| u64::from(*weight)).sum();
    if total == 100 {
        return Ok(());
    }
    Err(TOTAL_WEIGHT.says(format!("total locality weight {total} != 100")).with_value(total))
}

fn outliers(has_failover: bool, has_outlier_detection: bool, mut scope: Scope<'_>) {
    scope.add_if(has_failover && !has_outlier_detection, || {
        NO_OUTLIER_DETECTION.says("outlier detection policy must be provided for failover")
    });
}

/// How two kinds of load balancing word the same rules.
struct FailoverWords {
    same: &'static str,
    not_a_region: &'static str,
    wildcard: &'static str,
}

impl FailoverWords {
    const LOCALITY: Self = Self {
        same: "locality lb failover settings must specify different regions",
        not_a_region: "locality lb failover only specify region",
        wildcard: "locality lb failover region should not contain '*' wildcard",
    };
    const ZONE_AWARE: Self = Self {
        same: "zone aware lb failover settings must specify different regions",
        not_a_region: "zone aware lb failover only specifies region; zone and subzone failover are handled automatically",
        wildcard: "zone aware lb failover region should not contain '*' wildcard",
    };
}

fn regions<'a>(
    failover: impl Iterator<Item = (&'a str, &'a str)>,
    mut scope: Scope<'_>,
    words: FailoverWords,
) {
    let mut scope = scope.field("failover");
    for (index, (from, to)) in failover.enumerate() {
        let mut scope = scope.item(index);
        let mut add_if = |broken: bool, code: &'static Code, message: &'static str| {
            scope.add_if(broken, || code.says(message).with_value(format_args!("{from} to {to}")));
        };
        add_if(from == to, &SAME_REGION, words.same);
        add_if(from.contains('/') || to.contains('/'), &NOT_A_REGION, words.not_a_region);
        add_if(from.contains('*') || to.contains('*'), &REGION_WILDCARD, words.wildcard);
    }
}

/// Zone-aware load balancing: failover between regions only, since the rest is done by proxies themselves.
pub fn zone_aware(setting: &ZoneAwareLoadBalancerSetting, has_outlier_detection: bool, mut scope: Scope<'_>) {
    scope.each("failoverPriority", &setting.failover_priority, |label, mut scope| {
        scope.add_if(is_topology(label), || {
            let message = format!(
                "'failover_priority' for zone aware lb must not use topology label '{label}'; region- and zone-level \
                 routing are handled automatically"
            );
            ZONE_AWARE_TOPOLOGY.says(message).with_value(label)
        });
    });
    let has_failover = !setting.failover.is_empty() || !setting.failover_priority.is_empty();
    outliers(has_failover, has_outlier_detection, scope.again());
    let failover = setting.failover.iter().map(|failover| (&*failover.from, &*failover.to));
    regions(failover, scope, FailoverWords::ZONE_AWARE);
}

/// What was seen below a region or a zone.
#[derive(Default)]
struct Covered<'a> {
    /// All localities below this one are taken.
    all: bool,
    parts: BTreeMap<&'a str, Covered<'a>>,
}

/// Localities of which none contains another.
pub fn distinct<'a>(localities: impl IntoIterator<Item = &'a str>) -> Result<(), Fault> {
    let mut world = Covered::default();
    for locality in localities {
        let stars = locality.matches('*').count();
        if stars > 1 || (stars == 1 && !locality.ends_with('*')) {
            let message =
                format!("locality {locality} wildcard '*' number can not exceed 1 and must be in the end");
            return Err(WILDCARD.says(message).with_value(locality));
        }
        let overlap = || {
            let message = format!("locality {locality} overlap with previous specified ones");
            OVERLAP.says(message).with_value(locality)
        };
        if world.parts.contains_key("*") {
            return Err(overlap());
        }
        let parts: Vec<_> = locality.splitn(3, '/').collect();
        if parts.iter().any(|part| part.is_empty()) {
            let message = format!("locality {locality} must not contain empty region/zone/subzone info");
            return Err(EMPTY_PART.says(message).with_value(locality));
        }
        if !take(&mut world, &parts) {
            return Err(overlap());
        }
    }
    Ok(())
}

/// Marks a locality as seen; tells whether it was free.
fn take<'a>(world: &mut Covered<'a>, parts: &[&'a str]) -> bool {
    let (last, outer) = parts.split_last().expect("splitting yields at least one part");
    let mut place = world;
    for part in outer {
        place = place.parts.entry(part).or_default();
        if place.all || place.parts.contains_key("*") {
            return false;
        }
    }
    if place.parts.contains_key(last) {
        return false;
    }
    let whole = Covered { all: true, parts: BTreeMap::new() };
    place.parts.insert(last, whole);
    true
}
