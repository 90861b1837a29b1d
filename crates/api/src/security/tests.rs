use super::jwks::{JwksServer, JwksUriError};
use super::*;

fn list(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[test]
fn wildcard_stands_at_one_end_or_alone() {
    for fine in ["a", "*", "a*", "*a"] {
        assert_eq!(check_wildcards("f", &list(&[fine])), Ok(()), "{fine}");
    }
    let refused = |value: &str| check_wildcards("f", &list(&[value])).unwrap_err();
    assert!(matches!(refused("a*b"), InvalidValue::InnerWildcard { .. }));
    assert!(matches!(refused("*a*"), InvalidValue::ManyWildcards { .. }));
    assert!(matches!(refused(""), InvalidValue::Empty { .. }));
}

#[test]
fn trust_domain_is_one_name() {
    assert_eq!(check_trust_domains("f", &list(&["cluster.local", "*-b"])), Ok(()));
    assert!(check_trust_domains("f", &list(&["spiffe://cluster.local"])).is_err());
}

#[test]
fn service_account_has_at_most_a_namespace_before_it() {
    assert_eq!(check_service_accounts("f", &list(&["a", "ns/a"])), Ok(()));
    for bad in ["/a", "ns/", "a/b/c", "a*", ""] {
        assert!(check_service_accounts("f", &list(&[bad])).is_err(), "{bad}");
    }
    assert!(check_service_accounts("f", &list(&["a"; 17])).is_err());
    assert!(check_service_accounts("f", &[("a").repeat(321)]).is_err());
}

#[test]
fn message_says_which_part_of_a_service_account_is_missing() {
    let message = check_service_accounts("F", &list(&["/a"])).unwrap_err().to_string();
    assert_eq!(
        message,
        r#"expected format 'serviceAccount' or 'namespace/serviceAccount', found empty namespace "/a" in F"#
    );
}

#[test]
fn template_is_a_whole_segment_and_many_segments_come_last() {
    for fine in ["/{*}/a", "/a/{**}/b", "/a/{**}", "/plain?", "/a/*"] {
        assert_eq!(check_path_templates("f", &list(&[fine])), Ok(()), "{fine}");
    }
    for bad in ["/{**}/a/{*}", "/{**}/{**}", "/{*}.txt", "/{a}", "/{*}/b?", "/{*}/*", "/{*}//a"] {
        assert!(check_path_templates("f", &list(&[bad])).is_err(), "{bad}");
    }
}

#[test]
fn attribute_decides_what_its_values_must_be() {
    let check = |key: &str, value: &str| check_attribute(key, &list(&[value])).len();
    assert_eq!(check("source.ip", "10.0.0.0/8"), 0);
    assert_eq!(check("source.ip", "fe80::1%eth0"), 0);
    assert_eq!(check("remote.ip", "10.0.0"), 1);
    assert_eq!(check("destination.ip", "10.0.0.0/40"), 1);
    assert_eq!(check("destination.port", "65535"), 0);
    for bad in ["65536", "-1", "+1", "http"] {
        assert_eq!(check("destination.port", bad), 1, "{bad}");
    }
    assert_eq!(check("source.trustDomain", "a/b"), 0);
    assert_eq!(check("connection.sni", "a"), 0);
    assert_eq!(check("connection.sni", ""), 1);
}

#[test]
fn all_bad_addresses_are_reported() {
    assert_eq!(check_ips(&list(&["a", "1.2.3.4", "b"])).len(), 2);
}

#[test]
fn attribute_is_refused_when_unknown_replaced_or_without_its_key() {
    let message = |key: &str| check_attribute(key, &list(&["v"]))[0].to_string();
    assert_eq!(message("source.user"), "unknown attribute: source.user");
    assert_eq!(
        message("destination.labels[app]"),
        "attribute destination.labels[app] is replaced by the workload selector"
    );
    assert_eq!(message("request.headers[]"), "bad key (request.headers[]): should have format a[b]");
    assert!(check_attribute("request.headers[:authority]", &list(&["v"])).is_empty());
    assert!(check_attribute("experimental.envoy.filters.a[b]", &list(&["v"])).is_empty());
}

#[test]
fn jwks_port_is_the_schemes_unless_given() {
    let server = |uri: &str| JwksServer::parse(uri).map(|s| (s.tls, s.host, s.port));
    assert_eq!(server("http://a.example"), Ok((false, "a.example".into(), 80)));
    assert_eq!(server("HTTPS://u:p@a.example/keys?x#y"), Ok((true, "a.example".into(), 443)));
    assert_eq!(server("http://[fd00::1]:81/"), Ok((false, "fd00::1".into(), 81)));
    assert_eq!(server("http://a.example:"), Ok((false, "a.example".into(), 80)));
}

#[test]
fn jwks_address_is_refused_when_it_is_not_a_web_address() {
    for uri in ["a.example", "ftp://a.example", "a.example:80/x", ""] {
        assert!(matches!(JwksServer::parse(uri), Err(JwksUriError::Scheme { .. })), "{uri}");
    }
    for uri in [
        "http://a.example:x",
        "http://[fd00::1",
        "http://a example",
        "http://a.example/%zz",
        "http://a.example\n",
        "://a",
    ] {
        assert!(matches!(JwksServer::parse(uri), Err(JwksUriError::Malformed(_))), "{uri}");
    }
    let huge = JwksServer::parse("http://a:99999999999999999999");
    assert!(matches!(huge, Err(JwksUriError::Port { .. })));
}
