//! Requests and responses, one by one.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail};
use canopus_base::tree::Node;
use canopus_proto::google::rpc::Status;
use canopus_xds::client::{AdsStream, Update};
use canopus_xds::session::{Protocol, Request, Wish};
use tonic::metadata::MetadataMap;

use super::live::{Heard, Live, hear, identity};
use super::scenario::{RecordedProxy, Scenario, Type, list, names, text};
use super::world::Generated;
use super::{Less, Sequence};
use crate::compare::{ABSENT, Difference};

/// A nonce nobody gave.
const STALE: &str = "stale-nonce";

/// One client and what it has seen.
struct Client {
    stream: Option<AdsStream>,
    protocol: Protocol,
    /// The last nonce of each type.
    nonces: BTreeMap<String, String>,
    /// The bytes of everything received on this stream, by type and name.
    held: BTreeMap<(String, String), Vec<u8>>,
}

/// What came after an action.
struct Reaction {
    updates: Vec<Update>,
    closed: Option<tonic::Status>,
}

/// Plays a scenario and compares what comes after each action.
pub(super) async fn run(scenario: Scenario, written: &Node) -> anyhow::Result<Sequence> {
    let mut live = Live::start(scenario).await?;
    let protocol = live.scenario.proxies.first().context("no proxy")?.protocol;
    let mut client = Client { stream: None, protocol, nonces: BTreeMap::new(), held: BTreeMap::new() };
    let mut outcome = Sequence::default();
    for (number, action) in list(written, "exchange").enumerate() {
        let place = format!("/exchange/{number}");
        if let Some(change) = action.get("change") {
            live.apply(change).with_context(|| place.clone())?;
        } else {
            let request = request(action, &live.scenario.proxies[0], &client)?;
            client.say(&live, action, request).await?;
        }
        let reaction = client.react().await;
        let expected: Vec<&Node> = list(action, "received").collect();
        outcome.less |= client.compare(&live, &expected, &reaction, &place, &mut outcome.differences)?;
        closed(action.get("closed"), reaction.closed.as_ref(), &place, &mut outcome.differences);
        client.take_in(&reaction.updates);
    }
    Ok(outcome)
}

/// The request an action stands for.
fn request(action: &Node, proxy: &RecordedProxy, client: &Client) -> anyhow::Result<Request> {
    let type_url = url(text(action, "type").context("an action without a type")?);
    let nonce = match text(action, "nonce") {
        None => String::new(),
        Some("last") => client.nonces.get(&type_url).cloned().context("no response to answer")?,
        Some("stale") => STALE.to_owned(),
        Some(other) => bail!("a nonce {other:?}"),
    };
    let held = names(action, "initialResourceVersions").into_iter().map(|name| (name, String::new()));
    let wish = match client.protocol {
        Protocol::Sotw => Wish::Exactly { names: names(action, "names"), version: String::new() },
        Protocol::Delta => Wish::Change {
            subscribe: names(action, "subscribe"),
            unsubscribe: names(action, "unsubscribe"),
            held: held.collect(),
        },
    };
    let error = text(action, "error").map(|message| Status {
        code: tonic::Code::InvalidArgument as i32,
        message: message.to_owned(),
        ..Default::default()
    });
    let introduced = action.get("node").is_some_and(|node| node.as_bool() == Some(true));
    Ok(Request { type_url, node: introduced.then(|| proxy.node.clone()), nonce, error, wish })
}

/// The URL of a type given by its short name or in full.
fn url(name: &str) -> String {
    match Type::parse(name) {
        Some(kind) => kind.url(),
        None if name == "workloads" => canopus_xds::types::WORKLOAD.to_owned(),
        None => name.to_owned(),
    }
}

impl Client {
    async fn say(&mut self, live: &Live, action: &Node, request: Request) -> anyhow::Result<()> {
        if action.get("newStream").is_some() {
            self.stream = None;
            self.nonces.clear();
            self.held.clear();
        }
        let Some(stream) = &self.stream else {
            let own = identity(&live.scenario.proxies[0])?.to_string();
            let channel = live.channel(text(action, "identity").unwrap_or(&own)).await?;
            let opened = AdsStream::open(channel, self.protocol, MetadataMap::new(), request);
            self.stream = Some(opened.await?);
            return Ok(());
        };
        Ok(stream.send(request).await?)
    }

    async fn react(&mut self) -> Reaction {
        let Some(stream) = &mut self.stream else {
            return Reaction { updates: Vec::new(), closed: None };
        };
        match hear(stream, self.protocol).await {
            Ok(updates) => Reaction { updates, closed: None },
            Err(Heard { before, status }) => Reaction { updates: before, closed: Some(status) },
        }
    }

    fn take_in(&mut self, updates: &[Update]) {
        for update in updates {
            self.nonces.insert(update.type_url.clone(), update.nonce.clone());
            for resource in &update.resources {
                let key = (update.type_url.clone(), resource.name.clone());
                self.held.insert(key, resource.body.value.to_vec());
            }
        }
    }

    /// Compares the responses in their order. What is missing has to be what the client holds already.
    fn compare(
        &self,
        live: &Live,
        expected: &[&Node],
        reaction: &Reaction,
        place: &str,
        found: &mut Vec<Difference>,
    ) -> anyhow::Result<Less> {
        let mut less = Less::No;
        let mut updates = reaction.updates.iter().peekable();
        for (number, response) in expected.iter().enumerate() {
            let place = format!("{place}/received/{number}");
            let type_url = url(text(response, "type").context("a response without a type")?);
            let got = updates.next_if(|update| update.type_url == type_url);
            let sent: BTreeSet<String> =
                got.iter().flat_map(|update| update.names()).map(str::to_owned).collect();
            let recorded: BTreeSet<String> = names(response, "names").into_iter().collect();
            for name in sent.difference(&recorded) {
                found.push(Difference::new(format!("{place}/{name}"), ABSENT, "the resource"));
            }
            let skipped: Vec<&String> = recorded.difference(&sent).collect();
            if !skipped.is_empty() {
                less = Less::Yes;
                self.unchanged(live, &type_url, &skipped, &place, found)?;
            } else if got.is_none() {
                // An empty message that is not sent tells nothing less, unless it answers a request.
                found.push(Difference::new(&place, "a response", ABSENT));
            }
            let removed: BTreeSet<String> =
                got.into_iter().flat_map(|update| update.removed.clone()).collect();
            let expected: BTreeSet<String> = names(response, "removed").into_iter().collect();
            if removed != expected {
                let place = format!("{place}/removed");
                found.push(Difference::new(place, format!("{expected:?}"), format!("{removed:?}")));
            }
        }
        for update in updates {
            let place = format!("{place}/received");
            found.push(Difference::new(
                place,
                "silence",
                format!("{} {:?}", update.type_url, update.names()),
            ));
        }
        Ok(less)
    }

    /// Resources that were not sent are held by the client as the world, computed anew, has them.
    fn unchanged(
        &self,
        live: &Live,
        type_url: &str,
        skipped: &[&String],
        place: &str,
        found: &mut Vec<Difference>,
    ) -> anyhow::Result<()> {
        let generated = Generated::generate(&live.scenario)?;
        let proxy = &live.scenario.proxies[0].name;
        let kind = Type::from_url(type_url);
        let now = kind.map(|kind| generated.resources(proxy, kind)).transpose()?.unwrap_or_default();
        for name in skipped {
            let held = self.held.get(&(type_url.to_owned(), (*name).clone()));
            let current = now.iter().find(|resource| *resource.name == ***name);
            let same = held.zip(current).is_some_and(|(held, current)| **held == *current.body);
            if !same {
                found.push(Difference::new(format!("{place}/{name}"), "the resource", ABSENT));
            }
        }
        Ok(())
    }
}

/// How the server ended the stream.
fn closed(expected: Option<&Node>, got: Option<&tonic::Status>, place: &str, found: &mut Vec<Difference>) {
    let said = |code: &str, message: &str| format!("{code}: {message}");
    let expected = expected
        .map(|node| said(text(node, "code").unwrap_or_default(), text(node, "message").unwrap_or_default()));
    let got = got.map(|status| said(&format!("{:?}", status.code()), status.message()));
    if expected != got {
        let open = || "an open stream".to_owned();
        let place = format!("{place}/closed");
        found.push(Difference::new(place, expected.unwrap_or_else(open), got.unwrap_or_else(open)));
    }
}
