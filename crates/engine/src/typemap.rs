//! One value for each type, found without a lock.

use std::any::TypeId;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::OnceLock;

use rustc_hash::FxHasher;

const SLOTS: usize = 256;
/// Slots looked at before the next map is.
const PROBES: usize = 4;

/// Values by type, made when first asked for and kept as long as the map.
pub(crate) struct TypeMap<T> {
    slots: Box<[OnceLock<(TypeId, T)>]>,
    /// Types that found no free slot.
    more: OnceLock<Box<Self>>,
}

impl<T> Default for TypeMap<T> {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| OnceLock::new()).collect(), more: OnceLock::new() }
    }
}

impl<T> TypeMap<T> {
    pub(crate) fn get_or_insert_with(&self, of: TypeId, make: impl Fn() -> T) -> &T {
        let mut map = self;
        loop {
            for slot in map.places(of) {
                let (held, value) = slot.get_or_init(|| (of, make()));
                if *held == of {
                    return value;
                }
            }
            map = map.more.get_or_init(Box::default);
        }
    }

    /// Everything, in no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        let maps = std::iter::successors(Some(self), |map| map.more.get().map(|more| &**more));
        maps.flat_map(|map| &map.slots).filter_map(|slot| slot.get()).map(|(_, value)| value)
    }

    /// The slots a type may be in, the first free one being where it goes.
    fn places(&self, of: TypeId) -> impl Iterator<Item = &OnceLock<(TypeId, T)>> {
        let start = BuildHasherDefault::<FxHasher>::default().hash_one(of) as usize;
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
    fn each_type_has_a_value_of_its_own_that_stays() {
        let map = TypeMap::default();
        for _ in 0..2 {
            for (at, of) in types().into_iter().enumerate() {
                assert_eq!(*map.get_or_insert_with(of, || at), at);
            }
        }
        let mut values: Vec<_> = map.values().copied().collect();
        values.sort_unstable();
        assert_eq!(values, (0..types().len()).collect::<Vec<_>>());
    }

    #[test]
    fn types_that_find_no_slot_go_into_the_next_map() {
        let map = TypeMap::default();
        // A map whose every slot is taken by others.
        for slot in &map.slots {
            assert!(slot.set((TypeId::of::<str>(), 0)).is_ok());
        }
        let of = TypeId::of::<Numbered<0>>();
        assert_eq!(*map.get_or_insert_with(of, || 7), 7);
        assert_eq!(*map.get_or_insert_with(of, || 8), 7);
        assert!(map.more.get().is_some());
    }
}
