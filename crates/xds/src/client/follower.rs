//! A client without I/O: what it wants, what it has, what it has to say.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::rpc::Status;

use super::message::{Received, Update};
use super::references::references;
use crate::session::{Protocol, Request, Wish};
use crate::types::{CLUSTER, Kind, LISTENER, rank};

/// Follows types the way a proxy does.
#[derive(Clone, Debug)]
pub struct Follower {
    protocol: Protocol,
    node: Node,
    introduced: bool,
    follows_references: bool,
    types: BTreeMap<String, Followed>,
    requests: VecDeque<Request>,
}

/// The client's state of one type.
#[derive(Clone, Debug, Default)]
struct Followed {
    everything: bool,
    /// Names its user asked for.
    named: BTreeSet<String>,
    /// Names its resources refer to.
    referred: BTreeSet<String>,
    /// Names the server knows it wants.
    subscribed: BTreeSet<String>,
    asked: bool,
    nonce: String,
    version: String,
    held: BTreeMap<String, HeldResource>,
}

/// A resource the client has.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldResource {
    /// Version of the resource (delta only).
    pub version: String,
    /// Other names of the resource (delta only).
    pub aliases: Vec<String>,
    /// The resource.
    pub body: Any,
}

impl Follower {
    /// A client that says it is `node` and follows nothing yet.
    pub fn new(protocol: Protocol, node: Node) -> Self {
        Self {
            protocol,
            node,
            introduced: false,
            follows_references: false,
            types: BTreeMap::new(),
            requests: VecDeque::new(),
        }
    }

    /// The variant of xDS it speaks.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// From now on it also wants what its clusters and listeners refer to.
    pub fn follow_references(&mut self) {
        self.follows_references = true;
    }

    /// From now on it wants everything of a type.
    pub fn watch_everything(&mut self, type_url: &str) {
        let followed = self.types.entry(type_url.to_owned()).or_default();
        if !followed.everything {
            followed.everything = true;
            self.ask(type_url, String::new(), None);
        }
    }

    /// From now on it wants exactly these names of a type.
    pub fn watch(&mut self, type_url: &str, names: impl IntoIterator<Item = impl Into<String>>) {
        let followed = self.types.entry(type_url.to_owned()).or_default();
        followed.named = names.into_iter().map(Into::into).collect();
        self.ask_for_changes(type_url);
    }

    /// Takes an update in and acknowledges it.
    pub fn accept(&mut self, update: &Update) {
        let named = !is_wildcard_type(&update.type_url);
        let partial = named || self.protocol == Protocol::Delta;
        let followed = self.types.entry(update.type_url.clone()).or_default();
        if !partial {
            followed.held.clear();
        }
        // A response that crossed a change of mind brings what is no longer wanted.
        let wanted = followed.wanted();
        let unwanted = |name: &str| named && !wanted.contains(name);
        for resource in update.resources.iter().filter(|resource| !unwanted(&resource.name)) {
            followed.held.insert(resource.name.clone(), HeldResource::from(resource));
        }
        for name in &update.removed {
            followed.held.remove(name);
        }
        followed.version = update.version.clone();
        followed.nonce = update.nonce.clone();
        // As Envoy does: what an update makes it want or drop it says before it acknowledges the update.
        if self.follows_references && matches!(update.type_url.as_str(), CLUSTER | LISTENER) {
            self.refer();
        }
        self.ask(&update.type_url, update.nonce.clone(), None);
    }

    /// Refuses an update: nothing of it is taken in.
    pub fn refuse(&mut self, update: &Update, reason: impl Into<String>) {
        if let Some(followed) = self.types.get_mut(&update.type_url) {
            followed.nonce = update.nonce.clone();
        }
        let error = Status {
            code: tonic::Code::InvalidArgument as i32,
            message: reason.into(),
            ..Default::default()
        };
        self.ask(&update.type_url, update.nonce.clone(), Some(error));
    }

    /// The stream was lost: asks for everything again and says what it has.
    pub fn reconnect(&mut self) {
        self.introduced = false;
        self.requests.clear();
        for followed in self.types.values_mut() {
            followed.asked = false;
            followed.nonce.clear();
            followed.subscribed.clear();
        }
        let mut wanted: Vec<String> = self.types.keys().cloned().collect();
        wanted.sort_by_key(|type_url| rank(type_url));
        for type_url in wanted {
            if self.types[&type_url].wants_something() {
                self.ask(&type_url, String::new(), None);
            }
        }
    }

    /// Takes the requests to send.
    pub fn take_requests(&mut self) -> Vec<Request> {
        self.requests.drain(..).collect()
    }

    /// The resources of a type, by name.
    pub fn held(&self, type_url: &str) -> impl Iterator<Item = (&str, &HeldResource)> {
        let followed = self.types.get(type_url).into_iter();
        followed.flat_map(|followed| followed.held.iter().map(|(name, held)| (name.as_str(), held)))
    }

    /// The names it wants of a type besides everything.
    pub fn wanted(&self, type_url: &str) -> BTreeSet<String> {
        self.types.get(type_url).map(Followed::wanted).unwrap_or_default()
    }

    /// Works out again what its resources refer to, and asks for what is new.
    fn refer(&mut self) {
        let parents = [CLUSTER, LISTENER].into_iter().flat_map(|parent| self.held(parent));
        let mut referred = references(parents.map(|(_, held)| &held.body));
        let known = self.types.keys().cloned();
        let types: BTreeSet<String> = known.chain(referred.keys().map(|it| (*it).to_owned())).collect();
        for type_url in types {
            if is_wildcard_type(&type_url) {
                continue;
            }
            let names = referred.remove(type_url.as_str()).unwrap_or_default();
            self.types.entry(type_url.clone()).or_default().referred = names;
            self.ask_for_changes(&type_url);
        }
    }

    fn ask_for_changes(&mut self, type_url: &str) {
        let followed = &self.types[type_url];
        let wanted = followed.wanted();
        if wanted == followed.subscribed {
            return;
        }
        // State-of-the-world requests always answer the last response; delta requests that answer none are welcome.
        let nonce = match self.protocol {
            Protocol::Sotw => followed.nonce.clone(),
            Protocol::Delta => String::new(),
        };
        self.ask(type_url, nonce, None);
    }

    fn ask(&mut self, type_url: &str, nonce: String, error: Option<Status>) {
        let Some(followed) = self.types.get_mut(type_url) else { return };
        let wish = match self.protocol {
            Protocol::Sotw => followed.exactly(),
            Protocol::Delta => followed.change(),
        };
        self.requests.push_back(Request {
            type_url: type_url.to_owned(),
            node: (!self.introduced).then(|| self.node.clone()),
            nonce,
            error,
            wish,
        });
        self.introduced = true;
    }
}

impl Followed {
    fn wanted(&self) -> BTreeSet<String> {
        self.named.union(&self.referred).cloned().collect()
    }

    fn wants_something(&self) -> bool {
        self.everything || !self.named.is_empty() || !self.referred.is_empty()
    }

    fn exactly(&mut self) -> Wish {
        self.subscribed = self.wanted();
        if !self.everything {
            self.held.retain(|name, _| self.subscribed.contains(name));
        }
        let everything = (self.everything && !self.subscribed.is_empty()).then(|| "*".to_owned());
        Wish::Exactly {
            names: everything.into_iter().chain(self.subscribed.iter().cloned()).collect(),
            version: self.version.clone(),
        }
    }

    fn change(&mut self) -> Wish {
        let wanted = self.wanted();
        let mut subscribe: Vec<String> = wanted.difference(&self.subscribed).cloned().collect();
        let unsubscribe: Vec<String> = self.subscribed.difference(&wanted).cloned().collect();
        let first = !std::mem::replace(&mut self.asked, true);
        if first && self.everything && !subscribe.is_empty() {
            subscribe.push("*".to_owned());
        }
        for name in &unsubscribe {
            self.held.remove(name);
        }
        self.subscribed = wanted;
        let versions = self.held.iter().map(|(name, held)| (name.clone(), held.version.clone()));
        Wish::Change {
            subscribe,
            unsubscribe,
            held: if first { versions.collect() } else { BTreeMap::new() },
        }
    }
}

impl From<&Received> for HeldResource {
    fn from(resource: &Received) -> Self {
        Self {
            version: resource.version.clone(),
            aliases: resource.aliases.clone(),
            body: resource.body.clone(),
        }
    }
}

fn is_wildcard_type(type_url: &str) -> bool {
    match Kind::for_type(type_url) {
        Kind::Watched(rules) => rules.wildcard,
        Kind::Query | Kind::Report => true,
    }
}
