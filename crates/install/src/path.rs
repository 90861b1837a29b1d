//! Paths into configuration, as users and patches write them: `spec.containers.[name:discovery].args.[1]`.
//!
//! A path is cut into elements at dots ([`elements`]); an element is a key, or one of the forms in brackets that choose an item
//! of a list ([`Segment::parse`]). A backslash takes the meaning from a dot, and from a colon within brackets.

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A key of a map.
    Key(String),
    /// `[3]`: an item of a list; `[-1]` or past the end, a new one.
    Index(i64),
    /// `[name:x]`: the item whose key has the value.
    Entry(String, String),
    /// `[:x]`: the item with the value.
    Item(String),
    /// Brackets around anything else.
    Unknown(String),
}

impl Segment {
    /// Reads an element of a path.
    pub fn parse(element: &str) -> Self {
        let Some(inner) = without_brackets(element) else { return Self::Key(element.to_owned()) };
        match inner.parse() {
            Ok(index) if index >= -1 => return Self::Index(index),
            _ => {}
        }
        if let Some(value) = inner.strip_prefix(':').filter(|value| !value.is_empty()) {
            return Self::Item(value.to_owned());
        }
        match split_escaped(inner, ':').as_slice() {
            [key, value] if !key.is_empty() && !value.is_empty() => {
                Self::Entry((*key).to_owned(), (*value).to_owned())
            }
            _ => Self::Unknown(inner.to_owned()),
        }
    }
}

/// The steps of a path.
pub fn parse(path: &str) -> Vec<Segment> {
    elements(path).iter().map(|element| Segment::parse(element)).collect()
}

/// The elements of a path: `a.b[0]` and `a.b.[0]` have the same three. Empty ones are left out.
pub fn elements(path: &str) -> Vec<String> {
    let mut elements = Vec::new();
    for word in split_escaped(path, '.').into_iter().filter(|word| !word.is_empty()) {
        let word = word.replace("\\.", ".");
        match word.find('[') {
            Some(at) if at > 0 => elements.extend([word[..at].to_owned(), word[at..].to_owned()]),
            _ => elements.push(word),
        }
    }
    elements
}

/// Cuts a text at a separator that no backslash stands before; backslashes stay. An empty text has no parts.
pub fn split_escaped(text: &str, separator: char) -> Vec<&str> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut parts = Vec::new();
    let (mut start, mut is_escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if c == separator && !is_escaped {
            parts.push(&text[start..at]);
            start = at + c.len_utf8();
        }
        is_escaped = c == '\\';
    }
    parts.push(&text[start..]);
    parts
}

/// What stands in an element's brackets; `None` without both of them.
pub fn without_brackets(element: &str) -> Option<&str> {
    element.strip_prefix('[')?.strip_suffix(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_in_brackets_choose_items() {
        let parsed = parse("spec.list[2].[name:a\\.b].[:x y].[-1].plain");
        let expected = [
            Segment::Key("spec".into()),
            Segment::Key("list".into()),
            Segment::Index(2),
            Segment::Entry("name".into(), "a.b".into()),
            Segment::Item("x y".into()),
            Segment::Index(-1),
            Segment::Key("plain".into()),
        ];
        assert_eq!(parsed, expected);
    }

    #[test]
    fn malformed_brackets_are_told_from_keys() {
        for unknown in ["[]", "[:]", "[a:]", "[a:b:c]", "[a]", "[-2]"] {
            assert!(matches!(Segment::parse(unknown), Segment::Unknown(_)), "{unknown}");
        }
        for key in ["[a", "a]", "a:b", ""] {
            assert_eq!(Segment::parse(key), Segment::Key(key.to_owned()));
        }
    }

    #[test]
    fn escaped_separators_do_not_cut() {
        assert_eq!(split_escaped(r"a\:b:c", ':'), [r"a\:b", "c"]);
        assert_eq!(Segment::parse(r"[name:a\:b]"), Segment::Entry("name".into(), r"a\:b".into()));
    }
}
