//! Where connections and queries end up.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, ensure};
use canopus_capture::CommandLine;
use canopus_capture::validation::original_destination;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
};

use crate::child::{Server, command, output, says};
use crate::lab::{Backend, Lab, PEER, PEER_V6, POD, POD_V6, namespace_file, sh, tools};

/// The application's user.
const APP: u32 = 1000;
/// The proxy's user.
const PROXY: u32 = 1337;

/// Serves a port in a namespace until the test ends. Each client is told the port, and where it was going.
fn serve(namespace: &str, address: &str) -> Result<()> {
    let address: SocketAddr = address.parse()?;
    let file = namespace_file(namespace);
    let (ready, wait) = mpsc::channel();
    thread::spawn(move || {
        canopus_capture::apply::in_namespace(Some(&file), false, || {
            let listener = transparent_listener(address);
            let failed = listener.as_ref().err().map(ToString::to_string);
            ready.send(failed).unwrap();
            for mut stream in listener.into_iter().flat_map(|listener| {
                std::iter::repeat_with(move || listener.accept().map(|(stream, _)| stream))
                    .map_while(Result::ok)
            }) {
                let local = stream.local_addr().unwrap();
                let peer = stream.peer_addr().unwrap();
                let original = original_destination(&stream).unwrap_or(local);
                let text =
                    format!("port {} original {original} local {local} peer {}", address.port(), peer.ip());
                let _ = stream.write_all(text.as_bytes());
            }
        })
    });
    match wait.recv()? {
        None => Ok(()),
        Some(error) => anyhow::bail!("{address}: {error}"),
    }
}

/// A listener that also takes connections to addresses that are not its own, which TPROXY needs.
fn transparent_listener(address: SocketAddr) -> Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    // The kernel takes the option of IPv4 for sockets of both families.
    setsockopt(&socket, sockopt::IpTransparent, &true)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&socket, Backlog::new(16)?)?;
    Ok(TcpListener::from(socket))
}

/// A lab with the proxy's listeners in the pod, rules applied, and a server on some ports of the peer.
fn captured(backend: Backend, peer_ports: &[u16], change: impl FnOnce(&mut CommandLine)) -> Result<Lab> {
    let lab = Lab::new()?;
    for port in [15001, 15006] {
        serve(&lab.pod(), &format!("0.0.0.0:{port}"))?;
    }
    for port in peer_ports {
        serve(&lab.peer(), &format!("0.0.0.0:{port}"))?;
    }
    lab.apply(&lab.settings(backend, change)?)??;
    Ok(lab)
}

#[track_caller]
fn check(said: Result<String>, expected: &str) -> Result<()> {
    let said = said?;
    ensure!(said.starts_with(expected), "expected {expected:?}, got {said:?}");
    Ok(())
}

fn to(address: &str, port: u16) -> String {
    SocketAddr::new(address.parse().unwrap(), port).to_string()
}

pub(crate) fn outbound(backend: Backend) -> Result<()> {
    let lab = captured(backend, &[8080], |_| ())?;
    let pod = lab.pod();
    let server = to(PEER, 8080);
    check(says(&pod, APP, APP, &["connect", &server]), &format!("port 15001 original {server}"))?;
    // An address where nobody is at all is captured as well.
    check(says(&pod, APP, APP, &["connect", "192.0.2.7:443"]), "port 15001 original 192.0.2.7:443")?;
    // The proxy's own connections go out, told by user or by group.
    check(says(&pod, PROXY, PROXY, &["connect", &server]), "port 8080")?;
    check(says(&pod, APP, PROXY, &["connect", &server]), "port 8080")
}

pub(crate) fn exclusions(backend: Backend) -> Result<()> {
    let some = |text: &str| Some(text.to_owned());
    let lab = captured(backend, &[8080, 3306, 8443], |line| {
        line.istio_local_outbound_ports_exclude = some("3300:3310");
        line.owner_groups_exclude = some("202");
    })?;
    let pod = lab.pod();
    check(says(&pod, APP, APP, &["connect", &to(PEER, 3306)]), "port 3306")?;
    check(says(&pod, APP, 202, &["connect", &to(PEER, 8080)]), "port 8080")?;
    check(says(&pod, APP, APP, &["connect", &to(PEER, 8080)]), "port 15001")?;

    let lab = captured(backend, &[8080, 8443], |line| {
        line.istio_service_exclude_cidr = some("10.77.0.0/24");
        line.istio_outbound_ports = some("8443");
    })?;
    let pod = lab.pod();
    check(says(&pod, APP, APP, &["connect", &to(PEER, 8080)]), "port 8080")?;
    check(says(&pod, APP, APP, &["connect", "192.0.2.7:80"]), "port 15001")?;

    let lab = captured(backend, &[8080, 8443], |line| {
        line.istio_service_cidr = some("192.0.2.0/24");
        line.istio_outbound_ports = some("8443");
        line.istio_exclude_interfaces = None;
    })?;
    let pod = lab.pod();
    check(says(&pod, APP, APP, &["connect", &to(PEER, 8080)]), "port 8080")?;
    check(says(&pod, APP, APP, &["connect", &to(PEER, 8443)]), "port 15001")?;
    check(says(&pod, APP, APP, &["connect", "192.0.2.7:80"]), "port 15001")?;

    let lab = captured(backend, &[8080], |line| line.istio_exclude_interfaces = some("eth0"))?;
    check(says(&lab.pod(), APP, APP, &["connect", &to(PEER, 8080)]), "port 8080")
}

pub(crate) fn inbound(backend: Backend) -> Result<()> {
    let lab = captured(backend, &[], |line| line.istio_local_exclude_ports = Some("9090".to_owned()))?;
    for port in [8080, 9090, 15008] {
        serve(&lab.pod(), &format!("0.0.0.0:{port}"))?;
    }
    let peer = lab.peer();
    let service = to(POD, 8080);
    check(says(&peer, APP, APP, &["connect", &service]), &format!("port 15006 original {service}"))?;
    check(says(&peer, APP, APP, &["connect", &to(POD, 9090)]), "port 9090")?;
    check(says(&peer, APP, APP, &["connect", &to(POD, 15008)]), "port 15008")?;
    // The application calls itself by its address: not captured. The proxy does so for it: an inbound connection.
    check(says(&lab.pod(), APP, APP, &["connect", &service]), "port 8080")?;
    check(says(&lab.pod(), PROXY, PROXY, &["connect", &service]), &format!("port 15006 original {service}"))?;
    check(says(&lab.pod(), PROXY, PROXY, &["connect", "127.0.0.1:8080"]), "port 8080")
}

pub(crate) fn tproxy(backend: Backend) -> Result<()> {
    let lab = captured(backend, &[8080], |line| {
        line.istio_inbound_interception_mode = Some("TPROXY".to_owned());
        line.istio_local_exclude_ports = Some("9090".to_owned());
    })?;
    for port in [8080, 9090] {
        serve(&lab.pod(), &format!("0.0.0.0:{port}"))?;
    }
    let said = says(&lab.peer(), APP, APP, &["connect", &to(POD, 8080)])?;
    ensure!(said.starts_with("port 15006"), "{said}");
    ensure!(said.contains(&format!("local {POD}:8080 peer {PEER}")), "addresses are unchanged: {said}");
    check(says(&lab.peer(), APP, APP, &["connect", &to(POD, 9090)]), "port 9090")?;
    check(says(&lab.pod(), APP, APP, &["connect", &to(PEER, 8080)]), "port 15001")
}

pub(crate) fn tproxy_ipv6(backend: Backend) -> Result<()> {
    let lab = Lab::new()?;
    let settings = lab.settings(backend, |line| {
        line.dual_stack = Some(true);
        line.istio_inbound_interception_mode = Some("TPROXY".to_owned());
        line.istio_local_exclude_ports = Some("9090".to_owned());
    })?;
    lab.apply(&settings)??;
    for port in [15001, 15006, 9090] {
        serve(&lab.pod(), &format!("[::]:{port}"))?;
    }
    let said = says(&lab.peer(), APP, APP, &["connect", &to(POD_V6, 8080)])?;
    ensure!(said.starts_with("port 15006"), "{said}");
    ensure!(
        said.contains(&format!("local [{POD_V6}]:8080 peer {PEER_V6}")),
        "addresses are unchanged: {said}"
    );
    check(says(&lab.peer(), APP, APP, &["connect", &to(POD_V6, 9090)]), "port 9090")?;
    // IPv4 in the same pod.
    let said = says(&lab.peer(), APP, APP, &["connect", &to(POD, 8080)])?;
    ensure!(said.starts_with("port 15006") && said.contains(PEER), "{said}");
    Ok(())
}

/// With groups to include, the traffic of others is not captured.
pub(crate) fn owner_groups(backend: Backend) -> Result<()> {
    let lab = captured(backend, &[8080], |line| line.owner_groups = Some("202,303".to_owned()))?;
    let pod = lab.pod();
    let server = to(PEER, 8080);
    for group in [202, 303] {
        check(says(&pod, APP, group, &["connect", &server]), &format!("port 15001 original {server}"))?;
    }
    check(says(&pod, APP, APP, &["connect", &server]), "port 8080")?;
    check(says(&pod, PROXY, PROXY, &["connect", &server]), "port 8080")
}

/// What a virtual machine behind an interface of the pod sends through it is outbound traffic.
pub(crate) fn virtual_machine(backend: Backend) -> Result<()> {
    let lab = captured(backend, &[], |line| line.kube_virt_interfaces = Some("eth0".to_owned()))?;
    let machine = lab.peer();
    sh("ip", &["-n", &machine, "route", "add", "192.0.2.0/24", "via", POD])?;
    check(says(&machine, APP, APP, &["connect", "192.0.2.7:443"]), "port 15001 original 192.0.2.7:443")
}

pub(crate) fn ipv6(backend: Backend) -> Result<()> {
    let lab = Lab::new()?;
    let settings = lab.settings(backend, |line| line.dual_stack = Some(true))?;
    lab.apply(&settings)??;
    for port in [15001, 15006] {
        serve(&lab.pod(), &format!("[::]:{port}"))?;
    }
    serve(&lab.peer(), "[::]:8080")?;
    let server = to(PEER_V6, 8080);
    check(says(&lab.pod(), APP, APP, &["connect", &server]), &format!("port 15001 original {server}"))?;
    check(says(&lab.pod(), PROXY, PROXY, &["connect", &server]), "port 8080")?;
    let service = to(POD_V6, 9000);
    check(says(&lab.peer(), APP, APP, &["connect", &service]), &format!("port 15006 original {service}"))
}

pub(crate) fn dns(backend: Backend) -> Result<()> {
    let lab = Lab::new()?;
    let (pod, peer) = (lab.pod(), lab.peer());
    // The agent answers as the proxy's user, by which its packets are told, and from the address that queries are
    // redirected to.
    let _agent = Server::start(&pod, PROXY, &["answer", "127.0.0.1:15053"])?;
    let _upstream = Server::start(&peer, 0, &["answer", "0.0.0.0:53"])?;
    let server = to(PEER, 53);
    check(says(&pod, APP, APP, &["query", &server]), "answer of 0.0.0.0:53")?;
    lab.apply(&lab.settings(backend, |line| {
        line.redirect_dns = Some(true);
        line.capture_all_dns = Some(true);
    })?)??;
    check(says(&pod, APP, APP, &["query", &server]), "answer of 127.0.0.1:15053")?;
    check(says(&pod, PROXY, PROXY, &["query", &server]), "answer of 0.0.0.0:53")?;

    serve(&pod, "0.0.0.0:15053")?;
    check(says(&pod, APP, APP, &["connect", &server]), &format!("port 15053 original {server}"))
}

pub(crate) fn dns_ipv6(backend: Backend) -> Result<()> {
    let lab = Lab::new()?;
    let (pod, peer) = (lab.pod(), lab.peer());
    let _agent = Server::start(&pod, PROXY, &["answer", "[::1]:15053"])?;
    let _upstream = Server::start(&peer, 0, &["answer", "[::]:53"])?;
    let server = to(PEER_V6, 53);
    check(says(&pod, APP, APP, &["query", &server]), "answer of [::]:53")?;
    lab.apply(&lab.settings(backend, |line| {
        line.dual_stack = Some(true);
        line.redirect_dns = Some(true);
        line.capture_all_dns = Some(true);
    })?)??;
    check(says(&pod, APP, APP, &["query", &server]), "answer of [::1]:15053")?;
    check(says(&pod, PROXY, PROXY, &["query", &server]), "answer of [::]:53")?;
    serve(&pod, "[::]:15053")?;
    check(says(&pod, APP, APP, &["connect", &server]), &format!("port 15053 original {server}"))
}

pub(crate) fn validation(backend: Backend) -> Result<()> {
    let lab = Lab::new()?;
    let probe = ["run", "--skip-rule-apply", "--run-validation", "--probe-timeout", "2s"];
    let failed = output(&lab.pod(), PROXY, PROXY, &probe)?;
    ensure!(failed.status.code() == Some(126), "{failed:?}");
    ensure!(String::from_utf8_lossy(&failed.stderr).contains("iptables validation failed"), "{failed:?}");
    lab.apply(&lab.settings(backend, |_| ())?)??;
    let passed = output(&lab.pod(), PROXY, PROXY, &probe)?;
    ensure!(passed.status.success(), "{passed:?}");
    Ok(())
}

pub(crate) fn unprivileged(backend: Backend) -> Result<()> {
    let lab = Lab::new()?;
    let mut settings = lab.settings(backend, |_| ())?;
    // Dry runs need no privileges, and print the program.
    let mut words = vec!["run", "--dry-run", "-b", "*", "-i", "*"];
    if backend == Backend::Nftables {
        words.push("--native-nftables");
    }
    let said = says(&lab.pod(), APP, APP, &words)?;
    let rule = if backend == Backend::Nftables { "redirect to :15001" } else { "REDIRECT --to-ports 15001" };
    ensure!(said.contains(rule), "{said}");

    // A copy that the application's user may run: the kernel is what refuses.
    let copy = tempfile::tempdir().context("directory")?;
    sh("cp", &["-rT", tools()?.parent().context("no parent")?.to_str().context("path")?, path(&copy)?])?;
    sh("chmod", &["-R", "a+rX", path(&copy)?])?;
    words[1] = if backend == Backend::Legacy {
        "--force-iptables-binary=legacy"
    } else {
        "--force-iptables-binary=nft"
    };
    let search = format!("{}/bin:/usr/bin:/bin", path(&copy)?);
    let refused = command(&lab.pod(), APP, APP, &words)?.env("PATH", search).output()?;
    let reason = String::from_utf8_lossy(&refused.stderr);
    ensure!(refused.status.code() == Some(1) && reason.contains("NET_ADMIN and NET_RAW"), "{refused:?}");

    let empty = tempfile::tempdir().context("directory")?;
    settings.options.tools = Some(empty.path().to_owned());
    let error = lab.apply(&settings)?.unwrap_err().to_string();
    ensure!(error.contains("is not installed: install the Debian package"), "{error}");
    Ok(())
}

fn path(directory: &tempfile::TempDir) -> Result<&str> {
    directory.path().to_str().context("path")
}

pub(crate) fn whole_command(backend: Backend) -> Result<()> {
    let lab = Lab::new()?;
    serve(&lab.pod(), "0.0.0.0:15001")?;
    let namespace = namespace_file(&lab.pod());
    let namespace = namespace.to_str().context("path")?;
    let search = format!("{}:/usr/bin:/bin", tools()?.display());
    let run = |extra: &[&str]| -> Result<()> {
        let variant = match backend {
            Backend::Legacy => "--force-iptables-binary=legacy",
            Backend::Nft => "--force-iptables-binary=nft",
            Backend::Nftables => "--native-nftables",
        };
        // As the plugin does: from another namespace, with the files of the host.
        let words = [
            "run",
            "--cni-mode",
            "--network-namespace",
            namespace,
            variant,
            "-u",
            "1337",
            "-i",
            "*",
            "-b",
            "*",
        ];
        let output = command(&lab.peer(), 0, 0, &[&words, extra].concat())?.env("PATH", &search).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    run(&[])?;
    run(&[])?;
    check(says(&lab.pod(), APP, APP, &["connect", "192.0.2.7:443"]), "port 15001")?;
    run(&["--cleanup-only"])?;
    let listing = lab.listing(backend)?.to_lowercase();
    ensure!(!listing.contains("istio"), "{listing}");
    Ok(())
}
