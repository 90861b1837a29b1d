//! Texts, line by line, equal after white space around them is trimmed.

use similar::{DiffOp, TextDiff};

use super::{ABSENT, Difference};

/// Where the texts differ, by the line number in the expected one.
pub fn difference(expected: &str, got: &str) -> Vec<Difference> {
    let (expected, got) = (expected.trim(), got.trim());
    if expected == got {
        return Vec::new();
    }
    let (old, new): (Vec<_>, Vec<_>) = (expected.lines().collect(), got.lines().collect());
    let diff = TextDiff::from_slices(&old, &new);
    let changed = diff.ops().iter().filter(|op| !matches!(op, DiffOp::Equal { .. }));
    changed
        .map(|op| {
            let path = format!("line {}", op.old_range().start + 1);
            Difference::new(path, block(&old[op.old_range()]), block(&new[op.new_range()]))
        })
        .collect()
}

fn block(lines: &[&str]) -> String {
    if lines.is_empty() { ABSENT.to_owned() } else { lines.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_equal_when_only_outer_white_space_differs() {
        assert_eq!(difference("\na\n  b\n", "a\n  b"), []);
        assert_ne!(difference("a\n  b", "a\n b"), []);
    }

    #[test]
    fn changed_missing_and_extra_lines_are_named_by_number() {
        assert_eq!(
            difference("a\nb\nc\nd", "a\nx\nc\nd\ne"),
            [Difference::new("line 2", "b", "x"), Difference::new("line 5", ABSENT, "e"),]
        );
        assert_eq!(difference("a\nb", "a"), [Difference::new("line 2", "b", ABSENT)]);
    }

    #[test]
    fn nothing_differs_from_itself_but_from_an_empty_text() {
        assert_eq!(difference("", ""), []);
        assert_eq!(difference("a", "").len(), 1);
    }
}
