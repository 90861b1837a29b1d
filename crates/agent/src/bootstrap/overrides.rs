//! A user's file that Envoy merges over the bootstrap (`ISTIO_BOOTSTRAP_OVERRIDE`).

use canopus_base::tree::Limits;
use canopus_base::yaml;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("bootstrap override: {0}; expected YAML or JSON of an Envoy bootstrap")]
pub struct OverrideError(#[from] yaml::Error);

/// The JSON of an override, with `$(HOST_IP)` replaced by the address of the host.
///
/// An IPv6 address gets brackets unless the file has them.
pub fn to_json(text: &str, host_ip: &str) -> Result<String, OverrideError> {
    let text = if host_ip.contains(':') {
        let bracketed = format!("[{host_ip}]");
        text.replace("[$(HOST_IP)]", &bracketed).replace("$(HOST_IP)", &bracketed)
    } else {
        text.replace("$(HOST_IP)", host_ip)
    };
    let node = yaml::parse_one(text, &Limits { max_bytes: 4 << 20, ..Limits::default() })?;
    Ok(node.to_json().to_string())
}
