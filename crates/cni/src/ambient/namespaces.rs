//! Finds the network namespaces of pods among the node's processes.
//!
//! Container runtimes tell the plugin of namespaces only once, when pods start. After a restart, and for pods that join the
//! mesh while they run, the processes are asked: the control group of a process names its pod, and `/proc/PID/ns/net` is its
//! namespace. A process of a pod may be in another namespace for a moment, such as a plugin that sets up somebody else's.
//! So a namespace counts only if it has an address of the pod, and of several the one of the oldest process is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use canopus_capture::HostFacts;
use canopus_capture::apply::in_open_namespace;

/// Files of processes larger than this are cut.
const MAX_BYTES: u64 = 64 << 10;

/// Tells namespaces apart.
type Identity = (u64, u64);

/// Looks for namespaces below a directory like `/proc`.
#[derive(Clone, Debug)]
pub struct NamespaceFinder {
    proc: PathBuf,
    /// The node's own namespace, which no pod has that could be enrolled.
    host: Option<Identity>,
}

/// A namespace that was found.
#[derive(Debug)]
pub struct Found {
    /// The namespace.
    pub namespace: OwnedFd,
    /// The process that it was found by.
    pub process: u32,
    started: u64,
}

impl NamespaceFinder {
    /// Looks below `proc`. The namespace of its first process is the node's; where that process has rights that nobody else
    /// has and does not let itself be looked at, that of the kernel's threads is.
    pub fn new(proc: &Path) -> io::Result<Self> {
        let namespace = |process: &str| fs::metadata(proc.join(process).join("ns/net"));
        let host = namespace("1").or_else(|error| namespace("2").map_err(|_| error))?;
        Ok(Self { proc: proc.to_owned(), host: Some(identity(&host)) })
    }

    /// Looks below `proc`, where every namespace may be that of a pod.
    pub fn without_host(proc: &Path) -> Self {
        Self { proc: proc.to_owned(), host: None }
    }

    /// The namespaces of pods, which are given by UID with their addresses.
    pub fn find(&self, pods: &BTreeMap<String, Vec<IpAddr>>) -> io::Result<BTreeMap<String, Found>> {
        self.find_verified(pods, &has_address)
    }

    /// The same, with another way to tell that a namespace is a pod's.
    pub fn find_verified(
        &self,
        pods: &BTreeMap<String, Vec<IpAddr>>,
        verify: &dyn Fn(&OwnedFd, &[IpAddr]) -> bool,
    ) -> io::Result<BTreeMap<String, Found>> {
        let mut found: BTreeMap<String, Found> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        if pods.is_empty() {
            return Ok(found);
        }
        for entry in fs::read_dir(&self.proc)? {
            let name = entry?.file_name();
            let Some(process) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // Processes end while one looks at them.
            let Ok(Some((uid, candidate))) = self.examine(process, pods, &mut seen, verify) else { continue };
            let is_older = found.get(&uid).is_none_or(|other| candidate.started < other.started);
            if is_older {
                found.insert(uid, candidate);
            }
        }
        Ok(found)
    }

    fn examine(
        &self,
        process: u32,
        pods: &BTreeMap<String, Vec<IpAddr>>,
        seen: &mut BTreeSet<Identity>,
        verify: &dyn Fn(&OwnedFd, &[IpAddr]) -> bool,
    ) -> io::Result<Option<(String, Found)>> {
        let directory = self.proc.join(process.to_string());
        let file = directory.join("ns/net");
        let identity = identity(&fs::metadata(&file)?);
        if Some(identity) == self.host || seen.contains(&identity) {
            return Ok(None);
        }
        let Some(uid) = pod_of_control_groups(&read(&directory.join("cgroup"))?) else { return Ok(None) };
        let Some(addresses) = pods.get(&uid) else { return Ok(None) };
        let started =
            start_time(&read(&directory.join("stat"))?).ok_or_else(|| io::Error::other("no start time"))?;
        let namespace = OwnedFd::from(File::open(&file)?);
        if !verify(&namespace, addresses) {
            return Ok(None);
        }
        seen.insert(identity);
        Ok(Some((uid, Found { namespace, process, started })))
    }

    /// The user that the kubelet runs as.
    pub fn kubelet_user(&self) -> io::Result<Option<u32>> {
        for entry in fs::read_dir(&self.proc)? {
            let name = entry?.file_name();
            let Some(process) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let directory = self.proc.join(process.to_string());
            let Ok(command) = read(&directory.join("comm")) else { continue };
            // Distributions have the kubelet as a part of one program.
            let is_kubelet = match command.trim() {
                "k3s" => true,
                "kubelet" | "kubelite" => {
                    read(&directory.join("cmdline")).is_ok_and(|line| line.to_lowercase().contains("kubelet"))
                }
                _ => false,
            };
            if is_kubelet && let Ok(metadata) = fs::metadata(&directory) {
                return Ok(Some(metadata.uid()));
            }
        }
        Ok(None)
    }
}

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Whether a namespace has one of these addresses. One without addresses is not verified: it could be anybody's.
fn has_address(namespace: &OwnedFd, addresses: &[IpAddr]) -> bool {
    let there = in_open_namespace(namespace.as_fd(), || HostFacts::read("", false));
    let Ok(Ok(facts)) = there else { return false };
    facts.addresses.iter().any(|address| addresses.contains(&address.to_canonical()))
}

/// When a process started, in the kernel's ticks. Its name, in parentheses, may have blanks and parentheses itself.
fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The pod that the control groups of a process name; `None` if there is none, or they name several.
fn pod_of_control_groups(text: &str) -> Option<String> {
    let mut pods = text.lines().filter_map(|line| pod_of_path(line.splitn(3, ':').nth(2)?));
    let first = pods.next()?;
    pods.all(|other| other == first).then_some(first)
}

/// The UID in a path such as `…/kubepods-burstable-pod863b91d4_4b68_4efa_917f_4b560e3e86aa.slice/…`.
fn pod_of_path(path: &str) -> Option<String> {
    let mut rest = path;
    while let Some(at) = rest.find("pod") {
        let is_word = rest[..at].chars().next_back().is_some_and(|before| before.is_ascii_punctuation());
        rest = &rest[at + "pod".len()..];
        if is_word && let Some(uid) = uid_at_start(rest) {
            return Some(uid);
        }
    }
    None
}

/// A UID with whatever separators the runtime writes, followed by one more.
fn uid_at_start(text: &str) -> Option<String> {
    let mut bytes = text.bytes().peekable();
    let mut uid = String::with_capacity(36);
    for (group, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if group > 0 {
            uid.push('-');
            bytes.next_if(u8::is_ascii_punctuation);
        }
        for _ in 0..length {
            uid.push(char::from(bytes.next_if(u8::is_ascii_hexdigit)?));
        }
    }
    bytes.next_if(u8::is_ascii_punctuation)?;
    Some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "863b91d4-4b68-4efa-917f-4b560e3e86aa";

    #[test]
    fn control_groups_of_all_runtimes_name_the_pod() {
        let named = |path: &str| pod_of_control_groups(&format!("12:memory:{path}\n0::{path}\n"));
        let paths = [
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod863b91d4_4b68_4efa_917f_4b560e3e86aa.slice/cri-containerd-75c7.scope",
            "/kubepods/besteffort/pod863b91d4-4b68-4efa-917f-4b560e3e86aa/75c7fe",
            "/kubepods/pod863b91d44b684efa917f4b560e3e86aa/75c7fe",
        ];
        for path in paths {
            assert_eq!(named(path).as_deref(), Some(UID), "{path}");
        }
        assert_eq!(named("/system.slice/podman.service"), None);
        assert_eq!(named("/kubepods/pod863b91d4"), None);
        let two = format!("0::/a/pod{UID}/x\n1::/a/podaaaabbbb-cccc-dddd-eeee-ffff00001111/x\n");
        assert_eq!(pod_of_control_groups(&two), None);
    }

    #[test]
    fn names_with_parentheses_do_not_shift_the_start_time() {
        let stat = "7 (a) (b c)) S 1 2 3 0 -1 4 5 0 5 0 0 3 0 0 20 0 2 0 70298968 339460096 590";
        assert_eq!(start_time(stat), Some(70_298_968));
        assert_eq!(start_time("7 (a"), None);
    }

    #[test]
    fn namespace_without_an_address_of_the_pod_is_not_its() {
        let own = OwnedFd::from(File::open("/proc/self/ns/net").unwrap());
        assert!(!has_address(&own, &["203.0.113.77".parse().unwrap()]));
        assert!(!has_address(&own, &[]));
    }
}
