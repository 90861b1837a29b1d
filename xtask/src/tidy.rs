//! The laws of the source tree that no compiler checks. Each checker is a pure function over [`Tree`].

mod flags;
mod imports;
mod layers;
mod manifests;
mod metrics;
mod modules;
mod sources;
mod spawns;
mod tests_share;
mod tree;
mod wire;
mod words;

use std::fmt;

use anyhow::bail;

use tree::Tree;

/// Checks the laws of the source tree.
///
/// Layering of the crates, top modules without cycles, imports that only some crates may have, one codec of
/// protobuf, flags and metrics without effect, the share of tests, file sizes, crate documentation, manifests, and texts that have no place in the repository. The same check runs as a test of this tool (`cargo test -p xtask`).
#[derive(clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run() -> anyhow::Result<()> {
    let tree = Tree::read()?;
    let violations = check(&tree);
    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        bail!("{} violation(s) of the laws of the tree", violations.len());
    }
    println!("tidy: {} crates and {} files obey the laws", tree.crates.len(), tree.files.len());
    println!("tidy: {}", tests_share::summary(&tree));
    Ok(())
}

fn check(tree: &Tree) -> Vec<Violation> {
    const LAWS: [fn(&Tree) -> Vec<Violation>; 11] = [
        layers::check,
        modules::check,
        flags::check,
        imports::check,
        manifests::check,
        metrics::check,
        sources::check,
        spawns::check,
        tests_share::check,
        wire::check,
        words::check,
    ];
    LAWS.iter().flat_map(|law| law(tree)).collect()
}

/// One breach of a law.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    /// File, relative to the root of the repository.
    file: String,
    /// Line, where one can be named; counted from 1.
    line: Option<usize>,
    /// What was found.
    found: String,
    /// The law it breaks.
    law: &'static str,
    /// What to do about it.
    remedy: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}\n  law:    {}\n  remedy: {}", self.found, self.law, self.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_obeys_the_laws() {
        let violations = check(&Tree::read().unwrap());
        let list: Vec<_> = violations.iter().map(ToString::to_string).collect();
        assert!(list.is_empty(), "{}", list.join("\n"));
    }

    #[test]
    fn violation_names_file_law_and_remedy() {
        let violation = Violation {
            file: "crates/base/src/lib.rs".to_owned(),
            line: Some(3),
            found: "a thing".to_owned(),
            law: "no things",
            remedy: "remove it".to_owned(),
        };
        let expected = "crates/base/src/lib.rs:3: a thing\n  law:    no things\n  remedy: remove it";
        assert_eq!(violation.to_string(), expected);
    }
}
