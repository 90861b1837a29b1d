//! Cases whose recording holds stale state of the recorded control plane, an order that fails requests, less than there is to
//! say, or a certificate that somebody should not have been given.
//!
//! Such a case neither passes nor fails: it is *better*, with a reason, and is counted apart. Only differences in the named
//! fields count as that; any other one is a failure as everywhere.

use crate::case::Outcome;

/// Why and where a recording is stale.
struct Stale {
    suite: &'static str,
    case: &'static str,
    /// Where it may differ, by the end of the path.
    fields: &'static [&'static str],
    reason: &'static str,
}

const STALE: &[Stale] = &[
    Stale {
        suite: "xds",
        case: "push/endpoint-zero-and-back",
        fields: &["/cds", "/order"],
        reason: "istiod keeps the service accounts of endpoints that are gone",
    },
    Stale {
        suite: "xds",
        case: "push/node-label",
        fields: &["/eds", "/order"],
        reason: "istiod keeps the zone a node had when it was first seen",
    },
    Stale {
        suite: "xds",
        case: "push/sidecar-create",
        fields: &[
            "/updated/outbound|80||far.ns2.svc.cluster.local",
            "/updated/outbound|80||istio-ingressgateway.istio-system.svc.cluster.local",
            "/updated/outbound|80||local3.ns3.svc.cluster.local",
        ],
        reason: "clusters go after the routes that name them, so that no request fails in between",
    },
    Stale {
        suite: "live-status",
        case: "alpha-udproute",
        fields: &["UDPRoute/r"],
        reason: "a route that is not served says so in its status",
    },
    Stale {
        suite: "live-status",
        case: "default-gw-params-configmap",
        fields: &["created ServiceAccount/gw-istio", "/message"],
        reason: "of a gateway whose overlay is broken nothing is deployed, and its status says why",
    },
    Stale {
        suite: "live-status",
        case: "default-gw-params-bad-key",
        fields: &["/message"],
        reason: "the status of a gateway whose overlay is broken says why nothing is deployed",
    },
    Stale {
        suite: "live-ca",
        case: "impersonate-other-trust-domain",
        fields: &["/grpcCode", "/grpcMessage", "/chain"],
        reason: "istiod certifies identities of any trust domain for a node, which vouches for workloads of its own alone",
    },
];

/// The outcome of a case in the light of what is known of its recording.
pub(crate) fn weigh(suite: &str, case: &str, outcome: Outcome) -> Outcome {
    let Outcome::Fail(differences) = outcome else { return outcome };
    let of_case = |stale: &&Stale| {
        let rest = case.strip_prefix(stale.case);
        stale.suite == suite && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let Some(stale) = STALE.iter().find(of_case) else { return Outcome::Fail(differences) };
    let is_known = |path: &str| stale.fields.iter().any(|field| path.ends_with(field));
    if differences.iter().all(|difference| is_known(&difference.path)) {
        Outcome::Better(stale.reason)
    } else {
        Outcome::Fail(differences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Difference;

    fn fail(path: &str) -> Outcome {
        Outcome::Fail(vec![Difference::new(path, "1", "2")])
    }

    #[test]
    fn stale_recording_is_better_only_in_the_fields_that_are_stale() {
        let case = "push/node-label";
        assert!(matches!(weigh("xds", case, fail("/steps/0/client/eds")), Outcome::Better(_)));
        assert_eq!(weigh("xds", case, fail("/steps/0/client/cds")), fail("/steps/0/client/cds"));
        assert_eq!(weigh("xds", case, Outcome::Pass), Outcome::Pass);
    }

    #[test]
    fn other_cases_and_suites_fail_as_always() {
        assert_eq!(weigh("xds", "push/node-labels", fail("/eds")), fail("/eds"));
        assert_eq!(weigh("objects", "push/node-label", fail("/eds")), fail("/eds"));
    }
}
