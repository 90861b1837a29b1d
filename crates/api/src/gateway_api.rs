//! Kubernetes Gateway API v1.6: complete specs, with the defaults of its CRDs filled in when an object is read.

mod gateway;
mod grpc_route;
mod http_route;
mod policy;
mod reference;
mod route;
mod status;

/// The group of the kinds that are stable or on their way.
pub const GROUP: &str = "gateway.networking.k8s.io";
/// The group of experimental kinds.
pub const EXPERIMENTAL_GROUP: &str = "gateway.networking.x-k8s.io";

pub use gateway::{
    AddressType, AllowedListeners, AllowedRoutes, FromNamespaces, FrontendTls, FrontendValidation,
    FrontendValidationMode, Gateway, GatewayAddress, GatewayBackendTls, GatewayClass, GatewayClassSpec,
    GatewayFrontendTls, GatewayInfrastructure, GatewaySpec, GatewayTls, Listener, ListenerNamespaces,
    ListenerSet, ListenerSetParent, ListenerSetSpec, ListenerTls, PortTls, RouteGroupKind, RouteNamespaces,
    TlsMode,
};
pub use grpc_route::{
    GrpcBackendRef, GrpcFilterType, GrpcHeaderMatch, GrpcMethodMatch, GrpcRoute, GrpcRouteFilter,
    GrpcRouteMatch, GrpcRouteRule, GrpcRouteSpec,
};
pub use http_route::{
    ForwardBody, GrpcAuth, HttpAuth, HttpBackendRef, HttpCors, HttpExternalAuth, HttpFilterType,
    HttpHeaderMatch, HttpPathMatch, HttpPathModifier, HttpQueryParamMatch, HttpRequestRedirect, HttpRoute,
    HttpRouteFilter, HttpRouteMatch, HttpRouteRetry, HttpRouteRule, HttpRouteSpec, HttpRouteTimeouts,
    HttpUrlRewrite, PathMatchType, PathModifierType,
};
pub use policy::{
    BackendPort, BackendSpec, BackendTls, BackendTlsPolicy, BackendTlsPolicySpec, BackendTlsValidation,
    BackendTrafficPolicy, BackendTrafficPolicySpec, ExternalBackend, ExternalHostname, RequestRate,
    RetryBudget, RetryConstraint, SubjectAltName,
};
pub use reference::{
    Backend, BackendObjectReference, BackendRef, GrantFrom, GrantTo, LocalObjectReference, ObjectReference,
    ParentReference, PolicyTargetReference, ReferenceGrant, ReferenceGrantSpec, SecretReference,
};
pub use route::{
    ConnectionRule, CookieConfig, CookieLifetime, Fraction, Header, HeaderModifier, MatchType,
    PersistenceType, RequestMirror, SessionPersistence, TcpRoute, TcpRouteSpec, TlsRoute, TlsRouteSpec,
    UdpRoute, UdpRouteSpec,
};
pub use status::{
    GatewayClassStatus, GatewayStatus, GatewayStatusAddress, ListenerSetStatus, ListenerStatus,
    PolicyAncestorStatus, PolicyStatus, RouteParentStatus, RouteStatus, SupportedFeature,
};
