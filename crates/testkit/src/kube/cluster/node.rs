//! What a node runs: containerd, the kubelet and kube-proxy.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use canopus_parts::{Part, find, find_root};
use serde_json::json;

use super::addresses::Addresses;
use super::namespace::Namespace;

pub(super) const PAUSE_IMAGE: &str = "localhost/test/pause:1";

pub(super) const NODE: &str = "node1";

pub(super) fn socket(files: &Path) -> PathBuf {
    files.join("containerd.sock")
}

/// The directories that CNI plugins are installed in.
#[derive(Clone, Debug)]
pub struct CniDirectories {
    /// Programs.
    pub programs: PathBuf,
    /// Network configurations.
    pub configurations: PathBuf,
}

pub(super) fn cni_directories(files: &Path) -> CniDirectories {
    CniDirectories { programs: files.join("cni-programs"), configurations: files.join("cni") }
}

/// The plugins of the node's own network, where others can be put beside them.
fn link_plugins(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    for plugin in fs::read_dir(find_root(Part::Containerd)?.join("usr/lib/cni"))? {
        let plugin = plugin?;
        symlink(plugin.path(), directory.join(plugin.file_name()))?;
    }
    Ok(())
}

/// containerd, set up for pods on one bridge.
pub(super) fn containerd(namespace: &Namespace, files: &Path, addresses: Addresses) -> Result<Command> {
    let programs = find(Part::Containerd)?;
    let CniDirectories { programs: plugins, configurations: networks } = cni_directories(files);
    fs::create_dir_all(&networks)?;
    link_plugins(&plugins)?;
    let network = json!({
        "cniVersion": "1.0.0",
        "name": "test",
        "plugins": [{
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": files.join("addresses"),
                "ranges": [[{"subnet": addresses.pods()}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    });
    fs::write(networks.join("10-bridge.conflist"), network.to_string())?;
    let config = format!(
        r#"version = 2
root = "{root}"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Machines may forbid to lower a process's score.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{networks}"
"#,
        root = files.join("containerd").display(),
        state = files.join("containerd-state").display(),
        socket = socket(files).display(),
        runc = programs.join("runc").display(),
        plugins = plugins.display(),
        networks = networks.display(),
    );
    fs::write(files.join("containerd.toml"), config)?;
    let mut command = namespace.command(programs.join("containerd"));
    // Plugins that make packet rules run with the runtime's path.
    let tools = std::env::join_paths([find(Part::Iptables)?, programs.clone()])?;
    command.arg("--config").arg(files.join("containerd.toml")).env("PATH", path(Path::new(&tools)));
    Ok(command)
}

pub(super) fn kubelet(
    namespace: &Namespace,
    programs: &Path,
    files: &Path,
    addresses: Addresses,
) -> Result<Command> {
    // Pods ask the cluster's name server and nobody else.
    fs::write(files.join("resolv.conf"), "")?;
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": namespace.cgroup(),
        "containerRuntimeEndpoint": format!("unix://{}", socket(files).display()),
        "address": "0.0.0.0",
        // Nobody reaches the node but this machine.
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDNS": [addresses.cluster_dns()],
        "clusterDomain": "cluster.local",
        "resolvConf": files.join("resolv.conf"),
        "failSwapOn": false,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "200Mi", "imagefs.available": "200Mi"},
        // The disk is the machine's: others may fill it for a moment.
        "evictionPressureTransitionPeriod": "5s",
        "podLogsDir": files.join("pod-logs"),
        "volumePluginDir": files.join("volume-plugins"),
        "oomScoreAdj": 0,
    });
    fs::write(files.join("kubelet.json"), config.to_string())?;
    let mut command = namespace.command(programs.join("kubelet"));
    command
        .arg(format!("--config={}", files.join("kubelet.json").display()))
        .arg(format!("--kubeconfig={}", files.join("kubeconfig").display()))
        .arg(format!("--root-dir={}", files.join("kubelet").display()))
        .arg(format!("--cert-dir={}", files.join("kubelet-certificates").display()))
        .arg(format!("--hostname-override={NODE}"))
        .arg(format!("--node-ip={}", addresses.node()));
    Ok(command)
}

/// kube-proxy on nftables, which needs no kernel module of old.
pub(super) fn kube_proxy(
    namespace: &Namespace,
    programs: &Path,
    files: &Path,
    addresses: Addresses,
) -> Result<Command> {
    let mut command = namespace.command(programs.join("kube-proxy"));
    command
        .arg(format!("--kubeconfig={}", files.join("kubeconfig").display()))
        .arg(format!("--cluster-cidr={}", addresses.pods()))
        .arg(format!("--hostname-override={NODE}"))
        .args(["--proxy-mode=nftables", "--oom-score-adj=0", "--healthz-bind-address=127.0.0.1:10256"])
        // Limits of connection tracking are the machine's, and not to be set from here.
        .args(["--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0"])
        .arg("--conntrack-tcp-timeout-close-wait=0")
        .env("PATH", path(&find(Part::Iptables)?));
    Ok(command)
}

fn path(first: &Path) -> String {
    format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", first.display())
}
