//! The configuration of the mesh, and of proxies in it.

mod connection_settings;
mod proxy;
mod tls;

use canopus_proto::istio::mesh::v1alpha1::MeshConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::{DefaultTrafficPolicy, ServiceSettings};
use canopus_proto::istio::networking::v1alpha3::HttpRetry;

use super::code::{Fault, codes};
use super::scope::Scope;
use super::{connection_pool, duration, extension_provider, host, locality, outlier_detection, port, retry};

pub use connection_settings::check as connection_settings;
pub use proxy::{auth_policy, check as proxy_config};

pub(super) use connection_settings::CODES as CONNECTION_SETTINGS_CODES;
pub(super) use proxy::CODES as PROXY_CODES;
pub(super) use tls::CODES as TLS_CODES;

codes! {
    NO_DEFAULTS: error "mesh-without-default-config", "give defaultConfig";
    RETRY_BACKOFF_UNUSED: error "mesh-inbound-retry-backoff-unused", "set attempts, or remove backoff";
    RETRY_SETTING_IGNORED: warning "mesh-inbound-retry-setting-ignored", "remove it: inbound requests have one destination";
}

/// Checks a whole mesh configuration, defaults included.
pub fn check(mesh: &MeshConfig, mut scope: Scope<'_>) {
    scope
        .field("proxyListenPort")
        .require(name_setting(port::number(mesh.proxy_listen_port), "proxy listen port"));
    let connect = mesh.connect_timeout.unwrap_or_default();
    scope
        .field("connectTimeout")
        .require(name_setting(duration::connect_timeout(&connect), "connect timeout"));
    let detection = mesh.protocol_detection_timeout.unwrap_or_default();
    let detection = duration::protocol_detection_timeout(&detection);
    scope.field("protocolDetectionTimeout").require(name_setting(detection, "protocol detection timeout"));
    match &mesh.default_config {
        Some(config) => proxy_config(config, scope.field("defaultConfig")),
        None => scope.field("defaultConfig").add(NO_DEFAULTS.says("missing default config")),
    }
    scope.optional("localityLbSetting", mesh.locality_lb_setting.as_ref(), |setting, scope| {
        locality::check(setting, true, scope);
    });
    scope.optional("zoneAwareLbSetting", mesh.zone_aware_lb_setting.as_ref(), |setting, scope| {
        locality::zone_aware(setting, true, scope);
    });
    service_settings(&mesh.service_settings, scope.field("serviceSettings"));
    trust_domains(mesh, scope.again());
    scope.logged(|mut scope| {
        extension_provider::check_all(&mesh.extension_providers, scope.field("extensionProviders"));
    });
    scope.optional("meshMTLS", mesh.mesh_m_tls.as_ref(), tls::between_proxies);
    scope.optional("tlsDefaults", mesh.tls_defaults.as_ref(), tls::defaults);
    scope.optional("defaultTrafficPolicy", mesh.default_traffic_policy.as_ref(), default_traffic_policy);
    let inbound = mesh.default_inbound_http_retry_policy.as_ref();
    scope.optional("defaultInboundHttpRetryPolicy", inbound, inbound_retries);
}

/// The same outcome, saying which setting it is about.
fn name_setting(checked: Result<(), Fault>, setting: &str) -> Result<(), Fault> {
    checked.map_err(|fault| fault.reworded(|message| format!("invalid {setting}: {message}")))
}

/// Checks the hosts that settings are for.
pub fn service_settings(settings: &[ServiceSettings], mut scope: Scope<'_>) {
    for (at, settings) in settings.iter().enumerate() {
        scope.item(at).each("hosts", &settings.hosts, |name, mut scope| {
            scope.require(host::wildcard(name).map_err(|fault| {
                fault.reworded(|why| format!("serviceSettings[{at}], host `{name}`: {why}")).listed()
            }));
        });
    }
}

fn trust_domains(mesh: &MeshConfig, mut scope: Scope<'_>) {
    scope.field("trustDomain").require(
        host::trust_domain(&mesh.trust_domain)
            .map_err(|fault| fault.reworded(|why| format!("trustDomain: {why}")).listed()),
    );
    let mut list = scope.field("trustDomainAliases");
    for (at, alias) in mesh.trust_domain_aliases.iter().enumerate() {
        list.item(at).require(host::trust_domain(alias).map_err(|fault| {
            fault.reworded(|why| format!("trustDomainAliases[{at}], domain `{alias}` : {why}")).listed()
        }));
    }
}

/// Checks what applies to traffic that no destination rule says anything about.
pub fn default_traffic_policy(policy: &DefaultTrafficPolicy, mut scope: Scope<'_>) {
    scope.optional("connectionPool", policy.connection_pool.as_ref(), connection_pool::mesh_connection_pool);
    scope.optional("outlierDetection", policy.outlier_detection.as_ref(), |outlier, scope| {
        // Parity: nobody is warned of deprecated fields here.
        outlier_detection::check(outlier, scope.without_warnings());
    });
}

/// Checks the retries of requests that come in, of a mesh that sets them for all.
pub fn inbound_retries(retries: &HttpRetry, mut scope: Scope<'_>) {
    const PREFIX: &str = "invalid default inbound http retry policy:";
    scope.prefixed(
        || PREFIX.into(),
        |mut scope| {
            retry::check(retries, scope.again());
            scope.field("backoff").add_if(retries.attempts == 0 && retries.backoff.is_some(), || {
                RETRY_BACKOFF_UNUSED.says("backoff configured when attempts are set to 0 (disabled)")
            });
        },
    );
    let ignored = [
        ("perTryTimeout", retries.per_try_timeout.is_some()),
        ("retryRemoteLocalities", retries.retry_remote_localities.is_some()),
        ("retryIgnorePreviousHosts", retries.retry_ignore_previous_hosts.is_some()),
    ];
    for (field, given) in ignored {
        scope.field(field).add_if(given, || {
            RETRY_SETTING_IGNORED.says(format!("{field} is ignored by the default inbound http retry policy"))
        });
    }
}

#[cfg(test)]
mod tests;
