//! What a Gateway's server does with its connections.

use canopus_api::gateway_protocol;
use canopus_base::tree::Node;
use canopus_proto::istio::networking::v1alpha3::Server;
use canopus_proto::json::{self, Unknown};

use super::Check;
use super::row::{Row, equal};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestIsTLSServer" => |row| predicate(row, gateway_protocol::is_tls),
        "TestIsHTTPServer" => |row| predicate(row, gateway_protocol::is_http),
        "TestIsHTTPSServerWithTLSTermination" => |row| predicate(row, gateway_protocol::terminates_https),
        "TestIsEligibleForHTTP3Upgrade" => http3,
        "TestIsPassThroughServer" => |row| predicate(row, gateway_protocol::is_passthrough),
        "TestIsTCPServerWithTLSTermination" => |row| predicate(row, gateway_protocol::terminates_tcp),
        _ => return None,
    })
}

fn predicate(row: Row<'_>, holds: fn(&Server) -> bool) -> anyhow::Result<Vec<Difference>> {
    Ok(equal("expected", &row.truth("expected")?, &holds(&server(row)?)))
}

/// HTTP/3 is also behind a flag, which belongs to whoever asks.
fn http3(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = row.truth("enableQUICListeners")? && gateway_protocol::can_serve_http3(&server(row)?);
    Ok(equal("expected", &row.truth("expected")?, &got))
}

fn server(row: Row<'_>) -> anyhow::Result<Server> {
    let node = row.get("server").cloned().unwrap_or_else(|| Node::from(serde_json::json!({})));
    Ok(json::read(&node, Unknown::Reject)?.value)
}
