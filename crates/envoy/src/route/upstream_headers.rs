//! Headers that proxies add to requests, as far as routes decide it.

use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;

/// Whether requests carry `x-envoy-attempt-count`.
pub(crate) fn counts_attempts(config: &ProxyConfig) -> bool {
    let setting = config.proxy_headers.as_ref().and_then(|headers| headers.attempt_count.as_ref());
    !setting.and_then(|setting| setting.disabled.as_ref()).is_some_and(|disabled| disabled.value)
}

/// Whether rewritten requests carry the original host in `x-forwarded-host`.
pub(crate) fn forwards_host(config: &ProxyConfig) -> bool {
    let setting = config.proxy_headers.as_ref().and_then(|headers| headers.x_forwarded_host.as_ref());
    setting.and_then(|setting| setting.enabled.as_ref()).is_some_and(|enabled| enabled.value)
}
