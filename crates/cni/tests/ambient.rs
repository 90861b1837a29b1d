//! Pods of ambient mode on a real kernel: namespaces handed over ZDS, rules made by real programs, connections through them.
//!
//! Needs root, `ip` and the part `iptables`; without one of them the tests say so and do nothing.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::fs::File;
use std::io::{IoSliceMut, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use canopus_capture::ambient::{AmbientConfig, PodOverrides};
use canopus_capture::apply::{VariantChoice, in_open_namespace};
use canopus_cni::ambient::{Rules, Workload, ZdsError, ZtunnelServer};
use canopus_cni::pod::Pod;
use canopus_parts::Part;
use canopus_proto::Message as _;
use canopus_proto::istio::workload::zds::{
    Ack, WorkloadRequest, WorkloadResponse, ZdsHello, workload_request::Payload, workload_response,
};
use canopus_runtime::metrics::Registry;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockType, recvmsg};
use socket2::{Domain, SockAddr, Socket, Type};

fn is_possible() -> bool {
    let possible = nix::unistd::geteuid().is_root()
        && Command::new("ip").arg("-V").output().is_ok()
        && canopus_parts::find(Part::Iptables).is_ok();
    if !possible {
        eprintln!("not run: it needs root, `ip`, and `cargo xtask parts iptables`");
    }
    possible
}

fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A network namespace with an address; gone when dropped.
struct Network {
    name: String,
}

impl Network {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("cni{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        ip(&["netns", "add", &name]);
        let network = Self { name };
        ip(&["-n", &network.name, "link", "set", "lo", "up"]);
        // Both ends of a veth pair, not a dummy: small kernels have no dummy devices.
        ip(&["-n", &network.name, "link", "add", "eth0", "type", "veth", "peer", "name", "peer0"]);
        ip(&["-n", &network.name, "link", "set", "peer0", "up"]);
        ip(&["-n", &network.name, "addr", "add", "10.99.0.2/24", "dev", "eth0"]);
        ip(&["-n", &network.name, "addr", "add", "fd99::2/64", "dev", "eth0", "nodad"]);
        ip(&["-n", &network.name, "link", "set", "eth0", "up"]);
        network
    }

    fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    fn open(&self) -> OwnedFd {
        File::open(self.path()).unwrap().into()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

fn rules(host: &Network, native_nftables: bool) -> Rules {
    Rules {
        config: AmbientConfig { ipv6: true, ..AmbientConfig::default() },
        native_nftables,
        variant: VariantChoice::Detect,
        tools: Some(canopus_parts::find(Part::Iptables).unwrap()),
        host_namespace: host.path(),
        kubelet: 0,
    }
}

fn pod(name: &str) -> Pod {
    let mut pod = Pod::default();
    (pod.metadata.name, pod.metadata.namespace) = (name.to_owned(), "shop".to_owned());
    pod.spec.service_account_name = "cart".to_owned();
    pod
}

/// A ztunnel that takes what it is told.
struct Peer {
    socket: Socket,
}

impl Peer {
    fn connect(path: &Path) -> Self {
        let socket = Socket::new(Domain::UNIX, Type::from(SockType::SeqPacket as i32), None).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while let Err(error) = socket.connect(&SockAddr::unix(path).unwrap()) {
            assert!(Instant::now() < until, "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
        socket.send(&ZdsHello { version: 1 }.encode_to_vec()).unwrap();
        Self { socket }
    }

    /// The next message and the namespace that came with it. It is acknowledged with this error.
    fn next(&self, error: &str) -> (Payload, Option<File>) {
        let mut buffer = vec![0; 4096];
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let mut control = nix::cmsg_space!([std::os::fd::RawFd; 1]);
        let received =
            recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty())
                .unwrap();
        let mut network = None;
        for message in received.cmsgs().unwrap() {
            if let ControlMessageOwned::ScmRights(files) = message {
                network = Some(File::open(format!("/proc/self/fd/{}", files[0])).unwrap());
                nix::unistd::close(files[0]).unwrap();
            }
        }
        let length = received.bytes;
        let request = WorkloadRequest::decode(&buffer[..length]).unwrap();
        let ack = workload_response::Payload::Ack(Ack { error: error.to_owned() });
        self.socket.send(&WorkloadResponse { payload: Some(ack) }.encode_to_vec()).unwrap();
        (request.payload.unwrap(), network)
    }
}

/// Listens for captured connections in a namespace and answers with its port.
fn listen(network: &OwnedFd, address: &str) -> TcpListener {
    in_open_namespace(network.as_fd(), || TcpListener::bind(address)).unwrap().unwrap()
}

/// What answers a connection from within a namespace.
fn ask(network: &OwnedFd, address: &str) -> std::io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    in_open_namespace(network.as_fd(), move || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    })
    .unwrap()
}

fn answer(listener: TcpListener, text: &'static str) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(text.as_bytes());
        }
    });
}

fn captured_and_released(native_nftables: bool) {
    if !is_possible() {
        return;
    }
    let (host, network) = (Network::new(), Network::new());
    let rules = rules(&host, native_nftables);
    let open = network.open();
    answer(listen(&open, "127.0.0.1:15001"), "ztunnel v4");
    answer(listen(&open, "[::1]:15001"), "ztunnel v6");
    assert!(ask(&open, "10.99.0.9:80").is_err(), "nobody is there");
    rules.capture(&open, &PodOverrides::default()).unwrap();
    rules.capture(&open, &PodOverrides::default()).unwrap();
    assert_eq!(ask(&open, "10.99.0.9:80").unwrap(), "ztunnel v4");
    assert_eq!(ask(&open, "[fd99::9]:80").unwrap(), "ztunnel v6");
    assert!(ip(&["-n", &network.name, "rule"]).contains("fwmark 0x111/0xfff lookup 100"));
    assert!(ip(&["-n", &network.name, "route", "show", "table", "100"]).contains("local default dev lo"));
    rules.release(&open).unwrap();
    assert!(ask(&open, "10.99.0.9:80").is_err(), "nobody captures");
    assert!(!ip(&["-n", &network.name, "rule"]).contains("0x111"));
}

#[test]
fn connections_reach_ztunnel_until_the_pod_leaves_with_iptables() {
    captured_and_released(false);
}

#[test]
fn connections_reach_ztunnel_until_the_pod_leaves_with_nftables() {
    captured_and_released(true);
}

fn replaced_under_traffic(native_nftables: bool) {
    if !is_possible() {
        return;
    }
    let (host, network) = (Network::new(), Network::new());
    let rules = rules(&host, native_nftables);
    let open = network.open();
    answer(listen(&open, "127.0.0.1:15001"), "ztunnel");
    rules.capture(&open, &PodOverrides::default()).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let (flag, within) = (Arc::clone(&is_over), network.open());
    let traffic = std::thread::spawn(move || {
        let mut count = 0;
        while !flag.load(Ordering::Relaxed) {
            assert_eq!(ask(&within, "10.99.0.9:80").unwrap(), "ztunnel");
            count += 1;
        }
        count
    });
    for round in 0..10 {
        let overrides = PodOverrides { dns_capture: Some(round % 2 == 0), ..PodOverrides::default() };
        rules.capture(&open, &overrides).unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(traffic.join().unwrap() > 0);
}

#[test]
fn replacing_rules_stops_no_connection_with_iptables() {
    replaced_under_traffic(false);
}

#[test]
fn replacing_rules_stops_no_connection_with_nftables() {
    replaced_under_traffic(true);
}

#[test]
fn node_rules_and_probe_addresses_are_made_again_and_removed() {
    if !is_possible() {
        return;
    }
    for native_nftables in [false, true] {
        let host = Network::new();
        let rules = rules(&host, native_nftables);
        let addresses = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        rules.prepare_host(&addresses).unwrap();
        rules.prepare_host(&addresses[..1]).unwrap();
        for is_probed in [true, true, false, false] {
            rules.set_probed(&addresses, is_probed).unwrap();
        }
        rules.release_host().unwrap();
        rules.release_host().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ztunnel_gets_the_snapshot_then_changes_and_can_refuse() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("zt/ztunnel.sock");
    let server = ZtunnelServer::new(Registry::new());
    let own: Arc<OwnedFd> = Arc::new(File::open("/proc/self/ns/net").unwrap().into());
    assert!(matches!(server.add("u0", Workload::new(&pod("early"), None)).await, Err(ZdsError::NoZtunnel)));
    server.forget("u0");
    server.remember("u1", Workload::new(&pod("known"), Some(Arc::clone(&own))));
    server.remember("u2", Workload::new(&pod("lost"), None));
    let (serving, socket) = (server.clone(), path.clone());
    tokio::spawn(async move { serving.serve(&socket).await });
    let (connected, told) = std::sync::mpsc::channel();
    let script = tokio::task::spawn_blocking(move || {
        let peer = Peer::connect(&path);
        let (first, network) = peer.next("");
        let Payload::Add(add) = first else { panic!("{first:?}") };
        let info = add.workload_info.unwrap();
        assert_eq!(
            (add.uid.as_str(), info.name.as_str(), info.service_account.as_str()),
            ("u1", "known", "cart")
        );
        use std::os::unix::fs::MetadataExt as _;
        let same = std::fs::metadata("/proc/self/ns/net").unwrap();
        assert_eq!(network.unwrap().metadata().unwrap().ino(), same.ino());
        let (second, network) = peer.next("");
        assert!(matches!(second, Payload::Keep(keep) if keep.uid == "u2") && network.is_none());
        assert!(matches!(peer.next("").0, Payload::SnapshotSent(_)));
        connected.send(()).unwrap();
        assert!(matches!(peer.next("").0, Payload::Add(add) if add.uid == "u3"));
        assert!(matches!(peer.next("no room").0, Payload::Add(add) if add.uid == "u4"));
        assert!(matches!(peer.next("").0, Payload::Del(del) if del.uid == "u3"));
    });
    tokio::task::spawn_blocking(move || told.recv().unwrap()).await.unwrap();
    server.add("u3", Workload::new(&pod("new"), Some(Arc::clone(&own)))).await.unwrap();
    let refused = server.add("u4", Workload::new(&pod("large"), Some(own))).await.unwrap_err();
    assert_eq!(refused.to_string(), "ztunnel refused: no room");
    server.remove("u3").await.unwrap();
    script.await.unwrap();
    assert!(!server.knows("u3") && server.knows("u4"));
}
