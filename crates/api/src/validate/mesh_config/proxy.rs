//! The configuration of proxies, as the mesh gives it to all of them.

use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::mesh::v1alpha1::private_key_provider::Provider;
use canopus_proto::istio::mesh::v1alpha1::proxy_config::ClusterName;
use canopus_proto::istio::mesh::v1alpha1::tracing::{Lightstep, Tracer};
use canopus_proto::istio::mesh::v1alpha1::{AuthenticationPolicy, PrivateKeyProvider, ProxyConfig, Tracing};

use super::connection_settings;
use crate::text::quoted;
use crate::validate::code::{Fault, codes};
use crate::validate::scope::Scope;
use crate::validate::{address, duration, port, tls};

codes! {
    NO_CONFIG_PATH: error "proxy-without-config-path", "give configPath";
    NO_BINARY_PATH: error "proxy-without-binary-path", "give binaryPath";
    NO_CLUSTER_NAME: error "proxy-without-cluster-name", "give serviceCluster or tracingServiceName";
    NO_DISCOVERY: error "proxy-without-discovery-address", "give the address of the control plane";
    NO_ADDRESS: error "proxy-tracer-without-address", "give the address of the collector";
    NO_TOKEN: error "proxy-tracer-without-token", "give the access token";
    AUTH_POLICY: error "proxy-auth-policy-unknown", "use NONE or MUTUAL_TLS";
    AUTO_ALLOCATE: warning "proxy-auto-allocate-deprecated", "remove it: services without addresses are given some";
    NO_KEY_PROVIDER: error "proxy-key-provider-missing", "give cryptomb or qat";
    NO_POLL_DELAY: error "proxy-key-provider-without-delay", "give pollDelay";
    ZERO_POLL_DELAY: error "proxy-key-provider-delay-zero", "give a pollDelay above zero";
}

/// Metadata that once gave services addresses.
const AUTO_ALLOCATE_METADATA: &str = "ISTIO_META_DNS_AUTO_ALLOCATE";

/// Checks the whole configuration of a proxy, defaults included. Istio says what is wrong as a list.
pub fn check(config: &ProxyConfig, mut scope: Scope<'_>) {
    scope.listed(|scope| settings(config, scope));
}

fn settings(config: &ProxyConfig, mut scope: Scope<'_>) {
    scope
        .field("configPath")
        .add_if(config.config_path.is_empty(), || NO_CONFIG_PATH.says("config path must be set"));
    scope
        .field("binaryPath")
        .add_if(config.binary_path.is_empty(), || NO_BINARY_PATH.says("binary path must be set"));
    cluster_name(config.cluster_name.as_ref(), scope.field("serviceCluster"));
    let drain = config.drain_duration.unwrap_or_default();
    scope.field("drainDuration").require(duration::drain(&drain));
    if config.discovery_address.is_empty() {
        let message = "discovery address must be set to the proxy discovery service";
        scope.field("discoveryAddress").add(NO_DISCOVERY.says(message));
    } else {
        server(&config.discovery_address, "invalid discovery address:", scope.field("discoveryAddress"));
    }
    scope.optional("tracing", config.tracing.as_ref(), tracing);
    optional_server(&config.statsd_udp_address, "statsd udp", scope.field("statsdUdpAddress"));
    #[expect(deprecated, reason = "this is where its use is found")]
    let metrics = &config.envoy_metrics_service_address;
    optional_server(metrics, "envoy metrics service", scope.field("envoyMetricsServiceAddress"));
    if config.proxy_metadata.contains_key(AUTO_ALLOCATE_METADATA) {
        let message = "'ISTIO_META_DNS_AUTO_ALLOCATE' is deprecated; review \
                       https://istio.io/latest/docs/ops/configuration/traffic-management/dns-proxy/#dns-auto-allocation-v2 \
                       for information about replacement functionality";
        scope.field("proxyMetadata").entry(AUTO_ALLOCATE_METADATA).add(AUTO_ALLOCATE.says(message).listed());
    }
    let services = [
        ("envoyMetricsService", "envoy metrics service", &config.envoy_metrics_service),
        ("envoyAccessLogService", "envoy access log service", &config.envoy_access_log_service),
    ];
    for (field, name, service) in services {
        scope.optional(field, service.as_ref(), |service, mut scope| {
            optional_server(&service.address, name, scope.field("address"));
        });
    }
    scope.prefixed(
        || "invalid proxy admin port:".into(),
        |mut scope| scope.field("proxyAdminPort").require(port::number(config.proxy_admin_port)),
    );
    scope.prefixed(
        || "invalid authentication policy:".into(),
        |mut scope| {
            scope.field("controlPlaneAuthPolicy").require(auth_policy(config.control_plane_auth_policy));
        },
    );
    scope.prefixed(
        || "invalid status port:".into(),
        |mut scope| scope.field("statusPort").require(port::number(config.status_port)),
    );
    scope.prefixed(
        || "invalid private key provider configuration:".into(),
        |mut scope| {
            scope.optional("privateKeyProvider", config.private_key_provider.as_ref(), key_provider);
        },
    );
    scope.prefixed(
        || "invalid connection settings:".into(),
        |mut scope| {
            let settings = config.connection_settings.as_ref();
            scope.optional("connectionSettings", settings, connection_settings::check);
        },
    );
}

fn cluster_name(name: Option<&ClusterName>, mut scope: Scope<'_>) {
    let message = match name {
        Some(ClusterName::ServiceCluster(name)) if name.is_empty() => "service cluster must be specified",
        Some(_) => return,
        None => "oneof service cluster or tracing service name must be specified",
    };
    scope.add(NO_CLUSTER_NAME.says(message));
}

fn server(address: &str, prefix: &str, mut scope: Scope<'_>) {
    scope.prefixed(|| prefix.into(), |mut scope| scope.require(address::server(address)));
}

fn optional_server(address: &str, name: &str, scope: Scope<'_>) {
    if !address.is_empty() {
        server(address, &format!("invalid {name} address {}:", quoted(address)), scope);
    }
}

/// Whether the control plane and proxies authenticate each other.
pub fn auth_policy(policy: i32) -> Result<(), Fault> {
    let name = match AuthenticationPolicy::try_from(policy) {
        Ok(AuthenticationPolicy::None | AuthenticationPolicy::MutualTls) => return Ok(()),
        Ok(other) => other.as_str_name().to_owned(),
        Err(_) => policy.to_string(),
    };
    Err(AUTH_POLICY
        .says(format!("unrecognized control plane auth policy {}", quoted(&name)))
        .with_value(name))
}

/// What stands for the address of the node a proxy is on.
const HOST_IP: &str = "$(HOST_IP)";

fn tracing(tracing: &Tracing, mut scope: Scope<'_>) {
    let collector = |address: &str, name: &str, scope: Scope<'_>| {
        server(&address.replacen(HOST_IP, "127.0.0.1", 1), &format!("invalid {name} config:"), scope);
    };
    match &tracing.tracer {
        Some(Tracer::Lightstep(tracer)) => scope.prefixed(
            || "invalid lightstep config:".into(),
            |mut scope| lightstep(tracer, scope.field("lightstep")),
        ),
        Some(Tracer::Zipkin(zipkin)) => {
            collector(&zipkin.address, "zipkin", scope.field("zipkin").field("address"));
        }
        Some(Tracer::Datadog(datadog)) => {
            collector(&datadog.address, "datadog", scope.field("datadog").field("address"));
        }
        Some(Tracer::Stackdriver(_) | Tracer::OpenCensusAgent(_)) | None => {}
    }
    scope.prefixed(
        || "invalid tracing TLS config:".into(),
        |mut scope| {
            scope.optional("tlsSettings", tracing.tls_settings.as_ref(), |settings, scope| {
                tls::client(settings, "", scope);
            });
        },
    );
}

fn lightstep(tracer: &Lightstep, mut scope: Scope<'_>) {
    scope.field("address").add_if(tracer.address.is_empty(), || NO_ADDRESS.says("address is required"));
    server(&tracer.address, "invalid lightstep address:", scope.field("address"));
    scope
        .field("accessToken")
        .add_if(tracer.access_token.is_empty(), || NO_TOKEN.says("access token is required"));
}

fn key_provider(provider: &PrivateKeyProvider, mut scope: Scope<'_>) {
    match &provider.provider {
        Some(Provider::Cryptomb(cryptomb)) => {
            scope.field("cryptomb").field("pollDelay").require(poll_delay(cryptomb.poll_delay));
        }
        Some(Provider::Qat(qat)) => scope.field("qat").field("pollDelay").require(poll_delay(qat.poll_delay)),
        None => {
            scope.add(NO_KEY_PROVIDER.says("private key provider configuration is required"));
            scope.add(NO_KEY_PROVIDER.says("unknown private key provider"));
        }
    }
}

fn poll_delay(delay: Option<Duration>) -> Result<(), Fault> {
    match delay {
        None => Err(NO_POLL_DELAY.says("pollDelay is required")),
        Some(Duration { seconds: 0, nanos: 0 }) => Err(ZERO_POLL_DELAY.says("pollDelay must be non zero")),
        Some(_) => Ok(()),
    }
}
