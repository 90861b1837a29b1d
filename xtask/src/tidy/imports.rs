use cargo_metadata::DependencyKind;

use super::Violation;
use super::layers::position;
use super::tree::{Crate, Dependency, TextFile, Tree};

/// A library that only some crates may use.
struct Law {
    applies: fn(&Dependency) -> bool,
    /// Crates that may.
    allowed: fn(&str) -> bool,
    /// Whether tests are bound by it as well.
    in_tests: bool,
    law: &'static str,
    remedy: &'static str,
}

const LAWS: [Law; 4] = [
    Law {
        applies: |dependency| {
            let name = dependency.package.as_str();
            name.starts_with("prost") || name.starts_with("tonic-prost") || name == "protox"
        },
        allowed: |name| name == "proto",
        in_tests: true,
        law: "protobuf is known only to `proto`",
        remedy: "use what `proto` exports, or add the helper there",
    },
    Law {
        applies: |dependency| matches!(dependency.package.as_str(), "kube" | "kube-client" | "kube-runtime"),
        allowed: |name| matches!(name, "sources" | "cli" | "install"),
        in_tests: false,
        law: "the Kubernetes client is known only to `sources`, `cli` and `install`",
        remedy: "take objects from `sources`, or the types from `api`",
    },
    Law {
        applies: |dependency| {
            let serves = |feature: &String| matches!(feature.as_str(), "server" | "transport" | "router");
            dependency.package == "tonic"
                && (dependency.default_features || dependency.features.iter().any(serves))
        },
        allowed: |name| matches!(name, "xds" | "identity" | "agent" | "daemon"),
        in_tests: false,
        law: "gRPC is served only by `xds`, `identity`, `agent` and `daemon`",
        remedy: "implement the service's logic without I/O and let one of those serve it",
    },
    Law {
        applies: |dependency| {
            matches!(dependency.package.as_str(), "tokio" | "tokio-stream" | "tokio-util" | "hyper" | "axum")
        },
        allowed: |name| matches!(name, "runtime" | "identity") || position(name) >= position("xds"),
        in_tests: false,
        law: "nothing above `xds` in the crate table is asynchronous, except `runtime` and `identity`",
        remedy: "keep the crate pure and do the waiting in a crate from `xds` on",
    },
];

/// The one place that reads the environment.
const FLAGS: [&str; 2] = ["crates/runtime/src/flags.rs", "crates/runtime/src/flags/"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let product = || tree.crates.iter().filter(|member| position(member.name()).is_some());
    let libraries = product().flat_map(libraries);
    let environment = product().flat_map(|member| environment(tree, member));
    libraries.chain(environment).collect()
}

fn libraries(member: &Crate) -> Vec<Violation> {
    let broken = |dependency: &Dependency, law: &Law| {
        (law.applies)(dependency)
            && !(law.allowed)(member.name())
            && (law.in_tests || dependency.kind != DependencyKind::Development)
    };
    let pairs =
        member.dependencies.iter().flat_map(|dependency| LAWS.iter().map(move |law| (dependency, law)));
    pairs
        .filter(|(dependency, law)| broken(dependency, law))
        .map(|(dependency, law)| Violation {
            file: member.manifest(),
            line: None,
            found: format!("`{}` uses `{}`{}", member.name(), dependency.package, with_features(dependency)),
            law: law.law,
            remedy: law.remedy.to_owned(),
        })
        .collect()
}

fn with_features(dependency: &Dependency) -> String {
    match (dependency.default_features, dependency.features.as_slice()) {
        (false, []) => String::new(),
        (true, []) => " with its default features".to_owned(),
        (false, features) => format!(" with {}", features.join(", ")),
        (true, features) => format!(" with its default features and {}", features.join(", ")),
    }
}

fn environment(tree: &Tree, member: &Crate) -> Vec<Violation> {
    let sources = format!("{}/src/", member.directory);
    let bound = |file: &&TextFile| {
        file.path.starts_with(&sources) && !FLAGS.iter().any(|allowed| file.path.starts_with(allowed))
    };
    let lines = tree.files.iter().filter(bound).flat_map(|file| {
        let reads = |line: &str| line.contains("env::var") && !line.trim_start().starts_with("//");
        file.numbered_lines().filter(move |(_, line)| reads(line)).map(move |(number, _)| (file, number))
    });
    lines
        .map(|(file, number)| Violation {
            file: file.path.clone(),
            line: Some(number),
            found: "reads an environment variable".to_owned(),
            law: "the environment is read only in `runtime::flags`",
            remedy: "declare a flag there and pass its value in".to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(member: &str, package: &str, kind: DependencyKind, features: &[&str]) -> bool {
        let member = Crate {
            package: format!("canopus-{member}"),
            directory: format!("crates/{member}"),
            roots: Vec::new(),
            dependencies: vec![Dependency {
                package: package.to_owned(),
                kind,
                features: features.iter().map(|&feature| feature.to_owned()).collect(),
                default_features: false,
            }],
        };
        check(&Tree { crates: vec![member], files: Vec::new() }).is_empty()
    }

    #[test]
    fn prost_is_lawful_in_proto_alone() {
        assert!(uses("proto", "prost", DependencyKind::Normal, &[]));
        assert!(!uses("envoy", "prost", DependencyKind::Normal, &[]));
        assert!(!uses("envoy", "prost-types", DependencyKind::Development, &[]));
        assert!(!uses("envoy", "tonic-prost", DependencyKind::Normal, &[]));
    }

    #[test]
    fn kubernetes_client_is_lawful_in_three_crates() {
        assert!(uses("sources", "kube", DependencyKind::Normal, &[]));
        assert!(!uses("mesh", "kube", DependencyKind::Normal, &[]));
    }

    #[test]
    fn grpc_may_be_called_but_not_served_elsewhere() {
        assert!(uses("sources", "tonic", DependencyKind::Normal, &["codegen", "channel"]));
        assert!(!uses("sources", "tonic", DependencyKind::Normal, &["server"]));
        assert!(uses("daemon", "tonic", DependencyKind::Normal, &["transport"]));
    }

    #[test]
    fn tokio_is_lawful_from_xds_on_and_in_runtime_and_identity() {
        for lawful in ["runtime", "identity", "xds", "cli"] {
            assert!(uses(lawful, "tokio", DependencyKind::Normal, &[]), "{lawful}");
        }
        for unlawful in ["base", "api", "mesh", "envoy", "ambient"] {
            assert!(!uses(unlawful, "tokio", DependencyKind::Normal, &[]), "{unlawful}");
        }
        assert!(uses("envoy", "tokio", DependencyKind::Development, &[]), "tests may wait");
    }

    #[test]
    fn environment_is_read_in_the_flags_alone() {
        let file = |path: &str| TextFile {
            path: path.to_owned(),
            text: "//! Doc.\n// env::var is not for here\nlet x = std::env::var_os(\"X\");\n".to_owned(),
        };
        let member = |name: &str| Crate {
            package: format!("canopus-{name}"),
            directory: format!("crates/{name}"),
            roots: Vec::new(),
            dependencies: Vec::new(),
        };
        let tree = Tree {
            crates: vec![member("runtime"), member("mesh"), member("testkit")],
            files: vec![
                file("crates/runtime/src/flags/read.rs"),
                file("crates/mesh/src/scope.rs"),
                file("crates/testkit/src/lib.rs"),
            ],
        };
        let found: Vec<_> =
            check(&tree).into_iter().map(|violation| (violation.file, violation.line)).collect();
        assert_eq!(found, [("crates/mesh/src/scope.rs".to_owned(), Some(3))]);
    }
}
