//! Files a recorder wrote about a running control plane.
//!
//! They are YAML, but not in the dialect of Kubernetes: to the library they were written with, `y`, `1e3` and `08` are
//! texts, so it saw no need to quote them.

use std::path::Path;

use anyhow::Context;
use canopus_base::tree::{Limits, Map, Node, Pos, Value};
use canopus_base::yaml;

use crate::corpus::Corpus;

/// Reads a file of one document.
pub(crate) fn read(corpus: &Corpus, file: &Path) -> anyhow::Result<Node> {
    let text = String::from_utf8(corpus.bytes(file)?).with_context(|| format!("in {}", file.display()))?;
    parse(&text).with_context(|| format!("in {}", file.display()))
}

fn parse(text: &str) -> Result<Node, yaml::Error> {
    let lines: Vec<&str> = text.lines().collect();
    let node = yaml::parse_one(text, &Limits::default())?;
    Ok(reread(node, &lines))
}

/// The tree with the texts of the recorder in the place of what Kubernetes makes of them.
fn reread(node: Node, lines: &[&str]) -> Node {
    let value = match node.value {
        Value::Map(map) => {
            let entries = map.into_entries().into_iter().map(|entry| {
                let key = text_at(lines, entry.key_at).map_or(entry.key, Into::into);
                (key, reread(entry.node, lines))
            });
            Value::Map(entries.collect::<Map>())
        }
        Value::List(items) => Value::List(items.into_iter().map(|item| reread(item, lines)).collect()),
        Value::Bool(_) | Value::Number(_) => text_at(lines, node.at).map_or(node.value, Value::from),
        other => other,
    };
    Node { value, at: node.at }
}

/// What stands at a position, if it is a text to the recorder only.
fn text_at<'a>(lines: &[&'a str], at: Pos) -> Option<&'a str> {
    let line = lines.get(usize::try_from(at.line).ok()?.checked_sub(1)?)?;
    let (start, _) = line.char_indices().nth(usize::try_from(at.column).ok()?.checked_sub(1)?)?;
    let rest = &line[start..];
    let end = rest.find([' ', ',', ']', '}']).unwrap_or(rest.len());
    let token = rest[..end].trim_end_matches(':');
    is_text_to_recorder(token).then_some(token)
}

fn is_text_to_recorder(token: &str) -> bool {
    if matches!(token, "y" | "Y" | "n" | "N") {
        return true;
    }
    let digits = token.trim_start_matches(['+', '-']);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') || digits.starts_with("0x") {
        return false;
    }
    match digits.split_once(['e', 'E']) {
        // A number with an exponent has both a point and a sign.
        Some((mantissa, exponent)) => !mantissa.contains('.') || !exponent.starts_with(['+', '-']),
        None => {
            let is_octal = digits.len() > 1 && digits.starts_with('0');
            is_octal && digits.bytes().all(|digit| digit.is_ascii_digit()) && digits.contains(['8', '9'])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_of_the_recorder_are_not_taken_for_something_else() {
        let text = "a: {b: y, n: 1}\nc: [08, 1e3, 1.5e+3, 010, 12, 'y', true]\nw:path: n\ny: 1.5\n";
        let expected = json!({
            "a": {"b": "y", "n": 1},
            "c": ["08", "1e3", 1500, 8, 12, "y", true],
            "w:path": "n",
            "y": 1.5,
        });
        assert_eq!(parse(text).unwrap(), expected.into());
    }
}
