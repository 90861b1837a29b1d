//! The SDS resources that the servers of a Gateway may use.

use std::collections::BTreeSet;

use canopus_api::credential::{self, CA_SUFFIX, Credential, Source};
use canopus_base::spiffe::Identity;
use canopus_proto::istio::networking::v1alpha3::ServerTlsSettings;
use canopus_proto::istio::networking::v1alpha3::server_tls_settings::TlSmode as TlsMode;

use super::GatewayConfig;

/// Adds the resources that `tls` refers to, if they are in the namespace that Gateway and proxy share or a ReferenceGrant
/// allows them.
///
/// A proxy without an authenticated identity gets no secrets: its metadata is not trusted.
pub(super) fn add(
    references: &mut BTreeSet<String>,
    gateway: &GatewayConfig,
    tls: &ServerTlsSettings,
    identity: Option<&Identity>,
) {
    let Some(identity) = identity.filter(|identity| is_proxy_of(identity, gateway)) else { return };
    let namespace = if gateway.is_listener_set { &*gateway.namespace } else { &*identity.namespace };
    let trusted = gateway.is_listener_set || *gateway.namespace == *identity.namespace;
    let is_near = |resource: &str| match Credential::parse(resource, &identity.namespace) {
        Ok(Credential::Object { namespace: of_object, .. }) => trusted && *of_object == *namespace,
        _ => false,
    };
    let is_allowed = |resource: &str| is_near(resource) || gateway.granted.contains(resource);

    let checks_clients = matches!(tls.mode(), TlsMode::Mutual | TlsMode::OptionalMutual);
    for name in credential_names(tls) {
        if name.starts_with(credential::BUILTIN) {
            continue;
        }
        let resource = credential::resource_name(name);
        if is_allowed(&resource) {
            if checks_clients {
                references.insert(format!("{resource}{CA_SUFFIX}"));
            }
            references.insert(resource);
        }
    }
    let ca = &tls.ca_cert_credential_name;
    if ca.starts_with(Source::GatewaySecret.scheme()) && is_allowed(ca) {
        references.insert(ca.clone());
    }
}

/// Whether a proxy with this identity runs the Gateway.
fn is_proxy_of(identity: &Identity, gateway: &GatewayConfig) -> bool {
    let account = gateway.service_account.as_deref();
    *identity.namespace == *gateway.parent_namespace
        && account.is_none_or(|account| &*identity.service_account == account)
}

/// The resources of other namespaces that `tls` refers to, by full name.
pub(super) fn foreign(tls: &ServerTlsSettings, namespace: &str) -> Vec<String> {
    let shown = credential_names(tls).filter(|name| !name.starts_with(credential::BUILTIN));
    let names = shown.map(credential::resource_name).chain([tls.ca_cert_credential_name.clone()]);
    let is_foreign = |resource: &String| match Credential::parse(resource, namespace) {
        Ok(Credential::Object { namespace: of_object, .. }) => *of_object != *namespace,
        _ => false,
    };
    names.filter(is_foreign).collect()
}

fn credential_names(tls: &ServerTlsSettings) -> impl Iterator<Item = &str> {
    let single = tls.credential_names.is_empty().then_some(tls.credential_name.as_str());
    tls.credential_names.iter().map(String::as_str).chain(single).filter(|name| !name.is_empty())
}
