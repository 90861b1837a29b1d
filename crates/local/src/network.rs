//! Network namespaces on one bridge, made with `ip`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::journal::{Entry, Journal};
use crate::plan::{NODE_ADDRESS, PREFIX_LENGTH, Plan};

/// Where `ip` keeps namespaces.
const DIRECTORY: &str = "/run/netns";

/// How names of our namespaces begin.
const PREFIX: &str = "canopus-";

/// The file of a namespace.
pub fn path(namespace: &str) -> PathBuf {
    PathBuf::from(DIRECTORY).join(namespace)
}

/// Whether a namespace may be removed: a name of ours that is no path.
pub fn is_ours(namespace: &str) -> bool {
    let characters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    namespace.starts_with(PREFIX) && namespace.chars().all(characters)
}

/// Why namespaces cannot be made here; nothing if they can.
pub fn obstacle() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("only root may make network namespaces".to_owned());
    }
    if Command::new("ip").arg("-V").output().is_err() {
        return Some("`ip` is not on PATH; install iproute2".to_owned());
    }
    let probe = Command::new("ip").args(["netns", "list"]).output();
    let unshared = nix_unshare_allowed();
    match probe {
        Ok(output) if output.status.success() && unshared => None,
        _ => Some("the system does not permit network namespaces".to_owned()),
    }
}

/// Whether a thread may enter a new network namespace; containers often forbid it.
fn nix_unshare_allowed() -> bool {
    let thread = std::thread::spawn(|| nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_ok());
    thread.join().unwrap_or(false)
}

/// Makes the namespaces of a plan and what connects them.
pub fn create(plan: &Plan, journal: &Journal) -> Result<()> {
    let pods = plan.pods.iter().map(|pod| &pod.network_namespace);
    for namespace in pods.chain([&plan.node_namespace]) {
        journal.record(&Entry::Namespace(namespace.clone())).context("journal")?;
    }
    ip(&[], &namespaces(plan))?;
    for (namespace, commands) in interfaces(plan) {
        ip(&["-n", &namespace], &commands)?;
    }
    Ok(())
}

/// Removes namespaces, with all links and rules in them.
pub fn delete(namespaces: &[String]) -> Result<()> {
    if namespaces.is_empty() {
        return Ok(());
    }
    let commands: String = namespaces.iter().map(|name| format!("netns del {name}\n")).collect();
    ip(&[], &commands)
}

fn namespaces(plan: &Plan) -> String {
    let pods = plan.pods.iter().map(|pod| &pod.network_namespace);
    [&plan.node_namespace].into_iter().chain(pods).map(|name| format!("netns add {name}\n")).collect()
}

/// The commands for each namespace. Interfaces of pods are made from the node's side.
fn interfaces(plan: &Plan) -> BTreeMap<String, String> {
    let mut node = String::from("link set lo up\nlink add bridge type bridge\n");
    // Writing to a string cannot fail.
    let _ = writeln!(node, "addr add {NODE_ADDRESS}/{PREFIX_LENGTH} dev bridge\nlink set bridge up");
    let mut commands = BTreeMap::new();
    for pod in &plan.pods {
        let (link, namespace) = (&pod.link, &pod.network_namespace);
        let _ = writeln!(node, "link add {link} type veth peer name eth0 netns {namespace}");
        let _ = writeln!(node, "link set {link} master bridge up");
        let inner = format!(
            "link set lo up\naddr add {}/{PREFIX_LENGTH} dev eth0\nlink set eth0 up\nroute add default via {NODE_ADDRESS}\n",
            pod.address
        );
        commands.insert(namespace.clone(), inner);
    }
    // The node's name is a prefix of the pods', so it comes first.
    commands.insert(plan.node_namespace.clone(), node);
    commands
}

/// Runs `ip` on commands, one to a line.
fn ip(options: &[&str], commands: &str) -> Result<()> {
    let mut command = Command::new("ip");
    command
        .args(options)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().context("ip: install iproute2")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(commands.as_bytes()).context("ip")?;
    }
    let output = child.wait_with_output().context("ip")?;
    if !output.status.success() {
        bail!("ip {}: {}", options.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::mesh_file::MeshFile;
    use crate::plan::Mode;

    #[test]
    fn commands_follow_from_the_plan() {
        let file = MeshFile::parse(b"name: shop\nworkloads: [{name: web, command: web, port: 80}]").unwrap();
        let plan = Plan::new(&file, Path::new("/srv/shop"), Mode::Namespaces, &mut || 1);
        let all = interfaces(&plan);
        let (first, node) = all.first_key_value().unwrap();
        assert_eq!(*first, plan.node_namespace);
        assert!(
            node.contains(&format!("link add veth2 type veth peer name eth0 netns {first}-web\n")),
            "{node}"
        );
        assert!(all[&format!("{first}-web")].contains("addr add 10.78.0.2/16 dev eth0\n"));
    }

    #[test]
    fn only_names_of_ours_are_removed() {
        assert!(is_ours("canopus-shop-0a1b2c-web"));
        for name in ["web", "canopus-../x", "canopus-a b", ""] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
