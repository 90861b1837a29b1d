use super::Violation;
use super::tree::{TextFile, Tree};

/// A text that has no place in the repository.
struct Forbidden {
    text: &'static str,
    /// Only where no letter, digit or underscore touches it.
    whole_word: bool,
    /// Only in files with these extensions; empty means in all.
    extensions: &'static [&'static str],
    law: &'static str,
    remedy: &'static str,
}

const MACHINE: &str = "nothing depends on, or speaks of, one machine";
const REGISTRY: &str = "registries are the business of the clients that use them";
const FINISHED: &str = "what is in the repository is finished";

const FORBIDDEN: [Forbidden; 12] = [
    path("/work/"),
    path("/root/"),
    registry("pypi.org"),
    registry("proxy.golang.org"),
    registry("sum.golang.org"),
    registry("index.crates.io"),
    registry("static.crates.io"),
    registry("artifactory"),
    unfinished("TODO"),
    unfinished("FIXME"),
    unfinished("XXX"),
    Forbidden {
        text: "#[ignore",
        whole_word: false,
        extensions: &["rs"],
        law: "a test that exists is run",
        remedy: "mend the test or delete it",
    },
];

const fn path(text: &'static str) -> Forbidden {
    Forbidden {
        text,
        whole_word: false,
        extensions: &[],
        law: MACHINE,
        remedy: "use a path relative to the repository, or one that is passed in",
    }
}

const fn registry(text: &'static str) -> Forbidden {
    Forbidden {
        text,
        whole_word: false,
        extensions: &[],
        law: REGISTRY,
        remedy: "name the kind of registry, not its host",
    }
}

const fn unfinished(text: &'static str) -> Forbidden {
    Forbidden {
        text,
        whole_word: true,
        extensions: &["rs", "toml", "md", "go", "sh"],
        law: FINISHED,
        remedy: "do it, or leave it out",
    }
}

/// Files that others write, and this one, which has to spell the words out.
const EXEMPT: [&str; 5] = [
    "Cargo.lock",
    "LICENSE",
    "crates/proto/protos/",
    "crates/proto/src/generated/",
    "xtask/src/tidy/words.rs",
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let bound = |file: &&TextFile| {
        !EXEMPT.iter().any(|exempt| file.path.starts_with(exempt)) && !file.path.ends_with("/go.sum")
    };
    tree.files.iter().filter(bound).flat_map(check_file).collect()
}

fn check_file(file: &TextFile) -> Vec<Violation> {
    let extension = file.path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let applies = |word: &&Forbidden| word.extensions.is_empty() || word.extensions.contains(&extension);
    // One search of the whole text per word first: nearly every file has none of them.
    let present = FORBIDDEN.iter().filter(applies).filter(|word| file.text.contains(word.text));
    present
        .flat_map(|word| {
            file.numbered_lines().filter(|(_, line)| word.occurs_in(line)).map(|(number, _)| Violation {
                file: file.path.clone(),
                line: Some(number),
                found: format!("the text `{}`", word.text),
                law: word.law,
                remedy: word.remedy.to_owned(),
            })
        })
        .collect()
}

impl Forbidden {
    fn occurs_in(&self, line: &str) -> bool {
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        line.match_indices(self.text).any(|(start, found)| {
            let before = line[..start].chars().next_back();
            let after = line[start + found.len()..].chars().next();
            !self.whole_word || !(before.is_some_and(is_word) || after.is_some_and(is_word))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(Option<usize>, String)> {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        let violations = check(&Tree { crates: Vec::new(), files: vec![file] });
        violations.into_iter().map(|violation| (violation.line, violation.found)).collect()
    }

    #[test]
    fn path_of_a_machine_is_found_with_its_line() {
        let text = "cache:\n  dir: /root/.cache\n";
        assert_eq!(found("deploy/values.yaml", text), [(Some(2), "the text `/root/`".to_owned())]);
    }

    #[test]
    fn registry_host_is_found() {
        assert_eq!(found("docs/parts.md", "from pypi.org").len(), 1);
    }

    #[test]
    fn unfinished_work_is_found_as_a_whole_word_only() {
        assert_eq!(found("crates/base/src/host.rs", "// TODO: more").len(), 1);
        assert!(found("crates/base/src/host.rs", "const TODOS: u8 = 1; // mastodon XXXL").is_empty());
    }

    #[test]
    fn ignored_test_is_found() {
        assert_eq!(found("crates/base/src/host.rs", "#[ignore]").len(), 1);
    }

    #[test]
    fn files_of_others_are_exempt() {
        assert!(found("Cargo.lock", "index.crates.io").is_empty());
        assert!(found("crates/parts/go/helm/go.sum", "TODO").is_empty());
    }
}
