//! The control plane and its HTTP routes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Request, header};
use canopus_api::{Object, ObjectKey, mesh_config};
use canopus_base::spiffe;
use canopus_daemon::authentication::{Authenticators, Caller};
use canopus_daemon::certificate_authority::{IssuedCertificates, Signers, lifetimes, profile};
use canopus_daemon::control_plane::Mesh;
use canopus_daemon::debug::{Authenticator, Debug};
use canopus_daemon::http::identity_documents::IdentityDocuments;
use canopus_daemon::http::{self, Served};
use canopus_daemon::metrics::{AdmissionMetrics, CallMetrics, IssuingMetrics, Metrics, collect_model};
use canopus_daemon::push::{Cause, Connections, Dispatcher, Ledger, Observer, Observers, Stamp};
use canopus_daemon::serve::grpc::Grpc;
use canopus_daemon::serve::issuing::Issuing;
use canopus_daemon::serve::webhook::{self, Admission};
use canopus_daemon::spans::Tracer;
use canopus_engine::{Batch, Engine};
use canopus_identity::authority::Authority;
use canopus_identity::bundle::{Bundle, Parts};
use canopus_identity::service::CertificateService;
use canopus_mesh::credential::{Account, SecretAccess};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use canopus_runtime::flags::Flags;
use canopus_runtime::metrics::catalogue::PILOT_INFO;
use canopus_runtime::metrics::{self, Registry};
use canopus_runtime::ready::Readiness;
use canopus_runtime::version::BuildInfo;
use canopus_sources::Update;
use canopus_xds::server::Options;
use http_body_util::BodyExt;
use rustls::pki_types::UnixTime;
use tokio::runtime::Runtime;
use tower_service::Service;

use super::client::{Client, Response};
use super::world::{RecordedProxy, World};

const CLUSTER: &str = "Kubernetes";

/// Who asks, and how: a service account, or nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) namespace: String,
    pub(crate) account: String,
}

impl Identity {
    fn spiffe(&self) -> anyhow::Result<spiffe::Identity> {
        Ok(spiffe::Identity::new("cluster.local", &self.namespace, &self.account)?)
    }
}

/// A running control plane.
pub(crate) struct Plane {
    runtime: Runtime,
    mesh: Arc<Mesh>,
    admin: Router,
    monitoring: Router,
    webhooks: Router,
    grpc: Grpc,
    pub(crate) metrics: Registry,
    counts: Arc<Metrics>,
}

/// An HTTP answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    pub(crate) body: String,
}

impl Plane {
    /// Starts in a world, with these feature flags.
    pub(crate) fn start(world: &World, flags: &[(&str, &str)]) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let default = MeshSettings::default();
        let mesh = mesh_config::apply("accessLogFile: /dev/stdout", &default.mesh)?.value;
        let variables: BTreeMap<String, String> =
            flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let settings = MeshSettings { mesh, flags: Arc::new(Flags::read(&variables)), ..default };
        let mut batch = Batch::new();
        batch.set::<Settings>((), settings);
        for proxy in &world.proxies {
            let account = Account {
                cluster: CLUSTER.into(),
                namespace: proxy.namespace.as_str().into(),
                name: proxy.account.as_str().into(),
            };
            batch.set::<SecretAccess>(account, true);
        }
        let metrics = Registry::new();
        let counts = Arc::new(Metrics::new(&metrics));
        metrics::register_build(&metrics, "pilot", &BuildInfo::current());
        metrics.family(PILOT_INFO).with([&BuildInfo::current().to_string()]).set(1.0);
        let engine = Engine::new();
        engine.apply(batch);
        let ledger = Ledger::new(Observers::new([counts.clone() as Arc<dyn Observer>]));
        let observers = Observers::new([counts.clone() as Arc<dyn Observer>, ledger.clone()]);
        let dispatcher = Dispatcher::new(engine, Connections::new(observers.clone()), observers);
        collect_model(&metrics, &dispatcher, ledger.clone(), Arc::default());
        let debug = Arc::new(Debug::new(Arc::clone(&dispatcher)).with_ledger(ledger));
        let served = Served {
            readiness: Readiness::new(),
            metrics: metrics.clone(),
            debug,
            authenticator: Arc::new(Tokens),
            documents: IdentityDocuments::default(),
        };
        let (admin, monitoring) = (http::admin(served.clone()), http::monitoring(served));
        let mesh = Arc::new(Mesh::new(dispatcher));
        let admission = Admission {
            metrics: Arc::new(AdmissionMetrics::new(&metrics)),
            tracer: Arc::new(Tracer::off()),
            injection: None,
        };
        let webhooks = webhook::router(admission);
        let grpc = Grpc::new(Arc::clone(&mesh), Options::default())
            .counting(CallMetrics::new(&metrics))
            .issuing(Some(issuing(&mesh, &Flags::read(&variables), &metrics)?));
        let plane = Self { runtime, mesh, admin, monitoring, webhooks, grpc, metrics, counts };
        plane.update(world.objects.clone(), &[])?;
        Ok(plane)
    }

    /// Takes objects as a source would give them: some are as given now, some are gone.
    pub(crate) fn update(&self, set: Vec<Object>, gone: &[ObjectKey]) -> anyhow::Result<()> {
        let mut update = Update::default();
        for object in set {
            update.changes.insert((CLUSTER.into(), object.key()), Some(object));
        }
        for key in gone {
            update.changes.insert((CLUSTER.into(), key.clone()), None);
        }
        self.take(&update);
        Ok(())
    }

    /// What the apply loop does with an update.
    fn take(&self, update: &Update) {
        let dispatcher = self.mesh.dispatcher();
        self.counts.updated(dispatcher.engine(), update);
        let mut batch = Batch::new();
        let origin = |(cluster, key): &(Arc<str>, ObjectKey)| Origin::new(cluster.clone(), key.clone());
        for (key, object) in &update.changes {
            match object {
                Some(object) => batch.set::<Objects>(origin(key), object.clone()),
                None => batch.remove::<Objects>(&origin(key)),
            };
        }
        dispatcher.apply(batch, Cause::objects(Stamp::now(), update.changes.keys().map(origin)));
    }

    /// Connects a proxy of the world and has it ask for everything it asks for.
    pub(crate) fn connect(&self, proxy: &RecordedProxy) -> anyhow::Result<Client> {
        let identity = Identity { namespace: proxy.namespace.clone(), account: proxy.account.clone() };
        let identity = Some(vec![identity.spiffe()?]);
        self.runtime.block_on(async {
            let opened = Client::open(Arc::clone(&self.mesh), proxy.node.clone(), identity).await;
            let mut client = opened.map_err(|refusal| anyhow!("{refusal}"))?;
            for (type_url, names) in &proxy.subscriptions {
                client.follow(type_url, names, proxy.rejects.contains(type_url))?;
            }
            Ok(client)
        })
    }

    /// Asks one question on a stream of its own; `secure` is whether the transport can prove identities.
    pub(crate) fn ask(
        &self,
        node: canopus_proto::envoy::config::core::v3::Node,
        secure: bool,
        identity: Option<&Identity>,
        type_url: &str,
        names: &[String],
    ) -> anyhow::Result<Result<Response, canopus_xds::Refusal>> {
        let identity = identity.map(Identity::spiffe).transpose()?;
        Ok(self.runtime.block_on(async {
            let proven = secure.then(|| identity.into_iter().collect());
            let mut client = Client::open(Arc::clone(&self.mesh), node, proven).await?;
            client.ask(type_url, names)
        }))
    }

    /// Sends an HTTP request to the admin port from an address.
    pub(crate) fn get(
        &self,
        method: &str,
        path: &str,
        peer: SocketAddr,
        token: Option<&str>,
    ) -> anyhow::Result<Answer> {
        self.send(self.admin.clone(), method, path, peer, token)
    }

    /// Sends an HTTP request to the monitoring port from an address.
    pub(crate) fn get_monitoring(&self, path: &str, peer: SocketAddr) -> anyhow::Result<Answer> {
        self.send(self.monitoring.clone(), "GET", path, peer, None)
    }

    /// Asks for a certificate on a connection with TLS, as whoever the client's certificate names.
    pub(crate) fn create_certificate(
        &self,
        identity: Option<&Identity>,
        message: IstioCertificateRequest,
    ) -> anyhow::Result<Result<(), tonic::Status>> {
        let identities = identity.map(Identity::spiffe).transpose()?;
        let identities = identities.iter().map(ToString::to_string).collect();
        let mut request = tonic::Request::new(message);
        request.extensions_mut().insert(Caller { address: None, identities: Some(identities) });
        let mut client = IstioCertificateServiceClient::new(self.grpc.clone());
        Ok(self.runtime.block_on(client.create_certificate(request)).map(drop))
    }

    /// Sends the validation webhook a body of this type.
    pub(crate) fn validate(&self, content_type: &str, body: String) -> anyhow::Result<()> {
        let mut router = self.webhooks.clone();
        let request =
            Request::post("/validate").header(header::CONTENT_TYPE, content_type).body(Body::from(body))?;
        // The webhook hands its thread over, which only those of the runtime can do.
        let answered = self.runtime.spawn(async move { router.call(request).await });
        self.runtime.block_on(answered)?.context("the router failed")?;
        Ok(())
    }

    fn send(
        &self,
        mut router: Router,
        method: &str,
        path: &str,
        peer: SocketAddr,
        token: Option<&str>,
    ) -> anyhow::Result<Answer> {
        let mut request = Request::builder().method(method).uri(path).extension(ConnectInfo(peer));
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Body::empty())?;
        self.runtime.block_on(async {
            let response = router.call(request).await.context("the router failed")?;
            let (head, body) = response.into_parts();
            let content_type =
                head.headers.get(header::CONTENT_TYPE).map(|value| value.to_str().map(str::to_owned));
            Ok(Answer {
                status: head.status.as_u16(),
                content_type: content_type.transpose()?,
                body: String::from_utf8(body.collect().await?.to_bytes().to_vec())?,
            })
        })
    }
}

/// A certificate authority with a root of its own, which believes certificates alone.
fn issuing(mesh: &Mesh, flags: &Flags, registry: &Registry) -> anyhow::Result<Issuing> {
    let now = UnixTime::now();
    let (certificate, key) = profile(flags, "cluster.local")?.create(now)?;
    let certificate = certificate.to_pem()?.into_bytes();
    let key = key.to_pem()?.as_bytes().to_vec().into();
    let parts = Parts { roots: certificate.clone(), certificate, key, ..Parts::default() };
    let bundle = Arc::new(Bundle::new(&parts, now)?);
    let authority = Arc::new(Authority::with_bundle(lifetimes(flags), bundle));
    let service = CertificateService::new(Arc::new(IssuingMetrics::new(registry, &authority)));
    let authenticators = Authenticators::certificates(mesh.dispatcher().engine().clone());
    let issued = Arc::new(IssuedCertificates::default());
    Ok(Issuing::new(service, Signers::new(authority)?, Arc::new(authenticators), issued))
}

/// Takes `Bearer <namespace>/<account>` for a token of that account: who signs tokens is another matter.
struct Tokens;

impl Authenticator for Tokens {
    fn authenticate<'a>(
        &'a self,
        _: Option<SocketAddr>,
        headers: &'a HeaderMap,
    ) -> Pin<Box<dyn Future<Output = Option<spiffe::Identity>> + Send + 'a>> {
        let identity = headers.get(header::AUTHORIZATION).and_then(|value| {
            let (namespace, account) = value.to_str().ok()?.strip_prefix("Bearer ")?.split_once('/')?;
            spiffe::Identity::new("cluster.local", namespace, account).ok()
        });
        Box::pin(std::future::ready(identity))
    }
}
