//! What stands for a module that nobody is to fetch, as for one that cannot be had: nothing passes, or everything does.

use std::collections::BTreeMap;
use std::net::IpAddr;

use canopus_mesh::extension::{Extension, Layer};
use canopus_proto::Any;
use canopus_proto::envoy::config::rbac::v3::rbac::Action;
use canopus_proto::envoy::config::rbac::v3::{Permission, Policy, Principal, Rbac, permission, principal};
use canopus_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use canopus_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use canopus_proto::istio::extensions::v1alpha1::{FailStrategy, WasmConfig};

/// The filter in place of a module at an address that is never fetched from.
pub(super) fn in_place_of(extension: &Extension, address: IpAddr) -> Any {
    let fails_open = extension.wasm().map(WasmConfig::fail_strategy) == Some(FailStrategy::FailOpen);
    // Without rules everything passes.
    let rules = (!fails_open).then(|| deny_all(&format!("module not fetched from {address}")));
    match extension.layer() {
        Layer::Http => Any::pack(&HttpRbac { rules, ..Default::default() }),
        Layer::Network => {
            Any::pack(&NetworkRbac { rules, stat_prefix: "unfetched_module.".into(), ..Default::default() })
        }
    }
}

/// Rules that nothing passes. Access logs name the policy, so it says why.
fn deny_all(reason: &str) -> Rbac {
    let anything = Policy {
        permissions: vec![Permission { rule: Some(permission::Rule::Any(true)) }],
        principals: vec![Principal { identifier: Some(principal::Identifier::Any(true)) }],
        ..Default::default()
    };
    let policies = BTreeMap::from([(reason.to_owned(), anything)]);
    Rbac { action: Action::Deny as i32, policies, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use canopus_api::{Options, decode_documents};
    use canopus_base::tree::Limits;
    use canopus_engine::{Batch, Engine};
    use canopus_mesh::proxy::Proxy;
    use canopus_mesh::world::{Objects, Origin};
    use canopus_proto::envoy::config::core::v3::{Node, TypedExtensionConfig};
    use canopus_proto::envoy::extensions::filters::http::wasm::v3::Wasm as HttpWasm;
    use canopus_proto::google::protobuf::Struct;
    use canopus_proto::{Message as _, Name as _};

    use super::*;
    use crate::audience::AudiencesOf;
    use crate::extension::{Extensions, PREFIX};

    /// What a sidecar is sent for a plugin.
    fn sent(spec: &str) -> Any {
        let text = format!(
            "{{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {{name: p, namespace: ns}}, spec: {spec}}}"
        );
        let mut batch = Batch::new();
        for document in decode_documents(text, &Limits::default(), Options::strict()) {
            let object = document.unwrap().value;
            batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
        }
        let engine = Engine::new();
        engine.apply(batch);
        let metadata = Struct::from(BTreeMap::from([("NAMESPACE".to_owned(), "ns".into())]));
        let id = "sidecar~10.0.0.1~a.ns~ns.svc.cluster.local".to_owned();
        let proxy = Proxy::new(&Node { id, metadata: Some(metadata), ..Default::default() }, None).unwrap();
        let world = engine.snapshot();
        let audiences = world.get::<AudiencesOf>(&proxy).unwrap().as_ref().clone();
        let name = format!("{PREFIX}ns.p~istio-translated-wasmplugin");
        let sent = world.get::<Extensions>(&(audiences.extensions, name)).unwrap();
        let sent = TypedExtensionConfig::decode(sent.as_ref().as_ref().unwrap().body.clone()).unwrap();
        sent.typed_config.unwrap()
    }

    #[test]
    fn nothing_passes_when_a_module_is_at_a_blocked_address() {
        let filter: HttpRbac = sent("{url: 'http://169.254.169.254/m.wasm'}").unpack().unwrap();
        let rules = filter.rules.unwrap();
        assert_eq!(rules.action, Action::Deny as i32);
        assert!(rules.policies.contains_key("module not fetched from 169.254.169.254"));
    }

    #[test]
    fn everything_passes_when_the_plugin_says_so() {
        let filter: HttpRbac = sent("{url: 'oci://[fe80::1]/m', failStrategy: FAIL_OPEN}").unpack().unwrap();
        assert_eq!(filter.rules, None);
    }

    #[test]
    fn module_is_sent_when_its_address_is_a_usual_one() {
        assert_eq!(sent("{url: 'http://10.0.0.9/m.wasm'}").type_url, HttpWasm::type_url());
    }
}
