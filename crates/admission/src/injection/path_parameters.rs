//! Environment of the proxy in the path of the webhook: `/inject/cluster/c1/net/n1`.

use std::collections::BTreeMap;

/// How values write a slash.
const SLASH: &str = "--slash--";

/// The environment that a path gives to proxies. A key without a value is ignored.
///
/// Keys are `cluster`, `net` or names of variables, which are upper-cased. The form `/inject/:ENV:k=v:ENV:k=v` is old and
/// still read.
pub fn proxy_environment(path: &str) -> BTreeMap<String, String> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut parts = path.splitn(3, '/');
    let Some(parameters) = parts.nth(2) else { return BTreeMap::new() };
    if let Some(pairs) = parameters.strip_prefix(":ENV:") {
        let pairs = pairs.split(":ENV:").filter_map(|pair| pair.split_once('='));
        return pairs
            .filter(|(key, _)| !key.is_empty())
            .map(|(key, value)| (variable(key), value.to_owned()))
            .collect();
    }
    let mut words = parameters.split('/');
    let mut environment = BTreeMap::new();
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        if !key.is_empty() {
            environment.insert(variable(key), value.replace(SLASH, "/"));
        }
    }
    environment
}

fn variable(key: &str) -> String {
    match key {
        "cluster" => "ISTIO_META_CLUSTER_ID".to_owned(),
        "net" => "ISTIO_META_NETWORK".to_owned(),
        other => other.to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(path: &str) -> Vec<(String, String)> {
        proxy_environment(path).into_iter().collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn parameters_are_pairs_of_words() {
        assert_eq!(environment("/inject"), []);
        assert_eq!(environment("/inject/"), []);
        assert_eq!(
            environment("/inject/cluster/c1/net/n--slash--1/foo_bar/x/odd"),
            pairs(&[("FOO_BAR", "x"), ("ISTIO_META_CLUSTER_ID", "c1"), ("ISTIO_META_NETWORK", "n/1")])
        );
    }

    #[test]
    fn the_old_form_is_read() {
        assert_eq!(
            environment("/inject/:ENV:cluster=c1:ENV:=x:ENV:a=:ENV:b"),
            pairs(&[("A", ""), ("ISTIO_META_CLUSTER_ID", "c1")])
        );
    }
}
