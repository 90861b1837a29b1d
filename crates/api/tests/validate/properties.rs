//! Validation takes anything that can be read, and says the same of the same.

use canopus_api::registry::Category;
use canopus_api::validate::{locate, validate};
use canopus_api::{Kind, Object, Options, istio};
use canopus_base::tree::{Node, Value};
use canopus_proto::Message;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::json;

use super::object;

/// A valid spec of each kind that uses most of its fields.
const SPECS: &[(&str, &str)] = &[
    (
        "VirtualService",
        r"
hosts: [a.example.com, '*.b.com']
gateways: [ns/gateway, mesh]
exportTo: [., other]
http:
- name: all
  match:
  - name: one
    uri: {prefix: /a}
    scheme: {exact: http}
    method: {regex: 'GET|HEAD'}
    authority: {prefix: a}
    headers: {x-a: {exact: b}}
    withoutHeaders: {x-b: {regex: '*'}}
    queryParams: {q: {prefix: z}}
    port: 80
    sourceLabels: {app: a}
    sourceNamespace: ns
    gateways: [ns/gateway]
  - uri: {prefix: /a/b}
  route:
  - destination: {host: reviews, subset: v1, port: {number: 80}}
    weight: 10
    headers: {request: {set: {x: '%HOSTNAME%'}, remove: [x-y]}, response: {add: {z: 100%%}}}
  rewrite: {uriRegexRewrite: {match: ^/a(.*), rewrite: \1}, authority: b}
  retries: {attempts: 3, perTryTimeout: 1s, retryOn: '503,5xx', backoff: 0.1s}
  fault: {abort: {httpStatus: 500, percentage: {value: 1.5}}, delay: {fixedDelay: 1s}}
  corsPolicy: {allowOrigins: [{regex: a.*}], allowMethods: [GET], allowHeaders: [x], maxAge: 10s}
  mirrors: [{destination: {host: m}, percentage: {value: 50}}]
  timeout: 5s
- match: [{uri: {exact: /r}}]
  redirect: {uri: /s, redirectCode: 301, port: 443}
- match: [{uri: {exact: /d}}]
  directResponse: {status: 200, body: {string: hello}}
tls:
- match: [{sniHosts: [x.b.com], destinationSubnets: [10.0.0.0/8], port: 443}]
  route: [{destination: {host: a}, weight: 1}]
tcp:
- match: [{port: 27017, destinationSubnets: [10.0.0.1]}]
  route: [{destination: {host: a}}]
",
    ),
    (
        "Gateway",
        r"
selector: {istio: ingressgateway}
servers:
- port: {number: 443, name: https, protocol: HTTPS}
  hosts: [ns/*.example.com, ./a.com]
  tls: {mode: MUTUAL, tlsCertificates: [{serverCertificate: a, privateKey: b}], caCertificates: c, cipherSuites: [AES128-SHA]}
- port: {number: 80, name: http, protocol: HTTP}
  hosts: ['*']
  tls: {httpsRedirect: true}
- port: {number: 0, name: unix, protocol: TCP}
  bind: unix:///var/run/a.sock
  hosts: ['*']
",
    ),
    (
        "DestinationRule",
        r"
host: '*.example.com'
exportTo: ['*']
trafficPolicy:
  loadBalancer:
    consistentHash: {httpCookie: {name: c, ttl: 1s, attributes: [{name: a}]}, maglev: {tableSize: 65537}}
    localityLbSetting: {distribute: [{from: a/b/*, to: {a/b: 40, c/*: 60}}]}
    warmup: {duration: 10s, minimumPercent: 10, aggression: 1.5}
  connectionPool:
    tcp: {maxConnections: 1, connectTimeout: 1s, idleTimeout: 0s, tcpKeepalive: {time: 1s, interval: 1s}}
    http: {http1MaxPendingRequests: 1, idleTimeout: 1s, http2KeepAlive: {interval: 1s, timeout: 1s}}
  outlierDetection: {interval: 1s, baseEjectionTime: 1s, maxEjectionPercent: 10, consecutive5xxErrors: 3}
  tls: {mode: MUTUAL, clientCertificate: a, privateKey: b, subjectAltNames: [x], sni: s.com}
  portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE, credentialName: 'configmap://demo/a'}}]
  tunnel: {protocol: CONNECT, targetHost: a.com, targetPort: 443}
subsets:
- name: v1
  labels: {version: v1}
  trafficPolicy: {loadBalancer: {simple: RANDOM, zoneAwareLbSetting: {failover: [{from: a, to: b}]}}}
",
    ),
    (
        "ServiceEntry",
        r"
hosts: [a.com, b.com]
addresses: [10.0.0.1]
ports: [{number: 443, name: https, protocol: HTTPS, targetPort: 8443}]
resolution: STATIC
location: MESH_INTERNAL
exportTo: ['~']
endpoints: [{address: 10.0.0.2, ports: {https: 1}, labels: {a: b}}]
",
    ),
    ("WorkloadEntry", "address: a.com\nports: {http: 80}\nlabels: {app: a}\nnetwork: net"),
    (
        "WorkloadGroup",
        "template: {}\nmetadata: {labels: {a: b}}\nprobe: {httpGet: {port: 80, scheme: HTTP, httpHeaders: [{name: x}]}}",
    ),
    (
        "Sidecar",
        r"
workloadSelector: {labels: {app: a}}
ingress:
- port: {number: 443, protocol: HTTPS, name: https}
  bind: 0.0.0.0
  defaultEndpoint: '[::1]:8080'
  tls: {mode: SIMPLE, serverCertificate: a, privateKey: b}
  connectionPool: {tcp: {maxConnections: 1}}
egress:
- port: {number: 0, protocol: HTTP}
  bind: unix:///a
  hosts: [./*, ~ns/*, other/a.com]
- hosts: [istio-system/*]
outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: p.com, port: {number: 1}}}
",
    ),
    (
        "EnvoyFilter",
        r"
workloadSelector: {labels: {app: a}}
configPatches:
- applyTo: CLUSTER
  match: {context: SIDECAR_OUTBOUND, proxy: {proxyVersion: ^1.*}, cluster: {service: a}}
  patch: {operation: MERGE, value: {connect_timeout: 1s}}
- applyTo: HTTP_FILTER
  match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
  patch: {operation: INSERT_BEFORE, value: {name: a, typed_config: {'@type': type.googleapis.com/google.protobuf.Empty}}}
",
    ),
    ("ProxyConfig", "selector: {matchLabels: {app: a}}\nconcurrency: 2\nenvironmentVariables: {A: b}"),
    (
        "AuthorizationPolicy",
        r"
selector: {matchLabels: {app: a}}
action: DENY
rules:
- from: [{source: {principals: ['*/ns/a/*'], notNamespaces: [b], ipBlocks: [10.0.0.0/8]}}]
  to: [{operation: {hosts: [a.com], ports: ['80'], methods: [GET], paths: [/a/*, '/b/{*}/c']}}]
  when: [{key: 'request.headers[x]', values: [y*]}, {key: destination.port, notValues: ['1']}]
",
    ),
    (
        "RequestAuthentication",
        r"
targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: a}]
jwtRules:
- issuer: a
  audiences: [b]
  jwksUri: https://a.com/keys
  fromHeaders: [{name: x, prefix: 'Bearer '}]
  outputClaimToHeaders: [{header: x-a, claim: b}]
  timeout: 1s
",
    ),
    (
        "PeerAuthentication",
        "selector: {matchLabels: {app: a}}\nmtls: {mode: STRICT}\nportLevelMtls: {80: {mode: DISABLE}}",
    ),
    (
        "Telemetry",
        r"
selector: {matchLabels: {app: a}}
tracing: [{providers: [{name: a}], randomSamplingPercentage: 10, customTags: {t: {literal: {value: v}}}}]
metrics: [{overrides: [{match: {metric: ALL_METRICS}, tagOverrides: {t: {operation: UPSERT, value: v}}}]}]
accessLogging: [{filter: {expression: response.code >= 400}}]
",
    ),
    (
        "WasmPlugin",
        "selector: {matchLabels: {app: a}}\nurl: oci://a/b:c\nvmConfig: {env: [{name: A, value: b}]}\nmatch: [{ports: [{number: 1}]}]",
    ),
    (
        "TrafficExtension",
        "targetRefs: [{kind: Service, name: a}]\nlua: {inlineCode: a}\nmatch: [{ports: [{number: 1}]}]",
    ),
];

/// Texts that break things.
const TEXTS: &[&str] = &[
    "",
    "*",
    "**",
    ".",
    "..",
    "~",
    "/",
    "//",
    "a/",
    "/a",
    "*.",
    "*.com",
    "outbound_",
    "outbound_.80_._.a",
    "_",
    "-",
    "%",
    "%%",
    "%A(",
    "[",
    "(",
    "\\",
    "unix://",
    "unix://@",
    "10.0.0.1",
    "10.0.0.0/8",
    "::1",
    "[::1]:80",
    ":",
    "a:b:c",
    "é\u{301}\u{0}",
    "configmap://",
    "@request.auth.claims.a",
    "mesh",
    "1",
    "65536",
    "99999999999999999999",
    "a.b.c.d",
    "true",
    "HTTPS",
    "TCP",
];

#[test]
fn specs_that_are_changed_below_are_valid() {
    for (kind, spec) in SPECS {
        let report = validate(&object(kind, spec));
        assert_eq!(report.error_text(), None, "{kind}");
    }
}

#[test]
fn every_kind_that_is_validated_is_changed() {
    let kinds = Kind::ALL.iter().map(|kind| kind.info()).filter(|info| info.category == Category::Istio);
    for info in kinds {
        assert!(SPECS.iter().any(|(kind, _)| *kind == info.kind), "{}", info.kind);
    }
}

/// A change of one value.
#[derive(Clone, Debug)]
enum Change {
    Text(&'static str),
    Long(usize),
    Integer(i64),
    Fraction(f64),
    Duration(i64, u32),
    Remove,
    Twice,
    Empty,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => select(TEXTS).prop_map(Change::Text),
        1 => (0usize..2000).prop_map(Change::Long),
        2 => prop_oneof![any::<i64>(), -2i64..70_000].prop_map(Change::Integer),
        1 => any::<f64>().prop_map(Change::Fraction),
        1 => (any::<i64>(), 0..2_000_000_000u32).prop_map(|(seconds, nanos)| Change::Duration(seconds, nanos)),
        2 => Just(Change::Remove),
        2 => Just(Change::Twice),
        1 => Just(Change::Empty),
    ]
}

/// How many values a document has, itself included.
fn count(node: &Node) -> usize {
    let parts: usize = match &node.value {
        Value::Map(map) => map.iter().map(|entry| count(&entry.node)).sum(),
        Value::List(items) => items.iter().map(count).sum(),
        _ => 0,
    };
    parts + 1
}

/// Changes the value with this number, counting from the outside.
fn apply(node: &mut Node, number: &mut usize, change: &Change) {
    if *number == 0 {
        node.value = changed(&node.value, change);
    }
    *number = number.wrapping_sub(1);
    match &mut node.value {
        Value::Map(map) => {
            let keys: Vec<_> = map.iter().map(|entry| entry.key.clone()).collect();
            for key in keys {
                if *number > usize::MAX / 2 {
                    return;
                }
                if *number == 0 && matches!(change, Change::Remove) {
                    map.remove(&key);
                    *number = usize::MAX;
                    return;
                }
                apply(map.get_mut(&key).unwrap(), number, change);
            }
        }
        Value::List(items) => {
            for item in items {
                if *number > usize::MAX / 2 {
                    return;
                }
                apply(item, number, change);
            }
        }
        _ => {}
    }
}

fn changed(value: &Value, change: &Change) -> Value {
    match (change, value) {
        (Change::Text(text), Value::String(_)) => Value::from(*text),
        (Change::Long(length), Value::String(text)) => Value::from(text.repeat(*length)),
        (Change::Duration(seconds, nanos), Value::String(_)) => Value::from(format!("{seconds}.{nanos:09}s")),
        (Change::Integer(number), Value::Number(_)) => Node::from(json!(number)).value,
        (Change::Fraction(number), Value::Number(_)) => Node::from(json!(number)).value,
        (Change::Twice, Value::List(items)) => Value::List(items.iter().chain(items).cloned().collect()),
        (Change::Empty, Value::List(_)) => Value::List(Vec::new()),
        (Change::Empty, Value::Map(_)) => Value::Map(Default::default()),
        _ => value.clone(),
    }
}

/// Validates an object, and the same object once more after it was written and read, as a document and as bytes.
fn check(object: &Object) {
    let report = validate(object);
    let document = object.to_node();
    for finding in report.errors.iter().chain(&report.warnings) {
        locate(&document, &finding.path);
        assert!(!finding.message.is_empty(), "{finding:?}");
    }
    let again = Object::decode(&document, Options::lenient()).unwrap().value;
    assert_eq!(validate(&again), report, "after {}", document.to_json());
    let on_the_wire = decode_same_kind(object, &to_bytes(object)).unwrap();
    assert_eq!(validate(&on_the_wire), report, "as bytes: {}", document.to_json());
}

/// Makes the two functions between the specs of kinds and bytes.
macro_rules! bytes {
    ($($kind:ident),+ $(,)?) => {
        /// The bytes of a spec.
        fn to_bytes(object: &Object) -> Vec<u8> {
            match object {
                $(Object::$kind(object) => object.spec.encode_to_vec(),)+
                other => panic!("{:?} is not one of Istio's kinds", other.kind()),
            }
        }

        /// Reads a spec of the same kind from other bytes.
        fn decode_same_kind(object: &Object, bytes: &[u8]) -> Option<Object> {
            match object {
                $(Object::$kind(object) => {
                    let mut object = istio::$kind::clone(object);
                    object.spec = Message::decode(bytes).ok()?;
                    Some(Object::from(object))
                })+
                other => panic!("{:?} is not one of Istio's kinds", other.kind()),
            }
        }
    };
}

bytes! {
    VirtualService, Gateway, DestinationRule, ServiceEntry, WorkloadEntry, WorkloadGroup, Sidecar, EnvoyFilter, ProxyConfig,
    AuthorizationPolicy, RequestAuthentication, PeerAuthentication, Telemetry, WasmPlugin, TrafficExtension,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn document_with_changed_values_is_validated(
        spec in select(SPECS),
        changes in vec((any::<Index>(), change()), 1..6),
    ) {
        let mut document = object(spec.0, spec.1).to_node();
        for (place, change) in &changes {
            let spec = document.get_mut("spec");
            if let Some(spec) = spec {
                let mut number = place.index(count(spec));
                apply(spec, &mut number, change);
            }
        }
        if let Ok(decoded) = Object::decode(&document, Options::lenient()) {
            check(&decoded.value);
        }
    }

    #[test]
    fn message_with_changed_bytes_is_validated(
        spec in select(SPECS),
        changes in vec((any::<Index>(), any::<u8>()), 0..8),
    ) {
        let original = object(spec.0, spec.1);
        let mut bytes = to_bytes(&original);
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(object) = decode_same_kind(&original, &bytes) {
            // Not every message can be written as a document: a duration may be out of range.
            validate(&object);
        }
    }

    #[test]
    fn arbitrary_bytes_are_validated_if_they_are_a_message(
        spec in select(SPECS),
        bytes in vec(any::<u8>(), 0..64),
    ) {
        if let Some(object) = decode_same_kind(&object(spec.0, spec.1), &bytes) {
            validate(&object);
        }
    }
}
