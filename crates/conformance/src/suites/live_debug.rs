//! What the debug endpoints of a running control plane answered, over HTTP and over xDS.
//!
//! The control plane of [`live`](super::live) runs in the recorded world with the recorded proxies connected. What a name
//! begins with says when the answer was taken: before any proxy was there, after all had left, or by a process with other
//! settings.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, anyhow, bail};
use canopus_base::json;
use canopus_base::tree::{Limits, Map, Node, Value};
use canopus_proto::descriptors;
use canopus_proto::envoy::config::core::v3::Node as ProxyNode;
use canopus_proto::json::{self as proto_json, Unknown};
use parking_lot::Mutex;

use super::Suite;
use super::live::{Client, Identity, Plane, Response, World};
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};
use crate::corpus::Corpus;
use crate::dump::Dump;
use crate::record;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 40_000);
const ELSEWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9)), 40_000);

/// What `kubectl apply` leaves behind, and nobody else.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The suite, with the control planes that are running.
#[derive(Default)]
pub(super) struct LiveDebug {
    planes: [OnceLock<Result<Mutex<Stage>, String>>; 5],
}

/// When, and by whom, an answer was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    Connected,
    After,
    Admin,
    Ambient,
}

impl Phase {
    /// By what a name begins with.
    fn from_name(name: &str) -> Self {
        let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
        if begins(&["before-", "registry-before-"]) {
            Self::Before
        } else if begins(&["after-disconnect-"]) {
            Self::After
        } else if begins(&["admin-"]) {
            Self::Admin
        } else if begins(&["ambient-"]) {
            Self::Ambient
        } else {
            Self::Connected
        }
    }
}

/// A control plane and who is connected to it.
struct Stage {
    phase: Phase,
    plane: Plane,
    /// Clients disconnect when this is dropped.
    clients: Vec<Client>,
}

impl Stage {
    fn open(phase: Phase, corpus: &Corpus) -> anyhow::Result<Self> {
        let world = World::read(corpus)?;
        let flags: &[_] = match phase {
            Phase::Admin => &[("UNSAFE_ENABLE_ADMIN_ENDPOINTS", "true")],
            Phase::Ambient => &[("UNSAFE_ENABLE_ADMIN_ENDPOINTS", "true"), ("PILOT_ENABLE_AMBIENT", "true")],
            Phase::Before | Phase::Connected | Phase::After => &[],
        };
        let plane = Plane::start(&world, flags)?;
        let mut clients = Vec::new();
        if phase != Phase::Before {
            for proxy in &world.proxies {
                clients.push(plane.connect(proxy)?);
            }
        }
        if phase == Phase::After {
            clients.clear();
        }
        Ok(Self { phase, plane, clients })
    }

    /// Ends the stream of the first proxy, and of no other.
    fn disconnect(&self, expected: bool) -> anyhow::Result<Vec<Difference>> {
        let (first, others) = self.clients.split_first().context("nobody is connected")?;
        let path = format!("/debug/force_disconnect?proxyID={}", first.name());
        self.plane.get("GET", &path, LOOPBACK, None)?;
        let mut found = Vec::new();
        if first.is_over() != expected {
            found.push(Difference::new("/closed", expected, !expected));
        }
        if others.iter().any(Client::is_over) {
            found.push(Difference::new("/closed", "the stream of one proxy", "those of others too"));
        }
        Ok(found)
    }
}

impl Suite for LiveDebug {
    fn name(&self) -> &str {
        "live-debug"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        let name = case.file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        self.compare(case, Phase::from_name(&name)).into()
    }
}

impl LiveDebug {
    /// Asks a recorded question again, or has happen again what was recorded.
    fn compare(&self, case: &Case, phase: Phase) -> anyhow::Result<Vec<Difference>> {
        let recorded = record::read(&case.corpus, &case.path(&case.file))?;
        let open = || Stage::open(phase, &case.corpus).map(Mutex::new).map_err(|error| format!("{error:#}"));
        let stage =
            self.planes[phase as usize].get_or_init(open).as_ref().map_err(|error| anyhow!("{error}"))?;
        let stage = stage.lock();
        let Some(request) = recorded.get("request") else {
            let closed = recorded.pointer("/result/closed").and_then(Node::as_bool);
            return stage.disconnect(closed.context("nothing is asked, and nothing happens")?);
        };
        let asked = Asked { case, request, expected: recorded.get("response").context("no response")? };
        let via = request.get("via").and_then(Node::as_str).unwrap_or_default();
        match via {
            "HTTP" => asked.over_http(&stage),
            _ if via.starts_with("xDS") => asked.over_xds(&stage.plane),
            _ => asked.on_monitoring_port(&stage),
        }
    }
}

/// A recorded question with its answer.
struct Asked<'a> {
    case: &'a Case,
    request: &'a Node,
    expected: &'a Node,
}

impl Asked<'_> {
    fn text(&self, key: &str) -> &str {
        self.request.get(key).and_then(Node::as_str).unwrap_or_default()
    }

    fn path(&self) -> &str {
        self.text("path")
    }

    fn peer(&self) -> SocketAddr {
        if self.text("peer") == "loopback" { LOOPBACK } else { ELSEWHERE }
    }

    /// The header that proves who asks, in the form our control plane takes here.
    fn token(&self) -> Option<String> {
        let header = self.request.pointer("/headers/Authorization")?.as_str()?;
        let described = header.strip_prefix("Bearer <token of ")?.trim_end_matches('>');
        let described = described.trim_start_matches("service account ");
        let (account, audience) = described.split_once(", audience ")?;
        (audience == "istio-ca").then(|| format!("Bearer {account}"))
    }

    fn over_http(&self, stage: &Stage) -> anyhow::Result<Vec<Difference>> {
        let method = self.request.get("method").and_then(Node::as_str).unwrap_or("GET");
        let token = self.token();
        let got = stage.plane.get(method, self.path(), self.peer(), token.as_deref())?;
        let mut found = self.heads(got.status, got.content_type.as_deref());
        if !found.is_empty() {
            return Ok(found);
        }
        if let Some(mut expected) = self.body()? {
            let body =
                json::parse(got.body.as_bytes(), &Limits::default()).context("the body is not JSON")?;
            if stage.phase == Phase::Ambient {
                expected = keep_namespaces_of(expected, &body);
            }
            found.extend(trees(&expected, &body));
        } else if self
            .expected
            .get("bodyLength")
            .and_then(Node::as_str)
            .is_some_and(|it| it.starts_with("as "))
        {
            let local = stage.plane.get(method, self.path(), LOOPBACK, None)?;
            if local.body != got.body {
                found.push(Difference::new("/body", "as from loopback", "something else"));
            }
        } else if got.content_type.as_deref().is_some_and(|it| it.starts_with("text/html")) {
            found.extend(self.index(&got.body));
        } else if method != "HEAD" {
            let expected = self.expected.get("bodyText").and_then(Node::as_str).unwrap_or_default();
            if expected != got.body {
                found.push(Difference::new("/body", expected, got.body));
            }
        }
        Ok(found)
    }

    /// The page is our own; what it leads to is not. There is no profiler to lead to.
    fn index(&self, page: &str) -> Vec<Difference> {
        let expected = self.expected.get("bodyText").and_then(Node::as_str).unwrap_or_default();
        let links = expected.split("href='").skip(1).filter_map(|rest| rest.split('\'').next());
        let missing = links.filter(|link| !link.contains("pprof") && !page.contains(*link));
        missing.map(|link| Difference::new("/body", link, crate::compare::ABSENT)).collect()
    }

    fn on_monitoring_port(&self, stage: &Stage) -> anyhow::Result<Vec<Difference>> {
        let got = stage.plane.get_monitoring(self.path(), ELSEWHERE)?;
        Ok(self.heads(got.status, got.content_type.as_deref()))
    }

    fn heads(&self, status: u16, content_type: Option<&str>) -> Vec<Difference> {
        let mut found = Vec::new();
        let expected = self.expected.get("status").and_then(Node::as_i64);
        if expected != Some(status.into()) {
            found.push(Difference::new("/status", format!("{expected:?}"), status));
        }
        if let Some(expected) = self.expected.get("contentType") {
            let expected = expected.as_str();
            if expected != content_type {
                found.push(Difference::new(
                    "/contentType",
                    format!("{expected:?}"),
                    format!("{content_type:?}"),
                ));
            }
        }
        found
    }

    /// The recorded tree.
    fn body(&self) -> anyhow::Result<Option<Node>> {
        if let Some(body) = self.expected.get("body") {
            return Ok(Some(body.clone()));
        }
        let Some(file) = self.expected.get("bodyFile").and_then(Node::as_str) else { return Ok(None) };
        let directory = self.case.file.parent().unwrap_or(Path::new(""));
        self.case.corpus.document(&self.case.path(directory.join(file))).map(Some)
    }

    fn over_xds(&self, plane: &Plane) -> anyhow::Result<Vec<Difference>> {
        let metadata = self.request.get("nodeMetadata").map(Node::to_json).unwrap_or_default();
        let node = serde_json::json!({"id": self.text("node"), "metadata": metadata});
        let node = proto_json::read::<ProxyNode>(&Node::from(node), Unknown::Reject);
        let node = node.map_err(|error| anyhow!("{error:?}"))?.value;
        let secure = self.text("port") == "TLS";
        let identity = self.text("identity").split_once('/').filter(|_| secure);
        let identity = identity
            .map(|(namespace, account)| Identity { namespace: namespace.into(), account: account.into() });
        let names = self.request.get("resourceNames").and_then(Node::as_list).unwrap_or_default();
        let names: Vec<String> = names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
        let answer = plane.ask(node, secure, identity.as_ref(), self.text("typeUrl"), &names)?;
        match (answer, self.expected.get("grpcCode").and_then(Node::as_str)) {
            (Ok(response), None) => self.response(&response),
            (Err(refusal), Some(code)) => {
                let message = self.expected.get("grpcMessage").and_then(Node::as_str).unwrap_or_default();
                let got = (code_name(refusal.code), refusal.message.as_str());
                let same = got == (code.to_owned(), message);
                Ok(if same {
                    Vec::new()
                } else {
                    vec![Difference::new("", format!("{code}: {message}"), format!("{got:?}"))]
                })
            }
            (Ok(_), Some(code)) => Ok(vec![Difference::new("", code, "an answer")]),
            (Err(refusal), None) => Ok(vec![Difference::new("", "an answer", refusal)]),
        }
    }

    fn response(&self, got: &Response) -> anyhow::Result<Vec<Difference>> {
        if let Some(expected) = self.body()? {
            let [only] = got.resources.as_slice() else { bail!("not one resource") };
            // A large body is that of the resource, or the whole answer around it.
            let expected = expected.pointer("/resources/0/json").unwrap_or(&expected);
            let body = json::parse(&only.value, &Limits::default()).context("the body is not JSON")?;
            return Ok(trees(expected, &body));
        }
        let mut found = Vec::new();
        let count = self.expected.get("resourceCount").and_then(Node::as_i64);
        if count != i64::try_from(got.resources.len()).ok() {
            found.push(Difference::new("/resourceCount", format!("{count:?}"), got.resources.len()));
            return Ok(found);
        }
        let says_who = self.expected.get("controlPlaneIdentifier").and_then(Node::as_str);
        if says_who.is_some() != got.identifier.is_some() {
            found.push(Difference::new(
                "/controlPlaneIdentifier",
                format!("{says_who:?}"),
                format!("{:?}", got.identifier),
            ));
        }
        let expected = self.expected.get("resources").and_then(Node::as_list).unwrap_or_default();
        for (index, (expected, got)) in expected.iter().zip(&got.resources).enumerate() {
            let at = |difference: Difference| Difference {
                path: format!("/resources/{index}{}", difference.path),
                ..difference
            };
            found.extend(resource(expected, got)?.into_iter().map(at));
        }
        Ok(found)
    }
}

/// Where a resource differs. Of one whose content was not recorded, the type is compared.
fn resource(expected: &Node, got: &canopus_proto::Any) -> anyhow::Result<Vec<Difference>> {
    let type_url = expected.get("typeUrl").and_then(Node::as_str).unwrap_or_default();
    if type_url != got.type_url {
        return Ok(vec![Difference::new("/typeUrl", type_url, &got.type_url)]);
    }
    if let Some(expected) = expected.get("decoded") {
        let message =
            descriptors::open(got).context("a type nobody knows")?.map_err(|error| anyhow!("{error}"))?;
        return Ok(trees(expected, &proto_json::write_dynamic(&message)));
    }
    if let Some(expected) = expected.get("json") {
        let body = json::parse(&got.value, &Limits::default()).context("the body is not JSON")?;
        return Ok(trees(expected, &body));
    }
    let text = expected.get("text").and_then(Node::as_str).filter(|text| !text.is_empty());
    let body = String::from_utf8_lossy(&got.value);
    Ok(text.filter(|text| *text != body).map(|text| Difference::new("", text, body)).into_iter().collect())
}

/// What was recorded of the namespaces that there are here: others of that process had objects that nobody kept.
fn keep_namespaces_of(recorded: Node, got: &Node) -> Node {
    let Value::Map(lists) = recorded.value else { return recorded };
    let mut kept = Map::new();
    for entry in lists.into_entries() {
        let mut list = entry.node;
        let here = got.get(&entry.key).and_then(Node::as_list).unwrap_or_default();
        let namespace = |item: &Node| item.get("namespace").and_then(Node::as_str).map(str::to_owned);
        if let Value::List(items) = &mut list.value {
            items.retain(|item| here.iter().any(|here| namespace(here) == namespace(item)));
        }
        kept.insert(&entry.key, list);
    }
    Node { value: Value::Map(kept), at: recorded.at }
}

/// Where an answer differs from the recorded one.
fn trees(expected: &Node, got: &Node) -> Vec<Difference> {
    if let Some(items) = outlines(expected) {
        return outlined(items, got);
    }
    let (expected, got) = (comparable(expected.clone()), comparable(got.clone()));
    tree::difference(&expected, &got, &Rules { unordered: unordered() })
}

/// The items of a list of which only names and keys were kept, because what is in them is nobody's business.
fn outlines(expected: &Node) -> Option<&[Node]> {
    let items = expected.as_list()?;
    let is_outline =
        |item: &Node| item.get("name").is_some() && item.get("keys").is_some_and(|it| it.as_list().is_some());
    (!items.is_empty() && items.iter().all(is_outline)).then_some(items)
}

/// Where items have other keys than those that were kept.
fn outlined(expected: &[Node], got: &Node) -> Vec<Difference> {
    let keys = expected[0].get("keys").and_then(Node::as_list).unwrap_or_default();
    let items = got.as_list().unwrap_or_default();
    if items.is_empty() {
        return vec![Difference::new("", "a list", got.to_json())];
    }
    let missing = items
        .iter()
        .flat_map(|item| keys.iter().filter_map(Node::as_str).filter(|key| item.get(key).is_none()));
    missing.map(|key| Difference::new(format!("/{key}"), "something", crate::compare::ABSENT)).collect()
}

/// Lists that come from maps of Go's, or from the order in which a cluster's controllers happened to write.
fn unordered() -> Vec<String> {
    let mut lists: Vec<String> =
        ["", "/configs", "/clients", "/workloads", "/services", "/policies"].map(str::to_owned).into();
    for name in [
        "dynamicActiveClusters",
        "dynamicListeners",
        "dynamicRouteConfigs",
        "dynamicActiveSecrets",
        "dynamicEndpointConfigs",
    ] {
        lists.extend((0..8).map(|index| format!("/configs/{index}/{name}")));
        // Inside an item of `configs`.
        lists.push(format!("/{name}"));
    }
    lists
}

/// A tree without what `kubectl` adds, with lists of names and shards in order, and connections without their numbers.
fn comparable(node: Node) -> Node {
    let value = match node.value {
        Value::Map(map) => Value::Map(comparable_map(map)),
        Value::List(items) => Value::List(items.into_iter().map(comparable).collect()),
        other => other,
    };
    Node { value, at: node.at }
}

fn comparable_map(map: Map) -> Map {
    let mut all = Map::new();
    for entry in map.into_entries() {
        let key = entry.key;
        let mut node = comparable(entry.node);
        match (&*key, &mut node.value) {
            (LAST_APPLIED, _) => continue,
            ("annotations", Value::Map(map)) if map.iter().next().is_none() => continue,
            ("annotations", Value::Null) => continue,
            ("watches" | "Shards", Value::Map(lists)) => {
                let sorted = std::mem::take(lists).into_entries().into_iter().map(|entry| {
                    let mut node = entry.node;
                    if let Value::List(items) = &mut node.value {
                        items.sort_by_cached_key(|item| item.to_json().to_string());
                    }
                    (entry.key, node)
                });
                *lists = sorted.collect();
            }
            // Who only asks is numbered after whoever asked before.
            ("connectionId", Value::String(text)) if text.starts_with("debug.") => {
                *text = text.rsplit_once('-').map_or("", |(name, _)| name).into();
            }
            _ => {}
        }
        all.insert(&key, node);
    }
    all
}

/// A gRPC code as the recorder spells it.
fn code_name(code: canopus_xds::Code) -> String {
    let mut name = String::new();
    for (index, letter) in format!("{code:?}").chars().enumerate() {
        if letter.is_uppercase() && index > 0 {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn order_of_what_comes_from_maps_means_nothing() {
        let expected =
            json!({"configs": [{"@type": "a", "dynamicListeners": [{"name": "x"}, {"name": "y"}]}]});
        let got = json!({"configs": [{"@type": "a", "dynamicListeners": [{"name": "y"}, {"name": "x"}]}]});
        assert!(trees(&expected.into(), &got.into()).is_empty());
    }

    #[test]
    fn what_kubectl_adds_does_not_count() {
        let expected = json!({"annotations": {LAST_APPLIED: "{}"}, "name": "a"});
        assert!(trees(&expected.into(), &json!({"annotations": null, "name": "a"}).into()).is_empty());
        let expected: Node = json!({"annotations": {"mine": "1"}}).into();
        assert!(!trees(&expected, &json!({"annotations": null}).into()).is_empty());
    }

    #[test]
    fn codes_are_spelled_as_the_recorder_spells_them() {
        assert_eq!(code_name(canopus_xds::Code::InvalidArgument), "INVALID_ARGUMENT");
        assert_eq!(code_name(canopus_xds::Code::Unauthenticated), "UNAUTHENTICATED");
    }
}
