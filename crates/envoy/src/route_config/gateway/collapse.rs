//! Virtual hosts with the same routes as one: a VirtualService of a hundred hosts need not be sent a hundred times.

use canopus_base::{FastMap, host};

use super::Draft;

/// Joins hosts that have their routes from the same sources, the most specific host first.
pub(super) fn collapse(mut drafts: Vec<Draft<'_>>) -> Vec<Draft<'_>> {
    if drafts.len() < 2 {
        return drafts;
    }
    drafts.sort_by(|a, b| host::by_specificity(a.name(), b.name()));
    let mut collapsed: Vec<Draft<'_>> = Vec::with_capacity(drafts.len());
    // Parity: of hosts with equal routes that cannot be joined only the latest is joined with others.
    let mut latest: FastMap<Vec<usize>, usize> = FastMap::default();
    for draft in drafts {
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
    use std::borrow::Cow;

    use super::*;

    fn draft<'a>(name: &'a str, sources: &[usize], requires_tls: bool) -> Draft<'a> {
        let domains = vec![name.into()];
        Draft { port: 80, domains, sources: sources.to_vec(), requires_tls, session: None }
    }

    fn collapsed<'a>(drafts: impl IntoIterator<Item = Draft<'a>>) -> Vec<Vec<Cow<'a, str>>> {
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
