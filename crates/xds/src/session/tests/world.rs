//! A world of a few resources, and a stream to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_proto::google::rpc::Status;

use crate::interest::Interest;
use crate::resource::{Resource, ResourceSet};
use crate::session::{Limits, Protocol, Request, Response, Session, SessionEvent, Wish};
use crate::source::{Code, Refusal, Source};
use crate::types::Types;

/// Resources by type and name.
#[derive(Clone, Default)]
pub(super) struct World {
    resources: BTreeMap<String, BTreeMap<String, Resource>>,
    /// Types that have something to say about any name.
    inventive: BTreeSet<&'static str>,
    refused: BTreeSet<&'static str>,
}

impl World {
    pub(super) fn new<const N: usize>(resources: [(&str, &str); N]) -> Self {
        let mut world = Self::default();
        for (type_url, name) in resources {
            world.put(type_url, name, "1");
        }
        world
    }

    pub(super) fn put(&mut self, type_url: &str, name: &str, body: impl Into<String>) {
        self.insert(type_url, Resource::new(name, body.into()));
    }

    pub(super) fn insert(&mut self, type_url: &str, resource: Resource) {
        let of_type = self.resources.entry(type_url.to_owned()).or_default();
        of_type.insert(resource.name.to_string(), resource);
    }

    pub(super) fn delete(&mut self, type_url: &str, name: &str) {
        if let Some(of_type) = self.resources.get_mut(type_url) {
            of_type.remove(name);
        }
    }

    pub(super) fn inventive(mut self, type_url: &'static str) -> Self {
        self.inventive.insert(type_url);
        self
    }

    pub(super) fn refusing(mut self, type_url: &'static str) -> Self {
        self.refused.insert(type_url);
        self
    }

    fn named(&self, type_url: &str, name: &str) -> Option<Resource> {
        let of_type = self.resources.get(type_url);
        let mut all = of_type.into_iter().flat_map(BTreeMap::values);
        let found = all.find(|it| *it.name == *name || it.aliases.iter().any(|alias| **alias == *name));
        let invented = || self.inventive.contains(type_url).then(|| Resource::new(name, "invented"));
        found.cloned().or_else(invented)
    }
}

impl Source for World {
    fn resources(&self, type_url: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        if self.refused.contains(type_url) {
            return Err(Refusal::new(Code::PermissionDenied, "not for you"));
        }
        let everything = self.resources.get(type_url).filter(|_| interest.is_wildcard());
        let everything = everything.into_iter().flat_map(BTreeMap::values).cloned();
        let names = interest.names().into_iter().flat_map(|names| names.iter());
        Ok(everything.chain(names.filter_map(|name| self.named(type_url, name))).collect())
    }

    fn identifier(&self, type_url: &str) -> Option<String> {
        (type_url == "istio.io/debug/syncz").then(|| "this control plane".to_owned())
    }
}

/// A stream to a [`World`]. The client does nothing by itself.
pub(super) struct Stream {
    pub(super) world: World,
    pub(super) session: Session,
    revision: u64,
    last: BTreeMap<String, String>,
}

/// A response in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delivered {
    pub(super) type_url: String,
    pub(super) names: Vec<String>,
    pub(super) removed: Vec<String>,
}

pub(super) fn told<const N: usize>(type_url: &str, names: [&str; N]) -> Delivered {
    told_and_removed(type_url, names, [])
}

pub(super) fn told_and_removed<const N: usize, const M: usize>(
    type_url: &str,
    names: [&str; N],
    removed: [&str; M],
) -> Delivered {
    Delivered {
        type_url: type_url.to_owned(),
        names: names.map(str::to_owned).into(),
        removed: removed.map(str::to_owned).into(),
    }
}

/// The client's answer to the last response of the type.
#[derive(Clone, Copy)]
pub(super) enum Nonce {
    Last,
    Stale,
    None,
}

impl Stream {
    pub(super) fn delta(world: World) -> Self {
        Self::new(Protocol::Delta, world)
    }

    pub(super) fn sotw(world: World) -> Self {
        Self::new(Protocol::Sotw, world)
    }

    fn new(protocol: Protocol, world: World) -> Self {
        Self {
            world,
            session: Session::new(
                protocol,
                7,
                Limits { names: 100, types: 8, bytes: 10_000, ..Limits::default() },
                Arc::default(),
            ),
            revision: 0,
            last: BTreeMap::new(),
        }
    }

    /// Opens another stream to the same world.
    pub(super) fn reconnected(self) -> Self {
        Self::new(self.session.protocol, self.world)
    }

    pub(super) fn try_ask(&mut self, request: Request) -> Result<Vec<Response>, Refusal> {
        self.session.on_request(request, &self.world)?;
        self.drain()
    }

    pub(super) fn ask_raw(&mut self, request: Request) -> Vec<Response> {
        self.try_ask(request).unwrap()
    }

    fn ask(&mut self, type_url: &str, nonce: Nonce, error: Option<&str>, wish: Wish) -> Vec<Delivered> {
        let nonce = match nonce {
            Nonce::Last => self.last[type_url].clone(),
            Nonce::Stale => "made-up".to_owned(),
            Nonce::None => String::new(),
        };
        let responses = self.ask_raw(request(type_url, &nonce, error, wish));
        responses.iter().map(in_short).collect()
    }

    /// Subscribes to names, by delta.
    pub(super) fn subscribe<const N: usize>(&mut self, type_url: &str, names: [&str; N]) -> Vec<Delivered> {
        self.ask(type_url, Nonce::None, None, change(names, [], []))
    }

    /// Unsubscribes from names, by delta.
    pub(super) fn unsubscribe<const N: usize>(&mut self, type_url: &str, names: [&str; N]) -> Vec<Delivered> {
        self.ask(type_url, Nonce::None, None, change([], names, []))
    }

    /// Opens a delta subscription with what an earlier stream left.
    pub(super) fn resume<const N: usize, const M: usize>(
        &mut self,
        type_url: &str,
        names: [&str; N],
        held: [(&str, &str); M],
    ) -> Vec<Delivered> {
        self.ask(type_url, Nonce::None, None, change(names, [], held))
    }

    /// Sends a list of names, state-of-the-world.
    pub(super) fn want<const N: usize>(
        &mut self,
        type_url: &str,
        nonce: Nonce,
        names: [&str; N],
    ) -> Vec<Delivered> {
        self.ask(type_url, nonce, None, exactly(names, ""))
    }

    pub(super) fn want_with_version(&mut self, type_url: &str, version: &str) -> Vec<Delivered> {
        self.ask(type_url, Nonce::None, None, exactly([], version))
    }

    /// Accepts the last response of the type; names as they are.
    pub(super) fn ack(&mut self, type_url: &str) -> Vec<Delivered> {
        self.answer(type_url, None)
    }

    /// Refuses the last response of the type.
    pub(super) fn nack(&mut self, type_url: &str) -> Vec<Delivered> {
        self.answer(type_url, Some("bad"))
    }

    fn answer(&mut self, type_url: &str, error: Option<&str>) -> Vec<Delivered> {
        let wish = match self.session.protocol {
            Protocol::Delta => change([], [], []),
            Protocol::Sotw => {
                let names = self.session.interest(type_url).and_then(Interest::names);
                let names = names.into_iter().flat_map(|names| names.iter());
                Wish::Exactly { names: names.map(ToString::to_string).collect(), version: String::new() }
            }
        };
        self.ask(type_url, Nonce::Last, error, wish)
    }

    /// Changes the world and tells the session.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut World)) -> Vec<Delivered> {
        change(&mut self.world);
        self.revision += 1;
        self.session.on_revision(self.revision, Types::ALL);
        self.drain().unwrap().iter().map(in_short).collect()
    }

    fn drain(&mut self) -> Result<Vec<Response>, Refusal> {
        let mut responses = Vec::new();
        while let Some(response) = self.session.next_response(&self.world)? {
            let nonce = response.nonce().to_owned();
            self.last.insert(response.type_url().to_string(), nonce);
            responses.push(response);
        }
        Ok(responses)
    }

    pub(super) fn events(&mut self) -> Vec<SessionEvent> {
        self.session.take_events()
    }

    /// The nonce of the last response of a type.
    pub(super) fn last_nonce(&self, type_url: &str) -> String {
        self.last[type_url].clone()
    }

    /// The version of a resource as the client sees it.
    pub(super) fn version(&self, type_url: &str, name: &str) -> String {
        let at = self.session.position(type_url).unwrap();
        let held = self.session.watches[at].held();
        held.version_of(held.set.get(name).unwrap()).to_string()
    }

    /// The version of everything of a type as the client sees it.
    pub(super) fn whole_version(&self, type_url: &str) -> String {
        let at = self.session.position(type_url).unwrap();
        self.session.watches[at].held().version().to_string()
    }
}

pub(super) fn request(type_url: &str, nonce: &str, error: Option<&str>, wish: Wish) -> Request {
    let error = error.map(|message| Status {
        code: Code::InvalidArgument as i32,
        message: message.to_owned(),
        ..Default::default()
    });
    Request { type_url: type_url.to_owned(), node: None, nonce: nonce.to_owned(), error, wish }
}

pub(super) fn change<const N: usize, const M: usize, const H: usize>(
    subscribe: [&str; N],
    unsubscribe: [&str; M],
    held: [(&str, &str); H],
) -> Wish {
    Wish::Change {
        subscribe: subscribe.map(str::to_owned).into(),
        unsubscribe: unsubscribe.map(str::to_owned).into(),
        held: held.into_iter().map(|(name, version)| (name.to_owned(), version.to_owned())).collect(),
    }
}

pub(super) fn exactly<const N: usize>(names: [&str; N], version: &str) -> Wish {
    Wish::Exactly { names: names.map(str::to_owned).into(), version: version.to_owned() }
}

pub(super) fn in_short(response: &Response) -> Delivered {
    Delivered {
        type_url: response.type_url().to_string(),
        names: response.resources().map(|resource| resource.name.to_string()).collect(),
        removed: response.removed().iter().map(ToString::to_string).collect(),
    }
}
