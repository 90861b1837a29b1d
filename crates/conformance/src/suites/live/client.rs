//! A client of the control plane: a session, driven by hand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use canopus_base::spiffe::Identity;
use canopus_daemon::authentication::Caller;
use canopus_daemon::control_plane::Mesh;
use canopus_proto::Any;
use canopus_proto::Message as _;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::rpc::Status;
use canopus_xds::session::{Limits, Protocol, Request, Session, Wish};
use canopus_xds::types::{self, Types};
use canopus_xds::{Code, ControlPlane, Interest, Mailbox, Peer, Refusal, ResourceSet, Source};

/// What a client rejects with.
const REASON: &str = "Rejected by test: listener is bad";

/// A connected client; it leaves when this is dropped.
pub(crate) struct Client {
    link: Link,
    mailbox: Arc<Mailbox>,
    session: Session,
    /// The names it asks for of each type, and whether it rejects what it gets.
    wishes: BTreeMap<String, (Vec<String>, bool)>,
}

/// A message to the client.
pub(crate) struct Response {
    pub(crate) type_url: String,
    pub(crate) nonce: String,
    pub(crate) resources: Vec<Any>,
    pub(crate) identifier: Option<String>,
}

struct Link {
    mesh: Arc<Mesh>,
    client: Arc<<Mesh as ControlPlane>::Client>,
}

impl Source for Link {
    fn resources(&self, type_url: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        self.mesh.resources(&self.client, type_url, interest)
    }

    fn identifier(&self, type_url: &str) -> Option<String> {
        self.mesh.identifier(type_url)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.mesh.disconnect(&self.client);
    }
}

impl Client {
    /// Connects; the identities are what the transport proved, `None` where it cannot prove any.
    pub(crate) async fn open(
        mesh: Arc<Mesh>,
        node: Node,
        identities: Option<Vec<Identity>>,
    ) -> Result<Self, Refusal> {
        if node.id.is_empty() {
            return Err(Refusal::new(Code::InvalidArgument, "missing node information"));
        }
        let address = Some(SocketAddr::from(([127, 0, 0, 1], 40_000)));
        let identities = identities.map(|all| all.iter().map(ToString::to_string).collect());
        let mut peer = Peer { address, ..Peer::default() };
        peer.extensions.insert(Caller { address, identities });
        mesh.admit(&mut peer).await?;
        let client = mesh.connect(&peer, node).await?;
        let session = Session::new(Protocol::Sotw, 1, Limits::default(), Arc::default());
        Ok(Self { link: Link { mesh, client }, mailbox: peer.mailbox, session, wishes: BTreeMap::new() })
    }

    /// The name of its workload, by which it is asked for.
    pub(crate) fn name(&self) -> &str {
        &self.link.client.connection.proxy.id.id
    }

    /// Whether its stream has to end.
    pub(crate) fn is_over(&self) -> bool {
        self.mailbox.is_ended()
    }

    /// Subscribes to names of a type, and accepts or rejects what comes of it.
    pub(crate) fn follow(&mut self, type_url: &str, names: &[String], rejects: bool) -> anyhow::Result<()> {
        self.wishes.insert(type_url.to_owned(), (names.to_vec(), rejects));
        let responses = self.say(type_url, names, "", None);
        for response in responses.map_err(|refusal| anyhow::anyhow!("{refusal}"))? {
            self.settle(response)?;
        }
        Ok(())
    }

    /// Asks once and gives the first answer.
    pub(crate) fn ask(&mut self, type_url: &str, names: &[String]) -> Result<Response, Refusal> {
        let mut responses = self.say(type_url, names, "", None)?;
        if responses.is_empty() {
            return Err(Refusal::new(Code::Unavailable, "there was no answer"));
        }
        Ok(responses.remove(0))
    }

    fn say(
        &mut self,
        type_url: &str,
        names: &[String],
        nonce: &str,
        error: Option<Status>,
    ) -> Result<Vec<Response>, Refusal> {
        let wish = Wish::Exactly { names: names.to_vec(), version: String::new() };
        let request =
            Request { type_url: type_url.to_owned(), node: None, nonce: nonce.to_owned(), error, wish };
        self.session.on_request(request, &self.link)?;
        self.responses()
    }

    /// Everything the session has to say.
    fn responses(&mut self) -> Result<Vec<Response>, Refusal> {
        let mut responses = Vec::new();
        loop {
            let response = self.session.next_response(&self.link)?;
            for event in self.session.take_events() {
                self.link.mesh.observe(&self.link.client, event);
            }
            let Some(response) = response else {
                if !self.session.is_waiting() {
                    return Ok(responses);
                }
                // Recordings do not say how long a client took.
                self.session.stop_waiting();
                continue;
            };
            let packed = types::is_packed(response.type_url());
            let resources = response.resources().map(|resource| {
                let plain =
                    || Any { type_url: response.type_url().to_string(), value: resource.body.clone() };
                let opened = packed.then(|| Any::decode(resource.body.clone()).ok()).flatten();
                opened.unwrap_or_else(plain)
            });
            responses.push(Response {
                type_url: response.type_url().to_string(),
                nonce: response.nonce().to_owned(),
                resources: resources.collect(),
                identifier: response.identifier().map(str::to_owned),
            });
        }
    }

    /// Takes in what has changed, and accepts or rejects it.
    pub(crate) fn look(&mut self) -> anyhow::Result<()> {
        let revision = self.link.mesh.dispatcher().engine().revision().number();
        self.session.on_revision(revision, Types::ALL);
        let responses = self.responses().map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
        for response in responses {
            self.settle(response)?;
        }
        Ok(())
    }

    /// Answers a response, and the responses to that.
    fn settle(&mut self, response: Response) -> anyhow::Result<()> {
        let mut open = vec![response];
        while let Some(response) = open.pop() {
            let (names, rejects) = self.wishes.get(&response.type_url).cloned().unwrap_or_default();
            let error = rejects.then(|| Status {
                code: Code::Internal as i32,
                message: REASON.to_owned(),
                ..Default::default()
            });
            let more = self.say(&response.type_url, &names, &response.nonce, error);
            open.extend(more.map_err(|refusal| anyhow::anyhow!("{refusal}"))?);
        }
        Ok(())
    }
}
