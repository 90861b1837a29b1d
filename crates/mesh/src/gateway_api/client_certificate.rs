//! The certificate that a Gateway presents to its backends (`spec.tls.backend.clientCertificateRef`).

use std::sync::Arc;

use canopus_api::credential::gateway_resource_name;
use canopus_api::gateway_api::{Gateway, ListenerSet, SecretReference};
use canopus_api::kube::Secret;
use canopus_api::{Kind, ObjectKey};
use canopus_engine::Ctx;

use super::class::Class;
use super::cluster_objects::ClusterObjects;
use super::fault::{Fault, reason};
use super::gateway::parent_gateway;
use super::grant::is_granted;
use super::server_tls::check_certificate;
use crate::reference::gateway_api::referenced_kind;

/// A certificate that may be used, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewayCertificate {
    /// The SDS resource.
    pub(crate) resource: Arc<str>,
    /// The namespace of the Gateway's proxies.
    namespace: Box<str>,
    /// The service account of these proxies; empty if the control plane does not deploy them.
    service_account: String,
}

impl GatewayCertificate {
    /// Whether proxies with this identity run the Gateway.
    pub(crate) fn is_of(&self, namespace: &str, service_account: &str) -> bool {
        *self.namespace == *namespace
            && (self.service_account.is_empty() || self.service_account == service_account)
    }
}

/// The certificate that a Gateway names, or the parent of a ListenerSet; `None` if there is none that can be used.
pub(crate) fn client_certificate(ctx: &Ctx<'_>, key: &ObjectKey) -> Option<GatewayCertificate> {
    let cluster = ClusterObjects::new(ctx);
    let gateway = match key.kind {
        Kind::ListenerSet => {
            parent_gateway(&cluster, &*cluster.object::<ListenerSet>(&key.namespace, &key.name)?)?
        }
        _ => cluster.object::<Gateway>(&key.namespace, &key.name)?,
    };
    let resource = named_by(&cluster, &gateway)?.ok()?;
    let class = Class::named(&cluster, &gateway.spec.gateway_class_name)?;
    Some(GatewayCertificate {
        resource: resource.into(),
        namespace: gateway.meta.namespace.clone(),
        service_account: class.service_account(&cluster, &gateway),
    })
}

/// The SDS resource of the certificate that a Gateway names, or why it cannot be used; `None` if it names none.
pub(super) fn named_by(cluster: &ClusterObjects<'_>, gateway: &Gateway) -> Option<Result<String, Fault>> {
    let reference = gateway.spec.tls.as_ref()?.backend.as_ref()?.client_certificate_ref.as_ref()?;
    Some(check(cluster, &gateway.meta.namespace, reference))
}

fn check(cluster: &ClusterObjects<'_>, own: &str, reference: &SecretReference) -> Result<String, Fault> {
    let SecretReference { group, kind, namespace, name } = reference;
    let owner = namespace.as_deref().unwrap_or(own);
    let invalid = |why: String| {
        let namespace = namespace.as_deref().unwrap_or_default();
        let message = format!("invalid clientCertificateRef {group}/{kind}/{name}.{namespace}, {why}");
        Fault::new(reason::INVALID_CLIENT_CERTIFICATE_REF, message)
    };
    if referenced_kind(group, kind) != Some(Kind::Secret) {
        return Err(invalid("only secret is allowed".to_owned()));
    }
    let Some(secret) = cluster.object::<Secret>(owner, name) else {
        return Err(invalid(format!("secret {owner}/{name} not found")));
    };
    check_certificate(&secret).map_err(invalid)?;
    let key = ObjectKey::new(Kind::Secret, owner, name);
    if owner == own || is_granted(cluster, Kind::KubernetesGateway, own, &key) {
        return Ok(gateway_resource_name(owner, name));
    }
    let message = format!(
        "clientCertificateRef {name}/{owner} not accessible to a Gateway in namespace {own:?} (missing a ReferenceGrant?)"
    );
    Err(Fault::new(reason::REF_NOT_PERMITTED, message))
}
