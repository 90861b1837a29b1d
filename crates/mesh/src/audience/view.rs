//! Everything that is known about a proxy, before reduction.

use std::net::IpAddr;
use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_base::labels::Labels;
use canopus_engine::Ctx;
use canopus_runtime::flags::{Flags, PILOT_ENABLE_IP_AUTOALLOCATE};

use crate::gateway::{self, GatewayRunner};
use crate::locality::Locality;
use crate::proxy::{Addressing, Proxy, Role};
use crate::proxy_workload::{Described, describe};
use crate::target::{self, PortTarget};
use crate::waypoint::WaypointRunner;

/// A proxy with everything that the mesh knows about it. Audiences are derived from it; generators never see it.
#[derive(Clone)]
pub struct View {
    /// The proxy as it connected.
    pub proxy: Proxy,
    /// What it is deployed for.
    pub role: Role,
    /// The namespace whose configuration applies.
    pub namespace: Arc<str>,
    /// The labels of the workload, with location labels added.
    pub labels: Labels,
    /// The locality of the workload.
    pub locality: Locality,
    /// The service ports that lead to the proxy, for gateways and waypoints; empty for sidecars.
    pub port_targets: Vec<PortTarget>,
}

impl View {
    /// Collects what is known about a proxy.
    pub fn new(ctx: &Ctx<'_>, proxy: &Proxy) -> Self {
        let Described { labels, locality } = describe(ctx, proxy);
        let is_gateway = matches!(proxy.id.kind, NodeKind::Router | NodeKind::Waypoint);
        Self {
            proxy: proxy.clone(),
            role: Role::new(proxy.id.kind, &labels),
            namespace: proxy.namespace().into(),
            labels,
            locality,
            port_targets: if is_gateway { target::port_targets(ctx, proxy) } else { Vec::new() },
        }
    }

    /// Which addresses it can use.
    pub fn addressing(&self, flags: &Flags) -> Addressing {
        let metadata = &self.proxy.metadata;
        let is_allocated = metadata.dns_auto_allocate.0 || flags.get(PILOT_ENABLE_IP_AUTOALLOCATE);
        let asks_agent = metadata.dns_capture.0 || self.role.kind == NodeKind::Waypoint;
        Addressing {
            ipv4: self.proxy.id.addresses.iter().any(IpAddr::is_ipv4),
            ipv6: self.proxy.id.addresses.iter().any(IpAddr::is_ipv6),
            cluster: metadata.cluster_id.as_str().into(),
            uses_allocated: is_allocated && asks_agent,
        }
    }

    /// Reduces the proxy to what decides which Gateways it runs. No Gateway selects a sidecar.
    pub fn gateway_runner(&self, ctx: &Ctx<'_>) -> GatewayRunner {
        GatewayRunner {
            namespace: self.namespace.clone(),
            labels: gateway::selector_labels(ctx, &self.labels),
            port_targets: self.port_targets.clone(),
            identity: self.proxy.identity.clone(),
        }
    }

    /// Reduces a waypoint to what decides which services are behind it. Returns `None` for other proxies.
    pub fn waypoint_runner(&self) -> Option<WaypointRunner> {
        (self.role.kind == NodeKind::Waypoint).then(|| WaypointRunner {
            namespace: self.namespace.clone(),
            is_east_west_gateway: self.role.is_east_west_gateway,
            cluster: self.proxy.metadata.cluster_id.as_str().into(),
            network: self.proxy.metadata.network.as_str().into(),
            port_targets: self.port_targets.clone(),
        })
    }
}
