//! The roots by which the API server verifies the control plane's webhooks.
//!
//! Parity: webhook configurations carry the revision in the label `istio.io/rev`; of mutating ones, only webhooks whose name
//! ends with `sidecar-injector.istio.io` are the control plane's. Unlike istiod, Canopus leaves a `caBundle` alone that
//! somebody declares: a tool that keeps it as a repository has it would put it back each time.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_api::kube::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration, Webhook};
use canopus_api::{Kind, Meta, Object, labels};
use canopus_engine::{QueryError, Snapshot};
use canopus_mesh::world::{MeshSettings, ObjectIndex, Objects, Settings};
use canopus_runtime::flags::INJECTION_WEBHOOK_CONFIG_NAME;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::{Change, Controller, Ownership, Plan, Write};
use crate::trust::DistributedRoots;

/// How the names of the injector's webhooks end.
const INJECTOR: &str = "sidecar-injector.istio.io";

/// The label and its value that tell the validating webhooks of the control plane from others'.
const VALIDATOR: (&str, &str) = ("app", "istiod");

/// Keeps the `caBundle` of the control plane's webhooks.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebhookRootsController;

impl Controller for WebhookRootsController {
    fn name(&self) -> &'static str {
        "webhook-roots"
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        let settings = world.read::<Settings>(&()).unwrap_or_default();
        let Some(roots) = world.read::<DistributedRoots>(&()) else { return Ok(Plan::default()) };
        let mut writes = Vec::new();
        for kind in [Kind::MutatingWebhookConfiguration, Kind::ValidatingWebhookConfiguration] {
            for origin in world.members::<Objects>(&ObjectIndex::Kind(kind)).iter() {
                let object = world.read::<Objects>(origin).filter(|_| origin.cluster == settings.cluster);
                writes.extend(object.and_then(|object| pending(&object, &settings, &roots.roots)));
            }
        }
        Ok(writes.into())
    }
}

/// The write that a configuration needs.
fn pending(object: &Object, settings: &MeshSettings, roots: &str) -> Option<Arc<Write>> {
    let (meta, webhooks, suffix) = if let Some(mutating) = object.get::<MutatingWebhookConfiguration>() {
        let is_served = !settings.flags.get(INJECTION_WEBHOOK_CONFIG_NAME).is_empty();
        is_served.then_some((&mutating.meta, &mutating.spec.webhooks, INJECTOR))?
    } else {
        let validating = object.get::<ValidatingWebhookConfiguration>()?;
        let is_own = validating.meta.label(VALIDATOR.0) == Some(VALIDATOR.1);
        is_own.then_some((&validating.meta, &validating.spec.webhooks, ""))?
    };
    if !is_of_revision(meta, settings) {
        return None;
    }
    let own = || webhooks.iter().filter(|webhook| webhook.name.ends_with(suffix));
    let differs = |webhook: &Webhook| webhook.client_config.ca_bundle.0 != roots.as_bytes();
    if !own().any(differs) {
        return None;
    }
    let bundle = BASE64_STANDARD.encode(roots);
    let entry = |webhook: &Webhook| json!({"name": &*webhook.name, "clientConfig": {"caBundle": bundle}});
    let key = object.key();
    let info = key.kind.info();
    let fields = json!({
        "apiVersion": info.api_version(),
        "kind": info.kind,
        "metadata": {"name": &*key.name},
        "webhooks": own().map(entry).collect::<Vec<Value>>(),
    });
    let change = Change::Apply { fields, ownership: Ownership::YieldToDeclared };
    Some(Arc::new(Write { target: key, change }))
}

fn is_of_revision(meta: &Meta, settings: &MeshSettings) -> bool {
    let own = if settings.revision.is_empty() { "default" } else { &*settings.revision };
    meta.label(labels::REVISION.name) == Some(own)
}

#[cfg(test)]
mod tests {
    use canopus_engine::Batch;

    use super::*;
    use crate::testing::{plan, world};
    use crate::trust::Roots;

    fn targets(labels: &str, webhooks: &str) -> Vec<String> {
        let engine = world(&format!(
            "{{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration,
               metadata: {{name: injector, labels: {labels}}}, webhooks: {webhooks}}}"
        ));
        let mut batch = Batch::new();
        batch.set::<DistributedRoots>((), Roots { roots: "ROOT".into(), crl: "".into() });
        engine.apply(batch);
        let writes = plan(&WebhookRootsController, &engine).writes;
        let fields = |write: &Arc<Write>| match &write.change {
            Change::Apply { fields, .. } => fields["webhooks"].to_string(),
            Change::Status { .. } => panic!("{write:?}"),
        };
        writes.iter().map(fields).collect()
    }

    #[test]
    fn injector_of_this_revision_gets_the_roots() {
        let webhooks = "[{name: rev.sidecar-injector.istio.io, clientConfig: {}}, {name: other.example.com}]";
        assert_eq!(
            targets("{istio.io/rev: default}", webhooks),
            [r#"[{"clientConfig":{"caBundle":"Uk9PVA=="},"name":"rev.sidecar-injector.istio.io"}]"#]
        );
        assert!(targets("{istio.io/rev: canary}", webhooks).is_empty());
        assert!(targets("{}", webhooks).is_empty());
    }

    #[test]
    fn nothing_is_planned_when_the_roots_are_there() {
        let current = "[{name: sidecar-injector.istio.io, clientConfig: {caBundle: Uk9PVA==}}]";
        assert!(targets("{istio.io/rev: default}", current).is_empty());
        let stale = "[{name: sidecar-injector.istio.io, clientConfig: {caBundle: T0xE}}]";
        assert_eq!(targets("{istio.io/rev: default}", stale).len(), 1);
    }
}
