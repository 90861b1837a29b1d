//! Which namespaces have objects of a kind.
//!
//! Listing them by scanning all objects of the kind would make every added object cost the whole mesh. So namespaces are
//! hashed into a fixed number of groups, each with an index of its own: adding an object re-reads one group, and
//! [`NamespacesWith`] merges the groups.

use std::sync::Arc;

use canopus_api::Kind;
use canopus_base::hash::ContentHash;
use canopus_engine::{EagerCtx, EagerQuery};

use super::{ObjectIndex, Objects, Origin};

/// The number of namespace groups.
const GROUPS: u8 = 64;

/// The kinds that have namespace groups: numerous ones that queries look for across all namespaces.
pub(crate) fn is_grouped(kind: Kind) -> bool {
    matches!(kind, Kind::Service | Kind::ServiceEntry | Kind::VirtualService | Kind::DestinationRule)
}

/// The group that a namespace hashes to.
pub(crate) fn namespace_group(namespace: &str) -> u8 {
    let hash = ContentHash::compute(namespace.as_bytes()).as_u128() % u128::from(GROUPS);
    u8::try_from(hash).expect("the remainder is below GROUPS, which is a u8")
}

/// The namespaces with objects of a kind, sorted. The kind must be one that [`is_grouped`] names.
pub(crate) struct NamespacesWith;

impl EagerQuery for NamespacesWith {
    const NAME: &'static str = "namespaces_with";
    type Key = Kind;
    type Value = Vec<Arc<str>>;

    fn run(ctx: &EagerCtx<'_>, kind: &Kind) -> Self::Value {
        let groups = (0..GROUPS).map(|group| ctx.get::<NamespacesInGroup>(&(*kind, group)));
        let mut namespaces: Vec<_> = groups.flat_map(|group| group.to_vec()).collect();
        namespaces.sort_unstable();
        namespaces
    }
}

/// The namespaces of one group with objects of a kind, sorted.
struct NamespacesInGroup;

impl EagerQuery for NamespacesInGroup {
    const NAME: &'static str = "namespaces_in_group";
    type Key = (Kind, u8);
    type Value = Vec<Arc<str>>;

    fn run(ctx: &EagerCtx<'_>, (kind, group): &Self::Key) -> Self::Value {
        let origins = ctx.members::<Objects>(&ObjectIndex::NamespaceGroup(*kind, *group));
        let mut names: Vec<&str> = origins.iter().map(Origin::namespace).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(Arc::from).collect()
    }
}
