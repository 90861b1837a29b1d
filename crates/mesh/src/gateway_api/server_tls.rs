//! TLS settings of listeners, and the certificates they refer to.

use canopus_api::credential::{self, BUILTIN, CA_SUFFIX, Source};
use canopus_api::gateway_api::{
    FrontendTls, FrontendValidationMode, GatewaySpec, Listener, ListenerTls, ObjectReference,
    SecretReference, TlsMode,
};
use canopus_api::kube::{ConfigMap, Secret};
use canopus_api::validate::tls::is_cipher_suite;
use canopus_api::{Kind, ObjectKey};
use canopus_identity::certificate::{Certificate, CertificateError};
use canopus_identity::key::{KeyError, SigningKey};
use canopus_proto::google::protobuf::BoolValue;
use canopus_proto::istio::networking::v1alpha3::ServerTlsSettings;
use canopus_proto::istio::networking::v1alpha3::server_tls_settings::TlSmode;

use super::cluster_objects::ClusterObjects;
use super::fault::{Fault, reason};
use super::grant::is_granted;
use super::listener::Owner;
use crate::network::is_auto_passthrough;
use crate::reference::gateway_api::referenced_kind;

/// The listener option with a TLS mode that the Gateway API does not define.
const TERMINATE_MODE: &str = "gateway.istio.io/tls-terminate-mode";
/// The listener option with the cipher suites.
const CIPHER_SUITES: &str = "gateway.istio.io/tls-cipher-suites";

/// Converts the TLS settings of a listener, with their fault.
pub(super) fn build(
    cluster: &ClusterObjects<'_>,
    owner: Owner<'_>,
    gateway: &GatewaySpec,
    listener: &Listener,
) -> (Option<ServerTlsSettings>, Option<Fault>) {
    let Some(tls) = &listener.tls else { return (None, None) };
    let mut settings = ServerTlsSettings::default();
    match &tls.mode {
        TlsMode::Terminate => {
            let validation = frontend(gateway, listener.port);
            match terminate(cluster, owner, tls, validation, &mut settings) {
                Ok(Done::Finished) => return (Some(settings), None),
                Ok(Done::Continue) => {}
                Err(fault) => return (Some(settings), Some(fault)),
            }
        }
        TlsMode::Passthrough if is_auto_passthrough(owner.meta, listener, tls) => {
            settings.set_mode(TlSmode::AutoPassthrough);
        }
        TlsMode::Passthrough | TlsMode::Other(_) => settings.set_mode(TlSmode::Passthrough),
    }
    if let Some(suites) = tls.options.get(CIPHER_SUITES) {
        for suite in suites.split(',').map(str::trim).filter(|suite| is_cipher_suite(suite)) {
            if !settings.cipher_suites.iter().any(|known| known == suite) {
                settings.cipher_suites.push(suite.to_owned());
            }
        }
    }
    (Some(settings), None)
}

/// Whether cipher suites apply as well.
enum Done {
    Continue,
    Finished,
}

/// The client validation settings of a port.
fn frontend(gateway: &GatewaySpec, port: u16) -> Option<&FrontendTls> {
    let frontend = gateway.tls.as_ref()?.frontend.as_ref()?;
    let of_port = frontend.per_port.iter().find(|entry| entry.port == port);
    Some(of_port.map_or(&frontend.default, |entry| &entry.tls))
}

fn terminate(
    cluster: &ClusterObjects<'_>,
    owner: Owner<'_>,
    tls: &ListenerTls,
    frontend: Option<&FrontendTls>,
    settings: &mut ServerTlsSettings,
) -> Result<Done, Fault> {
    settings.set_mode(TlSmode::Simple);
    let asked = tls.options.get(TERMINATE_MODE);
    match asked {
        Some("MUTUAL") => settings.set_mode(TlSmode::Mutual),
        Some("OPTIONAL_MUTUAL") => settings.set_mode(TlSmode::OptionalMutual),
        Some("ISTIO_SIMPLE") => {
            settings.credential_name = BUILTIN.to_owned();
            return Ok(Done::Finished);
        }
        Some("ISTIO_MUTUAL") => {
            settings.set_mode(TlSmode::IstioMutual);
            return Ok(Done::Finished);
        }
        _ => {}
    }
    if tls.certificate_refs.len() > 2 {
        let message = "TLS mode can only support up to 2 server certificates";
        return Err(Fault::new(reason::INVALID_CERTIFICATE_REF, message));
    }
    let mut names = vec![String::new(); tls.certificate_refs.len()];
    let mut valid = 0;
    let mut faults = None;
    for (name, reference) in names.iter_mut().zip(&tls.certificate_refs) {
        match certificate(cluster, owner, reference) {
            Ok(resource) => {
                *name = resource;
                valid += 1;
            }
            Err(fault) => faults = Fault::join(faults, Some(fault)),
        }
    }
    match valid {
        0 => return faults.map_or(Ok(Done::Finished), Err),
        // A certificate that cannot be used does not take the other one with it.
        1 => settings.credential_name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
        _ => settings.credential_names = names,
    }
    let validation = frontend.and_then(|frontend| frontend.validation.as_ref());
    if let Some(validation) = validation.filter(|validation| !validation.ca_certificate_refs.is_empty()) {
        let [reference] = validation.ca_certificate_refs.as_slice() else {
            let message = "only one caCertificateRef is supported";
            return Err(Fault::new(reason::INVALID_CA_CERTIFICATE_REF, message));
        };
        settings.ca_cert_credential_name = client_roots(cluster, owner, reference)?;
        let is_lenient = validation.mode == FrontendValidationMode::AllowInsecureFallback;
        let (mode, skips) = match asked {
            Some("MUTUAL") => (TlSmode::Mutual, false),
            Some("OPTIONAL_MUTUAL") => (TlSmode::OptionalMutual, false),
            _ if is_lenient => (TlSmode::OptionalMutual, true),
            _ => (TlSmode::Mutual, false),
        };
        settings.set_mode(mode);
        settings.insecure_skip_verify = Some(BoolValue { value: skips });
    }
    Ok(Done::Continue)
}

/// The SDS resource of a listener's certificate.
fn certificate(
    cluster: &ClusterObjects<'_>,
    owner: Owner<'_>,
    reference: &SecretReference,
) -> Result<String, Fault> {
    let own = &*owner.meta.namespace;
    let namespace = reference.namespace.as_deref().unwrap_or(own);
    // The grant is checked first, so that the status does not reveal whether the object exists.
    if namespace != own {
        let key = ObjectKey::new(Kind::Secret, namespace, &reference.name);
        if !is_granted(cluster, owner.kind, own, &key) {
            let message = format!(
                "certificateRef {}/{namespace} not accessible to a Gateway in namespace {own:?} \
                 (missing a ReferenceGrant?)",
                reference.name
            );
            return Err(Fault::new(reason::REF_NOT_PERMITTED, message));
        }
    }
    let reference_text = format!(
        "{}/{}/{}.{}",
        reference.group,
        reference.kind,
        reference.name,
        reference.namespace.as_deref().unwrap_or_default()
    );
    let invalid = |why: String| {
        Fault::new(
            reason::INVALID_CERTIFICATE_REF,
            format!("invalid certificate reference {reference_text}, {why}"),
        )
    };
    if referenced_kind(&reference.group, &reference.kind) != Some(Kind::Secret) {
        return Err(invalid("only secret is allowed".to_owned()));
    }
    let Some(secret) = cluster.object::<Secret>(namespace, &reference.name) else {
        return Err(invalid(format!("secret {namespace}/{} not found", reference.name)));
    };
    check_certificate(&secret).map_err(invalid)?;
    Ok(credential::gateway_resource_name(namespace, &reference.name))
}

/// Checks that a Secret contains certificates that can be read, and the key of the first. Proxies would reject others.
pub(super) fn check_certificate(secret: &Secret) -> Result<(), String> {
    let pairs = [("cert", "key"), ("tls.crt", "tls.key")];
    let value = |key: &str| secret.spec.get(key).filter(|value| !value.is_empty());
    let found = pairs.iter().find_map(|(chain, key)| value(chain).zip(value(key)));
    if let Some((chain, key)) = found {
        return check_pair(chain, key).map_err(|why| format!("the certificate is malformed: {why}"));
    }
    let has_keys =
        |(chain, key): &&(&str, &str)| secret.spec.get(chain).is_some() && secret.spec.get(key).is_some();
    if let Some((chain, key)) = pairs.iter().find(has_keys) {
        return Err(format!("found keys {chain:?} and {key:?}, but they were empty"));
    }
    Err(format!(
        "found secret, but didn't have expected keys (cert and key) or (tls.crt and tls.key); found: {}",
        first_keys(secret.spec.data.keys().map(|key| &**key))
    ))
}

/// Checks that the first certificate of a chain is for a key. Parity: in the words of Go's library, which people search for.
fn check_pair(chain: &[u8], key: &[u8]) -> Result<(), String> {
    let certificates = Certificate::all_from_pem(chain).map_err(|error| match error {
        CertificateError::Pem(_) => "tls: failed to find any PEM data in certificate input".to_owned(),
        CertificateError::Der(why) => format!("x509: malformed certificate: {why}"),
    })?;
    let Some(leaf) = certificates.first() else {
        return Err("tls: failed to find any PEM data in certificate input".to_owned());
    };
    let key = match SigningKey::from_pem(key) {
        Ok(key) => key,
        Err(KeyError::Pem(_)) => return Err("tls: failed to find any PEM data in key input".to_owned()),
        // Whether proxies take keys of other sizes and kinds than ours is theirs to say.
        Err(_) => return Ok(()),
    };
    if leaf.public_key() == key.public_key() {
        Ok(())
    } else {
        Err("tls: private key does not match public key".to_owned())
    }
}

/// The SDS resource of the CA certificates for clients.
fn client_roots(
    cluster: &ClusterObjects<'_>,
    owner: Owner<'_>,
    reference: &ObjectReference,
) -> Result<String, Fault> {
    let own = &*owner.meta.namespace;
    let namespace = reference.namespace.as_deref().unwrap_or(own);
    let name = &*reference.name;
    let kind = referenced_kind(&reference.group, &reference.kind);
    let (source, resource_kind) = match kind {
        Some(Kind::Secret) => (Source::GatewaySecret, Kind::Secret),
        _ => (Source::ConfigMap, Kind::ConfigMap),
    };
    let resource = format!("{}{namespace}/{name}{CA_SUFFIX}", source.scheme());
    if namespace != own {
        // Parity: a grant for one object has to name it with the suffix of the SDS resource.
        let key = ObjectKey::new(resource_kind, namespace, &format!("{name}{CA_SUFFIX}"));
        if !is_granted(cluster, owner.kind, own, &key) {
            let message = format!(
                "caCertificateRef {namespace}/{name} not accessible to a Gateway in namespace {own:?} \
                 (missing a ReferenceGrant?)"
            );
            return Err(Fault::new(reason::REF_NOT_PERMITTED, message));
        }
    }
    let reference_text = format!(
        "{}/{}/{name}.{}",
        reference.group,
        reference.kind,
        reference.namespace.as_deref().unwrap_or_default()
    );
    let invalid = |why: String| {
        Fault::new(
            reason::INVALID_CA_CERTIFICATE_REF,
            format!("invalid CA certificate reference {reference_text}, {why}"),
        )
    };
    let roots = match kind {
        Some(Kind::ConfigMap) => {
            let Some(map) = cluster.object::<ConfigMap>(namespace, name) else {
                return Err(invalid(format!("configmap {namespace}/{name} not found")));
            };
            let value = |key: &str| map.spec.get(key).map(|text| text.as_bytes().to_vec());
            roots(value, map.spec.data.keys().map(|key| &**key))
        }
        Some(Kind::Secret) => {
            let Some(secret) = cluster.object::<Secret>(namespace, name) else {
                return Err(invalid(format!("secret {namespace}/{name} not found")));
            };
            let value = |key: &str| secret.spec.get(key).map(|bytes| bytes.to_vec());
            roots(value, secret.spec.data.keys().map(|key| &**key))
        }
        _ => {
            return Err(Fault::new(
                reason::INVALID_CA_CERTIFICATE_KIND,
                format!(
                    "invalid CA certificate reference {reference_text}, only secret and configmap are allowed"
                ),
            ));
        }
    };
    let roots = roots.map_err(invalid)?;
    if Certificate::all_from_pem(&roots).map_or(true, |certificates| certificates.is_empty()) {
        return Err(invalid("the bundle is malformed".to_owned()));
    }
    Ok(resource)
}

/// The CA certificates in an object, or why there are none.
pub(super) fn roots<'k>(
    value: impl Fn(&str) -> Option<Vec<u8>>,
    keys: impl Iterator<Item = &'k str>,
) -> Result<Vec<u8>, String> {
    let names = ["cacert", "ca.crt"];
    if let Some(found) = names.iter().find_map(|name| value(name).filter(|value| !value.is_empty())) {
        return Ok(found);
    }
    if let Some(name) = names.iter().find(|name| value(name).is_some()) {
        return Err(format!("found key {name:?}, but it was empty"));
    }
    Err(format!("found secret, but didn't have expected keys cacert or ca.crt; found: {}", first_keys(keys)))
}

fn first_keys<'k>(keys: impl Iterator<Item = &'k str>) -> String {
    let mut keys: Vec<_> = keys.collect();
    keys.sort_unstable();
    if keys.len() < 3 {
        return keys.join(", ");
    }
    format!("{}, and {} more...", keys[..3].join(", "), keys.len() - 3)
}
