//! The roots by which the API server verifies the control plane's webhooks, and when validation may refuse what it cannot ask about.
//!
//! Charts install the validation webhook with `failurePolicy: Ignore`, so that a control plane which is not there yet keeps
//! nobody from anything. Once the API server was seen to get an answer ([`ValidationProof`]), webhooks of the same service with the
//! right roots are set to `Fail`; so are webhooks at a URL, if that is the only place the API server could have asked.
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

use crate::controller::{Basis, Change, Controller, Ownership, Plan, Write};
use crate::trust::{DistributedRoots, ValidationProof};

/// How the names of the injector's webhooks end.
const INJECTOR: &str = "sidecar-injector.istio.io";

/// The label and its value that tell the validating webhooks of the control plane from others'.
const VALIDATOR: (&str, &str) = ("app", "istiod");

/// The kinds of objects with webhooks.
const CONFIGURATIONS: [Kind; 2] = [Kind::MutatingWebhookConfiguration, Kind::ValidatingWebhookConfiguration];

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
        let is_proven = world.read::<ValidationProof>(&()).is_some_and(|proof| *proof);
        let only_url = only_validation_url(world, &settings);
        let mut writes = Vec::new();
        for kind in CONFIGURATIONS {
            for origin in world.members::<Objects>(&ObjectIndex::Kind(kind)).iter() {
                let object = world.read::<Objects>(origin).filter(|_| origin.cluster == settings.cluster);
                let is_proven_at = |webhook: &Webhook| {
                    is_proven && (is_own(webhook, &settings) || is_at(webhook, only_url.as_deref()))
                };
                writes.extend(
                    object.and_then(|object| pending(&object, &settings, &roots.roots, &is_proven_at)),
                );
            }
        }
        Ok(writes.into())
    }

    fn basis(&self, world: &Snapshot) -> Option<Basis> {
        let mut basis = Basis::default()
            .and_input::<Settings>(world, &())
            .and_input::<DistributedRoots>(world, &())
            .and_input::<ValidationProof>(world, &());
        for kind in CONFIGURATIONS {
            for origin in world.members::<Objects>(&ObjectIndex::Kind(kind)).iter() {
                basis = basis.and_input::<Objects>(world, origin);
            }
        }
        Some(basis)
    }
}

/// The write that a configuration needs.
fn pending(
    object: &Object,
    settings: &MeshSettings,
    roots: &str,
    is_proven_at: &dyn Fn(&Webhook) -> bool,
) -> Option<Arc<Write>> {
    let is_validating = object.get::<ValidatingWebhookConfiguration>().is_some();
    let (meta, webhooks, suffix) = if let Some(mutating) = object.get::<MutatingWebhookConfiguration>() {
        let is_served = !settings.flags.get(INJECTION_WEBHOOK_CONFIG_NAME).is_empty();
        is_served.then_some((&mutating.meta, &mutating.spec.webhooks, INJECTOR))?
    } else {
        let validating = object.get::<ValidatingWebhookConfiguration>()?;
        is_validator(&validating.meta).then_some((&validating.meta, &validating.spec.webhooks, ""))?
    };
    if !is_of_revision(meta, settings) {
        return None;
    }
    let own = || webhooks.iter().filter(|webhook| webhook.name.ends_with(suffix));
    let has_roots = |webhook: &Webhook| webhook.client_config.ca_bundle.0 == roots.as_bytes();
    let fails = |webhook: &Webhook| webhook.failure_policy.as_deref() == Some("Fail");
    // Without the roots in place the API server cannot ask, and would refuse everything.
    let may_fail = |webhook: &Webhook| is_validating && has_roots(webhook) && is_proven_at(webhook);
    if own().all(|webhook| has_roots(webhook) && (fails(webhook) || !may_fail(webhook))) {
        return None;
    }
    let bundle = BASE64_STANDARD.encode(roots);
    let entry = |webhook: &Webhook| {
        let mut entry = json!({"name": &*webhook.name, "clientConfig": {"caBundle": bundle}});
        // What was applied before and is left out now would be taken away.
        if may_fail(webhook) || (is_validating && fails(webhook)) {
            entry["failurePolicy"] = json!("Fail");
        }
        entry
    };
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

/// Whether a webhook leads to this control plane's own service, which is the one that was proven.
fn is_own(webhook: &Webhook, settings: &MeshSettings) -> bool {
    let name = match &*settings.revision {
        "" | "default" => "istiod".to_owned(),
        revision => format!("istiod-{revision}"),
    };
    let service = webhook.client_config.service.as_ref();
    service.is_some_and(|service| *service.name == *name && *service.namespace == *settings.system_namespace)
}

fn is_at(webhook: &Webhook, url: Option<&str>) -> bool {
    url.is_some() && webhook.client_config.url.as_deref() == url
}

fn is_validator(meta: &Meta) -> bool {
    meta.label(VALIDATOR.0) == Some(VALIDATOR.1)
}

/// The URL that all validating webhooks of this revision lead to, as those of a control plane outside of the cluster do. If
/// there are several ways, it is not known which of them was proven.
fn only_validation_url(world: &Snapshot, settings: &MeshSettings) -> Option<Arc<str>> {
    let mut only: Option<Arc<str>> = None;
    for origin in world.members::<Objects>(&ObjectIndex::Kind(Kind::ValidatingWebhookConfiguration)).iter() {
        let object = world.read::<Objects>(origin).filter(|_| origin.cluster == settings.cluster);
        let Some(object) = object else { continue };
        let Some(validating) = object.get::<ValidatingWebhookConfiguration>() else { continue };
        if !is_validator(&validating.meta) || !is_of_revision(&validating.meta, settings) {
            continue;
        }
        for webhook in &validating.spec.webhooks {
            let url = webhook.client_config.url.as_deref()?;
            if only.as_deref().is_some_and(|only| only != url) {
                return None;
            }
            only = Some(url.into());
        }
    }
    only
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
            _ => panic!("{write:?}"),
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

    fn validator(bundle: &str, service: &str, is_proven: bool) -> Option<String> {
        let engine = world(&format!(
            "{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration,
               metadata: {{name: validator, labels: {{app: istiod, istio.io/rev: default}}}},
               webhooks: [{{name: rev.validation.istio.io, failurePolicy: Ignore, clientConfig: {{caBundle: {bundle},
                 service: {{name: {service}, namespace: istio-system}}}}}}]}}"
        ));
        let mut batch = Batch::new();
        batch.set::<DistributedRoots>((), Roots { roots: "ROOT".into(), crl: "".into() });
        if is_proven {
            batch.set::<ValidationProof>((), true);
        }
        engine.apply(batch);
        let write = plan(&WebhookRootsController, &engine).writes.into_iter().next()?;
        let Change::Apply { fields, .. } = &write.change else { panic!("{write:?}") };
        Some(fields["webhooks"][0]["failurePolicy"].as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn validation_fails_closed_once_it_was_seen_to_work() {
        assert_eq!(validator("Uk9PVA==", "istiod", false), None);
        assert_eq!(validator("Uk9PVA==", "istiod", true).as_deref(), Some("Fail"));
        // First the roots, then the policy.
        assert_eq!(validator("T0xE", "istiod", true).as_deref(), Some(""));
        assert_eq!(validator("Uk9PVA==", "somebody-elses", true), None);
    }

    #[test]
    fn webhook_at_a_url_fails_closed_if_no_other_can_have_answered() {
        let object = |name: &str, url: &str| {
            format!(
                "{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration,
                   metadata: {{name: {name}, labels: {{app: istiod, istio.io/rev: default}}}},
                   webhooks: [{{name: rev.validation.istio.io, failurePolicy: Ignore,
                     clientConfig: {{caBundle: Uk9PVA==, url: '{url}'}}}}]}}"
            )
        };
        let planned = |objects: &[String]| {
            let engine = world(&objects.join("\n---\n"));
            let mut batch = Batch::new();
            batch.set::<DistributedRoots>((), Roots { roots: "ROOT".into(), crl: "".into() });
            batch.set::<ValidationProof>((), true);
            engine.apply(batch);
            plan(&WebhookRootsController, &engine).writes.len()
        };
        let (here, there) = ("https://mesh.example.com/validate", "https://other.example.com/validate");
        assert_eq!(planned(&[object("a", here), object("b", here)]), 2);
        assert_eq!(planned(&[object("a", here), object("b", there)]), 0);
    }

    #[test]
    fn nothing_is_planned_when_the_roots_are_there() {
        let current = "[{name: sidecar-injector.istio.io, clientConfig: {caBundle: Uk9PVA==}}]";
        assert!(targets("{istio.io/rev: default}", current).is_empty());
        let stale = "[{name: sidecar-injector.istio.io, clientConfig: {caBundle: T0xE}}]";
        assert_eq!(targets("{istio.io/rev: default}", stale).len(), 1);
    }
}
