//! A mesh with a fleet as real ones are: workloads of several pods on nodes in three zones, ingress gateways and waypoints
//! among the proxies, and every pod and node known to the registry.

use std::collections::{BTreeMap, BTreeSet};

use canopus_api::{Object, Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_base::{FastMap, FastSet};
use canopus_engine::{Batch, Engine, Root};
use canopus_envoy::audience::{EndpointAudience, Shared, TableAudience};
use canopus_envoy::bundle::References;
use canopus_envoy::cluster::{ClusterList, ListedClusters};
use canopus_envoy::config_keys::ConfigKeysOf;
use canopus_envoy::endpoint::Assignment;
use canopus_envoy::listener::{ListedListeners, ListenerList};
use canopus_envoy::route_config::Routes;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::envoy::config::core::v3::{Locality, Node};
use canopus_proto::google::protobuf::{Struct, Value};

const NAMESPACES: usize = 10;
const KUBE_NODES: usize = 100;
const GATEWAYS: usize = 5;
const WAYPOINTS: usize = 5;

/// How large the mesh is.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) services: usize,
    pub(crate) proxies: usize,
}

/// What a pod is there for.
#[derive(Clone, Copy, PartialEq)]
enum Purpose {
    Sidecar,
    Gateway,
    Waypoint,
}

/// A pod with a proxy.
struct Pod {
    purpose: Purpose,
    /// Which workload of its purpose it belongs to.
    workload: usize,
    /// Index among all pods with a proxy.
    number: usize,
}

impl Size {
    fn workloads(self) -> usize {
        (self.proxies / 5).clamp(1, self.services)
    }

    fn pods(self) -> Vec<Pod> {
        let (gateways, waypoints) = (self.proxies / 10, self.proxies / 20);
        let sidecars = self.proxies - gateways - waypoints;
        let pod = |number: usize| {
            let (purpose, workload) = match number {
                _ if number < sidecars => (Purpose::Sidecar, number % self.workloads()),
                _ if number < sidecars + gateways => (Purpose::Gateway, number % GATEWAYS),
                _ => (Purpose::Waypoint, number % WAYPOINTS),
            };
            Pod { purpose, workload, number }
        };
        (0..self.proxies).map(pod).collect()
    }

    /// Every object of the mesh.
    pub(crate) fn objects(self) -> Vec<String> {
        let mut all: Vec<String> = (0..NAMESPACES).map(|at| kube_namespace(&team(at))).collect();
        all.extend(["istio-system", "istio-ingress"].map(kube_namespace));
        all.extend((0..KUBE_NODES).map(|at| kube_node(at, 0)));
        for at in 0..GATEWAYS {
            all.push(format!(
                "{{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {{name: ingress-{at}, namespace: istio-ingress}}, \
                 spec: {{selector: {{istio: ingress-{at}}}, servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, \
                 hosts: ['*.example.com']}}]}}}}"
            ));
        }
        for at in 0..WAYPOINTS {
            all.push(format!(
                "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: waypoint-{at}, \
                 namespace: {}, labels: {{istio.io/waypoint-for: service}}}}, spec: {{gatewayClassName: istio-waypoint, \
                 listeners: [{{name: mesh, port: 15008, protocol: HBONE}}]}}}}",
                team(at)
            ));
        }
        let pods = self.pods();
        all.extend(pods.iter().map(|pod| pod.object("", 0)));
        for service in 0..self.services {
            all.extend([self.service(service, ""), self.slice(service, true)]);
            if service.is_multiple_of(10) {
                all.extend([self.route(service, "", 5), self.ingress_route(service)]);
            }
        }
        all
    }

    /// A service, with this said of it besides its name.
    pub(crate) fn service(self, service: usize, metadata: &str) -> String {
        let (name, namespace) = (service_name(service), team(service));
        let waypoint = match service % 20 {
            3 => format!("istio.io/use-waypoint: waypoint-{}", service % NAMESPACES % WAYPOINTS),
            _ => format!("app: {name}"),
        };
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}, labels: {{{waypoint}}}{metadata}}}, \
             spec: {{clusterIP: 10.{}.{}.{}, selector: {{app: {name}}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}}}",
            96 + service / 62_500,
            service / 250 % 250,
            service % 250 + 1
        )
    }

    /// The endpoints of a service: the pods of its workload, or two that have no proxy. The last may not be ready.
    pub(crate) fn slice(self, service: usize, last_is_ready: bool) -> String {
        let (name, namespace) = (service_name(service), team(service));
        let pods = self.pods();
        let own = pods.iter().filter(|pod| pod.purpose == Purpose::Sidecar && pod.workload == service);
        let mut addresses: Vec<String> = own.map(Pod::address).collect();
        if addresses.is_empty() {
            addresses =
                (0..2).map(|at| format!("10.130.{}.{}", service / 100, service % 100 * 2 + at)).collect();
        }
        let last = addresses.len() - 1;
        let endpoints: Vec<String> = addresses
            .iter()
            .enumerate()
            .map(|(at, address)| {
                format!("{{addresses: [{address}], conditions: {{ready: {}}}}}", at != last || last_is_ready)
            })
            .collect();
        format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}, namespace: {namespace}, \
             labels: {{kubernetes.io/service-name: {name}}}}}, addressType: IPv4, ports: [{{name: http, port: 8080}}], \
             endpoints: [{}]}}",
            endpoints.join(", ")
        )
    }

    /// The routes to a service within the mesh, with this said of the object besides its name.
    pub(crate) fn route(self, service: usize, metadata: &str, timeout: usize) -> String {
        let (name, namespace) = (service_name(service), team(service));
        let host = format!("{name}.{namespace}.svc.cluster.local");
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: {name}, namespace: {namespace}{metadata}}}, \
             spec: {{hosts: [{host}], http: [{{timeout: {timeout}s, route: [{{destination: {{host: {host}}}}}]}}]}}}}"
        )
    }

    fn ingress_route(self, service: usize) -> String {
        let (name, namespace) = (service_name(service), team(service));
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: {name}-ingress, namespace: {namespace}}}, \
             spec: {{hosts: [{name}.example.com], gateways: [istio-ingress/ingress-{}], \
             http: [{{route: [{{destination: {{host: {name}.{namespace}.svc.cluster.local}}}}]}}]}}}}",
            service / 10 % GATEWAYS
        )
    }

    /// The pod of a proxy, with this said of it besides its name, at a beat of its status.
    pub(crate) fn pod(self, proxy: usize, metadata: &str, beat: usize) -> String {
        self.pods()[proxy].object(metadata, beat)
    }

    pub(crate) fn proxies(self) -> Vec<Proxy> {
        self.pods().iter().map(Pod::proxy).collect()
    }
}

impl Pod {
    fn name(&self) -> String {
        format!("{}-{:x}", self.app(), 0xa000 + self.number)
    }

    fn app(&self) -> String {
        match self.purpose {
            Purpose::Sidecar => service_name(self.workload),
            Purpose::Gateway => format!("ingress-{}", self.workload),
            Purpose::Waypoint => format!("waypoint-{}", self.workload),
        }
    }

    fn namespace(&self) -> String {
        match self.purpose {
            Purpose::Gateway => "istio-ingress".to_owned(),
            _ => team(self.workload),
        }
    }

    fn address(&self) -> String {
        format!("10.64.{}.{}", self.number / 250, self.number % 250 + 1)
    }

    fn kube_node(&self) -> usize {
        self.number * 37 % KUBE_NODES
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let app = self.app();
        let labels = [
            ("app".to_owned(), app.clone()),
            ("service.istio.io/canonical-name".to_owned(), app.clone()),
            ("topology.kubernetes.io/zone".to_owned(), zone(self.kube_node())),
        ];
        let own = match self.purpose {
            Purpose::Sidecar => vec![
                ("team".to_owned(), format!("team-{}", self.workload % 12)),
                ("version".to_owned(), format!("v{}", self.workload % 3)),
                ("track".to_owned(), if self.workload == 2 { "canary" } else { "stable" }.to_owned()),
            ],
            Purpose::Gateway => vec![("istio".to_owned(), app)],
            Purpose::Waypoint => vec![
                ("gateway.istio.io/managed".to_owned(), "istio.io-mesh-controller".to_owned()),
                ("gateway.networking.k8s.io/gateway-name".to_owned(), app),
            ],
        };
        labels.into_iter().chain(own).collect()
    }

    fn object(&self, metadata: &str, beat: usize) -> String {
        let labels: Vec<String> =
            self.labels().iter().map(|(key, value)| format!("{key}: {value}")).collect();
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {}, namespace: {}, labels: {{{}}}{metadata}}}, \
             spec: {{nodeName: {}, serviceAccountName: {}, containers: [{{name: app, ports: [{{name: http, containerPort: 8080}}]}}]}}, \
             status: {{phase: Running, podIP: {address}, podIPs: [{{ip: {address}}}], conditions: [{{type: Ready, status: 'True', \
             lastProbeTime: '{}'}}]}}}}",
            self.name(),
            self.namespace(),
            labels.join(", "),
            kube_node_name(self.kube_node()),
            self.app(),
            time(beat),
            address = self.address(),
        )
    }

    fn proxy(&self) -> Proxy {
        let text = |value: String| Value::from(value.as_str());
        let (app, namespace, node) = (self.app(), self.namespace(), kube_node_name(self.kube_node()));
        let labels = Struct::from(
            self.labels().into_iter().map(|(key, value)| (key, text(value))).collect::<BTreeMap<_, _>>(),
        );
        let metadata = BTreeMap::from([
            ("CLUSTER_ID".to_owned(), text("Kubernetes".to_owned())),
            ("INSTANCE_IPS".to_owned(), text(self.address())),
            ("ISTIO_VERSION".to_owned(), text("1.32.0".to_owned())),
            ("LABELS".to_owned(), Value::from(labels)),
            ("NAME".to_owned(), text(self.name())),
            ("NAMESPACE".to_owned(), text(namespace.clone())),
            ("NODE_NAME".to_owned(), text(node)),
            (
                "OWNER".to_owned(),
                text(format!("kubernetes://apis/apps/v1/namespaces/{namespace}/deployments/{app}")),
            ),
            ("SERVICE_ACCOUNT".to_owned(), text(app.clone())),
            ("WORKLOAD_NAME".to_owned(), text(app)),
        ]);
        let kind = match self.purpose {
            Purpose::Sidecar => "sidecar",
            Purpose::Gateway => "router",
            Purpose::Waypoint => "waypoint",
        };
        let node = Node {
            id: format!(
                "{kind}~{}~{}.{namespace}~{namespace}.svc.cluster.local",
                self.address(),
                self.name()
            ),
            metadata: Some(Struct::from(metadata)),
            locality: Some(Locality {
                region: "eu-west-1".to_owned(),
                zone: zone(self.kube_node()),
                ..Default::default()
            }),
            ..Default::default()
        };
        Proxy::new(&node, None).unwrap()
    }
}

fn service_name(service: usize) -> String {
    format!("svc-{service:05}")
}

fn team(at: usize) -> String {
    format!("team-{:03}", at % NAMESPACES)
}

fn zone(kube_node: usize) -> String {
    format!("eu-west-1{}", ["a", "b", "c"][kube_node % 3])
}

fn kube_node_name(at: usize) -> String {
    format!("ip-10-0-0-{at}.internal")
}

fn kube_namespace(name: &str) -> String {
    format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")
}

/// A Kubernetes node as its kubelet reports it at a beat.
pub(crate) fn kube_node(at: usize, beat: usize) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {}, resourceVersion: '{beat}', labels: {{topology.kubernetes.io/region: eu-west-1, \
         topology.kubernetes.io/zone: {}}}}}, spec: {{}}, status: {{addresses: [{{type: InternalIP, address: 10.0.0.{at}}}], \
         conditions: [{{type: Ready, status: 'True', lastHeartbeatTime: '{}'}}]}}}}",
        kube_node_name(at),
        zone(at),
        time(beat)
    )
}

fn time(second: usize) -> String {
    format!("2026-05-04T{:02}:{:02}:{:02}Z", second / 3600 % 24, second / 60 % 60, second % 60)
}

/// Decodes one object as a watch would.
pub(crate) fn decode(document: &str) -> (Origin, Object) {
    let object = decode_documents(document, &Limits::default(), Options::watch()).remove(0).unwrap().value;
    (Origin::new("Kubernetes", object.key()), object)
}

/// A batch that sets one object.
pub(crate) fn set(document: &str) -> Batch {
    let (origin, object) = decode(document);
    let mut batch = Batch::new();
    batch.set::<Objects>(origin, object);
    batch
}

/// An engine with the mesh and all that its proxies are sent, as the control plane watches it.
pub(crate) struct Fleet {
    pub(crate) engine: Engine,
    keys: Vec<Root<ConfigKeysOf>>,
    clusters: Vec<Root<ListedClusters>>,
    listeners: Vec<Root<ListedListeners>>,
    routes: Vec<Root<Routes>>,
    endpoints: Vec<Root<Assignment>>,
}

impl Fleet {
    pub(crate) fn new(size: Size) -> Self {
        let engine = Engine::new();
        let mut batch = Batch::new();
        batch.set::<Settings>((), MeshSettings::default());
        for document in size.objects() {
            let (origin, object) = decode(&document);
            batch.set::<Objects>(origin, object);
        }
        engine.apply(batch);
        let proxies = size.proxies();
        let keys = engine.watch_all::<ConfigKeysOf>(proxies.iter().cloned());
        let mut clusters: FastMap<Shared<ClusterList>, Root<ListedClusters>> = FastMap::default();
        let mut listeners: FastMap<Shared<ListenerList>, Root<ListedListeners>> = FastMap::default();
        let mut routes: FastSet<(TableAudience, String)> = FastSet::default();
        let mut endpoints: FastSet<(Shared<EndpointAudience>, String)> = FastSet::default();
        // Proxies of a workload refer to the same names: the references of one stand for all.
        let mut known: BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> = BTreeMap::new();
        for (at, proxy) in proxies.iter().enumerate() {
            let own = keys[at].value().unwrap();
            let watch = || engine.watch::<ListedClusters>(own.clusters.clone());
            let clusters = clusters.entry(own.clusters.clone()).or_insert_with(watch);
            let watch = || engine.watch::<ListedListeners>(own.listeners.clone());
            let listeners = listeners.entry(own.listeners.clone()).or_insert_with(watch);
            let workload = format!("{:?}/{}", proxy.id.kind, proxy.metadata.workload_name);
            let (tables, assignments) = known.entry(workload).or_insert_with(|| {
                let clusters: Vec<_> = clusters.value().unwrap().iter().cloned().collect();
                let listeners: Vec<_> = listeners.value().unwrap().iter().cloned().collect();
                let references = References::find(&clusters, &listeners);
                (references.routes, references.assignments)
            });
            let audiences = &own.audiences;
            routes.extend(tables.iter().map(|name| (audiences.routes.clone(), name.clone())));
            endpoints.extend(assignments.iter().map(|name| (audiences.endpoints.clone(), name.clone())));
        }
        let (clusters, listeners) = (clusters.into_values().collect(), listeners.into_values().collect());
        let (routes, endpoints) =
            (engine.watch_all::<Routes>(routes), engine.watch_all::<Assignment>(endpoints));
        Self { engine, keys, clusters, listeners, routes, endpoints }
    }

    /// How many results of each family are watched.
    pub(crate) fn watched(&self) -> [(&'static str, usize); 5] {
        [
            ("keys of proxies", self.keys.len()),
            ("lists of clusters", self.clusters.len()),
            ("lists of listeners", self.listeners.len()),
            ("route tables", self.routes.len()),
            ("assignments", self.endpoints.len()),
        ]
    }
}
