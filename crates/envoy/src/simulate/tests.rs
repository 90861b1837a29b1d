use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::socket_address::PortSpecifier;
use canopus_proto::envoy::config::core::v3::{
    Address, CidrRange, SocketAddress, TransportSocket, address, transport_socket,
};
use canopus_proto::envoy::config::listener::v3::{Filter, FilterChainMatch, ListenerFilter};
use canopus_proto::envoy::config::route::v3::{
    HeaderMatcher, QueryParameterMatcher, Route, RouteMatch, VirtualHost, header_matcher,
    query_parameter_matcher, route_match::PathSpecifier,
};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::Rds;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, SdsSecretConfig,
};
use canopus_proto::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern};

use super::*;

fn listener(name: &str, address: &str, port: u32, filter_chains: Vec<FilterChain>) -> Listener {
    let socket = SocketAddress {
        address: address.to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(port)),
        ..Default::default()
    };
    let inspectors = ["envoy.filters.listener.tls_inspector", "envoy.filters.listener.http_inspector"];
    Listener {
        name: name.to_owned(),
        address: Some(Address { address: Some(address::Address::SocketAddress(socket)) }),
        filter_chains,
        listener_filters: inspectors
            .into_iter()
            .map(|name| ListenerFilter { name: name.to_owned(), ..Default::default() })
            .collect(),
        ..Default::default()
    }
}

/// A chain that sends everything to the cluster of its name.
fn tcp_chain(name: &str, matched: FilterChainMatch) -> FilterChain {
    let proxy = TcpProxy {
        cluster_specifier: Some(tcp_proxy::ClusterSpecifier::Cluster(name.to_owned())),
        ..Default::default()
    };
    FilterChain {
        name: name.to_owned(),
        filter_chain_match: Some(matched),
        filters: vec![filter_of(&proxy)],
        ..Default::default()
    }
}

fn filter_of<M: Message + Name>(config: &M) -> Filter {
    Filter { name: "filter".to_owned(), config_type: Some(ConfigType::TypedConfig(Any::pack(config))) }
}

/// A chain that routes by table `80`.
fn http_chain() -> FilterChain {
    let rds = Rds { route_config_name: "80".to_owned(), ..Default::default() };
    let manager =
        HttpConnectionManager { route_specifier: Some(RouteSpecifier::Rds(rds)), ..Default::default() };
    FilterChain { name: "http".to_owned(), filters: vec![filter_of(&manager)], ..Default::default() }
}

fn virtual_host(name: &str, domains: &[&str], routes: Vec<Route>) -> VirtualHost {
    VirtualHost {
        name: name.to_owned(),
        domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
        routes,
        ..Default::default()
    }
}

/// A route that answers with a status.
fn route(path: PathSpecifier, status: u32) -> Route {
    Route {
        name: status.to_string(),
        r#match: Some(RouteMatch { path_specifier: Some(path), ..Default::default() }),
        action: Some(Action::DirectResponse(canopus_proto::envoy::config::route::v3::DirectResponseAction {
            status,
            ..Default::default()
        })),
        ..Default::default()
    }
}

fn prefix(path: &str) -> PathSpecifier {
    PathSpecifier::Prefix(path.to_owned())
}

/// A proxy with one HTTP listener.
fn http(hosts: Vec<VirtualHost>) -> Config {
    let table = RouteConfiguration {
        name: "80".to_owned(),
        virtual_hosts: hosts,
        ignore_port_in_host_matching: true,
        ..Default::default()
    };
    Config {
        listeners: vec![listener("0.0.0.0_80", "0.0.0.0", 80, vec![http_chain()])],
        routes: BTreeMap::from([("80".to_owned(), table)]),
    }
}

fn tcp_end_of(config: &Config, call: &Call) -> Result<String, Failure> {
    match config.follow(call).end? {
        End::Cluster(cluster) => Ok(cluster),
        other => panic!("{other:?}"),
    }
}

#[test]
fn listener_of_the_address_goes_before_that_of_the_port_and_the_rest_is_for_the_original_destination() {
    let any = || vec![tcp_chain("any", FilterChainMatch::default())];
    let mut rest = listener("virtualOutbound", "0.0.0.0", 15001, any());
    rest.use_original_dst = Some(true.into());
    let exact = listener("10.0.0.1_80", "10.0.0.1", 80, any());
    let config = Config {
        listeners: vec![rest, listener("0.0.0.0_80", "0.0.0.0", 80, any()), exact],
        ..Config::default()
    };
    let chosen = |address: &str, port| {
        let call = Call { address: address.parse().unwrap(), port, ..Call::default() };
        config.follow(&call).listener
    };
    assert_eq!(chosen("10.0.0.1", 80).as_deref(), Some("10.0.0.1_80"));
    assert_eq!(chosen("10.0.0.2", 80).as_deref(), Some("0.0.0.0_80"));
    assert_eq!(chosen("10.0.0.1", 81).as_deref(), Some("virtualOutbound"));
    let inbound = Call { capture: Capture::Inbound, ..Call::default() };
    assert_eq!(config.follow(&inbound).end, Err(Failure::NoListener));
}

#[test]
fn narrowest_address_range_wins_even_if_a_later_criterion_then_fits_none() {
    let range = |prefix: &str, length: u32, names: &[&str]| FilterChainMatch {
        prefix_ranges: vec![CidrRange { address_prefix: prefix.to_owned(), prefix_len: Some(length.into()) }],
        server_names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Default::default()
    };
    let chains = vec![
        tcp_chain("wide", range("10.0.0.0", 8, &[])),
        tcp_chain("narrow", range("10.1.0.0", 16, &["a.com"])),
        tcp_chain("all", range("0.0.0.0", 0, &[])),
    ];
    let config = Config { listeners: vec![listener("l", "0.0.0.0", 80, chains)], ..Config::default() };
    let end = |address: &str, sni: &str| {
        let tls = Some(Tls { sni: sni.to_owned(), ..Tls::default() });
        let call =
            Call { address: address.parse().unwrap(), tls, protocol: Protocol::Tcp, ..Call::default() };
        tcp_end_of(&config, &call)
    };
    assert_eq!(end("10.2.0.1", "a.com").as_deref(), Ok("wide"));
    assert_eq!(end("10.1.0.1", "a.com").as_deref(), Ok("narrow"));
    assert_eq!(end("10.1.0.1", "b.com"), Err(Failure::NoFilterChain));
    assert_eq!(end("192.0.2.1", "b.com").as_deref(), Ok("all"));
}

#[test]
fn server_names_and_protocols_are_known_only_where_they_are_looked_for() {
    let with = |names: &[&str], transport: &str, applications: &[&str]| FilterChainMatch {
        server_names: names.iter().map(|name| (*name).to_owned()).collect(),
        transport_protocol: transport.to_owned(),
        application_protocols: applications.iter().map(|name| (*name).to_owned()).collect(),
        ..Default::default()
    };
    let chains = vec![
        tcp_chain("exact", with(&["a.b.com"], "tls", &[])),
        tcp_chain("wildcard", with(&["*.com"], "tls", &[])),
        tcp_chain("longer", with(&["*.b.com"], "tls", &[])),
        tcp_chain("http", with(&[], "raw_buffer", &["http/1.1", "h2c"])),
        tcp_chain("plain", with(&[], "raw_buffer", &[])),
    ];
    let mut listener = listener("l", "0.0.0.0", 80, chains);
    let end = |listener: &Listener, sni: Option<&str>, protocol| {
        let config = Config { listeners: vec![listener.clone()], ..Config::default() };
        let tls = sni.map(|sni| Tls { sni: sni.to_owned(), ..Tls::default() });
        tcp_end_of(&config, &Call { tls, protocol, ..Call::default() })
    };
    assert_eq!(end(&listener, Some("a.b.com"), Protocol::Tcp).as_deref(), Ok("exact"));
    assert_eq!(end(&listener, Some("c.b.com"), Protocol::Tcp).as_deref(), Ok("longer"));
    assert_eq!(end(&listener, Some("c.com"), Protocol::Tcp).as_deref(), Ok("wildcard"));
    assert_eq!(end(&listener, Some("c.net"), Protocol::Tcp), Err(Failure::NoFilterChain));
    assert_eq!(end(&listener, None, Protocol::Http2).as_deref(), Ok("http"));
    assert_eq!(end(&listener, None, Protocol::Tcp).as_deref(), Ok("plain"));
    listener.listener_filters.clear();
    assert_eq!(end(&listener, Some("a.b.com"), Protocol::Tcp).as_deref(), Ok("plain"));
    assert_eq!(end(&listener, None, Protocol::Http1).as_deref(), Ok("plain"));
    listener.default_filter_chain = Some(tcp_chain("default", FilterChainMatch::default()));
    listener.filter_chains.clear();
    assert_eq!(end(&listener, None, Protocol::Http1).as_deref(), Ok("default"));
    listener.filter_chains = vec![listener.default_filter_chain.clone().unwrap(); 2];
    assert_eq!(end(&listener, None, Protocol::Http1), Err(Failure::AmbiguousFilterChains));
}

#[test]
fn certificates_must_be_wanted_by_both_sides_or_neither() {
    let context = DownstreamTlsContext {
        require_client_certificate: Some(true.into()),
        common_tls_context: Some(CommonTlsContext {
            tls_certificate_sds_secret_configs: vec![SdsSecretConfig {
                name: "default".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut chain = tcp_chain("mutual", FilterChainMatch::default());
    chain.transport_socket = Some(TransportSocket {
        name: "tls".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(Any::pack(&context))),
    });
    let config = Config { listeners: vec![listener("l", "0.0.0.0", 80, vec![chain])], ..Config::default() };
    let end = |tls: Option<Option<&str>>| {
        let tls = tls.map(|with| Tls { mutual_with: with.map(str::to_owned), ..Tls::default() });
        tcp_end_of(&config, &Call { tls, ..Call::default() })
    };
    assert_eq!(end(None), Err(Failure::PlaintextToTls));
    assert_eq!(end(Some(None)), Err(Failure::MutualTls));
    assert_eq!(end(Some(Some("other"))), Err(Failure::MutualTls));
    assert_eq!(end(Some(Some("default"))).as_deref(), Ok("mutual"));
}

#[test]
fn hosts_match_exactly_then_by_suffix_then_by_prefix_then_anyhow() {
    let hosts = [
        ("exact", "a.b.com"),
        ("suffix", "*.b.com"),
        ("short suffix", "*.com"),
        ("prefix", "a.*"),
        ("v6", "[fd00::1]"),
        ("rest", "*"),
    ];
    let config = http(hosts.iter().map(|(name, domain)| virtual_host(name, &[domain], Vec::new())).collect());
    for (host, expected) in [
        ("a.b.com", "exact"),
        ("A.B.com:8080", "exact"),
        ("x.b.com", "suffix"),
        ("b.com", "short suffix"),
        ("a.net", "prefix"),
        ("[fd00::1]:80", "v6"),
        ("[fd00::1]", "v6"),
        ("x.net", "rest"),
        ("", "rest"),
    ] {
        let journey = config.follow(&Call { host: host.to_owned(), ..Call::default() });
        assert_eq!(journey.virtual_host.as_deref(), Some(expected), "{host}");
        assert_eq!(journey.end, Err(Failure::NoRoute));
    }
    let tcp = Call { protocol: Protocol::Tcp, ..Call::default() };
    assert_eq!(config.follow(&tcp).end, Err(Failure::NotHttp));
    assert_eq!(http(Vec::new()).follow(&Call::default()).end, Err(Failure::NoVirtualHost));
}

#[test]
fn first_route_whose_path_fits_answers() {
    let regex = RegexMatcher { regex: "/r/[0-9]+".to_owned(), ..Default::default() };
    let routes = vec![
        route(PathSpecifier::Path("/exact".to_owned()), 201),
        route(PathSpecifier::PathSeparatedPrefix("/part".to_owned()), 202),
        route(PathSpecifier::SafeRegex(regex), 203),
        route(prefix("/e"), 204),
    ];
    let config = http(vec![virtual_host("all", &["*"], routes)]);
    for (path, expected) in [
        ("/exact", Ok(201)),
        ("/exact?q=1", Ok(201)),
        ("/exactly", Ok(204)),
        ("/part", Ok(202)),
        ("/part/of", Ok(202)),
        ("/party", Err(Failure::NoRoute)),
        ("/r/42", Ok(203)),
        ("/r/42/x", Err(Failure::NoRoute)),
    ] {
        let end = config.follow(&Call { path: path.to_owned(), ..Call::default() }).end;
        assert_eq!(end, expected.map(End::Response), "{path}");
    }
}

#[test]
fn headers_and_parameters_narrow_a_route_down() {
    let exact = |text: &str| StringMatcher {
        match_pattern: Some(MatchPattern::Exact(text.to_owned())),
        ..Default::default()
    };
    let header = |name: &str, text: &str| HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(header_matcher::HeaderMatchSpecifier::StringMatch(exact(text))),
        ..Default::default()
    };
    let with = |headers: Vec<HeaderMatcher>, parameter: Option<&str>| {
        let mut route = route(prefix("/"), 200);
        let matched = route.r#match.as_mut().unwrap();
        matched.headers = headers;
        matched.query_parameters.extend(parameter.map(|name| QueryParameterMatcher {
            name: name.to_owned(),
            query_parameter_match_specifier: Some(
                query_parameter_matcher::QueryParameterMatchSpecifier::PresentMatch(true),
            ),
        }));
        http(vec![virtual_host("all", &["*"], vec![route])])
    };
    let passes = |config: &Config, headers: &[(&str, &str)], path: &str| {
        let headers = headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        config.follow(&Call { headers, path: path.to_owned(), ..Call::default() }).end.is_ok()
    };
    let user = with(vec![header("User", "jason"), header(":method", "GET")], None);
    assert!(passes(&user, &[("user", "jason")], "/"));
    assert!(!passes(&user, &[("user", "other")], "/") && !passes(&user, &[], "/"));
    let strict = HeaderMatcher { invert_match: true, ..header("user", "jason") };
    let other = with(vec![strict.clone()], None);
    assert!(passes(&other, &[("user", "other")], "/") && !passes(&other, &[], "/"));
    let absent = with(vec![HeaderMatcher { treat_missing_header_as_empty: true, ..strict }], None);
    assert!(passes(&absent, &[], "/") && !passes(&absent, &[("user", "jason")], "/"));
    let parameter = with(Vec::new(), Some("q"));
    assert!(passes(&parameter, &[], "/?a=1&q") && !passes(&parameter, &[], "/?a=q"));
}
