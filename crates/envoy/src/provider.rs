//! The servers that extension providers name.

use std::sync::Arc;

use canopus_engine::Ctx;
use canopus_mesh::service::ServicesByHost;

use crate::names;

/// A server that proxies call for a service of their own, such as one for access logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upstream {
    pub(crate) host: Arc<str>,
    /// The cluster of the port in question.
    pub(crate) cluster: String,
}

/// The server a provider names as `host` or `namespace/host`. A host alone must be that of one namespace.
pub(crate) fn upstream(ctx: &Ctx<'_>, service: &str, port: u32) -> Option<Upstream> {
    let found = match service.split_once('/') {
        Some((namespace, host)) => ctx.get::<ServicesByHost>(&host.into()).get(namespace).cloned(),
        None => {
            let namespaces = ctx.get::<ServicesByHost>(&service.into());
            (namespaces.len() == 1).then(|| namespaces.values().next().cloned()).flatten()
        }
    }?;
    Some(Upstream { host: found.host.clone(), cluster: names::outbound_cluster(&found.host, port, "") })
}
