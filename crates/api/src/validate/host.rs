//! Host names: fully qualified, with a wildcard, and with a namespace in front.

use canopus_base::labels::{is_dns_label, is_wildcard_dns_label};
use canopus_base::net::parse_ip;

use super::code::{Fault, codes};
use super::scope::Scope;
use crate::text::quoted;

codes! {
    TOO_LONG: error "host-too-long", "use a name of at most 255 characters";
    EMPTY: error "host-empty", "give a host name";
    INVALID: error "host-invalid",
        "use labels of letters, digits and dashes, separated by dots; only the first may be a wildcard";
    NUMERIC_TOP_LEVEL: error "host-numeric-top-level", "use a domain whose last label is not a number";
    BAD_SNI: error "host-sni-invalid", "use the form outbound_.<port>_._.<host>";
    SHORT_NAME: error "host-short-name", "use a fully qualified name such as reviews.default.svc.cluster.local";
    PARTIAL_WILDCARD: error "host-partial-wildcard", "put the wildcard in a label of its own, as in *.example.com";
    NO_NAMESPACE: error "host-without-namespace", "write the host as namespace/name";
    EMPTY_PART: error "host-empty-part", "give both a namespace and a name, or use * for either";
    TRUST_DOMAIN: error "trust-domain-invalid", "use labels of letters, digits and dashes, separated by dots";
    BAD_NAMESPACE: error "host-namespace-invalid", "use the name of a namespace, * for all or . for this one";
}

const MAX_LENGTH: usize = 255;
const OUTBOUND: &str = "outbound";
const AUTO_SNI_FORM: &str = "outbound_.<PORT>_._.<HOSTNAME>";

fn bounded(name: &str) -> Result<(), Fault> {
    if name.len() > MAX_LENGTH {
        return Err(TOO_LONG
            .says(format!("domain name {} too long (max 255)", quoted(name)))
            .with_value(name));
    }
    if name.is_empty() {
        return Err(EMPTY.says("empty domain name not allowed"));
    }
    Ok(())
}

fn bad_label(name: &str, label: &str) -> Fault {
    let message = format!("domain name {} invalid (label {} invalid)", quoted(name), quoted(label));
    INVALID.says(message).with_value(name)
}

/// Each label is one of DNS, and the last one is not a number. One dot may stand at the end.
fn labels(name: &str) -> Result<(), Fault> {
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.parse::<i64>().is_ok() {
        let (domain, top) = (quoted(name), quoted(last));
        let message = format!("domain name {domain} invalid (top level domain {top} cannot be all-numeric)");
        return Err(NUMERIC_TOP_LEVEL.says(message).with_value(name));
    }
    let mut labels = name.strip_suffix('.').unwrap_or(name).split('.');
    // Parity: the name "." has one empty label before its last dot; the name "" has none.
    match labels.find(|label| !is_dns_label(label)) {
        Some(label) if !name.is_empty() => Err(bad_label(name, label)),
        _ => Ok(()),
    }
}

/// A fully qualified name without wildcards, or a short one.
pub fn fqdn(name: &str) -> Result<(), Fault> {
    bounded(name)?;
    labels(name)
}

/// A name whose first label may be or begin with `*`.
pub fn wildcard(name: &str) -> Result<(), Fault> {
    bounded(name)?;
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    if !is_wildcard_dns_label(first) {
        return Err(bad_label(name, first));
    }
    rest.map_or(Ok(()), labels)
}

/// A name for routes bound to a gateway: as [`wildcard`], and where `sni` says so also the server name that proxies make
/// up when they pass TLS through to another network.
pub fn gateway_wildcard(name: &str, sni: bool) -> Result<(), Fault> {
    bounded(name)?;
    if !sni || !name.starts_with("outbound_") {
        return wildcard(name);
    }
    let AutoSni { direction, port, host } = AutoSni::parse(name)?;
    if direction != OUTBOUND {
        return Err(bad_label(name, direction));
    }
    let misformed = |label| {
        bad_label(name, label).reworded(|message| format!("{message}. should follow {AUTO_SNI_FORM} format"))
    };
    if !port.contains(|c: char| c.is_ascii_digit()) {
        return Err(misformed(port));
    }
    if !host.contains(|c: char| c.is_ascii_alphabetic()) {
        return Err(misformed(host));
    }
    Ok(())
}

/// The parts of a server name that proxies make up: `outbound_.80_._.reviews.default.svc.cluster.local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoSni<'a> {
    /// `outbound`.
    pub direction: &'a str,
    /// The port.
    pub port: &'a str,
    /// The host.
    pub host: &'a str,
}

impl<'a> AutoSni<'a> {
    /// Takes a name apart.
    pub fn parse(name: &'a str) -> Result<Self, Fault> {
        let mut parts = name.split('_');
        let (direction, port, _subset, host) = (parts.next(), parts.next(), parts.next(), parts.next());
        match (direction, port, host) {
            (Some(direction), Some(port), Some(host)) => {
                Ok(Self { direction, port: port.trim_matches('.'), host: host.trim_matches('.') })
            }
            _ => {
                let message = format!("domain name {name} invalid, should follow '{AUTO_SNI_FORM}' format");
                Err(BAD_SNI.says(message).with_value(name))
            }
        }
    }
}

/// The trust domain of a mesh. One dot may stand at the end.
pub fn trust_domain(name: &str) -> Result<(), Fault> {
    if name.is_empty() {
        return Err(EMPTY.says("empty domain name not allowed"));
    }
    if name.strip_suffix('.').unwrap_or(name).split('.').all(is_dns_label) {
        return Ok(());
    }
    Err(TRUST_DOMAIN.says(format!("trust domain name {} invalid", quoted(name))).with_value(name))
}

/// A wildcard stands alone or is the whole first label.
pub fn whole_wildcard(name: &str) -> Result<(), Fault> {
    if name.contains('*') && name.len() != 1 && !name.starts_with("*.") {
        return Err(PARTIAL_WILDCARD
            .says(format!("partial wildcard {} not allowed", quoted(name)))
            .with_value(name));
    }
    Ok(())
}

/// The kind of object that names hosts as `namespace/name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// A gateway: the namespace may be left out, the name may be an address.
    Gateway,
    /// A gateway made from a Kubernetes one: as above, and `~` may stand for no namespace at all.
    KubernetesGateway,
    /// A sidecar: the namespace may be excluded with a `~` in front.
    Sidecar,
}

/// A host with the namespace it is taken from.
pub fn namespaced(host: &str, by: NamedBy, mut scope: Scope<'_>) {
    let Some((namespace, name)) = host.split_once('/') else {
        match by {
            NamedBy::Sidecar => {
                scope.add(NO_NAMESPACE.says("host must be of form namespace/dnsName").with_value(host));
            }
            NamedBy::Gateway | NamedBy::KubernetesGateway => listener_host(host, by, scope),
        }
        return;
    };
    if namespace.is_empty() || name.is_empty() {
        let message = "config namespace and dnsName in host entry cannot be empty";
        scope.add(EMPTY_PART.says(message).with_value(host));
    }
    let (valid, place) = match by {
        NamedBy::Sidecar => {
            let namespace = namespace.strip_prefix('~').unwrap_or(namespace);
            (namespace.is_empty() || is_namespace(namespace), "sidecar")
        }
        NamedBy::Gateway => (is_namespace(namespace), "gateway"),
        NamedBy::KubernetesGateway => (namespace == "~" || is_namespace(namespace), "gateway"),
    };
    if !valid {
        let message = format!("invalid namespace value {} in {place}", quoted(namespace));
        scope.add(BAD_NAMESPACE.says(message).with_value(host));
    }
    listener_host(name, by, scope);
}

fn is_namespace(namespace: &str) -> bool {
    matches!(namespace, "*" | ".") || is_dns_label(namespace)
}

fn listener_host(name: &str, by: NamedBy, mut scope: Scope<'_>) {
    if name != "*" && !name.contains('.') {
        scope.add(SHORT_NAME.says("short names (non FQDN) are not allowed").with_value(name));
    }
    if let Err(fault) = wildcard(name) {
        // Parity: Istio says this twice of a sidecar's host, unless it is an address.
        if by == NamedBy::Sidecar {
            scope.add(fault.clone());
        }
        if parse_ip(name).is_err() {
            scope.add(fault);
        }
    }
    scope.require(whole_wildcard(name));
}
