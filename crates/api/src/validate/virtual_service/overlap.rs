//! Hosts of one virtual service that include each other.

use std::collections::{BTreeMap, BTreeSet};

use canopus_base::host::is_wildcard;

use crate::validate::code::codes;
use crate::validate::report::MAX_FINDINGS;
use crate::validate::scope::Scope;

codes! {
    DUPLICATE_HOST: error "virtual-service-host-twice", "remove hosts that others include";
}

/// Checks that no two hosts match the same name. `scope` is the list's.
pub(super) fn check(hosts: &[String], mut scope: Scope<'_>) {
    if hosts.len() < 2 {
        return;
    }
    for (earlier, later) in pairs(hosts) {
        let message = format!("duplicate hosts in virtual service: {} & {}", hosts[earlier], hosts[later]);
        scope.item(later).add(DUPLICATE_HOST.says(message).with_value(&hosts[later]));
    }
}

/// The pairs of hosts that match each other, the earlier first. Hosts are looked up by their ends rather than compared each
/// with each, since an object can have very many.
fn pairs(hosts: &[String]) -> BTreeSet<(usize, usize)> {
    let mut by_end = BTreeMap::<(Vec<u8>, bool), Vec<usize>>::new();
    for (index, host) in hosts.iter().enumerate() {
        by_end.entry((reversed(host), is_wildcard(host))).or_default().push(index);
    }
    let mut pairs = BTreeSet::new();
    for (index, host) in hosts.iter().enumerate() {
        let end = reversed(host);
        // A wildcard includes all that end as it does, a name only its equals.
        let included = by_end.range((end.clone(), false)..).take_while(|((other, other_wildcard), _)| {
            if is_wildcard(host) { other.starts_with(&end) } else { *other == end && !other_wildcard }
        });
        for &other in included.flat_map(|(_, indices)| indices) {
            if pairs.len() == MAX_FINDINGS {
                return pairs;
            }
            if other != index {
                pairs.insert((index.min(other), index.max(other)));
            }
        }
    }
    pairs
}

/// The part of a host that is not a wildcard, from its end.
fn reversed(host: &str) -> Vec<u8> {
    let rest = if is_wildcard(host) { &host[1..] } else { host };
    rest.bytes().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopus_base::host::matches;

    #[test]
    fn pairs_are_those_that_match_each_other() {
        let hosts = [
            "*", "*.com", "a.com", "*.a.com", "b.a.com", "com", "*a.com", "a.com", "*.com", "org", "*-b.org",
            "x-b.org", "a.com.", "",
        ];
        let hosts = hosts.map(str::to_owned);
        let mut expected = BTreeSet::new();
        for (index, earlier) in hosts.iter().enumerate() {
            for (later, other) in hosts.iter().enumerate().skip(index + 1) {
                if matches(earlier, other) {
                    expected.insert((index, later));
                }
            }
        }
        assert_eq!(pairs(&hosts), expected);
    }
}
