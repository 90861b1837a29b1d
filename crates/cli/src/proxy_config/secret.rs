//! Certificates.

use std::time::SystemTime;

use canopus_identity::Certificate;
use canopus_proto::Message as _;
use canopus_proto::envoy::admin::v3::secrets_config_dump::DynamicSecret;
use canopus_proto::envoy::config::core::v3::DataSource;
use canopus_proto::envoy::config::core::v3::data_source::Specifier;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::secret;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, SpiffeCertValidatorConfig,
};
use jiff::Timestamp;
use rustls_pki_types::UnixTime;

use super::dump::ConfigDump;
use super::render::{self, Format};
use crate::table::{aligned, row};

pub(super) fn print(dump: &ConfigDump, format: Format) -> anyhow::Result<String> {
    match format {
        Format::Short => summary(dump, false),
        Format::Json | Format::Yaml => {
            let dump = dump
                .secrets()
                .map_err(|error| anyhow::anyhow!("sidecar doesn't support secrets: {error:#}"))?;
            Ok(render::message(&dump, format))
        }
    }
}

/// What is printed of a secret.
#[derive(Default)]
struct Item {
    name: String,
    state: &'static str,
    kind: &'static str,
    valid: bool,
    serial: String,
    not_after: String,
    not_before: String,
    trust_domain: String,
}

pub(super) fn summary(dump: &ConfigDump, with_type: bool) -> anyhow::Result<String> {
    let dump = dump.secrets()?;
    if dump.dynamic_active_secrets.is_empty() && dump.dynamic_warming_secrets.is_empty() {
        return Ok("No active or warming secrets found.\n".to_owned());
    }
    let mut items = Vec::new();
    for secret in &dump.dynamic_warming_secrets {
        items.extend(items_of(secret, "WARMING")?);
    }
    for secret in &dump.dynamic_active_secrets {
        items.extend(items_of(secret, "ACTIVE")?);
    }
    if items.is_empty() {
        return Ok("No secret items to show.\n".to_owned());
    }
    let with_trust_domain = items.iter().all(|item| !item.trust_domain.is_empty());
    let mut header =
        row(["RESOURCE NAME", "TYPE", "STATUS", "VALID CERT", "SERIAL NUMBER", "NOT AFTER", "NOT BEFORE"]);
    if with_trust_domain {
        header.push("TRUST DOMAIN".to_owned());
    }
    let mut rows = vec![header];
    for item in items {
        let mut line = vec![
            if with_type { format!("secret/{}", item.name) } else { item.name },
            item.kind.to_owned(),
            item.state.to_owned(),
            item.valid.to_string(),
            item.serial,
            item.not_after,
            item.not_before,
        ];
        if with_trust_domain {
            line.push(item.trust_domain);
        }
        rows.push(line);
    }
    Ok(aligned(&rows, 5))
}

fn items_of(dynamic: &DynamicSecret, state: &'static str) -> anyhow::Result<Vec<Item>> {
    let secret = Secret::decode(dynamic.secret.clone().unwrap_or_default().value)?;
    let named = |text: Option<&[u8]>, trust_domain: &str| item(&dynamic.name, state, text, trust_domain);
    let text = match &secret.r#type {
        Some(secret::Type::TlsCertificate(certificate)) => inline(certificate.certificate_chain.as_ref()),
        Some(secret::Type::ValidationContext(context)) => {
            let roots = inline(context.trusted_ca.as_ref());
            if roots.is_none()
                && let Some(bundles) = trust_bundles(context)?
            {
                let bundles = bundles.trust_domains.iter();
                return Ok(bundles.map(|one| named(inline(one.trust_bundle.as_ref()), &one.name)).collect());
            }
            roots
        }
        _ => None,
    };
    Ok(vec![named(text, "")])
}

/// The roots of several trust domains, as SPIRE sends them.
fn trust_bundles(
    context: &CertificateValidationContext,
) -> anyhow::Result<Option<SpiffeCertValidatorConfig>> {
    let config = context.custom_validator_config.as_ref().and_then(|config| config.typed_config.as_ref());
    match config {
        Some(config) if config.is::<SpiffeCertValidatorConfig>() => Ok(Some(config.unpack()?)),
        _ => Ok(None),
    }
}

fn inline(source: Option<&DataSource>) -> Option<&[u8]> {
    match &source?.specifier {
        Some(Specifier::InlineBytes(bytes)) if !bytes.is_empty() => Some(bytes),
        _ => None,
    }
}

fn item(name: &str, state: &'static str, text: Option<&[u8]>, trust_domain: &str) -> Item {
    let empty = Item { name: name.to_owned(), state, ..Item::default() };
    let Some(certificate) = text.and_then(|text| Certificate::from_pem(text).ok()) else { return empty };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut named =
        certificate.uris().iter().filter_map(|uri| uri.strip_prefix("spiffe://")?.split('/').next());
    Item {
        kind: if certificate.is_authority() { "CA" } else { "Cert Chain" },
        valid: certificate.is_valid_at(UnixTime::since_unix_epoch(now)),
        serial: format!("{:0>32}", certificate.serial().trim_start_matches('0')),
        not_after: time(certificate.not_after()),
        not_before: time(certificate.not_before()),
        trust_domain: if trust_domain.is_empty() {
            named.next_back().unwrap_or_default().to_owned()
        } else {
            trust_domain.to_owned()
        },
        ..empty
    }
}

fn time(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

/// The identity in the certificate that a proxy presents to others of the mesh.
pub(crate) fn identity(dump: &ConfigDump) -> Option<String> {
    let secrets = dump.secrets().ok()?.dynamic_active_secrets;
    let own = secrets.into_iter().find(|secret| secret.name == "default")?;
    let secret = Secret::decode(own.secret?.value).ok()?;
    let Some(secret::Type::TlsCertificate(certificate)) = &secret.r#type else { return None };
    let certificate = Certificate::from_pem(inline(certificate.certificate_chain.as_ref())?).ok()?;
    certificate.uris().first().cloned()
}

/// The roots that a proxy trusts, in PEM.
pub(super) fn roots(dump: &ConfigDump) -> anyhow::Result<Vec<u8>> {
    let secrets = dump.secrets()?.dynamic_active_secrets;
    let found = secrets.iter().find(|secret| secret.name == "ROOTCA");
    let found = found.ok_or_else(|| anyhow::anyhow!("cannot find ROOTCA from secret"))?;
    let secret = Secret::decode(found.secret.clone().unwrap_or_default().value)?;
    match &secret.r#type {
        Some(secret::Type::ValidationContext(context)) => inline(context.trusted_ca.as_ref())
            .map(<[u8]>::to_vec)
            .ok_or_else(|| anyhow::anyhow!("cannot retrieve trustedCa from secret ROOTCA")),
        _ => Err(anyhow::anyhow!("cannot find ROOTCA from secret config dump")),
    }
}
