//! Writes down what Envoy accepts, so that it can be served again while the control plane is away.
//!
//! A response waits until Envoy answers it. An acknowledgement has its resources appended to the log of their type, a
//! rejection has it forgotten: what is on disk is what some Envoy has worked with.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use canopus_proto::fields::{any, cluster, delta_discovery_response, discovery_response, resource};
use canopus_proto::wire::Tag;
use canopus_xds::types;

use super::Variant;
use super::frame::Message;
use super::peek::{self, RequestSummary};
use crate::last_good::{Change, LastGood};

/// Responses of a type that may wait for an answer. Envoy answers in turn; older ones are forgotten, and the log has an
/// earlier version of their resources.
const MAX_WAITING: usize = 8;
/// Responses above this size are not kept waiting: they would double the memory of the agent.
const MAX_BYTES: usize = 64 << 20;
/// The name of a resource, which is the same field in every type that Envoy asks for.
const RESOURCE_NAME: Tag = cluster::NAME.tag();

/// Follows one stream.
pub(super) struct Recorder {
    state: Option<Arc<LastGood>>,
    variant: Variant,
    waiting: BTreeMap<String, VecDeque<(String, Message)>>,
}

impl Recorder {
    pub(super) fn new(state: Option<Arc<LastGood>>, variant: Variant) -> Self {
        Self { state, variant, waiting: BTreeMap::new() }
    }

    /// A response goes to Envoy.
    pub(super) fn response(&mut self, type_url: &str, message: &Message) {
        if self.state.is_none() || message.len() > MAX_BYTES {
            return;
        }
        let Some(nonce) = peek::response_nonce(message) else { return };
        let waiting = self.waiting.entry(type_url.to_owned()).or_default();
        if waiting.len() == MAX_WAITING {
            waiting.pop_front();
        }
        waiting.push_back((nonce, message.clone()));
    }

    /// A request comes from Envoy.
    pub(super) fn request(&mut self, request: &RequestSummary) {
        let Some(state) = &self.state else { return };
        if !request.unsubscribed.is_empty() {
            let changes: Vec<_> = request.unsubscribed.iter().map(|name| Change::Remove { name }).collect();
            state.append(&request.type_url, &changes);
        }
        if request.nonce.is_empty() {
            return;
        }
        let Some(waiting) = self.waiting.get_mut(&request.type_url) else { return };
        let Some(position) = waiting.iter().position(|(nonce, _)| *nonce == request.nonce) else { return };
        // Whatever came before it was answered as well.
        let Some((_, message)) = waiting.drain(..=position).next_back() else { return };
        if waiting.is_empty() {
            self.waiting.remove(&request.type_url);
        }
        if !request.is_rejection {
            record(state, &request.type_url, &message, self.variant);
        }
    }
}

/// Appends the resources of a response to the log of their type.
pub(super) fn record(state: &LastGood, type_url: &str, message: &Message, variant: Variant) {
    match variant {
        Variant::Delta => record_delta(state, type_url, message),
        Variant::Sotw => record_sotw(state, type_url, message),
    }
}

/// Appends a resource of the agent's own types, which have one resource and no name.
pub(super) fn record_local(state: &LastGood, type_url: &str, message: &Message, variant: Variant) {
    let mut body = None;
    peek::fields(message.body(), |tag, bytes| match variant {
        Variant::Delta if tag == delta_discovery_response::RESOURCES.tag() => {
            body = delta_resource(bytes).map(|resource| resource.body);
        }
        Variant::Sotw if tag == discovery_response::RESOURCES.tag() => body = Some(bytes),
        _ => {}
    });
    if let Some(body) = body {
        state.append(type_url, &[Change::Put { name: "", version: "", body: &body }]);
    }
}

struct Resource {
    name: String,
    version: String,
    body: Bytes,
}

/// The names of the resources in a response.
pub(super) fn resources(message: &Message, variant: Variant) -> Vec<String> {
    let mut names = Vec::new();
    peek::fields(message.body(), |tag, bytes| match variant {
        Variant::Delta if tag == delta_discovery_response::RESOURCES.tag() => {
            names.extend(delta_resource(bytes).map(|resource| resource.name));
        }
        Variant::Sotw if tag == discovery_response::RESOURCES.tag() => names.extend(resource_name(bytes)),
        _ => {}
    });
    names
}

fn record_delta(state: &LastGood, type_url: &str, message: &Message) {
    let (mut resources, mut removed) = (Vec::new(), Vec::new());
    peek::fields(message.body(), |tag, bytes| {
        if tag == delta_discovery_response::RESOURCES.tag() {
            resources.extend(delta_resource(bytes));
        } else if tag == delta_discovery_response::REMOVED_RESOURCES.tag() {
            removed.extend(String::from_utf8(bytes.to_vec()).ok());
        }
    });
    let put = resources.iter().map(|resource| Change::Put {
        name: &resource.name,
        version: &resource.version,
        body: &resource.body,
    });
    let removed = removed.iter().map(|name| Change::Remove { name });
    state.append(type_url, &put.chain(removed).collect::<Vec<_>>());
}

fn delta_resource(bytes: Bytes) -> Option<Resource> {
    let mut found = Resource { name: String::new(), version: String::new(), body: Bytes::new() };
    peek::fields(bytes, |tag, bytes| {
        if tag == resource::VERSION.tag() {
            found.version = String::from_utf8_lossy(&bytes).into_owned();
        } else if tag == resource::RESOURCE.tag() {
            found.body = bytes;
        } else if tag == resource::NAME.tag() {
            found.name = String::from_utf8_lossy(&bytes).into_owned();
        }
    })?;
    Some(found)
}

fn record_sotw(state: &LastGood, type_url: &str, message: &Message) {
    let (mut version, mut bodies) = (String::new(), Vec::new());
    peek::fields(message.body(), |tag, bytes| {
        if tag == discovery_response::VERSION_INFO.tag() {
            version = String::from_utf8_lossy(&bytes).into_owned();
        } else if tag == discovery_response::RESOURCES.tag() {
            bodies.push(bytes);
        }
    });
    let resources: Vec<Resource> = bodies
        .into_iter()
        .filter_map(|body| {
            Some(Resource { name: resource_name(body.clone())?, version: version.clone(), body })
        })
        .collect();
    // Responses of clusters and listeners are whole; those of other types may have changed resources alone.
    let is_whole = matches!(type_url, types::CLUSTER | types::LISTENER);
    let clear = is_whole.then_some(Change::Clear);
    let put = resources.iter().map(|resource| Change::Put {
        name: &resource.name,
        version: &resource.version,
        body: &resource.body,
    });
    state.append(type_url, &clear.into_iter().chain(put).collect::<Vec<_>>());
}

/// The name of the resource in an `Any`.
fn resource_name(packed: Bytes) -> Option<String> {
    let mut value = Bytes::new();
    peek::fields(packed, |tag, bytes| {
        if tag == any::VALUE.tag() {
            value = bytes;
        }
    })?;
    let mut name = None;
    peek::fields(value, |tag, bytes| {
        if tag == RESOURCE_NAME && name.is_none() {
            name = String::from_utf8(bytes.to_vec()).ok();
        }
    });
    name.filter(|name| !name.is_empty())
}
