//! Selecting the Gateways that a proxy runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_engine::Ctx;
use canopus_runtime::flags::{PILOT_ENABLE_STRICT_GATEWAY_MERGING, PILOT_SCOPE_GATEWAY_TO_NAMESPACE};

use super::{GatewayConfig, GatewayRunner, Gateways, ProxyBinding, Rejection, RejectionReason};
use crate::selector::SelectorLabels;
use crate::target::PortTarget;
use crate::world::settings;

/// A Gateway that a proxy runs.
pub(super) struct Selected {
    pub(super) gateway: Arc<GatewayConfig>,
    /// The service ports that map to ports of the proxy.
    pub(super) targets: Vec<PortTarget>,
    /// Whether a selector bound it: ports that no service has are then used as they are, and each maps to one proxy port.
    pub(super) by_selector: bool,
}

impl Selected {
    /// A Gateway whose selector matches a proxy that is behind no service.
    pub(super) fn by_selector(gateway: Arc<GatewayConfig>) -> Self {
        Self { gateway, targets: Vec::new(), by_selector: true }
    }
}

/// The Gateways that a proxy runs, oldest first, and the rejected servers of others.
pub(super) fn for_runner(ctx: &Ctx<'_>, runner: &GatewayRunner) -> (Vec<Selected>, Vec<Rejection>) {
    let flags = settings(ctx).flags.clone();
    let all = ctx.get::<Gateways>(&());
    let own_only = flags.get(PILOT_SCOPE_GATEWAY_TO_NAMESPACE);
    let in_scope = all.iter().filter(|gateway| !own_only || *gateway.namespace == *runner.namespace);
    let selected =
        in_scope.filter_map(|gateway| attach(gateway, &runner.labels, &runner.port_targets)).collect();
    if flags.get(PILOT_ENABLE_STRICT_GATEWAY_MERGING) {
        keep_managed_apart(selected)
    } else {
        (selected, Vec::new())
    }
}

/// Binds a Gateway to a proxy by selector or by service.
fn attach(gateway: &Arc<GatewayConfig>, labels: &SelectorLabels, targets: &[PortTarget]) -> Option<Selected> {
    let (targets, by_selector) = match &gateway.binding {
        ProxyBinding::Services(hosts) => {
            let of_gateway = |target: &&PortTarget| {
                hosts.contains(&*target.host) && *target.namespace == *gateway.parent_namespace
            };
            let targets: Vec<_> = targets.iter().filter(of_gateway).cloned().collect();
            (!targets.is_empty()).then_some((targets, false))?
        }
        ProxyBinding::Selector => {
            let picked = labels.are_selected_by(&gateway.spec.selector);
            picked.then(|| (targets.to_vec(), true))?
        }
    };
    Some(Selected { gateway: gateway.clone(), targets, by_selector })
}

/// A proxy deployed for Gateway API objects of a namespace runs other Gateways of that namespace only, so that servers of
/// other namespaces cannot use its credentials.
fn keep_managed_apart(selected: Vec<Selected>) -> (Vec<Selected>, Vec<Rejection>) {
    let managed: BTreeSet<_> = selected
        .iter()
        .map(|selected| &selected.gateway)
        .filter(|gateway| gateway.derived_from.is_some() && gateway.service_account.is_some())
        .map(|gateway| gateway.namespace.clone())
        .collect();
    if managed.is_empty() {
        return (selected, Vec::new());
    }
    let (kept, foreign): (Vec<_>, Vec<_>) = selected.into_iter().partition(|selected| {
        selected.gateway.derived_from.is_some() || managed.contains(&selected.gateway.namespace)
    });
    let rejected = foreign.iter().flat_map(|selected| {
        let gateway: Arc<str> = selected.gateway.qualified_name().into();
        let servers = 0..selected.gateway.spec.servers.len();
        servers.map(move |server| Rejection {
            gateway: gateway.clone(),
            server,
            reason: RejectionReason::Foreign,
        })
    });
    (kept, rejected.collect())
}
