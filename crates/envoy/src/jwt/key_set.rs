//! Whether Envoy finds a key in a JSON Web Key Set.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use canopus_base::json;
use canopus_base::tree::Node;
use canopus_base::yaml::Limits;

/// RSA keys below 512 bits are refused.
const SHORTEST_MODULUS: usize = 64;

/// Whether at least one key of the set can be used; one is all that Envoy wants.
pub(super) fn are_usable(text: &str) -> bool {
    let Ok(set) = json::parse(text.as_bytes(), &Limits::default()) else { return false };
    match set.get("keys") {
        Some(keys) => keys.as_list().is_some_and(|keys| keys.iter().any(is_usable)),
        // The other form: certificates by the names of their keys.
        None => set.as_map().is_some_and(|map| {
            map.iter().any(|entry| {
                entry.node.as_str().is_some_and(|text| text.starts_with("-----BEGIN CERTIFICATE-----"))
            })
        }),
    }
}

fn is_usable(key: &Node) -> bool {
    let algorithm = key.get("alg").and_then(Node::as_str);
    let signs = |families: &[&str]| {
        algorithm.is_none_or(|name| families.iter().any(|family| name.starts_with(family)))
    };
    match key.get("kty").and_then(Node::as_str) {
        Some("RSA") => {
            let modulus = number(key, "n").unwrap_or_default();
            let is_odd = modulus.last().is_some_and(|byte| byte % 2 == 1);
            signs(&["RS", "PS"]) && modulus.len() >= SHORTEST_MODULUS && is_odd && number(key, "e").is_some()
        }
        Some("EC") => {
            let length = match key.get("crv").and_then(Node::as_str) {
                None | Some("P-256") => 32,
                Some("P-384") => 48,
                Some("P-521") => 66,
                Some(_) => return false,
            };
            let fits = |name| number(key, name).is_some_and(|number| number.len() <= length);
            signs(&["ES"]) && fits("x") && fits("y")
        }
        Some("OKP") => {
            let is_known = key.get("crv").and_then(Node::as_str) == Some("Ed25519");
            signs(&["EdDSA"]) && is_known && number(key, "x").is_some_and(|point| point.len() == 32)
        }
        Some("oct") => signs(&["HS"]) && number(key, "k").is_some(),
        _ => false,
    }
}

/// The bytes of a field, if there are any.
fn number(key: &Node, field: &str) -> Option<Vec<u8>> {
    let text = key.get(field)?.as_str()?;
    URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| !bytes.is_empty())
}
