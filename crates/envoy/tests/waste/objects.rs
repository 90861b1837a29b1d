//! The objects of a mesh, as YAML.

use std::env;

/// The region of all nodes.
pub(crate) const REGION: &str = "eu-west-1";
const ZONES: usize = 3;

/// The namespace of ingress gateways.
const INGRESS: &str = "istio-ingress";
/// The namespace whose proxies see little, by a Sidecar.
const EDGE: &str = "edge";

/// How large a mesh is. Its objects follow from the numbers alone.
#[derive(Clone, Debug)]
pub(crate) struct Mesh {
    pub(crate) services: usize,
    pub(crate) namespaces: usize,
    /// Deployments with sidecars, each behind the service of its number.
    pub(crate) workloads: usize,
    /// Pods of each Deployment with sidecars.
    replicas: usize,
    gateways: usize,
    gateway_replicas: usize,
    waypoints: usize,
    waypoint_replicas: usize,
    edge_pods: usize,
    nodes: usize,
}

/// What a pod is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Serves the service of its number, with a sidecar.
    Sidecar,
    /// Serves the service of its number, outside the mesh.
    Plain,
    /// Calls others, with a sidecar that sees little.
    Edge,
    Gateway,
    Waypoint,
}

#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) purpose: Purpose,
    pub(crate) namespace: String,
    /// The number of its Deployment.
    index: usize,
    replica: usize,
    /// How often its Deployment was restarted before.
    generation: usize,
    nodes: usize,
}

impl Pod {
    /// The pod that takes its place when the Deployment is restarted.
    pub(crate) fn restarted(&self) -> Self {
        Self { generation: self.generation + 1, ..self.clone() }
    }

    pub(crate) fn app(&self) -> String {
        match self.purpose {
            Purpose::Sidecar | Purpose::Plain => service_name(self.index),
            Purpose::Edge => "edge-client".to_owned(),
            Purpose::Gateway => format!("ingress-{}", self.index),
            Purpose::Waypoint => format!("waypoint-{}", self.index),
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("{}-{}-{}", self.app(), self.generation, self.replica)
    }

    pub(crate) fn address(&self) -> String {
        let net = match self.purpose {
            Purpose::Sidecar => 64,
            Purpose::Plain => 80,
            Purpose::Edge => 96,
            Purpose::Gateway => 112,
            Purpose::Waypoint => 128,
        };
        let at = self.index * 32 + self.replica;
        format!("10.{}.{}.{}", net + self.generation, at / 250, at % 250 + 1)
    }

    fn node_index(&self) -> usize {
        (self.index + 37 * self.replica + 11 * self.generation) % self.nodes
    }

    pub(crate) fn node(&self) -> String {
        format!("node-{}", self.node_index())
    }

    pub(crate) fn zone(&self) -> String {
        format!("{REGION}-{}", self.node_index() % ZONES)
    }

    pub(crate) fn labels(&self) -> Vec<(String, String)> {
        let app = self.app();
        let version = format!("v{}", self.index % 3 + 1);
        let track = if self.index == 2 && self.purpose == Purpose::Sidecar { "canary" } else { "stable" };
        let mut labels = match self.purpose {
            Purpose::Waypoint => vec![
                ("gateway.istio.io/managed", "istio.io-mesh-controller"),
                ("gateway.networking.k8s.io/gateway-class-name", "istio-waypoint"),
                ("gateway.networking.k8s.io/gateway-name", &app),
                ("istio.io/dataplane-mode", "none"),
            ],
            Purpose::Gateway => vec![("app", &*app), ("istio", &app)],
            _ => vec![("app", &*app), ("version", &version), ("track", track)],
        };
        if !matches!(self.purpose, Purpose::Plain | Purpose::Waypoint) {
            labels.push(("security.istio.io/tlsMode", "istio"));
        }
        if self.purpose != Purpose::Plain {
            labels.push(("service.istio.io/canonical-name", &app));
            labels.push(("service.istio.io/canonical-revision", &version));
        }
        let zone = self.zone();
        labels.push(("topology.kubernetes.io/region", REGION));
        labels.push(("topology.kubernetes.io/zone", &zone));
        labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    pub(crate) fn object(&self) -> String {
        let mut labels: Vec<_> =
            self.labels().iter().map(|(key, value)| format!("{key}: '{value}'")).collect();
        labels.push(format!("pod-template-hash: 'hash-{}-{}'", self.index, self.generation));
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {}, namespace: {}, labels: {{{}}}}}, spec: {{nodeName: {}, \
             serviceAccountName: {}, containers: [{{name: app, image: example}}]}}, status: {{phase: Running, podIP: {ip}, \
             podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: 'True'}}]}}}}",
            self.name(),
            self.namespace,
            labels.join(", "),
            self.node(),
            self.app(),
            ip = self.address(),
        )
    }

    fn endpoint(&self) -> String {
        format!(
            "{{addresses: [{}], conditions: {{ready: true, serving: true, terminating: false}}, nodeName: {}, zone: {}, \
             targetRef: {{kind: Pod, name: {}, namespace: {}}}}}",
            self.address(),
            self.node(),
            self.zone(),
            self.name(),
            self.namespace
        )
    }
}

fn service_name(service: usize) -> String {
    format!("svc-{service:05}")
}

fn istio(api: &str, kind: &str, namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: {api}, kind: {kind}, metadata: {{name: {name}, namespace: {namespace}}}, spec: {spec}}}"
    )
}

fn networking(kind: &str, namespace: &str, name: &str, spec: &str) -> String {
    istio("networking.istio.io/v1", kind, namespace, name, spec)
}

impl Mesh {
    /// Small, unless the environment asks for a thousand proxies.
    pub(crate) fn from_environment() -> Self {
        #[expect(clippy::disallowed_methods, reason = "whoever starts the test may want a larger fleet")]
        let is_full = env::var("CANOPUS_FLEET").is_ok_and(|size| size == "full");
        match is_full {
            true => Self {
                services: 1000,
                namespaces: 10,
                workloads: 210,
                replicas: 4,
                gateways: 5,
                gateway_replicas: 20,
                waypoints: 5,
                waypoint_replicas: 10,
                edge_pods: 10,
                nodes: 100,
            },
            false => Self {
                services: 100,
                namespaces: 4,
                workloads: 12,
                replicas: 4,
                gateways: 3,
                gateway_replicas: 2,
                waypoints: 2,
                waypoint_replicas: 2,
                edge_pods: 2,
                nodes: 10,
            },
        }
    }

    fn namespace(&self, number: usize) -> String {
        format!("team-{:03}", number % self.namespaces)
    }

    fn host(&self, service: usize) -> String {
        format!("{}.{}.svc.cluster.local", service_name(service), self.namespace(service))
    }

    fn pods(&self, purpose: Purpose, index: usize, replicas: usize) -> Vec<Pod> {
        let namespace = match purpose {
            Purpose::Edge => EDGE.to_owned(),
            Purpose::Gateway => INGRESS.to_owned(),
            _ => self.namespace(index),
        };
        let pod = |replica| Pod {
            purpose,
            namespace: namespace.clone(),
            index,
            replica,
            generation: 0,
            nodes: self.nodes,
        };
        (0..replicas).map(pod).collect()
    }

    /// The pods behind a service.
    pub(crate) fn pods_of(&self, service: usize) -> Vec<Pod> {
        match service < self.workloads {
            true => self.pods(Purpose::Sidecar, service, self.replicas),
            false => self.plain_pods(service),
        }
    }

    pub(crate) fn plain_pods(&self, service: usize) -> Vec<Pod> {
        self.pods(Purpose::Plain, service, 2)
    }

    /// The pods that have a proxy.
    pub(crate) fn proxied_pods(&self) -> Vec<Pod> {
        let sidecars = (0..self.workloads).flat_map(|at| self.pods(Purpose::Sidecar, at, self.replicas));
        let gateways =
            (0..self.gateways).flat_map(|at| self.pods(Purpose::Gateway, at, self.gateway_replicas));
        let waypoints =
            (0..self.waypoints).flat_map(|at| self.pods(Purpose::Waypoint, at, self.waypoint_replicas));
        let edge = self.pods(Purpose::Edge, 0, self.edge_pods);
        sidecars.chain(gateways).chain(waypoints).chain(edge).collect()
    }

    /// Every object.
    pub(crate) fn objects(&self) -> Vec<String> {
        let mut objects = Vec::new();
        let own = (0..self.namespaces).map(|number| self.namespace(number));
        for name in own.chain([EDGE, INGRESS, "istio-system"].map(str::to_owned)) {
            objects.push(format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"));
        }
        for at in 0..self.nodes {
            objects.push(format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: node-{at}, labels: {{topology.kubernetes.io/region: {REGION}, \
                 topology.kubernetes.io/zone: {REGION}-{}}}}}}}",
                at % ZONES
            ));
        }
        let plain = (self.workloads..self.services).flat_map(|service| self.plain_pods(service));
        objects.extend(self.proxied_pods().into_iter().chain(plain).map(|pod| pod.object()));
        for service in 0..self.services {
            objects.push(self.service(service));
            objects.push(self.slice(service, &self.pods_of(service)));
        }
        objects.extend((0..self.services).step_by(10).map(|service| self.virtual_service(service, 5)));
        objects.extend((5..self.services).step_by(10).map(|service| self.ingress_route(service, 5)));
        (0..self.gateways).for_each(|at| objects.extend(self.gateway(at)));
        objects.push(
            "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: istio-waypoint}, spec: \
             {controllerName: istio.io/mesh-controller}}"
                .to_owned(),
        );
        (0..self.waypoints).for_each(|at| objects.extend(self.waypoint(at)));
        let seen = format!("{{egress: [{{hosts: ['./*', '{}/*']}}]}}", self.namespace(0));
        objects.push(networking("Sidecar", EDGE, "default", &seen));
        let narrow = format!("{{exportTo: ['.'], hosts: [{}], http: {}}}", self.host(0), self.routes(0, 5));
        objects.push(networking("VirtualService", EDGE, "narrow", &narrow));
        objects
    }

    pub(crate) fn service(&self, service: usize) -> String {
        self.service_with(service, "")
    }

    fn service_with(&self, service: usize, more: &str) -> String {
        let (name, namespace) = (service_name(service), self.namespace(service));
        let waypoint = match (0..self.waypoints).find(|at| self.namespace(*at) == namespace) {
            Some(at) if service % 20 == at => format!(", istio.io/use-waypoint: waypoint-{at}"),
            _ => String::new(),
        };
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}, labels: {{app: \
             {name}{waypoint}}}}}, spec: {{{more}clusterIP: 10.200.{}.{}, selector: {{app: {name}}}, ports: [{{name: http, \
             port: 80, targetPort: 8080}}]}}}}",
            service / 250,
            service % 250 + 1
        )
    }

    /// A service whose endpoints each proxy has of its own node.
    pub(crate) fn node_local_service(&self, service: usize) -> String {
        self.service_with(service, "internalTrafficPolicy: Local, ")
    }

    /// A service whose endpoints each proxy prefers that are in its zone.
    pub(crate) fn zonal_service(&self, service: usize) -> String {
        self.service_with(service, "trafficDistribution: PreferClose, ")
    }

    pub(crate) fn slice(&self, service: usize, pods: &[Pod]) -> String {
        slice(&self.namespace(service), &service_name(service), ("http", 8080), pods)
    }

    fn routes(&self, service: usize, timeout: usize) -> String {
        format!(
            "[{{name: main, timeout: {timeout}s, retries: {{attempts: 2, perTryTimeout: 1s}}, route: [{{destination: {{host: \
             {}}}}}]}}]",
            self.host(service)
        )
    }

    pub(crate) fn virtual_service(&self, service: usize, timeout: usize) -> String {
        let spec = format!("{{hosts: [{}], http: {}}}", self.host(service), self.routes(service, timeout));
        networking("VirtualService", &self.namespace(service), &service_name(service), &spec)
    }

    /// How a service is reached from outside the mesh.
    pub(crate) fn ingress_route(&self, service: usize, timeout: usize) -> String {
        let (name, gateway) = (service_name(service), service / 10 % self.gateways);
        let spec = format!(
            "{{hosts: [{name}.example.com], gateways: [{INGRESS}/ingress-{gateway}], http: {}}}",
            self.routes(service, timeout)
        );
        networking("VirtualService", &self.namespace(service), &format!("{name}-ingress"), &spec)
    }

    /// A route that counts for callers of one label only.
    pub(crate) fn route_by_source_labels(&self, service: usize) -> String {
        let host = self.host(service);
        let spec = format!(
            "{{hosts: [{host}], http: [{{match: [{{sourceLabels: {{track: canary}}}}], timeout: 9s, route: [{{destination: \
             {{host: {host}}}}}]}}, {{route: [{{destination: {{host: {host}}}}}]}}]}}"
        );
        networking("VirtualService", &self.namespace(service), &service_name(service), &spec)
    }

    /// A rule for the calls that one workload makes to a service.
    pub(crate) fn destination_rule_for_workload(&self, workload: usize, service: usize) -> String {
        let spec = format!(
            "{{host: {}, workloadSelector: {{matchLabels: {{app: {}}}}}, trafficPolicy: {{connectionPool: {{tcp: \
             {{maxConnections: 7}}}}}}}}",
            self.host(service),
            service_name(workload)
        );
        networking("DestinationRule", &self.namespace(workload), "calls", &spec)
    }

    pub(crate) fn destination_rule_with_failover(&self, service: usize) -> String {
        let spec = format!(
            "{{host: {}, trafficPolicy: {{outlierDetection: {{}}, loadBalancer: {{localityLbSetting: {{enabled: true}}}}}}}}",
            self.host(service)
        );
        networking("DestinationRule", &self.namespace(service), &service_name(service), &spec)
    }

    /// A patch for the workload whose label `track` is `canary`.
    pub(crate) fn envoy_filter(&self) -> String {
        let spec = "{workloadSelector: {labels: {track: canary}}, configPatches: [{applyTo: LISTENER, match: {context: \
                    SIDECAR_INBOUND, listener: {name: virtualInbound}}, patch: {operation: MERGE, value: \
                    {per_connection_buffer_limit_bytes: 65536}}}]}";
        istio("networking.istio.io/v1alpha3", "EnvoyFilter", &self.namespace(2), "filter", spec)
    }

    pub(crate) fn authorization_policy(&self, workload: usize) -> String {
        let spec = format!(
            "{{selector: {{matchLabels: {{app: {}}}}}, action: DENY, rules: [{{to: [{{operation: {{paths: [/no]}}}}]}}]}}",
            service_name(workload)
        );
        istio("security.istio.io/v1", "AuthorizationPolicy", &self.namespace(workload), "guard", &spec)
    }

    pub(crate) fn telemetry(&self, workload: usize) -> String {
        let spec = format!(
            "{{selector: {{matchLabels: {{app: {}}}}}, accessLogging: [{{providers: [{{name: envoy}}]}}]}}",
            service_name(workload)
        );
        istio("telemetry.istio.io/v1", "Telemetry", &self.namespace(workload), "log", &spec)
    }

    fn gateway(&self, at: usize) -> Vec<String> {
        let name = format!("ingress-{at}");
        let spec = format!(
            "{{selector: {{istio: {name}}}, servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: \
             ['*.example.com']}}]}}"
        );
        let pods = self.pods(Purpose::Gateway, at, self.gateway_replicas);
        let selector = format!("istio: {name}");
        let mut objects = vec![networking("Gateway", INGRESS, &name, &spec)];
        objects.extend(fronting(INGRESS, &name, &selector, ("http", 80, 8080), &pods));
        objects
    }

    fn waypoint(&self, at: usize) -> Vec<String> {
        let (name, namespace) = (format!("waypoint-{at}"), self.namespace(at));
        let gateway = format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: {name}, namespace: {namespace}, \
             labels: {{istio.io/waypoint-for: service}}}}, spec: {{gatewayClassName: istio-waypoint, listeners: [{{name: \
             mesh, port: 15008, protocol: HBONE, allowedRoutes: {{namespaces: {{from: Same}}}}}}]}}, status: {{addresses: \
             [{{type: Hostname, value: {name}.{namespace}.svc.cluster.local}}]}}}}"
        );
        let pods = self.pods(Purpose::Waypoint, at, self.waypoint_replicas);
        let selector = format!("gateway.networking.k8s.io/gateway-name: {name}");
        let mut objects = vec![gateway];
        objects.extend(fronting(&namespace, &name, &selector, ("mesh", 15008, 15008), &pods));
        objects
    }
}

/// The Service and EndpointSlice of a gateway or waypoint.
fn fronting(
    namespace: &str,
    name: &str,
    selector: &str,
    (port_name, port, target): (&str, u16, u16),
    pods: &[Pod],
) -> [String; 2] {
    let service = format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}}}}}, spec: \
         {{clusterIP: 10.201.{}.{}, selector: {{{selector}}}, ports: [{{name: {port_name}, port: {port}, targetPort: \
         {target}}}]}}}}",
        port % 250,
        name.bytes().map(usize::from).sum::<usize>() % 250 + 1
    );
    [service, slice(namespace, name, (port_name, target), pods)]
}

fn slice(namespace: &str, name: &str, (port_name, port): (&str, u16), pods: &[Pod]) -> String {
    let endpoints: Vec<_> = pods.iter().map(Pod::endpoint).collect();
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}, namespace: {namespace}, labels: \
         {{kubernetes.io/service-name: {name}}}}}, addressType: IPv4, ports: [{{name: {port_name}, port: {port}, protocol: \
         TCP}}], endpoints: [{}]}}",
        endpoints.join(", ")
    )
}
