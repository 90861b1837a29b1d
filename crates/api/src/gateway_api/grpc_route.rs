//! gRPC routes.

use crate::decode::complete;
use crate::gateway_api::reference::{LocalObjectReference, ParentReference, backend};
use crate::gateway_api::route::{HeaderModifier, MatchType, RequestMirror, SessionPersistence};
use crate::gateway_api::status::RouteStatus;
use crate::macros::{object, open_enum};
use crate::resource::Resource;

/// Routes of gRPC calls.
pub type GrpcRoute = Resource<GrpcRouteSpec, RouteStatus>;

open_enum! {
    /// What a filter does.
    GrpcFilterType {
        /// Changes the headers of the request.
        RequestHeaderModifier = "RequestHeaderModifier",
        /// Changes the headers of the response.
        ResponseHeaderModifier = "ResponseHeaderModifier",
        /// Sends a copy elsewhere.
        RequestMirror = "RequestMirror",
        /// A filter that an implementation defines.
        ExtensionRef = "ExtensionRef",
    }
}

object! {
    /// What a route is.
    GrpcRouteSpec {
        /// What it is attached to.
        parent_refs: Vec<ParentReference>,
        /// Whether it is attached to default gateways: `All` or `None`.
        use_default_gateways: Option<Box<str>>,
        /// The hosts; none means those of its parents.
        hostnames: Vec<Box<str>>,
        /// The rules.
        rules: Vec<GrpcRouteRule>,
    }

    /// A rule.
    GrpcRouteRule {
        /// Name of the rule.
        name: Option<Box<str>>,
        /// Which calls it takes; one match is enough, and without any it takes all.
        matches: Vec<GrpcRouteMatch>,
        /// What is done to them.
        filters: Vec<GrpcRouteFilter>,
        /// Where they go.
        backend_refs: Vec<GrpcBackendRef>,
        /// How a client stays with one backend.
        session_persistence: Option<SessionPersistence>,
    }

    /// Which calls a rule takes: all conditions must hold.
    GrpcRouteMatch {
        /// The service and method.
        method: Option<GrpcMethodMatch>,
        /// The headers.
        headers: Vec<GrpcHeaderMatch>,
    }

    /// A condition on service and method.
    GrpcMethodMatch {
        /// How they are compared.
        r#type: MatchType = MatchType::Exact,
        /// The service.
        service: Option<Box<str>>,
        /// The method.
        method: Option<Box<str>>,
    }

    /// A condition on a header.
    GrpcHeaderMatch {
        /// How it is compared.
        r#type: MatchType = MatchType::Exact,
        /// The header.
        name: Box<str>,
        /// What with.
        value: Box<str>,
    }

    /// Where calls go.
    GrpcBackendRef {
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
        /// The share of calls, relative to the other backends of the rule.
        weight: i32 = 1,
        /// What is done to calls that go there.
        filters: Vec<GrpcRouteFilter>,
    }

    /// What is done to a call; the field of its type is set.
    GrpcRouteFilter {
        /// Which.
        r#type: GrpcFilterType = GrpcFilterType::default(),
        /// Changes the headers of the request.
        request_header_modifier: Option<HeaderModifier>,
        /// Changes the headers of the response.
        response_header_modifier: Option<HeaderModifier>,
        /// Sends a copy elsewhere.
        request_mirror: Option<RequestMirror>,
        /// Object that configures the implementation's filter.
        extension_ref: Option<LocalObjectReference>,
    }
}

complete!(GrpcRouteSpec);
backend!(GrpcBackendRef: |backend| backend.weight);
