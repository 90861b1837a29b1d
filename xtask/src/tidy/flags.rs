//! Flags that nothing reads are listed as such, so that `canopusd flags` claims no effect that there is not.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::{TextFile, Tree};

/// Where flags are declared, and where those are listed that nothing reads.
const TABLE: &str = "crates/runtime/src/flags/table/";
const FLAGS: &str = "crates/runtime/src/flags";
const UNREAD: &str = "crates/runtime/src/flags/unread.rs";

const LAW: &str = "a flag that nothing reads is listed as such";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let unread = listed(tree);
    let read = words(tree);
    let table = tree.files.iter().filter(|file| file.path.starts_with(TABLE));
    let declared = table.flat_map(|file| {
        let flag = |(line, text)| Some((file.path.clone(), line, declaration(text)?));
        file.numbered_lines().filter_map(flag).collect::<Vec<_>>()
    });
    declared
        .filter_map(|(file, line, flag)| {
            let (found, remedy) = match (read.contains(flag), unread.contains(flag)) {
                (false, false) => ("nothing reads", "read the flag, or add it to the list in"),
                (true, true) => ("something reads", "remove the flag from the list in"),
                _ => return None,
            };
            Some(Violation {
                file,
                line: Some(line),
                found: format!("{found} `{flag}`"),
                law: LAW,
                remedy: format!("{remedy} {UNREAD}"),
            })
        })
        .collect()
}

/// The flag that a row of the table declares: `NAME: Type = "default"`.
fn declaration(line: &str) -> Option<&str> {
    let (name, rest) = line.trim_start().split_once(": ")?;
    let is_name =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    (is_name && rest.contains(" = \"")).then_some(name)
}

/// The flags that are listed as without effect.
fn listed(tree: &Tree) -> BTreeSet<&str> {
    let lines = tree.file(UNREAD).into_iter().flat_map(|file| file.text.lines());
    lines.filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\",")).collect()
}

/// The constants that code names outside of the table, and those on which other flags depend.
fn words(tree: &Tree) -> BTreeSet<&str> {
    let is_source = |file: &&TextFile| {
        file.path.starts_with("crates/")
            && file.path.contains("/src/")
            && file.path.ends_with(".rs")
            && !file.path.starts_with(FLAGS)
    };
    let sources = tree.files.iter().filter(is_source).map(|file| file.text.as_str());
    let gates = tree.files.iter().filter(|file| file.path.starts_with(TABLE)).flat_map(|file| {
        file.text.match_indices("gate(").map(|(at, found)| file.text[at + found.len()..].trim_start())
    });
    let gates = gates.filter_map(|text| constants(text).next());
    sources.flat_map(constants).chain(gates).collect()
}

pub(super) fn constants(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()) && word.len() > 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(listed: &str, code: &str) -> Vec<String> {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = vec![
            file(
                "crates/runtime/src/flags/table/a.rs",
                "    A_FLAG: Bool = \"true\";\n    B_FLAG: Bool = \"\", gate(A_FLAG);\n",
            ),
            file(UNREAD, &format!("    \"{listed}\",\n")),
            file("crates/x/src/lib.rs", code),
        ];
        check(&Tree { crates: Vec::new(), files }).into_iter().map(|violation| violation.found).collect()
    }

    #[test]
    fn list_is_held_to_the_source() {
        assert!(found("B_FLAG", "").is_empty(), "the flag that it depends on is read with it");
        assert_eq!(found("", ""), ["nothing reads `B_FLAG`"]);
        assert_eq!(found("B_FLAG", "flags.get(B_FLAG)"), ["something reads `B_FLAG`"]);
        assert!(found("", "use flags::{B_FLAG, C};").is_empty());
    }
}
