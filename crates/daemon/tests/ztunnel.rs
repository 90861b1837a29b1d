//! A ztunnel, or who does as one, learns of workloads, services and policies over real gRPC.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use canopus_api::{Kind, ObjectKey, Options as DecodeOptions, decode_documents};
use canopus_base::tree::Limits;
use canopus_daemon::control_plane::Mesh;
use canopus_daemon::push::{Cause, Dispatcher, Stamp};
use canopus_daemon::serve::grpc::Grpc;
use canopus_daemon::serve::tls::{self, Acceptor, Material, Policy};
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::value::Kind as ValueKind;
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_proto::istio::workload::{Address, address::Type as Told};
use canopus_runtime::flags::Flags;
use canopus_testkit::{Authority, Certified};
use canopus_xds::client::{AdsStream, Update};
use canopus_xds::server::Options;
use canopus_xds::session::{Protocol, Request, Wish};
use canopus_xds::types;
use tokio::net::TcpListener;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

const SERVER: &str = "istiod.istio-system.svc";
const IDENTITY: &str = "spiffe://cluster.local/ns/istio-system/sa/ztunnel";
const NODE: &str = "ztunnel~10.0.9.1~ztunnel-1.istio-system~istio-system.svc.cluster.local";
/// A question that is answered at once: whatever was to be said before it has been said.
const BARRIER: &str = "istio.io/debug/syncz";

const LOCAL: &str = "Kubernetes//Pod/shop/local";
const CART: &str = "Kubernetes//Pod/shop/cart";
const SERVICE: &str = "shop/cart.shop.svc.cluster.local";

fn pod(name: &str, address: &str, node: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop, labels: {{app: {name}}}}}, \
         spec: {{serviceAccountName: {name}, nodeName: {node}, containers: [{{name: app}}]}}, \
         status: {{podIP: {address}, phase: Running, conditions: [{{type: Ready, status: 'True'}}]}}}}"
    )
}

fn world() -> String {
    let service = "{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, \
                   spec: {clusterIP: 10.1.0.1, selector: {app: cart}, ports: [{name: http, port: 80}]}}";
    [pod("local", "10.0.0.1", "near"), pod("cart", "10.0.0.2", "far"), service.to_owned()].join("\n---\n")
}

/// A control plane of an ambient mesh.
struct Plane {
    dispatcher: Arc<Dispatcher>,
    authority: Authority,
    address: SocketAddr,
}

impl Plane {
    async fn start() -> Result<Self> {
        let engine = Engine::new();
        let mut batch = Batch::new();
        let flags = Flags::read(&[("PILOT_ENABLE_AMBIENT", "true")]);
        batch.set::<Settings>((), MeshSettings { flags: Arc::new(flags), ..MeshSettings::default() });
        engine.apply(batch);
        let authority = Authority::new()?;
        let Certified { certificate, key } = authority.server(SERVER)?;
        let root = authority.root();
        let material = Material::from_pem(certificate.as_bytes(), key.as_bytes(), root.as_bytes())?;
        let acceptor = Acceptor::fixed(tls::for_proxies(&material, &Policy::default(), &engine)?);
        let dispatcher = Dispatcher::unobserved(engine);
        let grpc = Grpc::new(Arc::new(Mesh::new(Arc::clone(&dispatcher))), Options::default());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { grpc.serve_tls(listener, acceptor, std::future::pending()).await });
        let plane = Self { dispatcher, authority, address };
        plane.apply(&world())?;
        Ok(plane)
    }

    fn apply(&self, documents: &str) -> Result<()> {
        let mut batch = Batch::new();
        let mut origins = Vec::new();
        for decoded in decode_documents(documents, &Limits::default(), DecodeOptions::watch()) {
            let object = decoded?.value;
            let origin = Origin::new("Kubernetes", object.key());
            batch.set::<Objects>(origin.clone(), object);
            origins.push(origin);
        }
        self.put(batch, origins);
        Ok(())
    }

    fn delete(&self, kind: Kind, name: &str) {
        let origin = Origin::new("Kubernetes", ObjectKey::new(kind, "shop", name));
        let mut batch = Batch::new();
        batch.remove::<Objects>(&origin);
        self.put(batch, vec![origin]);
    }

    fn put(&self, batch: Batch, origins: Vec<Origin>) {
        tokio::task::block_in_place(|| self.dispatcher.apply(batch, Cause::objects(Stamp::now(), origins)));
    }

    async fn ztunnel(&self) -> Result<Ztunnel> {
        let certified = self.authority.workload(&[IDENTITY])?;
        let channel = self.authority.channel(self.address, SERVER, Some(&certified)).await?;
        Ok(Ztunnel { channel, stream: None })
    }
}

/// A client that says what it is told to say, and acknowledges what it hears.
struct Ztunnel {
    channel: Channel,
    stream: Option<AdsStream>,
}

impl Ztunnel {
    /// Changes what it wants of a type, and hears what there is to say to that.
    async fn want(&mut self, type_url: &str, add: &[&str], drop: &[&str]) -> Result<Vec<Update>> {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let wish = Wish::Change { subscribe: owned(add), unsubscribe: owned(drop), held: Default::default() };
        self.say(type_url, "", wish).await?;
        self.hear().await
    }

    async fn say(&mut self, type_url: &str, nonce: &str, wish: Wish) -> Result<()> {
        let mut request =
            Request { type_url: type_url.to_owned(), node: None, nonce: nonce.to_owned(), error: None, wish };
        if let Some(stream) = &self.stream {
            return Ok(stream.send(request).await?);
        }
        let near = Value { kind: Some(ValueKind::StringValue("near".to_owned())) };
        let metadata = Struct { fields: [("NODE_NAME".to_owned(), near)].into() };
        request.node = Some(Node { id: NODE.to_owned(), metadata: Some(metadata), ..Default::default() });
        let opened =
            AdsStream::open(self.channel.clone(), Protocol::Delta, MetadataMap::new(), request).await?;
        self.stream = Some(opened);
        Ok(())
    }

    /// All the server has to say for now.
    async fn hear(&mut self) -> Result<Vec<Update>> {
        let nothing =
            || Wish::Change { subscribe: Vec::new(), unsubscribe: Vec::new(), held: Default::default() };
        self.say(BARRIER, "", nothing()).await?;
        let mut heard = Vec::new();
        loop {
            let stream = self.stream.as_mut().context("no stream")?;
            let Some(update) = stream.next().await? else { bail!("the stream ended") };
            if update.type_url == BARRIER {
                return Ok(heard);
            }
            self.say(&update.type_url, &update.nonce, nothing()).await?;
            heard.push(update);
        }
    }
}

/// The only response: what it brings and what it takes away.
fn only(updates: &[Update]) -> (Vec<&str>, Vec<&str>) {
    let [update] = updates else { panic!("not one response but {updates:?}") };
    (update.names(), update.removed.iter().map(String::as_str).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_told_and_followed_when_everything_is_asked_for() -> Result<()> {
    let plane = Plane::start().await?;
    let mut ztunnel = plane.ztunnel().await?;
    let first = ztunnel.want(types::ADDRESS, &[], &[]).await?;
    assert_eq!(only(&first), (vec![CART, LOCAL, SERVICE], vec![]));
    assert!(first[0].resources.iter().all(|it| it.aliases.is_empty()), "of no use to who has everything");

    plane.apply(&pod("late", "10.0.0.3", "far"))?;
    assert_eq!(only(&ztunnel.hear().await?), (vec!["Kubernetes//Pod/shop/late"], vec![]));
    plane.apply(&pod("late", "10.0.0.3", "far"))?;
    assert!(ztunnel.hear().await?.is_empty(), "nothing has changed");
    plane.delete(Kind::Pod, "late");
    assert_eq!(only(&ztunnel.hear().await?), (vec![], vec!["Kubernetes//Pod/shop/late"]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_of_the_node_come_first_and_others_on_demand() -> Result<()> {
    let plane = Plane::start().await?;
    let mut ztunnel = plane.ztunnel().await?;
    // All and at once not all: it wants to ask for single names.
    assert_eq!(only(&ztunnel.want(types::ADDRESS, &["*"], &["*"]).await?), (vec![LOCAL], vec![]));

    let found = ztunnel.want(types::ADDRESS, &["/10.1.0.1", "/10.9.9.9"], &[]).await?;
    assert_eq!(only(&found), (vec![CART, SERVICE], vec!["/10.9.9.9"]));
    let aliases: Vec<_> = found[0].resources.iter().flat_map(|it| it.aliases.clone()).collect();
    assert_eq!(aliases, ["/10.0.0.2", "/10.1.0.1"]);

    plane.apply(&pod("other", "10.0.0.3", "far"))?;
    assert!(ztunnel.hear().await?.is_empty(), "nobody asked");
    plane.apply(&pod("cart", "10.0.0.7", "far"))?;
    assert_eq!(only(&ztunnel.hear().await?), (vec![CART], vec![]));

    assert!(ztunnel.want(types::ADDRESS, &[], &["/10.1.0.1"]).await?.is_empty());
    plane.apply(&pod("cart", "10.0.0.8", "far"))?;
    assert!(ztunnel.hear().await?.is_empty(), "it is no longer wanted");
    plane.apply(&pod("local", "10.0.0.9", "near"))?;
    assert_eq!(only(&ztunnel.hear().await?), (vec![LOCAL], vec![]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_are_told_by_themselves_to_who_asks_for_that_type() -> Result<()> {
    let plane = Plane::start().await?;
    let mut client = plane.ztunnel().await?;
    assert_eq!(only(&client.want(types::WORKLOAD, &[], &[]).await?), (vec![CART, LOCAL], vec![]));
    plane.delete(Kind::Pod, "cart");
    assert_eq!(only(&client.hear().await?), (vec![], vec![CART]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workload_that_was_named_is_taken_back_and_told_again() -> Result<()> {
    // By its own name, by its address, and by the address of a service it stands behind.
    for name in [CART, "/10.0.0.2", "/10.1.0.1"] {
        let plane = Plane::start().await?;
        let mut ztunnel = plane.ztunnel().await?;
        ztunnel.want(types::ADDRESS, &["*"], &["*"]).await?;
        let found = ztunnel.want(types::ADDRESS, &[name], &[]).await?;
        assert!(only(&found).0.contains(&CART), "{name}: {found:?}");
        plane.delete(Kind::Pod, "cart");
        let told = ztunnel.hear().await?;
        let removed: Vec<_> = told.iter().flat_map(|update| &update.removed).collect();
        assert_eq!(removed, [CART], "{name}: {told:?}");
        plane.apply(&pod("cart", "10.0.0.2", "far"))?;
        let told = ztunnel.hear().await?;
        assert!(told.iter().any(|update| update.names().contains(&CART)), "{name}: {told:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_that_goes_leaves_no_reference_to_it() -> Result<()> {
    let plane = Plane::start().await?;
    let mut ztunnel = plane.ztunnel().await?;
    ztunnel.want(types::ADDRESS, &[], &[]).await?;
    ztunnel.want(types::AUTHORIZATION, &[], &[]).await?;
    let policy = |app: &str| {
        format!(
            "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, \
             metadata: {{name: deny, namespace: shop}}, \
             spec: {{selector: {{matchLabels: {{app: {app}}}}}, action: DENY, \
             rules: [{{from: [{{source: {{namespaces: [evil]}}}}]}}]}}}}"
        )
    };
    let referring = |updates: &[Update]| -> Result<Vec<(String, Vec<String>)>> {
        let mut found = Vec::new();
        let addresses = updates.iter().filter(|update| update.type_url == types::ADDRESS);
        for received in addresses.flat_map(|update| &update.resources) {
            let Some(Told::Workload(workload)) = received.body.unpack::<Address>()?.r#type else { continue };
            found.push((received.name.clone(), workload.authorization_policies));
        }
        Ok(found)
    };
    let refers = |name: &str| (name.to_owned(), vec!["shop/deny".to_owned()]);
    let refers_not = |name: &str| (name.to_owned(), Vec::new());

    // What names a policy comes after it, and goes before it.
    plane.apply(&policy("cart"))?;
    assert_eq!(only(&ztunnel.hear().await?), (vec!["shop/deny"], vec![]));
    assert_eq!(referring(&ztunnel.hear().await?)?, [refers(CART)]);
    // It selects another workload: its content is the same, so only who refers to it is told.
    plane.apply(&policy("local"))?;
    assert_eq!(referring(&ztunnel.hear().await?)?, [refers_not(CART), refers(LOCAL)]);
    plane.delete(Kind::AuthorizationPolicy, "deny");
    let told = ztunnel.hear().await?;
    assert_eq!(only(&told), (vec![LOCAL], vec![]));
    assert_eq!(referring(&told)?, [refers_not(LOCAL)]);
    let told = ztunnel.hear().await?;
    assert_eq!((only(&told), &*told[0].type_url), ((vec![], vec!["shop/deny"]), types::AUTHORIZATION));
    assert!(ztunnel.hear().await?.is_empty(), "everything is told once");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_are_told_and_taken_back() -> Result<()> {
    let plane = Plane::start().await?;
    let mut ztunnel = plane.ztunnel().await?;
    assert_eq!(only(&ztunnel.want(types::AUTHORIZATION, &[], &[]).await?), (vec![], vec![]));
    plane.apply(
        "{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: deny, namespace: shop}, \
         spec: {action: DENY, rules: [{from: [{source: {namespaces: [evil]}}]}]}}",
    )?;
    assert_eq!(only(&ztunnel.hear().await?), (vec!["shop/deny"], vec![]));
    plane.delete(Kind::AuthorizationPolicy, "deny");
    assert_eq!(only(&ztunnel.hear().await?), (vec![], vec!["shop/deny"]));
    Ok(())
}
