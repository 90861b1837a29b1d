//! Ports: numbers, names, and what they speak.

use canopus_base::labels::is_dns_label;
use canopus_base::protocol::Protocol;

use super::code::{Fault, codes};

codes! {
    OUT_OF_RANGE: error "port-out-of-range", "use a port from 1 to 65535";
    BAD_NAME: error "port-name-invalid", "use letters, digits and dashes, at most 63";
    UNKNOWN_PROTOCOL: error "port-protocol-unknown",
        "use one of HTTP, HTTPS, HTTP2, GRPC, GRPC-WEB, MONGO, REDIS, MYSQL, TCP, TLS, UDP";
}

/// A port that can be connected to.
pub fn number(port: impl Into<i64>) -> Result<(), Fault> {
    let port = port.into();
    if (1..=65535).contains(&port) {
        return Ok(());
    }
    Err(OUT_OF_RANGE.says(format!("port number {port} must be in the range 1..65535")).with_value(port))
}

/// The name of a port.
pub fn name(name: &str) -> Result<(), Fault> {
    if is_dns_label(name) {
        return Ok(());
    }
    Err(BAD_NAME.says(format!("invalid port name: {name}")).with_value(name))
}

/// A protocol proxies know; none at all means that they find out.
pub fn protocol(name: &str) -> Result<(), Fault> {
    if name.is_empty() || !Protocol::parse(name).is_unsupported() {
        return Ok(());
    }
    Err(UNKNOWN_PROTOCOL.says(format!("unsupported protocol: {name}")).with_value(name))
}
