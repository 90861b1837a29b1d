//! Tasks that nobody watches: a panic in one of them ends it without a word.

use super::Violation;
use super::layers::position;
use super::tree::{TextFile, Tree};

/// Files that may start tasks themselves, each with the reason why a panic there freezes nothing.
const LAWFUL: [(&str, &str); 4] = [
    ("crates/runtime/src/tasks.rs", "it is the supervisor"),
    ("crates/runtime/src/shutdown.rs", "waits for signals and does nothing else"),
    ("crates/xds/src/server/connection.rs", "one task for one stream, which ends with it"),
    (
        "crates/daemon/src/serve/",
        "one task for one connection or call, whose end is seen by who waits for it",
    ),
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let product = || tree.crates.iter().filter(|member| position(member.name()).is_some());
    let sources: Vec<String> = product().map(|member| format!("{}/src/", member.directory)).collect();
    let is_bound = |file: &&TextFile| {
        sources.iter().any(|source| file.path.starts_with(source))
            && !LAWFUL.iter().any(|(lawful, _)| file.path.starts_with(lawful))
            && !file.path.contains("/tests")
    };
    tree.files.iter().filter(is_bound).flat_map(bare_spawns).collect()
}

fn bare_spawns(file: &TextFile) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, line) in file.numbered_lines() {
        // Tests stand at the end of a file.
        if line == "#[cfg(test)]" && file.text.contains("#[cfg(test)]\nmod tests {") && is_last(file, number)
        {
            break;
        }
        if line.contains("tokio::spawn(") && !line.trim_start().starts_with("//") {
            found.push(Violation {
                file: file.path.clone(),
                line: Some(number),
                found: "starts a task that nobody watches".to_owned(),
                law: "long-lived tasks are started by `runtime::tasks`, which sees their panics",
                remedy: "use `Tasks::spawn`, `Tasks::supervise` or `keep_running`, or name the file in `tidy::spawns`"
                    .to_owned(),
            });
        }
    }
    found
}

/// Whether the tests of a file begin at this line.
fn is_last(file: &TextFile, number: usize) -> bool {
    file.text.lines().nth(number).is_some_and(|next| next.starts_with("mod tests {"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn bare_task_is_found_outside_tests() {
        let text =
            "fn a() {\n    tokio::spawn(b());\n}\n#[cfg(test)]\nmod tests {\n    tokio::spawn(c());\n}\n";
        let found = bare_spawns(&file("crates/x/src/a.rs", text));
        assert_eq!(found.iter().map(|one| one.line).collect::<Vec<_>>(), [Some(2)]);
        assert!(bare_spawns(&file("crates/x/src/a.rs", "// tokio::spawn(\n")).is_empty());
    }
}
