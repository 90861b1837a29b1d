//! An answer in the form of the recordings, read by another parser than the product's.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use canopus_base::tree::{Map, Node, Value};
use serde_json::{Value as Json, json};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Extension};
use x509_parser::public_key::PublicKey;

/// The name of a gRPC code as it is written in the specification.
pub(super) fn code(code: tonic::Code) -> &'static str {
    match code {
        tonic::Code::InvalidArgument => "INVALID_ARGUMENT",
        tonic::Code::Internal => "INTERNAL",
        tonic::Code::Unauthenticated => "UNAUTHENTICATED",
        tonic::Code::Unimplemented => "UNIMPLEMENTED",
        _ => "another code",
    }
}

/// A refusal.
pub(super) fn refusal(code: &str, message: &str) -> Node {
    json!({"grpcCode": code, "grpcMessage": message}).into()
}

/// A chain, whose first certificate is for this public key.
pub(super) fn answer(chain: &[String], key: &str) -> anyhow::Result<Node> {
    let mut elements = Vec::new();
    for (index, text) in chain.iter().enumerate() {
        elements.push(element(index, text, chain.get(index + 1), key)?);
    }
    Ok(json!({"grpcCode": "OK", "grpcMessage": "", "chain": elements}).into())
}

fn sections(text: &str) -> anyhow::Result<Vec<Pem>> {
    Ok(Pem::iter_from_buffer(text.as_bytes()).collect::<Result<_, _>>()?)
}

fn element(index: usize, text: &str, next: Option<&String>, key: &str) -> anyhow::Result<Json> {
    let sections = sections(text)?;
    let first = sections.first().context("an empty element")?;
    let (_, certificate) = X509Certificate::from_der(&first.contents)?;
    let mut printed = self::certificate(&certificate)?;
    printed["index"] = json!(index);
    printed["certificatesInElement"] = json!(sections.len());
    printed["endsWithNewline"] = json!(text.ends_with('\n'));
    if index == 0 {
        let from = certificate.validity().not_before.timestamp();
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
        printed["notBeforeMinusNowSeconds"] = json!(((from - now) as f64 / 10.0).round() as i64 * 10);
        let given = Pem::iter_from_buffer(key.as_bytes()).next().context("no key")??;
        printed["publicKeyIsFromCSR"] = json!(certificate.public_key().raw == given.contents);
    }
    if let Some(next) = next {
        let issuers = self::sections(next)?;
        let (_, issuer) = X509Certificate::from_der(&issuers.first().context("an empty element")?.contents)?;
        let is_issued = certificate.issuer().as_raw() == issuer.subject().as_raw();
        printed["issuedByNextElement"] = json!(is_issued);
        printed["signatureVerifiesWithNextElement"] = json!(is_signed_by(text, next)?);
        if let Some(id) = authority_key_id(&certificate) {
            printed["authorityKeyIdEqualsNextSubjectKeyId"] = json!(Some(id) == subject_key_id(&issuer));
        }
    }
    Ok(printed)
}

/// The first certificate of a text.
pub(super) fn certificate_of_pem(text: &str) -> anyhow::Result<Json> {
    let section = Pem::iter_from_buffer(text.as_bytes()).next().context("no certificate")??;
    certificate(&X509Certificate::from_der(&section.contents)?.1)
}

/// What a certificate says, but for what differs from one to the next.
fn certificate(certificate: &X509Certificate<'_>) -> anyhow::Result<Json> {
    let validity = certificate.validity();
    Ok(json!({
        "subject": name(&certificate.subject().to_string()),
        "issuer": name(&certificate.issuer().to_string()),
        "version": format!("v{}", certificate.version().0 + 1),
        "signatureAlgorithm": signature_algorithm(certificate),
        "publicKey": public_key(certificate)?,
        "validitySeconds": validity.not_after.timestamp() - validity.not_before.timestamp(),
        "serialBits": if certificate.raw_serial().len() > 8 { ">64" } else { "few" },
        "extensions": certificate.extensions().iter().map(extension).collect::<Vec<_>>(),
    }))
}

/// RFC 4514 has the most specific part first.
fn name(printed: &str) -> String {
    let mut parts: Vec<&str> = printed.split(", ").filter(|part| !part.is_empty()).collect();
    parts.reverse();
    parts.join(",")
}

fn signature_algorithm(certificate: &X509Certificate<'_>) -> String {
    match certificate.signature_algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.113549.1.1.11" => "sha256WithRSAEncryption".to_owned(),
        "1.2.840.10045.4.3.2" => "ecdsa-with-SHA256".to_owned(),
        "1.2.840.10045.4.3.3" => "ecdsa-with-SHA384".to_owned(),
        other => other.to_owned(),
    }
}

fn public_key(certificate: &X509Certificate<'_>) -> anyhow::Result<String> {
    let key = certificate.public_key();
    Ok(match key.parsed()? {
        PublicKey::RSA(rsa) => format!("RSA-{}", rsa.key_size()),
        // The size is that of the bytes, of which P-521 does not use all bits.
        PublicKey::EC(point) => format!("ECDSA-secp{}r1", point.key_size().min(521)),
        _ if key.algorithm.algorithm.to_id_string() == "1.3.101.112" => "Ed25519PublicKey".to_owned(),
        _ => "unknown".to_owned(),
    })
}

fn extension(extension: &X509Extension<'_>) -> Json {
    let (name, value) = match extension.parsed_extension() {
        ParsedExtension::KeyUsage(usage) => {
            let usages = [
                ("digital_signature", usage.digital_signature()),
                ("key_encipherment", usage.key_encipherment()),
                ("key_cert_sign", usage.key_cert_sign()),
                ("crl_sign", usage.crl_sign()),
            ];
            let usages: Vec<_> = usages.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect();
            ("keyUsage", json!(usages))
        }
        ParsedExtension::ExtendedKeyUsage(usage) => {
            let usages = [("serverAuth", usage.server_auth), ("clientAuth", usage.client_auth)];
            let usages: Vec<_> = usages.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect();
            ("extendedKeyUsage", json!(usages))
        }
        ParsedExtension::BasicConstraints(constraints) => {
            let value = json!({"ca": constraints.ca, "pathLength": constraints.path_len_constraint});
            ("basicConstraints", value)
        }
        ParsedExtension::AuthorityKeyIdentifier(_) => ("authorityKeyIdentifier", json!("an identifier")),
        ParsedExtension::SubjectKeyIdentifier(_) => ("subjectKeyIdentifier", json!("an identifier")),
        ParsedExtension::SubjectAlternativeName(names) => {
            let printed = |name: &GeneralName<'_>| match name {
                GeneralName::URI(uri) => format!("URI:{uri}"),
                GeneralName::DNSName(name) => format!("DNS:{name}"),
                other => format!("{other:?}"),
            };
            ("subjectAltName", json!(names.general_names.iter().map(printed).collect::<Vec<_>>()))
        }
        other => ("unknown", json!(format!("{other:?}"))),
    };
    let oid = extension.oid.to_id_string();
    json!({"oid": oid, "name": name, "critical": extension.critical, "value": value})
}

fn authority_key_id<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a [u8]> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0),
        _ => None,
    })
}

fn subject_key_id<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a [u8]> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
        _ => None,
    })
}

/// Whether OpenSSL finds that one certificate is signed by the other.
fn is_signed_by(text: &str, issuer: &str) -> anyhow::Result<bool> {
    let (certificate, trusted) = (tempfile::NamedTempFile::new()?, tempfile::NamedTempFile::new()?);
    fs::write(certificate.path(), text)?;
    fs::write(trusted.path(), issuer)?;
    let mut openssl = Command::new("openssl");
    openssl.args(["verify", "-partial_chain", "-auth_level", "0", "-trusted"]);
    Ok(openssl.arg(trusted.path()).arg(certificate.path()).output().context("openssl")?.status.success())
}

/// Fields of certificates that were plugged in: they are what the recorder, or the adapter, made them.
const OF_INPUTS: [&str; 6] =
    ["extensions", "validitySeconds", "signatureAlgorithm", "publicKey", "version", "serialBits"];

/// Leaves out of the expected chain how the plugged-in certificates look.
pub(super) fn forget_what_was_plugged_in(expected: &mut Node) {
    let Some(chain) = expected.get_mut("chain").and_then(Node::as_list_mut) else { return };
    for element in chain.iter_mut().skip(1) {
        if let Value::Map(map) = &mut element.value {
            let kept = std::mem::take(map).into_entries().into_iter();
            let kept = kept.filter(|entry| !OF_INPUTS.contains(&&*entry.key));
            *map = kept.map(|entry| (entry.key, entry.node)).collect::<Map>();
        }
    }
}

/// The same without those fields of plugged-in certificates.
pub(super) fn only_what_is_recorded(mut got: Node, expected: &Node) -> Node {
    let is_plugged = expected.pointer("/chain/1").is_some_and(|element| element.get("extensions").is_none());
    if is_plugged {
        forget_what_was_plugged_in(&mut got);
    }
    got
}
