//! What becomes of webhook configurations: the real controller writes to one object until it has nothing to write.

use std::sync::Arc;

use anyhow::{Context, bail};
use canopus_api::{Object, Options};
use canopus_base::tree::Node;
use canopus_controllers::trust::{DistributedRoots, Roots, ValidationProof};
use canopus_controllers::{Change, Controller, WebhookRootsController};
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use serde_json::{Value as Json, json};

use crate::case::Case;
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};

const ROOTS: &str = "root-cert.pem";

/// How recordings name the roots, and what somebody else put in their place.
const MASKED_ROOTS: &str = "<MASKED: root-cert.pem of istio-ca-root-cert>";
const USER_VALUE: &str = "<USER VALUE UNCHANGED>";

/// A controller that never comes to rest is stopped after this many writes.
const MAX_ROUNDS: usize = 10;

pub(super) fn replay(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let recorded = case.corpus.document(&case.path(&case.file))?;
    let mut object = recorded.get("created").context("nothing is created")?.to_json();
    let mut expected = recorded.get("after").context("nothing is expected")?.to_json();
    let encode = |text: &str| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, text);
    for (masked, value) in [(MASKED_ROOTS, ROOTS), (USER_VALUE, "somebody else's roots")] {
        replace(&mut object, masked, &encode(value));
        replace(&mut expected, masked, &encode(value));
    }
    settle(&mut object)?;
    store_defaults(&mut object);
    Ok(tree::difference(&Node::from(expected), &Node::from(object), &Rules::default()))
}

fn settle(object: &mut Json) -> anyhow::Result<()> {
    // In the recorded cluster the API server reached webhooks at a URL on its own host and no service.
    let is_reached = object.pointer("/webhooks/0/clientConfig/url").is_some();
    for _ in 0..MAX_ROUNDS {
        let decoded = Object::decode(&Node::from(object.clone()), Options::watch());
        let decoded = decoded.map_err(|error| anyhow::anyhow!("{error}"))?.value;
        let settings = MeshSettings::default();
        let mut batch = Batch::new();
        batch.set::<Objects>(Origin::new(settings.cluster.clone(), decoded.key()), decoded);
        batch.set::<Settings>((), settings);
        batch.set::<DistributedRoots>((), Roots { roots: Arc::from(ROOTS), crl: "".into() });
        if is_reached {
            batch.set::<ValidationProof>((), true);
        }
        let engine = Engine::new();
        engine.apply(batch);
        let plan = WebhookRootsController.plan(&engine.snapshot(), jiff::Timestamp::now())?;
        let Some(write) = plan.writes.first() else { return Ok(()) };
        let Change::Apply { fields, .. } = &write.change else { bail!("{write:?} is not expected") };
        apply(object, fields);
    }
    bail!("the controller still writes after {MAX_ROUNDS} rounds")
}

/// Applies fields as an API server does to webhooks, which it tells apart by their names.
fn apply(object: &mut Json, fields: &Json) {
    for applied in fields["webhooks"].as_array().into_iter().flatten() {
        let webhooks = object["webhooks"].as_array_mut().into_iter().flatten();
        for webhook in webhooks.filter(|webhook| webhook["name"] == applied["name"]) {
            if let Some(bundle) = applied.pointer("/clientConfig/caBundle") {
                webhook["clientConfig"]["caBundle"] = bundle.clone();
            }
            if let Some(policy) = applied.get("failurePolicy") {
                webhook["failurePolicy"] = policy.clone();
            }
        }
    }
}

/// Fills in what an API server does.
fn store_defaults(object: &mut Json) {
    for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
        let Some(fields) = webhook.as_object_mut() else { continue };
        fields.entry("matchPolicy").or_insert_with(|| json!("Equivalent"));
        fields.entry("timeoutSeconds").or_insert_with(|| json!(10));
        fields.entry("namespaceSelector").or_insert_with(|| json!({}));
        fields.entry("objectSelector").or_insert_with(|| json!({}));
        if let Some(service) = webhook["clientConfig"].get_mut("service").and_then(Json::as_object_mut) {
            service.entry("port").or_insert_with(|| json!(443));
        }
        for rule in webhook["rules"].as_array_mut().into_iter().flatten() {
            if let Some(rule) = rule.as_object_mut() {
                rule.entry("scope").or_insert_with(|| json!("*"));
            }
        }
    }
}

fn replace(value: &mut Json, from: &str, to: &str) {
    match value {
        Json::String(text) if text == from => to.clone_into(text),
        Json::Object(fields) => fields.values_mut().for_each(|field| replace(field, from, to)),
        Json::Array(items) => items.iter_mut().for_each(|item| replace(item, from, to)),
        _ => {}
    }
}
