//! Which connections to a port there can be, and what is made of each: by mutual TLS mode and protocol of the port.

use canopus_mesh::peer_authentication::MutualTls;

use crate::env::Env;
use crate::listener::chain::{RAW_BUFFER, TLS};
use crate::listener::outbound::plain_http;
use crate::listener::port::Handling;

/// ALPN of a mesh client that found HTTP.
const MESH_HTTP: &[&str] = &["istio-http/1.0", "istio-http/1.1", "istio-h2"];
/// ALPN of a mesh client that did not.
const MESH_TCP: &[&str] = &["istio-peer-exchange", "istio"];
/// ALPN of all mesh clients.
const MESH: &[&str] = &["istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"];

/// One sort of connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sort {
    /// Application protocols: ALPN, or the version of plain HTTP. Empty matches any.
    pub(super) protocols: &'static [&'static str],
    /// Whether it is TLS.
    pub(super) transport: &'static str,
    /// Whether its TLS ends here.
    pub(super) terminated: bool,
    /// Whether it is handled request by request.
    pub(super) http: bool,
}

const fn sort(
    protocols: &'static [&'static str],
    transport: &'static str,
    terminated: bool,
    http: bool,
) -> Sort {
    Sort { protocols, transport, terminated, http }
}

/// Plain HTTP among other plain connections.
fn plain_http_among_others(env: &Env<'_>) -> Sort {
    Sort { protocols: plain_http(env), ..sort(&[], RAW_BUFFER, false, true) }
}

/// TLS that ends here because a Sidecar says so.
pub(super) fn own_tls(handling: Handling) -> Sort {
    sort(&[], TLS, true, handling == Handling::Http)
}

/// The sorts of connections to a port, the order being that of their chains.
pub(super) fn sorts(env: &Env<'_>, mode: MutualTls, handling: Handling) -> Vec<Sort> {
    match (handling, mode) {
        (Handling::Http, MutualTls::Strict) => vec![sort(&[], TLS, true, true)],
        (Handling::Http, MutualTls::Permissive) => {
            vec![sort(MESH, TLS, true, true), sort(&[], RAW_BUFFER, false, true)]
        }
        (Handling::Http, MutualTls::Disable) => vec![sort(&[], RAW_BUFFER, false, true)],
        (Handling::Auto, MutualTls::Strict) => {
            vec![sort(MESH_HTTP, TLS, true, true), sort(&[], TLS, true, false)]
        }
        (Handling::Auto, MutualTls::Permissive) => vec![
            sort(MESH_HTTP, TLS, true, true),
            plain_http_among_others(env),
            sort(MESH_TCP, TLS, true, false),
            sort(&[], RAW_BUFFER, false, false),
            sort(&[], TLS, false, false),
        ],
        (Handling::Auto, MutualTls::Disable) => {
            vec![plain_http_among_others(env), sort(&[], RAW_BUFFER, false, false)]
        }
        (_, MutualTls::Strict) => vec![sort(&[], TLS, true, false)],
        (_, MutualTls::Permissive) => vec![
            sort(MESH, TLS, true, false),
            sort(&[], TLS, false, false),
            sort(&[], RAW_BUFFER, false, false),
        ],
        (_, MutualTls::Disable) => vec![sort(&[], RAW_BUFFER, false, false)],
    }
}
