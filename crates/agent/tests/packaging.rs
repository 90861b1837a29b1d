//! The files for machines, read by systemd's own tools. Without those, or without root, there is nothing to ask.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};

/// Where a package would put each file.
const FILES: [(&str, &str, u32); 4] = [
    ("systemd/canopus-agent.service", "usr/lib/systemd/system/canopus-agent.service", 0o644),
    ("systemd/canopus-agent.sysusers", "usr/lib/sysusers.d/canopus-agent.conf", 0o644),
    ("systemd/canopus-agent.tmpfiles", "usr/lib/tmpfiles.d/canopus-agent.conf", 0o644),
    ("bin/canopus-agent-start", "usr/local/bin/canopus-agent-start", 0o755),
];

/// The user of Istio's packages, whose traffic packet rules leave alone.
const PROXY: u32 = 1337;

fn install(root: &Path) {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    for (from, to, mode) in FILES {
        let to = root.join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(packaging.join(from), &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
    }
    for directory in ["etc", "run", "var"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
}

/// Runs a tool, which may find nothing wrong, and gives what it says.
#[track_caller]
fn check(program: &str, arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = Command::new(program).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    assert!(status.success(), "{program} {arguments:?}: {status}: {stderr}");
    stderr
}

#[test]
fn systemd_takes_the_unit_the_user_and_the_directories() {
    let tools = ["systemd-analyze", "systemd-sysusers", "systemd-tmpfiles"];
    let are_there = tools.iter().all(|tool| Command::new(tool).arg("--version").output().is_ok());
    if !are_there || !nix::unistd::geteuid().is_root() {
        return eprintln!("not checked: it takes root and {}", tools.join(", "));
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    install(root);
    let at = format!("--root={}", root.display());
    check("systemd-sysusers", &[&at]);
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap();
    assert!(users.contains("istio-proxy:x:1337:1337:"), "{users}");
    check("systemd-tmpfiles", &[&at, "--create"]);
    for (path, owner, mode) in [
        ("etc/istio/config", 0, 0o755),
        ("etc/istio/proxy", PROXY, 0o750),
        ("etc/certs", PROXY, 0o750),
        ("var/lib/istio/data", PROXY, 0o700),
        ("run/secrets/tokens", PROXY, 0o750),
    ] {
        let metadata = fs::metadata(root.join(path)).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (owner, mode), "{path}");
    }
    // The units around it are the system's, which is not there.
    let unit = "/usr/lib/systemd/system/canopus-agent.service";
    let said = check("systemd-analyze", &["verify", "--man=no", "--recursive-errors=no", &at, unit]);
    assert!(!said.contains(unit), "settings it does not know: {said}");
    // What may be written exists once the directories are made.
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/canopus-agent.service")).unwrap();
    let writable = unit.lines().find_map(|line| line.strip_prefix("ReadWritePaths=")).unwrap();
    for path in writable.split(' ') {
        assert!(root.join(path.trim_start_matches('/')).is_dir(), "{path}");
    }
}
