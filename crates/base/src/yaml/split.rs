//! Cutting a stream into documents before any of them is parsed, so that a broken one cannot take others with it.
//!
//! A document marker is a line that starts with `---` or `...` followed by blank or nothing. Inside a scalar such a line
//! is not allowed to stand, so cutting by lines is exact.

use std::ops::Range;

use crate::tree::clamp;

/// A part of the stream that holds at most one document.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct DocumentRange {
    /// Which bytes.
    pub(super) range: Range<usize>,
    /// The line it starts on, from 1.
    pub(super) line: u32,
    /// Whether there is anything but comments, directives and markers.
    pub(super) has_content: bool,
}

/// Cuts a stream into its documents, empty ones between two markers included.
pub(super) fn split(stream: &[u8]) -> Vec<DocumentRange> {
    let mut parts = Vec::new();
    let mut part = DocumentRange { range: 0..0, line: 1, has_content: false };
    // Whether the part has begun in earnest: text before the first marker may be but comments.
    let mut open = false;
    let mut at = 0;
    let mut number = 0usize;
    for line in lines(stream) {
        number += 1;
        let next = at + line.len();
        match Line::classify(line) {
            Line::Start { content } => {
                if open || part.has_content {
                    part.range.end = at;
                    parts.push(std::mem::replace(&mut part, DocumentRange::at(at, number)));
                }
                open = true;
                part.has_content = content;
            }
            Line::End => {
                if open || part.has_content {
                    part.range.end = next;
                    parts.push(std::mem::replace(&mut part, DocumentRange::at(next, number + 1)));
                }
                open = false;
            }
            Line::Content => part.has_content = true,
            Line::Directive if open || part.has_content => part.has_content = true,
            Line::Directive | Line::Blank => {}
        }
        at = next;
    }
    if open || part.has_content {
        part.range.end = at;
        parts.push(part);
    }
    parts
}

/// The lines with their breaks: LF, CR LF, or CR alone.
fn lines(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = rest.iter().position(|b| matches!(b, b'\n' | b'\r')).map(|at| match rest[at..] {
            [b'\r', b'\n', ..] => at + 2,
            _ => at + 1,
        });
        let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        (!line.is_empty()).then_some(line)
    })
}

impl DocumentRange {
    fn at(start: usize, line: usize) -> Self {
        Self { range: start..start, line: clamp(line), has_content: false }
    }
}

enum Line {
    /// `---`, perhaps with content behind it.
    Start {
        content: bool,
    },
    /// `...`
    End,
    /// `%YAML 1.1` and the like, where no document is open.
    Directive,
    /// Nothing, blanks, or a comment.
    Blank,
    Content,
}

impl Line {
    fn classify(line: &[u8]) -> Self {
        if let Some(rest) = marked(line, b"---") {
            return Self::Start { content: !is_blank(rest) };
        }
        if marked(line, b"...").is_some() {
            return Self::End;
        }
        if line.first() == Some(&b'%') {
            return Self::Directive;
        }
        if is_blank(line) { Self::Blank } else { Self::Content }
    }
}

/// What follows a marker, if the line starts with it.
fn marked<'a>(line: &'a [u8], marker: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(marker)?;
    let separated = rest.first().is_none_or(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n'));
    separated.then_some(rest)
}

fn is_blank(line: &[u8]) -> bool {
    let first = line.iter().find(|b| !matches!(b, b' ' | b'\t' | b'\r' | b'\n'));
    first.is_none_or(|b| *b == b'#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(stream: &str) -> Vec<(&str, u32, bool)> {
        split(stream.as_bytes()).into_iter().map(|p| (&stream[p.range], p.line, p.has_content)).collect()
    }

    #[test]
    fn markers_separate_documents() {
        assert_eq!(parts("a: 1\n---\nb: 2\n"), [("a: 1\n", 1, true), ("---\nb: 2\n", 2, true)]);
        assert_eq!(parts("a\n--- b\n---c\n"), [("a\n", 1, true), ("--- b\n---c\n", 2, true)]);
        assert_eq!(parts("a\r\n---\r\nb"), [("a\r\n", 1, true), ("---\r\nb", 2, true)]);
        assert_eq!(parts("#\r---\ra\r---\rb"), [("#\r---\ra\r", 1, true), ("---\rb", 4, true)]);
    }

    #[test]
    fn comments_before_the_first_marker_belong_to_it() {
        assert_eq!(parts("# x\n\n---\na\n"), [("# x\n\n---\na\n", 1, true)]);
        assert_eq!(parts("%YAML 1.1\n---\na\n"), [("%YAML 1.1\n---\na\n", 1, true)]);
        assert_eq!(parts("# x\n"), []);
        assert_eq!(parts(""), []);
    }

    #[test]
    fn empty_documents_are_counted() {
        assert_eq!(
            parts("a\n---\n# x\n---\nb\n"),
            [("a\n", 1, true), ("---\n# x\n", 2, false), ("---\nb\n", 4, true)]
        );
        assert_eq!(parts("---\n"), [("---\n", 1, false)]);
    }

    #[test]
    fn an_end_marker_closes_the_document() {
        assert_eq!(
            parts("a\n...\n# x\n%YAML 1.1\n---\nb\n"),
            [("a\n...\n", 1, true), ("# x\n%YAML 1.1\n---\nb\n", 3, true)]
        );
        assert_eq!(parts("a\n...\nb\n"), [("a\n...\n", 1, true), ("b\n", 3, true)]);
        assert_eq!(parts("...\n...\n"), []);
    }

    #[test]
    fn a_percent_sign_inside_a_document_is_content() {
        assert_eq!(parts("---\n%a\n"), [("---\n%a\n", 1, true)]);
    }
}
