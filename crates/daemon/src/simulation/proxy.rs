//! Scripted proxies: each has a real session, and answers by its manner.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use canopus_base::hash::Hasher;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_proto::google::rpc::Status;
use canopus_xds::session::{Limits, Protocol, Request, Response, Session, Wish};
use canopus_xds::{ControlPlane as _, Interest, NamePool, Peer, Refusal, ResourceSet, Source, types};

use super::objects::{OF_LAB, POISON, PRIVATE_KEY, SECRET_READER, VERSIONS};
use super::random::Random;
use super::trace;
use crate::control_plane::{Client, Mesh, Proven};
use crate::push::ConnectionId;

/// Types a proxy asks for at once; endpoints follow from the clusters.
const FIRST: [&str; 4] = [types::CLUSTER, types::LISTENER, types::ROUTE, types::SECRET];

/// The routes and the secret that are asked for.
const ROUTES: [&str; 2] = ["80", "8080"];
const SECRET: &str = "kubernetes://cert";

/// How a proxy answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Accepts everything.
    Honest,
    /// Rejects what has poison in it.
    Strict,
    /// Accepts, rejects, lies and leaves as it likes.
    Hostile,
}

/// One resource that a proxy has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldResource {
    version: String,
    body: Bytes,
}

type HeldByName = BTreeMap<String, HeldResource>;

/// A proxy, connected or not.
pub(super) struct SimulatedProxy {
    name: String,
    namespace: &'static str,
    is_router: bool,
    is_proven: bool,
    /// The label by which some objects select it.
    version: &'static str,
    pub(super) manner: Manner,
    protocol: Protocol,
    stream: Option<Stream>,
    /// What it has, by type.
    held: BTreeMap<&'static str, HeldByName>,
    /// The version of the last state it accepted, by type (state of the world).
    versions: BTreeMap<&'static str, String>,
    /// Digest of everything it was sent.
    pub(super) transcript: Hasher,
    streams: u64,
}

struct Stream {
    client: Arc<Client>,
    session: Session,
    peer: Peer,
    inbox: VecDeque<Response>,
    /// The names it asked for, by type.
    wanted: BTreeMap<&'static str, BTreeSet<String>>,
    /// Versions that this stream has been sent or was told of as held, by type and name.
    sent: BTreeMap<&'static str, BTreeMap<String, String>>,
    /// The version of the last message, by type (state of the world).
    last: BTreeMap<&'static str, String>,
    /// What is in doubt, by type (delta).
    doubts: BTreeMap<&'static str, Doubts>,
}

/// What a stream has been sent, as far as it is uncertain whether the client has it.
#[derive(Default)]
struct Doubts {
    /// The nonce of the last message.
    nonce: String,
    /// Names in messages that the client has neither accepted nor rejected.
    unsettled: BTreeSet<String>,
    /// Whether it rejected one of them, and not the last.
    is_one_rejected: bool,
    /// Names in messages that it rejected, until it accepts everything.
    rejected: BTreeSet<String>,
}

impl Doubts {
    /// The client answers a message.
    fn answer(&mut self, nonce: &str, accepts: bool) {
        let is_last = nonce == self.nonce;
        if nonce.is_empty() || (accepts && !is_last) {
            return;
        }
        if !accepts {
            self.rejected.append(&mut self.unsettled.clone());
        } else if !self.is_one_rejected {
            self.rejected.clear();
        }
        self.is_one_rejected = !is_last;
        if is_last {
            self.unsettled.clear();
        }
    }
}

struct Resources<'a> {
    mesh: &'a Mesh,
    client: &'a Client,
}

impl Source for Resources<'_> {
    fn resources(&self, type_url: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        self.mesh.resources(self.client, type_url, interest)
    }
}

/// The type of a message as one of the constants.
fn known_type(type_url: &str) -> &'static str {
    let all = [FIRST.as_slice(), &[types::ENDPOINT]].concat();
    all.into_iter().find(|known| *known == type_url).expect("a type that was asked for")
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Runs a future that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing to wait for"),
    }
}

impl SimulatedProxy {
    pub(super) fn new(number: usize, random: &mut Random) -> Self {
        let is_router = number == 0;
        let namespace = if is_router { "shop" } else { random.choose(&["shop", "lab"]) };
        let name = if is_router { SECRET_READER.to_owned() } else { format!("proxy-{number}") };
        // In `lab` everybody is strict, so that holds are possible there.
        let manners: &[Manner] = match namespace {
            "lab" => &[Manner::Strict, Manner::Strict, Manner::Hostile],
            _ => &[Manner::Honest, Manner::Honest, Manner::Strict, Manner::Hostile],
        };
        Self {
            name,
            namespace,
            is_router,
            is_proven: is_router || !random.one_in(4),
            version: random.choose(&VERSIONS),
            manner: if is_router { Manner::Honest } else { random.choose(manners) },
            protocol: random.choose(&[Protocol::Sotw, Protocol::Delta]),
            stream: None,
            held: BTreeMap::new(),
            versions: BTreeMap::new(),
            transcript: Hasher::new(),
            streams: 0,
        }
    }

    /// The connection it has, if it has one.
    pub(super) fn connection(&self) -> Option<ConnectionId> {
        self.stream.as_ref().map(|stream| stream.client.connection.id)
    }

    /// The same proxy, which has nothing yet.
    pub(super) fn newborn(&self) -> Self {
        Self {
            name: self.name.clone(),
            stream: None,
            held: BTreeMap::new(),
            versions: BTreeMap::new(),
            transcript: Hasher::new(),
            streams: 0,
            ..*self
        }
    }

    /// Does something or nothing.
    pub(super) fn act(&mut self, mesh: &Mesh, random: &mut Random) {
        if self.stream.is_none() {
            if random.one_in(2) {
                self.connect(mesh);
            }
            return;
        }
        if random.one_in(15) {
            return self.leave(mesh);
        }
        if random.one_in(4) {
            // Slow: it hears nothing and says nothing.
            return;
        }
        self.hear(mesh);
        for _ in 0..random.below(6) {
            self.answer(mesh, Some(&mut *random));
        }
    }

    /// Takes and answers all there is; whether there was anything.
    pub(super) fn catch_up(&mut self, mesh: &Mesh) -> bool {
        let connected = self.stream.is_none();
        if connected {
            self.connect(mesh);
        }
        self.hear(mesh);
        let mut moved = connected;
        while self.stream.as_ref().is_some_and(|stream| !stream.inbox.is_empty()) {
            moved = true;
            self.answer(mesh, None);
        }
        moved
    }

    pub(super) fn leave(&mut self, mesh: &Mesh) {
        if let Some(stream) = self.stream.take() {
            mesh.disconnect(&stream.client);
        }
    }

    fn connect(&mut self, mesh: &Mesh) {
        self.streams += 1;
        let (role, namespace) = (if self.is_router { "router" } else { "sidecar" }, self.namespace);
        let id = format!("{role}~10.0.0.1~{}.{namespace}~{namespace}.svc.cluster.local", self.name);
        let mut peer = Peer { protocol: self.protocol, ..Peer::default() };
        if self.is_proven {
            let identity = format!("spiffe://cluster.local/ns/{namespace}/sa/{}", self.name);
            peer.extensions.insert(Proven(vec![identity]));
        }
        let labels = BTreeMap::from([("version".to_owned(), Value::from(self.version))]);
        let metadata = BTreeMap::from([
            ("NAMESPACE".to_owned(), Value::from(namespace)),
            ("LABELS".to_owned(), Value::from(Struct::from(labels))),
        ]);
        let node = Node { id, metadata: Some(metadata.into()), ..Node::default() };
        let client = at_once(mesh.connect(&peer, node)).unwrap();
        let mut session =
            Session::new(self.protocol, self.streams, Limits::default(), Arc::new(NamePool::default()));
        session.on_revision(peer.mailbox.revision(), types::Types::ALL);
        let stream = Stream {
            client,
            session,
            peer,
            inbox: VecDeque::new(),
            wanted: BTreeMap::new(),
            sent: BTreeMap::new(),
            last: BTreeMap::new(),
            doubts: BTreeMap::new(),
        };
        self.stream = Some(stream);
        for type_url in FIRST {
            let names: Vec<String> = match type_url {
                types::ROUTE => ROUTES.map(str::to_owned).into(),
                types::SECRET => vec![SECRET.to_owned()],
                _ => Vec::new(),
            };
            self.ask_first(mesh, type_url, names);
            if type_url == types::CLUSTER {
                // What it has from an earlier stream may be all it is told of, and its endpoints still change.
                self.follow_clusters(mesh);
            }
        }
    }

    /// Asks for a type, and says what it has of it from an earlier stream.
    fn ask_first(&mut self, mesh: &Mesh, type_url: &'static str, names: Vec<String>) {
        let held = self.held.get(type_url).cloned().unwrap_or_default();
        // What is no longer wanted is dropped.
        let held: HeldByName = held
            .into_iter()
            .filter(|(name, _)| names.is_empty() && is_wildcard(type_url) || names.contains(name))
            .collect();
        let versions: BTreeMap<String, String> =
            held.iter().map(|(name, held)| (name.clone(), held.version.clone())).collect();
        self.held.insert(type_url, held);
        let stream = self.stream.as_mut().expect("it is connected");
        stream.wanted.insert(type_url, names.iter().cloned().collect());
        let wish = match self.protocol {
            Protocol::Delta => {
                stream.sent.insert(type_url, versions.clone());
                Wish::Change { subscribe: names, unsubscribe: Vec::new(), held: versions }
            }
            Protocol::Sotw => {
                let version = self.versions.get(type_url).cloned().unwrap_or_default();
                if is_wildcard(type_url) && !version.is_empty() {
                    stream.last.insert(type_url, version.clone());
                }
                Wish::Exactly { names, version }
            }
        };
        self.request(mesh, type_url, String::new(), None, wish);
    }

    fn request(&mut self, mesh: &Mesh, type_url: &str, nonce: String, error: Option<Status>, wish: Wish) {
        trace(|| {
            let (name, verb) = (&self.name, if error.is_some() { "rejects" } else { "asks for" });
            format!("{name} {verb} {} {nonce:?}: {wish:?}", short(type_url))
        });
        let stream = self.stream.as_mut().expect("it is connected");
        let request = Request { type_url: type_url.to_owned(), node: None, nonce, error, wish };
        let source = Resources { mesh, client: &stream.client };
        stream.session.on_request(request, &source).unwrap();
        self.collect(mesh);
    }

    /// Hears of changes, if it was told of any.
    fn hear(&mut self, mesh: &Mesh) {
        let Some(stream) = &mut self.stream else { return };
        if let Some((revision, types)) = stream.peer.mailbox.take_revision() {
            stream.session.on_revision(revision, types);
        }
        self.collect(mesh);
        let stream = self.stream.as_mut().expect("it is connected");
        // With nothing left to answer, the time passes after which nothing waits for anything any more.
        if stream.inbox.is_empty() && stream.session.is_waiting() {
            stream.session.stop_waiting();
            self.collect(mesh);
        }
    }

    /// Takes what the session has to say, and checks it.
    fn collect(&mut self, mesh: &Mesh) {
        let mut responses = Vec::new();
        let stream = self.stream.as_mut().expect("it is connected");
        loop {
            let source = Resources { mesh, client: &stream.client };
            let response = stream.session.next_response(&source).unwrap();
            for event in stream.session.take_events() {
                mesh.observe(&stream.client, event);
            }
            let Some(response) = response else { break };
            responses.push(response);
        }
        for response in responses {
            self.write_down(&response);
            self.check_secrecy(&response);
            self.check_novelty(&response);
            self.stream.as_mut().expect("it is connected").inbox.push_back(response);
        }
    }

    /// Adds a message to the transcript.
    fn write_down(&mut self, response: &Response) {
        let names = || response.resources().map(|resource| format!("{resource:?}")).collect::<Vec<_>>();
        trace(|| {
            let (name, type_url, nonce) = (&self.name, short(response.type_url()), response.nonce());
            format!("{name} is sent {type_url} {nonce}: {:?}, without {:?}", names(), response.removed())
        });
        self.transcript.field(response.type_url().as_bytes()).field(response.nonce().as_bytes());
        for resource in response.resources() {
            self.transcript.field(resource.name.as_bytes()).field(&resource.body);
        }
        for name in response.removed() {
            self.transcript.field(name.as_bytes());
        }
    }

    /// A response holds nothing that belongs to other proxies.
    fn check_secrecy(&self, response: &Response) {
        for resource in response.resources() {
            if self.namespace != "lab" {
                assert!(!contains(&resource.body, OF_LAB), "{} is sent what is for lab alone", self.name);
            }
            let may_read = self.is_router && self.is_proven;
            assert!(may_read || !contains(&resource.body, PRIVATE_KEY), "{} is sent a key", self.name);
        }
    }

    /// A response holds nothing that the proxy has already.
    fn check_novelty(&mut self, response: &Response) {
        let type_url = known_type(response.type_url());
        let stream = self.stream.as_mut().expect("it is connected");
        let context = format!("{} ({:?}): {type_url}", self.name, self.protocol);
        match self.protocol {
            Protocol::Delta => {
                let sent = stream.sent.entry(type_url).or_default();
                let doubts = stream.doubts.entry(type_url).or_default();
                let (mut repeated, mut is_new) = (Vec::new(), false);
                for resource in response.resources() {
                    let (name, version) =
                        (resource.name.to_string(), response.version_of(resource).to_string());
                    if sent.insert(name.clone(), version.clone()) == Some(version) {
                        assert!(doubts.rejected.contains(&name), "{context}: {name} is sent twice");
                        repeated.push(name);
                    } else {
                        is_new = true;
                    }
                }
                for name in response.removed() {
                    is_new |= sent.remove(&**name).is_some() || !doubts.rejected.contains(&**name);
                }
                assert!(is_new || repeated.is_empty(), "{context}: {repeated:?} come again without a reason");
                let names = response.resources().map(|resource| &resource.name).chain(response.removed());
                doubts.unsettled.extend(names.map(ToString::to_string));
                doubts.nonce = response.nonce().to_owned();
            }
            Protocol::Sotw => {
                let version = response.version().to_string();
                let before = stream.last.insert(type_url, version.clone());
                assert_ne!(before, Some(version), "{context}: the same state is sent twice");
            }
        }
    }

    /// Answers the oldest message, by the manner of the proxy; without dice, as it would in good faith.
    fn answer(&mut self, mesh: &Mesh, random: Option<&mut Random>) {
        let Some(response) = self.stream.as_mut().and_then(|stream| stream.inbox.pop_front()) else { return };
        let type_url = known_type(response.type_url());
        let is_poisoned = response.resources().any(|resource| contains(&resource.body, POISON));
        let mut nonce = response.nonce().to_owned();
        let accepts = match (self.manner, random) {
            (Manner::Honest, _) => true,
            (Manner::Strict, _) => !is_poisoned,
            (Manner::Hostile, Some(random)) => {
                if random.one_in(6) {
                    nonce = random.choose(&["", "nonsense", "0-0", "1-1"]).to_owned();
                }
                random.one_in(2)
            }
            (Manner::Hostile, None) => true,
        };
        let error = (!accepts).then(|| Status {
            code: 13,
            message: format!(
                "Error adding/updating cluster(s) {}: {POISON}",
                response.resource(0).map_or("", |resource| &*resource.name)
            ),
            details: Vec::new(),
        });
        if accepts {
            self.take(type_url, &response);
        }
        let stream = self.stream.as_mut().expect("it is connected");
        let doubts = stream.doubts.entry(type_url).or_default();
        if !accepts && type_url == types::CLUSTER {
            // It may have dropped or replaced these clusters all the same, and their endpoints with them.
            let sent = stream.sent.entry(types::ENDPOINT).or_default();
            doubts.unsettled.iter().for_each(|name| drop(sent.remove(name)));
        }
        doubts.answer(&nonce, accepts);
        let names: Vec<String> = stream.wanted.get(type_url).into_iter().flatten().cloned().collect();
        // A nonce of nobody's making with all names would ask anew, and be answered again.
        let is_anew = nonce.is_empty();
        let wish = match self.protocol {
            Protocol::Delta => {
                Wish::Change { subscribe: Vec::new(), unsubscribe: Vec::new(), held: BTreeMap::new() }
            }
            Protocol::Sotw => {
                let version = self.versions.get(type_url).cloned().unwrap_or_default();
                Wish::Exactly { names, version }
            }
        };
        if is_anew && self.protocol == Protocol::Sotw {
            let stream = self.stream.as_mut().expect("it is connected");
            stream.last.remove(type_url);
        }
        self.request(mesh, type_url, nonce, error, wish);
        if accepts && type_url == types::CLUSTER {
            self.follow_clusters(mesh);
        }
    }

    /// Takes a message over.
    fn take(&mut self, type_url: &'static str, response: &Response) {
        let replaces = self.protocol == Protocol::Sotw && is_wildcard(type_url);
        let held = self.held.entry(type_url).or_default();
        let before: Vec<String> = held.keys().cloned().collect();
        if replaces {
            held.clear();
        }
        for resource in response.resources() {
            let version = response.version_of(resource).to_string();
            held.insert(resource.name.to_string(), HeldResource { version, body: resource.body.clone() });
        }
        for name in response.removed() {
            held.remove(&**name);
        }
        let gone: Vec<&String> = before.iter().filter(|name| !held.contains_key(*name)).collect();
        if type_url == types::CLUSTER
            && !gone.is_empty()
            && let Some(stream) = &mut self.stream
        {
            // The endpoints of a cluster go with it. If it comes back, they have to come again.
            stream.last.remove(types::ENDPOINT);
            let sent = stream.sent.entry(types::ENDPOINT).or_default();
            gone.into_iter().for_each(|name| drop(sent.remove(name)));
        }
        self.versions.insert(type_url, response.version().to_string());
    }

    /// Asks for the endpoints of the clusters it has, and no others.
    fn follow_clusters(&mut self, mesh: &Mesh) {
        let clusters = self.held.get(types::CLUSTER).into_iter().flat_map(BTreeMap::keys);
        let names: BTreeSet<String> = clusters
            .filter(|name| name.starts_with("outbound|") && name.contains(".svc."))
            .cloned()
            .collect();
        let stream = self.stream.as_mut().expect("it is connected");
        let Some(before) = stream.wanted.get(types::ENDPOINT).cloned() else {
            if !names.is_empty() {
                self.ask_first(mesh, types::ENDPOINT, names.into_iter().collect());
            }
            return;
        };
        if names == before {
            return;
        }
        stream.wanted.insert(types::ENDPOINT, names.clone());
        let gone: Vec<String> = before.difference(&names).cloned().collect();
        for name in &gone {
            stream.sent.entry(types::ENDPOINT).or_default().remove(name);
            self.held.entry(types::ENDPOINT).or_default().remove(name);
        }
        let wish = match self.protocol {
            Protocol::Delta => Wish::Change {
                subscribe: names.difference(&before).cloned().collect(),
                unsubscribe: gone,
                held: BTreeMap::new(),
            },
            Protocol::Sotw => {
                // Other names are another question, whose answer may be the same.
                stream.last.remove(types::ENDPOINT);
                let version = self.versions.get(types::ENDPOINT).cloned().unwrap_or_default();
                Wish::Exactly { names: names.into_iter().collect(), version }
            }
        };
        // Requests for other names need no nonce to be heard.
        self.request(mesh, types::ENDPOINT, String::new(), None, wish);
    }

    /// What counts of what it has: all of wildcard types, and of the others what is wanted.
    pub(super) fn check_equal(&self, fresh: &Self) {
        let (name, protocol) = (&self.name, self.protocol);
        for type_url in FIRST.into_iter().chain([types::ENDPOINT]) {
            let nothing = HeldByName::new();
            let (own, other) =
                (self.held.get(type_url).unwrap_or(&nothing), fresh.held.get(type_url).unwrap_or(&nothing));
            for (resource, held) in other {
                let body = own.get(resource).map(|held| &held.body);
                assert!(
                    body == Some(&held.body),
                    "{name} ({protocol:?}): {type_url} {resource} is not that of a fresh process"
                );
            }
            if is_wildcard(type_url) {
                let surplus: Vec<_> = own.keys().filter(|name| !other.contains_key(*name)).collect();
                assert!(surplus.is_empty(), "{name} ({protocol:?}): {type_url}: {surplus:?} should be gone");
            }
        }
    }
}

/// The last part of a type's name.
fn short(type_url: &str) -> &str {
    type_url.rsplit('.').next().unwrap_or_default()
}

/// Whether naming nothing asks for everything.
fn is_wildcard(type_url: &str) -> bool {
    matches!(type_url, types::CLUSTER | types::LISTENER)
}
