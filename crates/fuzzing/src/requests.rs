//! What clients, servers and proxies send.

use std::sync::Arc;

use canopus_admission::validation::{self, Request as HttpRequest};
use canopus_agent::dns::Transport;
use canopus_agent::dns::index::{Addresses, Found, NameIndex, NameScope};
use canopus_agent::dns::message::{Family, Query};
use canopus_agent::last_good::inspect_log;
use canopus_agent::wasm::{ImageReference, inspect_manifest, unpack_module};
use canopus_agent::xds_proxy::inspect_stream;
use canopus_api::{Kind, Object, Options};
use canopus_proto::Message as _;
use canopus_proto::istio::networking::nds::v1::NameTable;
use canopus_sources::{consul, kubernetes, snapshot};
use canopus_xds::server::read_request;
use canopus_xds::session::{Limits, Protocol, Session};
use canopus_xds::types::Types;
use canopus_xds::{Interest, Refusal, Resource, ResourceSet, Source, rejection};

/// A review that asks whether an object may be stored: there is always an answer.
pub(crate) fn admission_review(input: &[u8]) {
    let request = HttpRequest { path: "/validate", content_type: Some("application/json"), body: input };
    let answer = validation::answer(&request);
    assert!(answer.status >= 200 && !answer.body.is_empty());
}

/// DNS packets, as anybody may send them to the agent's name server.
pub(crate) fn dns_query(input: &[u8]) {
    let Ok(query) = Query::parse(input) else { return };
    let addresses = Addresses { v4: (0..100u32).map(Into::into).collect(), v6: Box::default() };
    let found = Found { alias_of: Some("a.b."), addresses: &addresses };
    for (family, transport) in [(Family::V4, Transport::Udp), (Family::V6, Transport::Tcp)] {
        let answer = query.answer(family, &found, transport);
        assert!(answer.len() >= 12);
    }
    let _ = query.fit(input.to_vec(), Transport::Udp);
    assert!(!query.failure().is_empty());
}

/// The data of a stream between Envoy and the control plane, after a byte with the size of the pieces it comes in.
pub(crate) fn agent_stream(input: &[u8]) {
    let Some((size, data)) = input.split_first() else { return };
    assert!(inspect_stream(data, usize::from(*size)) <= data.len());
}

/// A log of the agent's last good state, as a disk may give it back.
pub(crate) fn last_good_log(input: &[u8]) {
    // Every resource has a record with a prefix and a kind.
    assert!(inspect_log(input) <= input.len() / 13);
}

/// A table of names, as the control plane sends it to the agent.
pub(crate) fn name_table(input: &[u8]) {
    let Ok(table) = NameTable::decode(input) else { return };
    let names: Vec<String> = table.table.keys().map(|name| format!("{}.", name.to_lowercase())).collect();
    let search = "shop.svc.cluster.local".to_owned();
    let scope = NameScope::new("shop", "svc.cluster.local", Some(&search));
    let Ok(index) = NameIndex::new(table, &scope) else { return };
    for name in names {
        let found = index.find(&name);
        assert!(found.is_none() || !index.is_empty());
    }
}

/// What registries and web servers answer when the agent fetches a Wasm module.
pub(crate) fn image_manifest(input: &[u8]) {
    let _ = inspect_manifest(input);
    assert!(unpack_module(input, 1 << 16).len() <= input.len().max(1 << 16));
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = ImageReference::parse(text);
    }
}

/// What proxies say when they reject something: any text, then the name of a resource on a line of its own.
pub(crate) fn rejection(input: &[u8]) {
    let Some([name, words]) = super::lines(input) else { return };
    if let Some(field) = rejection::failed_field(words) {
        assert!(words.contains("ValidationError.") && field.len() <= 2 * words.len() + 64);
    }
    if rejection::mentions(words, name) {
        assert!(words.contains(name));
    }
}

/// The kinds whose objects are decoded by most code of their own.
const KINDS: [Kind; 6] =
    [Kind::VirtualService, Kind::Pod, Kind::EndpointSlice, Kind::Secret, Kind::HttpRoute, Kind::Telemetry];

/// A line that an API server sends in a watch.
pub(crate) fn watch_line(input: &[u8]) {
    for kind in KINDS {
        let changes = kubernetes::changes_in_line(kind, input);
        assert!(changes.len() <= 3, "one line is about one object");
    }
}

/// What a Consul agent answers, on the lines after the name of a service: the entry it becomes has no more endpoints than
/// there are instances, and can be read again.
pub(crate) fn consul_answer(input: &[u8]) {
    let Some([service, answer]) = super::lines(input) else { return };
    let (entry, checked) = consul::inspect(service, answer.as_bytes());
    assert!(checked.len() <= answer.len());
    if let Some((object, _)) = entry {
        let node = object.to_node();
        let again =
            Object::decode(&node, Options::watch()).expect("what is made of an answer can be decoded");
        assert_eq!(again.value.to_node(), node);
    }
}

/// Lines of a snapshot, as a disk or another version may give them back: each is an object or is reported, and nothing counts
/// that is not a whole file.
pub(crate) fn snapshot(input: &[u8]) {
    let (whole, as_it_is) = snapshot::inspect(input);
    assert!(as_it_is.is_none() || input.starts_with(b"{"), "only a whole snapshot counts");
    if let Some(saved) = whole {
        let lines = input.split_inclusive(|byte| *byte == b'\n').count();
        assert_eq!(saved.objects.len() + saved.unreadable.len(), lines);
    }
}

/// A few resources of every type.
struct World;

impl Source for World {
    fn resources(&self, type_url: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        let resource = |name: &str| Resource::new(name, format!("{type_url} {name}"));
        let all = ["a", "b", "c"].into_iter().filter(|name| interest.covers(name));
        Ok(all.map(resource).collect())
    }
}

/// Requests of a stream, each after a byte with its length: no session sends more than it has, and none goes on for ever.
pub(crate) fn xds_request(input: &[u8]) {
    let Some((variant, mut rest)) = input.split_first() else { return };
    let protocol = if variant % 2 == 0 { Protocol::Delta } else { Protocol::Sotw };
    let limits = Limits { names: 100, types: 8, bytes: 10_000, ..Limits::default() };
    let mut session = Session::new(protocol, 1, limits, Arc::default());
    let mut revision = 0;
    while let Some((length, after)) = rest.split_first() {
        let (request, left) = after.split_at(usize::from(*length).min(after.len()));
        rest = left;
        let Ok(request) = read_request(protocol, request, limits) else { return };
        if session.on_request(request, &World).is_err() {
            return;
        }
        revision += 1;
        session.on_revision(revision, Types::ALL);
        for turn in 0.. {
            assert!(turn < 100, "the session does not come to an end");
            match session.next_response(&World) {
                Ok(Some(response)) => assert!(response.len() <= 3),
                Ok(None) if session.is_waiting() => session.stop_waiting(),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        let _ = session.take_events();
    }
}
