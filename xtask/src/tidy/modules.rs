//! The top modules of every crate form a DAG.
//!
//! A cycle makes its modules one unit: none can be read, tested or moved without the others. The checker reads each file as
//! tokens, so comments and strings cannot mislead it, collects the paths that begin with `crate::` or climb to the crate
//! root with `super::`, and reports the shortest cycle with the line of each reference. Names that the crate root re-exports
//! count as references to the module they come from. Test code may refer to anything.

mod references;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Violation;
use super::tree::{Crate, TextFile, Tree};
use references::{Reference, RootItems};

/// Crates whose modules still form cycles. An entry is removed with the last cycle of its crate; none is added.
const CYCLIC: [&str; 0] = [];

/// A reference from one top module to another: the file and line where it stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    file: String,
    line: usize,
}

/// The first reference between each pair of top modules that has one.
type Graph = BTreeMap<String, BTreeMap<String, Site>>;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.crates.iter().filter_map(|member| check_crate(tree, member)).collect()
}

fn check_crate(tree: &Tree, member: &Crate) -> Option<Violation> {
    let is_known = CYCLIC.contains(&member.name());
    let cycle = shortest_cycle(&graph(tree, member));
    match (cycle, is_known) {
        (Some(cycle), false) => Some(cyclic(&cycle)),
        (None, true) => Some(Violation {
            file: "xtask/src/tidy/modules.rs".to_owned(),
            line: None,
            found: format!("`{}` is listed as cyclic, but its modules form a DAG", member.name()),
            law: LAW,
            remedy: "remove the crate from CYCLIC".to_owned(),
        }),
        _ => None,
    }
}

const LAW: &str = "the top modules of a crate form a DAG";

fn cyclic(cycle: &[(String, Site)]) -> Violation {
    let mut path = cycle.last().map(|(module, _)| module.clone()).unwrap_or_default();
    for (module, site) in cycle {
        path.push_str(&format!(" -> {module} ({}:{})", site.file, site.line));
    }
    let first = cycle.first().map(|(_, site)| site);
    Violation {
        file: first.map(|site| site.file.clone()).unwrap_or_default(),
        line: first.map(|site| site.line),
        found: format!("top modules refer to each other: {path}"),
        law: LAW,
        remedy: "move what both need into a module below them, or pass it in".to_owned(),
    }
}

/// The references between the top modules of a crate's library, or of its binary if it has no library.
fn graph(tree: &Tree, member: &Crate) -> Graph {
    let mut graph = Graph::new();
    let is_library = |root: &&String| root.ends_with("/lib.rs");
    let Some(root) = member.roots.iter().find(is_library).or_else(|| member.roots.first()) else {
        return graph;
    };
    let Some((directory, _)) = root.rsplit_once('/') else { return graph };
    let Some(items) = tree.file(root).and_then(|file| RootItems::parse(&file.text)) else { return graph };
    let sources: Vec<_> = tree.files.iter().filter(|file| is_source(file, directory, root)).collect();
    let test_files = test_only_files(directory, root, &sources, tree.file(root));
    for file in sources.iter().filter(|file| !is_test(file, &test_files)) {
        let Some(module) = top_module(file, directory) else { continue };
        for Reference { name, line } in references::in_file(&file.text, module.depth) {
            let Some(target) = items.module_of(&name).filter(|target| **target != *module.name) else {
                continue;
            };
            let targets = graph.entry(module.name.to_owned()).or_default();
            targets.entry(target.to_owned()).or_insert_with(|| Site { file: file.path.clone(), line });
        }
    }
    graph
}

fn is_source(file: &TextFile, directory: &str, root: &str) -> bool {
    let below = file.path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
    below.is_some_and(|rest| rest.ends_with(".rs") && !rest.starts_with("bin/") && rest != "main.rs")
        && file.path != root
}

/// The paths, without extension, of modules that exist in tests only.
fn test_only_files(
    directory: &str,
    root: &str,
    sources: &[&TextFile],
    root_file: Option<&TextFile>,
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in sources.iter().copied().chain(root_file) {
        let parent = if file.path == root { directory } else { file.path.trim_end_matches(".rs") };
        for module in references::test_modules(&file.text) {
            found.insert(format!("{parent}/{module}"));
        }
    }
    found
}

fn is_test(file: &TextFile, test_files: &BTreeSet<String>) -> bool {
    let path = file.path.trim_end_matches(".rs");
    test_files
        .iter()
        .any(|test| path == test || path.strip_prefix(test).is_some_and(|rest| rest.starts_with('/')))
}

/// The top module that a file belongs to.
struct TopModule<'a> {
    name: &'a str,
    /// How many modules the file is below the crate root: 1 for the file of the top module itself.
    depth: usize,
}

fn top_module<'a>(file: &'a TextFile, directory: &str) -> Option<TopModule<'a>> {
    let path = file.path.strip_prefix(directory)?.strip_prefix('/')?.strip_suffix(".rs")?;
    let name = path.split('/').next()?;
    Some(TopModule { name, depth: path.split('/').count() })
}

/// The shortest cycle: the modules after the first, each with the reference that leads to it, back to the first.
fn shortest_cycle(graph: &Graph) -> Option<Vec<(String, Site)>> {
    let cycles = graph.keys().filter_map(|start| path_back(graph, start));
    cycles.min_by_key(Vec::len)
}

/// The shortest path from a module back to itself.
fn path_back(graph: &Graph, start: &str) -> Option<Vec<(String, Site)>> {
    let mut came_from: BTreeMap<&str, (&str, &Site)> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for (target, site) in graph.get(module).into_iter().flatten() {
            if came_from.contains_key(target.as_str()) {
                continue;
            }
            came_from.insert(target, (module, site));
            if target == start {
                return Some(unwind(&came_from, start));
            }
            queue.push_back(target);
        }
    }
    None
}

fn unwind(came_from: &BTreeMap<&str, (&str, &Site)>, start: &str) -> Vec<(String, Site)> {
    let mut path = Vec::new();
    let mut at = start;
    while let Some((before, site)) = came_from.get(at) {
        path.push((at.to_owned(), (*site).clone()));
        if *before == start {
            break;
        }
        at = before;
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let member = Crate {
            package: "canopus-x".to_owned(),
            directory: "crates/x".to_owned(),
            roots: vec!["crates/x/src/lib.rs".to_owned()],
            dependencies: Vec::new(),
        };
        let file = |(path, text): &(&str, &str)| TextFile {
            path: format!("crates/x/src/{path}"),
            text: (*text).to_owned(),
        };
        Tree { crates: vec![member], files: files.iter().map(file).collect() }
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&tree(files)).into_iter().map(|violation| violation.found).collect()
    }

    #[test]
    fn cycle_is_reported_with_both_ends() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("a.rs", "use crate::b::{self, X};\n"),
            ("b.rs", "mod deep;\n"),
            ("b/deep.rs", "fn f() {\n    super::super::a::g();\n}\n"),
            ("c.rs", "use crate::a::Y;\n"),
        ];
        let expected =
            "top modules refer to each other: a -> b (crates/x/src/a.rs:1) -> a (crates/x/src/b/deep.rs:2)";
        assert_eq!(found(&files), [expected]);
    }

    #[test]
    fn shortest_of_several_cycles_is_reported() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::X;"),
            ("b.rs", "use crate::c::X;"),
            ("c.rs", "use crate::{a::X, d};"),
            ("d.rs", "use crate::c::X;"),
        ];
        let expected =
            "top modules refer to each other: c -> d (crates/x/src/c.rs:1) -> c (crates/x/src/d.rs:1)";
        assert_eq!(found(&files), [expected]);
    }

    #[test]
    fn reexport_of_the_root_is_a_reference_to_its_module() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::{Y as Z};"),
            ("a.rs", "use crate::Z;"),
            ("b.rs", "use crate::a;"),
        ];
        assert_eq!(found(&files).len(), 1);
    }

    #[test]
    fn tests_comments_and_strings_are_no_references() {
        let files = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod fixture;"),
            ("a.rs", "use crate::b::X; #[cfg(test)] mod checks;"),
            ("a/checks.rs", "use crate::fixture;"),
            (
                "b.rs",
                "// crate::a::X\nconst T: &str = \"crate::a::X\";\n#[cfg(test)]\nmod tests { use crate::a::X; }\n#[cfg(test)]\nuse crate::a::{Y};\n",
            ),
            ("fixture.rs", "use crate::{a, b};"),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn references_inside_macros_are_found() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "fn f() { println!(\"{}\", crate::b::X); }"),
            ("b.rs", "use super::a;"),
        ];
        assert_eq!(found(&files).len(), 1);
    }
}
