//! How the cases of a suite are found in its data.
//!
//! No case is known by name: whatever the files list is run.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use canopus_base::tree::{Node, Value};

use crate::case::Case;
use crate::corpus::{Corpus, extension, has_extension};

/// Where a suite keeps its cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Entries of `cases.yaml`.
    Cases,
    /// Entries of the tables in every YAML file: `tests[].cases[]`, or `cases[]`.
    Tables,
    /// Scenarios listed in `index.yaml`, each with a directory of its own and a `scenario.yaml` in it.
    Index,
    /// One YAML file is one case, except in directories that hold what the cases share.
    Documents,
    /// One file is one case.
    Files,
    /// Data without expected outcome.
    Inputs,
}

/// Directories of recorded suites that hold inputs of their cases rather than cases.
const INPUT_DIRECTORIES: [&str; 3] = ["inputs", "setup", "world"];

impl Layout {
    /// The layout of a suite, by what is in its directory and, where that does not tell, by the family it belongs to.
    pub(crate) fn detect(suite: &str, corpus: &Corpus) -> Self {
        let has = |file: &str| corpus.exists(&Path::new(suite).join(file));
        match suite {
            "fuzz-regressions" => Self::Files,
            "defaults" | "validation-samples" => Self::Documents,
            "xds" => Self::Index,
            // Load profiles and inputs, whose assertions are counts.
            "xds-benchmarks" | "xds-inputs" => Self::Inputs,
            _ if suite.starts_with("tables-") => Self::Tables,
            _ if suite.starts_with("live-") => Self::Documents,
            _ if has("cases.yaml") => Self::Cases,
            _ if has("index.yaml") => Self::Index,
            _ => Self::Inputs,
        }
    }

    pub(crate) fn cases(self, suite: &str, corpus: &Corpus) -> anyhow::Result<Vec<Case>> {
        let finder = Finder { corpus, directory: Path::new(suite).into() };
        let cases = match self {
            Self::Cases => finder.entries_of(Path::new("cases.yaml")),
            Self::Tables => finder.tables(),
            Self::Index => finder.scenarios(),
            Self::Documents => finder.whole_files(is_case_document),
            Self::Files => finder.whole_files(|_| true),
            Self::Inputs => Ok(Vec::new()),
        };
        cases.map(with_unique_ids).with_context(|| format!("cannot list the cases of {suite}"))
    }
}

struct Finder<'a> {
    corpus: &'a Corpus,
    directory: Arc<Path>,
}

impl Finder<'_> {
    fn case(&self, id: String, file: &Arc<Path>, entry: Node, shared: &Arc<Node>) -> Case {
        Case {
            id,
            corpus: self.corpus.clone(),
            directory: self.directory.clone(),
            file: file.clone(),
            entry,
            shared: shared.clone(),
        }
    }

    fn document(&self, file: &Path) -> anyhow::Result<Node> {
        self.corpus.document(&self.directory.join(file))
    }

    /// The entries of one file of cases.
    fn entries_of(&self, file: &Path) -> anyhow::Result<Vec<Case>> {
        let mut document = self.document(file)?;
        let mut found = Vec::new();
        take_entries(&mut document, "", &mut found);
        let (file, shared): (Arc<Path>, _) = (file.into(), Arc::new(document));
        if found.is_empty() {
            // The file describes its one case in prose.
            return Ok(vec![self.case(stem(&file), &file, Node::default(), &shared)]);
        }
        Ok(found.into_iter().map(|(id, entry)| self.case(id, &file, entry, &shared)).collect())
    }

    fn tables(&self) -> anyhow::Result<Vec<Case>> {
        let mut cases = Vec::new();
        for file in self.corpus.files(&self.directory)? {
            if has_extension(&file, "yaml") {
                cases.extend(self.tables_of(&file)?);
            }
        }
        Ok(cases)
    }

    fn tables_of(&self, file: &Path) -> anyhow::Result<Vec<Case>> {
        let mut document = self.document(file)?;
        let tables = match document.get_mut("tests").and_then(Node::as_list_mut) {
            Some(tables) => std::mem::take(tables),
            None => vec![document],
        };
        let (stem, file) = (stem(file), Arc::from(file));
        let mut cases = Vec::new();
        for mut table in tables {
            let entries = table.get_mut("cases").and_then(Node::as_list_mut);
            let entries = entries.map(std::mem::take).unwrap_or_default();
            let shared = Arc::new(table);
            for (index, entry) in entries.into_iter().enumerate() {
                let id = format!("{stem}/{}", id_of(&entry, index));
                cases.push(self.case(id, &file, entry, &shared));
            }
        }
        Ok(cases)
    }

    fn scenarios(&self) -> anyhow::Result<Vec<Case>> {
        let index = Path::new("index.yaml");
        if !self.corpus.exists(&self.directory.join(index)) {
            return self.scenarios_without_index();
        }
        let mut index = self.document(index)?;
        let scenarios = index.get_mut("scenarios").and_then(Node::as_list_mut);
        let scenarios = scenarios.map(std::mem::take).unwrap_or_default();
        let shared = Arc::new(index);
        let mut cases = Vec::with_capacity(scenarios.len());
        for entry in scenarios {
            let part = |key: &str| entry.get(key).and_then(Node::as_str);
            let (group, scenario) = part("group")
                .zip(part("scenario"))
                .context("a scenario of the index needs group and scenario")?;
            let id = format!("{group}/{scenario}");
            let file = Path::new(&id).join("scenario.yaml");
            // Recordings that turned out wrong were withdrawn; the index still names them.
            if self.corpus.exists(&self.directory.join(&file)) {
                cases.push(self.case(id, &file.into(), entry, &shared));
            }
        }
        Ok(cases)
    }

    fn scenarios_without_index(&self) -> anyhow::Result<Vec<Case>> {
        let shared = Arc::new(Node::default());
        let files = self.corpus.files(&self.directory)?.into_iter();
        let scenarios = files.filter(|file| file.ends_with("scenario.yaml"));
        Ok(scenarios
            .map(|file| {
                let id = slashed(file.parent().unwrap_or(&file));
                self.case(id, &file.into(), Node::default(), &shared)
            })
            .collect())
    }

    fn whole_files(&self, is_case: fn(&Path) -> bool) -> anyhow::Result<Vec<Case>> {
        let shared = Arc::new(Node::default());
        let files = self.corpus.files(&self.directory)?;
        Ok(files
            .into_iter()
            .filter(|file| is_case(file))
            .map(|file| {
                let id =
                    file.with_extension(if has_extension(&file, "yaml") { "" } else { extension(&file) });
                self.case(slashed(&id), &file.into(), Node::default(), &shared)
            })
            .collect())
    }
}

/// Moves the entries out of a document: items of `cases` lists, at the top or one level down, items of other lists of
/// mappings at the top, and mappings that name their own golden file.
fn take_entries(document: &mut Node, prefix: &str, found: &mut Vec<(String, Node)>) {
    let Value::Map(map) = &mut document.value else { return };
    let keys: Vec<_> = map.iter().map(|entry| entry.key.clone()).collect();
    for key in keys {
        let Some(node) = map.get_mut(&key) else { continue };
        let is_cases = &*key == "cases";
        match &mut node.value {
            Value::List(items) if is_cases || (prefix.is_empty() && is_list_of_maps(items)) => {
                let group = if is_cases { prefix.to_owned() } else { format!("{key}/") };
                let named = std::mem::take(items).into_iter().enumerate();
                found.extend(named.map(|(index, item)| (format!("{group}{}", id_of(&item, index)), item)));
            }
            Value::Map(inner) if prefix.is_empty() && inner.contains_key("golden") => {
                found.push((key.to_string(), std::mem::take(node)));
            }
            Value::Map(inner) if prefix.is_empty() && inner.contains_key("cases") => {
                take_entries(node, &format!("{key}/"), found);
            }
            _ => {}
        }
    }
}

fn is_list_of_maps(items: &[Node]) -> bool {
    !items.is_empty() && items.iter().all(|item| item.as_map().is_some())
}

/// What an entry calls itself, else what it is about, else its place in the list.
fn id_of(entry: &Node, index: usize) -> String {
    ["id", "name", "golden", "input", "args"]
        .iter()
        .find_map(|key| match &entry.get(key)?.value {
            Value::String(text) if !text.is_empty() => Some(text.to_string()),
            Value::List(items) => {
                let words: Vec<_> = items.iter().filter_map(Node::as_str).collect();
                (!words.is_empty()).then(|| words.join(" "))
            }
            _ => None,
        })
        .unwrap_or_else(|| index.to_string())
}

/// Numbers the second and later cases of one name.
fn with_unique_ids(mut cases: Vec<Case>) -> Vec<Case> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for case in &mut cases {
        let count = seen.entry(case.id.clone()).or_default();
        *count += 1;
        if *count > 1 {
            case.id = format!("{}#{count}", case.id);
        }
    }
    cases
}

fn is_case_document(file: &Path) -> bool {
    let in_inputs = file.iter().any(|part| INPUT_DIRECTORIES.iter().any(|name| part == *name));
    // `x.full.yaml` is the long form of the answer that `x.yaml` summarises.
    has_extension(file, "yaml") && !in_inputs && !stem(file).ends_with(".full")
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn slashed(path: &Path) -> String {
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn corpus(files: &[(&str, &str)]) -> (tempfile::TempDir, Corpus) {
        let root = tempfile::tempdir().unwrap();
        for (file, content) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let corpus = Corpus::open(root.path()).unwrap();
        (root, corpus)
    }

    #[track_caller]
    fn check(suite: &str, files: &[(&str, &str)], layout: Layout, ids: &[&str]) {
        let (_root, corpus) = corpus(files);
        assert_eq!(Layout::detect(suite, &corpus), layout);
        let cases = layout.cases(suite, &corpus).unwrap();
        assert_eq!(cases.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ids);
    }

    #[test]
    fn cases_file_is_searched_for_every_list_of_cases() {
        let yaml = "defaults: {a: [{b: 1}]}\ncases: [{name: one}, {args: [-f, x]}, {name: one}]\n\
                    more: [{golden: g}]\ngroup: {rule: r, cases: [{name: one}]}\nlone: {golden: x}\nwords: [a]\n";
        check(
            "s",
            &[("s/cases.yaml", yaml)],
            Layout::Cases,
            &["one", "-f x", "one#2", "more/g", "group/one", "lone"],
        );
    }

    #[test]
    fn cases_file_without_a_list_is_one_case() {
        check("s", &[("s/cases.yaml", "note: see below\n")], Layout::Cases, &["cases"]);
    }

    #[test]
    fn tables_are_found_in_every_file() {
        let tests = "tests:\n- test: T\n  cases: [{id: T/a}, {b: 1}]\n- test: U\n  cases: [{id: U/a}]\n";
        check(
            "tables-x",
            &[("tables-x/p.yaml", tests), ("tables-x/q.yaml", "cases: [{id: a}]\n")],
            Layout::Tables,
            &["p/T/a", "p/1", "p/U/a", "q/a"],
        );
    }

    #[test]
    fn scenarios_come_from_the_index() {
        let index =
            "scenarios: [{group: g, scenario: s}, {group: g, scenario: gone}, {group: g, scenario: t}]\n";
        let files = [("x/index.yaml", index), ("x/g/t/scenario.yaml", ""), ("x/g/s/scenario.yaml", "")];
        check("x", &files, Layout::Index, &["g/s", "g/t"]);
    }

    #[test]
    fn scenarios_are_found_by_their_files_when_there_is_no_index() {
        check("xds", &[("xds/g/s/scenario.yaml", ""), ("xds/g/s/kube.yaml", "")], Layout::Index, &["g/s"]);
    }

    #[test]
    fn recorded_documents_leave_out_what_they_share() {
        check(
            "live-x",
            &[
                ("live-x/README.md", ""),
                ("live-x/a/b.yaml", ""),
                ("live-x/a/b.body.json", ""),
                ("live-x/a/b.full.yaml", ""),
                ("live-x/inputs/c.yaml", ""),
            ],
            Layout::Documents,
            &["a/b"],
        );
    }

    #[test]
    fn suite_without_any_list_is_inputs() {
        check("samples", &[("samples/a.yaml", "a: 1\n")], Layout::Inputs, &[]);
    }

    #[test]
    fn table_header_is_shared_and_entries_are_not_in_it() {
        let (_root, corpus) = corpus(&[("tables-x/p.yaml", "tests: [{test: T, cases: [{id: a}]}]\n")]);
        let cases = Layout::Tables.cases("tables-x", &corpus).unwrap();
        assert_eq!(cases[0].shared.get("test").and_then(Node::as_str), Some("T"));
        assert_eq!(cases[0].text("id"), Some("a"));
        assert!(cases[0].shared.get("cases").unwrap().as_list().unwrap().is_empty());
    }

    #[test]
    fn file_names_of_a_case_are_relative_to_its_suite() {
        let (_root, corpus) = corpus(&[("s/cases.yaml", "cases: [{name: a}]\n")]);
        let cases = Layout::Cases.cases("s", &corpus).unwrap();
        assert_eq!(cases[0].path("a.golden"), Path::new("s/a.golden"));
    }
}
