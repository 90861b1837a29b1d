//! TLS that a proxy terminates or passes through.

use std::collections::BTreeSet;

use canopus_proto::istio::networking::v1alpha3::ServerTlsSettings;
use canopus_proto::istio::networking::v1alpha3::server_tls_settings::{TlSmode as Mode, TlsProtocol};

use crate::validate::code::codes;
use crate::validate::scope::Scope;

codes! {
    OLD_VERSION: warning "server-tls-version-without-ciphers",
        "list cipherSuites, or raise minProtocolVersion to TLSV1_2";
    UNKNOWN_CIPHERS: warning "server-tls-cipher-unknown", "remove the cipher suites Envoy does not have";
    DUPLICATE_CIPHERS: warning "server-tls-cipher-duplicate", "list each cipher suite once";
    CERTIFICATE_OF_MESH: error "server-tls-istio-mutual-with-certificate",
        "remove the certificate: ISTIO_MUTUAL uses the one of the workload";
    UNUSED_CERTIFICATE: warning "server-tls-passthrough-with-certificate", "remove the certificate, or terminate TLS";
    SEVERAL_SOURCES: error "server-tls-several-certificate-sources", "keep one of the ways to give certificates";
    NO_CA: error "server-tls-without-ca", "give caCertificates, or credentialName";
    TOO_MANY_CERTIFICATES: warning "server-tls-more-than-two-certificates", "give one RSA and one ECDSA certificate";
    NO_CERTIFICATE: error "server-tls-without-certificate", "give serverCertificate, or credentialName";
    NO_KEY: error "server-tls-without-key", "give privateKey, or credentialName";
    CRL_AND_CREDENTIAL: error "server-tls-crl-with-credential", "put the CRL in the credential";
    CRL_WITHOUT_CLIENT: error "server-tls-crl-without-client", "remove caCrl, or ask clients for certificates";
}

/// Cipher suites that Envoy has, sorted.
const CIPHER_SUITES: [&str; 15] = [
    "AES128-GCM-SHA256",
    "AES128-SHA",
    "AES256-GCM-SHA384",
    "AES256-SHA",
    "DES-CBC3-SHA",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-SHA",
    "ECDHE-RSA-CHACHA20-POLY1305",
];

/// Settings of a server.
pub fn server(tls: &ServerTlsSettings, mut scope: Scope<'_>) {
    let old = matches!(tls.min_protocol_version(), TlsProtocol::Tlsv10 | TlsProtocol::Tlsv11);
    if old && tls.cipher_suites.is_empty() {
        let message = "TLS version below TLSV1_2 require setting compatible ciphers as by default they no longer \
                       include compatible ciphers.";
        scope.field("minProtocolVersion").add(OLD_VERSION.says(message));
    }
    cipher_suites(&tls.cipher_suites, scope.field("cipherSuites"));
    let mode = tls.mode();
    match mode {
        Mode::IstioMutual => return istio_mutual(tls, scope),
        Mode::Passthrough | Mode::AutoPassthrough => {
            let unused = has_certificate(tls) || !tls.ca_crl.is_empty();
            scope.add_if(unused, || {
                let mode = mode.as_str_name();
                let message = format!("{mode} mode does not use certificates, they will be ignored");
                UNUSED_CERTIFICATE.says(message)
            });
        }
        _ => {}
    }
    one_source(tls, scope.again());
    let terminates = matches!(mode, Mode::Simple | Mode::Mutual | Mode::OptionalMutual);
    // Credentials are fetched, so nothing about them is known here.
    if terminates && (!tls.credential_name.is_empty() || !tls.credential_names.is_empty()) {
        return;
    }
    if terminates {
        certificates(tls, mode, scope.again());
    }
    if !tls.ca_crl.is_empty() {
        crl(tls, mode, scope.field("caCrl"));
    }
}

/// What any of the ways to give certificates is used.
fn has_certificate(tls: &ServerTlsSettings) -> bool {
    let texts = [&tls.server_certificate, &tls.private_key, &tls.ca_certificates, &tls.credential_name];
    texts.iter().any(|text| !text.is_empty())
        || !tls.tls_certificates.is_empty()
        || !tls.credential_names.is_empty()
}

fn cipher_suites(suites: &[String], mut scope: Scope<'_>) {
    let mut unknown = BTreeSet::new();
    let mut known = BTreeSet::new();
    let mut duplicate = BTreeSet::new();
    for suite in suites {
        if !is_cipher_suite(suite) {
            unknown.insert(suite.as_str());
        } else if !known.insert(suite) {
            duplicate.insert(suite.as_str());
        }
    }
    let listed =
        |suites: &BTreeSet<&str>| format!("[{}]", suites.iter().copied().collect::<Vec<_>>().join(" "));
    scope.add_if(!unknown.is_empty(), || {
        UNKNOWN_CIPHERS.says(format!("ignoring invalid cipher suites: {}", listed(&unknown)))
    });
    scope.add_if(!duplicate.is_empty(), || {
        DUPLICATE_CIPHERS.says(format!("ignoring duplicate cipher suites: {}", listed(&duplicate)))
    });
}

/// Whether Envoy takes a cipher suite.
pub fn is_cipher_suite(name: &str) -> bool {
    // Parity: Go looks at the first byte as if it were a character. Anything but a letter or a number is an operator.
    let starts_as_name = name.bytes().next().is_some_and(|first| char::from(first).is_alphanumeric());
    !starts_as_name || name == "ALL" || CIPHER_SUITES.binary_search(&name).is_ok()
}

/// Certificates of the mesh are not given by hand.
fn istio_mutual(tls: &ServerTlsSettings, mut scope: Scope<'_>) {
    let given = [
        ("serverCertificate", !tls.server_certificate.is_empty(), "server certificate"),
        ("privateKey", !tls.private_key.is_empty(), "private key"),
        ("caCertificates", !tls.ca_certificates.is_empty(), "CA bundle"),
        ("tlsCertificates", !tls.tls_certificates.is_empty(), "tlsCertificates"),
        ("credentialName", !tls.credential_name.is_empty(), "credentialName"),
        ("credentialNames", !tls.credential_names.is_empty(), "credentialNames"),
    ];
    for (field, given, name) in given {
        scope.field(field).add_if(given, || {
            CERTIFICATE_OF_MESH.says(format!("ISTIO_MUTUAL TLS cannot have associated {name}"))
        });
    }
}

fn one_source(tls: &ServerTlsSettings, mut scope: Scope<'_>) {
    let sources = [
        !tls.server_certificate.is_empty() && !tls.private_key.is_empty(),
        !tls.credential_name.is_empty(),
        !tls.credential_names.is_empty(),
        !tls.tls_certificates.is_empty(),
    ];
    if sources.into_iter().filter(|used| *used).count() > 1 {
        let message = "only one of credential_name, credential_names, server_certificate/private_key, \
                       tls_certificates should be specified";
        scope.add(SEVERAL_SOURCES.says(message));
    }
}

fn certificates(tls: &ServerTlsSettings, mode: Mode, mut scope: Scope<'_>) {
    let prefix = if mode == Mode::Simple { "SIMPLE TLS" } else { "MUTUAL TLS" };
    if mode != Mode::Simple && tls.ca_certificates.is_empty() {
        let fault = NO_CA.says(format!("{prefix} requires a client CA bundle"));
        scope.field("caCertificates").add(fault);
    }
    if tls.tls_certificates.len() > 2 {
        let message = format!("{prefix} can support up to 2 server certificates");
        scope.field("tlsCertificates").add(TOO_MANY_CERTIFICATES.says(message));
    }
    let pair = |certificate: &str, key: &str, mut scope: Scope<'_>| {
        scope.field("serverCertificate").add_if(certificate.is_empty(), || {
            NO_CERTIFICATE.says(format!("{prefix} requires a server certificate"))
        });
        scope
            .field("privateKey")
            .add_if(key.is_empty(), || NO_KEY.says(format!("{prefix} requires a private key")));
    };
    if tls.tls_certificates.is_empty() {
        pair(&tls.server_certificate, &tls.private_key, scope);
    } else {
        scope.each("tlsCertificates", &tls.tls_certificates, |certificate, scope| {
            pair(&certificate.server_certificate, &certificate.private_key, scope);
        });
    }
}

fn crl(tls: &ServerTlsSettings, mode: Mode, mut scope: Scope<'_>) {
    scope.add_if(!tls.credential_name.is_empty(), || {
        let message = "CRL is not supported with credentialName. CRL has to be specified in the credential";
        CRL_AND_CREDENTIAL.says(message)
    });
    scope.add_if(mode == Mode::Simple, || CRL_WITHOUT_CLIENT.says("CRL is not supported with SIMPLE TLS"));
}
