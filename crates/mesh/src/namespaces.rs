//! Which namespaces have objects of a kind.
//!
//! Namespaces are dealt out to parts, so that one object more or less is looked for among few.

use std::sync::Arc;

use canopus_api::Kind;
use canopus_base::hash::ContentHash;
use canopus_engine::{Ctx, Query};

use crate::world::{ObjectIndex, Objects, Origin};

/// How many parts there are.
const GROUPS: u8 = 64;

/// The kinds that are kept in parts: those a mesh has many of and that are looked for in all of it.
pub(crate) fn is_grouped(kind: Kind) -> bool {
    matches!(kind, Kind::Service | Kind::ServiceEntry | Kind::VirtualService | Kind::DestinationRule)
}

/// The part of a namespace.
pub(crate) fn namespace_group(namespace: &str) -> u8 {
    let hash = ContentHash::of(namespace.as_bytes()).as_u128() % u128::from(GROUPS);
    u8::try_from(hash).expect("there are fewer parts than that")
}

/// The namespaces with objects of a kind that [`is_parted`], sorted.
pub(crate) struct NamespacesWith;

impl Query for NamespacesWith {
    const NAME: &'static str = "namespaces_with";
    type Key = Kind;
    type Value = Vec<Arc<str>>;

    fn run(ctx: &Ctx<'_>, kind: &Kind) -> Self::Value {
        let parts = (0..GROUPS).map(|part| ctx.get::<NamespacesInGroup>(&(*kind, part)));
        let mut namespaces: Vec<_> = parts.flat_map(|part| part.to_vec()).collect();
        namespaces.sort_unstable();
        namespaces
    }
}

/// The namespaces of one part.
struct NamespacesInGroup;

impl Query for NamespacesInGroup {
    const NAME: &'static str = "namespaces_of_part";
    type Key = (Kind, u8);
    type Value = Vec<Arc<str>>;

    fn run(ctx: &Ctx<'_>, (kind, part): &Self::Key) -> Self::Value {
        let origins = ctx.members::<Objects>(&ObjectIndex::NamespaceGroup(*kind, *part));
        let mut names: Vec<&str> = origins.iter().map(Origin::namespace).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(Arc::from).collect()
    }
}
