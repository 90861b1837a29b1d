//! What clusters and listeners refer to, learnt once for each distinct one.

use std::sync::Arc;

use bytes::Bytes;
use canopus_base::FastMap;
use canopus_proto::Any;
use canopus_xds::client::references;

use super::kind::Kind;
use super::names::{NameId, Names};

/// The names that resources of a content refer to, by its hash.
#[derive(Debug, Default)]
pub(super) struct References {
    known: FastMap<(Kind, u64), Arc<[NameId]>>,
}

impl References {
    /// Looks into a resource, if none like it was seen before.
    pub(super) fn learn(&mut self, names: &mut Names, kind: Kind, hash: u64, body: &[u8]) {
        let Some(child) = kind.child() else { return };
        self.known.entry((kind, hash)).or_insert_with(|| {
            let any = Any { type_url: kind.type_url().to_owned(), value: Bytes::copy_from_slice(body) };
            let found = references([&any]);
            let referred = found.get(child.type_url()).into_iter().flatten();
            referred.map(|name| names.id(name)).collect()
        });
    }

    /// What a resource refers to.
    pub(super) fn names(&self, kind: Kind, hash: u64) -> &[NameId] {
        self.known.get(&(kind, hash)).map(|names| &**names).unwrap_or_default()
    }
}
