//! Lists put together from parts that other lists share.
//!
//! What a mesh has many of is kept as parts of a few dozen each: where one thing changes, one part is made anew, and a list
//! of all is as many pointers as there are parts.

use std::iter::FusedIterator;
use std::sync::Arc;

/// Things in order, in parts that other lists may share.
#[derive(Debug)]
pub struct List<T> {
    segments: Arc<[Segment<T>]>,
}

/// Some of the things of a list.
pub type Segment<T> = Arc<Vec<Arc<T>>>;

impl<T> List<T> {
    /// The things of these parts, one part after the other.
    pub fn from_segments(parts: impl IntoIterator<Item = Segment<T>>) -> Self {
        Self { segments: parts.into_iter().filter(|part| !part.is_empty()).collect() }
    }

    /// All of some lists, one after the other.
    pub(crate) fn concat<'a>(lists: impl IntoIterator<Item = &'a Self>) -> Self
    where
        T: 'a,
    {
        Self { segments: lists.into_iter().flat_map(|list| list.segments.iter().cloned()).collect() }
    }

    /// A part, and then all of another list.
    pub(crate) fn prepend(first: Segment<T>, rest: &Self) -> Self {
        if first.is_empty() {
            return rest.clone();
        }
        Self::from_segments(std::iter::once(first).chain(rest.segments.iter().cloned()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.segments.iter().map(|part| part.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The things in order.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { segments: self.segments.iter(), segment: [].iter() }
    }

    /// A copy in one piece.
    pub fn to_vec(&self) -> Vec<Arc<T>> {
        let mut all = Vec::with_capacity(self.len());
        self.segments.iter().for_each(|part| all.extend_from_slice(part));
        all
    }

    /// Whether both are the very same list, not merely equal ones.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.segments, &other.segments)
    }

    /// Those after the first `parts` parts.
    fn after_segments(&self, parts: usize) -> impl Iterator<Item = &Arc<T>> {
        self.segments[parts..].iter().flat_map(|part| part.iter())
    }
}

impl<T> From<Vec<Arc<T>>> for List<T> {
    fn from(things: Vec<Arc<T>>) -> Self {
        Self::from_segments([Arc::new(things)])
    }
}

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        Self { segments: self.segments.clone() }
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { segments: Arc::default() }
    }
}

impl<T: Eq> PartialEq for List<T> {
    /// Whether they are of the same things, however these are parted. What both share is not looked at.
    fn eq(&self, other: &Self) -> bool {
        if self.is_same(other) {
            return true;
        }
        let mut pairs = self.segments.iter().zip(other.segments.iter());
        let shared = pairs.position(|(one, other)| !Arc::ptr_eq(one, other));
        let shared = shared.unwrap_or_else(|| self.segments.len().min(other.segments.len()));
        self.after_segments(shared).eq(other.after_segments(shared))
    }
}

impl<T: Eq> Eq for List<T> {}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a Arc<T>;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// The things of a [`List`] in order.
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    segments: std::slice::Iter<'a, Segment<T>>,
    segment: std::slice::Iter<'a, Arc<T>>,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a Arc<T>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(next) = self.segment.next() {
                return Some(next);
            }
            self.segment = self.segments.next()?.iter();
        }
    }
}

impl<T> FusedIterator for Iter<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(numbers: &[u32]) -> Segment<u32> {
        Arc::new(numbers.iter().copied().map(Arc::new).collect())
    }

    #[test]
    fn things_come_in_the_order_of_their_parts() {
        let list = List::prepend(part(&[1]), &List::from_segments([part(&[]), part(&[2, 3]), part(&[4])]));
        assert_eq!(list.iter().map(|number| **number).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!((list.len(), list.to_vec().len(), list.is_empty()), (4, 4, false));
        assert!(List::from_segments([part(&[])]).is_empty());
    }

    #[test]
    fn lists_are_equal_when_they_have_the_same_things() {
        let shared = part(&[1, 2]);
        let list = List::from_segments([shared.clone(), part(&[3, 4])]);
        assert_eq!(list, List::from_segments([shared.clone(), part(&[3]), part(&[4])]));
        assert_eq!(list, List::from(vec![1.into(), 2.into(), 3.into(), 4.into()]));
        assert_ne!(list, List::from_segments([shared.clone(), part(&[3, 5])]));
        assert_ne!(list, List::from_segments([shared.clone()]));
        assert_ne!(List::from_segments([shared]), list);
    }

    #[test]
    fn joined_lists_share_their_parts() {
        let lists = [
            List::from_segments([part(&[1]), part(&[2])]),
            List::default(),
            List::from_segments([part(&[3])]),
        ];
        let joined = List::concat(&lists);
        assert_eq!(joined.iter().map(|number| **number).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(Arc::ptr_eq(&joined.segments[2], &lists[2].segments[0]));
    }

    #[test]
    fn nothing_is_put_before_a_list_when_the_part_is_empty() {
        let list = List::from_segments([part(&[1])]);
        assert!(List::prepend(part(&[]), &list).is_same(&list));
    }
}
