//! Putting the lists of all namespaces together, oldest first.
//!
//! Where things are in the whole list is kept apart from what they are: when one of them changes, the order stays as it is,
//! and the list is gathered without being sorted again.

use std::sync::Arc;

use jiff::Timestamp;

/// What the place of something among those of all namespaces depends on, besides its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// When it was created.
    pub(crate) created: Option<Timestamp>,
    /// Its name.
    pub(crate) name: Arc<str>,
}

/// The namespaces that have something, and the order of all that they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// The namespaces, sorted.
    pub(crate) namespaces: Vec<Arc<str>>,
    /// Which namespace of these, and where in its list.
    places: Vec<(u32, u32)>,
}

impl Order {
    /// Merges the sorted lists of namespaces, which are sorted too: by age, then name, then namespace.
    pub(crate) fn new(namespaces: Vec<Arc<str>>, ranks: impl Fn(&Arc<str>) -> Arc<Vec<Rank>>) -> Self {
        let ranks: Vec<_> = namespaces.iter().map(ranks).collect();
        let mut places = Vec::with_capacity(ranks.iter().map(|ranks| ranks.len()).sum());
        for (namespace, ranks) in (0_u32..).zip(&ranks) {
            places.extend((0_u32..).zip(ranks.iter()).map(|(at, _)| (namespace, at)));
        }
        let rank = |&(namespace, at): &(u32, u32)| &ranks[namespace as usize][at as usize];
        // Stable: namespaces are in order already.
        places.sort_by(|a, b| rank(a).cmp(rank(b)));
        Self { namespaces, places }
    }

    /// All things in order, given those of each namespace.
    pub(crate) fn gather<T>(&self, list: impl Fn(&Arc<str>) -> Arc<Vec<Arc<T>>>) -> Vec<Arc<T>> {
        let lists: Vec<_> = self.namespaces.iter().map(list).collect();
        let places = self.places.iter();
        places.filter_map(|&(namespace, at)| lists[namespace as usize].get(at as usize).cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_things_come_first_then_names_then_namespaces() {
        let lists = [("a", vec![(1, "x"), (3, "b")]), ("b", vec![(2, "z"), (3, "a"), (3, "b")])];
        let of = |namespace: &Arc<str>| &lists.iter().find(|(name, _)| **name == **namespace).unwrap().1;
        let rank = |&(second, name): &(i64, &str)| Rank {
            created: Some(Timestamp::from_second(second).unwrap()),
            name: name.into(),
        };
        let order = Order::new(vec!["a".into(), "b".into()], |namespace| {
            Arc::new(of(namespace).iter().map(rank).collect())
        });
        let gathered = order.gather(|namespace| {
            Arc::new(of(namespace).iter().map(|(_, name)| Arc::new(format!("{namespace}/{name}"))).collect())
        });
        let gathered: Vec<&str> = gathered.iter().map(|name| name.as_str()).collect();
        assert_eq!(gathered, ["a/x", "b/z", "b/a", "a/b", "b/b"]);
    }
}
