//! What meshes could leave on a machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::lab::{search_path, text};

/// Everything that is compared before and after: namespaces, links, addresses, routes, packet rules, mounts, sockets that listen,
/// processes, and files of `directory` and of the directories that programs use without asking.
pub(crate) fn traces(directory: &Path) -> Result<BTreeSet<String>> {
    let mut traces = BTreeSet::new();
    let namespaces = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    traces.extend(namespaces.map(|entry| format!("namespace {}", entry.file_name().to_string_lossy())));
    for (what, words) in [
        ("link", &["ip", "-oneline", "link"][..]),
        ("address", &["ip", "-oneline", "address"]),
        ("rule", &["ip", "rule"]),
        ("route", &["ip", "route", "show", "table", "all"]),
        ("iptables", &["iptables-nft-save"]),
        ("iptables", &["iptables-legacy-save"]),
        ("ip6tables", &["ip6tables-nft-save"]),
        ("ip6tables", &["ip6tables-legacy-save"]),
    ] {
        traces.extend(told(words)?.into_iter().map(|line| format!("{what} {line}")));
    }
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    traces.extend(mounts.lines().map(|line| format!("mount {line}")));
    listening(&mut traces)?;
    processes(&mut traces)?;
    files(directory, 32, &mut traces);
    for shared in ["/tmp", "/run", "/var/lib", "/dev/shm"] {
        let mut all = BTreeSet::new();
        files(Path::new(shared), 0, &mut all);
        // Other programs have theirs there.
        let is_ours =
            |file: &String| ["canopus", "envoy", "istio", "mesh"].iter().any(|name| file.contains(name));
        traces.extend(all.into_iter().filter(is_ours));
    }
    Ok(traces)
}

/// Lines of a command without what changes by itself: counters, times and comments.
fn told(words: &[&str]) -> Result<Vec<String>> {
    let output = Command::new(words[0]).args(&words[1..]).env("PATH", search_path()?).output();
    let output = output.with_context(|| words.join(" "))?;
    ensure!(output.status.success(), "{words:?}: {}", text(&output));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = lines.lines().filter(|line| !line.starts_with('#'));
    let without_times = |line: &str| {
        let words = line.split_whitespace().filter(|word| !word.ends_with("sec"));
        words.map(|word| if word.starts_with('[') { "" } else { word }).collect::<Vec<_>>().join(" ")
    };
    Ok(lines.map(without_times).collect())
}

/// Sockets that listen in this network, whoever has them.
fn listening(traces: &mut BTreeSet<String>) -> Result<()> {
    for table in ["tcp", "tcp6"] {
        let sockets = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        for line in sockets.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (address, state) = (fields.get(1).context("an address")?, fields.get(3).context("a state")?);
            // 0A is TCP_LISTEN.
            if *state == "0A" {
                traces.insert(format!("{table} {address} listens"));
            }
        }
    }
    Ok(())
}

/// Processes of programs that meshes start.
fn processes(traces: &mut BTreeSet<String>) -> Result<()> {
    for process in fs::read_dir("/proc")?.flatten() {
        let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let is_part = ["canopus ", "canopusd ", "canopus-agent ", "storefront ", "envoy "]
            .iter()
            .any(|name| words.contains(name));
        if is_part
            && (words.contains(".canopus")
                || words.contains("storefront payment")
                || words.contains("up --no-view"))
        {
            traces.insert(format!("process {} {words}", process.file_name().to_string_lossy()));
        }
    }
    Ok(())
}

/// Files below a directory, so deep.
fn files(directory: &Path, depth: usize, traces: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        traces.insert(format!("file {}", entry.path().display()));
        if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files(&entry.path(), depth - 1, traces);
        }
    }
}
