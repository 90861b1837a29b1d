//! The objects of a small world: a few names in a few namespaces, in forms that refer to each other.

use canopus_api::{Kind, Object, ObjectKey, Options};
use canopus_base::tree::Limits;
use canopus_base::yaml;
use canopus_mesh::world::Origin;

/// The kinds there are. Later entries of one kind are objects of another cluster.
pub(crate) const KINDS: [(Kind, &str); 19] = [
    (Kind::Service, HERE),
    (Kind::Service, THERE),
    (Kind::EndpointSlice, HERE),
    (Kind::EndpointSlice, THERE),
    (Kind::Pod, HERE),
    (Kind::ServiceEntry, HERE),
    (Kind::WorkloadEntry, HERE),
    (Kind::VirtualService, HERE),
    (Kind::VirtualService, HERE),
    (Kind::DestinationRule, HERE),
    (Kind::Sidecar, HERE),
    (Kind::Gateway, HERE),
    (Kind::PeerAuthentication, HERE),
    (Kind::AuthorizationPolicy, HERE),
    (Kind::Telemetry, HERE),
    (Kind::EnvoyFilter, HERE),
    (Kind::RequestAuthentication, HERE),
    (Kind::WasmPlugin, HERE),
    (Kind::Namespace, HERE),
];

const HERE: &str = "Kubernetes";
const THERE: &str = "elsewhere";
const SPACES: [&str; 3] = ["a", "b", "istio-system"];
const NAMES: [&str; 3] = ["x", "w", "z"];

/// A place for an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) kind: usize,
    pub(crate) space: usize,
    pub(crate) name: usize,
}

impl Slot {
    fn kind(self) -> Kind {
        KINDS[self.kind].0
    }

    /// What names the object.
    pub(crate) fn origin(self) -> Origin {
        let (space, name) = match self.kind() {
            Kind::Namespace => ("", SPACES[self.space]),
            _ => (SPACES[self.space], NAMES[self.name]),
        };
        Origin::new(KINDS[self.kind].1, ObjectKey::new(self.kind(), space, name))
    }

    /// The object in one of its forms.
    pub(crate) fn object(self, form: u8) -> Object {
        let origin = self.origin();
        // Ages repeat, and the clock of whoever made the object may be far off.
        let year = [2020, 2021, 1970, 2999][usize::from(form) % 4];
        let text = format!(
            "metadata: {{name: {}, namespace: '{}', creationTimestamp: '{year}-01-01T00:00:00Z', {}}}\n{}",
            origin.name(),
            origin.namespace(),
            self.metadata(form),
            self.body(form)
        );
        let node =
            yaml::parse_one(&text, &Limits::default()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        Object::decode_as(self.kind(), &node, Options::watch())
            .unwrap_or_else(|error| panic!("{error}\n{text}"))
            .value
    }

    fn metadata(self, form: u8) -> String {
        let name = NAMES[self.name];
        let bit = |n: u8| form & (1 << n) != 0;
        match self.kind() {
            Kind::EndpointSlice => format!("labels: {{kubernetes.io/service-name: {name}}}"),
            Kind::Pod => {
                let version = if bit(0) { "v1" } else { "v2" };
                let tls = if bit(1) { "security.istio.io/tlsMode: istio" } else { "a: b" };
                format!("labels: {{app: {name}, version: {version}, {tls}, istio: gw}}")
            }
            Kind::Namespace if bit(0) => "labels: {mesh: 'on'}".to_owned(),
            Kind::Namespace if bit(1) => "labels: {topology.istio.io/network: far}".to_owned(),
            Kind::Service if form == 31 => "annotations: {networking.istio.io/exportTo: .}".to_owned(),
            // No query reads the annotations of these kinds.
            _ => format!("annotations: {{note: '{form}'}}"),
        }
    }

    fn body(self, form: u8) -> String {
        let name = NAMES[self.name];
        let other = NAMES[(self.name + 1) % NAMES.len()];
        let bit = |n: u8| form & (1 << n) != 0;
        let either = |n: u8, yes: &'static str, no: &'static str| if bit(n) { yes } else { no };
        let address = |host: usize| format!("10.0.{}.{}", self.space, host + 1);
        match self.kind() {
            Kind::Service => {
                let port = either(0, "{name: http, port: 80, targetPort: 8080}", "{name: tcp, port: 80}");
                let more = either(1, ", {name: grpc, port: 90}", "");
                // Several services may claim one address.
                let ip = match form >> 3 {
                    0 => "None".to_owned(),
                    1 => "10.1.0.99".to_owned(),
                    _ => format!("10.1.{}.{}", self.space, self.name + 1),
                };
                let near = match form >> 2 {
                    5 => "internalTrafficPolicy: Local, ",
                    6 => "trafficDistribution: PreferClose, ",
                    _ => "",
                };
                format!("spec: {{{near}clusterIP: {ip}, selector: {{app: {name}}}, ports: [{port}{more}]}}")
            }
            Kind::EndpointSlice => {
                let ready = |n| either(n, "true", "false");
                format!(
                    "addressType: IPv4\nports: [{{name: http, port: 8080}}, {{name: tcp, port: 80}}]\nendpoints: \
                     [{{addresses: [{}], conditions: {{ready: {}}}}}, {{addresses: [{}], conditions: {{ready: {}}}, \
                     zone: z{}}}]",
                    address(self.name),
                    ready(0),
                    address(usize::from(form >> 2) + 1),
                    ready(1),
                    form % 3
                )
            }
            Kind::Pod => format!(
                "spec: {{serviceAccountName: {}, nodeName: n1}}\nstatus: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}]}}",
                either(2, "one", "two"),
                ip = address(self.name)
            ),
            Kind::ServiceEntry => {
                let host = match form % 4 {
                    0 => format!("{name}.example.com"),
                    1 => "shared.example.com".to_owned(),
                    2 => format!("{name}.a.svc.cluster.local"),
                    _ => "'*.wild.com'".to_owned(),
                };
                let how = match form >> 2 {
                    0 => format!("resolution: STATIC, endpoints: [{{address: {}}}]", address(self.name)),
                    1 => format!("resolution: STATIC, workloadSelector: {{labels: {{app: {name}}}}}"),
                    2 => "resolution: DNS".to_owned(),
                    3 => "resolution: NONE".to_owned(),
                    4 => "resolution: STATIC, addresses: [10.1.0.99], exportTo: [.]".to_owned(),
                    _ => "resolution: DNS_ROUND_ROBIN, location: MESH_INTERNAL".to_owned(),
                };
                format!(
                    "spec: {{hosts: [{host}], {how}, ports: [{{number: 80, name: http, protocol: HTTP}}]}}"
                )
            }
            Kind::WorkloadEntry => format!(
                "spec: {{address: {}, labels: {{app: {name}, version: v1}}, locality: '{}', weight: {}}}",
                address(self.name + usize::from(bit(0))),
                either(1, "r/z", ""),
                form % 3
            ),
            Kind::VirtualService => {
                let hosts = match form % 4 {
                    0 => format!("hosts: [{name}], "),
                    1 => "hosts: [shared.example.com, x.example.com], ".to_owned(),
                    2 => "hosts: ['*.example.com'], ".to_owned(),
                    // A delegate, which may delegate further, and back.
                    _ => String::new(),
                };
                let gateways = if hosts.is_empty() { "" } else { either(2, "gateways: [mesh, a/x], ", "") };
                let http = match form >> 3 {
                    0 => format!("{{delegate: {{name: {other}}}}}"),
                    1 if bit(2) => {
                        format!(
                            "{{match: [{{sourceLabels: {{app: x}}}}], route: [{{destination: {{host: {other}}}}}]}}"
                        )
                    }
                    1 => format!("{{route: [{{destination: {{host: {other}, subset: v1}}}}]}}"),
                    2 => "{match: [{uri: {prefix: /p}}], route: [{destination: {host: nowhere}, weight: 1}, \
                          {destination: {host: x.example.com}, weight: 3}]}"
                        .to_owned(),
                    _ => format!("{{timeout: {form}s, route: [{{destination: {{host: {name}}}}}]}}"),
                };
                format!("spec: {{{hosts}{gateways}http: [{http}]}}")
            }
            Kind::DestinationRule => {
                let host = match form % 4 {
                    0 | 1 => name.to_owned(),
                    2 => "'*.example.com'".to_owned(),
                    _ => "nowhere".to_owned(),
                };
                let policy = match form >> 2 {
                    0 => "trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}",
                    1 => "trafficPolicy: {loadBalancer: {simple: RANDOM}}, exportTo: [.]",
                    2 => "workloadSelector: {matchLabels: {app: x}}, trafficPolicy: {tls: {mode: DISABLE}}",
                    3 => {
                        "trafficPolicy: {outlierDetection: {}, loadBalancer: {localityLbSetting: {failoverPriority: \
                         [version, topology.kubernetes.io/zone]}}}"
                    }
                    4 => {
                        "trafficPolicy: {loadBalancer: {localityLbSetting: {distribute: [{from: r/z1/*, to: {'r/z1/*': 80, \
                         'r/z2/*': 20}}]}}}"
                    }
                    _ => "trafficPolicy: {outlierDetection: {consecutive5xxErrors: 3}}",
                };
                format!("spec: {{host: {host}, {policy}, subsets: [{{name: v1, labels: {{version: v1}}}}]}}")
            }
            Kind::Sidecar => {
                let egress = match form % 4 {
                    0 => "./*",
                    1 => "a/*",
                    2 => "*/x.example.com",
                    _ => "~/*",
                };
                let selector = either(2, "workloadSelector: {labels: {app: x}}, ", "");
                let rest = either(3, ", outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "");
                format!("spec: {{{selector}egress: [{{hosts: ['{egress}']}}]{rest}}}")
            }
            Kind::Gateway => {
                let server = match form % 4 {
                    0 => "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}",
                    1 => "{port: {number: 80, name: tcp, protocol: TCP}, hosts: ['*']}",
                    2 => {
                        "{port: {number: 443, name: tls, protocol: TLS}, hosts: [x.example.com], tls: {mode: \
                         PASSTHROUGH}}"
                    }
                    _ => {
                        "{port: {number: 443, name: https, protocol: HTTPS}, hosts: [x.example.com], tls: {mode: \
                         SIMPLE, credentialName: missing}}"
                    }
                };
                format!("spec: {{selector: {{istio: {}}}, servers: [{server}]}}", either(2, "gw", "other"))
            }
            Kind::PeerAuthentication => {
                let mode = ["STRICT", "PERMISSIVE", "DISABLE", "UNSET"][usize::from(form) % 4];
                let selector = either(
                    2,
                    "selector: {matchLabels: {app: x}}, portLevelMtls: {8080: {mode: STRICT}}, ",
                    "",
                );
                format!("spec: {{{selector}mtls: {{mode: {mode}}}}}")
            }
            Kind::AuthorizationPolicy => {
                let action = ["ALLOW", "DENY", "AUDIT", "CUSTOM"][usize::from(form) % 4];
                let provider = if form % 4 == 3 { "provider: {name: nobody}, " } else { "" };
                let selector = either(2, "selector: {matchLabels: {app: x}}, ", "");
                let rule = either(
                    3,
                    "{from: [{source: {principals: [cluster.local/ns/a/sa/one]}}]}",
                    "{to: [{operation: {paths: [/p]}}], when: [{key: source.ip, values: [10.0.0.0/99]}]}",
                );
                format!("spec: {{{selector}action: {action}, {provider}rules: [{rule}]}}")
            }
            Kind::Telemetry => {
                let selector = either(0, "selector: {matchLabels: {app: x}}, ", "");
                let provider = either(1, "envoy", "prometheus");
                format!(
                    "spec: {{{selector}accessLogging: [{{providers: [{{name: {provider}}}], disabled: {}}}]{}}}",
                    bit(2),
                    either(3, ", tracing: [{randomSamplingPercentage: 5}]", "")
                )
            }
            Kind::EnvoyFilter => {
                let selector = either(0, "workloadSelector: {labels: {app: x}}, ", "");
                if bit(3) {
                    let proxy = either(2, "{proxyVersion: '^1\\.32.*'}", "{metadata: {FLAVOUR: sweet}}");
                    return format!(
                        "spec: {{{selector}configPatches: [{{applyTo: {}, match: {{context: ANY, proxy: {proxy}}}, patch: \
                         {{operation: MERGE, value: {{name: patched}}}}}}]}}",
                        either(4, "ROUTE_CONFIGURATION", "LISTENER")
                    );
                }
                format!(
                    "spec: {{{selector}configPatches: [{{applyTo: CLUSTER, match: {{context: {}}}, patch: {{operation: \
                     MERGE, value: {{connect_timeout: {}s}}}}}}]}}",
                    either(1, "SIDECAR_OUTBOUND", "GATEWAY"),
                    form % 3 + 1
                )
            }
            Kind::RequestAuthentication => format!(
                "spec: {{{}jwtRules: [{{issuer: i{}, jwks: '{{\"keys\": []}}'}}]}}",
                either(0, "selector: {matchLabels: {app: x}}, ", ""),
                form % 3
            ),
            Kind::WasmPlugin => format!(
                "spec: {{{}url: 'file:///m{}.wasm', phase: AUTHN}}",
                either(0, "selector: {matchLabels: {app: x, version: v1}}, ", ""),
                form % 3
            ),
            _ => "spec: {}".to_owned(),
        }
    }
}
