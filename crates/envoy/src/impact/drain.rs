//! Which connections Envoy drains when a listener changes.
//!
//! Envoy replaces a listener that is not equal, and drains all its connections, but for one case: if nothing but filter
//! chains differs, it keeps the listener and drains the connections of the chains that are gone or changed.

use canopus_proto::Message as _;
use canopus_proto::envoy::config::listener::v3::{FilterChain, Listener};
use canopus_proto::resource::Resource;

use super::Difference;

/// What is drained.
pub(super) struct Drain {
    /// The chains; if there are none, the whole listener.
    pub(super) chains: Vec<String>,
}

/// What a change of a listener drains; `None` if no connection is.
pub(super) fn of(difference: &Difference) -> Option<Drain> {
    let whole = Some(Drain { chains: Vec::new() });
    let before = difference.before.as_ref()?;
    let Some(after) = &difference.after else { return whole };
    let (Some(before), Some(after)) = (read(before), read(after)) else { return whole };
    let (old, old_chains) = taken_apart(before);
    let (new, new_chains) = taken_apart(after);
    // Envoy keeps a listener only as long as it has chains.
    if old != new
        || new_chains.is_empty()
        || has_proxy_protocol(&old_chains) != has_proxy_protocol(&new_chains)
    {
        return whole;
    }
    let changed = old_chains.iter().filter(|chain| !new_chains.contains(chain));
    let chains: Vec<String> = changed.map(name).collect();
    (!chains.is_empty()).then_some(Drain { chains })
}

fn read(resource: &Resource) -> Option<Listener> {
    Listener::decode(resource.body.clone()).ok()
}

/// A listener without its chains, and the chains.
fn taken_apart(mut listener: Listener) -> (Listener, Vec<FilterChain>) {
    let mut chains = std::mem::take(&mut listener.filter_chains);
    chains.extend(listener.default_filter_chain.take());
    listener.filter_chain_matcher = None;
    (listener, chains)
}

#[expect(deprecated, reason = "Envoy looks at it, and users' own patches may set it")]
fn has_proxy_protocol(chains: &[FilterChain]) -> bool {
    chains.first().is_some_and(|chain| chain.use_proxy_proto.is_some_and(|used| used.value))
}

fn name(chain: &FilterChain) -> String {
    if chain.name.is_empty() { "(without a name)".to_owned() } else { chain.name.clone() }
}
