use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Node {
    parse(text.as_bytes(), &Limits::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> (u32, u32, String) {
    let error = parse(text.as_bytes(), &Limits::default()).expect_err(text);
    (error.at.line, error.at.column, error.kind.to_string())
}

#[test]
fn values_are_read_exactly() {
    let node = read(
        r#" {"a": [1, -2, 18446744073709551615, 1.0, -1.5e3, 1e20], "b": "x\n\u00e9\ud83d\ude00\ud800", "c": null, "d": {} , "e": [] , "f": true} "#,
    );
    let numbers: Vec<_> = node.get("a").unwrap().as_list().unwrap().iter().map(|n| n.value.clone()).collect();
    let expected = [
        Number::Int(1),
        Number::Int(-2),
        Number::UInt(u64::MAX),
        Number::Float(1.0),
        Number::Float(-1500.0),
        Number::Float(1e20),
    ];
    assert_eq!(numbers, expected.map(Value::Number));
    assert_eq!(node.get("b").and_then(Node::as_str), Some("x\né😀\u{fffd}"));
    assert_eq!(node.get("f").and_then(Node::as_bool), Some(true));
}

#[test]
fn positions_count_characters() {
    let node = read("{\n  \"é😀\": \"ü\", \"b\": [\n 1]}");
    let map = node.as_map().unwrap();
    let places: Vec<_> = map.iter().map(|e| (e.key_at, e.node.at)).collect();
    assert_eq!(places, [(Pos::new(2, 3), Pos::new(2, 9)), (Pos::new(2, 14), Pos::new(2, 19))]);
    assert_eq!(node.pointer("/b/0").unwrap().at, Pos::new(3, 2));
}

#[test]
fn faults_are_located() {
    let cases = [
        ("", 1, 1, "unexpected end of JSON input"),
        ("{\"a\": 1,\n \"a\": 2}", 2, 2, "key \"a\" already set in map"),
        ("[1 2]", 1, 4, "invalid character '2' after array element"),
        ("{a: 1}", 1, 2, "invalid character 'a' looking for beginning of object key string"),
        ("{\"a\" 1}", 1, 6, "invalid character '1' after object key"),
        ("[1,]", 1, 4, "invalid character ']' looking for beginning of value"),
        ("01", 1, 2, "invalid character '1' after top-level value"),
        ("1.", 1, 3, "unexpected end of JSON input"),
        ("-x", 1, 2, "invalid character 'x' in numeric literal"),
        ("\"\\q\"", 1, 3, "invalid character 'q' in string escape code"),
        ("\"\\u12x4\"", 1, 6, "invalid character 'x' in \\u hexadecimal character escape"),
        ("\"a\nb\"", 1, 3, "invalid character '\\n' in string literal"),
        ("trux", 1, 4, "invalid character 'x' in literal true"),
        ("1e999", 1, 6, "number 1e999 has no JSON form"),
    ];
    for (text, line, column, message) in cases {
        assert_eq!(refusal(text), (line, column, message.to_owned()), "{text}");
    }
    let error = parse(b"{\n\"\xc3\xa9\xff\"}", &Limits::default()).unwrap_err();
    assert_eq!((error.at, error.kind), (Pos::new(2, 3), ReadErrorKind::Encoding));
}

#[test]
fn limits_are_kept() {
    let limits = Limits { max_bytes: 10, max_depth: 2, max_nodes: 3 };
    let kind = |text: &str| parse(text.as_bytes(), &limits).map_err(|error| error.kind);
    assert!(kind("[[1]]").is_ok());
    assert_eq!(kind("[[[]]]"), Err(ReadErrorKind::TooDeep { max: 2 }));
    assert_eq!(kind("[1,2,3]"), Err(ReadErrorKind::TooManyNodes { max: 3 }));
    assert_eq!(kind("           "), Err(ReadErrorKind::TooLarge { bytes: 11, max: 10 }));
    let deep = "[".repeat(1_000_000);
    assert!(matches!(
        parse(deep.as_bytes(), &Limits::default()).unwrap_err().kind,
        ReadErrorKind::TooDeep { .. }
    ));
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".*".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            proptest::collection::btree_map(".{0,4}", inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn agrees_with_serde_json(value in json()) {
        let expected = Node::from(value.clone());
        prop_assert_eq!(&read(&value.to_string()), &expected);
        prop_assert_eq!(&read(&serde_json::to_string_pretty(&value).unwrap()), &expected);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = parse(&bytes, &Limits::default());
    }
}
