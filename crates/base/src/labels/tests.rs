use proptest::prelude::*;

use super::*;

pub(super) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

#[test]
fn subset_and_selection_differ_for_the_empty_set() {
    let cases: [(&[_], &[_], bool, bool); 7] = [
        (&[], &[], true, false),
        (&[], &[("app", "a")], true, false),
        (&[("app", "a")], &[("app", "a"), ("prod", "env")], true, true),
        (&[("app", "a")], &[("app", "b"), ("prod", "env")], false, false),
        (&[("foo", "")], &[("app", "a")], false, false),
        (&[("foo", "")], &[("app", "a"), ("foo", "")], true, true),
        (&[("app", "a"), ("foo", "")], &[("foo", "")], false, false),
    ];
    for (left, right, subset, selected) in cases {
        let (left, right) = (labels(left), labels(right));
        assert_eq!((left.subset_of(&right), left.selects(&right)), (subset, selected), "{left} in {right}");
    }
}

#[test]
fn text_form_is_sorted_and_drops_empty_values() {
    assert_eq!(Labels::new().to_string(), "");
    assert_eq!(labels(&[("foo", "")]).to_string(), "foo");
    assert_eq!(labels(&[("foo", ""), ("app", "a")]).to_string(), "app=a,foo");
}

#[test]
fn last_of_equal_keys_wins() {
    let mut set = labels(&[("a", "1"), ("b", "2"), ("a", "3")]);
    assert_eq!(set.get("a"), Some("3"));
    set.insert("a", "4");
    assert_eq!(set.to_string(), "a=4,b=2");
    assert_eq!(set.remove("a").as_deref(), Some("4"));
    assert!(!set.contains_key("a"));
}

#[test]
fn validation_names_each_fault() {
    let long = "a".repeat(64);
    let long_prefix = format!("{}a/x", "a.".repeat(127));
    let bad_keys =
        ["^", ".key", "key_", "key$", "istio./key", "/key", "a/b/c", "", "a/", &long, &long_prefix];
    for key in bad_keys {
        assert_eq!(labels(&[(key, "v")]).validate().len(), 1, "{key}");
    }
    for value in [".value", "value_", "value$"] {
        assert_eq!(
            labels(&[("key", value)]).validate(),
            [InvalidLabel::Value { value: value.into() }],
            "{value}"
        );
    }
    for (key, value) in
        [("key", "value"), ("app.kubernetes.io/name", ""), ("A_b.c-d", "v.1_2-3"), ("k", &long)]
    {
        assert_eq!(labels(&[(key, value)]).validate(), [], "{key}={value}");
    }
    assert!(validate_key(&long).unwrap_err().to_string().ends_with("(name is too long)"));
    assert!(validate_key(&long_prefix).unwrap_err().to_string().ends_with("(DNS prefix is too long)"));
}

#[test]
fn dns_labels_allow_inner_hyphens_only() {
    for good in ["a", "A1", "a-b", "0"] {
        assert!(is_dns_label(good) && is_wildcard_dns_label(good), "{good}");
    }
    for bad in ["", "-a", "a-", "a_b", "a.b", &"a".repeat(64)] {
        assert!(!is_dns_label(bad) && !is_wildcard_dns_label(bad), "{bad}");
    }
    for wildcard in ["*", "*a", "*-a"] {
        assert!(is_wildcard_dns_label(wildcard) && !is_dns_label(wildcard), "{wildcard}");
    }
    for bad in ["**", "*-", "a*", "*--a-"] {
        assert!(!is_wildcard_dns_label(bad), "{bad}");
    }
}

#[test]
fn canonical_service_prefers_its_own_labels() {
    let all = labels(&[
        (canonical::CANONICAL_NAME, "canonical-name"),
        (canonical::CANONICAL_REVISION, "canonical-revision"),
        ("app.kubernetes.io/name", "k8s-name"),
        ("app.kubernetes.io/version", "k8s-version"),
        ("app", "legacy-app"),
        ("version", "legacy-version"),
    ]);
    assert_eq!(canonical::service(&all, "w"), ("canonical-name", "canonical-revision"));
    assert_eq!(canonical::app(&all), Some("legacy-app"));
    let mixed = labels(&[("app.kubernetes.io/name", "k8s-name"), ("version", "legacy-version")]);
    assert_eq!(canonical::service(&mixed, "w"), ("k8s-name", "legacy-version"));
    assert_eq!(canonical::app(&mixed), Some("k8s-name"));
    assert_eq!(canonical::service(&Labels::new(), "w"), ("w", "latest"));
    assert_eq!((canonical::name(&Labels::new()), canonical::revision(&Labels::new())), (None, None));
}

#[test]
fn labels_are_a_map_in_json() {
    let set: Labels = serde_json::from_str(r#"{"b": "2", "a": "1"}"#).unwrap();
    assert_eq!(serde_json::to_string(&set).unwrap(), r#"{"a":"1","b":"2"}"#);
    assert!(serde_json::from_str::<Labels>(r#"{"a": 1}"#).is_err());
}

proptest! {
    #[test]
    fn a_set_behaves_as_a_map(pairs in proptest::collection::vec(("[a-d]{1,2}", "[x-z]?"), 0..8)) {
        let set: Labels = pairs.clone().into_iter().collect();
        let map: std::collections::BTreeMap<String, String> = pairs.into_iter().collect();
        prop_assert_eq!(set.len(), map.len());
        prop_assert!(set.iter().eq(map.iter().map(|(k, v)| (k.as_str(), v.as_str()))));
    }

    #[test]
    fn a_set_selects_its_supersets(
        inner in proptest::collection::btree_map("[a-d]{1,2}", "[x-z]?", 1..4),
        more in proptest::collection::btree_map("[e-h]{1,2}", "[x-z]?", 0..4),
    ) {
        let small: Labels = inner.clone().into_iter().collect();
        let large: Labels = inner.into_iter().chain(more).collect();
        prop_assert!(small.selects(&large));
        prop_assert!(Selector::from_labels(&small).matches(&large));
        prop_assert_eq!(large.subset_of(&small), large == small);
    }
}
