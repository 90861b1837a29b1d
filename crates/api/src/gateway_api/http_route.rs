//! HTTP routes.

use crate::decode::complete;
use crate::gateway_api::reference::{BackendObjectReference, LocalObjectReference, ParentReference, backend};
use crate::gateway_api::route::{HeaderModifier, MatchType, RequestMirror, SessionPersistence};
use crate::gateway_api::status::RouteStatus;
use crate::macros::{object, open_enum};
use crate::resource::Resource;

/// Routes of HTTP requests.
pub type HttpRoute = Resource<HttpRouteSpec, RouteStatus>;

open_enum! {
    /// How a path is compared.
    PathMatchType {
        /// Element by element.
        PathPrefix = "PathPrefix",
        /// The whole path.
        Exact = "Exact",
        /// The path matches a regular expression.
        RegularExpression = "RegularExpression",
    }
}

open_enum! {
    /// What a filter does.
    HttpFilterType {
        /// Changes the headers of the request.
        RequestHeaderModifier = "RequestHeaderModifier",
        /// Changes the headers of the response.
        ResponseHeaderModifier = "ResponseHeaderModifier",
        /// Sends a copy elsewhere.
        RequestMirror = "RequestMirror",
        /// Answers with another URL.
        RequestRedirect = "RequestRedirect",
        /// Changes the URL.
        UrlRewrite = "URLRewrite",
        /// A filter that an implementation defines.
        ExtensionRef = "ExtensionRef",
        /// Cross-origin resource sharing.
        Cors = "CORS",
        /// Asks somebody else.
        ExternalAuth = "ExternalAuth",
    }
}

open_enum! {
    /// What of a path is replaced.
    PathModifierType {
        /// All of it.
        ReplaceFullPath = "ReplaceFullPath",
        /// The prefix that matched.
        ReplacePrefixMatch = "ReplacePrefixMatch",
    }
}

object! {
    /// What a route is.
    HttpRouteSpec {
        /// What it is attached to.
        parent_refs: Vec<ParentReference>,
        /// Whether it is attached to default gateways: `All` or `None`.
        use_default_gateways: Option<Box<str>>,
        /// The hosts; none means those of its parents.
        hostnames: Vec<Box<str>>,
        /// The rules.
        rules: Vec<HttpRouteRule> = vec![HttpRouteRule::default()],
    }

    /// A rule.
    HttpRouteRule {
        /// Name of the rule.
        name: Option<Box<str>>,
        /// Which requests it takes; one match is enough.
        matches: Vec<HttpRouteMatch> = vec![HttpRouteMatch::default()],
        /// What is done to them.
        filters: Vec<HttpRouteFilter>,
        /// Where they go.
        backend_refs: Vec<HttpBackendRef>,
        /// How long they may take.
        timeouts: Option<HttpRouteTimeouts>,
        /// When they are tried again.
        retry: Option<HttpRouteRetry>,
        /// How a client stays with one backend.
        session_persistence: Option<SessionPersistence>,
    }

    /// Which requests a rule takes: all conditions must hold.
    HttpRouteMatch {
        /// The path.
        path: HttpPathMatch = HttpPathMatch::default(),
        /// The headers.
        headers: Vec<HttpHeaderMatch>,
        /// The query parameters.
        query_params: Vec<HttpQueryParamMatch>,
        /// The method.
        method: Option<Box<str>>,
    }

    /// A condition on the path.
    HttpPathMatch {
        /// How it is compared.
        r#type: PathMatchType = PathMatchType::PathPrefix,
        /// What with.
        value: Box<str> = "/".into(),
    }

    /// A condition on a header.
    HttpHeaderMatch {
        /// How it is compared.
        r#type: MatchType = MatchType::Exact,
        /// The header.
        name: Box<str>,
        /// What with.
        value: Box<str>,
    }

    /// A condition on a query parameter.
    HttpQueryParamMatch {
        /// How it is compared.
        r#type: MatchType = MatchType::Exact,
        /// The parameter.
        name: Box<str>,
        /// What with.
        value: Box<str>,
    }

    /// Where requests go.
    HttpBackendRef {
        /// Group of the backend; empty for a Service.
        group: Box<str>,
        /// Kind of the backend.
        kind: Box<str> = "Service".into(),
        /// Namespace of the backend; absent means the route's.
        namespace: Option<Box<str>>,
        /// Name of the backend.
        name: Box<str>,
        /// The port, which a Service needs.
        port: Option<u16>,
        /// The share of requests, relative to the other backends of the rule.
        weight: i32 = 1,
        /// What is done to requests that go there.
        filters: Vec<HttpRouteFilter>,
    }

    /// What is done to a request; the field of its type is set.
    HttpRouteFilter {
        /// Which.
        r#type: HttpFilterType = HttpFilterType::default(),
        /// Changes the headers of the request.
        request_header_modifier: Option<HeaderModifier>,
        /// Changes the headers of the response.
        response_header_modifier: Option<HeaderModifier>,
        /// Sends a copy elsewhere.
        request_mirror: Option<RequestMirror>,
        /// Answers with another URL.
        request_redirect: Option<HttpRequestRedirect>,
        /// Changes the URL.
        url_rewrite: Option<HttpUrlRewrite>,
        /// Cross-origin resource sharing.
        cors: Option<HttpCors>,
        /// Asks somebody else.
        external_auth: Option<HttpExternalAuth>,
        /// Object that configures the implementation's filter.
        extension_ref: Option<LocalObjectReference>,
    }

    /// Answers with another URL; absent parts stay.
    HttpRequestRedirect {
        /// The scheme.
        scheme: Option<Box<str>>,
        /// The host.
        hostname: Option<Box<str>>,
        /// The path.
        path: Option<HttpPathModifier>,
        /// The port.
        port: Option<u16>,
        /// The status of the answer.
        status_code: u16 = 302,
    }

    /// Changes the URL; absent parts stay.
    HttpUrlRewrite {
        /// The host.
        hostname: Option<Box<str>>,
        /// The path.
        path: Option<HttpPathModifier>,
    }

    /// What takes a path's place; the field of its type is set.
    HttpPathModifier {
        /// What is replaced.
        r#type: PathModifierType = PathModifierType::default(),
        /// In place of all of it.
        replace_full_path: Option<Box<str>>,
        /// In place of the prefix.
        replace_prefix_match: Option<Box<str>>,
    }

    /// Cross-origin resource sharing.
    HttpCors {
        /// The origins.
        allow_origins: Vec<Box<str>>,
        /// Whether with credentials.
        allow_credentials: Option<bool>,
        /// The methods.
        allow_methods: Vec<Box<str>>,
        /// The request's headers.
        allow_headers: Vec<Box<str>>,
        /// The response's headers.
        expose_headers: Vec<Box<str>>,
        /// For how many seconds browsers may remember.
        max_age: i32 = 5,
    }

    /// Asks somebody else whether a request may pass.
    HttpExternalAuth {
        /// How: `HTTP` or `GRPC`.
        protocol: Box<str>,
        /// Whom.
        backend_ref: BackendObjectReference = BackendObjectReference::default(),
        /// Settings for `GRPC`.
        grpc: Option<GrpcAuth>,
        /// Settings for `HTTP`.
        http: Option<HttpAuth>,
        /// How much of the body is sent along.
        forward_body: Option<ForwardBody>,
    }

    /// Settings of an authorisation over gRPC.
    GrpcAuth {
        /// The headers that are sent along.
        allowed_headers: Vec<Box<str>>,
    }

    /// Settings of an authorisation over HTTP.
    HttpAuth {
        /// The path that is put before the request's own.
        path: Option<Box<str>>,
        /// The headers that are sent along.
        allowed_headers: Vec<Box<str>>,
        /// The headers of the answer that are passed on.
        allowed_response_headers: Vec<Box<str>>,
    }

    /// How much of the body is sent along.
    ForwardBody {
        /// Bytes of the body that are forwarded at most.
        max_size: u16,
    }

    /// How long a request may take.
    HttpRouteTimeouts {
        /// In all.
        request: Option<Box<str>>,
        /// At one backend.
        backend_request: Option<Box<str>>,
    }

    /// When a request is tried again.
    HttpRouteRetry {
        /// After these answers.
        codes: Vec<u16>,
        /// Number of retries.
        attempts: Option<i32>,
        /// Least time between two attempts.
        backoff: Option<Box<str>>,
    }
}

complete!(HttpRouteSpec);
backend!(HttpBackendRef: |backend| backend.weight);
