use proptest::prelude::*;

use super::*;

fn names(texts: &[&str]) -> Vec<Name> {
    texts.iter().copied().map(Name::from).collect()
}

#[test]
fn matches_when_either_covers_the_other() {
    let cases = [
        ("", "", true),
        ("a.facebook.com", "*.facebook.COM", false),
        ("foo.com", "", false),
        ("foo.com", "foo.com", true),
        ("bar.com", "foo.com", false),
        ("*.com", "foo.com", true),
        ("bar.com", "*.com", true),
        ("*.foo.com", "foo.com", false),
        ("*", "foo.com", true),
        ("*", "*.com", true),
        ("*", "*", true),
        ("*", "", true),
        ("*.com", "*.foo.com", true),
        ("baz", "*.foo.bar.baz", false),
        ("*.foo.bar.baz", "*.baz", true),
        ("*foo.com", "barfoo.com", true),
    ];
    for (a, b, expected) in cases {
        assert_eq!(matches(a, b), expected, "{a} {b}");
        assert_eq!(matches(b, a), expected, "{b} {a}");
    }
}

#[test]
fn subset_holds_in_one_direction_only() {
    let cases = [
        ("", "", true),
        ("", "foo.com", false),
        ("foo.com", "bar.foo.com", false),
        ("bar.foo.com", "*.foo.com", true),
        ("*.foo.com", "foo.com", false),
        ("*.foo.com", "*.com", true),
        ("*.com", "*.foo.com", false),
        ("foo.bar.baz", "*.baz", true),
        ("*", "*.com", false),
    ];
    for (inner, outer, expected) in cases {
        assert_eq!(subset_of(inner, outer), expected, "{inner} in {outer}");
    }
}

#[test]
fn sorting_puts_specific_hosts_first() {
    let mut hosts = names(&["foo.com", "bar.com", "*.com", "*.foo.com", "*", "baz.bar.com"]);
    hosts.sort_by(|a, b| by_specificity(a, b));
    assert_eq!(hosts, names(&["baz.bar.com", "bar.com", "foo.com", "*.foo.com", "*.com", "*"]));
}

#[test]
fn more_specific_prefers_exact_then_long_then_text() {
    let cases = [
        ("", "", true),
        ("", "example.com", false),
        ("example.com", "", true),
        ("example.com", "example.net", true),
        ("example.com", "example.com", false),
        ("example.com", "test.example.com", false),
        ("*.example.com", "example.net", false),
        ("example.net", "*.example.com", true),
    ];
    for (a, b, expected) in cases {
        assert_eq!(more_specific(a, b), expected, "{a} {b}");
    }
}

#[test]
fn intersection_keeps_the_narrower_name_once() {
    let cases: [(&[&str], &[&str], &[&str]); 6] = [
        (&["foo,com"], &["bar.com"], &[]),
        (&["*.com"], &["foo.com", "bar.com"], &["foo.com", "bar.com"]),
        (&["foo.com", "*.net"], &["*.com", "bar.net"], &["foo.com", "bar.net"]),
        (&["foo.com", "*.net"], &["*.bar.net"], &["*.bar.net"]),
        (&["*", "foo.com"], &["foo.com"], &["foo.com"]),
        (&["foo.com"], &["Foo.com"], &[]),
    ];
    for (a, b, expected) in cases {
        assert_eq!(intersection(&names(a), &names(b)), names(expected), "{a:?} {b:?}");
    }
}

#[test]
fn namespace_filter_strips_the_qualifier() {
    let hosts = ["ns1/foo.com", "*/bar.com", "baz.com", "ns2/qux.com"];
    assert_eq!(for_namespace(&hosts, "ns1"), names(&["foo.com", "bar.com", "baz.com"]));
    assert_eq!(for_namespace(&hosts, "ns3"), names(&["bar.com", "baz.com"]));
}

fn host() -> impl Strategy<Value = String> {
    "(\\*|(\\*\\.)?([a-c]{1,2}\\.){0,3}[a-c]{0,2})"
}

proptest! {
    #[test]
    fn matching_is_reflexive_and_symmetric(a in host(), b in host()) {
        prop_assert!(matches(&a, &a));
        prop_assert_eq!(matches(&a, &b), matches(&b, &a));
    }

    #[test]
    fn subset_is_a_partial_order(a in host(), b in host(), c in host()) {
        prop_assert!(subset_of(&a, &a));
        if subset_of(&a, &b) && subset_of(&b, &a) {
            prop_assert_eq!(&a, &b);
        }
        if subset_of(&a, &b) && subset_of(&b, &c) {
            prop_assert!(subset_of(&a, &c));
        }
    }

    #[test]
    fn a_name_sorts_before_the_wildcards_that_cover_it(a in host(), b in host()) {
        if a != b && subset_of(&a, &b) {
            prop_assert!(by_specificity(&a, &b).is_lt());
        }
        prop_assert_eq!(by_specificity(&a, &b), by_specificity(&b, &a).reverse());
    }

    #[test]
    fn intersection_is_covered_by_both(a in proptest::collection::vec(host(), 0..4), b in proptest::collection::vec(host(), 0..4)) {
        let a: Vec<Name> = a.into_iter().map(Name::from).collect();
        let b: Vec<Name> = b.into_iter().map(Name::from).collect();
        for common in intersection(&a, &b) {
            prop_assert!(a.iter().any(|name| common.subset_of(name)));
            prop_assert!(b.iter().any(|name| common.subset_of(name)));
        }
    }
}
