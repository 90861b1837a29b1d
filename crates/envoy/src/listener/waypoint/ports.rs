//! What is spoken on the ports of services that share a listener, and so what has to be inspected on which of them.

use std::collections::{BTreeMap, BTreeSet};

use canopus_mesh::service::Port;
use canopus_proto::envoy::config::listener::v3::ListenerFilter;

use crate::listener::inspect;

/// What is spoken on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    /// HTTP.
    Http,
    /// Any other protocol, as a stream of bytes.
    Tcp,
    /// Either, to be found out.
    Either,
}

impl Spoken {
    /// What is spoken on a port that several services have.
    pub(super) fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Either }
    }
}

/// Finds out whether HTTP is spoken, except on ports of which it is known: servers that speak first would wait for it.
pub(super) fn http_inspector(spoken: &BTreeMap<u32, Spoken>) -> ListenerFilter {
    let known = spoken.iter().filter(|(_, spoken)| **spoken != Spoken::Either);
    let known = known.map(|(port, _)| *port);
    ListenerFilter { filter_disabled: inspect::any_of(known), ..inspect::http_inspector() }
}

/// Finds out the server name, on ports of which some are TLS; `None` if there are none.
pub(super) fn tls_inspector<'a>(ports: impl Iterator<Item = &'a Port>) -> Option<ListenerFilter> {
    let (tls, other): (Vec<_>, Vec<_>) = ports.partition(|port| port.protocol.is_tls());
    let tls: BTreeSet<u32> = tls.into_iter().map(|port| port.number).collect();
    let other: BTreeSet<u32> = other.into_iter().map(|port| port.number).collect();
    let disabled = inspect::any_of(other.difference(&tls).copied());
    (!tls.is_empty()).then(|| ListenerFilter { filter_disabled: disabled, ..inspect::tls_inspector() })
}
