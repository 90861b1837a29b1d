use std::collections::BTreeMap;

use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::envoy::config::listener::v3::filter::ConfigType;
use canopus_proto::envoy::config::listener::v3::{FilterChain, Listener};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
use canopus_proto::google::protobuf::{Struct, Value};

use super::*;

/// A service of `ns`, created in this minute.
fn service(name: &str, minute: u8, address: &str, ports: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: ns, \
         creationTimestamp: '2024-01-01T00:{minute:02}:00Z'}}, \
         spec: {{clusterIP: {address}, selector: {{app: {name}}}, ports: [{ports}]}}}}"
    )
}

fn pod(name: &str, app: &str, address: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: ns, labels: {{app: {app}}}}}, \
         spec: {{serviceAccountName: a}}, status: {{podIP: {address}, podIPs: [{{ip: {address}}}], phase: Running}}}}"
    )
}

/// The endpoints of service `name` on a port named `tcp`.
fn endpoints(name: &str, addresses: &[&str]) -> String {
    let ready = |address: &&str| format!("{{addresses: [{address}], conditions: {{ready: true}}}}");
    let endpoints: Vec<_> = addresses.iter().map(ready).collect();
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}-1, namespace: ns, \
         labels: {{kubernetes.io/service-name: {name}}}}}, addressType: IPv4, ports: [{{name: tcp, port: 90}}], \
         endpoints: [{}]}}",
        endpoints.join(", ")
    )
}

fn batch(documents: &[String]) -> Batch {
    let mut batch = Batch::new();
    for outcome in decode_documents(documents.join("\n---\n"), &Limits::default(), Options::strict()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
    batch
}

fn world(documents: &[String]) -> Engine {
    let engine = Engine::new();
    let mut batch = batch(documents);
    batch.set::<Settings>((), MeshSettings::default());
    engine.apply(batch);
    engine
}

/// A sidecar of `ns` with label `app`, and more metadata.
fn sidecar(app: &str, address: &str, metadata: &[(&str, &str)]) -> Proxy {
    let labels = Struct { fields: [("app".to_owned(), Value::from(app))].into() };
    let mut fields = BTreeMap::from([
        ("NAMESPACE".to_owned(), "ns".into()),
        ("CLUSTER_ID".to_owned(), "Kubernetes".into()),
        ("LABELS".to_owned(), labels.into()),
    ]);
    fields.extend(metadata.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))));
    let node = Node {
        id: format!("sidecar~{address}~p.ns~ns.svc.cluster.local"),
        metadata: Some(Struct { fields }),
        ..Default::default()
    };
    Proxy::new(&node, None).unwrap()
}

fn listeners(engine: &Engine, proxy: &Proxy) -> BTreeMap<String, Listener> {
    let found = engine.get::<Listeners>(proxy).unwrap();
    let decoded = found.iter().map(|resource| Listener::decode(resource.body.clone()).unwrap());
    decoded.map(|listener| (listener.name.clone(), listener)).collect()
}

/// The names of listeners that are of services.
fn names(engine: &Engine, proxy: &Proxy) -> Vec<String> {
    let all = listeners(engine, proxy).into_keys();
    all.filter(|name| !name.starts_with("virtual")).collect()
}

/// What becomes of the connections of a chain: `rds <name>` or a cluster.
fn outcome(chain: &FilterChain) -> String {
    let Some(ConfigType::TypedConfig(last)) = chain.filters.last().and_then(|f| f.config_type.clone()) else {
        panic!("a chain ends with a filter");
    };
    if let Ok(manager) = last.unpack::<HttpConnectionManager>() {
        return match manager.route_specifier {
            Some(RouteSpecifier::Rds(rds)) => format!("rds {}", rds.route_config_name),
            _ => "inline routes".to_owned(),
        };
    }
    match last.unpack::<TcpProxy>().unwrap().cluster_specifier {
        Some(ClusterSpecifier::Cluster(cluster)) => cluster,
        other => format!("{other:?}"),
    }
}

/// The outcomes of a listener's chains, then that of its default chain.
fn outcomes(listener: &Listener) -> Vec<String> {
    listener.filter_chains.iter().chain(&listener.default_filter_chain).map(outcome).collect()
}

fn client() -> Proxy {
    sidecar("client", "10.9.0.1", &[])
}

#[test]
fn http_services_of_one_port_share_a_listener_on_all_interfaces() {
    let engine = world(&[
        service("a", 1, "10.0.0.1", "{name: http, port: 80}"),
        service("b", 2, "10.0.0.2", "{name: http, port: 80}"),
    ]);
    let all = listeners(&engine, &client());
    assert_eq!(outcomes(&all["0.0.0.0_80"]), ["rds 80", "PassthroughCluster"]);
    assert_eq!(names(&engine, &client()), ["0.0.0.0_80"]);
}

#[test]
fn other_services_listen_at_their_address() {
    let engine = world(&[
        service("tcp", 1, "10.0.0.1", "{name: tcp, port: 90}"),
        service("auto", 2, "10.0.0.2", "{name: x, port: 90}"),
    ]);
    let all = listeners(&engine, &client());
    assert_eq!(outcomes(&all["10.0.0.1_90"]), ["outbound|90||tcp.ns.svc.cluster.local"]);
    assert_eq!(
        outcomes(&all["10.0.0.2_90"]),
        ["rds auto.ns.svc.cluster.local:90", "outbound|90||auto.ns.svc.cluster.local"]
    );
}

/// An entry without an address, which is on all interfaces.
fn entry(name: &str, minute: u8, protocol: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{name: {name}, namespace: ns, \
         creationTimestamp: '2024-01-01T00:{minute:02}:00Z'}}, spec: {{hosts: [{name}.com], resolution: DNS, \
         ports: [{{number: 90, name: p, protocol: {protocol}}}]}}}}"
    )
}

#[test]
fn tcp_and_http_of_one_place_are_told_apart_by_the_first_bytes() {
    for order in [[1, 2], [2, 1]] {
        let engine = world(&[entry("tcp", order[0], "TCP"), entry("http", order[1], "HTTP")]);
        let all = listeners(&engine, &client());
        assert_eq!(outcomes(&all["0.0.0.0_90"]), ["rds 90", "outbound|90||tcp.com"]);
    }
}

#[test]
fn the_older_service_wins_when_two_cannot_be_told_apart() {
    let engine = world(&[entry("younger", 2, "TCP"), entry("older", 1, "TCP")]);
    assert_eq!(outcomes(&listeners(&engine, &client())["0.0.0.0_90"]), ["outbound|90||older.com"]);
}

#[test]
fn protocols_whose_servers_speak_first_are_never_mixed_with_others() {
    let engine = world(&[entry("mongo", 1, "MONGO"), entry("http", 2, "HTTP")]);
    assert_eq!(outcomes(&listeners(&engine, &client())["0.0.0.0_90"]), ["outbound|90||mongo.com"]);
}

#[test]
fn tls_services_without_an_address_are_told_apart_by_name() {
    let engine = world(&[entry("a", 1, "TLS"), entry("b", 2, "TLS")]);
    let listener = &listeners(&engine, &client())["0.0.0.0_90"];
    let names = |chain: &FilterChain| chain.filter_chain_match.clone().unwrap_or_default().server_names;
    assert_eq!(listener.filter_chains.iter().map(names).collect::<Vec<_>>(), [["a.com"], ["b.com"]]);
    assert_eq!(outcomes(listener), ["outbound|90||a.com", "outbound|90||b.com", "PassthroughCluster"]);
}

#[test]
fn endpoints_of_headless_services_listen_one_by_one_except_the_proxys_own() {
    let engine =
        world(&[service("a", 1, "None", "{name: tcp, port: 90}"), endpoints("a", &["10.1.0.1", "10.1.0.2"])]);
    assert_eq!(names(&engine, &client()), ["10.1.0.1_90", "10.1.0.2_90"]);
    assert_eq!(names(&engine, &sidecar("a", "10.1.0.2", &[])), ["10.1.0.1_90"]);
}

#[test]
fn nothing_listens_where_the_proxy_itself_does() {
    let engine =
        world(&[service("a", 1, "10.0.0.1", "{name: http, port: 15001}, {name: http-b, port: 15090}")]);
    let with_metrics = sidecar("client", "10.9.0.1", &[]);
    assert_eq!(names(&engine, &with_metrics), ["0.0.0.0_15090"]);
}

#[test]
fn only_the_listener_of_a_changed_service_is_built_again() {
    let all: Vec<_> = (1..=9)
        .map(|n| service(&format!("s{n}"), n, &format!("10.0.0.{n}"), "{name: tcp, port: 90}"))
        .collect();
    let engine = world(&all);
    let root = engine.watch::<Listeners>(client());
    let built = || engine.evaluations().get("outbound_listener").copied().unwrap_or_default();
    let before = built();
    let applied = engine.apply(batch(&[service("new", 30, "10.0.0.30", "{name: tcp, port: 90}")]));
    assert_eq!(applied.changed, [root.id()]);
    assert_eq!(built() - before, 1);
}

#[test]
fn pods_of_one_workload_share_the_bytes_of_their_listeners() {
    let engine = world(&[
        service("a", 1, "10.0.0.1", "{name: http, port: 80, targetPort: 8080}"),
        pod("a-1", "a", "10.1.0.1"),
        pod("a-2", "a", "10.1.0.2"),
    ]);
    let bodies = |address| {
        let found = engine.get::<Listeners>(&sidecar("a", address, &[])).unwrap();
        found.iter().map(|resource| resource.body.as_ptr() as usize).collect::<Vec<_>>()
    };
    assert_eq!(bodies("10.1.0.1"), bodies("10.1.0.2"));
    assert_eq!(bodies("10.1.0.1").len(), 3);
}

/// The transport protocols that the chains of the workload's port 8080 match.
fn transports(mode: &str) -> Vec<String> {
    let engine = world(&[
        service("a", 1, "10.0.0.1", "{name: http, port: 80, targetPort: 8080}"),
        pod("a-1", "a", "10.1.0.1"),
        format!(
            "{{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {{name: p, namespace: ns}}, \
             spec: {{mtls: {{mode: {mode}}}}}}}"
        ),
    ]);
    let all = listeners(&engine, &sidecar("a", "10.1.0.1", &[]));
    let chains = all["virtualInbound"].filter_chains.iter().filter(|chain| chain.name == "0.0.0.0_8080");
    chains.map(|chain| chain.filter_chain_match.clone().unwrap_or_default().transport_protocol).collect()
}

#[test]
fn inbound_chains_follow_the_mutual_tls_mode() {
    assert_eq!(transports("STRICT"), ["tls"]);
    assert_eq!(transports("PERMISSIVE"), ["tls", "raw_buffer"]);
    assert_eq!(transports("DISABLE"), ["raw_buffer"]);
}

#[test]
fn nothing_is_redirected_when_interception_is_off() {
    let engine = world(&[service("a", 1, "10.0.0.1", "{name: http, port: 80}, {name: tcp, port: 90}")]);
    let all = listeners(&engine, &sidecar("client", "10.9.0.1", &[("INTERCEPTION_MODE", "NONE")]));
    assert_eq!(all.keys().collect::<Vec<_>>(), ["127.0.0.1_80", "127.0.0.1_90"]);
    assert!(all.values().all(|listener| listener.bind_to_port.is_none()));
}

#[test]
fn istios_own_filters_are_left_out_when_the_proxy_does_not_have_them() {
    let engine = world(&[service("a", 1, "10.0.0.1", "{name: http, port: 80}")]);
    let mut node = Node {
        id: "sidecar~10.9.0.1~p.ns~ns.svc.cluster.local".into(),
        extensions: vec![Default::default()],
        ..Default::default()
    };
    node.extensions[0].type_urls = vec!["envoy.extensions.filters.http.router.v3.Router".into()];
    let all = listeners(&engine, &Proxy::new(&node, None).unwrap());
    let text = format!("{all:?}");
    assert!(!text.contains("istio.metadata_exchange") && !text.contains("istio.alpn"));
}

#[test]
fn applications_get_a_forward_proxy_when_its_port_is_given() {
    let engine = world(&[]);
    let all = listeners(&engine, &sidecar("client", "10.9.0.1", &[("HTTP_PROXY_PORT", "15002")]));
    let listener = &all["127.0.0.1_15002"];
    assert_eq!(outcomes(listener), ["rds http_proxy"]);
    assert_eq!(listener.bind_to_port, None);
    assert!(!names(&engine, &client()).contains(&"127.0.0.1_15002".to_owned()));
}

#[test]
fn source_addresses_are_kept_when_traffic_is_intercepted_transparently() {
    let all = listeners(&world(&[]), &sidecar("a", "10.1.0.1", &[("INTERCEPTION_MODE", "TPROXY")]));
    assert!(all.values().all(|listener| listener.transparent.is_some_and(|wanted| wanted.value)));
    let filters: Vec<_> = all["virtualInbound"].listener_filters.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(filters[..2], ["envoy.filters.listener.original_dst", "envoy.filters.listener.original_src"]);
}

#[test]
fn idle_connections_end_when_the_proxy_says_after_how_long() {
    let engine = world(&[service("a", 1, "10.0.0.1", "{name: tcp, port: 90}, {name: http, port: 80}")]);
    let all = listeners(&engine, &sidecar("client", "10.9.0.1", &[("IDLE_TIMEOUT", "90s")]));
    let last =
        |listener: &Listener| match listener.filter_chains[0].filters.last().unwrap().config_type.clone() {
            Some(ConfigType::TypedConfig(config)) => config,
            other => panic!("{other:?}"),
        };
    let seconds = |timeout: Option<canopus_proto::google::protobuf::Duration>| timeout.map(|t| t.seconds);
    let proxy: TcpProxy = last(&all["10.0.0.1_90"]).unpack().unwrap();
    assert_eq!(seconds(proxy.idle_timeout), Some(90));
    let manager: HttpConnectionManager = last(&all["0.0.0.0_80"]).unpack().unwrap();
    assert_eq!(seconds(manager.common_http_protocol_options.unwrap().idle_timeout), Some(90));
}

#[test]
fn privileged_ports_are_not_bound_when_the_pod_has_no_right_to() {
    let engine = world(&[service("a", 1, "10.0.0.1", "{name: http, port: 80}, {name: tcp, port: 9090}")]);
    let metadata = [("INTERCEPTION_MODE", "NONE"), ("UNPRIVILEGED_POD", "true")];
    assert_eq!(names(&engine, &sidecar("client", "10.9.0.1", &metadata)), ["127.0.0.1_9090"]);
}

#[test]
fn tcp_routes_go_where_the_virtual_service_says() {
    let engine = world(&[
        entry("a", 1, "TCP"),
        entry("b", 2, "TCP"),
        "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: ns}, \
         spec: {hosts: [a.com], tcp: [{match: [{destinationSubnets: [10.5.0.0/16]}], \
         route: [{destination: {host: b.com, subset: v1}}]}]}}"
            .to_owned(),
    ]);
    let listener = &listeners(&engine, &client())["0.0.0.0_90"];
    assert_eq!(outcomes(listener), ["outbound|90|v1|b.com", "outbound|90||a.com"]);
    let matched = listener.filter_chains[0].filter_chain_match.clone().unwrap();
    assert_eq!(matched.prefix_ranges[0].address_prefix, "10.5.0.0");
}
