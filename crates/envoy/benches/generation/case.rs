//! The inputs of Istio's benchmarks.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use canopus_api::decode::Options as Decoding;
use canopus_api::{Object, decode_documents};
use canopus_base::spiffe::Identity;
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine, Options};
use canopus_envoy::bundle::References;
use canopus_envoy::listener::Listeners;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::{
    EnvoyFileAccessLogProvider, Provider, envoy_file_access_log_provider as log,
};
use canopus_proto::istio::mesh::v1alpha1::network::istio_network_gateway::Gw;
use canopus_proto::istio::mesh::v1alpha1::network::{IstioNetworkGateway, NetworkEndpoints};
use canopus_proto::istio::mesh::v1alpha1::{MeshNetworks, Network};
use canopus_runtime::flags::Flags;

use crate::{Wanted, template};

/// Name, services, instances, kind of proxy, and the types that are generated.
const CASES: [(&str, usize, usize, &str, &[&str]); 15] = [
    ("gateways", 1000, 0, "router", &["RDS", "CDS", "LDS"]),
    ("gateways-shared", 1000, 0, "router", &["RDS", "CDS", "LDS"]),
    ("knative-gateway", 100, 0, "router", &["RDS", "CDS", "LDS"]),
    ("http", 100, 0, "sidecar", &["RDS", "CDS", "LDS"]),
    ("tcp", 100, 0, "sidecar", &["CDS", "LDS"]),
    ("tls", 100, 0, "sidecar", &["CDS", "LDS"]),
    ("auto", 100, 0, "sidecar", &["RDS", "CDS", "LDS"]),
    ("strict", 0, 0, "sidecar", &["LDS"]),
    ("disabled", 0, 0, "sidecar", &["LDS"]),
    ("externalname", 100, 0, "sidecar", &["RDS", "CDS", "LDS"]),
    ("telemetry-api", 100, 0, "sidecar", &["RDS", "CDS", "LDS"]),
    ("virtualservice", 100, 0, "sidecar", &["RDS", "CDS", "LDS"]),
    ("authorizationpolicy", 100, 0, "sidecar", &["LDS"]),
    ("serviceentry-workloadentry", 100, 1000, "sidecar", &["RDS", "CDS", "LDS"]),
    ("waypoint", 100, 0, "waypoint", &["CDS", "LDS"]),
];

/// Services and endpoints of each, of the endpoint benchmarks.
const ENDPOINTS: [(usize, usize); 4] = [(100, 1), (10, 10), (10, 100), (1, 1000)];

/// The mesh is ambient, but flags that follow from that are as they would otherwise be.
const FLAGS: [(&str, &str); 3] = [
    ("PILOT_ENABLE_AMBIENT", "true"),
    ("PILOT_ENABLE_SENDING_HBONE", "false"),
    ("PILOT_ENABLE_SIDECAR_LISTENING_HBONE", "false"),
];

/// One input.
pub(crate) struct Case {
    pub(crate) name: String,
    objects: Vec<Object>,
    networks: MeshNetworks,
    kind: &'static str,
    pub(crate) types: &'static [&'static str],
    services: usize,
}

/// Every input; `None` if the corpus is not there.
pub(crate) fn read_all() -> Option<Vec<Case>> {
    let folder = corpus();
    if !folder.is_dir() {
        return None;
    }
    let read = |name: &str| fs::read_to_string(folder.join(format!("templates/{name}.yaml"))).unwrap();
    let case = |name: &str, template: &str, services, instances, kind, types| Case {
        name: name.to_owned(),
        objects: objects(&template::render(&read(template), services, instances)),
        networks: MeshNetworks::default(),
        kind,
        types,
        services,
    };
    let mut cases: Vec<Case> = CASES
        .into_iter()
        .map(|(name, services, instances, kind, types)| case(name, name, services, instances, kind, types))
        .collect();
    cases.push(case("tcp-1000", "tcp", 1000, 0, "sidecar", &["NDS"]));
    cases.extend(ENDPOINTS.into_iter().map(|(services, endpoints)| Case {
        name: format!("{services}x{endpoints}"),
        objects: objects(&endpoints_in_networks(services, endpoints)),
        networks: networks(),
        kind: "sidecar",
        types: &["EDS"],
        services,
    }));
    Some(cases)
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance/xds-benchmarks")
}

/// The objects of a stream; those without a namespace are of the default one.
fn objects(documents: &str) -> Vec<Object> {
    let mut text = String::new();
    for document in documents.split("\n---") {
        // One input leaves out separators; Istio takes what is said last.
        let document = document.rfind("\napiVersion:").map_or(document, |at| &document[at..]);
        let document = if document.contains("\n  namespace:") {
            document.to_owned()
        } else {
            document.replacen("metadata:", "metadata:\n  namespace: default", 1)
        };
        write!(text, "{document}\n---").unwrap();
    }
    decode_documents(text, &Limits::default(), Decoding::watch())
        .into_iter()
        .map(|outcome| outcome.unwrap().value)
        .collect()
}

/// Entries whose endpoints are in four networks.
fn endpoints_in_networks(services: usize, endpoints: usize) -> String {
    let mut text = String::new();
    for (name, namespace, selector, mode) in [
        ("global", "istio-system", "", "PERMISSIVE"),
        ("namespace", "default", "", "DISABLE"),
        ("selector", "default", "  selector: {matchLabels: {type: eds-benchmark}}\n", "DISABLE"),
    ] {
        write!(
            text,
            "\n---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata:\n  name: {name}\n  \
             namespace: {namespace}\nspec:\n{selector}  mtls: {{mode: {mode}}}\n"
        )
        .unwrap();
    }
    for service in 0..services {
        write!(
            text,
            "\n---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata:\n  name: foo-{service}\n  \
             namespace: default\nspec:\n  hosts: [foo-{service}.com]\n  resolution: STATIC\n  ports: [{{number: 80, \
             name: http-port, protocol: HTTP}}]\n  endpoints:\n"
        )
        .unwrap();
        for at in 0..endpoints {
            writeln!(
                text,
                "  - {{address: 111.{}.{}.{}, network: network-{}, serviceAccount: something, labels: {{type: \
                 eds-benchmark, app: foo-{service}}}}}",
                at / 65_536,
                at / 256 % 256,
                at % 256,
                at % 4
            )
            .unwrap();
        }
    }
    text
}

fn networks() -> MeshNetworks {
    let network = |at: usize| Network {
        gateways: vec![IstioNetworkGateway {
            port: 15443,
            gw: Some(Gw::Address(format!("35.0.0.{at}"))),
            ..Default::default()
        }],
        endpoints: Vec::<NetworkEndpoints>::new(),
    };
    MeshNetworks { networks: (0..4).map(|at| (format!("network-{at}"), network(at))).collect() }
}

impl Case {
    /// A world of this input.
    pub(crate) fn engine(&self, options: Options) -> Engine {
        let mut settings = MeshSettings {
            flags: Arc::new(Flags::read(&FLAGS)),
            networks: self.networks.clone(),
            ..MeshSettings::default()
        };
        let format =
            log::LogFormat { log_format: Some(log::log_format::LogFormat::Labels(Struct::default())) };
        settings.mesh.extension_providers.push(ExtensionProvider {
            name: "envoy-json".to_owned(),
            provider: Some(Provider::EnvoyFileAccessLog(EnvoyFileAccessLogProvider {
                path: "/dev/stdout".to_owned(),
                log_format: Some(format),
                ..Default::default()
            })),
        });
        let mut batch = Batch::new();
        batch.set::<Settings>((), settings);
        for object in &self.objects {
            batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object.clone());
        }
        let engine = Engine::with_options(options);
        engine.apply(batch);
        engine
    }

    /// One of the proxies that share a view.
    pub(crate) fn proxy(&self, number: usize) -> Proxy {
        let text = |value: &str| Value::from(value);
        let labels = Struct::from(BTreeMap::from([("istio.io/benchmark".to_owned(), text("true"))]));
        let metadata = BTreeMap::from([
            ("CLUSTER_ID".to_owned(), text("Kubernetes")),
            ("NAMESPACE".to_owned(), text("default")),
            ("ISTIO_VERSION".to_owned(), text("1.26.0")),
            ("LABELS".to_owned(), Value::from(labels)),
        ]);
        let node = Node {
            id: format!("{}~1.1.1.1~v{number}.default~default.example.org", self.kind),
            metadata: Some(Struct::from(metadata)),
            ..Default::default()
        };
        let identity = Identity {
            trust_domain: "cluster.local".into(),
            namespace: "default".into(),
            service_account: "default".into(),
        };
        Proxy::new(&node, Some(identity)).unwrap()
    }

    /// What the proxy asks for of a type.
    pub(crate) fn wanted(&self, kind: &str) -> Wanted {
        match kind {
            "CDS" => Wanted::Clusters,
            "LDS" => Wanted::Listeners,
            "NDS" => Wanted::Names,
            "EDS" => {
                let name = |at: usize| format!("outbound|80||foo-{at}.com");
                Wanted::Endpoints((0..self.services).map(name).collect())
            }
            _ => {
                let listeners = self.engine(Options::default()).get::<Listeners>(&self.proxy(0)).unwrap();
                let listeners: Vec<_> = listeners.iter().cloned().collect();
                Wanted::Routes(References::find(&[], &listeners).routes)
            }
        }
    }

    /// Whether every type is generated for it.
    pub(crate) fn is_general(&self) -> bool {
        self.types.len() == 3
    }
}
