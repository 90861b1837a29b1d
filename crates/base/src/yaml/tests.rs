use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tree::Value;

fn read(text: &str) -> Node {
    parse_one(text, &Limits::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    parse_one(text, &Limits::default()).expect_err(text).to_string()
}

fn outcomes(stream: impl AsRef<[u8]>, limits: &Limits) -> Vec<Result<serde_json::Value, String>> {
    let documents = parse_all(stream, limits).into_iter();
    documents.map(|document| document.map(|d| d.node.to_json()).map_err(|e| e.to_string())).collect()
}

#[test]
fn documents_become_json() {
    let cases = [
        (
            "a: 1\nb: [x, 'y', \"z\\n\"]\nc: {d: null, e: ~}\n",
            json!({"a": 1, "b": ["x", "y", "z\n"], "c": {"d": null, "e": null}}),
        ),
        ("on: off\n1.0: yes\n0x10: 0777\n", json!({"true": false, "1": true, "16": 511})),
        (
            "a: 1.0\nb: 1e3\nc: 1e20\nd: 2001-01-01\n",
            json!({"a": 1, "b": 1000, "c": 1e20, "d": "2001-01-01"}),
        ),
        ("a: |\n  x\n  y\nb: >-\n  x\n  y\nc: |+\n\n", json!({"a": "x\ny\n", "b": "x y", "c": "\n"})),
        (
            "- &x {a: 1}\n- *x\n- !!str 1\n- !!binary aGk=\n- !foo 1\n- !!str\n",
            json!([{"a": 1}, {"a": 1}, "1", "hi", "1", ""]),
        ),
        ("&k a: *k\nb: 1\n", json!({"a": "a", "b": 1})),
        ("? &k a\n: &v b\n? *v\n: *k\n", json!({"a": "b", "b": "a"})),
        ("- [2001:db8::, ::1]\n- {a: fe80::}\n", json!([["2001:db8::", "::1"], {"a": "fe80::"}])),
        ("{\"a\": 1.0}", json!({"a": 1.0})),
        ("", json!(null)),
        ("# only a comment\n", json!(null)),
        ("\u{feff}a: 1\n", json!({"a": 1})),
    ];
    for (text, expected) in cases {
        assert_eq!(read(text).to_json(), expected, "{text}");
    }
}

#[test]
fn merges_happen_where_they_stand() {
    let base = "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 4}\nx:\n";
    let cases = [
        ("  <<: *base\n  b: 5\n", json!({"a": 1, "b": 5})),
        ("  b: 5\n  <<: *base\n", json!({"a": 1, "b": 2})),
        ("  <<: [*base, *more]\n", json!({"a": 1, "b": 2, "c": 4})),
        ("  <<: {a: 9}\n  d: 1\n", json!({"a": 9, "d": 1})),
        ("  '<<': 1\n", json!({"<<": 1})),
    ];
    for (text, expected) in cases {
        assert_eq!(read(&format!("{base}{text}")).get("x").unwrap().to_json(), expected, "{text}");
    }
    for text in ["<<: 1\n", "a: &a [1]\n<<: *a\n", "<<: [1]\n", "<<:\n"] {
        assert!(refusal(text).ends_with("map merge requires map or sequence of maps as the value"), "{text}");
    }
    assert!(refusal("a: 1\n<<: {a: 2}\na: 3\n").ends_with("key \"a\" already set in map"));
}

#[test]
fn every_value_and_key_knows_its_place() {
    let documents =
        parse_all("# first\na: x\n---\n# second\nb:\n  - é: [1, 2]\n    c: {d: 3}\n", &Limits::default());
    let [Ok(first), Ok(second)] = &documents[..] else { panic!("{documents:?}") };
    assert_eq!((first.index, first.start, first.node.at), (0, Pos::new(1, 1), Pos::new(2, 1)));
    assert_eq!((second.index, second.start, second.node.at), (1, Pos::new(3, 1), Pos::new(5, 1)));
    assert_eq!(first.text_range, 0..13);
    let place = |pointer| second.node.pointer(pointer).unwrap().at;
    assert_eq!(place("/b"), Pos::new(6, 3));
    assert_eq!(place("/b/0"), Pos::new(6, 5));
    assert_eq!(place("/b/0/é/1"), Pos::new(6, 12));
    assert_eq!(place("/b/0/c/d"), Pos::new(7, 12));
    let item = second.node.pointer("/b/0").unwrap().as_map().unwrap();
    assert_eq!(item.get_entry("c").unwrap().key_at, Pos::new(7, 5));
}

#[test]
fn a_broken_document_does_not_take_others_with_it() {
    let stream = b"a: 1\n---\nb: [\n---\nc: 3\n---\nd: \xff\n---\ne: {}}\n---\nf: 6\n";
    let outcomes = outcomes(stream, &Limits::default());
    let accepted: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
    assert_eq!(accepted, [&json!({"a": 1}), &json!({"c": 3}), &json!({"f": 6})]);
    let refused: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert_eq!(refused.len(), 3);
    for (message, place) in refused.iter().zip(["line 3", "line 7, column 4", "line 9, column 6"]) {
        assert!(message.starts_with(place), "{message} should be at {place}");
    }
}

#[test]
fn empty_documents_are_skipped_but_counted() {
    let documents = parse_all("---\na: 1\n---\n# nothing\n---\n---\nb: 2\n...\n", &Limits::default());
    let indices: Vec<_> = documents.iter().map(|document| document.as_ref().unwrap().index).collect();
    assert_eq!(indices, [0, 3]);
    let error = parse_all("a: 1\n---\n---\n]\n", &Limits::default()).pop().unwrap().unwrap_err();
    assert_eq!(error.document, 2);
}

#[test]
fn faults_are_located_and_named() {
    let cases = [
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: key \"a\" already set in map"),
        ("a: *x\n", "line 1, column 4: unknown anchor 'x' referenced"),
        ("a: &x [1, *x]\n", "line 1, column 11: anchor 'x' value contains itself"),
        ("[a]: 1\n", "line 1, column 1: a list cannot be a map key"),
        ("~: 1\n", "line 1, column 1: null cannot be a map key"),
        ("a: .inf\n", "line 1, column 4: number .inf has no JSON form"),
        ("a: !!int x\n", "line 1, column 10: cannot decode !!str `x` as a !!int"),
        ("a: !!binary '*'\n", "line 1, column 13: !!binary value contains invalid base64 data"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: more than one document"),
    ];
    for (text, message) in cases {
        assert_eq!(refusal(text), message, "{text}");
    }
}

#[test]
fn limits_hold_document_by_document() {
    let limits = Limits { max_bytes: 60, max_depth: 3, max_nodes: 12 };
    let long = format!("a: {}", "x".repeat(60));
    let stream = [
        "ok: 1".to_owned(),
        long,
        "[[[[]]]]".to_owned(),
        "a:\n b:\n  c:\n   d: 1".to_owned(),
        "[1,2,3,4,5,6,7,8,9,0,1,2,3]".to_owned(),
        "- &a [1,2,3]\n- [*a,*a]".to_owned(),
        "- &a 'thirty bytes of text, or so'\n- [*a,*a,*a]".to_owned(),
        "- &a [[1]]\n- [*a]".to_owned(),
        "ok: 2".to_owned(),
    ]
    .join("\n---\n");
    let kinds: Vec<_> = parse_all(stream, &limits)
        .into_iter()
        .map(|document| document.map(|d| d.index).map_err(|e| e.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            Ok(0),
            Err(ReadErrorKind::TooLarge { bytes: 68, max: 60 }),
            Err(ReadErrorKind::TooDeep { max: 3 }),
            Err(ReadErrorKind::TooDeep { max: 3 }),
            Err(ReadErrorKind::TooManyNodes { max: 12 }),
            Err(ReadErrorKind::TooManyNodes { max: 12 }),
            Err(ReadErrorKind::TooMuchAliased { max: 60 }),
            Err(ReadErrorKind::TooDeep { max: 3 }),
            Ok(8),
        ]
    );
}

#[test]
fn bombs_are_refused() {
    let laughs: String = (1..10)
        .map(|level| {
            format!("{0}: &{0} [{1}]\n", name(level), vec![format!("*{}", name(level - 1)); 9].join(","))
        })
        .collect();
    let cases = [
        format!("{}: &{} [x,x,x,x,x,x,x,x,x]\n{laughs}", name(0), name(0)),
        "[".repeat(200_000),
        "- ".repeat(200_000),
        "{a: ".repeat(200_000),
        "? ".repeat(200_000),
        format!("{}1", "&a [".repeat(100_000)),
    ];
    for text in &cases {
        let error = parse_one(text, &Limits::default()).unwrap_err();
        assert!(error.at.is_known(), "{error}");
    }
}

fn name(level: u8) -> char {
    char::from(b'a' + level)
}

#[test]
fn output_is_laid_out_as_kubernetes_tools_do() {
    let value = json!({
        "b": [1, [2, 3], {"c": "x", "d": []}, {}],
        "a10": true, "a2": null,
        "text": "line\nline\n", "cut": "line\nline", "lead": "  x\ny", "key: x": "# no", "yes": "no",
        "date": "2001-01-01", "base60": "1:30", "number": "1", "empty": "", "tab": "a\tb", "quote": "it's: here",
        "float": 1.5, "whole": 2.0, "large": 1e21,
        "long": "word ".repeat(20).trim_end(),
    });
    let expected = r#"a2: null
a10: true
b:
- 1
- - 2
  - 3
- c: x
  d: []
- {}
base60: "1:30"
cut: |-
  line
  line
date: "2001-01-01"
empty: ""
float: 1.5
'key: x': '# no'
large: 1e+21
lead: |2-
    x
  y
long: word word word word word word word word word word word word word word word word
  word word word word
number: "1"
quote: 'it''s: here'
tab: "a\tb"
text: |
  line
  line
whole: 2
"yes": "no"
"#;
    assert_eq!(to_string(&value).unwrap(), expected);
}

#[test]
fn long_and_multiline_keys_stand_behind_a_question_mark() {
    let long = "k".repeat(129);
    let value = json!({ &long: [1], "a\nb": "c" });
    let text = to_string(&value).unwrap();
    assert_eq!(text, format!("? |-\n  a\n  b\n: c\n? {long}\n: - 1\n"));
    assert_eq!(read(&text).to_json(), value);
}

#[test]
fn keys_that_are_not_strings_are_refused_or_spelt_out() {
    let ports = std::collections::BTreeMap::from([(80, "http")]);
    assert_eq!(to_string(&ports).unwrap(), "\"80\": http\n");
    let odd = std::collections::BTreeMap::from([(vec![1], "x")]);
    assert!(to_string(&odd).is_err());
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,12}",
        "[ \\n\\t#:'\"a-c0-9.,\\[\\]{}&*!|>%@`?-]{0,16}",
        "[\\PC\\n]{0,8}",
        "[ a\\n\\r\u{85}\u{2028}\u{2029}\u{feff}']{0,8}",
        "([a-z]{1,9} {1,2}){10,30}",
        prop::sample::select(vec![
            "yes", "n", "~", "null", "1_0", "0x1f", "012", "1e3", ".5", "-.inf", "2001-1-1", "1:30", "<<",
            "=", "---", "...", "--- a",
        ])
        .prop_map(str::to_owned),
    ]
}

fn node() -> impl Strategy<Value = Node> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has finite numbers only", |f| f.is_finite())
            .prop_map(|f| Value::Number(resolve::normalized(f.into()))),
        text().prop_map(Value::from),
    ]
    .prop_map(Node::from);
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(|items| Value::List(items).into()),
            proptest::collection::btree_map(text(), inner, 0..5)
                .prop_map(|map| Value::Map(map.into_iter().collect()).into()),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(node in node()) {
        let text = node_to_string(&node);
        let read = build::document(&text, 1, &Limits::default(), RepeatedKeys::Refused);
        prop_assert_eq!(read.as_ref(), Ok(&node), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "[ \\n\\t#:'\"a-c0-9.,\\[\\]{}&*!|>%@`?<-]{0,40}") {
        let _ = parse_all(&text, &Limits { max_bytes: 1000, max_depth: 4, max_nodes: 20 });
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = parse_all(&bytes, &Limits::default());
    }
}

#[test]
fn the_last_of_two_equal_keys_counts_when_nobody_is_strict() {
    let text = "a: 1\nb: {c: 1, d: 2, c: 3}\na: 2\n";
    assert!(parse_one(text, &Limits::default()).is_err());
    let node = parse_one_lenient(text, &Limits::default()).unwrap();
    assert_eq!(node.to_json(), serde_json::json!({"a": 2, "b": {"c": 3, "d": 2}}));
    assert!(parse_one_lenient("a: 1\na: [", &Limits::default()).is_err());
}
