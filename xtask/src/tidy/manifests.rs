use toml::{Table, Value};

use super::Violation;
use super::tree::{Crate, Tree};

/// Package fields that are the workspace's to say.
const INHERITED: [&str; 5] = ["version", "edition", "rust-version", "license", "publish"];

/// Tables of a manifest that list dependencies.
const DEPENDENCIES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.crates.iter().flat_map(|member| check_crate(tree, member)).collect()
}

fn check_crate(tree: &Tree, member: &Crate) -> Vec<Violation> {
    let path = member.manifest();
    let Some(file) = tree.file(&path) else {
        return Vec::new();
    };
    let manifest: Table = match file.text.parse() {
        Ok(manifest) => manifest,
        Err(error) => {
            return vec![violation(&path, error.to_string(), "a manifest is TOML", "mend it")];
        }
    };
    let fields = INHERITED
        .iter()
        .filter(|field| !inherits(manifest.get("package").and_then(|p| p.get(field))))
        .map(|field| {
            violation(
                &path,
                format!("`{field}` is not inherited"),
                "package fields that all crates share are said once, in the workspace",
                &format!("write `{field}.workspace = true`"),
            )
        });
    let lints = (!inherits(manifest.get("lints"))).then(|| {
        violation(
            &path,
            "the workspace's lints are not inherited".to_owned(),
            "every crate has the workspace's lints",
            "add `[lints]` with `workspace = true`",
        )
    });
    let dependencies =
        dependencies(&manifest).into_iter().filter(|(_, value)| !inherits(Some(value))).map(|(name, _)| {
            violation(
                &path,
                format!("dependency `{name}` is not inherited"),
                "dependencies are declared once, in [workspace.dependencies] of the root manifest",
                &format!("declare it there and write `{name}.workspace = true` (plus features) here"),
            )
        });
    fields.chain(lints).chain(dependencies).collect()
}

fn inherits(value: Option<&Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(Value::as_bool) == Some(true)
}

/// Every dependency of a manifest, those for some targets only included.
fn dependencies(manifest: &Table) -> Vec<(&String, &Value)> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = targets.filter_map(Value::as_table).chain([manifest]);
    tables
        .flat_map(|table| DEPENDENCIES.iter().filter_map(|kind| table.get(*kind)))
        .filter_map(Value::as_table)
        .flatten()
        .collect()
}

fn violation(file: &str, found: String, law: &'static str, remedy: &str) -> Violation {
    Violation { file: file.to_owned(), line: None, found, law, remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::TextFile;

    const GOOD: &str = r#"
[package]
name = "canopus-base"
version.workspace = true
edition.workspace = true
rust-version.workspace = true
license.workspace = true
publish.workspace = true

[lints]
workspace = true

[dependencies]
serde.workspace = true
tokio = { workspace = true, features = ["net"] }
"#;

    fn found(manifest: &str) -> Vec<String> {
        let member = Crate {
            package: "canopus-base".to_owned(),
            directory: "crates/base".to_owned(),
            roots: Vec::new(),
            dependencies: Vec::new(),
        };
        let file = TextFile { path: "crates/base/Cargo.toml".to_owned(), text: manifest.to_owned() };
        let tree = Tree { crates: vec![member], files: vec![file] };
        check(&tree).into_iter().map(|violation| violation.found).collect()
    }

    #[test]
    fn manifest_that_inherits_all_is_lawful() {
        assert_eq!(found(GOOD), [""; 0]);
    }

    #[test]
    fn own_version_of_a_dependency_is_a_violation() {
        let manifest = GOOD.replace("serde.workspace = true", "serde = \"1\"");
        assert_eq!(found(&manifest), ["dependency `serde` is not inherited"]);
        let manifest =
            format!("{GOOD}[target.'cfg(unix)'.dev-dependencies]\nnix = {{ version = \"0.31\" }}\n");
        assert_eq!(found(&manifest), ["dependency `nix` is not inherited"]);
    }

    #[test]
    fn missing_lints_are_a_violation() {
        let manifest = GOOD.replace("[lints]\nworkspace = true\n", "");
        assert_eq!(found(&manifest), ["the workspace's lints are not inherited"]);
    }

    #[test]
    fn own_edition_is_a_violation() {
        let manifest = GOOD.replace("edition.workspace = true", "edition = \"2021\"");
        assert_eq!(found(&manifest), ["`edition` is not inherited"]);
    }
}
