//! Interns the extension lists of proxies. A fleet shares a few long lists, so equal ones are one allocation.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

type Types = BTreeSet<String>;

/// The lists in use, by hash.
static KNOWN: Mutex<BTreeMap<u64, Vec<Weak<Types>>>> = Mutex::new(BTreeMap::new());
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Returns the shared allocation of a list.
pub(super) fn shared(types: Types) -> Arc<Types> {
    let mut known = KNOWN.lock();
    known.retain(|_, lists| {
        lists.retain(|list| list.strong_count() > 0);
        !lists.is_empty()
    });
    let lists = known.entry(HASHER.hash_one(&types)).or_default();
    if let Some(same) = lists.iter().filter_map(Weak::upgrade).find(|list| **list == types) {
        return same;
    }
    let list = Arc::new(types);
    lists.push(Arc::downgrade(&list));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_are_one_allocation_while_somebody_holds_them() {
        let list = || Types::from(["a.Filter".to_owned(), "b.Filter".to_owned()]);
        let (first, second) = (shared(list()), shared(list()));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &shared(Types::from(["c.Filter".to_owned()]))));
    }
}
