//! TLS that a proxy originates.

use canopus_proto::istio::networking::v1alpha3::ClientTlsSettings;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;

use crate::credential::{Credential, Source};
use crate::text::quoted;
use crate::validate::code::{Fault, codes};
use crate::validate::scope::Scope;

codes! {
    BAD_CONFIG_MAP: error "client-tls-config-map-invalid", "write configmap://namespace/name";
    FOREIGN_CONFIG_MAP: error "client-tls-config-map-elsewhere", "name a ConfigMap of the object's own namespace";
    UNVERIFIED: error "client-tls-unverified-with-trust",
        "remove insecureSkipVerify, or what the server would be verified with";
    CREDENTIAL_AND_FILES: error "client-tls-credential-and-files", "use either credentialName or files";
    NO_CERTIFICATE: error "client-tls-without-certificate", "give clientCertificate, or credentialName";
    NO_KEY: error "client-tls-without-key", "give privateKey, or credentialName";
}

/// Settings of an object in a namespace.
pub fn client(settings: &ClientTlsSettings, namespace: &str, mut scope: Scope<'_>) {
    if settings.credential_name.starts_with(Source::ConfigMap.scheme()) {
        scope.field("credentialName").require(config_map(&settings.credential_name, namespace));
    }
    let mode = settings.mode();
    if settings.insecure_skip_verify.is_some_and(|skip| skip.value) {
        scope.require(unverified(settings, mode));
    }
    if matches!(mode, Mode::Simple | Mode::Mutual) && !settings.credential_name.is_empty() {
        let files = [
            &settings.client_certificate,
            &settings.ca_certificates,
            &settings.private_key,
            &settings.ca_crl,
        ];
        scope.add_if(files.iter().any(|file| !file.is_empty()), || {
            let message =
                "cannot specify client certificates or CA certificate or CA CRL If credentialName is set";
            CREDENTIAL_AND_FILES.says(message)
        });
    } else if mode == Mode::Mutual {
        scope.add_if(settings.client_certificate.is_empty(), || {
            NO_CERTIFICATE.says("client certificate required for mutual tls")
        });
        scope.add_if(settings.private_key.is_empty(), || NO_KEY.says("private key required for mutual tls"));
    }
}

fn config_map(name: &str, namespace: &str) -> Result<(), Fault> {
    let invalid = "invalid configmap:// credentialName";
    match Credential::parse(name, namespace) {
        Err(error) => Err(BAD_CONFIG_MAP.says(format!("{invalid}: {error}")).with_value(name)),
        Ok(Credential::Object { namespace: home, .. }) if *home != *namespace || namespace.is_empty() => {
            let namespace = quoted(namespace);
            let message = format!("{invalid}: namespace must match the configuration namespace {namespace}");
            Err(FOREIGN_CONFIG_MAP.says(message).with_value(name))
        }
        Ok(_) => Ok(()),
    }
}

/// What a server would be verified with is not given when it is not to be verified.
fn unverified(settings: &ClientTlsSettings, mode: Mode) -> Result<(), Fault> {
    let trust = !settings.ca_certificates.is_empty() || !settings.subject_alt_names.is_empty();
    let message = match mode {
        Mode::Simple if trust || !settings.credential_name.is_empty() => {
            "cannot specify CaCertificates or CredentialName or SubjectAltNames when InsecureSkipVerify is set true"
        }
        Mode::Mutual if trust => {
            "cannot specify CaCertificates or SubjectAltNames when InsecureSkipVerify is set true"
        }
        _ => return Ok(()),
    };
    Err(UNVERIFIED.says(message))
}
