//! Whoever comes to the xDS ports with something else than a proper request is told so, and nobody else notices.

mod istioctl;
mod objects;
mod services;
mod tokens;
mod unnamed;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_daemon::control_plane::Mesh;
use canopus_daemon::push::{Cause, Dispatcher, Reason};
use canopus_daemon::serve::grpc::Grpc;
use canopus_daemon::serve::tls::{self, Acceptor, Material, Policy};
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Settings};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_runtime::flags::Flags;
use canopus_runtime::ready::Readiness;
use canopus_testkit::{Authority, Certified};
use canopus_xds::client::{AdsStream, Update};
use canopus_xds::server::Options;
use canopus_xds::session::{Protocol, Request, Wish};
use canopus_xds::types;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const NAME: &str = "istiod.istio-system.svc";
const SHOP: &str = "spiffe://cluster.local/ns/shop/sa/cart";
const NODE: &str = "sidecar~10.0.0.1~cart-1.shop~shop.svc.cluster.local";
const PATIENCE: Duration = Duration::from_secs(20);

/// A control plane without objects, on a port with TLS and one without.
struct Server {
    authority: Authority,
    dispatcher: Arc<Dispatcher>,
    secure: SocketAddr,
    plain: SocketAddr,
}

impl Server {
    async fn start() -> Result<Self> {
        Self::start_with(|mesh| mesh).await
    }

    async fn start_with(guard: impl FnOnce(Mesh) -> Mesh) -> Result<Self> {
        Self::start_as(&Arc::new(Flags::defaults()), guard).await
    }

    async fn start_as(flags: &Arc<Flags>, guard: impl FnOnce(Mesh) -> Mesh) -> Result<Self> {
        let engine = Engine::new();
        let mut batch = Batch::new();
        batch.set::<Settings>((), MeshSettings { flags: Arc::clone(flags), ..MeshSettings::default() });
        engine.apply(batch);
        let authority = Authority::new()?;
        let Certified { certificate, key } = authority.server(NAME)?;
        let root = authority.root();
        let material = Material::from_pem(certificate.as_bytes(), key.as_bytes(), root.as_bytes())?;
        let acceptor = Acceptor::fixed(tls::for_proxies(&material, &Policy::default(), &engine)?);
        let dispatcher = Dispatcher::unobserved(engine);
        let grpc = Grpc::new(Arc::new(guard(Mesh::new(Arc::clone(&dispatcher)))), Options::default());
        let (secure, plain) =
            (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
        let addresses = (secure.local_addr()?, plain.local_addr()?);
        let without_tls = grpc.clone();
        tokio::spawn(async move { grpc.serve_tls(secure, acceptor, std::future::pending()).await });
        tokio::spawn(async move { without_tls.serve(plain, std::future::pending()).await });
        Ok(Self { authority, dispatcher, secure: addresses.0, plain: addresses.1 })
    }

    async fn channel(&self, uris: &[&str]) -> Result<Channel> {
        let certified = (!uris.is_empty()).then(|| self.authority.workload(uris)).transpose()?;
        self.authority.channel(self.secure, NAME, certified.as_ref()).await
    }

    async fn plain_channel(&self) -> Result<Channel> {
        Ok(Endpoint::from_shared(format!("http://{}", self.plain))?.connect().await?)
    }

    /// A proxy of the mesh still gets its clusters.
    async fn serves_others(&self) -> Result<()> {
        let update = ask(self.channel(&[SHOP]).await?, node(NODE)).await.context("nobody else is served")?;
        ensure!(update.type_url == types::CLUSTER, "{update:?}");
        Ok(())
    }
}

fn node(id: &str) -> Option<Node> {
    Some(Node { id: id.to_owned(), ..Node::default() })
}

fn request(node: Option<Node>) -> Request {
    let wish = Wish::Change { subscribe: Vec::new(), unsubscribe: Vec::new(), held: Default::default() };
    Request { type_url: types::CLUSTER.to_owned(), node, nonce: String::new(), error: None, wish }
}

/// The first answer to a request for all clusters.
async fn ask(channel: Channel, node: Option<Node>) -> Result<Update, Status> {
    ask_with(channel, node, MetadataMap::new()).await
}

/// The same, with these headers.
async fn ask_with(channel: Channel, node: Option<Node>, headers: MetadataMap) -> Result<Update, Status> {
    let asked = async {
        let mut stream = AdsStream::open(channel, Protocol::Delta, headers, request(node)).await?;
        stream.next().await?.ok_or_else(|| Status::ok("the stream ended"))
    };
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")))
}

#[tokio::test(flavor = "multi_thread")]
async fn client_without_certificate_is_not_authenticated() -> Result<()> {
    let server = Server::start().await?;
    let status = ask(server.channel(&[]).await?, node(NODE)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    server.serves_others().await
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_port_takes_everyone_without_identity() -> Result<()> {
    let server = Server::start().await?;
    ask(server.plain_channel().await?, node(NODE)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_do_not_count_fail_in_the_handshake() -> Result<()> {
    let server = Server::start().await?;
    let foreign = "spiffe://elsewhere/ns/shop/sa/cart";
    for uris in [&[foreign][..], &[SHOP, "spiffe://cluster.local/ns/shop/sa/other"], &["https://example.com"]]
    {
        // A client of TLS 1.3 takes the handshake for done before the server has looked at its certificate.
        let refused = match server.channel(uris).await {
            Ok(channel) => ask(channel, node(NODE)).await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "{uris:?}");
    }
    assert!(server.dispatcher.connections().is_empty(), "none of them became a connection");
    server.serves_others().await
}

/// Parity: such a client is refused even if it could prove itself otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn certificate_that_names_nobody_fails_in_the_handshake() -> Result<()> {
    let server = Server::start().await?;
    let nameless = server.authority.workload(&[])?;
    let refused = match server.authority.channel(server.secure, NAME, Some(&nameless)).await {
        Ok(channel) => {
            let status = ask(channel, node(NODE)).await.unwrap_err();
            assert_ne!(status.code(), Code::Unauthenticated, "it did not get as far as that: {status}");
            true
        }
        Err(_) => true,
    };
    assert!(refused && server.dispatcher.connections().is_empty());
    server.serves_others().await
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_make_no_sense_are_invalid() -> Result<()> {
    let server = Server::start().await?;
    for (id, expected) in [
        (None, "missing node information"),
        (Some(""), "missing node information"),
        (Some("nonsense"), "missing parts"),
        (Some("pilot~10.0.0.1~a.b~c"), "type"),
        (Some("sidecar~not-an-address~a.b~c"), "address"),
    ] {
        let status = ask(server.plain_channel().await?, id.and_then(node)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{id:?}: {status}");
        assert!(!status.message().is_empty(), "{id:?} has a reason, such as {expected}");
    }
    server.serves_others().await
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_on_the_tls_port_is_hung_up_on() -> Result<()> {
    let server = Server::start().await?;
    let mut stream = TcpStream::connect(server.secure).await?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
    let mut answer = Vec::new();
    // An alert and the end, or the end by force.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.context("still open")?;
    assert!(answer.len() < 16, "{answer:?}");
    server.serves_others().await
}

#[tokio::test(flavor = "multi_thread")]
async fn client_of_another_protocol_is_hung_up_on() -> Result<()> {
    let server = Server::start().await?;
    let workload = server.authority.workload(&[SHOP])?;
    let config = server.authority.client(Some(&workload), &["http/1.1"])?;
    let stream = TcpStream::connect(server.secure).await?;
    let shaken = TlsConnector::from(Arc::new(config)).connect(NAME.try_into()?, stream).await;
    assert!(shaken.is_err(), "the server speaks HTTP/2 alone");
    server.serves_others().await
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_are_in_nobodys_way() -> Result<()> {
    let server = Server::start().await?;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(server.secure).await?);
    }
    server.serves_others().await
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_requests_is_answered_without_growing() -> Result<()> {
    let server = Server::start().await?;
    let channel = server.plain_channel().await?;
    let stream = AdsStream::open(channel, Protocol::Delta, MetadataMap::new(), request(node(NODE))).await?;
    for _ in 0..5_000 {
        stream.send(request(None)).await?;
    }
    server.serves_others().await
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_not_ready_says_so() -> Result<()> {
    let readiness = Readiness::new();
    let guard = readiness.register("something");
    let server = Server::start_with(|mesh| mesh.guarded(readiness, 0.0)).await?;
    let status = ask(server.plain_channel().await?, node(NODE)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "server is not ready to serve discovery information");
    guard.ready();
    ask(server.plain_channel().await?, node(NODE)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_beyond_the_rate_are_refused() -> Result<()> {
    let server = Server::start_with(|mesh| mesh.guarded(Readiness::new(), 0.001)).await?;
    ask(server.plain_channel().await?, node(NODE)).await?;
    let status = ask(server.plain_channel().await?, node(NODE)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_alters_no_byte_wakes_nobody_and_is_acknowledged_by_no_one() -> Result<()> {
    let server = Server::start().await?;
    let channel = server.channel(&[SHOP]).await?;
    let mut stream =
        AdsStream::open(channel, Protocol::Delta, MetadataMap::new(), request(node(NODE))).await?;
    stream.next().await?.context("no clusters")?;
    let apply = |change: fn(&mut MeshSettings)| {
        let mut settings = MeshSettings::default();
        change(&mut settings);
        let mut batch = Batch::new();
        batch.set::<Settings>((), settings);
        tokio::task::block_in_place(|| server.dispatcher.apply(batch, Cause::reason(Reason::Global)))
    };
    let dispatched = apply(|settings| settings.mesh.ingress_service = "another".to_owned());
    assert_eq!(dispatched.woken, 0);
    Ok(())
}
