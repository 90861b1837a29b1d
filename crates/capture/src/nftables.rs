//! nftables programs: one transaction that replaces capture's own tables.
//!
//! Unlike iptables, capture has tables of its own here, for both families at once, and the kernel takes a transaction
//! whole or not at all. Applying one flushes those tables first, so the result does not depend on what was there.

mod ambient;
mod sidecar;
mod transaction;

pub use ambient::{AMBIENT_HOST_TABLE, ambient_cleanup, ambient_host, ambient_pod};
pub use sidecar::{cleanup, sidecar};
pub use transaction::{Chain, Hook, Listing, Operation, RuleList, Transaction};

use crate::config::Family;

/// The keyword for addresses of a family.
pub(crate) fn keyword(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}
