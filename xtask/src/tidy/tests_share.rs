//! How much of a crate is tests, in the crates that decide what proxies do.
//!
//! Lines of code count, without blank lines and comments. Tests are the files below `tests/` (scenarios in YAML too), modules
//! called `tests` and what follows `#[cfg(test)] mod tests {` in a file; benches are neither.

use super::Violation;
use super::tree::{TextFile, Tree};

/// The crates, and how many lines of a hundred are tests at least.
const CRATES: [&str; 3] = ["envoy", "mesh", "ambient"];
const LEAST: usize = 30;

/// Lines of a crate.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines {
    tests: usize,
    others: usize,
}

impl Lines {
    fn count(tree: &Tree, name: &str) -> Self {
        let directory = format!("crates/{name}/");
        let mut lines = Self::default();
        for file in tree.files.iter().filter(|file| file.path.starts_with(&directory)) {
            lines.add(file);
        }
        lines
    }

    fn add(&mut self, file: &TextFile) {
        let (path, below_tests) = (&file.path, file.path.contains("/tests/"));
        if path.contains("/benches/") {
            return;
        }
        if path.ends_with(".yaml") && below_tests {
            self.tests += code(&file.text, "#");
        }
        if path.ends_with(".rs") {
            let is_test = below_tests || path.ends_with("/tests.rs") || path.ends_with("/testing.rs");
            let module = file.text.find("#[cfg(test)]\nmod tests {").unwrap_or(file.text.len());
            let (others, tests) = file.text.split_at(if is_test { 0 } else { module });
            self.others += code(others, "//");
            self.tests += code(tests, "//");
        }
    }

    fn share(&self) -> usize {
        self.tests * 100 / (self.tests + self.others).max(1)
    }
}

fn code(text: &str, comment: &str) -> usize {
    text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with(comment)).count()
}

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let counted = CRATES.iter().map(|name| (name, Lines::count(tree, name)));
    let too_few = counted.filter(|(_, lines)| lines.share() < LEAST);
    too_few
        .map(|(name, lines)| Violation {
            file: format!("crates/{name}"),
            line: None,
            found: format!(
                "{} % tests ({} of {} lines)",
                lines.share(),
                lines.tests,
                lines.tests + lines.others
            ),
            law: "of the crates that decide what proxies do, 30 % of the lines are tests",
            remedy: "add scenarios for rules that have none (`tests/goldens`)".to_owned(),
        })
        .collect()
}

/// The shares, for people.
pub(super) fn summary(tree: &Tree) -> String {
    let share = |name: &&str| format!("{name} {} %", Lines::count(tree, name).share());
    format!("tests: {}", CRATES.iter().map(share).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tests_are_told_from_others() {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = vec![
            file("crates/a/src/lib.rs", "//! Doc.\nmod b;\n\n#[cfg(test)]\nmod tests;\nfn c() {}\n"),
            file("crates/a/src/b.rs", "fn b() {}\n#[cfg(test)]\nmod tests {\n    // Why.\n}\n"),
            file("crates/a/src/tests.rs", "fn test() {}\n"),
            file("crates/a/tests/goldens/one.yaml", "# Title.\nshow: [x]\n---\nkind: A\n"),
            file("crates/a/benches/a.rs", "fn main() {}\n"),
            file("crates/ab/src/lib.rs", "fn other() {}\n"),
        ];
        let tree = Tree { files, ..Tree::default() };
        assert_eq!(Lines::count(&tree, "a"), Lines { tests: 3 + 1 + 3, others: 4 + 1 });
    }
}
