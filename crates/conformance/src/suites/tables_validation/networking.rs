//! Parts of the networking kinds.

use canopus_api::validate::host::NamedBy;
use canopus_api::validate::virtual_service::{Context, http, route_destinations};
use canopus_api::validate::{
    self, connection_pool, destination, gateway, outlier_detection, retry, tls, traffic_policy,
};
use canopus_base::tree::Node;
use canopus_proto::istio::networking::v1alpha3::http_body::Specifier;
use canopus_proto::istio::networking::v1alpha3::{HttpBody, HttpDirectResponse, HttpRedirect, RegexRewrite};

use super::entry::Entry;
use super::shared::{leaf, optional};
use super::{Check, Got};

pub(super) fn check(function: &str) -> Option<Check> {
    Some(match function {
        "validateServer" => |row| {
            Ok(optional(row.message("in")?, |server, scope| gateway::server(server, NamedBy::Gateway, scope)))
        },
        "validateServerPort" => server_port,
        "validateTLSOptions" => |row| Ok(optional(row.message("in")?, tls::server)),
        "validateDestination" => |row| Ok(optional(row.message("destination")?, destination::check)),
        "validateTrafficPolicy" => {
            |row| Ok(optional(row.message("in")?, |policy, scope| traffic_policy::check(policy, "", scope)))
        }
        "validateConnectionPool" => |row| Ok(optional(row.message("in")?, connection_pool::check)),
        "validateLoadBalancer" => |row| {
            Ok(optional(row.message("in")?, |settings, scope| {
                traffic_policy::load_balancer(settings, false, scope);
            }))
        },
        "validateOutlierDetection" => |row| Ok(optional(row.message("in")?, outlier_detection::check)),
        "validateHTTPRoute" => http_route,
        "validateRouteDestinations" => |row| {
            let routes = row.messages("routes")?;
            Ok(validate::fragment(|scope| route_destinations(&routes, Context::default(), scope)).into())
        },
        "validateCORSPolicy" => |row| Ok(optional(row.message("in")?, http::cors)),
        "validateHTTPStatus" => |row| leaf(http::http_status(row.integer("in")?.try_into()?)),
        "validateHTTPFaultInjectionAbort" => |row| Ok(optional(row.message("in")?, http::abort)),
        "validateHTTPFaultInjectionDelay" => |row| Ok(optional(row.message("in")?, http::delay)),
        "ValidateHTTPRetry" => |row| Ok(optional(row.message("in")?, retry::check)),
        "validateHTTPRewrite" => |row| Ok(optional(row.message("in")?, http::rewrite)),
        "validateURIRegexRewrite" => {
            |row| leaf(row.message::<RegexRewrite>("in")?.as_ref().map_or(Ok(()), http::regex_rewrite))
        }
        "validateHTTPRedirect" => |row| {
            let matches = row.messages("matches")?;
            Ok(optional(row.message::<HttpRedirect>("redirect")?, |redirect, scope| {
                http::redirect(redirect, &matches, scope);
            }))
        },
        "validateHTTPDirectResponse" => direct_response,
        _ => return None,
    })
}

fn server_port(row: &Entry) -> anyhow::Result<Got> {
    let (port, bind) = (row.message("in")?, row.text("bind")?);
    Ok(validate::fragment(|scope| gateway::server_port(port.as_ref(), bind, scope)).into())
}

/// One function with a parameter that its three tables differ in.
fn http_route(row: &Entry) -> anyhow::Result<Got> {
    let context = Context { delegate: row.test == "TestValidateDelegateHTTPRoute", ..Context::default() };
    Ok(optional(row.message("route")?, |route, scope| http::route(route, context, scope)))
}

/// The table has the bytes of a body as they are.
fn direct_response(row: &Entry) -> anyhow::Result<Got> {
    let raw = row.get("directResponse").and_then(|response| response.pointer("/body/bytes"));
    let Some(raw) = raw.and_then(Node::as_str) else {
        return Ok(optional(row.message("directResponse")?, http::direct_response));
    };
    let status = row.get("directResponse").and_then(|response| response.get("status")).and_then(Node::as_i64);
    let response = HttpDirectResponse {
        status: u32::try_from(status.unwrap_or_default())?,
        body: Some(HttpBody { specifier: Some(Specifier::Bytes(raw.to_owned().into())) }),
    };
    Ok(optional(Some(response), http::direct_response))
}
