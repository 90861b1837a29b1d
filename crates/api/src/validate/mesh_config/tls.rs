//! TLS of the mesh: between proxies, and by default.

use std::collections::BTreeSet;

use canopus_proto::istio::mesh::v1alpha1::mesh_config::TlsConfig;

use crate::validate::code::codes;
use crate::validate::scope::Scope;

codes! {
    CURVES: error "mesh-tls-curves", "remove ecdhCurves from meshMTLS; tlsDefaults may have them";
    UNKNOWN_CURVES: warning "mesh-tls-curves-unknown", "use curves that proxies know, such as P-256 or X25519";
    CURVES_TWICE: warning "mesh-tls-curves-twice", "name each curve once";
}

/// The curves that proxies have.
const KNOWN: [&str; 7] =
    ["P-224", "P-256", "P-384", "P-521", "X25519", "X25519Kyber768Draft00", "X25519MLKEM768"];

/// Mutual TLS between proxies.
pub(super) fn between_proxies(tls: &TlsConfig, mut scope: Scope<'_>) {
    scope.field("ecdhCurves").add_if(!tls.ecdh_curves.is_empty(), || {
        CURVES.says("mesh TLS does not support ECDH curves configuration").listed()
    });
}

/// TLS that nothing else is said of.
pub(super) fn defaults(tls: &TlsConfig, mut scope: Scope<'_>) {
    let (mut unknown, mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for curve in tls.ecdh_curves.iter().map(String::as_str) {
        if !curve.is_empty() && !KNOWN.contains(&curve) {
            unknown.insert(curve);
        } else if !seen.insert(curve) {
            twice.insert(curve);
        }
    }
    let mut scope = scope.field("ecdhCurves");
    scope.add_if(!unknown.is_empty(), || {
        UNKNOWN_CURVES.says(format!("detected unrecognized ECDH curves: [{}]", listed(&unknown)))
    });
    scope.add_if(!twice.is_empty(), || {
        CURVES_TWICE.says(format!("detected duplicate ECDH curves: [{}]", listed(&twice)))
    });
}

fn listed(curves: &BTreeSet<&str>) -> String {
    curves.iter().copied().collect::<Vec<_>>().join(" ")
}
