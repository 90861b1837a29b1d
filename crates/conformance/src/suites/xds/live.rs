//! A control plane that serves a scenario over gRPC and TLS, and the proxies that are connected to it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use canopus_api::decode::Reason as Undecodable;
use canopus_api::{Kind, Object, ObjectKey, Options as DecodeOptions, decode_documents};
use canopus_base::spiffe::Identity;
use canopus_base::tree::{Limits, Node};
use canopus_daemon::control_plane::Mesh;
use canopus_daemon::push::{Cause, Dispatcher, Reason, Stamp};
use canopus_daemon::serve::grpc::Grpc;
use canopus_daemon::serve::tls::{self, Acceptor, Material, Policy};
use canopus_engine::{Batch, Engine};
use canopus_mesh::credential::{Account, SecretAccess};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{Objects, Origin, Settings};
use canopus_testkit::Authority;
use canopus_xds::client::{AdsStream, Follower, Update};
use canopus_xds::server::Options;
use canopus_xds::session::{Protocol, Request, Wish};
use canopus_xds::types;
use tokio::net::TcpListener;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use super::scenario::{RecordedProxy, Scenario, Type, list, text};
use super::world::settings;

/// The name the server goes by.
const SERVER: &str = "istiod.istio-system.svc";

/// A question that is answered at once and changes nothing: whatever was to be said before it has been said.
const BARRIER: &str = "istio.io/debug/barrier";

/// A running control plane and the world it serves.
pub(super) struct Live {
    /// The scenario, with its objects and settings as they are now.
    pub(super) scenario: Scenario,
    dispatcher: Arc<Dispatcher>,
    authority: Authority,
    address: SocketAddr,
}

impl Live {
    pub(super) async fn start(scenario: Scenario) -> anyhow::Result<Self> {
        let engine = Engine::new();
        let mut batch = Batch::new();
        batch.set::<Settings>((), settings(&scenario)?);
        for (cluster, object) in &scenario.objects {
            batch.set::<Objects>(Origin::new(cluster.as_str(), object.key()), object.clone());
        }
        for recorded in &scenario.proxies {
            batch.set::<SecretAccess>(account(recorded)?, true);
        }
        engine.apply(batch);

        let authority = Authority::new()?;
        let own = authority.server(SERVER)?;
        let root = authority.root();
        let material = Material::from_pem(own.certificate.as_bytes(), own.key.as_bytes(), root.as_bytes())?;
        let acceptor = Acceptor::fixed(tls::for_proxies(&material, &Policy::default(), &engine)?);
        let dispatcher = Dispatcher::unobserved(engine);
        let grpc = Grpc::new(Arc::new(Mesh::new(Arc::clone(&dispatcher))), Options::default());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { grpc.serve_tls(listener, acceptor, std::future::pending()).await });
        Ok(Self { scenario, dispatcher, authority, address })
    }

    /// A connection that proves this identity.
    pub(super) async fn channel(&self, identity: &str) -> anyhow::Result<Channel> {
        let certified = self.authority.workload(&[identity])?;
        self.authority.channel(self.address, SERVER, Some(&certified)).await
    }

    /// Makes a recorded change.
    pub(super) fn apply(&mut self, change: &Node) -> anyhow::Result<()> {
        let cluster = text(change, "cluster").unwrap_or(&self.scenario.cluster).to_owned();
        let mut batch = Batch::new();
        let mut origins = Vec::new();
        for written in list(change, "apply") {
            let object = self.read(&cluster, written)?;
            let origin = Origin::new(cluster.as_str(), object.key());
            batch.set::<Objects>(origin.clone(), object.clone());
            self.remember(&origin, Some(object));
            origins.push(origin);
        }
        for written in list(change, "delete") {
            let origin = Origin::new(cluster.as_str(), key(written)?);
            batch.remove::<Objects>(&origin);
            self.remember(&origin, None);
            origins.push(origin);
        }
        let mut cause = Cause::objects(Stamp::now(), origins);
        if let Some(overlay) = change.get("meshConfig") {
            self.scenario.mesh_config = Some(overlay.clone());
            batch.set::<Settings>((), settings(&self.scenario)?);
            cause = cause.and(Reason::Global);
        }
        tokio::task::block_in_place(|| self.dispatcher.apply(batch, cause));
        Ok(())
    }

    /// An object of a change. One that replaces another keeps its age.
    fn read(&self, cluster: &str, written: &Node) -> anyhow::Result<Object> {
        let mut written: serde_json::Value = serde_json::from_str(&written.to_json().to_string())?;
        let decode = |value: &serde_json::Value| -> anyhow::Result<Object> {
            let mut outcomes =
                decode_documents(value.to_string(), &Limits::default(), DecodeOptions::watch());
            match outcomes.pop() {
                Some(Ok(decoded)) => Ok(decoded.value),
                Some(Err(error)) if matches!(error.reason, Undecodable::UnknownKind) => {
                    bail!("an unknown kind")
                }
                Some(Err(error)) => Err(error.into()),
                None => bail!("there is no object"),
            }
        };
        let object = decode(&written)?;
        let replaced =
            self.scenario.objects.iter().find(|(of, old)| of == cluster && old.key() == object.key());
        let Some((_, replaced)) = replaced else { return Ok(object) };
        let old: serde_json::Value = serde_json::from_str(&replaced.to_node().to_json().to_string())?;
        for field in ["creationTimestamp", "uid"] {
            if let Some(kept) = old["metadata"].get(field) {
                written["metadata"][field] = kept.clone();
            }
        }
        decode(&written)
    }

    fn remember(&mut self, origin: &Origin, object: Option<Object>) {
        let objects = &mut self.scenario.objects;
        objects.retain(|(cluster, old)| **cluster != *origin.cluster || old.key() != origin.key);
        objects.extend(object.map(|object| (origin.cluster.to_string(), object)));
    }
}

fn key(written: &Node) -> anyhow::Result<ObjectKey> {
    let kind = text(written, "kind").context("an object without a kind")?;
    let api = text(written, "apiVersion").context("an object without an API version")?;
    let kind = Kind::ALL
        .iter()
        .copied()
        .find(|known| known.info().kind == kind && api.starts_with(known.info().group))
        .with_context(|| format!("unknown kind {kind}"))?;
    let metadata = written.get("metadata").context("an object without metadata")?;
    let name = text(metadata, "name").context("an object without a name")?;
    Ok(ObjectKey::new(kind, text(metadata, "namespace").unwrap_or_default(), name))
}

/// Who a recorded proxy is, unless the record says otherwise.
pub(super) fn identity(recorded: &RecordedProxy) -> anyhow::Result<Identity> {
    Ok(Identity::new("cluster.local", &recorded.namespace, &recorded.service_account)?)
}

fn account(recorded: &RecordedProxy) -> anyhow::Result<Account> {
    let identity = identity(recorded)?;
    let proxy = Proxy::new(&recorded.node, Some(identity.clone())).context("cannot read the node")?;
    Ok(Account {
        cluster: proxy.metadata.cluster_id.as_str().into(),
        namespace: identity.namespace,
        name: identity.service_account,
    })
}

/// A question without a subject.
fn barrier(protocol: Protocol) -> Request {
    let wish = match protocol {
        Protocol::Sotw => Wish::Exactly { names: Vec::new(), version: String::new() },
        Protocol::Delta => {
            Wish::Change { subscribe: Vec::new(), unsubscribe: Vec::new(), held: Default::default() }
        }
    };
    Request { type_url: BARRIER.to_owned(), node: None, nonce: String::new(), error: None, wish }
}

/// All the server has to say for now, in order.
pub(super) async fn hear(stream: &mut AdsStream, protocol: Protocol) -> Result<Vec<Update>, Heard> {
    let mut heard = Vec::new();
    // A stream the server has closed fails below, with the reason.
    let _ = stream.send(barrier(protocol)).await;
    loop {
        match stream.next().await {
            Ok(Some(update)) if update.type_url == BARRIER => return Ok(heard),
            Ok(Some(update)) => heard.push(update),
            Ok(None) => return Err(Heard { before: heard, status: tonic::Status::ok("") }),
            Err(status) => return Err(Heard { before: heard, status }),
        }
    }
}

/// What the server said before it closed the stream, and how it closed it.
pub(super) struct Heard {
    pub(super) before: Vec<Update>,
    pub(super) status: tonic::Status,
}

/// What a proxy is told after a change.
#[derive(Default)]
pub(super) struct Delivered {
    /// Without having asked.
    pub(super) pushed: Vec<Update>,
    /// In answer to what it asked then.
    pub(super) answered: Vec<Update>,
}

/// A proxy that acknowledges everything and asks for what it is referred to.
pub(super) struct Following {
    pub(super) follower: Follower,
    stream: Option<AdsStream>,
    channel: Channel,
}

impl Following {
    pub(super) async fn connect(live: &Live, recorded: &RecordedProxy) -> anyhow::Result<Self> {
        let channel = live.channel(&identity(recorded)?.to_string()).await?;
        let mut follower = Follower::new(recorded.protocol, recorded.node.clone());
        follower.follow_references();
        for kind in &recorded.recorded {
            if matches!(kind, Type::Cds | Type::Lds | Type::Nds | Type::Addresses | Type::Authorizations) {
                follower.watch_everything(&kind.url());
            }
        }
        if !recorded.secrets.is_empty() {
            follower.watch(types::SECRET, recorded.secrets.iter().cloned());
        }
        Ok(Self { follower, stream: None, channel })
    }

    /// Takes in all the server has to say, until there is nothing left to ask: what it says by itself, and then what it
    /// answers to the questions that raises.
    pub(super) async fn settle(&mut self) -> anyhow::Result<Delivered> {
        let mut told = Delivered::default();
        let mut asked = false;
        loop {
            self.flush().await?;
            let stream = self.stream.as_mut().context("there is nothing to ask")?;
            let updates = match hear(stream, self.follower.protocol()).await {
                Ok(updates) => updates,
                Err(Heard { status, .. }) => bail!("the stream ended: {status}"),
            };
            if updates.is_empty() {
                return Ok(told);
            }
            for update in &updates {
                self.follower.accept(update);
            }
            if asked { &mut told.answered } else { &mut told.pushed }.extend(updates);
            asked = true;
        }
    }

    async fn flush(&mut self) -> anyhow::Result<()> {
        for request in self.follower.take_requests() {
            match &self.stream {
                Some(stream) => stream.send(request).await?,
                None => {
                    let protocol = self.follower.protocol();
                    let opened = AdsStream::open(self.channel.clone(), protocol, MetadataMap::new(), request);
                    self.stream = Some(opened.await?);
                }
            }
        }
        Ok(())
    }
}
