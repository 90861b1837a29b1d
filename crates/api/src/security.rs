//! Checks of what authorization and authentication policies may say: attribute keys, wildcards, path templates, JWKS
//! addresses.
//!
//! The texts of these errors are shown by admission webhooks and scripts look for them, so they are Istio's.

pub mod jwks;
#[cfg(test)]
mod tests;
mod words;

use canopus_base::net::{parse_ip, parse_prefix};

use crate::text::quoted;

/// A path segment that stands for exactly one segment.
pub const MATCH_ONE: &str = "{*}";
/// A path segment that stands for any number of segments.
pub const MATCH_ANY: &str = "{**}";

/// How many service accounts one list may have, and how long each may be.
const MAX_SERVICE_ACCOUNTS: usize = 16;
const MAX_SERVICE_ACCOUNT_LENGTH: usize = 320;

/// Why a value in a policy is refused. `field` is the list or attribute it stands in.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum InvalidValue {
    /// An empty string.
    #[error("empty value not allowed, found in {field}")]
    Empty { field: String },
    /// More than one `*`.
    #[error("at most one wildcard is allowed, found in {field}: {}", quoted(.value))]
    ManyWildcards { field: String, value: String },
    /// A `*` in the middle.
    #[error("wildcard is only allowed at the start or end, found in {field}: {}", quoted(.value))]
    InnerWildcard { field: String, value: String },
    /// A `*` where only exact values are taken.
    #[error("wildcard not allowed, found in {field}")]
    Wildcard { field: String },
    /// A trust domain is a single name.
    #[error("trust domain must not contain '/', found in {field}: {}", quoted(.value))]
    TrustDomainPath { field: String, value: String },
    /// Too many service accounts.
    #[error("may not have more than 16 values")]
    TooMany,
    /// Neither `serviceAccount` nor `namespace/serviceAccount`.
    #[error(
        "expected format 'serviceAccount' or 'namespace/serviceAccount', found {found}{} in {field}", quoted(.value)
    )]
    ServiceAccount { field: String, value: String, found: &'static str },
    /// A service account longer than Kubernetes allows.
    #[error("value cannot exceed 320 characters, found {} in {field}", quoted(.value))]
    TooLong { field: String, value: String },
    /// Not a path, or one with a template that is not supported.
    #[error("invalid or unsupported path {path}, found in {field}. {reason}")]
    Path { field: String, path: String, reason: String },
    /// Not an IP address.
    #[error("bad IP address ({value})")]
    Ip { value: String },
    /// Not an IP prefix.
    #[error("bad CIDR range ({value}): {reason}")]
    Cidr { value: String, reason: String },
    /// Not a port number.
    #[error("bad port ({value}): {reason}")]
    Port { value: String, reason: String },
    /// A map attribute without a key in brackets.
    #[error("bad key ({key}): should have format a[b]")]
    MapKey { key: String },
    /// An attribute that something else took the place of.
    #[error("attribute {key} is replaced by the {replacement}")]
    Replaced { key: String, replacement: &'static str },
    /// An attribute of a removed API version.
    #[error("deprecated attribute {key}: only supported in v1alpha1")]
    Deprecated { key: String },
    /// No such attribute.
    #[error("unknown attribute: {key}")]
    UnknownAttribute { key: String },
}

/// The outcome of a check that stops at the first offence.
pub type Checked = Result<(), InvalidValue>;

/// Refuses empty strings.
pub fn check_not_empty(field: &str, values: &[String]) -> Checked {
    if values.iter().any(String::is_empty) {
        return Err(InvalidValue::Empty { field: field.into() });
    }
    Ok(())
}

/// Accepts `exact`, `prefix*`, `*suffix` and `*`.
pub fn check_wildcards(field: &str, values: &[String]) -> Checked {
    check_not_empty(field, values)?;
    for value in values {
        let (field, owned) = (|| field.into(), || value.clone());
        match value.matches('*').count() {
            0 => {}
            1 if value.starts_with('*') || value.ends_with('*') => {}
            1 => {
                return Err(InvalidValue::InnerWildcard { field: field(), value: owned() });
            }
            _ => {
                return Err(InvalidValue::ManyWildcards { field: field(), value: owned() });
            }
        }
    }
    Ok(())
}

/// Accepts trust domains, which may have a wildcard at one end.
pub fn check_trust_domains(field: &str, values: &[String]) -> Checked {
    check_wildcards(field, values)?;
    match values.iter().find(|value| value.contains('/')) {
        Some(value) => Err(InvalidValue::TrustDomainPath { field: field.into(), value: value.clone() }),
        None => Ok(()),
    }
}

/// Accepts `serviceAccount` and `namespace/serviceAccount`.
pub fn check_service_accounts(field: &str, values: &[String]) -> Checked {
    if values.len() > MAX_SERVICE_ACCOUNTS {
        return Err(InvalidValue::TooMany);
    }
    values.iter().try_for_each(|value| check_service_account(field, value))
}

fn check_service_account(field: &str, value: &str) -> Checked {
    let misshapen =
        |found| Err(InvalidValue::ServiceAccount { field: field.into(), value: value.into(), found });
    if value.is_empty() {
        return Err(InvalidValue::Empty { field: field.into() });
    }
    if value.contains('*') {
        return Err(InvalidValue::Wildcard { field: field.into() });
    }
    if value.matches('/').count() > 1 {
        return misshapen("");
    }
    if value.len() > MAX_SERVICE_ACCOUNT_LENGTH {
        return Err(InvalidValue::TooLong { field: field.into(), value: value.into() });
    }
    match value.split_once('/') {
        Some(("", _)) => misshapen("empty namespace "),
        Some((_, "")) => misshapen("empty serviceAccount "),
        _ => Ok(()),
    }
}

/// Accepts paths whose templates are whole segments `{*}` or `{**}`, with nothing templated after a `{**}`.
pub fn check_path_templates(field: &str, paths: &[String]) -> Checked {
    paths.iter().try_for_each(|path| check_path_template(field, path))
}

fn check_path_template(field: &str, path: &str) -> Checked {
    let templated = contains_path_template(path);
    let path = path.trim_matches('/');
    let refused = |reason: String| Err(InvalidValue::Path { field: field.into(), path: path.into(), reason });
    let mut any_seen = false;
    for segment in path.split('/') {
        match segment {
            MATCH_ONE | MATCH_ANY if any_seen => {
                return refused(format!("{MATCH_ANY} is not the last operator"));
            }
            MATCH_ONE => {}
            MATCH_ANY => any_seen = true,
            _ if segment.contains(['{', '}']) => {
                return refused("Contains '{' or '}' beyond a supported path template".into());
            }
            _ if templated && !is_path_literal(segment) => {
                return refused(format!("Contains segment {segment} with invalid string literal"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a path segment is made only of characters that RFC 3986 allows there, `*` excepted.
pub fn is_path_literal(segment: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~%!$&'()+,;:@=".contains(&b);
    !segment.is_empty() && segment.bytes().all(allowed)
}

/// Whether a path has a template in it.
pub fn contains_path_template(path: &str) -> bool {
    path.contains(MATCH_ONE) || path.contains(MATCH_ANY)
}

/// The entries of the list that are neither IP addresses nor prefixes.
pub fn check_ips(values: &[String]) -> Vec<InvalidValue> {
    values.iter().filter_map(|value| check_ip(value).err()).collect()
}

fn check_ip(value: &str) -> Checked {
    let owned = || value.to_owned();
    if value.contains('/') {
        let refused = |_| InvalidValue::Cidr { value: owned(), reason: words::prefix(value) };
        parse_prefix(value).map(drop).map_err(refused)
    } else {
        parse_ip(value).map(drop).map_err(|_| InvalidValue::Ip { value: owned() })
    }
}

/// The entries of the list that are not port numbers.
pub fn check_ports(values: &[String]) -> Vec<InvalidValue> {
    let is_port = |value: &str| value.bytes().all(|b| b.is_ascii_digit()) && value.parse::<u16>().is_ok();
    values
        .iter()
        .filter(|value| !is_port(value))
        .map(|value| InvalidValue::Port { value: value.clone(), reason: words::port(value) })
        .collect()
}

/// Checks one condition of an authorization rule: that the attribute exists and the values suit it.
pub fn check_attribute(key: &str, values: &[String]) -> Vec<InvalidValue> {
    let single = |checked: Checked| checked.err().into_iter().collect();
    if let Err(empty) = check_not_empty(key, values) {
        return vec![empty];
    }
    let owned = || key.to_owned();
    match key {
        "source.namespace"
        | "source.principal"
        | "request.auth.principal"
        | "request.auth.audiences"
        | "request.auth.presenter"
        | "connection.sni" => Vec::new(),
        "source.ip" | "remote.ip" | "destination.ip" => check_ips(values),
        "source.serviceAccount" => single(check_service_accounts(key, values)),
        // Parity: a slash is refused in the `trustDomains` field but not here.
        "source.trustDomain" => single(check_wildcards(key, values)),
        "destination.port" => check_ports(values),
        "destination.namespace" => {
            vec![InvalidValue::Replaced { key: owned(), replacement: "metadata.namespace" }]
        }
        "destination.name" | "destination.user" => vec![InvalidValue::Deprecated { key: owned() }],
        _ if key.starts_with("destination.labels") => {
            vec![InvalidValue::Replaced { key: owned(), replacement: "workload selector" }]
        }
        _ if is_map_attribute(key) => single(check_map_key(key)),
        _ => vec![InvalidValue::UnknownAttribute { key: owned() }],
    }
}

fn is_map_attribute(key: &str) -> bool {
    ["request.headers", "request.auth.claims", "experimental.envoy.filters."]
        .iter()
        .any(|prefix| key.starts_with(prefix))
}

fn check_map_key(key: &str) -> Checked {
    let named = key
        .strip_suffix(']')
        .and_then(|key| key.split_once('['))
        .is_some_and(|(map, name)| !map.is_empty() && !name.is_empty());
    if named { Ok(()) } else { Err(InvalidValue::MapKey { key: key.into() }) }
}
