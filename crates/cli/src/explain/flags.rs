//! What the response flags of Envoy's access logs mean, and what to look at.

/// A response flag of an access log line, with what it says about the request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    /// The form in which newer formats write it.
    long: &'static str,
    pub(super) meaning: &'static str,
    pub(super) remedy: &'static str,
}

const fn flag(name: &'static str, long: &'static str, meaning: &'static str, remedy: &'static str) -> Flag {
    Flag { name, long, meaning, remedy }
}

/// The flag of this name, in its short or its long form.
pub(super) fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name || flag.long == name)
}

static FLAGS: [Flag; 28] = [
    flag(
        "UH",
        "NoHealthyUpstream",
        "The cluster has no healthy endpoint.",
        "Compare the selector or the subset's labels with those of the pods, and look at their readiness.",
    ),
    flag(
        "UF",
        "UpstreamConnectionFailure",
        "The connection to the endpoint failed.",
        "Check that the port is the one the application listens on, and that both sides agree about mutual TLS.",
    ),
    flag(
        "UO",
        "UpstreamOverflow",
        "A circuit breaker of the cluster is open.",
        "Raise connectionPool in the host's DestinationRule, or find out why requests pile up.",
    ),
    flag(
        "NR",
        "NoRouteFound",
        "No route or filter chain matches the request.",
        "Run `canopus explain` for it: it says what each route asks for that the request does not have.",
    ),
    flag(
        "URX",
        "UpstreamRetryLimitExceeded",
        "The request was tried as often as its route allows.",
        "Look at why the attempts failed; the endpoint's own log has their answers.",
    ),
    flag(
        "NC",
        "NoClusterFound",
        "The route names a cluster that the proxy does not have.",
        "The destination's host, subset or port does not exist: `canopus analyze` names the route (IST0101).",
    ),
    flag(
        "DT",
        "DurationTimeout",
        "The request or connection lasted longer than allowed.",
        "Compare idleTimeout and maxConnectionDuration of the host's DestinationRule with what the application needs.",
    ),
    flag(
        "DC",
        "DownstreamConnectionTermination",
        "The client closed the connection before it had the answer.",
        "Look at the client's own timeout.",
    ),
    flag(
        "LH",
        "FailedLocalHealthCheck",
        "The proxy itself is marked as failing.",
        "It is draining or its health check was made to fail; wait for its successor.",
    ),
    flag(
        "UT",
        "UpstreamRequestTimeout",
        "The endpoint did not answer in the route's timeout.",
        "Raise `timeout` in the VirtualService, or find out why the application is slow.",
    ),
    flag(
        "LR",
        "LocalReset",
        "The proxy reset the stream.",
        "Look at the proxy's log at level debug for the reason.",
    ),
    flag(
        "UR",
        "UpstreamRemoteReset",
        "The endpoint reset the stream.",
        "Look at the application's log; for HTTP/2 it may have run into a limit of its own.",
    ),
    flag(
        "UC",
        "UpstreamConnectionTermination",
        "The endpoint closed the connection while a request was under way.",
        "The application closes idle connections sooner than the proxy does: lower idleTimeout below its own, or retry.",
    ),
    flag(
        "DI",
        "DelayInjected",
        "A fault of the route delayed the request.",
        "Look for `fault.delay` in the VirtualService.",
    ),
    flag(
        "FI",
        "FaultInjected",
        "A fault of the route ended the request.",
        "Look for `fault.abort` in the VirtualService.",
    ),
    flag(
        "RL",
        "RateLimited",
        "A rate limit refused the request.",
        "Look at the rate limits in EnvoyFilters, local and by the rate limit service.",
    ),
    flag(
        "UAEX",
        "UnauthorizedExternalService",
        "The external authorizer refused the request.",
        "Look at the log of the provider that the CUSTOM AuthorizationPolicy names.",
    ),
    flag(
        "RLSE",
        "RateLimitServiceError",
        "The rate limit service could not be asked.",
        "Look at its cluster in `canopus proxy-config clusters`.",
    ),
    flag(
        "IH",
        "InvalidEnvoyRequestHeaders",
        "A header of Envoy's own has a wrong value.",
        "Look at headers `x-envoy-*` of the client.",
    ),
    flag(
        "SI",
        "StreamIdleTimeout",
        "The stream was idle for too long.",
        "Raise the stream's idle timeout, or let the application send something.",
    ),
    flag(
        "DPE",
        "DownstreamProtocolError",
        "The client does not speak HTTP as it should.",
        "The port's name or appProtocol says HTTP: correct it if the application speaks something else.",
    ),
    flag(
        "UPE",
        "UpstreamProtocolError",
        "The endpoint does not speak HTTP as it should.",
        "The port's name or appProtocol says HTTP or HTTP/2: correct it if the application speaks something else.",
    ),
    flag(
        "UMSDR",
        "UpstreamMaxStreamDurationReached",
        "The stream lasted longer than its route allows.",
        "Raise the route's timeout for streams.",
    ),
    flag(
        "OM",
        "OverloadManagerTerminated",
        "The proxy is short of memory.",
        "Raise the proxy's memory, or import less with a Sidecar.",
    ),
    flag(
        "DF",
        "DnsResolutionFailed",
        "The name of the endpoint does not resolve.",
        "Check the ServiceEntry's endpoints and the proxy's DNS.",
    ),
    flag(
        "DO",
        "DropOverload",
        "The control plane asked to drop a share of requests.",
        "Look at `policy.drop_overloads` of the cluster's endpoints.",
    ),
    flag(
        "RFCF",
        "ResponseFromCacheFilter",
        "The answer came from a cache in the proxy.",
        "Nothing is wrong; the upstream was not asked.",
    ),
    flag(
        "NFCF",
        "NoFilterConfigFound",
        "A filter's configuration has not arrived.",
        "Look at `canopus proxy-config ecds` and at the WasmPlugin or EnvoyFilter behind it.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_found_by_both_names_and_are_there_once() {
        assert_eq!(find("UH"), find("NoHealthyUpstream"));
        assert_eq!(find("-"), None);
        for flag in &FLAGS {
            assert_eq!(FLAGS.iter().filter(|other| other.name == flag.name).count(), 1, "{}", flag.name);
        }
    }
}
