//! TLS settings for connections to backends.

use canopus_api::Kind;
use canopus_api::credential::Source;
use canopus_api::gateway_api::{BackendTlsValidation, ExternalBackend};
use canopus_api::kube::ConfigMap;
use canopus_proto::istio::networking::v1alpha3::ClientTlsSettings;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode;

use super::super::cluster_objects::ClusterObjects;
use super::super::condition::Conditions;
use super::super::fault::{Fault, reason};
use super::super::server_tls::roots;
use super::{FINE, target_kind};

/// An SDS resource that never exists, so that connections fail.
const NEVER: &str = "invalid://";

/// Converts the validation settings of a policy of `namespace`.
pub(super) fn tls_from_validation(
    cluster: &ClusterObjects<'_>,
    namespace: &str,
    validation: &BackendTlsValidation,
    conditions: &mut Conditions,
) -> ClientTlsSettings {
    let names = validation.subject_alt_names.iter().filter_map(|name| match &*name.r#type {
        "Hostname" => Some(name.hostname.as_deref().unwrap_or_default().to_owned()),
        "URI" => Some(name.uri.as_deref().unwrap_or_default().to_owned()),
        _ => None,
    });
    ClientTlsSettings {
        mode: TlSmode::Simple as i32,
        sni: validation.hostname.to_string(),
        subject_alt_names: names.collect(),
        credential_name: credential(cluster, namespace, validation, conditions),
        ..Default::default()
    }
}

/// Converts the TLS settings of an XBackend. Returns `None` without TLS or for an unsupported mode.
pub(super) fn tls_from_backend(
    cluster: &ClusterObjects<'_>,
    backend: &ExternalBackend,
    hostname: &str,
    conditions: &mut Conditions,
) -> Option<ClientTlsSettings> {
    let tls = backend.spec.tls.as_ref()?;
    let message = match &*tls.mode {
        "ServerOnly" => {
            let validation = tls.validation.clone().unwrap_or_default();
            let mut settings = tls_from_validation(cluster, &backend.meta.namespace, &validation, conditions);
            if settings.sni.is_empty() {
                settings.sni = hostname.to_owned();
            }
            return Some(settings);
        }
        "None" => return None,
        "ClientAndServer" => {
            "unsupported ClientAndServer TLS mode: Istio does not support client certificates on backend"
                .to_owned()
        }
        other => format!("unsupported TLS mode: {other:?}"),
    };
    conditions.fail("Accepted", &Fault::new(reason::INVALID, message));
    None
}

/// The SDS resource of the CA certificates; empty for the system's. Without valid certificates it is one that never exists,
/// so that no request is sent to a backend that cannot be verified.
fn credential(
    cluster: &ClusterObjects<'_>,
    namespace: &str,
    validation: &BackendTlsValidation,
    conditions: &mut Conditions,
) -> String {
    if let Some(well_known) = &validation.well_known_ca_certificates {
        if &**well_known != "System" {
            let message = format!("Unknown wellKnownCACertificates: {well_known}");
            conditions.fail("Accepted", &Fault::new(reason::INVALID, message));
        }
        return String::new();
    }
    let [reference, others @ ..] = validation.ca_certificate_refs.as_slice() else { return String::new() };
    if !others.is_empty() {
        let message = format!("{FINE}; warning: only the first caCertificateRefs will be used");
        conditions.expect("Accepted", "Accepted", message);
    }
    let kind = target_kind(cluster, &reference.group, &reference.kind, namespace, &reference.name);
    let (reason, prefix, message) = match kind {
        Ok(Kind::ConfigMap) => {
            let map = cluster.object::<ConfigMap>(namespace, &reference.name);
            let data = map.map(|map| map.spec.data.clone()).unwrap_or_default();
            let value = |key: &str| data.get(key).map(|text| text.as_bytes().to_vec());
            match roots(value, data.keys().map(|key| &**key)) {
                Ok(_) => return format!("{}{namespace}/{}", Source::ConfigMap.scheme(), reference.name),
                Err(message) => (reason::INVALID_CA_CERTIFICATE_REF, "Certificate invalid", message),
            }
        }
        Ok(_) => {
            let message = format!("unsupported reference kind: {}", reference.kind);
            (reason::INVALID_KIND, "Certificate reference invalid", message)
        }
        Err(message) if message.starts_with("unsupported kind") => {
            (reason::INVALID_KIND, "Certificate reference not supported", message)
        }
        Err(message) => (reason::INVALID_CA_CERTIFICATE_REF, "Certificate reference not found", message),
    };
    conditions.fail("ResolvedRefs", &Fault::new(reason, format!("{prefix}: {message}")));
    let message = format!("Certificate reference invalid: {message}");
    conditions.fail("Accepted", &Fault::new(reason::NO_VALID_CA_CERTIFICATE, message));
    NEVER.to_owned()
}
