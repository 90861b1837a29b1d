use cargo_metadata::DependencyKind;

use super::Violation;
use super::tree::{Crate, Dependency, Tree};

/// A row of the crate table.
struct Row {
    name: &'static str,
    /// Rows above it that it must not know all the same.
    must_not_know: &'static [&'static str],
}

const fn row(name: &'static str, must_not_know: &'static [&'static str]) -> Row {
    Row { name, must_not_know }
}

/// The product's crates, lowest layer first. A crate may depend only on rows above its own.
const TABLE: [Row; 23] = [
    row("base", &[]),
    row("proto", &[]),
    row("gotemplate", &["proto"]),
    row("engine", &["proto", "gotemplate"]),
    row("runtime", &["proto", "gotemplate", "engine"]),
    row("api", &[]),
    row("identity", &["engine", "api"]),
    row("mesh", &[]),
    row("envoy", &[]),
    row("ambient", &[]),
    row("xds", &["api", "mesh", "envoy", "ambient"]),
    row(
        "http",
        &["proto", "gotemplate", "engine", "runtime", "api", "identity", "mesh", "envoy", "ambient", "xds"],
    ),
    row("sources", &["envoy", "ambient"]),
    row("admission", &["xds", "sources"]),
    row("analysis", &["xds", "sources"]),
    row("controllers", &["envoy", "ambient", "xds"]),
    row("install", &["xds"]),
    row("capture", &["engine", "mesh", "envoy", "ambient", "xds", "sources"]),
    row(
        "agent",
        &["api", "engine", "mesh", "envoy", "ambient", "sources", "admission", "controllers", "install"],
    ),
    row("cni", &["engine", "mesh", "envoy", "ambient", "xds", "controllers", "agent"]),
    row("daemon", &[]),
    row("local", &["agent", "daemon"]),
    row("cli", &[]),
];

/// Crates that no product crate may need outside its tests, each with what it may know of the project itself.
const DEV_ONLY: [(&str, Knows); 9] = [
    ("parts", Knows::Only(&[])),
    ("images", Knows::Only(&["parts"])),
    ("testkit", Knows::Everything),
    ("golden", Knows::Only(&["base", "proto", "engine", "runtime", "api", "mesh"])),
    ("fuzzing", Knows::Everything),
    ("conformance", Knows::Everything),
    ("bench", Knows::Everything),
    ("storefront", Knows::Only(&["parts"])),
    ("xtask", Knows::Only(&["parts", "images"])),
];

enum Knows {
    Only(&'static [&'static str]),
    Everything,
}

/// Whether the crate is part of the product, in the table's order.
pub(super) fn position(name: &str) -> Option<usize> {
    TABLE.iter().position(|row| row.name == name)
}

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.crates.iter().flat_map(check_crate).collect()
}

fn check_crate(member: &Crate) -> Vec<Violation> {
    let dev_only = DEV_ONLY.iter().find(|(name, _)| *name == member.name());
    let own = member.dependencies.iter().filter_map(|dependency| Some((dependency, own_crate(dependency)?)));
    match (position(member.name()), dev_only) {
        (Some(place), _) => {
            own.filter_map(|(dependency, name)| check_product(member, place, dependency, name)).collect()
        }
        (None, Some((_, Knows::Only(known)))) => own
            .filter(|(_, name)| !known.contains(name))
            .map(|(_, name)| knows_too_much(member, name))
            .collect(),
        (None, Some((_, Knows::Everything))) => Vec::new(),
        (None, None) => vec![not_in_table(member)],
    }
}

/// The table's name of a dependency on a crate of ours.
fn own_crate(dependency: &Dependency) -> Option<&str> {
    dependency.package.strip_prefix("canopus-")
}

fn check_product(member: &Crate, place: usize, dependency: &Dependency, name: &str) -> Option<Violation> {
    if dependency.kind == DependencyKind::Development && is_dev_only(name) {
        return None;
    }
    let violation = |found: String, law, remedy: &str| {
        Some(Violation { file: member.manifest(), line: None, found, law, remedy: remedy.to_owned() })
    };
    let this = member.name();
    let Some(other) = position(name) else {
        return violation(
            format!("`{this}` depends on `{name}`, which is not a crate of the product"),
            "the product never needs a crate that exists for development",
            "depend on it in [dev-dependencies], or move what is shared into a product crate",
        );
    };
    if other >= place {
        return violation(
            format!("`{this}` depends on `{name}`, which is not above it in the crate table"),
            "a crate depends only on crates above it in the table (xtask/src/tidy/layers.rs)",
            "move the shared part up, or turn the dependency round with a trait",
        );
    }
    if TABLE[place].must_not_know.contains(&name) {
        return violation(
            format!("`{this}` depends on `{name}`"),
            "what a crate must not know is part of the crate table (xtask/src/tidy/layers.rs)",
            "pass what is needed in as data, or move the code to a crate that may know both",
        );
    }
    None
}

fn is_dev_only(name: &str) -> bool {
    DEV_ONLY.iter().any(|(dev_only, _)| *dev_only == name)
}

fn knows_too_much(member: &Crate, name: &str) -> Violation {
    Violation {
        file: member.manifest(),
        line: None,
        found: format!("`{}` depends on `{name}`", member.name()),
        law: "the tools that check and test the product do not depend on it",
        remedy: "run the product as a process, or move the code to a crate that may know it".to_owned(),
    }
}

fn not_in_table(member: &Crate) -> Violation {
    Violation {
        file: member.manifest(),
        line: None,
        found: format!("`{}` is not in the crate table", member.package),
        law: "every crate has its place in the table (xtask/src/tidy/layers.rs)",
        remedy: "add a row where its dependencies are above and its users below".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(member: &str, kind: DependencyKind, dependency: &str) -> Vec<String> {
        let package = if member == "xtask" { member.to_owned() } else { format!("canopus-{member}") };
        let member = Crate {
            package,
            directory: format!("crates/{member}"),
            roots: Vec::new(),
            dependencies: vec![Dependency {
                package: dependency.to_owned(),
                kind,
                features: Vec::new(),
                default_features: false,
            }],
        };
        let tree = Tree { crates: vec![member], files: Vec::new() };
        check(&tree).into_iter().map(|violation| violation.found).collect()
    }

    #[test]
    fn dependency_upwards_in_the_table_is_lawful() {
        assert!(violations("mesh", DependencyKind::Normal, "canopus-engine").is_empty());
        assert!(violations("mesh", DependencyKind::Normal, "serde").is_empty());
    }

    #[test]
    fn dependency_downwards_is_a_violation() {
        let found = violations("mesh", DependencyKind::Normal, "canopus-envoy");
        assert_eq!(found, ["`mesh` depends on `envoy`, which is not above it in the crate table"]);
    }

    #[test]
    fn dependency_on_what_a_crate_must_not_know_is_a_violation() {
        assert_eq!(violations("xds", DependencyKind::Normal, "canopus-mesh"), ["`xds` depends on `mesh`"]);
    }

    #[test]
    fn dev_only_crate_is_lawful_in_tests_alone() {
        assert!(violations("envoy", DependencyKind::Development, "canopus-testkit").is_empty());
        assert_eq!(violations("envoy", DependencyKind::Normal, "canopus-testkit").len(), 1);
        assert_eq!(violations("envoy", DependencyKind::Build, "canopus-parts").len(), 1);
    }

    #[test]
    fn tools_know_nothing_of_the_product() {
        assert!(violations("xtask", DependencyKind::Normal, "canopus-parts").is_empty());
        assert_eq!(
            violations("xtask", DependencyKind::Normal, "canopus-base"),
            ["`xtask` depends on `base`"]
        );
        assert_eq!(
            violations("parts", DependencyKind::Normal, "canopus-base"),
            ["`parts` depends on `base`"]
        );
    }

    #[test]
    fn crate_outside_the_table_is_a_violation() {
        let found = violations("utils", DependencyKind::Normal, "serde");
        assert_eq!(found, ["`canopus-utils` is not in the crate table"]);
    }

    #[test]
    fn rows_that_must_not_be_known_are_above() {
        for (place, row) in TABLE.iter().enumerate() {
            for name in row.must_not_know {
                assert!(position(name).is_some_and(|other| other < place), "{}: {name}", row.name);
            }
        }
    }
}
