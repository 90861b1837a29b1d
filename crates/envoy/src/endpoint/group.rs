//! Endpoints of one locality.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_mesh::endpoint::{Endpoint, EndpointWorkload};
use canopus_mesh::locality::Locality as Place;
use canopus_mesh::workload::TLS_ISTIO;
use canopus_proto::envoy::config::core::v3::{Locality, address};
use canopus_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use canopus_proto::envoy::config::endpoint::v3::{LbEndpoint, LocalityLbEndpoints};

use super::Env;
use super::mutual_tls::UseOfTls;
use super::{Destination, lb_endpoint};

/// The endpoints of one locality, with what is still to be decided by.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// `region/zone/subzone`.
    pub(super) locality: Arc<str>,
    /// The endpoints.
    pub(super) members: Vec<Member>,
}

/// An `LbEndpoint`, with facts about the endpoint that it has no field for.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(super) message: LbEndpoint,
    pub(super) workload: Arc<EndpointWorkload>,
    pub(super) mutual_tls: bool,
}

impl Member {
    /// Whether it says where it is.
    pub(super) fn has_address(&self) -> bool {
        let Some(HostIdentifier::Endpoint(endpoint)) = &self.message.host_identifier else { return false };
        match endpoint.address.as_ref().and_then(|address| address.address.as_ref()) {
            Some(address::Address::SocketAddress(socket)) => !socket.address.is_empty(),
            _ => true,
        }
    }

    pub(super) fn weight(&self) -> u32 {
        self.message.load_balancing_weight.as_ref().map_or(0, |weight| weight.value)
    }

    /// The message; its weight stays.
    fn take_message(&mut self) -> LbEndpoint {
        let load_balancing_weight = self.message.load_balancing_weight;
        std::mem::replace(&mut self.message, LbEndpoint { load_balancing_weight, ..Default::default() })
    }
}

impl Group {
    /// Without what is behind a gateway that nobody knows.
    pub(super) fn with_addresses_only(mut self) -> Self {
        self.members.retain(Member::has_address);
        self
    }

    pub(super) fn with_mutual_tls_only(mut self) -> Self {
        self.members.retain(|member| member.mutual_tls);
        self
    }

    /// Takes the `LocalityLbEndpoints` out of the group. Without endpoints it has no weight.
    fn take_message(&mut self) -> LocalityLbEndpoints {
        let weight = self.members.iter().fold(0u32, |sum, member| sum.saturating_add(member.weight()));
        LocalityLbEndpoints {
            locality: Some(locality(&self.locality)),
            lb_endpoints: self.members.iter_mut().map(Member::take_message).collect(),
            load_balancing_weight: (!self.members.is_empty()).then(|| weight.into()),
            ..Default::default()
        }
    }
}

/// The groups as `LocalityLbEndpoints`. What is left in the groups is what they are still to be ordered by.
pub(crate) fn take_messages(groups: &mut [Group]) -> Vec<LocalityLbEndpoints> {
    groups.iter_mut().map(Group::take_message).collect()
}

fn locality(text: &str) -> Locality {
    let Place { region, zone, subzone } = Place::parse(text);
    Locality { region, zone, sub_zone: subzone }
}

/// Endpoints by locality, in the order of the localities' texts.
pub(super) fn by_locality(
    env: &Env<'_>,
    destination: &Destination<'_>,
    endpoints: &[Arc<Endpoint>],
) -> Vec<Group> {
    let mut groups: BTreeMap<Arc<str>, Vec<Member>> = BTreeMap::new();
    let mut use_of_tls = UseOfTls::new(env, destination);
    for endpoint in endpoints {
        let workload = &endpoint.workload;
        let mutual_tls = use_of_tls.is_mutual(endpoint);
        let message = lb_endpoint::lb_endpoint(env, destination, endpoint, mutual_tls);
        // A rule may ask for it where the workload does not take it.
        let mutual_tls = mutual_tls && *workload.tls_mode == *TLS_ISTIO;
        let member = Member { message, workload: workload.clone(), mutual_tls };
        groups.entry(workload.locality.clone()).or_default().push(member);
    }
    groups.into_iter().map(|(locality, members)| Group { locality, members }).collect()
}
