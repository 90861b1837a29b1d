//! One value for each type, found without a lock.
//!
//! A fixed array of slots with linear probing. A slot, once set, never changes, so lookups need no synchronisation beyond
//! [`OnceLock`]. Types that find no free slot go into a further map of the same size.

use std::any::TypeId;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::OnceLock;

use rustc_hash::FxHasher;

const SLOTS: usize = 256;
/// Slots probed before the next map is tried.
const PROBES: usize = 4;

/// Values by type, made when first asked for and kept for as long as the map.
pub(crate) struct TypeMap<T> {
    slots: Box<[OnceLock<(TypeId, T)>]>,
    /// For types that found no free slot.
    overflow: OnceLock<Box<Self>>,
}

impl<T> Default for TypeMap<T> {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| OnceLock::new()).collect(), overflow: OnceLock::new() }
    }
}

impl<T> TypeMap<T> {
    pub(crate) fn get_or_insert_with(&self, type_id: TypeId, make: impl Fn() -> T) -> &T {
        let mut map = self;
        loop {
            for slot in map.probe(type_id) {
                let (taken_by, value) = slot.get_or_init(|| (type_id, make()));
                if *taken_by == type_id {
                    return value;
                }
            }
            map = map.overflow.get_or_init(Box::default);
        }
    }

    /// All values, in no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        let maps = std::iter::successors(Some(self), |map| map.overflow.get().map(|overflow| &**overflow));
        maps.flat_map(|map| &map.slots).filter_map(|slot| slot.get()).map(|(_, value)| value)
    }

    /// The slots a type may be in. It takes the first free one.
    fn probe(&self, type_id: TypeId) -> impl Iterator<Item = &OnceLock<(TypeId, T)>> {
        let start = BuildHasherDefault::<FxHasher>::default().hash_one(type_id) as usize;
        (0..PROBES).map(move |step| &self.slots[start.wrapping_add(step) % SLOTS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbered<const N: usize>;

    /// The ids of some distinct types.
    fn types() -> Vec<TypeId> {
        macro_rules! ids {
            ($($n:literal)*) => { vec![$(TypeId::of::<Numbered<$n>>(), TypeId::of::<[Numbered<$n>; 1]>()),*] };
        }
        ids!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    }

    #[test]
    fn each_type_keeps_a_value_of_its_own() {
        let map = TypeMap::default();
        for _ in 0..2 {
            for (at, type_id) in types().into_iter().enumerate() {
                assert_eq!(*map.get_or_insert_with(type_id, || at), at);
            }
        }
        let mut values: Vec<_> = map.values().copied().collect();
        values.sort_unstable();
        assert_eq!(values, (0..types().len()).collect::<Vec<_>>());
    }

    #[test]
    fn value_goes_into_the_next_map_when_all_slots_are_taken() {
        let map = TypeMap::default();
        // A map whose every slot is taken by others.
        for slot in &map.slots {
            assert!(slot.set((TypeId::of::<str>(), 0)).is_ok());
        }
        let type_id = TypeId::of::<Numbered<0>>();
        assert_eq!(*map.get_or_insert_with(type_id, || 7), 7);
        assert_eq!(*map.get_or_insert_with(type_id, || 8), 7);
        assert!(map.overflow.get().is_some());
    }
}
