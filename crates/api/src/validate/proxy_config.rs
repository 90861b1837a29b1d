//! Settings of proxies as an object of their own.

use super::code::codes;
use super::scope::Scope;
use super::selector;
use crate::istio::ProxyConfig;

codes! {
    NEGATIVE_CONCURRENCY: error "proxy-concurrency-negative", "give a number of threads, or 0 for one per core";
}

/// Checks a ProxyConfig.
pub fn check(config: &ProxyConfig, mut scope: Scope<'_>) {
    let spec = &config.spec;
    let mut scope = scope.field("spec");
    scope.optional("selector", spec.selector.as_ref(), selector::workload);
    let concurrency = spec.concurrency.unwrap_or_default().value;
    scope.field("concurrency").add_if(concurrency < 0, || {
        NEGATIVE_CONCURRENCY.says("concurrency must be greater than or equal to 0").with_value(concurrency)
    });
}
