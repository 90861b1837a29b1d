//! Faults with a real `canopusd` and stock Envoys under traffic: killed again and again, asked to stop, and spoken to by clients
//! that send nonsense.
//!
//! `CANOPUS_FAULTS=100` makes everything a hundred times as often as usual.

#![allow(dead_code, reason = "the local mesh is shared with others")]
#![allow(clippy::print_stdout, reason = "how much was done is worth knowing")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;
#[path = "../support/shop.rs"]
mod shop;
#[path = "../support/traffic.rs"]
mod traffic;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::value::Kind;
use canopus_proto::google::protobuf::{ListValue, Struct, Value};
use canopus_proto::google::rpc::Status as RpcStatus;
use canopus_testkit::{Envoy, eventually};
use canopus_xds::client::AdsStream;
use canopus_xds::session::{Protocol, Request, Wish};
use canopus_xds::types;
use serde_json::json;
use shop::Shop;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::metadata::MetadataMap;
use tonic::transport::Endpoint;
use traffic::Traffic;

const PATIENCE: Duration = Duration::from_secs(60);

/// How often something is done; `CANOPUS_FAULTS` multiplies it.
#[allow(clippy::disallowed_methods, reason = "how much a test does is no flag of the product")]
fn times(usual: usize) -> usize {
    let factor = std::env::var("CANOPUS_FAULTS").ok().and_then(|text| text.parse().ok());
    usual * factor.unwrap_or(1)
}

async fn is_connected(envoy: &Envoy) -> Result<()> {
    eventually("the connection", PATIENCE, async || {
        let stats = envoy.stats().await?;
        ensure!(stats.get("control_plane.connected_state") == Some(&1), "not connected");
        Ok(())
    })
    .await
}

async fn kills_go_unnoticed(variant: &str) -> Result<()> {
    let mut shop = Shop::open().await?;
    let envoy = shop.mesh.gateway_over(variant).await?;
    shop.change(0)?;
    shop.arrived(0, &envoy).await?;
    let traffic = Traffic::start(shop.gateway);
    let kills = times(10);
    for number in 1..=kills {
        // Killed at another moment of its work each time, with a change on its way.
        shop.change(number)?;
        tokio::time::sleep(Duration::from_millis(7 * (number as u64 % 10))).await;
        shop.mesh.restart().await?;
    }
    is_connected(&envoy).await?;
    shop.arrived(kills, &envoy).await?;
    let answered = traffic.stop().await?;
    ensure!(answered > kills, "there was no traffic");
    println!("{kills} kills over {variant}: {answered} requests, none failed");
    assert_eq!(envoy.rejections().await?, BTreeMap::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_under_traffic_go_unnoticed_over_delta() -> Result<()> {
    kills_go_unnoticed("DELTA_GRPC").await
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_under_traffic_go_unnoticed_over_state_of_the_world() -> Result<()> {
    kills_go_unnoticed("GRPC").await
}

#[tokio::test(flavor = "multi_thread")]
async fn asked_to_stop_under_load_it_ends_in_order_and_nobody_notices() -> Result<()> {
    let mut shop = Shop::open().await?;
    let envoy = shop.mesh.gateway().await?;
    shop.change(0)?;
    shop.arrived(0, &envoy).await?;
    let traffic = Traffic::start(shop.gateway);
    for number in 1..=20 {
        shop.change(number)?;
    }
    let id = shop.mesh.id().context("it runs")?;
    ensure!(Command::new("kill").arg("-TERM").arg(id.to_string()).status()?.success(), "no signal");
    eventually("the last line of the log", PATIENCE, async || {
        ensure!(shop.mesh.log().contains("stopped"), "{}", shop.mesh.log());
        Ok(())
    })
    .await?;
    let log = shop.mesh.log();
    ensure!(!log.contains("panicked"), "{log}");
    shop.mesh.restart().await?;
    is_connected(&envoy).await?;
    shop.arrived(20, &envoy).await?;
    ensure!(traffic.stop().await? > 0, "there was no traffic");
    Ok(())
}

/// Numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn text(&mut self) -> String {
        let pieces =
            ["", "é".repeat(300).as_str(), "\u{0}", "*", "~", "a/b", "sidecar~x", "%s%n", "\u{202e}"]
                .map(str::to_owned);
        (0..self.roll(4)).map(|_| pieces[self.roll(pieces.len() as u64) as usize].clone()).collect()
    }

    fn value(&mut self, depth: u64) -> Value {
        let kind = match self.roll(if depth == 0 { 3 } else { 5 }) {
            0 => Kind::NullValue(0),
            1 => Kind::NumberValue([f64::NAN, f64::INFINITY, -0.0, 1e308][self.roll(4) as usize]),
            2 => Kind::StringValue(self.text()),
            3 => Kind::ListValue(ListValue {
                values: (0..self.roll(5)).map(|_| self.value(depth - 1)).collect(),
            }),
            _ => Kind::StructValue(self.metadata(depth - 1)),
        };
        Value { kind: Some(kind) }
    }

    fn metadata(&mut self, depth: u64) -> Struct {
        let names = ["LABELS", "NAMESPACE", "CLUSTER_ID", "INSTANCE_IPS", "GENERATOR", "ISTIO_VERSION", "x"];
        let fields = (0..self.roll(8)).map(|_| {
            let name = names[self.roll(names.len() as u64) as usize].to_owned();
            (name, self.value(depth))
        });
        Struct { fields: fields.collect() }
    }

    /// A request that can be decoded, with contents that nobody expects.
    fn request(&mut self, is_first: bool) -> Request {
        let types =
            [types::CLUSTER, types::LISTENER, types::SECRET, types::ADDRESS, "istio.io/debug", "x/y/z"];
        let node = Node {
            id: match self.roll(3) {
                0 => "sidecar~10.9.9.9~evil.demo~demo.svc.cluster.local".to_owned(),
                1 => "router~::1~a.b~c".to_owned(),
                _ => self.text(),
            },
            metadata: Some(self.metadata(3)),
            ..Node::default()
        };
        let names = |dice: &mut Self| (0..dice.roll(20)).map(|_| dice.text()).collect::<Vec<String>>();
        Request {
            type_url: types[self.roll(types.len() as u64) as usize].to_owned(),
            node: is_first.then_some(node),
            nonce: self.text(),
            error: (self.roll(3) == 0).then(|| RpcStatus {
                code: -7,
                message: self.text(),
                details: Vec::new(),
            }),
            wish: Wish::Change {
                subscribe: names(self),
                unsubscribe: names(self),
                held: names(self).into_iter().map(|name| (name, "1".to_owned())).collect(),
            },
        }
    }

    fn json(&mut self, depth: u64) -> serde_json::Value {
        match self.roll(if depth == 0 { 4 } else { 6 }) {
            0 => serde_json::Value::Null,
            1 => [json!(-1), json!(1e308), json!(4_294_967_296_u64), json!(true)][self.roll(4) as usize]
                .clone(),
            2 | 3 => self.text().into(),
            4 => (0..self.roll(4)).map(|_| self.json(depth - 1)).collect(),
            _ => serde_json::Value::Object(self.fields(depth - 1)),
        }
    }

    fn fields(&mut self, depth: u64) -> serde_json::Map<String, serde_json::Value> {
        let names =
            ["hosts", "http", "selector", "rules", "match", "containers", "name", "route", "port", "x"];
        let field = |dice: &mut Self| {
            let name = names[dice.roll(names.len() as u64) as usize].to_owned();
            (name, dice.json(depth))
        };
        (0..self.roll(6)).map(|_| field(self)).collect()
    }

    /// A request for a review that can be read, of an object that nobody expects.
    fn review(&mut self) -> String {
        let kinds = [
            ("networking.istio.io/v1", "VirtualService", "virtualservices"),
            ("security.istio.io/v1", "AuthorizationPolicy", "authorizationpolicies"),
            ("networking.istio.io/v1alpha3", "EnvoyFilter", "envoyfilters"),
            ("v1", "Pod", "pods"),
            ("x/y/z", "é", ""),
        ];
        let (version, kind, resource) = kinds[self.roll(kinds.len() as u64) as usize];
        let (group, plain) = version.split_once('/').unwrap_or(("", version));
        let operation = ["CREATE", "UPDATE", "DELETE", "", "é"][self.roll(5) as usize];
        let object = json!({
            "apiVersion": version, "kind": kind,
            "metadata": {"name": self.text(), "namespace": self.text(), "labels": self.json(1)},
            "spec": self.fields(4),
        });
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": self.text(), "operation": operation, "namespace": self.text(),
                "kind": {"group": group, "version": plain, "kind": kind},
                "resource": {"group": group, "version": plain, "resource": resource},
                "object": if self.roll(8) == 0 { self.json(2) } else { object },
            },
        });
        let body = if self.roll(20) == 0 { self.json(6) } else { review }.to_string();
        let path = ["/validate", "/inject", "/inject/cluster/é", "/validate/x?y=%ff"][self.roll(4) as usize];
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
    }

    fn bytes(&mut self, beginning: &[u8]) -> Vec<u8> {
        let length = self.roll(300);
        let noise = (0..length).map(|_| self.roll(256) as u8);
        beginning.iter().copied().chain(noise).collect()
    }
}

/// The memory of a process, in bytes.
fn memory(id: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

async fn send_noise(address: SocketAddr, bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(address).await else { return };
    let _ = stream.write_all(bytes).await;
    // An answer or an end; whoever says nothing is left.
    let _ = timeout(Duration::from_millis(20), stream.read(&mut [0; 256])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_on_every_port_harms_nobody() -> Result<()> {
    let shop = Shop::open_secure("", &[]).await?;
    let envoy = shop.mesh.gateway().await?;
    shop.change(0)?;
    shop.arrived(0, &envoy).await?;
    let traffic = Traffic::start(shop.gateway);
    let id = shop.mesh.id().context("it runs")?;
    let before = memory(id)?;
    let mut dice = Dice(1);
    let plain = Endpoint::try_from(format!("http://{}", shop.mesh.xds))?.connect().await?;
    let proven = shop.mesh.channel_as("spiffe://cluster.local/ns/demo/sa/evil").await?;
    let count = times(200);
    for number in 0..2 * count {
        let channel = if number % 2 == 0 { plain.clone() } else { proven.clone() };
        let opened = AdsStream::open(channel, Protocol::Delta, MetadataMap::new(), dice.request(true)).await;
        if let Ok(mut stream) = opened {
            for _ in 0..dice.roll(4) {
                let _ = stream.send(dice.request(false)).await;
            }
            // An answer, an error or silence: each is fine.
            let _ = timeout(Duration::from_millis(20), stream.next()).await;
        }
    }
    for _ in 0..count {
        let mut stream = shop.mesh.tls(true, "http/1.1").await?;
        let review = dice.review();
        stream.write_all(review.as_bytes()).await?;
        let mut answer = [0; 8];
        timeout(PATIENCE, stream.read_exact(&mut answer)).await?.with_context(|| review.clone())?;
        ensure!(&answer == b"HTTP/1.1", "{review} is answered by {answer:?}");
    }
    let heads: [&[u8]; 6] = [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"POST /debug/x HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
        b"GET /debug/config_dump?proxyID=%ff%00 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    ];
    for address in [shop.mesh.xds, shop.mesh.http, shop.mesh.monitoring()] {
        for _ in 0..count {
            let head = heads[dice.roll(heads.len() as u64) as usize];
            let bytes = dice.bytes(head);
            send_noise(address, &bytes).await;
        }
    }
    for to_webhooks in [false, true] {
        for _ in 0..count {
            let head = heads[dice.roll(heads.len() as u64) as usize];
            let mut stream = shop.mesh.tls(to_webhooks, "h2").await?;
            let _ = stream.write_all(&dice.bytes(head)).await;
            let _ = timeout(Duration::from_millis(20), stream.read(&mut [0; 256])).await;
        }
    }
    // Others are served, the process is the same, and it has not grown by what it was sent.
    shop.change(1)?;
    shop.arrived(1, &envoy).await?;
    ensure!(traffic.stop().await? > 0, "there was no traffic");
    assert_eq!(shop.mesh.id(), Some(id));
    let grown = memory(id)?.saturating_sub(before);
    println!("{} requests and {} connections of nonsense: {grown} bytes more", 3 * count, 5 * count);
    ensure!(grown < 256 << 20, "it has grown by {grown} bytes");
    let log = shop.mesh.log();
    ensure!(!log.contains("panicked"), "{log}");
    Ok(())
}

/// Opens streams that ask for everything; one in ten of them never reads an answer.
async fn open_idle_streams(address: SocketAddr, count: usize) -> Result<Vec<AdsStream>> {
    const STREAMS_PER_CONNECTION: usize = 50;
    let mut streams = Vec::new();
    let mut channel = None;
    for number in 0..count {
        if number % STREAMS_PER_CONNECTION == 0 {
            channel = Some(Endpoint::try_from(format!("http://{address}"))?.connect().await?);
        }
        let node = Node {
            id: format!(
                "router~10.1.{}.{}~idle-{number}.demo~demo.svc.cluster.local",
                number / 250,
                number % 250 + 1
            ),
            ..Node::default()
        };
        let wish = Wish::Change { subscribe: Vec::new(), unsubscribe: Vec::new(), held: BTreeMap::new() };
        let (type_url, nonce) = (types::CLUSTER.to_owned(), String::new());
        let first = Request { type_url, node: Some(node), nonce, error: None, wish };
        let channel = channel.clone().context("there is a connection")?;
        let mut stream = AdsStream::open(channel, Protocol::Delta, MetadataMap::new(), first).await?;
        if number % 10 != 0 {
            timeout(PATIENCE, stream.next()).await??.context("no answer")?;
        }
        streams.push(stream);
    }
    Ok(streams)
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_streams_and_slow_readers_are_in_nobodys_way() -> Result<()> {
    let shop = Shop::open().await?;
    let envoy = shop.mesh.gateway().await?;
    shop.change(0)?;
    shop.arrived(0, &envoy).await?;
    let id = shop.mesh.id().context("it runs")?;
    let before = memory(id)?;
    let count = times(500);
    let streams = open_idle_streams(shop.mesh.xds, count).await?;
    let traffic = Traffic::start(shop.gateway);
    // None of them acknowledges anything, so each change is one more that waits for them.
    for number in 1..=20 {
        shop.change(number)?;
        shop.arrived(number, &envoy).await?;
    }
    let grown = memory(id)?.saturating_sub(before);
    println!("{count} idle streams: {grown} bytes, {} for each", grown / count as u64);
    ensure!(grown < count as u64 * (256 << 10) + (64 << 20), "it has grown by {grown} bytes");
    drop(streams);
    shop.change(21)?;
    shop.arrived(21, &envoy).await?;
    ensure!(traffic.stop().await? > 0, "there was no traffic");
    assert_eq!(shop.mesh.id(), Some(id));
    Ok(())
}
