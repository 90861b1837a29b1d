//! What proxies tell upstreams about a request, as far as routes decide it.

use canopus_engine::Ctx;
use canopus_mesh::proxy::{View, proxy_config};
use canopus_proto::istio::mesh::v1alpha1::proxy_config::ProxyHeaders;

fn proxy_headers(ctx: &Ctx<'_>, view: &View) -> ProxyHeaders {
    proxy_config(ctx, view).proxy_headers.clone().unwrap_or_default()
}

/// Whether upstreams are told how often a request was tried.
pub(crate) fn counts_attempts(ctx: &Ctx<'_>, view: &View) -> bool {
    let setting = proxy_headers(ctx, view).attempt_count;
    !setting.and_then(|setting| setting.disabled).is_some_and(|disabled| disabled.value)
}

/// Whether upstreams are told the host the client asked for, where another one may be asked.
pub(crate) fn forwards_host(ctx: &Ctx<'_>, view: &View) -> bool {
    let setting = proxy_headers(ctx, view).x_forwarded_host;
    setting.and_then(|setting| setting.enabled).is_some_and(|enabled| enabled.value)
}
