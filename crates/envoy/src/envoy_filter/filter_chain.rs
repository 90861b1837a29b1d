//! Patches of filter chains.

use canopus_proto::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};
use canopus_proto::istio::networking::v1alpha3::envoy_filter::ListenerMatch;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::patch::Operation;

use super::compile::Patch;
use super::listener::{Patching, is_meant, is_virtual};
use super::{merge, network_filter};

/// Patches the chains of a listener and adds some.
pub(super) fn patch(patching: &mut Patching<'_>, listener: &mut Listener) {
    let mut chains = std::mem::take(&mut listener.filter_chains);
    chains.retain_mut(|chain| !chain.filters.is_empty() && patch_one(patching, listener, chain));
    if let Some(mut chain) = listener.default_filter_chain.take()
        && (chain.filters.is_empty() || patch_one(patching, listener, &mut chain))
    {
        listener.default_filter_chain = Some(chain);
    }
    let adding = patching.patches.filter_chains.iter().filter(|patch| patch.operation == Operation::Add);
    for patch in adding {
        // A chain without filters would do nothing with its connections.
        let value = patch.value.as_ref().filter(|chain| !chain.filters.is_empty());
        let value = value.filter(|_| is_meant(patch, patching.side, listener));
        patching.tally.note(&patch.id, value.is_some());
        chains.extend(value.cloned());
    }
    listener.filter_chains = chains;
}

/// Patches a chain; `false` if it is removed.
fn patch_one(patching: &mut Patching<'_>, listener: &Listener, chain: &mut FilterChain) -> bool {
    let patches = patching.patches;
    for patch in patches.filter_chains.iter().filter(|patch| patch.operation != Operation::Add) {
        let matches = is_meant(patch, patching.side, listener) && has_chain(patch, listener, chain);
        if matches && patch.operation == Operation::Remove {
            patching.tally.note(&patch.id, true);
            return false;
        }
        let merged = matches && patch.is_merge() && merge_into(chain, patch);
        patching.tally.note(&patch.id, merged);
    }
    network_filter::patch(patching, listener, chain);
    true
}

fn merge_into(chain: &mut FilterChain, patch: &Patch<FilterChain>) -> bool {
    let Some(value) = &patch.value else { return false };
    match (&mut chain.transport_socket, &value.transport_socket) {
        // Parity: a patch of the transport socket is nothing else.
        (Some(socket), Some(patch)) if socket.name == patch.name => merge::transport_socket(socket, patch),
        _ => merge::into(chain, value, patch.operation),
    }
}

/// Whether a patch of something inside a chain may be for this one, given that the listener is meant.
pub(super) fn has_chain<M>(patch: &Patch<M>, listener: &Listener, chain: &FilterChain) -> bool {
    patch.listener().is_none_or(|wanted| is_chain(wanted, listener, chain))
}

fn is_chain(wanted: &ListenerMatch, listener: &Listener, chain: &FilterChain) -> bool {
    let none = FilterChainMatch::default();
    let criteria = chain.filter_chain_match.as_ref().unwrap_or(&none);
    let port = criteria.destination_port.as_ref().map_or(0, |port| port.value);
    if is_virtual(listener) && wanted.port_number > 0 && wanted.port_number != port {
        return false;
    }
    let Some(wanted) = &wanted.filter_chain else { return true };
    let has_protocol = |protocol: &str| criteria.application_protocols.iter().any(|own| own == protocol);
    (wanted.name.is_empty() || wanted.name == chain.name)
        && (wanted.sni.is_empty() || criteria.server_names.contains(&wanted.sni))
        && (wanted.transport_protocol.is_empty() || wanted.transport_protocol == criteria.transport_protocol)
        && (wanted.application_protocols.is_empty()
            || wanted.application_protocols.split(',').all(has_protocol))
        && (wanted.destination_port == 0 || wanted.destination_port == port)
}
