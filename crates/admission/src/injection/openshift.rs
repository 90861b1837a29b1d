//! User and group of proxies on OpenShift, which gives every namespace ranges of its own.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::pod::{self, INIT, PROXY, VALIDATION};

const UID_RANGE: &str = "openshift.io/sa.scc.uid-range";
const GROUP_RANGES: &str = "openshift.io/sa.scc.supplemental-groups";

/// The user and group of proxies everywhere else.
const DEFAULT_ID: i64 = 1337;

/// The user and the group of the proxies of a namespace: the ends of the ranges that its annotations name.
pub(super) fn proxy_ids(annotations: Option<&BTreeMap<String, String>>) -> (i64, i64) {
    let Some(annotations) = annotations else { return (DEFAULT_ID, DEFAULT_ID) };
    let uid = annotations.get(UID_RANGE).and_then(|range| range_end(range));
    let groups = annotations.get(GROUP_RANGES).or_else(|| annotations.get(UID_RANGE));
    let ends = groups.map(|groups| groups.split(',').map(range_end).collect::<Option<Vec<_>>>());
    let gid = ends.flatten().and_then(|ends| ends.first().copied());
    (uid.unwrap_or(DEFAULT_ID), gid.unwrap_or(DEFAULT_ID))
}

/// The last ID of a range: `start/size` or `first-last`.
fn range_end(range: &str) -> Option<i64> {
    if let Some((start, size)) = range.split_once('/') {
        let end = u32::wrapping_add(start.parse().ok()?, size.parse().ok()?).wrapping_sub(1);
        return Some(end.into());
    }
    let (start, end) = range.split_once('-')?;
    let _: u32 = start.parse().ok()?;
    end.parse::<u32>().ok().map(i64::from)
}

/// Takes user and group from the proxy where OpenShift gave it the application's, since traffic of the two must differ.
pub(super) fn reset_assigned_user(pod: &mut Json) {
    let mut proxy_user = 0;
    let mut application_user = 0;
    for list in [pod::CONTAINERS, pod::INIT_CONTAINERS] {
        for container in pod::containers(pod, list) {
            let user =
                container.get("securityContext").and_then(|context| context.get("runAsUser")?.as_i64());
            match (pod::name(container), user) {
                (PROXY, Some(user)) => proxy_user = user,
                (PROXY | VALIDATION | INIT, _) | (_, None) => {}
                (_, Some(user)) => application_user = user,
            }
        }
    }
    if proxy_user != application_user {
        return;
    }
    let proxy = pod::find_in_pod_mut(pod, PROXY);
    if let Some(Json::Object(context)) = proxy.and_then(|proxy| proxy.get_mut("securityContext")) {
        context.remove("runAsUser");
        context.remove("runAsGroup");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(annotations: &[(&str, &str)]) -> (i64, i64) {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        proxy_ids(Some(&annotations.collect()))
    }

    #[test]
    fn the_ends_of_ranges_are_used_where_they_can_be_read() {
        assert_eq!(proxy_ids(None), (1337, 1337));
        assert_eq!(ids(&[]), (1337, 1337));
        assert_eq!(ids(&[(UID_RANGE, "1000620000/10000")]), (1000629999, 1000629999));
        assert_eq!(ids(&[(UID_RANGE, "10-20"), (GROUP_RANGES, "5/3,9-12")]), (20, 7));
        assert_eq!(ids(&[(UID_RANGE, "ten/1"), (GROUP_RANGES, "")]), (1337, 1337));
    }
}
