//! What proxies tell upstreams about a request, as far as routes decide it.

use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;

/// Whether upstreams are told how often a request was tried.
pub(crate) fn counts_attempts(config: &ProxyConfig) -> bool {
    let setting = config.proxy_headers.as_ref().and_then(|headers| headers.attempt_count.as_ref());
    !setting.and_then(|setting| setting.disabled.as_ref()).is_some_and(|disabled| disabled.value)
}

/// Whether upstreams are told the host the client asked for, where another one may be asked.
pub(crate) fn forwards_host(config: &ProxyConfig) -> bool {
    let setting = config.proxy_headers.as_ref().and_then(|headers| headers.x_forwarded_host.as_ref());
    setting.and_then(|setting| setting.enabled.as_ref()).is_some_and(|enabled| enabled.value)
}
