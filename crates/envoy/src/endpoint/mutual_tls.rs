//! Whether a proxy uses mutual TLS to an endpoint.

use canopus_mesh::endpoint::Endpoint;
use canopus_mesh::peer_authentication::{MutualTls, WorkloadPolicy};
use canopus_mesh::workload::TLS_ISTIO;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::{ClientTlsSettings, TrafficPolicy};

use super::Destination;
use crate::env::Env;

/// A destination rule decides; without one, whether the workload can and its policy does not forbid it.
pub(super) fn is_used(env: &Env<'_>, destination: &Destination<'_>, endpoint: &Endpoint) -> bool {
    if let Some(mode) = said(destination) {
        return mode == Mode::IstioMutual;
    }
    let workload = &endpoint.workload;
    if *workload.tls_mode != *TLS_ISTIO {
        return false;
    }
    let policy = env.ctx.get::<WorkloadPolicy>(&(workload.namespace.clone(), workload.labels.clone()));
    policy.of_port(endpoint.port) != MutualTls::Disable
}

/// What the destination rule says about the port: the subset's word counts first.
fn said(destination: &Destination<'_>) -> Option<Mode> {
    let spec = &destination.rule.as_ref()?.spec;
    let port = destination.port.number;
    let general = || mode(spec.traffic_policy.as_ref()?, port);
    if destination.subset.is_empty() {
        return general();
    }
    let subset = spec.subsets.iter().find(|subset| subset.name == destination.subset)?;
    subset.traffic_policy.as_ref().and_then(|policy| mode(policy, port)).or_else(general)
}

fn mode(policy: &TrafficPolicy, port: u32) -> Option<Mode> {
    let of_port = |number: u32| {
        let levels = policy.port_level_settings.iter();
        levels
            .filter(|level| level.port.as_ref().is_some_and(|port| port.number == number))
            .find_map(|level| level.tls.as_ref())
    };
    of_port(port).or(policy.tls.as_ref()).map(ClientTlsSettings::mode)
}
