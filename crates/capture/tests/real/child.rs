//! The helper process: enters a namespace, becomes another user, does one thing.
//!
//! `child NAMESPACE UID GID connect ADDRESS`: connects and prints what the server says.
//! `child NAMESPACE UID GID query ADDRESS`: sends a datagram and prints the answer.
//! `child NAMESPACE UID GID answer ADDRESS`: prints `ready`, then answers datagrams with its address, until killed.
//! `child NAMESPACE UID GID run ARGUMENTS…`: runs the command and exits as it does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use canopus_capture::CommandLine;
use canopus_capture::apply::in_namespace;
use clap::Parser;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

use crate::lab::namespace_file;

const TIMEOUT: Duration = Duration::from_secs(3);

/// A command line for a helper process.
pub(crate) fn command(namespace: &str, uid: u32, gid: u32, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["child", namespace, &uid.to_string(), &gid.to_string()]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Runs a helper to its end.
pub(crate) fn output(namespace: &str, uid: u32, gid: u32, words: &[&str]) -> Result<Output> {
    Ok(command(namespace, uid, gid, words)?.output()?)
}

/// What a helper printed; its failure in words, as what it printed.
pub(crate) fn says(namespace: &str, uid: u32, gid: u32, words: &[&str]) -> Result<String> {
    let output = output(namespace, uid, gid, words)?;
    let said = if output.status.success() { &output.stdout } else { &output.stderr };
    Ok(String::from_utf8_lossy(said).trim().to_owned())
}

/// A helper that stays; killed when dropped.
pub(crate) struct Server(Child);

impl Server {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(namespace: &str, uid: u32, words: &[&str]) -> Result<Self> {
        let mut server = Self(command(namespace, uid, uid, words)?.spawn()?);
        let mut ready = [0; 5];
        server.0.stdout.as_mut().context("no output")?.read_exact(&mut ready)?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Parser)]
struct Tool {
    #[command(flatten)]
    line: CommandLine,
}

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    match execute(arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(arguments: &[String]) -> Result<ExitCode> {
    let [namespace, uid, gid, verb, rest @ ..] = arguments else { bail!("too few arguments") };
    let (uid, gid) = (uid.parse()?, gid.parse()?);
    let (verb, rest) = (verb.clone(), rest.to_vec());
    in_namespace(Some(&namespace_file(namespace)), false, move || {
        setgroups(&[])?;
        setgid(Gid::from_raw(gid))?;
        setuid(Uid::from_raw(uid))?;
        act(&verb, &rest)
    })?
}

fn act(verb: &str, rest: &[String]) -> Result<ExitCode> {
    match verb {
        "connect" => {
            let address: SocketAddr = rest[0].parse()?;
            let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).context("connect")?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            let mut text = String::new();
            stream.read_to_string(&mut text).context("read")?;
            println!("{text}");
        }
        "query" => {
            let address: SocketAddr = rest[0].parse()?;
            let socket = UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
            socket.connect(address)?;
            socket.set_read_timeout(Some(TIMEOUT))?;
            socket.send(b"query")?;
            let mut buffer = [0; 64];
            let length = socket.recv(&mut buffer).context("no answer")?;
            println!("{}", String::from_utf8_lossy(&buffer[..length]));
        }
        "answer" => {
            let socket = UdpSocket::bind(&rest[0])?;
            print!("ready");
            std::io::stdout().flush()?;
            let mut buffer = [0; 64];
            loop {
                let (_, peer) = socket.recv_from(&mut buffer)?;
                socket.send_to(format!("answer of {}", rest[0]).as_bytes(), peer)?;
            }
        }
        "run" => {
            let tool = Tool::parse_from(std::iter::once("tool").chain(rest.iter().map(String::as_str)));
            if let Err(error) = canopus_capture::run(tool.line, &|_| None, &mut std::io::stdout()) {
                eprintln!("{error}");
                return Ok(ExitCode::from(error.exit_code()));
            }
        }
        other => bail!("unknown verb {other}"),
    }
    Ok(ExitCode::SUCCESS)
}
