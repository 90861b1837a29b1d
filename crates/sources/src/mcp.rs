//! Objects from another control plane, over xDS: Istio's mesh configuration protocol (MCP).
//!
//! One stream carries all kinds. A kind is asked for under its `group/version/Kind`, and every answer has all objects of the
//! kind, which makes it a listing. A stream that ends takes nothing with it: the next one is compared with what is there.
//!
//! Servers need not serve every kind, and say nothing of those they do not. A kind of which nothing was heard while the server
//! answered for others, and then was silent for [`SILENCE`], counts as absent until it is heard of.

mod envelope;

use std::collections::BTreeSet;
use std::time::Duration;

use canopus_api::{Kind, ObjectKey};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::rpc::Status as Rejection;
use canopus_xds::client::{AdsStream, Update};
use canopus_xds::session::{Protocol, Request, Wish};
use tokio::time::{sleep, timeout};
use tonic::Code;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use crate::change::{Change, ProblemScope, SourcePart};
use crate::feed::{Closed, Feed, Source};
use crate::retry::Retry;
use envelope::Opened;

/// How long a server is silent before it is taken to have said all there is.
const SILENCE: Duration = Duration::from_secs(10);

/// How long a connection may take to be made.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest answer that is read.
const LARGEST_ANSWER: usize = 256 << 20;

/// Makes connections to a server.
pub trait Connect: Send + 'static {
    /// Makes one connection; the error says what is wrong with the server or with how it is to be reached.
    fn connect(&self) -> impl Future<Output = Result<Channel, String>> + Send;
}

/// A server of configuration as a source.
pub struct Mcp<C> {
    server: C,
    node: Node,
    kinds: BTreeSet<Kind>,
}

impl<C: Connect> Mcp<C> {
    /// The objects of some kinds that a server has. The client introduces itself as `node`.
    pub fn new(server: C, node: Node, kinds: BTreeSet<Kind>) -> Self {
        Self { server, node, kinds }
    }

    async fn follow(self, feed: &Feed) -> Result<(), Closed> {
        feed.send(self.kinds.iter().map(|kind| Change::Expect(SourcePart::Kind(*kind))).collect()).await?;
        let mut retry = Retry::default();
        loop {
            let reason = tokio::select! {
                ended = self.session(feed, &mut retry) => ended?,
                () = feed.closed() => return Err(Closed),
            };
            feed.send(vec![Change::Lost(SourcePart::Whole, reason)]).await?;
            sleep(retry.pause()).await;
        }
    }

    /// Follows one stream to its end; why it ended.
    async fn session(&self, feed: &Feed, retry: &mut Retry) -> Result<String, Closed> {
        let mut stream = match self.open().await {
            Ok(stream) => stream,
            Err(reason) => return Ok(reason),
        };
        let mut unheard = self.kinds.clone();
        loop {
            let update = match timeout(SILENCE, stream.next()).await {
                Ok(Ok(Some(update))) => update,
                Ok(Ok(None)) => return Ok("the server ended the stream".to_owned()),
                Ok(Err(status)) => return Ok(described(&status)),
                Err(_) if unheard.len() == self.kinds.len() => {
                    return Ok(format!("the server said nothing in {} seconds", SILENCE.as_secs()));
                }
                Err(_) => {
                    if !unheard.is_empty() {
                        feed.send(std::mem::take(&mut unheard).into_iter().map(absent).collect()).await?;
                        feed.send(vec![Change::Live(SourcePart::Whole)]).await?;
                    }
                    continue;
                }
            };
            let Some(kind) = kind_of(&update.type_url).filter(|kind| self.kinds.contains(kind)) else {
                // A server may not add kinds that this control plane did not subscribe to.
                continue;
            };
            let (mut changes, rejection) = listing(kind, &update);
            retry.reset();
            if unheard.remove(&kind) && unheard.is_empty() {
                changes.push(Change::Live(SourcePart::Whole));
            }
            feed.send(changes).await?;
            // A server that takes no more says why on the other half of the stream.
            let _ = stream.send(answer(&update, rejection)).await;
        }
    }

    async fn open(&self) -> Result<AdsStream, String> {
        let late = || format!("no connection in {} seconds", PATIENCE.as_secs());
        let channel = timeout(PATIENCE, self.server.connect()).await.map_err(|_| late())??;
        let mut requests = self.kinds.iter().map(|kind| Request {
            type_url: type_url(*kind),
            node: Some(self.node.clone()),
            nonce: String::new(),
            error: None,
            wish: everything(String::new()),
        });
        let Some(first) = requests.next() else { return Err("there is nothing to ask for".to_owned()) };
        let opening =
            AdsStream::open_bounded(channel, Protocol::Sotw, MetadataMap::new(), first, LARGEST_ANSWER);
        let stream = timeout(PATIENCE, opening).await.map_err(|_| late())?;
        let stream = stream.map_err(|status| described(&status))?;
        for request in requests {
            if stream.send(request).await.is_err() {
                break;
            }
        }
        Ok(stream)
    }
}

impl<C: Connect + Sync> Source for Mcp<C> {
    async fn run(self, feed: Feed) {
        // The only way to end is that nobody listens any more.
        let _ = self.follow(&feed).await;
    }
}

/// What a kind is called in requests.
fn type_url(kind: Kind) -> String {
    format!("{}/{}", kind.info().api_version(), kind.info().kind)
}

fn kind_of(type_url: &str) -> Option<Kind> {
    let (api_version, name) = type_url.rsplit_once('/')?;
    Kind::lookup(api_version, name).ok()
}

/// The wish for all objects of a kind, by who has this version of them.
fn everything(version: String) -> Wish {
    Wish::Exactly { names: Vec::new(), version }
}

fn absent(kind: Kind) -> Change {
    Change::Absent(SourcePart::Kind(kind), "the server does not serve it".to_owned())
}

/// What an answer says of a kind. Objects that cannot be read stay as they were; without a name it is not known which that is, so
/// the whole answer is refused.
fn listing(kind: Kind, update: &Update) -> (Vec<Change>, Option<String>) {
    let part = SourcePart::Kind(kind);
    let mut changes = vec![Change::Problems(ProblemScope::Part(part), Vec::new()), Change::Begin(part)];
    for resource in &update.resources {
        match envelope::open(kind, &resource.body) {
            Ok(Opened::Object(object, problems)) => {
                let key = object.key();
                changes.push(Change::Set(*object));
                changes.extend((!problems.is_empty()).then(|| problem(key, problems)));
            }
            Ok(Opened::Unreadable(key, reason)) => {
                changes.push(Change::Keep(key.clone()));
                changes.push(problem(key, vec![reason]));
            }
            Err(reason) => {
                let complaint = Change::Problems(ProblemScope::Part(part), vec![reason.clone()]);
                return (vec![complaint], Some(reason));
            }
        }
    }
    changes.push(Change::End(part));
    (changes, None)
}

fn problem(key: ObjectKey, problems: Vec<String>) -> Change {
    Change::Problems(ProblemScope::Object(key), problems)
}

/// The acknowledgement of an answer, or its rejection.
fn answer(update: &Update, rejection: Option<String>) -> Request {
    let error = rejection.map(|message| Rejection {
        code: Code::InvalidArgument as i32,
        message,
        ..Default::default()
    });
    let version = if error.is_none() { update.version.clone() } else { String::new() };
    Request {
        type_url: update.type_url.clone(),
        node: None,
        nonce: update.nonce.clone(),
        error,
        wish: everything(version),
    }
}

fn described(status: &tonic::Status) -> String {
    format!("{:?}: {}", status.code(), status.message().escape_debug())
}

#[cfg(test)]
mod tests;
