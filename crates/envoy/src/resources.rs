//! The resources of one type that a proxy gets by wildcard, in parts that proxies share.

use std::sync::Arc;

use canopus_proto::resource::Resource;

/// Up to so many names are looked up one by one.
const FEW: usize = 64;

/// Resources in shared parts: what a thousand proxies have in common is one allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    parts: Vec<Arc<Vec<Resource>>>,
}

impl Resources {
    /// Nothing.
    pub const fn new() -> Self {
        Self { parts: Vec::new() }
    }

    /// Adds a part that others may hold too.
    pub fn push(&mut self, part: Arc<Vec<Resource>>) {
        if !part.is_empty() {
            self.parts.push(part);
        }
    }

    /// The last resource of a name.
    pub fn get(&self, name: &str) -> Option<&Resource> {
        let resources = self.parts.iter().rev().flat_map(|part| part.iter().rev());
        resources.into_iter().find(|resource| *resource.name == *name)
    }

    /// The names by which this may have something else than `older`, sorted; `None` if that cannot be told at a glance, or if
    /// they are many. A part that gained, lost or changed a resource mostly begins and ends as it did.
    pub fn names_changed_since(&self, older: &Self) -> Option<Vec<Arc<str>>> {
        if self.parts.len() != older.parts.len() {
            return None;
        }
        let mut names = Vec::new();
        let pairs = self.parts.iter().zip(&older.parts).filter(|(now, then)| !Arc::ptr_eq(now, then));
        for (now, then) in pairs {
            let begin = now.iter().zip(&**then).take_while(|(now, then)| now == then).count();
            let (now, then) = (&now[begin..], &then[begin..]);
            let end = now.iter().rev().zip(then.iter().rev()).take_while(|(now, then)| now == then).count();
            let differing = now[..now.len() - end].iter().chain(&then[..then.len() - end]);
            names.extend(differing.map(|resource| Arc::clone(&resource.name)));
            if names.len() > FEW {
                return None;
            }
        }
        names.sort_unstable();
        names.dedup();
        Some(names)
    }

    /// All resources, part by part.
    pub fn iter(&self) -> impl Iterator<Item = &Resource> {
        self.parts.iter().flat_map(|part| part.iter())
    }
}

impl From<Arc<Vec<Resource>>> for Resources {
    fn from(part: Arc<Vec<Resource>>) -> Self {
        let mut all = Self::new();
        all.push(part);
        all
    }
}

impl From<Vec<Resource>> for Resources {
    fn from(resources: Vec<Resource>) -> Self {
        Arc::new(resources).into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(names: &[(u8, u8)]) -> Arc<Vec<Resource>> {
        let resource = |(name, body): &(u8, u8)| Resource::new(name.to_string(), vec![*body]);
        Arc::new(names.iter().map(resource).collect())
    }

    fn resources(parts: &[Arc<Vec<Resource>>]) -> Resources {
        Resources { parts: parts.to_vec() }
    }

    #[test]
    fn names_of_what_came_went_and_changed_are_told() {
        let shared = part(&[(1, 0), (2, 0)]);
        let before = resources(&[part(&[(5, 0), (6, 0), (7, 0), (8, 0)]), shared.clone()]);
        let after = resources(&[part(&[(5, 0), (9, 0), (7, 1), (8, 0)]), shared]);
        let changed = after.names_changed_since(&before).unwrap();
        assert_eq!(changed, ["6", "7", "9"].map(Arc::from));
        assert_eq!(after.get("7").map(|resource| &*resource.body), Some(&[1][..]));
        assert_eq!(after.get("6"), None);
        assert_eq!(after.names_changed_since(&after), Some(Vec::new()));
        assert_eq!(after.names_changed_since(&Resources::new()), None, "the parts are others");
    }

    #[test]
    fn many_names_are_not_listed() {
        let one = |body| resources(&[part(&(0..200).map(|name| (name, body)).collect::<Vec<_>>())]);
        assert_eq!(one(1).names_changed_since(&one(0)), None);
    }

    proptest! {
        #[test]
        fn names_that_are_not_told_stand_for_the_same(
            before in prop::collection::vec(prop::collection::vec((0_u8..12, 0_u8..3), 0..10), 2),
            after in prop::collection::vec(prop::collection::vec((0_u8..12, 0_u8..3), 0..10), 2),
        ) {
            let [before, after] = [before, after].map(|parts| resources(&parts.iter().map(|names| part(names)).collect::<Vec<_>>()));
            let changed = after.names_changed_since(&before).unwrap();
            for name in (0_u8..12).map(|name| name.to_string()) {
                prop_assert!(changed.iter().any(|one| **one == *name) || before.get(&name) == after.get(&name));
            }
        }
    }
}
