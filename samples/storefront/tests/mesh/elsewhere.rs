//! The mesh beside other things: a service manager, programs that others start, Kubernetes.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::lab::{Lab, beside, canopus, eventually, search_path, text};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A process that is ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// A program that somebody else starts in a workload's namespace, as systemd does with `NetworkNamespacePath`, is part of the
/// mesh; and who waits for the mesh is told when it is ready.
pub(crate) fn program_of_others() -> Result<()> {
    let lab = Lab::small(
        "- {name: inventory, port: 7000, protocol: TCP}\n- {name: shelf, command: [storefront, catalogue], port: 8081}\n",
    )?;
    let socket = lab.path().join("notify");
    let waiting = UnixDatagram::bind(&socket)?;
    waiting.set_read_timeout(Some(Duration::from_secs(120)))?;
    let gateway = lab.path().join("config/gateway.yaml");
    fs::write(&gateway, fs::read_to_string(&gateway)?.replace("host: pay", "host: shelf"))?;
    let mut up = canopus()?;
    up.args(["up", "--no-view"]).arg(lab.path()).env("NOTIFY_SOCKET", &socket);
    let output = lab.path().join("output");
    let mesh = Running(up.stdout(fs::File::create(&output)?).spawn()?);
    let mut message = [0; 512];
    let count = waiting.recv(&mut message).context("READY of the mesh")?;
    let message = String::from_utf8_lossy(&message[..count]).into_owned();
    ensure!(message.starts_with("READY=1\nSTATUS=small: ready after "), "{message}");

    let said = fs::read_to_string(&output)?;
    let namespace = said.lines().find_map(|line| {
        line.strip_prefix("inventory is started by others, in the network namespace /run/netns/")
    });
    let namespace = namespace.with_context(|| said.clone())?;
    let mut program = Command::new("ip");
    program
        .args(["netns", "exec", namespace])
        .arg(beside("storefront"))
        .arg("inventory")
        .env("PATH", search_path()?);
    let _program = Running(program.stdout(Stdio::null()).spawn()?);
    let page = eventually(|| {
        let url = format!("http://127.0.0.1:{}/products", lab.port);
        let output = Command::new("curl").args(["-sS", "--fail", "--max-time", "5", &url]).output()?;
        ensure!(output.status.success(), "{}", text(&output));
        Ok(text(&output))
    })?;
    ensure!(page.contains("\"stock\":42"), "{page}");
    drop(mesh);
    eventually(|| {
        ensure!(!lab.path().join(".canopus").exists(), "SIGTERM ends the mesh");
        Ok(())
    })
}

/// The unit for systemd is one.
pub(crate) fn unit_file() -> Result<()> {
    let unit = fs::read_to_string(repository().join("packaging/systemd/canopus-mesh.service"))?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("canopus-mesh.service");
    let canopus = beside("canopus").display().to_string();
    ensure!(unit.contains("ExecStart=/usr/local/bin/canopus up --no-view "), "{unit}");
    fs::write(&path, unit.replace("/usr/local/bin/canopus", &canopus))?;
    let Ok(output) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output() else {
        // There is no systemd on this machine; the flags of the command are checked below all the same.
        return flags_are_known(&unit);
    };
    ensure!(output.status.success() && !text(&output).contains("canopus-mesh.service:"), "{}", text(&output));
    flags_are_known(&unit)
}

fn flags_are_known(unit: &str) -> Result<()> {
    let help = text(&canopus()?.args(["up", "--help"]).output()?);
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).context("ExecStart")?;
    for flag in command.split_whitespace().filter(|word| word.starts_with("--")) {
        ensure!(help.contains(flag), "{flag} is not in:\n{help}");
    }
    Ok(())
}

/// The sample's manifests for Kubernetes are valid, also together with its configuration and with what the tour applies.
pub(crate) fn kubernetes_manifests() -> Result<()> {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![sample.join("k8s.yaml"), sample.join("config")];
    let validate = canopus()?.arg("validate").arg("-f").arg(&files[0]).arg("-f").arg(&files[1]).output()?;
    ensure!(validate.status.success(), "{}", text(&validate));
    let steps =
        ["shift", "fault", "deny", "strict", "break"].map(|step| sample.join(format!("tour/{step}.yaml")));
    for step in steps {
        files.push(step);
        let analyze = canopus()?.args(["analyze", "--use-kube=false"]).args(&files).output()?;
        ensure!(text(&analyze).contains("No validation issues found"), "{files:?}: {}", text(&analyze));
        files.pop();
    }
    Ok(())
}
