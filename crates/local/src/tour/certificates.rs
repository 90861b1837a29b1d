//! The certificates that proxies serve with, as the proxies themselves tell.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::http;
use crate::mesh::Mesh;
use crate::network;
use crate::node::Node;
use crate::plan::Mode;

/// Serial numbers of the certificates in use, by proxy.
pub(super) type Serials = BTreeMap<String, BTreeSet<String>>;

/// Asks every Envoy. Its admin port is open inside the pod alone.
pub(super) async fn serials(mesh: &Mesh) -> Result<Serials> {
    let plan = &mesh.components.plan;
    let mut all = Serials::new();
    for pod in &plan.pods {
        let Some(proxy) = &pod.proxy else { continue };
        let namespace = network::path(&pod.network_namespace);
        let node = Node::start((plan.mode == Mode::Namespaces).then_some(namespace.as_path()))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, proxy.admin));
        let text = node.run(async move { http::get(address, "/certs").await?.text() }).await??;
        let certificates = serde_json::from_str(&text).context("Envoy's certificates")?;
        all.insert(pod.name.clone(), chain(&certificates));
    }
    Ok(all)
}

/// Serial numbers of what a proxy shows of itself; roots are not among them.
fn chain(certificates: &Value) -> BTreeSet<String> {
    let contexts = certificates["certificates"].as_array().map(Vec::as_slice).unwrap_or_default();
    let chains = contexts.iter().filter_map(|context| context["cert_chain"].as_array());
    // The first of a chain is the proxy's own; those behind it are the authority's.
    let serials = chains.filter_map(|chain| chain.first()?["serial_number"].as_str());
    serials.map(str::to_owned).collect()
}

/// How many proxies have certificates, if no proxy serves with one it had before.
pub(super) fn all_renewed(before: &Serials, now: &Serials) -> Result<usize> {
    ensure!(!now.is_empty(), "there is no proxy");
    for (name, serials) in now {
        ensure!(!serials.is_empty(), "{name} has no certificate");
        let kept = before.get(name).and_then(|before| before.intersection(serials).next());
        ensure!(kept.is_none(), "{name} still has the certificate {}", kept.map_or("", String::as_str));
    }
    Ok(now.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn serials(list: &[(&str, &[&str])]) -> Serials {
        let set = |serials: &[&str]| serials.iter().map(|serial| (*serial).to_owned()).collect();
        list.iter().map(|(name, serials)| ((*name).to_owned(), set(serials))).collect()
    }

    #[test]
    fn own_certificates_are_read_and_roots_are_not() {
        let certificates = json!({"certificates": [
            {"ca_cert": [{"serial_number": "r"}], "cert_chain": [{"serial_number": "a"}, {"serial_number": "i"}]},
            {"ca_cert": [{"serial_number": "r"}]},
            {"cert_chain": [{"serial_number": "b"}]},
        ]});
        assert_eq!(chain(&certificates), BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn one_old_certificate_is_enough_to_wait_on() {
        let before = serials(&[("web", &["1"]), ("cart", &["2"])]);
        assert_eq!(all_renewed(&before, &serials(&[("web", &["3"]), ("cart", &["4"])])).unwrap(), 2);
        for now in [&[("web", &["3"][..]), ("cart", &["2", "4"])][..], &[("web", &["3"]), ("cart", &[])], &[]]
        {
            assert!(all_renewed(&before, &serials(now)).is_err(), "{now:?}");
        }
    }
}
