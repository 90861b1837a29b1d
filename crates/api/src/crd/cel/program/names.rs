//! Names of fields that are no identifiers: how expressions write them.

use std::borrow::Cow;

/// Words of the language that no identifier can be.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// What stands in identifiers for what cannot.
const ESCAPES: [(&str, &str); 4] =
    [("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];

/// The identifier for a field; `None` if there is none.
pub(in crate::crd) fn escape(name: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(allowed) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        match ESCAPES.iter().find(|(plain, _)| rest.starts_with(plain)) {
            Some((plain, escaped)) => {
                out.push_str(escaped);
                rest = &rest[plain.len()..];
            }
            None => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    Some(out)
}

/// The field an identifier stands for; `None` if it is not properly escaped.
pub(in crate::crd) fn unescape(identifier: &str) -> Option<Cow<'_, str>> {
    if !identifier.contains("__") {
        return Some(Cow::Borrowed(identifier));
    }
    let whole = identifier.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    if let Some(word) = whole.filter(|word| RESERVED.contains(word)) {
        return Some(Cow::Borrowed(word));
    }
    let mut out = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(at) = rest.find("__") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (plain, escaped) = ESCAPES.iter().find(|(_, escaped)| rest.starts_with(escaped))?;
        out.push_str(plain);
        rest = &rest[escaped.len()..];
    }
    out.push_str(rest);
    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers_and_back() {
        for (name, identifier) in [
            ("jwksUri", "jwksUri"),
            ("jwks_uri", "jwks_uri"),
            ("namespace", "__namespace__"),
            ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
            ("a__b", "a__underscores__b"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(identifier));
            assert_eq!(unescape(identifier).as_deref(), Some(name));
        }
    }

    #[test]
    fn names_without_an_identifier_have_none() {
        for name in ["", "1a", "a b", "ä"] {
            assert_eq!(escape(name), None);
        }
        for identifier in ["a__b", "__what__", "a__namespace__"] {
            assert_eq!(unescape(identifier), None);
        }
    }
}
