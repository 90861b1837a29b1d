//! Virtual services.

use canopus_api::validate::report::MAX_FINDINGS;

use super::{check, lines, report};

#[test]
fn everything_wrong_with_a_route_is_said() {
    check(
        "VirtualService",
        r"
gateways: ['', ns/]
hosts: [bad host, '*', '*.*.com', 10.0.0.1]
http:
- match: [{uri: {prefix: ''}, method: {prefix: ''}, headers: {'a b': {regex: '('}}, sourceNamespace: A_B}]
  retries: {attempts: -1, perTryTimeout: 0.0005s, retryOn: 'bogus,503,5xx'}
  route: [{destination: {host: '', port: {}}, weight: -5}, {}]
  timeout: 0.0001s
",
        &[
            "spec.gateways[0]: empty domain name not allowed",
            r#"spec.hosts[0]: domain name "bad host" invalid (label "bad host" invalid)"#,
            r#"spec.hosts[2]: domain name "*.com" invalid (label "*" invalid)"#,
            r#"spec.http[0].match[0].headers["a b"]: header name a b is not a valid header name"#,
            "spec.http[0].match[0].headers[\"a b\"]: \"headers\": error parsing regexp: missing closing ): `(`; Istio uses \
             RE2 style regex-based match (https://github.com/google/re2/wiki/Syntax)",
            r#"spec.http[0].match[0].method: "method": prefix string match should not be empty"#,
            "spec.http[0].match[0].sourceNamespace: sourceNamespace match A_B is invalid",
            "spec.http[0].retries.attempts: attempts cannot be negative",
            "spec.http[0].retries.perTryTimeout: duration must be greater than 1ms",
            r#"spec.http[0].retries.retryOn: "bogus" is not a valid retryOn policy"#,
            "spec.http[0].route[0].destination.host: empty domain name not allowed",
            "spec.http[0].route[0].destination.port.number: port number 0 must be in the range 1..65535",
            "spec.http[0].route[0].weight: weight -5 < 0",
            "spec.http[0].route[1].destination: destination is required",
            "spec.http[0].timeout: duration must be greater than 1ms",
        ],
        &[],
    );
}

#[test]
fn mesh_is_not_bound_to_every_host_or_to_claims() {
    check(
        "VirtualService",
        r"
hosts: ['*']
gateways: [mesh, ns/gateway]
http:
- match: [{headers: {'@request.auth.claims.sub': {exact: a}}, withoutHeaders: {'x': {regex: '*'}}}]
  route: [{destination: {host: a}}]
",
        &[
            "spec.http[0].match[0].headers[\"@request.auth.claims.sub\"]: JWT claim based routing (key: \
             @request.auth.claims.sub) is only supported for gateway, found no gateways: [mesh ns/gateway]",
            "spec.hosts[0]: wildcard host * is not allowed for virtual services bound to the mesh gateway",
        ],
        &[],
    );
}

#[test]
fn name_of_a_gateway_behind_one_without_namespace_is_not_looked_at() {
    check(
        "VirtualService",
        "hosts: [a]\ngateways: [gw.ns.svc, Bad_NS/x]\nhttp: [{route: [{destination: {host: a}}]}]",
        &[],
        &[
            "spec.gateways[0]: using legacy gatewayName format \"gw.ns.svc\"; prefer the <namespace>/<name> format: \"ns/gw\"",
        ],
    );
}

#[test]
fn route_does_one_thing() {
    check(
        "VirtualService",
        r"
hosts: [a]
http:
- {name: one, redirect: {uri: /x, prefixRewrite: /y, redirectCode: 200}, directResponse: {status: 200}, fault: {}, rewrite: {},
   route: [{destination: {host: a}}]}
- {match: [{port: 1}], directResponse: {status: 601}, rewrite: {uri: /x, uriRegexRewrite: {match: '['}}}
- {match: [{port: 2}], mirror: {host: a}, mirrors: [{}], mirrorPercent: 101}
- {match: [{port: 3}], name: root, delegate: {name: b}, redirect: {uri: /x}, route: [{destination: {host: a}}]}
",
        &[
            "spec.http[0]: HTTP route cannot contain both route and redirect",
            "spec.http[0]: HTTP route cannot contain both fault and redirect",
            "spec.http[0]: HTTP route rule cannot contain both rewrite and redirect",
            "spec.http[0]: HTTP route rule cannot contain both direct_response and redirect",
            "spec.http[0].fault: HTTP fault injection must have an abort and/or a delay",
            "spec.http[0].redirect: redirect may only specify one of uri or prefix_rewrite",
            "(spec.http[0].redirect.redirectCode: 200 is not a valid redirect code, must be 3xx)",
            "spec.http[0].rewrite: rewrite must specify at least one of URI, UriRegexRewrite, or authority. Only one of URI \
             or UriRegexRewrite may be specified",
            "spec.http[1]: HTTP route rule cannot contain both rewrite and direct_response",
            "spec.http[1].directResponse.status: HTTP status 601 is not in range 200-599",
            "spec.http[1].rewrite: rewrite may only contain one of URI or UriRegexRewrite",
            "(spec.http[1].rewrite.uriRegexRewrite: UriRegexRewrite has errors\nUriRegexRewrite requires both Rewrite and \
             Match fields to be specified)",
            "spec.http[2]: HTTP route, redirect or direct_response is required",
            "spec.http[2]: HTTP route cannot contain both mirror and mirrors",
            "spec.http[2].mirrorPercent: mirror_percent must have a max value of 100 (it has 101)",
            "spec.http[2].mirrors[0].destination: destination is required for mirrors",
            "spec.http[3].redirect: root HTTP route root must not specify redirect",
            "spec.http[3].route: root HTTP route root must not specify route",
        ],
        &[
            "spec.http[2].mirrorPercent: using deprecated setting \"mirrorPercent\", use \"mirrorPercentage\" instead",
            "spec.http[1]: virtualService rule #1 not used (route without matches defined before)",
            "spec.http[2]: virtualService rule #2 not used (route without matches defined before)",
            "spec.http[3]: virtualService rule \"root\" not used (route without matches defined before)",
        ],
    );
}

#[test]
fn delegate_has_no_gateways_and_delegates_no_further() {
    check(
        "VirtualService",
        r"
gateways: [ns/gateway]
tcp: [{route: [{destination: {host: a}}]}]
http: [{delegate: {name: a}, route: [{destination: {host: a}}]}]
",
        &[
            "spec.gateways: delegate virtual service must have no gateways specified",
            "spec.tcp: delegate virtual service must have no tcp route specified",
            "spec.http[0].delegate: delegate HTTP route cannot contain delegate",
        ],
        &[],
    );
}

#[test]
fn authority_is_set_in_one_place() {
    let spec = |rewrite: &str| {
        format!(
            "hosts: [a]\nhttp: [{{route: [{{destination: {{host: a}}}}], headers: {{request: {{set: {{Host: b}}, add: \
             {{':authority': c}}}}}}{rewrite}}}]"
        )
    };
    let expected = |have, wanted| {
        format!("authority header cannot be set multiple times: have {have:?}, attempting to set {wanted:?}")
    };
    let text = |rewrite| report("VirtualService", &spec(rewrite)).error_text().unwrap();
    assert_eq!(text(""), expected("b", "c"));
    assert_eq!(text(", rewrite: {authority: z}"), expected("z", "b"));
}

#[test]
fn warning_of_an_abort_is_ours() {
    check(
        "VirtualService",
        "hosts: [a]\nhttp: [{route: [{destination: {host: a}}], fault: {abort: {percentage: {value: 0.00005}}}}]",
        &[
            "spec.http[0].fault.abort.percentage: percentage 5e-05 is neither 0.0, nor in range [0.0001, 100.0]",
        ],
        &["(spec.http[0].fault.abort: abort configured, but error type not set)"],
    );
}

#[test]
fn sni_is_one_of_the_hosts_and_no_address() {
    check(
        "VirtualService",
        r"
hosts: [a.com, '*.b.com']
gateways: [ns/gateway]
tls:
- match: [{sniHosts: [x.b.com, c.com, 10.0.0.1, outbound_.80_._.x.b.com, outbound_._._.x.b.com], sourceLabels: {'!': 'a b'}}]
  route: [{destination: {host: a}, weight: 0}, {destination: {host: '*'}, weight: 0}]
- {}
",
        &[
            "spec.tls[0].match[0].sniHosts[1]: SNI host \"c.com\" is not a compatible subset of any of the virtual service \
             hosts: [a.com, *.b.com]",
            "spec.tls[0].match[0].sniHosts[4]: domain name \"outbound_._._.x.b.com\" invalid (label \"\" invalid). should \
             follow outbound_.<PORT>_._.<HOSTNAME> format",
            r#"spec.tls[0].match[0].sourceLabels["!"]: invalid tag key: "!""#,
            r#"spec.tls[0].match[0].sourceLabels["!"]: invalid tag value: "a b""#,
            "spec.tls[0].route[1].destination.host: invalid destination host *",
            "spec.tls[0].route: total destination weight = 0",
            "spec.tls[1].match: TLS route must have at least one match condition",
            "spec.tls[1].route: TLS route is required",
        ],
        &[
            "spec.tls[0].match[0].sniHosts[2]: using an IP address (\"10.0.0.1\") goes against SNI spec and most clients do \
             not support this",
        ],
    );
}

#[test]
fn match_that_never_matches_is_found() {
    check(
        "VirtualService",
        r"
hosts: [a]
http:
- {name: first, match: [{uri: {prefix: /a}}, {name: twin, uri: {exact: /x}}], route: [{destination: {host: a}}]}
- {match: [{uri: {exact: /x}}], route: [{destination: {host: a}}]}
- {match: [{uri: {prefix: /ab}}, {uri: {prefix: /ac}, port: 1}, {name: post, uri: {prefix: /ad}, method: {exact: POST}}],
   route: [{destination: {host: a}}]}
- {route: [{destination: {host: a}}]}
- {route: [{destination: {host: a}}]}
tcp:
- {match: [{port: 1}], route: [{destination: {host: a}}]}
- {match: [{port: 1}], route: [{destination: {host: a}}]}
",
        &[],
        &[
            r#"spec.http[1].match[0]: virtualService rule #1 match #0 is not used (duplicate/overlapping match in rule "first")"#,
            "spec.http[1]: virtualService rule #1 not used (all matches used by prior rules)",
            "spec.http[4]: virtualService rule #4 not used (only the last rule can have no matches)",
            "spec.http[2].match[0]: virtualService rule #2 match #0 of prefix /ab is not used (duplicate/overlapping match in \
             rule #0 of prefix /a on \"first\")",
            "spec.tcp[1].match[0]: virtualService rule #1 match #0 is not used (duplicate/overlapping match in rule #0)",
            "spec.tcp[1]: virtualService rule #1 not used (all matches used by prior rules)",
        ],
    );
}

#[test]
fn earlier_prefix_covers_in_the_order_of_the_earlier_one() {
    let spec = "hosts: [a]\nhttp:\n- {match: [{uri: {prefix: /}}, {uri: {prefix: /a}}, {uri: {prefix: /a/b}}], route: \
                [{destination: {host: a}}]}";
    let found = lines(&report("VirtualService", spec).warnings);
    let pairs: Vec<_> =
        found.iter().map(|line| (line.contains("match #2"), line.contains("rule #1 of"))).collect();
    assert_eq!(pairs, [(false, false), (true, false), (true, true)]);
}

#[test]
fn findings_of_one_object_are_limited() {
    let hosts = vec!["a.com"; 300].join(", ");
    let spec = format!("hosts: [{hosts}]\nhttp: [{{route: [{{destination: {{host: a}}}}]}}]");
    assert_eq!(report("VirtualService", &spec).errors.len(), MAX_FINDINGS);
}

#[test]
fn finding_has_a_rule_a_value_and_arguments() {
    let report = report("VirtualService", "hosts: [a, b, a]\nhttp: [{}, {}]");
    let twice = report.errors.iter().find(|finding| finding.code.id == "virtual-service-host-twice").unwrap();
    assert_eq!((twice.value.as_deref(), twice.path.as_str()), (Some("a"), "spec.hosts[2]"));
    assert!(!twice.code.remedy.is_empty());
    assert_eq!(report.warnings[0].arguments, ["#1", "only the last rule can have no matches"]);
}
