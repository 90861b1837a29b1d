//! The certificate that a gateway presents to backends.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_base::spiffe::Identity;
use canopus_engine::{Ctx, Query};

use super::{GatewayRunner, MergedGateways};
use crate::gateway_api;

/// The SDS resource of the certificate that the Gateway of a proxy presents to backends (`spec.tls.backend`).
///
/// A proxy without a proven identity has none, as has one whose Gateways name different ones: which of them a request came
/// through is not known where connections to backends are made.
pub struct ClientCertificate;

impl Query for ClientCertificate {
    const NAME: &'static str = "gateway_client_certificate";
    type Key = GatewayRunner;
    type Value = Option<Arc<str>>;

    fn run(ctx: &Ctx<'_>, runner: &GatewayRunner) -> Self::Value {
        let Identity { namespace, service_account, .. } = runner.identity.as_ref()?;
        let merged = ctx.get::<MergedGateways>(runner);
        let origins = merged.servers.iter().filter_map(|server| server.derived_from.as_ref());
        let origins: BTreeSet<_> = origins.collect();
        let certificates =
            origins.into_iter().filter_map(|origin| gateway_api::client_certificate(ctx, origin));
        let mut certificates: Vec<_> = certificates.collect();
        certificates.dedup();
        match certificates.as_slice() {
            [only] if only.is_of(namespace, service_account) => Some(only.resource.clone()),
            _ => None,
        }
    }
}
