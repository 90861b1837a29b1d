//! Annotations whose values are checked before a pod is injected: what they say ends up in arguments of the proxy.

use std::fmt;

use canopus_api::mesh_config;
use canopus_api::validate;
use canopus_base::net;
use canopus_base::quantity::Quantity;
use serde_json::Value as Json;

use super::pod;

/// Annotations with values that cannot be used; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotationError(Vec<String>);

impl std::error::Error for AnnotationError {}

impl fmt::Display for AnnotationError {
    /// Parity: the layout is that of the library which Istio joins errors with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = &self.0;
        match errors.len() {
            1 => f.write_str("1 error occurred:\n\t* ")?,
            many => write!(f, "{many} errors occurred:\n\t* ")?,
        }
        f.write_str(&errors.join("\n\t* "))?;
        f.write_str("\n\n")
    }
}

type Rule = fn(&str) -> Result<(), String>;

const RULES: [(&str, Rule); 19] = [
    ("sidecar.istio.io/interceptionMode", interception_mode),
    ("status.sidecar.istio.io/port", |port| {
        parse_port(port).map_err(|error| format!("excludeInboundPorts invalid: {error}"))
    }),
    ("readiness.status.sidecar.istio.io/initialDelaySeconds", seconds),
    ("readiness.status.sidecar.istio.io/periodSeconds", seconds),
    ("readiness.status.sidecar.istio.io/failureThreshold", seconds),
    ("traffic.sidecar.istio.io/includeOutboundIPRanges", |ranges| {
        if ranges == "*" { Ok(()) } else { prefixes("includeIPRanges", ranges) }
    }),
    ("traffic.sidecar.istio.io/excludeOutboundIPRanges", |ranges| prefixes("excludeIPRanges", ranges)),
    ("traffic.sidecar.istio.io/includeInboundPorts", |list| {
        if list == "*" { Ok(()) } else { ports("includeInboundPorts", list) }
    }),
    ("traffic.sidecar.istio.io/excludeInboundPorts", |list| ports("excludeInboundPorts", list)),
    ("traffic.sidecar.istio.io/excludeOutboundPorts", |list| ports("excludeOutboundPorts", list)),
    ("traffic.sidecar.istio.io/excludeInterfaces", interfaces),
    ("traffic.sidecar.istio.io/kubevirtInterfaces", interfaces),
    ("istio.io/reroute-virtual-interfaces", interfaces),
    ("prometheus.istio.io/merge-metrics", |text| match pod::parse_bool(text) {
        Some(_) => Ok(()),
        None => Err(go_number_error("ParseBool", text, "invalid syntax")),
    }),
    ("proxy.istio.io/config", proxy_config),
    ("sidecar.istio.io/proxyCPU", quantity),
    ("sidecar.istio.io/proxyMemory", quantity),
    ("sidecar.istio.io/proxyCPULimit", quantity),
    ("sidecar.istio.io/proxyMemoryLimit", quantity),
];

/// Checks the value of one annotation. The error is Istio's reason.
pub fn check_annotation(name: &str, value: &str) -> Result<(), String> {
    match RULES.iter().find(|(known, _)| *known == name) {
        Some((_, rule)) => rule(value),
        None => Ok(()),
    }
}

/// Checks the annotations of a pod.
pub(super) fn check(pod: &Json) -> Result<(), AnnotationError> {
    let errors: Vec<String> = pod::metadata_map(pod, "annotations")
        .filter_map(|(name, value)| {
            let error = check_annotation(name, value).err()?;
            Some(format!("invalid value '{value}' for annotation '{name}': {error}"))
        })
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(AnnotationError(errors)) }
}

fn interception_mode(mode: &str) -> Result<(), String> {
    if matches!(mode, "REDIRECT" | "TPROXY" | "NONE") {
        return Ok(());
    }
    Err(format!("interceptionMode invalid, use REDIRECT,TPROXY,NONE: {mode}"))
}

fn seconds(text: &str) -> Result<(), String> {
    parse_unsigned(text, u32::MAX.into())
}

/// Reads a number as Go's `strconv.ParseUint` does.
fn parse_unsigned(text: &str, max: u64) -> Result<(), String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(go_number_error("ParseUint", text, "invalid syntax"));
    }
    match text.parse::<u64>() {
        Ok(number) if number <= max => Ok(()),
        _ => Err(go_number_error("ParseUint", text, "value out of range")),
    }
}

fn go_number_error(function: &str, text: &str, why: &str) -> String {
    format!("strconv.{function}: parsing {text:?}: {why}")
}

fn prefixes(parameter: &str, list: &str) -> Result<(), String> {
    if list.is_empty() {
        return Ok(());
    }
    let check = |prefix: &str| match net::parse_prefix(prefix) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{parameter} invalid: failed parsing cidr '{prefix}': {error}")),
    };
    list.split(',').try_for_each(check)
}

fn parse_port(text: &str) -> Result<(), String> {
    parse_unsigned(text.trim(), u16::MAX.into())
        .map_err(|error| format!("failed parsing port '{text}': {error}"))
}

fn ports(parameter: &str, list: &str) -> Result<(), String> {
    let list = list.trim();
    if list.is_empty() {
        return Ok(());
    }
    let check = |port: &str| {
        parse_port(port)
            .map_err(|error| format!("{parameter} invalid: failed parsing port '{port}': {error}"))
    };
    list.split(',').try_for_each(check)
}

fn interfaces(list: &str) -> Result<(), String> {
    net::validate_interface_names(list).map_err(|error| error.to_string())
}

fn quantity(text: &str) -> Result<(), String> {
    if text.chars().any(char::is_control) {
        return Err("value contains control characters".to_owned());
    }
    text.parse::<Quantity>().map(|_| ()).map_err(|error| error.to_string())
}

fn proxy_config(text: &str) -> Result<(), String> {
    let decoded = mesh_config::merge_proxy_config(text, &mesh_config::default_proxy_config())
        .map_err(|error| format!("failed to convert to apply proxy config: {error}"))?;
    let report = validate::fragment(|scope| validate::mesh_config::proxy_config(&decoded.value, scope));
    match report.error_text() {
        None => Ok(()),
        Some(errors) => Err(errors),
    }
}
