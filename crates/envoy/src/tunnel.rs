//! HBONE tunnels as listeners, clusters and endpoints know them: the names by which they refer to each other, and who opens any.

use canopus_mesh::audience::Role;
use canopus_runtime::flags::{
    AMBIENT_ENABLE_MULTI_NETWORK, AMBIENT_ENABLE_MULTI_NETWORK_INGRESS,
    AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT, Flags, PILOT_ENABLE_SENDING_HBONE,
};

use crate::audience::Tunnels;

/// The cluster, and the internal listener, that opens tunnels.
pub(crate) const CONNECT_ORIGINATE: &str = "connect_originate";

/// The cluster, and the internal listener, that takes what came out of a tunnel.
pub(crate) const MAIN_INTERNAL: &str = "main_internal";

/// The cluster through which waypoints reach workloads by their own addresses.
pub(crate) const ENCAPSULATE: &str = "encap";
/// The cluster, and the internal listener, that passes inner tunnels on.
pub(crate) const FORWARD_INNER: &str = "forward_inner_connect";
/// The cluster, and the internal listener, that opens the inner of two tunnels.
pub(crate) const INNER_ORIGINATE: &str = "inner_connect_originate";
/// The cluster, and the internal listener, that opens the outer of two tunnels.
pub(crate) const OUTER_ORIGINATE: &str = "outer_connect_originate";

/// Whether a proxy opens tunnels to what it calls.
pub(crate) fn opens_tunnels(flags: &Flags, tunnels: Tunnels) -> bool {
    flags.get(PILOT_ENABLE_SENDING_HBONE) && tunnels.may_open
}

/// Whether a proxy reaches what is in other networks through tunnels within tunnels.
pub(crate) fn crosses_networks(flags: &Flags, role: Role, tunnels: Tunnels) -> bool {
    let crosses_at_ingress =
        flags.get(AMBIENT_ENABLE_MULTI_NETWORK) && flags.get(AMBIENT_ENABLE_MULTI_NETWORK_INGRESS);
    (role.is_ingress && crosses_at_ingress && opens_tunnels(flags, tunnels))
        || (role.is_managed_waypoint && flags.get(AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT))
}
