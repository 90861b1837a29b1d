use proptest::prelude::*;

use super::*;

#[test]
fn everything_re2_knows_is_accepted() {
    for pattern in [
        "",
        "a|b|",
        "^/api/v[0-9]+/.*$",
        "(?i)abc",
        "(?i-s:a)",
        "(?P<name>a)(?<other>b)",
        "(?:a){2,5}?",
        "a{,3}",
        "a{01}",
        "x{1000}",
        "a{2}{",
        "[]a]",
        "[^]a]",
        "[a-]",
        "[a\\-z]",
        "[[:alpha:][:^digit:]]",
        "[[:alpha]",
        "\\pL\\p{Greek}\\P{^Lu}[\\pN]",
        "\\d\\D\\s\\S\\w\\W\\b\\B\\A\\z",
        "\\Qa.b*\\E+",
        "\\Q(",
        "\\x41\\x{10FFFF}\\0\\07\\123\\n",
        "\\.\\-\\_",
        "a(?i)*",
        "^*",
        "}",
        "é+",
    ] {
        assert_eq!(check(pattern), Ok(()), "{pattern}");
    }
}

#[test]
fn faults_are_named_as_go_names_them() {
    let cases = [
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
        ("(?<=a)", "invalid named capture: `(?<=a)`"),
        ("(?<=a>)", "invalid named capture: `(?<=a>`"),
        ("(?P=n)", "invalid or unsupported Perl syntax: `(?P`"),
        ("(?i-)", "invalid or unsupported Perl syntax: `(?i-)`"),
        ("(?", "invalid or unsupported Perl syntax: `(?`"),
        ("(?P<n-x>a)", "invalid named capture: `(?P<n-x>`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        ("(a)\\1", "invalid escape sequence: `\\1`"),
        ("\\C", "invalid escape sequence: `\\C`"),
        ("\\q", "invalid escape sequence: `\\q`"),
        ("\\x4g", "invalid escape sequence: `\\x4g`"),
        ("\\x{110000}", "invalid escape sequence: `\\x{110000`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a*?{2}", "invalid nested repetition operator: `*?{2}`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|*?", "missing argument to repetition operator: `*?`"),
        ("(+)", "missing argument to repetition operator: `+`"),
        ("x{1001}", "invalid repeat count: `{1001}`"),
        ("x{2,1}", "invalid repeat count: `{2,1}`"),
        ("x{99999999999}", "invalid repeat count: `{99999999999}`"),
        ("(x{100}){11}", "invalid repeat count: `{11}`"),
        ("[a", "missing closing ]: `[a`"),
        ("x[", "missing closing ]: `[`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        ("\\p{Foo}", "invalid character class range: `\\p{Foo}`"),
        ("\\p{Foo", "invalid character class range: `\\p{Foo`"),
        ("\\pq", "invalid character class range: `\\pq`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
    ];
    for (pattern, message) in cases {
        let error = check(pattern).expect_err(pattern);
        assert_eq!(error.to_string(), format!("error parsing regexp: {message}"), "{pattern}");
    }
}

#[test]
fn limits_hold_for_large_and_deep_expressions() {
    let deep = |levels: usize| format!("{}a{}", "(".repeat(levels), ")".repeat(levels));
    assert_eq!(check(&deep(900)), Ok(()));
    assert_eq!(check(&deep(2000)).unwrap_err().kind, RegexErrorKind::NestingDepth);
    let large = |length: usize| format!("(?:{}){{1000}}", "x".repeat(length));
    assert_eq!(check(&large(3000)), Ok(()));
    assert_eq!(check(&large(4000)).unwrap_err().kind, RegexErrorKind::Large);
    assert_eq!(check(&"a".repeat(1_000_000)), Ok(()));
}

proptest! {
    #[test]
    fn no_text_panics(pattern in "[-a\\\\()\\[\\]{}?*+|^$.:<>P,=!QEpx0-9é]{0,16}") {
        let _ = check(&pattern);
    }

    #[test]
    fn quoted_text_is_always_accepted(text in "[^\\\\]{0,20}") {
        prop_assert_eq!(check(&format!("\\Q{text}\\E")), Ok(()));
    }
}
