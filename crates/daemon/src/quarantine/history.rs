//! What objects were before they changed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use canopus_api::{Kind, Object};
use canopus_mesh::world::Origin;

/// Changes that are kept.
const KEPT: usize = 4096;

/// The latest changes of objects that somebody wrote, with what they replaced.
#[derive(Default)]
pub(super) struct History {
    changes: VecDeque<Change>,
}

struct Change {
    revision: u64,
    origin: Origin,
    before: Option<Arc<Object>>,
}

impl History {
    /// A batch led to a revision and replaced these values.
    pub(super) fn record(
        &mut self,
        revision: u64,
        replaced: impl IntoIterator<Item = (Origin, Option<Arc<Object>>)>,
    ) {
        for (origin, before) in replaced {
            if self.changes.len() >= KEPT {
                self.changes.pop_front();
            }
            self.changes.push_back(Change { revision, origin, before });
        }
    }

    /// What the objects that changed after a revision were then.
    pub(super) fn since(&self, revision: u64) -> BTreeMap<Origin, Option<Arc<Object>>> {
        let start = self.changes.partition_point(|change| change.revision <= revision);
        let mut before = BTreeMap::new();
        for change in self.changes.range(start..) {
            before.entry(change.origin.clone()).or_insert_with(|| change.before.clone());
        }
        before
    }
}

/// Whether objects of a kind are written by somebody who can be told that they are wrong. Others follow from what runs; they
/// change often and are never held.
pub(super) fn is_written(kind: Kind) -> bool {
    !matches!(kind, Kind::EndpointSlice | Kind::Pod | Kind::Node | Kind::Namespace)
}

/// Whether objects of a kind may be served at an earlier value. Those that say who may do what, or whom to trust, never are:
/// security fails closed, and a proxy that rejects them keeps what it has.
pub(super) fn may_be_held(kind: Kind) -> bool {
    let protects = matches!(
        kind,
        Kind::AuthorizationPolicy
            | Kind::PeerAuthentication
            | Kind::RequestAuthentication
            | Kind::Secret
            | Kind::ConfigMap
            | Kind::BackendTlsPolicy
            | Kind::ReferenceGrant
    );
    is_written(kind) && !protects
}

#[cfg(test)]
mod tests {
    use canopus_api::{ObjectKey, Options};
    use canopus_base::tree::Limits;

    use super::*;

    fn origin(name: &str) -> Origin {
        Origin::new("c", ObjectKey::new(Kind::Service, "n", name))
    }

    fn service(port: u16) -> Arc<Object> {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: a, namespace: shop}}\nspec: {{ports: [{{port: {port}}}]}}"
        );
        let mut all = canopus_api::decode_documents(&text, &Limits::default(), Options::watch());
        Arc::new(all.pop().unwrap().unwrap().value)
    }

    #[test]
    fn value_at_a_revision_is_what_the_first_later_change_replaced() {
        let mut history = History::default();
        history.record(1, [(origin("a"), None)]);
        history.record(2, [(origin("a"), Some(service(1))), (origin("b"), None)]);
        history.record(3, [(origin("a"), Some(service(2)))]);
        let first = history.since(1);
        assert_eq!(first[&origin("a")], Some(service(1)));
        assert_eq!(first[&origin("b")], None);
        assert_eq!(history.since(2)[&origin("a")], Some(service(2)));
        assert!(history.since(3).is_empty());
    }

    #[test]
    fn oldest_changes_are_forgotten() {
        let mut history = History::default();
        for revision in 0..2 * KEPT as u64 {
            history.record(revision, [(origin("a"), None)]);
        }
        assert_eq!(history.changes.len(), KEPT);
    }
}
