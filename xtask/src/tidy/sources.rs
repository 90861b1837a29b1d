use super::Violation;
use super::tree::{TextFile, Tree};

/// Above this many lines a file says in its header why it is long.
const LONG: usize = 800;

/// Above this many lines no reason is good enough.
const TOO_LONG: usize = 1200;

/// How a file that is long for a reason says so.
const REASON: &str = "//! Long because ";

/// Files that nobody writes or reads line by line: generated code and tables.
const EXEMPT: [&str; 1] = ["crates/proto/src/generated/"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let rust = || tree.files.iter().filter(|file| file.path.ends_with(".rs"));
    let sizes = rust().filter_map(check_size);
    let modules = rust().filter_map(check_module_name);
    let roots =
        tree.crates.iter().flat_map(|member| &member.roots).filter_map(|root| check_root(tree.file(root)?));
    sizes.chain(modules).chain(roots).collect()
}

fn check_size(file: &TextFile) -> Option<Violation> {
    let lines = file.text.lines().count();
    let exempt = EXEMPT.iter().any(|prefix| file.path.starts_with(prefix));
    let has_reason = || {
        let mut header = file.text.lines().take_while(|line| line.starts_with("//!"));
        header.any(|line| line.starts_with(REASON))
    };
    if exempt || lines <= LONG || (lines <= TOO_LONG && has_reason()) {
        return None;
    }
    let remedy = if lines > TOO_LONG {
        "split it along its reasons to change".to_owned()
    } else {
        format!("split it along its reasons to change, or add a header line `{REASON}…`")
    };
    Some(Violation {
        file: file.path.clone(),
        line: None,
        found: format!("{lines} lines"),
        law: "a file has at most 800 lines, or 1200 with a reason in its header",
        remedy,
    })
}

fn check_module_name(file: &TextFile) -> Option<Violation> {
    let directory = file.path.strip_suffix("/mod.rs")?;
    Some(Violation {
        file: file.path.clone(),
        line: None,
        found: "a `mod.rs`".to_owned(),
        law: "a module with children is `foo.rs` beside `foo/`",
        remedy: format!("rename it to {directory}.rs"),
    })
}

fn check_root(file: &TextFile) -> Option<Violation> {
    let first = file.text.lines().find(|line| !line.trim().is_empty());
    if first.is_some_and(|line| line.starts_with("//! ")) {
        return None;
    }
    Some(Violation {
        file: file.path.clone(),
        line: Some(1),
        found: "no crate documentation".to_owned(),
        law: "every crate begins by saying what it owns and what it must not know",
        remedy: "begin the file with `//!` lines that say so".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Crate;

    fn found(path: &str, text: String) -> Vec<String> {
        let member = Crate {
            package: "canopus-base".to_owned(),
            directory: "crates/base".to_owned(),
            roots: vec!["crates/base/src/lib.rs".to_owned()],
            dependencies: Vec::new(),
        };
        let tree = Tree { crates: vec![member], files: vec![TextFile { path: path.to_owned(), text }] };
        check(&tree).into_iter().map(|violation| violation.found).collect()
    }

    fn lines(header: &str, count: usize) -> String {
        format!("{header}\n{}", "x();\n".repeat(count - 1))
    }

    #[test]
    fn file_above_800_lines_needs_a_reason() {
        let path = "crates/base/src/long.rs";
        assert!(found(path, lines("", 800)).is_empty());
        assert_eq!(found(path, lines("", 801)), ["801 lines"]);
        assert!(found(path, lines("//! Tables.\n//! Long because it is one table.", 900)).is_empty());
    }

    #[test]
    fn file_above_1200_lines_has_no_excuse() {
        let text = lines("//! Long because it is one table.", 1201);
        assert_eq!(found("crates/base/src/long.rs", text), ["1201 lines"]);
    }

    #[test]
    fn generated_file_may_be_long() {
        assert!(found("crates/proto/src/generated/envoy.rs", lines("", 5000)).is_empty());
    }

    #[test]
    fn mod_rs_is_a_violation() {
        assert_eq!(found("crates/base/src/host/mod.rs", String::new()), ["a `mod.rs`"]);
    }

    #[test]
    fn crate_root_without_documentation_is_a_violation() {
        let root = "crates/base/src/lib.rs";
        assert_eq!(found(root, "pub mod host;\n".to_owned()), ["no crate documentation"]);
        assert!(found(root, "//! Host names.\n\npub mod host;\n".to_owned()).is_empty());
    }
}
