//! From the path of a finding back to the line it is on.

use canopus_base::tree::{Node, Pos};

use crate::text::quoted;

/// Where in a document a path such as `spec.http[0].headers.request.set["x-a"]` leads. A path to something that is not
/// there leads to the innermost thing around it that is.
pub fn locate(document: &Node, path: &str) -> Pos {
    let mut node = document;
    for step in Steps(path) {
        match step.from(node) {
            Some(next) => node = next,
            None => break,
        }
    }
    node.at
}

enum Step<'a> {
    /// A field, in whichever of the two spellings protobuf has for it.
    Field(&'a str),
    Index(usize),
    /// A key as it is quoted in paths.
    Key(&'a str),
}

impl Step<'_> {
    fn from<'n>(&self, node: &'n Node) -> Option<&'n Node> {
        match self {
            Self::Field(name) => node.get(name).or_else(|| node.get(&snake_case(name))),
            Self::Index(index) => node.as_list()?.get(*index),
            Self::Key(key) => {
                let entry = node.as_map()?.iter().find(|entry| quoted(&entry.key) == *key)?;
                Some(&entry.node)
            }
        }
    }
}

/// The steps of a path; a malformed rest counts as no further step.
struct Steps<'a>(&'a str);

impl<'a> Iterator for Steps<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        if self.0.is_empty() {
            return None;
        }
        if let Some(bracketed) = self.0.strip_prefix('[') {
            if bracketed.starts_with('"') {
                let end = closing_quote(bracketed)?;
                self.0 = bracketed[end..].strip_prefix(']')?;
                return Some(Step::Key(&bracketed[..end]));
            }
            let (index, rest) = bracketed.split_once(']')?;
            self.0 = rest;
            return index.parse().ok().map(Step::Index);
        }
        let field = self.0.strip_prefix('.').unwrap_or(self.0);
        let end = field.find(['.', '[']).unwrap_or(field.len());
        let (name, rest) = field.split_at(end);
        self.0 = rest;
        Some(Step::Field(name))
    }
}

/// Where the quoted text at the beginning of `text` ends.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Protobuf's other spelling of a field: `allow_origins` for `allowOrigins`.
fn snake_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 2);
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopus_base::tree::Limits;
    use canopus_base::yaml;

    const DOCUMENT: &str = "\
spec:
  http:
  - name: first
  - cors_policy:
      max_age: 1s
    headers:
      request:
        set:
          a.b: x
          'q\"]': y
";

    #[track_caller]
    fn check(path: &str, line: u32) {
        let document = yaml::parse_one(DOCUMENT, &Limits::default()).unwrap();
        assert_eq!(locate(&document, path).line, line, "{path}");
    }

    #[test]
    fn path_leads_to_the_line_of_its_value() {
        check("", 1);
        check("spec.http[0].name", 3);
        check("spec.http[1].corsPolicy.maxAge", 5);
        check(r#"spec.http[1].headers.request.set["a.b"]"#, 9);
        check(r#"spec.http[1].headers.request.set["q\"]"]"#, 10);
    }

    #[test]
    fn path_to_something_absent_leads_to_what_is_around_it() {
        check("spec.http[1].corsPolicy.allowOrigins[0]", 5);
        check("spec.http[7]", 3);
        check("metadata.name", 1);
    }

    #[test]
    fn malformed_rest_of_a_path_is_not_followed() {
        for path in ["spec[", "spec[x]", "spec[\"a", "spec[\"a\"x", "..", "[9999999999999999999999]"] {
            locate(&yaml::parse_one(DOCUMENT, &Limits::default()).unwrap(), path);
        }
    }
}
