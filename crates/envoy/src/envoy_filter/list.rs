//! Operations on lists of filters and routes.

use canopus_proto::istio::networking::v1alpha3::envoy_filter::patch::Operation;

/// Adds, inserts, replaces or removes elements; `picks` finds those a patch names, if it names some. Says whether
/// anything was done.
pub(super) fn edit<T: Clone>(
    list: &mut Vec<T>,
    operation: Operation,
    value: Option<&T>,
    picks: Option<&dyn Fn(&T) -> bool>,
) -> bool {
    if operation == Operation::Remove {
        let before = list.len();
        if let Some(picks) = picks {
            list.retain(|element| !picks(element));
        }
        return list.len() < before;
    }
    let Some(value) = value else { return false };
    let place = match (operation, picks) {
        (Operation::Add, _) | (Operation::InsertAfter, None) => Some(list.len()),
        (Operation::InsertFirst, _) | (Operation::InsertBefore, None) => Some(0),
        (Operation::InsertAfter, Some(picks)) => list.iter().position(picks).map(|found| found + 1),
        (Operation::InsertBefore, Some(picks)) => list.iter().position(picks),
        (Operation::Replace, Some(picks)) => {
            let found = list.iter_mut().find(|element| picks(element));
            return found.map(|element| *element = value.clone()).is_some();
        }
        _ => None,
    };
    place.map(|place| list.insert(place, value.clone())).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(operation: Operation, picked: Option<char>) -> String {
        let mut list = vec!['a', 'b', 'c'];
        let picks = |element: &char| Some(*element) == picked;
        let picks: Option<&dyn Fn(&char) -> bool> = if picked.is_some() { Some(&picks) } else { None };
        edit(&mut list, operation, Some(&'x'), picks);
        list.into_iter().collect()
    }

    #[test]
    fn elements_go_where_the_operation_says() {
        for (operation, picked, expected) in [
            (Operation::Add, None, "abcx"),
            (Operation::InsertFirst, Some('b'), "xabc"),
            (Operation::InsertAfter, Some('b'), "abxc"),
            (Operation::InsertAfter, Some('z'), "abc"),
            (Operation::InsertAfter, None, "abcx"),
            (Operation::InsertBefore, Some('b'), "axbc"),
            (Operation::InsertBefore, None, "xabc"),
            (Operation::Replace, Some('b'), "axc"),
            (Operation::Replace, None, "abc"),
            (Operation::Remove, Some('b'), "ac"),
            (Operation::Remove, None, "abc"),
        ] {
            assert_eq!(edited(operation, picked), expected, "{operation:?} {picked:?}");
        }
    }
}
