//! How much it counts where an endpoint is: failover, distribution and zone-aware balancing.

use canopus_mesh::service::Service;
use canopus_proto::istio::mesh::v1alpha1::MeshConfig;
use canopus_proto::istio::networking::v1alpha3::{
    LoadBalancerSettings, LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting,
};

/// The setting in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Proximity {
    /// Endpoints are ordered or weighted by region, zone and subzone.
    Localities {
        /// How.
        setting: LocalityLoadBalancerSetting,
        /// Whether the order counts even without outlier detection.
        always: bool,
    },
    /// The proxy balances over the zones of its region.
    Zones(ZoneAwareLoadBalancerSetting),
}

impl Proximity {
    /// What is left of it for proxies that cannot balance over zones.
    pub(crate) fn without_zones(self) -> Self {
        match self {
            Self::Zones(_) => {
                Self::Localities { setting: LocalityLoadBalancerSetting::default(), always: true }
            }
            localities => localities,
        }
    }
}

/// What applies to a service: what its destination rule says, else the service itself, else the mesh. `None` if that is
/// nothing, or is switched off.
pub(crate) fn find(
    mesh: &MeshConfig,
    service: &Service,
    policy: Option<&LoadBalancerSettings>,
) -> Option<Proximity> {
    if let Some(zones) = policy.and_then(|policy| policy.zone_aware_lb_setting.as_ref()) {
        return Some(Proximity::Zones(zones.clone()));
    }
    if let Some(setting) = policy.and_then(|policy| policy.locality_lb_setting.as_ref()) {
        return enabled(setting);
    }
    let labels = service.traffic_distribution.preferred_labels();
    if !labels.is_empty() {
        let setting = LocalityLoadBalancerSetting {
            enabled: Some(true.into()),
            failover_priority: labels.iter().map(|&label| label.to_owned()).collect(),
            ..Default::default()
        };
        return Some(Proximity::Localities { setting, always: true });
    }
    match &mesh.zone_aware_lb_setting {
        Some(zones) => Some(Proximity::Zones(zones.clone())),
        None => mesh.locality_lb_setting.as_ref().and_then(enabled),
    }
}

fn enabled(setting: &LocalityLoadBalancerSetting) -> Option<Proximity> {
    let on = setting.enabled.as_ref().is_none_or(|enabled| enabled.value);
    on.then(|| Proximity::Localities { setting: setting.clone(), always: false })
}
