//! Two network namespaces joined by a cable: the pod whose traffic is captured, and a peer.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use canopus_capture::apply::{ApplyError, Outcome, VariantChoice, in_namespace};
use canopus_capture::{CommandLine, HostFacts, Settings};
use canopus_parts::Part;

pub(crate) const POD: &str = "10.77.0.2";
pub(crate) const PEER: &str = "10.77.0.1";
pub(crate) const POD_V6: &str = "fd77::2";
pub(crate) const PEER_V6: &str = "fd77::1";

/// A packet filter to test on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backend {
    Legacy,
    Nft,
    Nftables,
}

impl Backend {
    pub(crate) const ALL: [Self; 3] = [Self::Legacy, Self::Nft, Self::Nftables];
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Legacy => "iptables_legacy",
            Self::Nft => "iptables_nft",
            Self::Nftables => "nftables",
        })
    }
}

/// Runs a command to its end.
pub(crate) fn sh(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {arguments:?}: {}: {said}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The directory of the real packet filters.
pub(crate) fn tools() -> Result<PathBuf> {
    Ok(canopus_parts::find(Part::Iptables)?)
}

/// The namespaces; gone when dropped.
pub(crate) struct Lab {
    name: String,
}

impl Lab {
    pub(crate) fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let lab =
            Self { name: format!("cap{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)) };
        let (pod, peer) = (lab.pod(), lab.peer());
        for namespace in [&pod, &peer] {
            sh("ip", &["netns", "add", namespace])?;
            sh("ip", &["-n", namespace, "link", "set", "lo", "up"])?;
        }
        sh(
            "ip",
            &["-n", &pod, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", &peer],
        )?;
        for (namespace, v4, v6) in [(&pod, POD, POD_V6), (&peer, PEER, PEER_V6)] {
            sh("ip", &["-n", namespace, "addr", "add", &format!("{v4}/24"), "dev", "eth0"])?;
            sh("ip", &["-n", namespace, "addr", "add", &format!("{v6}/64"), "dev", "eth0", "nodad"])?;
            sh("ip", &["-n", namespace, "link", "set", "eth0", "up"])?;
        }
        sh("ip", &["-n", &pod, "route", "add", "default", "via", PEER])?;
        Ok(lab)
    }

    pub(crate) fn pod(&self) -> String {
        format!("{}a", self.name)
    }

    pub(crate) fn peer(&self) -> String {
        format!("{}b", self.name)
    }

    /// Does work in a namespace.
    pub(crate) fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(in_namespace(Some(&namespace_file(namespace)), false, work)?)
    }

    /// Capture of everything, changed as a test wants it.
    pub(crate) fn settings(
        &self,
        backend: Backend,
        change: impl FnOnce(&mut CommandLine),
    ) -> Result<Settings> {
        let mut line = CommandLine {
            proxy_uid: Some("1337".to_owned()),
            istio_inbound_ports: Some("*".to_owned()),
            istio_service_cidr: Some("*".to_owned()),
            native_nftables: Some(backend == Backend::Nftables),
            ..CommandLine::default()
        };
        change(&mut line);
        let facts = Self::inside(&self.pod(), || HostFacts::read("istio-proxy", false))??;
        let mut settings = line.settle(&facts)?;
        settings.options.tools = Some(tools()?);
        settings.options.variant = match backend {
            Backend::Legacy => VariantChoice::Legacy,
            _ => VariantChoice::Nft,
        };
        Ok(settings)
    }

    pub(crate) fn apply(&self, settings: &Settings) -> Result<Result<Outcome, ApplyError>> {
        Self::inside(&self.pod(), || settings.apply())
    }

    /// The rules of the pod as the kernel lists them, without what changes by itself, and what they rely on.
    pub(crate) fn listing(&self, backend: Backend) -> Result<String> {
        let programs: &[&[&str]] = match backend {
            Backend::Legacy => &[&["iptables-legacy-save"], &["ip6tables-legacy-save"]],
            Backend::Nft => &[&["iptables-nft-save"], &["ip6tables-nft-save"]],
            Backend::Nftables => &[&["nft", "-s", "list", "ruleset"]],
        };
        let (mut text, pod) = (String::new(), self.pod());
        for call in programs {
            let program = tools()?.join(call[0]);
            let arguments =
                [&["netns", "exec", &pod, program.to_str().context("path")?], &call[1..]].concat();
            text += &sh("ip", &arguments)?;
        }
        for query in [["-4", "rule"], ["-6", "rule"]] {
            text += &sh("ip", &["-n", &pod, query[0], query[1]])?;
        }
        text += &sh("ip", &["-n", &pod, "-6", "addr", "show", "dev", "lo"])?;
        let routes = sh("ip", &["-n", &pod, "route", "show", "table", "all"])?;
        text.extend(routes.lines().filter(|line| line.contains("table 133")).map(|line| format!("{line}\n")));
        let is_stable = |line: &&str| !line.starts_with('#') && !line.starts_with(':');
        Ok(text.lines().filter(is_stable).map(|line| format!("{}\n", line.trim_end())).collect())
    }
}

pub(crate) fn namespace_file(namespace: &str) -> PathBuf {
    PathBuf::from("/var/run/netns").join(namespace)
}

impl Drop for Lab {
    fn drop(&mut self) {
        for namespace in [self.pod(), self.peer()] {
            if namespace_file(&namespace).exists() {
                let _ = sh("ip", &["netns", "del", &namespace]);
            }
            let _ = fs::remove_file(namespace_file(&namespace));
        }
    }
}
