//! Any interleaving of changes, requests, acknowledgements, refusals and reconnections converges.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use canopus_proto::Message;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::core::v3::{DataSource, Node, TypedExtensionConfig, data_source};
use canopus_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use canopus_proto::envoy::config::endpoint::v3::cluster_load_assignment::Policy;
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{GenericSecret, Secret, secret};
use canopus_proto::google::protobuf::{Any, UInt32Value};
use proptest::prelude::*;

use super::world::World;
use crate::client::{Follower, Update};
use crate::interest::Interest;
use crate::names::Names;
use crate::resource::Resource;
use crate::session::{Limits, Protocol, Request, Response, Session, SessionEvent, Wish};
use crate::source::Source;
use crate::types::{CLUSTER, ENDPOINT, EXTENSION, LISTENER, ROUTE, SECRET, Types};
use crate::wire;

const TYPES: [&str; 6] = [CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, EXTENSION];
const NAMED: [&str; 4] = [ENDPOINT, ROUTE, SECRET, EXTENSION];
/// Types whose clients are not always told what no longer exists.
const TACIT: [&str; 2] = [SECRET, EXTENSION];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Op {
    /// A resource is created or gets another content.
    Put(usize, usize, u8),
    Delete(usize, usize),
    /// The client wants these names of a named type.
    Watch(usize, u8),
    /// The server reads a request.
    Request,
    /// The client reads a response.
    Response,
    /// The client reads a response and refuses it.
    Refuse,
    Reconnect,
}

fn ops(refusals: bool) -> impl Strategy<Value = Vec<Op>> {
    let (types, names) = (0..TYPES.len(), 0..NAMES.len());
    let op = prop_oneof![
        4 => (types.clone(), names.clone(), 0..3u8).prop_map(|(it, name, body)| Op::Put(it, name, body)),
        2 => (types, names).prop_map(|(it, name)| Op::Delete(it, name)),
        2 => (0..NAMED.len(), 0..16u8).prop_map(|(it, names)| Op::Watch(it, names)),
        6 => Just(Op::Request),
        6 => Just(Op::Response),
        u32::from(refusals) => Just(Op::Refuse),
        1 => Just(Op::Reconnect),
    ];
    proptest::collection::vec(op, 0..80)
}

struct Model {
    protocol: Protocol,
    world: World,
    revision: u64,
    streams: u64,
    session: Session,
    follower: Follower,
    to_server: VecDeque<Request>,
    to_client: VecDeque<Update>,
    /// The nonce of the response of each type that the server waits for.
    unsettled: BTreeMap<String, String>,
    /// Version by name and type of what the client has as far as the server can know.
    known: BTreeMap<String, BTreeMap<String, String>>,
    refused: bool,
}

impl Model {
    fn new(protocol: Protocol) -> Self {
        let node = Node { id: "client".into(), ..Default::default() };
        let mut follower = Follower::new(protocol, node);
        follower.watch_everything(CLUSTER);
        follower.watch_everything(LISTENER);
        Self {
            protocol,
            world: World::default(),
            revision: 0,
            streams: 0,
            session: session(protocol, 0),
            follower,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            unsettled: BTreeMap::new(),
            known: BTreeMap::new(),
            refused: false,
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Put(it, name, body) => self.put(TYPES[it], NAMES[name], body),
            Op::Delete(it, name) => {
                self.world.delete(TYPES[it], NAMES[name]);
                self.revise(TYPES[it]);
            }
            Op::Watch(it, chosen) => {
                let names = NAMES.iter().enumerate().filter(|(at, _)| chosen & (1 << at) != 0);
                self.follower.watch(NAMED[it], names.map(|(_, name)| *name));
            }
            Op::Request => self.read_request(),
            Op::Response => self.read_response(false),
            Op::Refuse => self.read_response(true),
            Op::Reconnect => {
                self.streams += 1;
                self.session = session(self.protocol, self.streams);
                self.session.on_revision(self.revision, Types::ALL);
                self.to_client.clear();
                self.to_server.clear();
                self.unsettled.clear();
                self.known.clear();
                self.follower.reconnect();
            }
        }
        self.to_server.extend(self.follower.take_requests());
    }

    fn put(&mut self, type_url: &str, name: &str, body: u8) {
        self.world.insert(type_url, resource(type_url, name, body));
        self.revise(type_url);
    }

    /// A revision may push, but only what is new and only what the client is ready for.
    fn revise(&mut self, changed: &str) {
        self.revision += 1;
        self.session.on_revision(self.revision, Types::only(changed));
        while let Some(response) = self.session.next_response(&self.world).unwrap() {
            // An answer that waited for clusters may come now too.
            let is_push = |event: &SessionEvent| matches!(event, SessionEvent::Sent { nonce, pushed: true, .. } if **nonce == *response.nonce());
            if !self.session.take_events().iter().any(is_push) {
                self.send(response);
                continue;
            }
            let type_url = response.type_url().to_string();
            assert!(!self.unsettled.contains_key(&type_url), "a push before the last one was settled");
            let says_something = !response.is_empty() || !response.removed().is_empty();
            let may_be_empty = self.protocol == Protocol::Sotw || type_url == EXTENSION;
            assert!(says_something || may_be_empty, "an empty push");
            self.send(response);
        }
    }

    fn send(&mut self, response: Response) {
        let type_url = response.type_url().to_string();
        self.unsettled.insert(type_url, response.nonce().to_owned());
        let update = travelled(response);
        if self.protocol == Protocol::Delta && !self.refused {
            self.check_unknown(&update);
        }
        self.to_client.push_back(update);
    }

    fn read_request(&mut self) {
        let Some(request) = self.to_server.pop_front() else { return };
        if self.unsettled.get(&request.type_url) == Some(&request.nonce) {
            self.unsettled.remove(&request.type_url);
        }
        self.note_known(&request);
        self.session.on_request(request, &self.world).unwrap();
        while let Some(response) = self.session.next_response(&self.world).unwrap() {
            self.send(response);
        }
    }

    fn read_response(&mut self, refuse: bool) {
        let Some(update) = self.to_client.pop_front() else { return };
        if refuse {
            self.refused = true;
            return self.follower.refuse(&update, "no");
        }
        self.follower.accept(&update);
    }

    /// Takes note of what the client says it has and no longer has.
    fn note_known(&mut self, request: &Request) {
        if let Wish::Change { unsubscribe, held, .. } = &request.wish {
            let known = self.known.entry(request.type_url.clone()).or_default();
            known.extend(held.clone());
            known.retain(|name, _| !unsubscribe.contains(name));
        }
    }

    /// What the client was sent and has not dropped is not sent again.
    fn check_unknown(&mut self, update: &Update) {
        if update.type_url == CLUSTER {
            // A client that drops a cluster drops its endpoints with it.
            let endpoints = self.known.entry(ENDPOINT.to_owned()).or_default();
            endpoints.retain(|name, _| !update.removed.contains(name));
        }
        let known = self.known.entry(update.type_url.clone()).or_default();
        known.retain(|name, _| !update.removed.contains(name));
        for resource in &update.resources {
            let before = known.insert(resource.name.clone(), resource.version.clone());
            assert_ne!(before.as_ref(), Some(&resource.version), "{} was sent twice", resource.name);
        }
    }

    /// Lets everything that is under way arrive.
    fn quiesce(&mut self) {
        loop {
            while !self.to_server.is_empty() || !self.to_client.is_empty() {
                self.apply(Op::Request);
                self.apply(Op::Response);
            }
            if !self.session.is_waiting() {
                return;
            }
            self.session.stop_waiting();
            while let Some(response) = self.session.next_response(&self.world).unwrap() {
                self.send(response);
            }
        }
    }

    fn check_converged(&self) {
        for type_url in TYPES {
            let named = NAMED.contains(&type_url);
            let interest = match named {
                true => Interest::Names(Names::new(self.follower.wanted(type_url))),
                false => Interest::Wildcard,
            };
            let expected = self.world.resources(type_url, &interest).unwrap();
            let expected: BTreeMap<&str, &[u8]> = expected.iter().map(|it| (&*it.name, &*it.body)).collect();
            let mut held: BTreeMap<&str, &[u8]> =
                self.follower.held(type_url).map(|(name, held)| (name, &*held.body.value)).collect();
            if named && self.protocol == Protocol::Sotw || TACIT.contains(&type_url) {
                held.retain(|name, _| expected.contains_key(name));
            }
            assert_eq!(held, expected, "{type_url}");
        }
    }
}

fn session(protocol: Protocol, id: u64) -> Session {
    Session::new(protocol, id, Limits::default(), Arc::default())
}

fn resource(type_url: &str, name: &str, body: u8) -> Resource {
    let name = name.to_owned();
    let (named, content) = (name.clone(), body.to_string());
    let bytes = match type_url {
        CLUSTER => Cluster { name, alt_stat_name: content, ..Default::default() }.encode_to_vec(),
        LISTENER => Listener { name, stat_prefix: content, ..Default::default() }.encode_to_vec(),
        ENDPOINT => {
            let overprovisioning_factor = Some(UInt32Value { value: body.into() });
            let policy = Some(Policy { overprovisioning_factor, ..Default::default() });
            ClusterLoadAssignment { cluster_name: name, policy, ..Default::default() }.encode_to_vec()
        }
        SECRET => {
            let generic = GenericSecret { secret: Some(inline(content)), ..Default::default() };
            Secret { name, r#type: Some(secret::Type::GenericSecret(generic)) }.encode_to_vec()
        }
        EXTENSION => {
            let typed_config = Some(Any { type_url: content, ..Default::default() });
            TypedExtensionConfig { name, typed_config }.encode_to_vec()
        }
        _ => RouteConfiguration { name, internal_only_headers: vec![content], ..Default::default() }
            .encode_to_vec(),
    };
    Resource::new(named, bytes)
}

fn inline(content: String) -> DataSource {
    DataSource { specifier: Some(data_source::Specifier::InlineString(content)), ..Default::default() }
}

/// The response as it arrives on the other side.
fn travelled(response: Response) -> Update {
    let protocol = response.protocol();
    let bytes: Vec<u8> = wire::Outgoing::new(response, &Arc::default()).unwrap().flatten().collect();
    let message = &bytes[5..];
    match protocol {
        Protocol::Sotw => decoded::<canopus_proto::envoy::service::discovery::v3::DiscoveryResponse>(message),
        Protocol::Delta => {
            decoded::<canopus_proto::envoy::service::discovery::v3::DeltaDiscoveryResponse>(message)
        }
    }
}

fn decoded<M: Message + Default + Into<Update>>(message: &[u8]) -> Update {
    M::decode(message).unwrap().into()
}

fn run(protocol: Protocol, ops: Vec<Op>) {
    let mut model = Model::new(protocol);
    ops.into_iter().for_each(|op| model.apply(op));
    model.quiesce();
    if model.refused {
        // What was refused is made up for with the next change.
        for type_url in TYPES {
            let wanted = model.follower.wanted(type_url).pop_first();
            model.put(type_url, wanted.as_deref().unwrap_or(NAMES[0]), 7);
        }
        model.quiesce();
    }
    model.check_converged();
    TYPES.iter().for_each(|type_url| model.revise(type_url));
    assert!(model.to_client.is_empty(), "a push without a change");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2560))]

    #[test]
    fn delta_client_has_the_state_of_the_world(ops in ops(false)) {
        run(Protocol::Delta, ops);
    }

    #[test]
    fn sotw_client_has_the_state_of_the_world(ops in ops(false)) {
        run(Protocol::Sotw, ops);
    }

    #[test]
    fn delta_client_recovers_from_refusals(ops in ops(true)) {
        run(Protocol::Delta, ops);
    }

    #[test]
    fn sotw_client_recovers_from_refusals(ops in ops(true)) {
        run(Protocol::Sotw, ops);
    }
}
