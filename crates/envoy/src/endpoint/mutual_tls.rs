//! Whether a proxy uses mutual TLS to an endpoint.

use std::sync::Arc;

use canopus_mesh::endpoint::{Endpoint, EndpointWorkload};
use canopus_mesh::peer_authentication::{MutualTls, PeerPolicy, workload_policy};
use canopus_mesh::workload::TLS_ISTIO;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::{ClientTlsSettings, TrafficPolicy};

use super::Destination;
use super::Env;

/// Policies that are kept at hand at most.
const MOST_KNOWN: usize = 8;

/// How connections to the endpoints of a destination are encrypted.
pub(super) struct UseOfTls<'a> {
    env: &'a Env<'a>,
    /// What the destination rule says.
    said: Option<Mode>,
    /// Workloads that were asked about, and their policies: endpoints of one service mostly have one of a few.
    known: Vec<(Arc<EndpointWorkload>, Arc<PeerPolicy>)>,
}

impl<'a> UseOfTls<'a> {
    pub(super) fn new(env: &'a Env<'a>, destination: &Destination<'_>) -> Self {
        Self { env, said: said(destination), known: Vec::new() }
    }

    /// A destination rule decides; without one, whether the workload can and its policy does not forbid it.
    pub(super) fn is_mutual(&mut self, endpoint: &Endpoint) -> bool {
        if let Some(mode) = self.said {
            return mode == Mode::IstioMutual;
        }
        *endpoint.workload.tls_mode == *TLS_ISTIO
            && self.policy(&endpoint.workload).mode_on_port(endpoint.port) != MutualTls::Disable
    }

    fn policy(&mut self, workload: &Arc<EndpointWorkload>) -> &PeerPolicy {
        let is_like = |known: &EndpointWorkload| {
            known.namespace == workload.namespace && known.labels == workload.labels
        };
        let known = self.known.iter().position(|(known, _)| is_like(known));
        let position = known.unwrap_or_else(|| {
            // Looking for them must not take longer than asking again.
            self.known.truncate(MOST_KNOWN - 1);
            let policy = workload_policy(self.env.ctx, &workload.namespace, &workload.labels);
            self.known.push((workload.clone(), policy));
            self.known.len() - 1
        });
        &self.known[position].1
    }
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
