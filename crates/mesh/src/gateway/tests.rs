use canopus_base::spiffe::Identity;
use canopus_proto::istio::networking::v1alpha3::Port;
use canopus_runtime::flags::Flags;

use super::select::Selected;
use super::*;

fn server(number: u32, protocol: &str, hosts: &[&str], mode: Option<TlsMode>) -> Server {
    Server {
        port: Some(Port {
            number,
            name: format!("{protocol}-{number}"),
            protocol: protocol.into(),
            ..Default::default()
        }),
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        tls: mode.map(|mode| ServerTlsSettings { mode: mode as i32, ..Default::default() }),
        ..Default::default()
    }
}

fn gateway(name: &str, servers: Vec<Server>) -> GatewayConfig {
    GatewayConfig {
        namespace: "ns".into(),
        name: name.into(),
        spec: GatewaySpec { servers, ..Default::default() },
        binding: ProxyBinding::Selector,
        service_account: None,
        parent_namespace: "ns".into(),
        is_listener_set: false,
        derived_from: None,
        granted: BTreeSet::new(),
    }
}

fn target(port: u32, target_port: u32) -> PortTarget {
    PortTarget {
        host: "ingress.ns".into(),
        namespace: "ns".into(),
        port,
        target_port,
        protocol: Protocol::Tcp,
        untranslated: false,
    }
}

fn merged_on(gateways: Vec<GatewayConfig>, targets: &[PortTarget], flags: &Flags) -> MergedGateway {
    let selected: Vec<_> = gateways
        .into_iter()
        .map(|gateway| Selected { gateway: Arc::new(gateway), targets: targets.to_vec(), by_selector: true })
        .collect();
    let identity = Identity::new("cluster.local", "ns", "ingress").unwrap();
    merge::merge(&selected, Some(&identity), flags)
}

fn merged(gateways: Vec<GatewayConfig>) -> MergedGateway {
    merged_on(gateways, &[], &Flags::defaults())
}

/// The port numbers with how many servers each has.
fn ports(merged: &MergedGateway) -> Vec<(u32, &str, usize)> {
    merged.ports.iter().map(|p| (p.port.number, p.port.protocol.as_str(), p.servers.len())).collect()
}

#[test]
fn plain_http_servers_of_a_port_share_a_route_table() {
    let merged = merged(vec![
        gateway("a", vec![server(80, "HTTP", &["a.com"], None)]),
        gateway("b", vec![server(80, "GRPC", &["b.com"], None)]),
    ]);
    assert_eq!(ports(&merged), [(80, "HTTP", 2)]);
    assert_eq!(merged.routes.get("http.80"), Some(&vec![0, 1]));
}

#[test]
fn oldest_server_keeps_the_port_when_protocols_differ() {
    let merged = merged(vec![
        gateway("a", vec![server(80, "HTTP", &["*"], None)]),
        gateway("b", vec![server(80, "TCP", &["*"], None)]),
    ]);
    assert_eq!(ports(&merged), [(80, "HTTP", 1)]);
    assert_eq!(merged.rejected.len(), 1);
    assert_eq!(merged.rejected[0].reason, RejectionReason::ProtocolConflict { older: "HTTP".into() });
    assert_eq!(
        merged.rejected[0].to_string(),
        "Gateway ns/b server 0: an older server speaks HTTP on the port"
    );
}

#[test]
fn servers_do_not_meet_when_they_are_on_different_addresses() {
    let bound =
        |protocol: &str, bind: &str| Server { bind: bind.into(), ..server(80, protocol, &["*"], None) };
    let merged = merged(vec![gateway("a", vec![bound("TCP", "10.0.0.1"), bound("TCP", "10.0.0.2")])]);
    assert_eq!(ports(&merged), [(80, "TCP", 1), (80, "TCP", 1)]);
    assert!(merged.rejected.is_empty());
}

#[test]
fn https_servers_have_a_route_table_each() {
    let simple = Some(TlsMode::Simple);
    let merged = merged(vec![
        gateway("a", vec![server(443, "HTTPS", &["a.com", "./c.com"], simple)]),
        gateway("b", vec![server(443, "HTTPS", &["*/b.com"], simple)]),
    ]);
    assert_eq!(ports(&merged), [(443, "HTTPS", 2)]);
    assert_eq!(
        merged.routes.keys().collect::<Vec<_>>(),
        ["https.443.HTTPS-443.a.ns", "https.443.HTTPS-443.b.ns"]
    );
    assert_eq!(merged.servers[0].server.hosts, ["a.com", "ns/c.com"]);
    assert_eq!(merged.servers[0].sni_hosts, ["a.com", "c.com"]);
    assert_eq!(merged.servers[1].sni_hosts, ["b.com"]);
}

#[test]
fn tls_server_is_left_out_when_an_older_one_has_its_host() {
    let simple = Some(TlsMode::Simple);
    let merged = merged(vec![
        gateway("a", vec![server(443, "HTTPS", &["a.com"], simple)]),
        gateway("b", vec![server(443, "HTTPS", &["a.com", "b.com"], simple)]),
    ]);
    assert_eq!(ports(&merged), [(443, "HTTPS", 1)]);
    assert_eq!(merged.rejected[0].reason, RejectionReason::DuplicateHosts(vec!["a.com".into()]));
}

#[test]
fn service_port_is_translated_unless_the_service_declines() {
    let web =
        || vec![gateway("a", vec![server(80, "HTTP", &["*"], None), server(9000, "TCP", &["*"], None)])];
    let flags = Flags::defaults();
    assert_eq!(ports(&merged_on(web(), &[target(80, 8080)], &flags)), [(8080, "HTTP", 1), (9000, "TCP", 1)]);
    let untranslated = PortTarget { untranslated: true, ..target(80, 8080) };
    assert_eq!(ports(&merged_on(web(), &[untranslated], &flags)), [(80, "HTTP", 1), (9000, "TCP", 1)]);
}

#[test]
fn named_service_gives_all_its_target_ports_and_no_other() {
    let gateway = gateway("a", vec![server(80, "HTTP", &["*"], None), server(81, "HTTP", &["*"], None)]);
    let targets = vec![target(80, 8081), target(80, 8080)];
    let selected = [Selected { gateway: Arc::new(gateway), targets, by_selector: false }];
    let merged = merge::merge(&selected, None, &Flags::defaults());
    assert_eq!(ports(&merged), [(8080, "HTTP", 1), (8081, "HTTP", 1)]);
}

#[test]
fn http3_is_served_when_the_flag_and_a_udp_port_are_there() {
    let https = || vec![gateway("a", vec![server(443, "HTTPS", &["a.com"], Some(TlsMode::Simple))])];
    let udp = PortTarget { protocol: Protocol::Udp, ..target(443, 8443) };
    let on = Flags::read(&[("PILOT_ENABLE_QUIC_LISTENERS", "true")]);
    let with = merged_on(https(), std::slice::from_ref(&udp), &on);
    assert_eq!(with.ports[0].http3, [0]);
    assert!(with.http3_routes.contains("https.443.HTTPS-443.a.ns"));
    assert!(merged_on(https(), &[udp], &Flags::defaults()).http3_routes.is_empty());
    assert!(merged_on(https(), &[target(443, 8443)], &on).http3_routes.is_empty());
}

#[test]
fn certificates_are_those_of_the_namespace_that_gateway_and_proxy_share() {
    let named = |name: &str| {
        let mut server = server(443, "HTTPS", &["a.com"], Some(TlsMode::Mutual));
        server.tls.as_mut().unwrap().credential_name = name.into();
        server
    };
    let own = merged(vec![gateway("a", vec![named("cert")])]);
    assert_eq!(
        own.certificates.iter().collect::<Vec<_>>(),
        ["kubernetes://cert", "kubernetes://cert-cacert"]
    );
    let foreign = merged(vec![gateway("a", vec![named("kubernetes-gateway://other/cert")])]);
    assert!(foreign.certificates.is_empty());
    let elsewhere = GatewayConfig {
        namespace: "other".into(),
        parent_namespace: "other".into(),
        ..gateway("a", vec![named("cert")])
    };
    assert!(merged(vec![elsewhere]).certificates.is_empty());
}

#[test]
fn auto_passthrough_hosts_are_those_of_servers_that_are_served() {
    let merged = merged(vec![gateway(
        "a",
        vec![
            server(15443, "TLS", &["*.local", "ns/*.global"], Some(TlsMode::AutoPassthrough)),
            server(15443, "TLS", &["*.local"], Some(TlsMode::AutoPassthrough)),
        ],
    )]);
    assert!(merged.auto_passthrough);
    assert_eq!(merged.auto_passthrough_hosts.iter().collect::<Vec<_>>(), ["*.local", "ns/*.global"]);
}
