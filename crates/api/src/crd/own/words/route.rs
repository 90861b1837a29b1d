//! Virtual services: where requests and connections go.

use super::Entry;

const SOURCE_LABELS: &str = "Labels that the workload the traffic comes from has to have.";
const SOURCE_NAMESPACE: &str = "The namespace that the traffic comes from.";
const GATEWAYS: &str = "The gateways this match is for, instead of those of the whole object.";
const SUBNETS: &str = "Addresses of destinations, alone or as CIDR blocks.";

pub(super) const WORDS: &[Entry] = &[
    (
        "VirtualService",
        "How requests and connections to some hosts are routed.",
        &[
            (
                "hosts",
                "The hosts the routes are for: names, wildcards such as `*.example.com`, or addresses.",
            ),
            ("gateways", "The gateways the routes are for; `mesh` means all sidecars, which is the default."),
            ("http", "Routes for HTTP, tried in this order."),
            ("tls", "Routes for TLS that is not terminated, tried in this order."),
            ("tcp", "Routes for everything else, tried in this order."),
            ("export_to", "The namespaces that see this object: `.` for its own, `*` for all."),
        ],
    ),
    (
        "HTTPRoute",
        "What happens to HTTP requests that match.",
        &[
            ("name", "A name that access logs show."),
            ("match", "Which requests it is for: those that fit one of these. All, if there is none."),
            ("route", "Where requests go, by weight."),
            ("redirect", "Tells the client to ask elsewhere."),
            ("direct_response", "Answers at once, without asking anybody."),
            ("delegate", "Another virtual service that has the routes."),
            ("rewrite", "What becomes of path and host before a request is sent on."),
            ("timeout", "How long a request may take; no limit by default."),
            ("retries", "When and how often a request is tried again."),
            ("fault", "Delays and failures put in on purpose."),
            ("mirror", "A service that gets a copy of each request, of which answers are dropped."),
            ("mirrors", "Services that get copies of requests, of which answers are dropped."),
            ("mirror_percent", "Replaced by `mirrorPercentage`."),
            ("mirror_percentage", "Which share of requests is copied to `mirror`; all by default."),
            ("cors_policy", "What browsers are told about requests from other origins."),
            ("headers", "Headers to change."),
        ],
    ),
    (
        "HTTPMatchRequest",
        "What a request has to be like; everything that is set has to fit.",
        &[
            ("name", "A name that is put behind that of the route."),
            ("uri", "The path."),
            ("scheme", "The scheme."),
            ("method", "The method."),
            ("authority", "The host."),
            (
                "headers",
                "Headers by their names in lower case; an empty match asks only that a header is there.",
            ),
            ("without_headers", "Headers that must not fit."),
            ("query_params", "Parameters of the query by their names."),
            ("ignore_uri_case", "Whether case does not matter in the path."),
            ("port", "The port that the request came in on."),
            ("source_labels", SOURCE_LABELS),
            ("source_namespace", SOURCE_NAMESPACE),
            ("gateways", GATEWAYS),
            ("stat_prefix", "What the names of statistics about this route begin with."),
        ],
    ),
    (
        "HTTPRouteDestination",
        "One of the services that requests go to.",
        &[
            ("destination", "The service."),
            ("weight", "Its share, relative to the weights of the others."),
            ("headers", "Headers to change for this destination."),
        ],
    ),
    (
        "RouteDestination",
        "One of the services that connections go to.",
        &[("destination", "The service."), ("weight", "Its share, relative to the weights of the others.")],
    ),
    (
        "Headers",
        "Headers to change.",
        &[("request", "Those of the request, before it is sent on."), ("response", "Those of the answer.")],
    ),
    (
        "Headers.HeaderOperations",
        "How headers are changed.",
        &[
            ("set", "Headers that get this value in place of any they have."),
            ("add", "Values that are put behind those a header has."),
            ("remove", "Headers that are taken out."),
        ],
    ),
    (
        "HTTPRedirect",
        "Tells the client to ask elsewhere.",
        &[
            ("uri", "The new path; the path is kept if it is empty."),
            ("prefix_rewrite", "Takes the place of the part of the path that the match was for."),
            ("authority", "The new host."),
            ("port", "The new port."),
            ("derive_port", "Where the new port comes from."),
            ("scheme", "The new scheme."),
            ("redirect_code", "The status; 301 by default."),
        ],
    ),
    (
        "HTTPRewrite",
        "What becomes of path and host before a request is sent on.",
        &[
            ("uri", "Takes the place of the path, or of the prefix that the match was for."),
            ("authority", "Takes the place of the host."),
            ("uri_regex_rewrite", "Changes the part of the path that fits an expression."),
        ],
    ),
    (
        "RegexRewrite",
        "A change by regular expression.",
        &[
            ("match", "The RE2 expression."),
            ("rewrite", "What takes the place of a match; `\\1` and so on stand for its groups."),
        ],
    ),
    (
        "HTTPRetry",
        "When and how often a request is tried again.",
        &[
            ("attempts", "How often at most, the first time not counted; 0 for never."),
            ("per_try_timeout", "How long each try may take; as long as the whole request by default."),
            ("retry_on", "On which conditions, separated by commas: Envoy's names, or status codes."),
            ("retry_remote_localities", "Whether other localities are tried."),
            ("retry_ignore_previous_hosts", "Whether an endpoint that failed is avoided; true by default."),
            ("backoff", "The least time between two tries."),
        ],
    ),
    (
        "HTTPFaultInjection",
        "Delays and failures put in on purpose.",
        &[("delay", "Makes requests late."), ("abort", "Makes requests fail.")],
    ),
    (
        "HTTPFaultInjection.Delay",
        "Makes requests late.",
        &[
            ("fixed_delay", "How late."),
            ("exponential_delay", "Not implemented."),
            ("percent", "Replaced by `percentage`."),
            ("percentage", "Which share of requests; all by default."),
        ],
    ),
    (
        "HTTPFaultInjection.Abort",
        "Makes requests fail.",
        &[
            ("http_status", "The status to answer with."),
            ("grpc_status", "The gRPC status to answer with."),
            ("http2_error", "Not implemented."),
            ("percentage", "Which share of requests; all by default."),
        ],
    ),
    (
        "CorsPolicy",
        "What browsers are told about requests from other origins.",
        &[
            ("allow_origin", "Replaced by `allowOrigins`."),
            ("allow_origins", "The origins that may send requests."),
            ("allow_methods", "The methods they may use."),
            ("allow_headers", "The headers they may send."),
            ("expose_headers", "The headers of answers they may see."),
            ("max_age", "How long a browser may remember this."),
            ("allow_credentials", "Whether requests may carry credentials."),
            (
                "unmatched_preflights",
                "What happens to a preflight from an origin that may not send requests.",
            ),
        ],
    ),
    (
        "Delegate",
        "Another virtual service that has the routes.",
        &[("name", "Its name."), ("namespace", "Its namespace; that of this object by default.")],
    ),
    (
        "HTTPDirectResponse",
        "Answers at once, without asking anybody.",
        &[("status", "The status."), ("body", "The body; none by default.")],
    ),
    ("HTTPBody", "The body of an answer.", &[("string", "As text."), ("bytes", "As bytes, in base64.")]),
    (
        "HTTPMirrorPolicy",
        "A service that gets copies of requests.",
        &[("destination", "The service."), ("percentage", "Which share of requests; all by default.")],
    ),
    (
        "TCPRoute",
        "Where connections that match go.",
        &[
            ("match", "Which connections it is for: those that fit one of these. All, if there is none."),
            ("route", "Where they go, by weight."),
        ],
    ),
    (
        "TLSRoute",
        "Where TLS connections that match go, as they are.",
        &[
            ("match", "Which connections it is for: those that fit one of these."),
            ("route", "Where they go, by weight."),
        ],
    ),
    (
        "L4MatchAttributes",
        "What a connection has to be like; everything that is set has to fit.",
        &[
            ("destination_subnets", SUBNETS),
            ("port", "The port that the connection is for."),
            ("source_subnet", "Has no effect."),
            ("source_labels", SOURCE_LABELS),
            ("gateways", GATEWAYS),
            ("source_namespace", SOURCE_NAMESPACE),
        ],
    ),
    (
        "TLSMatchAttributes",
        "What a TLS connection has to be like; everything that is set has to fit.",
        &[
            ("sni_hosts", "The server names it asks for; they have to be within the hosts of the object."),
            ("destination_subnets", SUBNETS),
            ("port", "The port that the connection is for."),
            ("source_labels", SOURCE_LABELS),
            ("gateways", GATEWAYS),
            ("source_namespace", SOURCE_NAMESPACE),
        ],
    ),
];
