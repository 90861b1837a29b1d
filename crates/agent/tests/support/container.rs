//! A container of an agent whose Envoy is a script. There is no control plane.
#![allow(dead_code, reason = "every test uses a part of it")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use canopus_testkit::free_port;
use serde_json::json;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// The head and the bytes of an answer.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> Option<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!("{method} {path} HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some((String::from_utf8_lossy(&answer[..end]).to_lowercase(), answer[end + 4..].to_vec()))
}

/// A container in which `envoy` is this script.
pub(crate) struct Container {
    directory: TempDir,
    command: Command,
    agent: Option<Child>,
    status: u16,
}

/// How an agent ended.
pub(crate) struct End {
    pub(crate) code: Option<i32>,
    pub(crate) log: String,
}

impl Container {
    pub(crate) fn new(envoy: &str, config: &[(&str, serde_json::Value)]) -> Self {
        Self::of(Path::new(env!("CARGO_BIN_EXE_canopus-agent")), envoy, config)
    }

    /// As [`Container::new`], with another program for an agent.
    pub(crate) fn of(agent: &Path, envoy: &str, config: &[(&str, serde_json::Value)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let binary = directory.path().join("envoy");
        fs::write(&binary, format!("#!/bin/sh\n{envoy}\n")).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        let status = free_port().unwrap();
        let mut proxy = json!({
            "discoveryAddress": "127.0.0.1:1",
            "binaryPath": binary,
            "statusPort": status,
            "proxyAdminPort": free_port().unwrap(),
        });
        for (name, value) in config {
            proxy[*name] = value.clone();
        }
        let mut command = Command::new(agent);
        command.args(["proxy", "sidecar"]).current_dir(directory.path()).env_clear();
        command.envs([
            ("PROXY_CONFIG", proxy.to_string().as_str()),
            ("POD_NAME", "cart-1"),
            ("POD_NAMESPACE", "shop"),
            ("INSTANCE_IP", "127.0.0.1"),
            ("ECC_SIGNATURE_ALGORITHM", "ECDSA"),
            ("CLOUD_PLATFORM", "none"),
            ("PATH", "/usr/bin:/bin"),
        ]);
        Self { directory, command, agent: None, status }
    }

    /// Sets a variable of the agent.
    pub(crate) fn set(&mut self, name: &str, text: &str) {
        self.command.env(name, text);
    }

    /// Gives the agent a flag.
    pub(crate) fn flag(&mut self, flag: &str) {
        self.command.arg(flag);
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file below the container's root.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Where the agent tells its status.
    pub(crate) fn status(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.status).into()
    }

    /// What the agent and its Envoy have written.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// Starts the agent.
    pub(crate) fn start(&mut self) {
        let file = fs::File::create(self.path().join("log")).unwrap();
        let command = self.command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        self.agent = Some(command.spawn().unwrap());
    }

    /// Sends a signal to the agent.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.agent.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").arg(format!("-{name}")).arg(id).status().unwrap().success());
    }

    /// Waits until something holds.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, holds: impl Fn() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() < PATIENCE, "{what}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the agent's end.
    pub(crate) fn end(&mut self) -> End {
        let started = Instant::now();
        let agent = self.agent.as_mut().unwrap();
        let status = loop {
            if let Some(status) = agent.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > PATIENCE {
                agent.kill().unwrap();
                panic!("the agent does not end:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        End { code: status.code(), log: self.log() }
    }

    /// Runs the agent to its end.
    pub(crate) fn run(mut self) -> End {
        self.start();
        self.end()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Some(agent) = &mut self.agent {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

impl End {
    #[track_caller]
    pub(crate) fn says(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.log);
        for word in words {
            assert!(self.log.contains(word), "{word:?} is missing:\n{}", self.log);
        }
    }
}
