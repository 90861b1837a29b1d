//! What the control plane tells about itself, under `/debug`.
//!
//! One table of endpoints answers over HTTP and over xDS alike: a [`Question`] goes in, an [`Answer`] comes out. Shapes and
//! access rules are Istio's, because istioctl and scripts read them; what Istio has no word for is added beside it.

mod access;
mod activity;
mod ambient;
mod answer;
mod certificates;
mod changes;
mod clients;
mod config_dump;
mod http;
mod index;
mod leaders;
mod objects;
mod pushes;
mod quarantine;
mod query;
mod redact;
mod registry;
mod scope;
mod settings;
#[cfg(test)]
mod tests;
mod waste;
mod what_if;
mod why;
mod xds;

use std::sync::Arc;

use bytes::Bytes;
use canopus_controllers::election::Leaders;
use canopus_engine::{Engine, QueryError};
use canopus_mesh::world::{MeshSettings, Settings};
use canopus_runtime::flags::{Flag, UNSAFE_ENABLE_ADMIN_ENDPOINTS, types::Bool};
use canopus_sources::kubernetes::RemoteRegistry;

pub use access::{Authenticator, Caller};
pub use answer::Answer;
pub use http::routes;
pub use query::Parameters;

use crate::forecast::Forecast;
use crate::object_history::ObjectHistory;
use crate::push::{Connection, Dispatcher, Ledger};
use crate::quarantine::Quarantine;
use crate::source_statuses::SourceStatuses;

/// Answers questions about the mesh and the clients that are connected.
pub struct Debug {
    dispatcher: Arc<Dispatcher>,
    ledger: Arc<Ledger>,
    history: Arc<ObjectHistory>,
    quarantine: Arc<Quarantine>,
    sources: Arc<SourceStatuses>,
    remote: RemoteRegistry,
    leaders: Leaders,
    /// When certificates expire, where somebody can tell.
    forecast: Option<Arc<Forecast>>,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The endpoint: what follows `/debug/`.
    pub endpoint: String,
    /// What follows the question mark.
    pub parameters: Parameters,
    /// The caller that asks, which decides what it may see.
    pub caller: Caller,
    /// What is sent with the question, where the endpoint reads it.
    pub body: Bytes,
}

impl Question {
    /// A question as it is written behind `/debug/`: an endpoint, and parameters behind a question mark.
    pub fn parse(text: &str, caller: Caller) -> Self {
        let (endpoint, parameters) = text.split_once('?').unwrap_or((text, ""));
        Self {
            endpoint: endpoint.to_owned(),
            parameters: Parameters::parse(parameters),
            caller,
            body: Bytes::new(),
        }
    }
}

type Handler = fn(&Debug, &Question) -> Result<Answer, QueryError>;

/// One row of the table.
struct Endpoint {
    name: &'static str,
    /// Shown in the index.
    help: &'static str,
    /// Ways to call it that are worth a line of their own in the index.
    variants: &'static [(&'static str, &'static str)],
    /// Whether Istio has it too; only those are in the list that istioctl completes from.
    istio: bool,
    handler: Handler,
}

const fn endpoint(name: &'static str, help: &'static str, handler: Handler) -> Endpoint {
    Endpoint { name, help, variants: &[], istio: true, handler }
}

const fn own(name: &'static str, help: &'static str, handler: Handler) -> Endpoint {
    Endpoint { name, help, variants: &[], istio: false, handler }
}

/// Every endpoint but the index, in the order of their names.
const ENDPOINTS: &[Endpoint] = &[
    own(
        "activity",
        "What happens now: pushes, proxies that are behind, the costliest objects",
        Debug::activity,
    ),
    Endpoint {
        variants: &[("push=true", "Have all clients looked after at once")],
        ..endpoint("adsz", "Clients and what each of them watches", Debug::adsz)
    },
    endpoint("ambientz", "Workloads, services and policies for ztunnel", Debug::ambientz),
    endpoint("authorizationz", "AuthorizationPolicies by namespace", Debug::authorizationz),
    Endpoint {
        variants: &[
            ("clear=true", "Forget cached resources"),
            ("sizes=true", "How large cached resources are"),
        ],
        ..endpoint("cachez", "Cached resources", Debug::cachez)
    },
    Endpoint {
        variants: &[(
            "role=gateway",
            "Of one role: root, intermediate, signing, server, webhook, gateway, workload",
        )],
        ..own("certificates", "Certificates the mesh relies on, and when each expires", Debug::certificates)
    },
    own("changes", "Objects that changed between two moments, with both values", Debug::changes),
    endpoint("clusterz", "Clusters that services and endpoints are read from", Debug::clusterz),
    endpoint("config_dump", "Everything a proxy gets, as Envoy's own dump shows it", Debug::config_dump),
    endpoint("configz", "All configuration objects", Debug::configz),
    endpoint("connections", "Clients, by connection", Debug::connections),
    own("convergence", "Objects whose last change some client does not have yet", Debug::convergence),
    own("costs", "What changes of each object have cost: pushes, messages, bytes", Debug::costs),
    own(
        "diagnostics",
        "Objects that are valid and yet wrong: dangling references, conflicts",
        Debug::diagnostics,
    ),
    endpoint("ecdsz", "Extensions a proxy gets", Debug::ecdsz),
    endpoint("edsz", "Endpoints a proxy gets", Debug::edsz),
    endpoint("endpointShardz", "Endpoints by service and registry", Debug::endpoint_shardz),
    endpoint("endpointz", "The same as endpointShardz", Debug::endpoint_shardz),
    own("envoyfilterz", "What became of each patch of the EnvoyFilters of a proxy", Debug::envoyfilterz),
    endpoint("force_disconnect", "End the stream of a proxy", Debug::force_disconnect),
    endpoint("inject", "Templates of the sidecar injector", Debug::inject),
    endpoint("instancesz", "The services each client stands for", Debug::instancesz),
    endpoint("krtz", "What the engine has computed", Debug::krtz),
    own("leaders", "Who holds the locks of controllers", Debug::leaders),
    own("ledger", "The latest pushes: cause, recipients, size, acknowledgement", Debug::ledger),
    endpoint("list", "Names of the endpoints as JSON", Debug::list),
    endpoint("mcsz", "Services of the multi-cluster API", Debug::mcsz),
    endpoint("mesh", "The mesh configuration in force", Debug::mesh),
    endpoint("ndsz", "Names the agent of a proxy answers for", Debug::ndsz),
    endpoint("networkz", "Gateways between networks", Debug::networkz),
    endpoint("push_status", "Problems found by the last push", Debug::push_status),
    endpoint("pushcontext", "Policies and networks in force", Debug::pushcontext),
    own("quarantine", "Objects held back because proxies reject their effect; rejections", Debug::quarantine),
    endpoint("registryz", "All services", Debug::registryz),
    endpoint("resourcesz", "Kinds of objects that are read", Debug::resourcesz),
    endpoint("sidecarz", "What a proxy can see", Debug::sidecarz),
    endpoint("syncz", "How far each client is", Debug::syncz),
    endpoint("telemetryz", "Telemetry objects, or what they mean for a proxy", Debug::telemetryz),
    own("wastez", "Resources that were generated, and how many of them nobody had", Debug::wastez),
    own("what_if", "What the objects in the body would change at which proxies", Debug::what_if),
    own("why", "The objects a resource of a proxy was made from", Debug::why),
    own("world", "Services, endpoints and policies with the objects behind them", Debug::world),
];

impl Debug {
    /// Answers about the engine and the sessions of this dispatcher.
    pub fn new(dispatcher: Arc<Dispatcher>) -> Self {
        Self {
            dispatcher,
            ledger: Arc::default(),
            history: Arc::default(),
            quarantine: Arc::default(),
            sources: Arc::default(),
            remote: RemoteRegistry::default(),
            leaders: Leaders::default(),
            forecast: None,
        }
    }

    /// Tells which pushes there were and what became of them.
    #[must_use]
    pub fn with_ledger(self, ledger: Arc<Ledger>) -> Self {
        Self { ledger, ..self }
    }

    /// Tells which values objects had.
    #[must_use]
    pub fn with_history(self, history: Arc<ObjectHistory>) -> Self {
        Self { history, ..self }
    }

    /// Tells what is held back because proxies reject it.
    #[must_use]
    pub fn with_quarantine(self, quarantine: Arc<Quarantine>) -> Self {
        Self { quarantine, ..self }
    }

    /// Tells what leads to remote clusters.
    #[must_use]
    pub fn with_remote_clusters(self, remote: RemoteRegistry) -> Self {
        Self { remote, ..self }
    }

    /// Tells who holds which lock.
    #[must_use]
    pub fn with_leaders(self, leaders: Leaders) -> Self {
        Self { leaders, ..self }
    }

    /// Tells how sources are doing.
    #[must_use]
    pub fn with_sources(self, sources: Arc<SourceStatuses>) -> Self {
        Self { sources, ..self }
    }

    /// Tells when certificates expire.
    #[must_use]
    pub fn with_forecast(self, forecast: Arc<Forecast>) -> Self {
        Self { forecast: Some(forecast), ..self }
    }

    /// Answers a question, if its caller may ask it.
    pub fn answer(&self, question: &Question) -> Answer {
        let Some(endpoint) = self.find(&question.endpoint) else { return Answer::not_found() };
        if !self.may_ask(&question.caller, endpoint.name) {
            return Answer::forbidden();
        }
        (endpoint.handler)(self, question).unwrap_or_else(|error| Answer::failed(&error))
    }

    /// Whether a feature is on.
    pub(crate) fn flag(&self, flag: Flag<Bool>) -> bool {
        self.settings().flags.get(flag)
    }

    /// Whether there is such an endpoint.
    pub fn knows(&self, endpoint: &str) -> bool {
        self.find(endpoint).is_some()
    }

    fn find(&self, name: &str) -> Option<&'static Endpoint> {
        self.endpoints().find(|endpoint| endpoint.name == name)
    }

    /// The endpoints there are: some only if the process is told so.
    fn endpoints(&self) -> impl Iterator<Item = &'static Endpoint> {
        let admin = self.settings().flags.get(UNSAFE_ENABLE_ADMIN_ENDPOINTS);
        ENDPOINTS.iter().filter(move |endpoint| admin || endpoint.name != "force_disconnect")
    }

    fn engine(&self) -> &Engine {
        self.dispatcher.engine()
    }

    fn settings(&self) -> Arc<MeshSettings> {
        self.engine().read::<Settings>(&()).unwrap_or_default()
    }

    /// The client a question is about, or what to answer where there is none its caller may see.
    fn client(&self, question: &Question) -> Result<Arc<Connection>, Answer> {
        let name = question.parameters.get("proxyID").filter(|name| !name.is_empty());
        let Some(name) = name else { return Err(Answer::no_proxy_named()) };
        let found = self.find_client(name).filter(|found| self.may_see(&question.caller, found));
        found.ok_or_else(Answer::not_connected)
    }

    /// The client a question may be about; `None` if it names none.
    fn optional_client(&self, question: &Question) -> Result<Option<Arc<Connection>>, Answer> {
        if question.parameters.get("proxyID").is_none_or(str::is_empty) {
            return Ok(None);
        }
        self.client(question).map(Some)
    }

    /// The client of this proxy, else the first whose connection contains the text in its name.
    fn find_client(&self, name: &str) -> Option<Arc<Connection>> {
        let connections = self.dispatcher.connections();
        if let Some(found) = connections.connections_of_proxy(name).pop() {
            return Some(found);
        }
        let mut all = self.clients();
        all.retain(|connection| connection.name().contains(name));
        all.into_iter().next()
    }

    /// All clients, in the order of their names.
    fn clients(&self) -> Vec<Arc<Connection>> {
        let mut all = self.dispatcher.connections().all();
        all.sort_by_cached_key(|connection| connection.name());
        all
    }
}
