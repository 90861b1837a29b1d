//! Network filters: what handles the bytes of a connection.

pub(crate) mod pipeline;
pub(crate) mod protocols;
pub(crate) mod tcp;

use crate::audience::ListenerAudience;
use crate::telemetry::peer_metadata;

/// What makes a text in filter state count for connection pools. Older proxies of Istio and those of others know only
/// texts that do not.
pub(crate) fn hashable_string(audience: &ListenerAudience) -> &'static str {
    let known = audience.gates.hashable_filter_state && peer_metadata::is_known(&audience.build);
    if known { "istio.hashable_string" } else { "envoy.string" }
}
