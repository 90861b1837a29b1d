//! A scripted proxy: its subscriptions, its resources, its requests.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use canopus_proto::Message;
use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use canopus_proto::fields::delta_discovery_request;
use canopus_xds::session::Protocol;
use xxhash_rust::xxh3::xxh3_64;

use super::envelope::{Entry, Piece};
use super::kind::Kind;
use super::names::{NameId, Names};
use super::node::Role;
use super::record::Record;

/// What is remembered of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldResource {
    /// Name of the resource.
    pub name: NameId,
    version: NameId,
    /// The hash of its bytes.
    pub hash: u64,
}

/// A proxy as a state machine.
#[derive(Debug)]
pub struct Proxy {
    role: Role,
    protocol: Protocol,
    introduced: bool,
    watches: [Watch; 4],
    incoming: Incoming,
    /// The bytes of what it has, if it keeps them.
    bodies: Option<BTreeMap<(Kind, NameId), Bytes>>,
    /// Responses it has had, by kind.
    responses: [u64; 4],
}

/// One subscription.
#[derive(Debug, Default)]
struct Watch {
    asked: bool,
    answered: bool,
    /// Names the server knows it wants, in order.
    wanted: Vec<NameId>,
    /// In order of names.
    held: Vec<HeldResource>,
    /// Wanted names of which the server said that there is nothing.
    absent: Vec<NameId>,
    version: String,
    nonce: String,
}

/// The response that is being received.
#[derive(Debug, Default)]
struct Incoming {
    kind: Option<Kind>,
    version: String,
    nonce: String,
    removed: Vec<NameId>,
    /// Names of a response that has everything there is.
    present: Vec<NameId>,
    /// Changes that are expected.
    expected: Vec<NameId>,
    resources: u64,
    bytes: u64,
}

impl Proxy {
    /// A proxy that has said nothing yet.
    pub fn new(role: Role, protocol: Protocol) -> Self {
        Self {
            role,
            protocol,
            introduced: false,
            watches: Default::default(),
            incoming: Incoming::default(),
            bodies: None,
            responses: [0; 4],
        }
    }

    /// The same proxy, keeping what it gets.
    #[must_use]
    pub fn with_bodies(mut self) -> Self {
        self.bodies = Some(BTreeMap::new());
        self
    }

    /// Whether it keeps what it gets.
    pub fn keeps_bodies(&self) -> bool {
        self.bodies.is_some()
    }

    /// How many responses it has had, by kind.
    pub fn responses(&self) -> [u64; 4] {
        self.responses
    }

    /// The role that the proxy claims.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// The variant of xDS it speaks.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// What it has of a kind, in order of names.
    pub fn held(&self, kind: Kind) -> &[HeldResource] {
        &self.watch(kind).held
    }

    /// The bytes of what it has, if it keeps them.
    pub fn bodies(&self) -> impl Iterator<Item = (Kind, NameId, &Bytes)> {
        self.bodies.iter().flatten().map(|((kind, name), body)| (*kind, *name, body))
    }

    /// What it says first on a new stream: everything it wants as far as it knows, and what it has of it.
    pub fn open(&mut self, record: &mut Record) -> Vec<Bytes> {
        self.introduced = false;
        self.incoming = Incoming::default();
        for watch in &mut self.watches {
            watch.nonce.clear();
            watch.answered = false;
            watch.absent.clear();
        }
        self.watch_mut(Kind::Cds).asked = true;
        let asked = Kind::ALL.into_iter().filter(|kind| self.watch(*kind).asked);
        let asked: Vec<Kind> = asked.collect();
        asked.into_iter().map(|kind| self.subscribe(kind, &record.names)).collect()
    }

    /// Takes a piece of a response; what there is to say once it is complete.
    pub fn take(&mut self, piece: Piece<'_>, record: &mut Record) -> Vec<Bytes> {
        match piece {
            Piece::Version(version) => self.incoming.version = version.to_owned(),
            Piece::TypeUrl(type_url) => self.incoming.kind = Kind::from_type_url(type_url),
            Piece::Nonce(nonce) => self.incoming.nonce = nonce.to_owned(),
            Piece::Removed(name) => self.incoming.removed.push(record.names.id(name)),
            Piece::Resource(entry) => self.hold(&entry, record),
            Piece::End => return self.finish(record),
        }
        Vec::new()
    }

    fn watch(&self, kind: Kind) -> &Watch {
        &self.watches[kind as usize]
    }

    fn watch_mut(&mut self, kind: Kind) -> &mut Watch {
        &mut self.watches[kind as usize]
    }

    fn hold(&mut self, entry: &Entry<'_>, record: &mut Record) {
        let Some(kind) = Kind::from_type_url(entry.type_url) else { return };
        let hash = xxh3_64(entry.body);
        let held =
            HeldResource { name: record.names.id(entry.name), version: record.names.id(entry.version), hash };
        self.incoming.kind = Some(kind);
        self.incoming.resources += 1;
        self.incoming.bytes += entry.body.len() as u64;
        if kind.is_wildcard() {
            let Record { names, references, .. } = record;
            references.learn(names, kind, hash, entry.body);
            if self.protocol == Protocol::Sotw {
                self.incoming.present.push(held.name);
            }
        }
        // A response that crossed a change of mind brings what is no longer wanted.
        if !kind.is_wildcard() && self.watch(kind).wanted.binary_search(&held.name).is_err() {
            return;
        }
        let before = self.watch_mut(kind).put(held);
        if before != Some(hash) {
            if record.is_expected(kind, held.name) {
                self.incoming.expected.push(held.name);
            }
            if let Some(bodies) = &mut self.bodies {
                bodies.insert((kind, held.name), Bytes::copy_from_slice(entry.body));
            }
        }
    }

    fn finish(&mut self, record: &mut Record) -> Vec<Bytes> {
        let incoming = std::mem::take(&mut self.incoming);
        let Some(kind) = incoming.kind else { return Vec::new() };
        let now = Instant::now();
        let mut removed = incoming.removed;
        if kind.is_wildcard() && self.protocol == Protocol::Sotw {
            removed = self.watch(kind).all_but(incoming.present);
        }
        let total = record.total(kind);
        total.messages += 1;
        total.resources += incoming.resources;
        total.removed += removed.len() as u64;
        total.bytes += incoming.bytes;
        record.last = now;
        self.responses[kind as usize] += 1;
        let watch = self.watch_mut(kind);
        watch.answered = true;
        watch.version = incoming.version;
        watch.nonce = incoming.nonce;
        for name in removed {
            self.watch_mut(kind).drop_name(name);
            record.told(self.role.index, kind, name, now);
            if let Some(bodies) = &mut self.bodies {
                bodies.remove(&(kind, name));
            }
        }
        for name in incoming.expected {
            record.told(self.role.index, kind, name, now);
        }
        let mut said = vec![self.acknowledge(kind, &record.names)];
        said.extend(self.follow(kind, record));
        if self.is_ready() {
            record.ready.entry(self.role.index).or_insert(now);
        }
        said
    }

    /// Asks for what it wants next, or now that it knows what there is.
    fn follow(&mut self, kind: Kind, record: &Record) -> Vec<Bytes> {
        let mut said = Vec::new();
        if let Some(child) = kind.child() {
            said.extend(self.refer(kind, child, record));
        }
        // Like Envoy, asks for listeners when clusters have their endpoints.
        let warm = self.watch(Kind::Eds).answered || self.watch(Kind::Eds).wanted.is_empty();
        if warm && !self.watch(Kind::Lds).asked {
            self.watch_mut(Kind::Lds).asked = true;
            said.push(self.subscribe(Kind::Lds, &record.names));
        }
        said
    }

    /// Wants what its resources of one kind refer to of another, and nothing else.
    fn refer(&mut self, kind: Kind, child: Kind, record: &Record) -> Option<Bytes> {
        let parents = self.watch(kind).held.iter();
        let mut wanted: Vec<NameId> =
            parents.flat_map(|held| record.references.names(kind, held.hash)).copied().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let watch = self.watch_mut(child);
        if watch.wanted == wanted {
            return None;
        }
        let before = std::mem::replace(&mut watch.wanted, wanted);
        let dropped: Vec<NameId> =
            before.iter().filter(|name| watch.wanted.binary_search(name).is_err()).copied().collect();
        let added: Vec<NameId> =
            watch.wanted.iter().filter(|name| before.binary_search(name).is_err()).copied().collect();
        watch.held.retain(|held| dropped.binary_search(&held.name).is_err());
        watch.absent.retain(|name| dropped.binary_search(name).is_err());
        if let Some(bodies) = &mut self.bodies {
            bodies.retain(|(kind, name), _| *kind != child || dropped.binary_search(name).is_err());
        }
        if !self.watch(child).asked {
            self.watch_mut(child).asked = true;
            return Some(self.subscribe(child, &record.names));
        }
        Some(match self.protocol {
            Protocol::Sotw => self.state(child, &record.names),
            Protocol::Delta => framed(&DeltaDiscoveryRequest {
                type_url: child.type_url().to_owned(),
                resource_names_subscribe: texts(&added, &record.names),
                resource_names_unsubscribe: texts(&dropped, &record.names),
                ..Default::default()
            }),
        })
    }

    /// Whether it has an answer to all it asked.
    fn is_ready(&self) -> bool {
        let wildcards = [Kind::Cds, Kind::Lds].iter().all(|kind| self.watch(*kind).answered);
        let named = |kind| {
            let watch = self.watch(kind);
            watch.held.len() + watch.absent.len() >= watch.wanted.len()
        };
        wildcards && named(Kind::Eds) && named(Kind::Rds)
    }

    /// The first request of a kind on a stream.
    fn subscribe(&mut self, kind: Kind, names: &Names) -> Bytes {
        if self.protocol == Protocol::Sotw {
            return self.state(kind, names);
        }
        let node = (!std::mem::replace(&mut self.introduced, true)).then(|| self.role.node.clone());
        let watch = self.watch(kind);
        let version =
            |held: &HeldResource| (names.text(held.name).to_owned(), names.text(held.version).to_owned());
        framed(&DeltaDiscoveryRequest {
            node,
            type_url: kind.type_url().to_owned(),
            resource_names_subscribe: texts(&watch.wanted, names),
            initial_resource_versions: watch.held.iter().map(version).collect(),
            ..Default::default()
        })
    }

    fn acknowledge(&mut self, kind: Kind, names: &Names) -> Bytes {
        match self.protocol {
            Protocol::Sotw => self.state(kind, names),
            Protocol::Delta => acknowledgement(kind.type_url(), &self.watch(kind).nonce),
        }
    }

    /// A state-of-the-world request, which says all it wants every time.
    fn state(&mut self, kind: Kind, names: &Names) -> Bytes {
        let node = (!std::mem::replace(&mut self.introduced, true)).then(|| self.role.node.clone());
        let watch = self.watch(kind);
        framed(&DiscoveryRequest {
            node,
            type_url: kind.type_url().to_owned(),
            version_info: watch.version.clone(),
            response_nonce: watch.nonce.clone(),
            resource_names: texts(&watch.wanted, names),
            ..Default::default()
        })
    }
}

impl Watch {
    /// Keeps a resource; the hash of what was there under its name.
    fn put(&mut self, resource: HeldResource) -> Option<u64> {
        match self.held.binary_search_by_key(&resource.name, |held| held.name) {
            Ok(at) => Some(std::mem::replace(&mut self.held[at], resource).hash),
            Err(at) => {
                self.held.insert(at, resource);
                None
            }
        }
    }

    fn drop_name(&mut self, name: NameId) {
        self.held.retain(|held| held.name != name);
        if self.wanted.binary_search(&name).is_ok() && !self.absent.contains(&name) {
            self.absent.push(name);
        }
    }

    /// What it has beside these names.
    fn all_but(&self, mut names: Vec<NameId>) -> Vec<NameId> {
        names.sort_unstable();
        self.held.iter().map(|held| held.name).filter(|name| names.binary_search(name).is_err()).collect()
    }
}

fn texts(ids: &[NameId], names: &Names) -> Vec<String> {
    ids.iter().map(|id| names.text(*id).to_owned()).collect()
}

/// The delta request that accepts a response and asks for nothing, which is said far more often than any other.
fn acknowledgement(type_url: &str, nonce: &str) -> Bytes {
    let fields =
        [(delta_discovery_request::TYPE_URL, type_url), (delta_discovery_request::RESPONSE_NONCE, nonce)];
    let length: usize = fields.iter().map(|(field, text)| field.text_size(text.len())).sum();
    let mut bytes = BytesMut::with_capacity(5 + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    fields.iter().for_each(|(field, text)| field.tag().put_str(&mut bytes, text));
    bytes.freeze()
}

/// A message with the prefix that gRPC puts before it.
fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(5 + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode(&mut bytes).expect("there is room for it");
    bytes.freeze()
}
