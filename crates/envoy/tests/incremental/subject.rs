//! What is watched: everything that a handful of proxies get.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use canopus_engine::{Engine, Options, Query, QueryError, Root, RootId};
use canopus_envoy::audience::{Audiences, AudiencesOf};
use canopus_envoy::bundle::References;
use canopus_envoy::cluster::Clusters;
use canopus_envoy::endpoint::Assignment;
use canopus_envoy::listener::Listeners;
use canopus_envoy::name_table::NameTables;
use canopus_envoy::resources::Resources;
use canopus_envoy::route_config::Routes;
use canopus_mesh::proxy::Proxy;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::envoy::config::listener::v3::{Filter, Listener, filter::ConfigType};
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_proto::istio::networking::nds::v1::NameTable;
use canopus_proto::resource::Resource;
use canopus_proto::{Message, Name};

/// How many results nobody watches an engine keeps.
pub(crate) const IDLE: usize = 50;

/// An engine without a world.
pub(crate) fn engine() -> Engine {
    Engine::with_options(Options { threads: 1, idle: IDLE })
}

/// The proxies: two sidecars and a gateway.
pub(crate) struct Proxies(Vec<Proxy>);

impl Proxies {
    pub(crate) fn new() -> Self {
        let places = [
            ("sidecar", "a", "x", "10.0.0.1"),
            ("sidecar", "b", "w", "10.0.1.2"),
            ("router", "a", "z", "10.0.0.3"),
        ];
        Self(places.map(|(kind, space, name, ip)| proxy(kind, space, name, ip)).into())
    }
}

fn proxy(kind: &str, space: &str, name: &str, ip: &str) -> Proxy {
    let labels = BTreeMap::from([("app", name), ("istio", "gw")]);
    let labels: BTreeMap<_, _> =
        labels.into_iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect();
    let fields = [
        ("NAMESPACE", space),
        ("CLUSTER_ID", "Kubernetes"),
        ("INSTANCE_IPS", ip),
        ("ISTIO_VERSION", "1.32.0"),
    ];
    let mut fields: BTreeMap<_, _> =
        fields.into_iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect();
    fields.insert("LABELS".to_owned(), Value::from(Struct::from(labels)));
    let node = Node {
        id: format!("{kind}~{ip}~{name}.{space}~{space}.svc.cluster.local"),
        metadata: Some(Struct::from(fields)),
        ..Node::default()
    };
    Proxy::new(&node, None).unwrap()
}

/// The value of any root.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RootValue {
    Audiences(Audiences),
    Many(Arc<Resources>),
    One(Arc<Option<Resource>>),
    Table(Arc<Resource>),
    Failed(QueryError),
}

/// Any root.
enum Any {
    Audiences(Root<AudiencesOf>),
    Clusters(Root<Clusters>),
    Listeners(Root<Listeners>),
    Assignment(Root<Assignment>),
    Routes(Root<Routes>),
    Names(Root<NameTables>),
}

fn held<T>(value: Result<Arc<T>, QueryError>, wrap: impl Fn(Arc<T>) -> RootValue) -> RootValue {
    value.map_or_else(RootValue::Failed, wrap)
}

fn audiences(audiences: Arc<Audiences>) -> RootValue {
    RootValue::Audiences(audiences.as_ref().clone())
}

impl Any {
    fn id(&self) -> RootId {
        match self {
            Self::Audiences(root) => root.id(),
            Self::Clusters(root) => root.id(),
            Self::Listeners(root) => root.id(),
            Self::Assignment(root) => root.id(),
            Self::Routes(root) => root.id(),
            Self::Names(root) => root.id(),
        }
    }

    fn value(&self) -> RootValue {
        match self {
            Self::Audiences(root) => held(root.value(), audiences),
            Self::Clusters(root) => held(root.value(), RootValue::Many),
            Self::Listeners(root) => held(root.value(), RootValue::Many),
            Self::Assignment(root) => held(root.value(), RootValue::One),
            Self::Routes(root) => held(root.value(), RootValue::One),
            Self::Names(root) => held(root.value(), RootValue::Table),
        }
    }

    /// The value that another engine has.
    fn value_in(&self, engine: &Engine) -> RootValue {
        match self {
            Self::Audiences(root) => held(engine.get::<AudiencesOf>(root.key()), audiences),
            Self::Clusters(root) => held(engine.get::<Clusters>(root.key()), RootValue::Many),
            Self::Listeners(root) => held(engine.get::<Listeners>(root.key()), RootValue::Many),
            Self::Assignment(root) => held(engine.get::<Assignment>(root.key()), RootValue::One),
            Self::Routes(root) => held(engine.get::<Routes>(root.key()), RootValue::One),
            Self::Names(root) => held(engine.get::<NameTables>(root.key()), RootValue::Table),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Audiences(root) => described(root),
            Self::Clusters(root) => described(root),
            Self::Listeners(root) => described(root),
            Self::Assignment(root) => described(root),
            Self::Routes(root) => described(root),
            Self::Names(root) => described(root),
        }
    }
}

fn described<Q: Query>(root: &Root<Q>) -> String {
    format!("{}({:?})", Q::NAME, root.key())
}

/// What all proxies get, each resource by its own root, as connected proxies ask for them.
pub(crate) struct Watched<'a> {
    proxies: &'a Proxies,
    roots: BTreeMap<RootId, Any>,
}

impl<'a> Watched<'a> {
    pub(crate) fn new(engine: &Engine, proxies: &'a Proxies) -> Self {
        let mut watched = Self { proxies, roots: BTreeMap::new() };
        watched.follow(engine);
        watched
    }

    /// Asks for what proxies would ask for now, and no longer for the rest.
    pub(crate) fn follow(&mut self, engine: &Engine) {
        let mut roots = BTreeMap::new();
        let mut keep = |root: Any| roots.insert(root.id(), root);
        for proxy in &self.proxies.0 {
            let own = engine.watch::<AudiencesOf>(proxy.clone());
            let clusters = engine.watch::<Clusters>(proxy.clone());
            let listeners = engine.watch::<Listeners>(proxy.clone());
            let audiences = own.value().unwrap();
            let list = |value: Result<Arc<Resources>, QueryError>| -> Vec<Resource> {
                value.unwrap().iter().cloned().collect()
            };
            let references = References::find(&list(clusters.value()), &list(listeners.value()));
            for name in references.assignments {
                keep(Any::Assignment(engine.watch::<Assignment>((audiences.endpoints.clone(), name))));
            }
            for name in references.routes {
                keep(Any::Routes(engine.watch::<Routes>((audiences.routes.clone(), name))));
            }
            keep(Any::Names(engine.watch::<NameTables>(audiences.names.clone())));
            keep(Any::Audiences(own));
            keep(Any::Clusters(clusters));
            keep(Any::Listeners(listeners));
        }
        self.roots = roots;
    }

    /// All values.
    pub(crate) fn values(&self) -> BTreeMap<RootId, RootValue> {
        self.roots.iter().map(|(id, root)| (*id, root.value())).collect()
    }

    /// The roots whose value is not what it was, ascending.
    pub(crate) fn differing(&self, before: &BTreeMap<RootId, RootValue>) -> Vec<RootId> {
        let now = self.values();
        before.iter().filter(|(id, value)| now.get(id) != Some(value)).map(|(id, _)| *id).collect()
    }

    /// The roots whose value is not that of another engine.
    pub(crate) fn unlike(&self, engine: &Engine) -> Vec<String> {
        let unlike = self.roots.values().filter(|root| root.value() != root.value_in(engine));
        unlike.map(Any::name).collect()
    }

    /// The resources that take more bytes than the messages they are: something was written twice, or nothing at length.
    pub(crate) fn overlong(&self) -> Vec<String> {
        let all = |root: &Any| match root {
            Any::Clusters(root) => overlong(root.value().unwrap().iter(), is_longer::<Cluster>),
            Any::Listeners(root) => overlong(root.value().unwrap().iter(), is_longer_listener),
            Any::Routes(root) => overlong(root.value().unwrap().iter(), is_longer::<RouteConfiguration>),
            Any::Names(root) => overlong([&*root.value().unwrap()], is_longer::<NameTable>),
            Any::Audiences(_) | Any::Assignment(_) => Vec::new(),
        };
        self.roots.values().flat_map(all).collect()
    }
}

fn overlong<'a>(
    resources: impl IntoIterator<Item = &'a Resource>,
    is_longer: impl Fn(&Bytes) -> bool,
) -> Vec<String> {
    let overlong = resources.into_iter().filter(|resource| is_longer(&resource.body));
    overlong.map(|resource| resource.name.to_string()).collect()
}

fn is_longer<M: Message + Default>(body: &Bytes) -> bool {
    M::decode(body.clone()).unwrap().encoded_len() != body.len()
}

fn is_longer_listener(body: &Bytes) -> bool {
    let listener = Listener::decode(body.clone()).unwrap();
    let chains = listener.filter_chains.iter().chain(&listener.default_filter_chain);
    let mut filters = chains.flat_map(|chain| &chain.filters);
    let is_longer_manager = |filter: &Filter| match &filter.config_type {
        Some(ConfigType::TypedConfig(config)) if config.type_url == HttpConnectionManager::type_url() => {
            is_longer::<HttpConnectionManager>(&config.value)
        }
        _ => false,
    };
    listener.encoded_len() != body.len() || filters.any(is_longer_manager)
}
