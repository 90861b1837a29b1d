use proptest::prelude::*;

use super::super::tests::labels;
use super::*;

fn selects(selector: &str, pairs: &[(&str, &str)]) -> bool {
    Selector::parse(selector).unwrap().matches(&labels(pairs))
}

#[test]
fn text_selectors_match_as_kubectl_does() {
    let web = [("app", "web"), ("tier", "a"), ("weight", "5"), ("empty", "")];
    for selector in [
        "",
        "app",
        "app=web",
        "app==web",
        "app = web",
        "app!=db",
        "other!=x",
        "tier in (a,b)",
        "tier in ( b , a )",
        "tier notin (c)",
        "other notin (c)",
        "!other",
        "weight>4",
        "weight<6",
        "app=web,tier=a",
        "empty=",
        "empty in ()",
        "empty in (a,)",
        "empty",
        " app=web , !other ",
        "in!=x",
    ] {
        assert!(selects(selector, &web), "{selector}");
    }
    for selector in [
        "other",
        "app=db",
        "app!=web",
        "tier in (b)",
        "tier notin (a,b)",
        "!app",
        "weight>5",
        "weight<5",
        "other>1",
        "app>1",
        "app=web,tier=b",
        "other in ()",
    ] {
        assert!(!selects(selector, &web), "{selector}");
    }
}

#[test]
fn malformed_text_is_refused_with_what_was_expected() {
    let cases = [
        ("app=web,", "found '', expected: identifier after ','"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("app web", "unable to parse requirement: found 'web', expected: in, notin, =, ==, !=, gt, lt"),
        ("app in a", "unable to parse requirement: found 'a', expected: '('"),
        ("app in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("app in (a=b)", "unable to parse requirement: found '=', expected: ',' or ')'"),
        ("app=(", "unable to parse requirement: found '(', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("-a", "unable to parse requirement: invalid tag key: \"-a\""),
        ("A.io/a", "unable to parse requirement: invalid tag key: \"A.io/a\""),
        ("a=-b", "unable to parse requirement: invalid tag value: \"-b\""),
        (
            "a>x",
            "unable to parse requirement: key \"a\": for 'Gt', 'Lt' operators, the value must be an integer, not \"x\"",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(Selector::parse(text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn object_selectors_combine_labels_and_expressions() {
    let selector = Selector::from_parts(
        [("app", "web")],
        [("tier", "In", vec!["b", "a"]), ("old", "DoesNotExist", vec![]), ("x", "NotIn", vec!["y"])],
    )
    .unwrap();
    assert!(selector.matches(&labels(&[("app", "web"), ("tier", "a")])));
    assert!(!selector.matches(&labels(&[("app", "web"), ("tier", "a"), ("old", "")])));
    assert!(!selector.matches(&labels(&[("tier", "a")])));
    assert_eq!(selector.to_string(), "app in (web),!old,tier in (a,b),x notin (y)");
    assert!(Selector::from_parts([], []).unwrap().is_everything());
}

#[test]
fn expressions_with_the_wrong_number_of_values_are_refused() {
    for (operator, values) in
        [("In", vec![]), ("NotIn", vec![]), ("Exists", vec!["a"]), ("DoesNotExist", vec!["a"])]
    {
        let error = Selector::from_parts([], [("k", operator, values)]).unwrap_err();
        assert!(matches!(error, SelectorError::Values { .. }), "{operator}: {error}");
    }
    let error = Selector::from_parts([], [("k", "Gt", vec!["1"])]).unwrap_err();
    assert_eq!(error, SelectorError::Operator { operator: "Gt".into() });
    let long = "a".repeat(64);
    let error = Selector::from_parts([], [("k", "In", vec![long.as_str()])]).unwrap_err();
    assert!(matches!(error, SelectorError::LongValue { .. }), "{error}");
}

fn requirement() -> impl Strategy<Value = String> {
    let key = "[a-c]{1,2}";
    let value = "[a-c]{0,2}";
    prop_oneof![
        key.prop_map(|k| k),
        key.prop_map(|k| format!("!{k}")),
        (key, "=|==|!=", value).prop_map(|(k, o, v)| format!("{k}{o}{v}")),
        (key, "in|notin", proptest::collection::vec(value, 1..4))
            .prop_map(|(k, o, vs)| format!("{k} {o} ({})", vs.join(","))),
        (key, "[<>]", 0..9i32).prop_map(|(k, o, v)| format!("{k}{o}{v}")),
    ]
}

proptest! {
    #[test]
    fn the_text_form_reads_back_as_the_same_selector(parts in proptest::collection::vec(requirement(), 0..5)) {
        let selector = Selector::parse(&parts.join(",")).unwrap();
        prop_assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-c=!<>(), in]{0,12}") {
        let _ = Selector::parse(&text);
    }
}
