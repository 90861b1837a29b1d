use std::collections::BTreeMap;

use crate::audience::AudiencesOf;
use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::transport_socket::ConfigType as SocketConfig;
use canopus_proto::envoy::config::core::v3::{Extension, Node, address::Address};
use canopus_proto::envoy::config::listener::v3::{FilterChain, Listener};
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::extensions::transport_sockets::quic::v3::QuicDownstreamTransport;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{CommonTlsContext, DownstreamTlsContext};
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_runtime::flags::Flags;

use super::*;
use crate::route_config::Routes;

fn gateway(servers: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {{name: g, namespace: ns}}, \
         spec: {{selector: {{app: gw}}, servers: [{servers}]}}}}"
    )
}

fn virtual_service(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: {name}, namespace: ns}}, \
         spec: {{gateways: [g], {spec}}}}}"
    )
}

/// The service of the gateway, with one more port that is UDP.
const SERVICE: &str = "{apiVersion: v1, kind: Service, metadata: {name: gw, namespace: ns}, spec: {selector: {app: gw}, \
                       ports: [{name: udp, port: 443, targetPort: 443, protocol: UDP}]}}";

struct World {
    engine: Engine,
    proxy: Proxy,
}

impl World {
    fn new(objects: &[String]) -> Self {
        Self::with(objects, MeshSettings::default(), &[])
    }

    /// With a proxy that says what it was built with.
    fn stock(objects: &[String]) -> Self {
        let router = "envoy.extensions.filters.http.router.v3.Router";
        let extension = Extension { type_urls: vec![router.to_owned()], ..Default::default() };
        Self::build(objects, MeshSettings::default(), &[], vec![extension])
    }

    fn with(objects: &[String], settings: MeshSettings, metadata: &[(&str, &str)]) -> Self {
        Self::build(objects, settings, metadata, Vec::new())
    }

    fn build(
        objects: &[String],
        settings: MeshSettings,
        metadata: &[(&str, &str)],
        extensions: Vec<Extension>,
    ) -> Self {
        let mut batch = Batch::new();
        for outcome in decode_documents(objects.join("\n---\n"), &Limits::default(), Options::strict()) {
            let object = outcome.unwrap().value;
            batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
        }
        batch.set::<Settings>((), settings);
        let engine = Engine::new();
        engine.apply(batch);
        let labels = Struct { fields: [("app".to_owned(), Value::from("gw"))].into() };
        let mut fields = BTreeMap::from([
            ("NAMESPACE".to_owned(), "ns".into()),
            ("CLUSTER_ID".to_owned(), "Kubernetes".into()),
            ("LABELS".to_owned(), labels.into()),
        ]);
        fields.extend(metadata.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))));
        let node = Node {
            id: "router~10.0.0.9~gw.ns~ns.svc.cluster.local".into(),
            metadata: Some(Struct { fields }),
            extensions,
            ..Default::default()
        };
        Self { engine, proxy: Proxy::new(&node, None).unwrap() }
    }

    fn listeners(&self) -> BTreeMap<String, Listener> {
        let audiences = self.engine.get::<AudiencesOf>(&self.proxy).unwrap();
        let audience = audiences.listeners.arriving().unwrap();
        let found = self.engine.get::<GatewayListeners>(audience).unwrap();
        let decoded = found.iter().map(|resource| Listener::decode(resource.body.clone()).unwrap());
        decoded.map(|listener| (listener.name.clone(), listener)).collect()
    }

    fn names(&self) -> Vec<String> {
        self.listeners().into_keys().collect()
    }

    fn chains(&self, listener: &str) -> Vec<FilterChain> {
        self.listeners().remove(listener).unwrap().filter_chains
    }

    fn routes(&self, name: &str) -> RouteConfiguration {
        let audiences = self.engine.get::<AudiencesOf>(&self.proxy).unwrap();
        let found = self.engine.get::<Routes>(&(audiences.routes.clone(), name.to_owned())).unwrap();
        RouteConfiguration::decode(found.as_ref().clone().unwrap().body).unwrap()
    }
}

fn server_names(chains: &[FilterChain]) -> Vec<Vec<String>> {
    chains.iter().map(|chain| chain.filter_chain_match.clone().unwrap_or_default().server_names).collect()
}

fn filter_names(chain: &FilterChain) -> Vec<&str> {
    chain.filters.iter().map(|filter| filter.name.trim_start_matches("envoy.filters.network.")).collect()
}

fn tls(chain: &FilterChain) -> DownstreamTlsContext {
    match chain.transport_socket.as_ref().and_then(|socket| socket.config_type.as_ref()) {
        Some(SocketConfig::TypedConfig(config)) => config.unpack().unwrap(),
        None => panic!("no TLS"),
    }
}

fn common(chain: &FilterChain) -> CommonTlsContext {
    tls(chain).common_tls_context.unwrap()
}

fn secret_names(common: &CommonTlsContext) -> Vec<&str> {
    common.tls_certificate_sds_secret_configs.iter().map(|secret| secret.name.as_str()).collect()
}

const HTTPS: &str = "port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.com]";

#[test]
fn listeners_are_on_all_interfaces_unless_the_server_binds_one() {
    let servers = "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}, \
                   {port: {number: 81, name: bound, protocol: HTTP}, hosts: ['*'], bind: 10.1.1.1}";
    let world = World::new(&[gateway(servers)]);
    assert_eq!(world.names(), ["0.0.0.0_80", "10.1.1.1_81"]);
    assert_eq!(world.routes("http.81.10.1.1.1").virtual_hosts[0].name, "blackhole:81");
}

#[test]
fn privileged_ports_are_left_out_when_the_pod_may_not_open_them() {
    let servers = "{port: {number: 80, name: a, protocol: HTTP}, hosts: ['*']}, \
                   {port: {number: 8080, name: b, protocol: HTTP}, hosts: ['*']}";
    let world = World::with(&[gateway(servers)], MeshSettings::default(), &[("UNPRIVILEGED_POD", "true")]);
    assert_eq!(world.names(), ["0.0.0.0_8080"]);
}

#[test]
fn https_chain_is_chosen_by_server_name_and_shows_the_named_credential() {
    let world = World::new(&[gateway(&format!("{{{HTTPS}, tls: {{mode: SIMPLE, credentialName: cert}}}}"))]);
    let listener = &world.listeners()["0.0.0.0_443"];
    assert_eq!(listener.listener_filters[0].name, "envoy.filters.listener.tls_inspector");
    assert_eq!(server_names(&listener.filter_chains), [["a.com"]]);
    let common = common(&listener.filter_chains[0]);
    assert_eq!(secret_names(&common), ["kubernetes://cert"]);
    assert_eq!(common.alpn_protocols, ["h2", "http/1.1"]);
    assert_eq!(common.validation_context_type, None);
}

#[test]
fn clients_are_checked_as_the_tls_mode_says() {
    let required = |mode: &str| {
        let world =
            World::new(&[gateway(&format!("{{{HTTPS}, tls: {{mode: {mode}, credentialName: cert}}}}"))]);
        let chain = world.chains("0.0.0.0_443").remove(0);
        let roots = match common(&chain).validation_context_type {
            Some(ValidationContextType::CombinedValidationContext(combined)) => {
                combined.validation_context_sds_secret_config.map(|secret| secret.name)
            }
            _ => None,
        };
        (tls(&chain).require_client_certificate.unwrap().value, roots.unwrap_or_default())
    };
    assert_eq!(required("SIMPLE"), (false, String::new()));
    assert_eq!(required("MUTUAL"), (true, "kubernetes://cert-cacert".to_owned()));
    assert_eq!(required("OPTIONAL_MUTUAL"), (false, "kubernetes://cert-cacert".to_owned()));
    assert_eq!(required("ISTIO_MUTUAL"), (true, "ROOTCA".to_owned()));
}

#[test]
fn servers_settings_win_over_the_meshs_and_unknown_ciphers_are_dropped() {
    let tls = "tls: {mode: SIMPLE, credentialName: c, maxProtocolVersion: TLSV1_3, \
               cipherSuites: [ECDHE-RSA-AES256-GCM-SHA384, NO-SUCH-CIPHER, ECDHE-RSA-AES256-GCM-SHA384]}";
    let mut settings = MeshSettings::default();
    let defaults = settings.mesh.tls_defaults.get_or_insert_default();
    defaults.ecdh_curves = vec!["P-256".into()];
    defaults.cipher_suites = vec!["ECDHE-ECDSA-AES128-GCM-SHA256".into()];
    let world = World::with(&[gateway(&format!("{{{HTTPS}, {tls}}}"))], settings, &[]);
    let parameters = common(&world.chains("0.0.0.0_443")[0]).tls_params.unwrap();
    assert_eq!(parameters.cipher_suites, ["ECDHE-RSA-AES256-GCM-SHA384"]);
    assert_eq!(parameters.ecdh_curves, ["P-256"]);
}

#[test]
fn http3_has_a_listener_of_its_own_beside_https() {
    let flags = Flags::read(&[("PILOT_ENABLE_QUIC_LISTENERS", "true")]);
    let settings = MeshSettings { flags: flags.into(), ..Default::default() };
    let servers = format!("{{{HTTPS}, tls: {{mode: MUTUAL, credentialName: cert}}}}");
    let world = World::with(&[gateway(&servers), SERVICE.to_owned()], settings, &[]);
    assert_eq!(world.names(), ["0.0.0.0_443", "udp_0.0.0.0_443"]);
    let quic = &world.listeners()["udp_0.0.0.0_443"];
    let Some(Address::SocketAddress(address)) = quic.address.clone().unwrap().address else { panic!() };
    assert_eq!(address.protocol().as_str_name(), "UDP");
    let Some(SocketConfig::TypedConfig(config)) =
        quic.filter_chains[0].transport_socket.clone().unwrap().config_type
    else {
        panic!()
    };
    let context = config.unpack::<QuicDownstreamTransport>().unwrap().downstream_tls_context.unwrap();
    assert_eq!(context.require_client_certificate.map(|required| required.value), Some(false));
    assert_eq!(context.common_tls_context.unwrap().alpn_protocols, ["h3"]);
}

#[test]
fn tcp_port_is_opened_only_when_a_route_leads_somewhere() {
    let servers = "{port: {number: 9000, name: tcp, protocol: TCP}, hosts: ['*']}";
    assert!(World::new(&[gateway(servers)]).names().is_empty());
    let other_port =
        virtual_service("v", "hosts: ['*'], tcp: [{match: [{port: 1}], route: [{destination: {host: b}}]}]");
    assert!(World::new(&[gateway(servers), other_port]).names().is_empty());
    let routed = virtual_service(
        "v",
        "hosts: ['*'], tcp: [{match: [{port: 9000}], route: [{destination: {host: b}}]}]",
    );
    let world = World::new(&[gateway(servers), routed]);
    let chains = world.chains("0.0.0.0_9000");
    assert_eq!(filter_names(&chains[0]), ["tcp_proxy"]);
    assert_eq!(chains[0].filter_chain_match, None);
}

#[test]
fn metadata_is_exchanged_with_clients_of_the_mesh() {
    let servers =
        "{port: {number: 9000, name: tls, protocol: TLS}, hosts: [a.com], tls: {mode: ISTIO_MUTUAL}}";
    let routed = virtual_service("v", "hosts: [a.com], tcp: [{route: [{destination: {host: b}}]}]");
    let chains = World::new(&[gateway(servers), routed]).chains("0.0.0.0_9000");
    assert_eq!(filter_names(&chains[0]), ["istio.metadata_exchange", "tcp_proxy"]);
    assert_eq!(common(&chains[0]).alpn_protocols, ["istio-peer-exchange", "h2", "http/1.1"]);
    assert_eq!(secret_names(&common(&chains[0])), ["default"]);
}

#[test]
fn tls_route_is_left_out_when_another_has_its_server_name() {
    let servers = "{port: {number: 443, name: tls, protocol: TLS}, hosts: ['*'], tls: {mode: PASSTHROUGH}}";
    let route = |name: &str, sni: &str| {
        let tls =
            format!("tls: [{{match: [{{sniHosts: [{sni}]}}], route: [{{destination: {{host: {name}}}}}]}}]");
        virtual_service(name, &format!("hosts: ['*'], {tls}"))
    };
    let world =
        World::new(&[gateway(servers), route("a", "x.com"), route("b", "x.com, y.com"), route("c", "y.com")]);
    let chains = world.chains("0.0.0.0_443");
    assert_eq!(server_names(&chains), [["x.com"], ["y.com"]]);
    assert!(chains.iter().all(|chain| chain.transport_socket.is_none()));
}

#[test]
fn auto_passthrough_has_a_chain_for_each_port_and_subset_of_covered_services() {
    let servers = "{port: {number: 15443, name: tls, protocol: TLS}, hosts: ['*.ns.svc.cluster.local'], \
                   tls: {mode: AUTO_PASSTHROUGH}}";
    let service = |name: &str, namespace: &str| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}}}, \
             spec: {{clusterIP: 10.2.0.1, ports: [{{name: http, port: 80}}]}}}}"
        )
    };
    let rule = "{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: b, namespace: ns}, \
                spec: {host: b, subsets: [{name: v1, labels: {version: v1}}]}}";
    let world = World::new(&[gateway(servers), service("b", "ns"), service("c", "other"), rule.to_owned()]);
    let chains = world.chains("0.0.0.0_15443");
    let cluster = |subset: &str| vec![format!("outbound_.80_.{subset}_.b.ns.svc.cluster.local")];
    assert_eq!(server_names(&chains), [cluster(""), cluster("v1")]);
    let protocols = &chains[0].filter_chain_match.as_ref().unwrap().application_protocols;
    assert!(protocols.iter().all(|protocol| protocol.starts_with("istio")), "{protocols:?}");
}

#[test]
fn redirect_is_for_every_host_of_the_server_with_or_without_routes() {
    let servers =
        "{port: {number: 80, name: http, protocol: HTTP}, hosts: [A.com, b.com], tls: {httpsRedirect: true}}";
    let routed = virtual_service("v", "hosts: [a.com], http: [{route: [{destination: {host: b}}]}]");
    let table = World::new(&[gateway(servers), routed]).routes("http.80");
    let hosts: Vec<_> = table
        .virtual_hosts
        .iter()
        .map(|host| (host.name.as_str(), host.require_tls, host.routes.len()))
        .collect();
    // Parity: the hosts of a server and of a VirtualService meet only if their case is the same.
    assert_eq!(hosts, [("a.com:80", 2, 0)]);
    assert_eq!(table.virtual_hosts[0].domains, ["a.com", "b.com"]);
}

#[test]
fn routes_of_several_virtual_services_are_joined_with_the_catch_all_last() {
    let servers = "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}";
    let all = virtual_service("a", "hosts: [x.com], http: [{route: [{destination: {host: a}}]}]");
    let some = virtual_service(
        "b",
        "hosts: [x.com], http: [{name: b, match: [{uri: {prefix: /b}}], route: [{destination: {host: b}}]}]",
    );
    let table = World::new(&[gateway(servers), all, some]).routes("http.80");
    let names: Vec<_> = table.virtual_hosts[0].routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["b", ""]);
}

#[test]
fn route_to_destinations_without_weight_is_an_answer_where_envoy_would_refuse_it() {
    let servers = "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}";
    let http = "{route: [{destination: {host: a}, weight: 0}, {destination: {host: b}, weight: 0}]}";
    let objects = [gateway(servers), virtual_service("v", &format!("hosts: [x.com], http: [{http}]"))];
    let action = |world: World| {
        let mut table = world.routes("http.80");
        table.virtual_hosts.remove(0).routes.remove(0).action
    };
    assert!(matches!(action(World::new(&objects)), Some(Action::Route(_))));
    assert!(
        matches!(action(World::stock(&objects)), Some(Action::DirectResponse(answer)) if answer.status == 500)
    );
}

#[test]
fn table_of_a_listener_that_is_gone_is_empty() {
    let table = World::new(&[]).routes("http.80");
    assert_eq!((table.name.as_str(), table.virtual_hosts.len()), ("http.80", 0));
}
