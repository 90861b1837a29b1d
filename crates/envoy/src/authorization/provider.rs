//! External authorizers, as the mesh's extension providers describe them.

use canopus_api::url::Url;
use canopus_engine::Ctx;
use canopus_mesh::world::settings;
use canopus_proto::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use canopus_proto::envoy::config::core::v3::{
    ApiVersion, GrpcService, HeaderValue, HttpUri, http_uri::HttpUpstreamType,
};
use canopus_proto::envoy::extensions::filters::http::ext_authz::v3::{
    AuthorizationRequest, AuthorizationResponse, BufferSettings, ExtAuthz as HttpExtAuthz, HttpService,
    ext_authz::Services,
};
use canopus_proto::envoy::extensions::filters::network::ext_authz::v3::ExtAuthz as NetworkExtAuthz;
use canopus_proto::envoy::r#type::matcher::v3::{ListStringMatcher, StringMatcher};
use canopus_proto::envoy::r#type::v3::{HttpStatus, StatusCode};
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::{
    EnvoyExternalAuthorizationGrpcProvider as Grpc, EnvoyExternalAuthorizationHttpProvider as Http,
    EnvoyExternalAuthorizationRequestBody as RequestBody, Provider,
};

use super::matcher;
use crate::provider::{self, Upstream};

const DEFAULT_TIMEOUT_SECONDS: i64 = 600;
const MAX_NAME_LENGTH: usize = 63;

/// How a proxy asks an authorizer.
pub(super) struct Authorizer {
    /// About requests.
    pub(super) http: HttpExtAuthz,
    /// About connections; `None` if it cannot be asked about them.
    pub(super) network: Option<NetworkExtAuthz>,
}

/// The authorizer of this name; `None` if there is none, or if what the mesh says about it cannot be used.
pub(super) fn find(ctx: &Ctx<'_>, name: &str) -> Option<Authorizer> {
    let settings = settings(ctx);
    let of_name = |provider: &&ExtensionProvider| provider.name == name;
    let mut named = settings.mesh.extension_providers.iter().filter(of_name).filter_map(|provider| {
        match provider.provider.as_ref()? {
            Provider::EnvoyExtAuthzHttp(http) => Some(http_authorizer(ctx, http)),
            Provider::EnvoyExtAuthzGrpc(grpc) => Some(grpc_authorizer(ctx, grpc)),
            _ => None,
        }
    });
    let found = named.next()?;
    // If two providers share a name, neither is used.
    let is_usable = is_valid_name(name) && named.next().is_none();
    found.filter(|_| is_usable)
}

/// Names become part of the names of rules and of the notes about them.
fn is_valid_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty()
        && name.len() <= MAX_NAME_LENGTH
        && name.chars().all(allowed)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn http_authorizer(ctx: &Ctx<'_>, http: &Http) -> Option<Authorizer> {
    let upstream = upstream(ctx, &http.service, http.port)?;
    let status_on_error = status(&http.status_on_error)?;
    if !is_path_prefix(&http.path_prefix) || header_lists(http).iter().any(|list| has_bare_wildcard(list)) {
        return None;
    }
    let service = HttpService {
        server_uri: Some(HttpUri {
            uri: format!("http://{}", upstream.host),
            timeout: timeout(http.timeout),
            http_upstream_type: Some(HttpUpstreamType::Cluster(upstream.cluster)),
        }),
        path_prefix: http.path_prefix.clone(),
        authorization_request: additional_headers(http),
        authorization_response: response_headers(http),
        ..Default::default()
    };
    let config = HttpExtAuthz {
        transport_api_version: ApiVersion::V3 as i32,
        failure_mode_allow: http.fail_open,
        status_on_error,
        with_request_body: body(http.include_request_body_in_check.as_ref()),
        allowed_headers: checked_headers(http),
        services: Some(Services::HttpService(service)),
        ..Default::default()
    };
    Some(Authorizer { http: config, network: None })
}

fn grpc_authorizer(ctx: &Ctx<'_>, grpc: &Grpc) -> Option<Authorizer> {
    let upstream = upstream(ctx, &grpc.service, grpc.port)?;
    let status_on_error = status(&grpc.status_on_error)?;
    let target = EnvoyGrpc {
        cluster_name: upstream.cluster,
        authority: upstream.host.to_string(),
        ..Default::default()
    };
    let service = GrpcService {
        target_specifier: Some(TargetSpecifier::EnvoyGrpc(target)),
        timeout: timeout(grpc.timeout),
        ..Default::default()
    };
    let http = HttpExtAuthz {
        transport_api_version: ApiVersion::V3 as i32,
        failure_mode_allow: grpc.fail_open,
        status_on_error,
        with_request_body: body(grpc.include_request_body_in_check.as_ref()),
        services: Some(Services::GrpcService(service.clone())),
        ..Default::default()
    };
    let network = NetworkExtAuthz {
        stat_prefix: "tcp.".into(),
        transport_api_version: ApiVersion::V3 as i32,
        failure_mode_allow: grpc.fail_open,
        grpc_service: Some(service),
        ..Default::default()
    };
    Some(Authorizer { http, network: Some(network) })
}

fn upstream(ctx: &Ctx<'_>, service: &str, port: u32) -> Option<Upstream> {
    let is_port = (1..=u32::from(u16::MAX)).contains(&port);
    is_port.then(|| provider::upstream(ctx, service, port)).flatten()
}

/// The status of requests if the authorizer cannot be reached: `Some(None)` if none is configured, `None` if the configured
/// one is not a status.
fn status(written: &str) -> Option<Option<HttpStatus>> {
    if written.is_empty() {
        return Some(None);
    }
    let code = StatusCode::try_from(written.parse::<i32>().ok()?).ok()?;
    Some(Some(HttpStatus { code: code as i32 }))
}

fn is_path_prefix(prefix: &str) -> bool {
    prefix.is_empty() || (prefix.starts_with('/') && Url::parse(prefix).is_ok())
}

#[expect(deprecated, reason = "meshes may still have the older list of headers")]
fn header_lists(http: &Http) -> [&[String]; 5] {
    [
        &http.include_request_headers_in_check,
        &http.include_headers_in_check,
        &http.headers_to_downstream_on_deny,
        &http.headers_to_downstream_on_allow,
        &http.headers_to_upstream_on_allow,
    ]
}

/// Whether all headers are asked for, which Envoy has no way to say.
fn has_bare_wildcard(headers: &[String]) -> bool {
    headers.iter().any(|header| header == "*")
}

#[expect(deprecated, reason = "meshes may still have the older list of headers")]
fn checked_headers(http: &Http) -> Option<ListStringMatcher> {
    headers(&http.include_request_headers_in_check).or_else(|| headers(&http.include_headers_in_check))
}

fn additional_headers(http: &Http) -> Option<AuthorizationRequest> {
    let added = http.include_additional_headers_in_check.iter();
    let headers_to_add: Vec<_> = added
        .map(|(key, value)| HeaderValue { key: key.clone(), value: value.clone(), ..Default::default() })
        .collect();
    (!headers_to_add.is_empty()).then(|| AuthorizationRequest { headers_to_add, ..Default::default() })
}

fn response_headers(http: &Http) -> Option<AuthorizationResponse> {
    let response = AuthorizationResponse {
        allowed_upstream_headers: headers(&http.headers_to_upstream_on_allow),
        allowed_client_headers: headers(&http.headers_to_downstream_on_deny),
        allowed_client_headers_on_success: headers(&http.headers_to_downstream_on_allow),
        ..Default::default()
    };
    (response != AuthorizationResponse::default()).then_some(response)
}

/// Headers by name, in which `*` may stand at one end; `None` if there are none.
fn headers(names: &[String]) -> Option<ListStringMatcher> {
    let pattern = |name: &String| StringMatcher { ignore_case: true, ..matcher::wildcard(name) };
    (!names.is_empty()).then(|| ListStringMatcher { patterns: names.iter().map(pattern).collect() })
}

fn timeout(written: Option<Duration>) -> Option<Duration> {
    Some(written.unwrap_or_else(|| Duration::from_secs(DEFAULT_TIMEOUT_SECONDS)))
}

fn body(written: Option<&RequestBody>) -> Option<BufferSettings> {
    written.map(|body| BufferSettings {
        max_request_bytes: body.max_request_bytes,
        allow_partial_message: body.allow_partial_message,
        pack_as_bytes: body.pack_as_bytes,
    })
}
