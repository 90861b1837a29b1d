//! Metrics that nothing writes are listed as such, so that the page on metrics claims no value that there is not.

use std::collections::BTreeSet;

use super::Violation;
use super::flags::constants;
use super::tree::{TextFile, Tree};

/// Where metrics are declared, and the section that lists those that nothing writes.
const CATALOGUE: &str = "crates/runtime/src/metrics/catalogue";
const PAGE: &str = "docs/metrics.md";
const SECTION: &str = "## Not written yet";

const LAW: &str = "a metric that nothing writes is listed as such";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let unwritten = listed(tree);
    let written = words(tree);
    let catalogue = tree.files.iter().filter(|file| file.path.starts_with(CATALOGUE));
    let declared = catalogue.flat_map(|file| {
        let metric = |(line, text)| Some((file.path.clone(), line, declaration(text)?));
        file.numbered_lines().filter_map(metric).collect::<Vec<_>>()
    });
    declared
        .filter_map(|(file, line, (constant, metric))| {
            let (found, remedy) = match (written.contains(constant), unwritten.contains(metric)) {
                (false, false) => ("nothing writes", "write the metric, remove it, or add it to"),
                (true, true) => ("something writes", "remove the metric from"),
                _ => return None,
            };
            Some(Violation {
                file,
                line: Some(line),
                found: format!("{found} `{metric}`"),
                law: LAW,
                remedy: format!("{remedy} \"{}\" of {PAGE}", SECTION.trim_start_matches("## ")),
            })
        })
        .collect()
}

/// The constant and the name of a metric that a row declares: `Counter NAME = "name"["label"];`.
fn declaration(line: &str) -> Option<(&str, &str)> {
    let (kind, rest) = line.trim_start().split_once(' ')?;
    let (constant, rest) = rest.split_once(" = \"")?;
    let (metric, labels) = rest.split_once('"')?;
    (matches!(kind, "Counter" | "Gauge" | "Histogram") && labels.starts_with('['))
        .then_some((constant, metric))
}

/// The metrics that the page lists as without a value.
fn listed(tree: &Tree) -> BTreeSet<&str> {
    let page = tree.file(PAGE).map_or("", |file| file.text.as_str());
    let section = page.split_once(SECTION).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    section.split('`').skip(1).step_by(2).collect()
}

/// The constants that code names outside of the catalogue.
fn words(tree: &Tree) -> BTreeSet<&str> {
    let is_source = |file: &&TextFile| {
        file.path.starts_with("crates/")
            && file.path.contains("/src/")
            && file.path.ends_with(".rs")
            && !file.path.starts_with(CATALOGUE)
    };
    tree.files.iter().filter(is_source).flat_map(|file| constants(&file.text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str, code: &str) -> Vec<String> {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = vec![
            file(&format!("{CATALOGUE}/a.rs"), "    Counter A_TOTAL = \"a_total\"[\"type\"];\n"),
            file(PAGE, page),
            file("crates/x/src/lib.rs", code),
        ];
        check(&Tree { crates: Vec::new(), files }).into_iter().map(|violation| violation.found).collect()
    }

    #[test]
    fn page_is_held_to_the_source() {
        assert_eq!(found("", ""), ["nothing writes `a_total`"]);
        assert_eq!(found("Elsewhere: `a_total`", ""), ["nothing writes `a_total`"]);
        assert!(found("## Not written yet\n\n`b`, `a_total`.\n\n## More", "").is_empty());
        assert_eq!(found("## Not written yet\n`a_total`", "A_TOTAL.inc()"), ["something writes `a_total`"]);
        assert!(found("", "A_TOTAL.inc()").is_empty());
    }
}
