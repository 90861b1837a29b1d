//! Virtual hosts with the same routes as one: a VirtualService of a hundred hosts need not be sent a hundred times.

use std::collections::BTreeMap;

use canopus_base::host;

use super::Draft;

/// Joins hosts that have their routes from the same sources, the most specific host first.
pub(super) fn collapse(drafts: BTreeMap<String, Draft>) -> Vec<Draft> {
    let mut by_name: Vec<_> = drafts.into_iter().collect();
    by_name.sort_by(|(a, _), (b, _)| host::by_specificity(a, b));
    let mut collapsed: Vec<Draft> = Vec::new();
    // Parity: of hosts with equal routes that cannot be joined only the latest is joined with others.
    let mut latest: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for (_, draft) in by_name {
        let like = latest.get(&draft.sources).and_then(|position| collapsed.get_mut(*position));
        match like.filter(|like| like.requires_tls == draft.requires_tls) {
            Some(like) => like.domains.extend(draft.domains),
            None => {
                latest.insert(draft.sources.clone(), collapsed.len());
                collapsed.push(draft);
            }
        }
    }
    collapsed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(name: &str, sources: &[usize], requires_tls: bool) -> (String, Draft) {
        let domains = vec![name.to_owned()];
        (name.to_owned(), Draft { port: 80, domains, sources: sources.to_vec(), requires_tls, session: None })
    }

    fn collapsed(drafts: impl IntoIterator<Item = (String, Draft)>) -> Vec<Vec<String>> {
        collapse(drafts.into_iter().collect()).into_iter().map(|draft| draft.domains).collect()
    }

    #[test]
    fn hosts_are_joined_when_their_routes_have_one_source() {
        let hosts = [draft("b.com", &[0], false), draft("a.com", &[0], false), draft("*", &[0], false)];
        assert_eq!(collapsed(hosts), [["a.com", "b.com", "*"]]);
    }

    #[test]
    fn hosts_stay_apart_when_one_is_redirected_or_has_other_routes() {
        let hosts = [draft("a.com", &[0], false), draft("b.com", &[0], true), draft("c.com", &[0, 1], false)];
        assert_eq!(collapsed(hosts), [["a.com"], ["b.com"], ["c.com"]]);
    }
}
