//! Extension providers of the mesh: external authorizers, and where metrics, traces and access logs go.

use std::collections::BTreeSet;

use canopus_proto::descriptors;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::{
    EnvoyExternalAuthorizationHttpProvider, OpenTelemetryTracingProvider, Provider,
};

use super::code::{Fault, codes};
use super::host::NamedBy;
use super::scope::Scope;
use super::{address, host, port};
use crate::text::quoted;
use crate::url::Url;

codes! {
    UNNAMED: error "provider-without-name", "name the provider";
    NAMED_TWICE: error "provider-name-twice", "give each provider a name of its own";
    UNKNOWN_KIND: error "provider-kind-unknown", "say what kind of provider it is";
    NO_SERVICE: error "provider-without-service", "give the service as name.namespace.svc.cluster.local";
    BAD_SERVICE: error "provider-service-invalid", "give the service as [namespace/]host, without a port";
    NO_TOKEN: error "provider-without-access-token", "give the access token";
    STATUS_NOT_A_NUMBER: error "provider-status-not-a-number", "give an HTTP status code";
    STATUS_UNKNOWN: error "provider-status-unknown", "give an HTTP status code that Envoy knows";
    BAD_PREFIX: error "provider-path-prefix-invalid", "give a path that begins with /";
    GRPC_AND_HTTP: error "provider-grpc-and-http", "use either grpc or http";
}

/// Checks all providers of a mesh. Istio only logs what it finds: who does not use a provider need not care.
pub fn check_all(providers: &[ExtensionProvider], mut scope: Scope<'_>) {
    let mut names = BTreeSet::new();
    for (at, provider) in providers.iter().enumerate() {
        let name = provider.name.as_str();
        let mut scope = scope.item(at);
        let prefix = || format!("invalid extension provider {name}:");
        scope.prefixed(prefix, |mut scope| {
            scope.field("name").add_if(name.is_empty(), || UNNAMED.says("empty extension provider name"));
            let twice = !name.is_empty() && !names.insert(name);
            scope.field("name").add_if(twice, || {
                NAMED_TWICE.says(format!("duplicate extension provider name {name}")).with_value(name)
            });
            check(provider, scope);
        });
    }
}

/// Checks what a provider provides.
pub fn check(provider: &ExtensionProvider, mut scope: Scope<'_>) {
    #[expect(deprecated, reason = "objects may still have them")]
    match &provider.provider {
        Some(Provider::EnvoyExtAuthzHttp(http)) => ext_authz_http(http, scope.field("envoyExtAuthzHttp")),
        Some(Provider::EnvoyExtAuthzGrpc(grpc)) => {
            let mut scope = scope.field("envoyExtAuthzGrpc");
            scope.field("port").require(service_port(grpc.port));
            service(&grpc.service, scope.field("service"));
            scope.field("statusOnError").require(status_on_error(&grpc.status_on_error));
        }
        Some(Provider::Zipkin(zipkin)) => collector(&zipkin.service, zipkin.port, scope.field("zipkin")),
        Some(Provider::Lightstep(lightstep)) => {
            let mut scope = scope.field("lightstep");
            collector(&lightstep.service, lightstep.port, scope.again());
            scope
                .field("accessToken")
                .add_if(lightstep.access_token.is_empty(), || NO_TOKEN.says("access token is required"));
        }
        Some(Provider::Datadog(datadog)) => collector(&datadog.service, datadog.port, scope.field("datadog")),
        Some(Provider::Opencensus(agent)) => collector(&agent.service, agent.port, scope.field("opencensus")),
        Some(Provider::Skywalking(skywalking)) => {
            collector(&skywalking.service, skywalking.port, scope.field("skywalking"));
        }
        Some(Provider::Opentelemetry(tracing)) => opentelemetry(tracing, scope.field("opentelemetry")),
        Some(Provider::EnvoyHttpAls(log)) => log_server(&log.service, log.port, scope.field("envoyHttpAls")),
        Some(Provider::EnvoyTcpAls(log)) => log_server(&log.service, log.port, scope.field("envoyTcpAls")),
        Some(Provider::EnvoyOtelAls(log)) => log_server(&log.service, log.port, scope.field("envoyOtelAls")),
        Some(Provider::Prometheus(_) | Provider::Stackdriver(_) | Provider::EnvoyFileAccessLog(_)) => {}
        Some(Provider::Sds(_)) => scope.add(UNKNOWN_KIND.says("unsupported provider: sds")),
        None => scope.add(UNKNOWN_KIND.says("unsupported provider: <nil> of type <nil>")),
    }
}

/// A service by its name, perhaps with the namespace it is looked for in, or by its address.
pub fn service(service: &str, mut scope: Scope<'_>) {
    if service.is_empty() {
        scope.add(NO_SERVICE.says("service must not be empty"));
    } else if service.contains('/') {
        host::namespaced(service, NamedBy::Sidecar, scope);
    } else if host::fqdn(service).is_err() {
        scope.require(address::ip(service).map_err(|fault| {
            BAD_SERVICE.says(format!("invalid service fmt {service}: {fault}")).with_value(service)
        }));
    }
}

fn service_port(number: u32) -> Result<(), Fault> {
    port::number(number).map_err(|fault| fault.reworded(|message| format!("invalid service port: {message}")))
}

/// A server that traces are sent to.
fn collector(service: &str, port: u32, mut scope: Scope<'_>) {
    self::service(service, scope.field("service"));
    scope.field("port").require(service_port(port));
}

/// A server that access logs are sent to.
fn log_server(service: &str, port: u32, mut scope: Scope<'_>) {
    scope.field("port").require(port::number(port));
    self::service(service, scope.field("service"));
}

fn opentelemetry(tracing: &OpenTelemetryTracingProvider, mut scope: Scope<'_>) {
    log_server(&tracing.service, tracing.port, scope.again());
    scope.add_if(tracing.grpc.is_some() && tracing.http.is_some(), || {
        GRPC_AND_HTTP.says("OpenTelemetryTracingProvider cannot specify both grpc and http")
    });
}

fn ext_authz_http(http: &EnvoyExternalAuthorizationHttpProvider, mut scope: Scope<'_>) {
    scope.field("port").require(port::number(http.port));
    service(&http.service, scope.field("service"));
    scope.field("statusOnError").require(status_on_error(&http.status_on_error));
    let prefix = http.path_prefix.as_str();
    if prefix.is_empty() {
        return;
    }
    let mut scope = scope.field("pathPrefix");
    if let Err(error) = Url::parse(prefix) {
        scope.add(BAD_PREFIX.says(format!("invalid pathPrefix {prefix}: {error}")).with_value(prefix));
    }
    scope.add_if(!prefix.starts_with('/'), || {
        BAD_PREFIX
            .says(format!("pathPrefix should begin with `/` but found {}", quoted(prefix)))
            .with_value(prefix)
    });
}

/// The HTTP status to answer with when the authorizer cannot be asked.
fn status_on_error(status: &str) -> Result<(), Fault> {
    if status.is_empty() {
        return Ok(());
    }
    let Ok(code) = status.parse::<i32>() else {
        let why = "invalid syntax";
        let status_text = quoted(status);
        let message =
            format!("invalid statusOnError value {status}: strconv.ParseInt: parsing {status_text}: {why}");
        return Err(STATUS_NOT_A_NUMBER.says(message).with_value(status));
    };
    let known = descriptors::pool().get_enum_by_name("envoy.type.v3.StatusCode");
    let known = known.expect("the embedded set has Envoy's types");
    if known.get_value(code).is_some() {
        return Ok(());
    }
    let mut values: Vec<_> = known.values().map(|value| (value.number(), value.name().to_owned())).collect();
    values.sort();
    let values: Vec<_> = values.iter().map(|(number, name)| format!("{number}:{name}")).collect();
    let values = values.join(" ");
    let message = format!("unsupported statusOnError value {status}, supported values: map[{values}]");
    Err(STATUS_UNKNOWN.says(message).with_value(status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::fragment;
    use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::ZipkinTracingProvider;

    #[test]
    fn every_fault_names_its_provider() {
        let zipkin = |name: &str, port| ExtensionProvider {
            name: name.into(),
            provider: Some(Provider::Zipkin(ZipkinTracingProvider {
                service: "zipkin.istio-system.svc.cluster.local".into(),
                port,
                ..Default::default()
            })),
        };
        let nothing = ExtensionProvider::default();
        let report = fragment(|scope| check_all(&[zipkin("a", 0), zipkin("a", 9411), nothing], scope));
        assert_eq!(
            report.error_text().unwrap(),
            "4 errors occurred:\n\
             \t* invalid extension provider a: invalid service port: port number 0 must be in the range 1..65535\n\
             \t* invalid extension provider a: duplicate extension provider name a\n\
             \t* invalid extension provider : empty extension provider name\n\
             \t* invalid extension provider : unsupported provider: <nil> of type <nil>\n\n"
        );
        assert_eq!(report.errors[0].path, "[0].zipkin.port");
    }

    #[test]
    fn status_is_one_that_envoy_knows() {
        assert!(status_on_error("").is_ok() && status_on_error("503").is_ok());
        let said = |status| status_on_error(status).unwrap_err().to_string();
        assert_eq!(
            said("x"),
            r#"invalid statusOnError value x: strconv.ParseInt: parsing "x": invalid syntax"#
        );
        let unknown =
            "unsupported statusOnError value 999, supported values: map[0:Empty 100:Continue 200:OK ";
        assert!(said("999").starts_with(unknown));
    }

    #[test]
    fn path_prefix_is_an_absolute_path() {
        let said = |prefix: &str| {
            let http = EnvoyExternalAuthorizationHttpProvider {
                service: "a.b".into(),
                port: 80,
                path_prefix: prefix.into(),
                ..Default::default()
            };
            fragment(|scope| ext_authz_http(&http, scope)).error_text().unwrap_or_default()
        };
        assert_eq!(said("/check"), "");
        assert_eq!(said("check"), r#"pathPrefix should begin with `/` but found "check""#);
        assert_eq!(said("/%"), r#"invalid pathPrefix /%: parse "/%": invalid URL escape "%""#);
    }
}
