//! What a change of objects would change at the proxies that are connected, before anybody makes it.
//!
//! The body of the request has the objects as they would be, in YAML or JSON; `delete` names those that would go. Nothing is
//! written. Whoever may ask about every proxy may ask this.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use canopus_api::validate;
use canopus_api::{Kind, Object, ObjectKey, Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, QueryError};
use canopus_mesh::world::{ObjectIndex, Objects, Origin};
use serde_json::json;

use super::pushes::name_of;
use super::{Answer, Debug, Question};
use crate::impact::Worlds;

/// The largest change that is tried out.
pub(super) const MAX_CHANGE_BYTES: usize = 8 << 20;

/// Objects as they would be.
struct Proposal {
    batch: Batch,
    origins: Vec<Origin>,
    /// What the validation webhook would say against them.
    refused: Vec<String>,
    notices: Vec<String>,
    has_patches: bool,
}

impl Debug {
    /// What the objects in the body would change; `delete` (`Kind/namespace/name`, separated by commas) names objects that
    /// would go.
    pub(super) fn what_if(&self, question: &Question) -> Result<Answer, QueryError> {
        let proposal = match self.proposal(question) {
            Ok(proposal) => proposal,
            Err(problems) => return Ok(Answer::text(StatusCode::BAD_REQUEST, problems.join("\n") + "\n")),
        };
        let clients = self.clients();
        let worlds = Worlds::after(&self.dispatcher, proposal.batch);
        let impact = worlds.impact(&clients)?;
        let rejected = if proposal.has_patches { worlds.refused_patches(&clients)? } else { BTreeSet::new() };
        let held: BTreeSet<String> =
            self.quarantine.holds().iter().map(|(origin, _)| name_of(origin)).collect();
        let mut notices = proposal.notices;
        let in_quarantine = proposal.origins.iter().map(name_of).filter(|name| held.contains(name));
        notices.extend(in_quarantine.map(|name| {
            format!(
                "{name} is held in quarantine now: proxies have rejected the value that its owner wrote last"
            )
        }));
        let mut answer = serde_json::to_value(&impact).unwrap_or_default();
        answer["revision"] = json!(worlds.before.revision().number());
        answer["refused"] = json!(proposal.refused);
        answer["rejected"] = json!(rejected);
        answer["notices"] = json!(notices);
        Ok(Answer::json(question, &answer))
    }

    fn proposal(&self, question: &Question) -> Result<Proposal, Vec<String>> {
        let mut proposal = Proposal {
            batch: Batch::new(),
            origins: Vec::new(),
            refused: Vec::new(),
            notices: Vec::new(),
            has_patches: false,
        };
        let mut problems = Vec::new();
        for outcome in decode_documents(&question.body, &Limits::default(), Options::strict()) {
            match outcome {
                Ok(decoded) => self.propose(&mut proposal, decoded.value),
                Err(error) => problems.push(error.to_string()),
            }
        }
        let deleted = question.parameters.get("delete").unwrap_or_default();
        for name in deleted.split(',').filter(|name| !name.is_empty()) {
            let found = key_of(name).map(|key| self.origins(&key));
            match found {
                Ok(origins) if origins.is_empty() => {
                    problems.push(format!("{name}: there is no such object"));
                }
                Ok(origins) => {
                    for origin in origins {
                        proposal.batch.remove::<Objects>(&origin);
                        proposal.origins.push(origin);
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() && proposal.origins.is_empty() {
            problems.push("the request has no objects: send them as its body, in YAML or JSON".to_owned());
        }
        if problems.is_empty() { Ok(proposal) } else { Err(problems) }
    }

    fn propose(&self, proposal: &mut Proposal, object: Object) {
        let key = object.key();
        let origin = self.origins(&key).into_iter().next();
        let origin = origin.unwrap_or_else(|| Origin::new(self.settings().cluster.clone(), key));
        let name = name_of(&origin);
        let faults = validate::validate(&object);
        proposal.refused.extend(faults.errors.iter().map(|fault| match fault.path.as_str() {
            "" => format!("{name}: {fault}"),
            path => format!("{name}: {path}: {fault}"),
        }));
        if origin.key.kind == Kind::ConfigMap {
            let notice = format!("{name}: mesh-wide settings in ConfigMaps are not tried out");
            proposal.notices.push(notice);
        }
        proposal.has_patches |= origin.key.kind == Kind::EnvoyFilter;
        proposal.batch.set::<Objects>(origin.clone(), object);
        proposal.origins.push(origin);
    }

    /// The objects of this name, that of the control plane's own cluster first.
    pub(super) fn origins(&self, key: &ObjectKey) -> Vec<Origin> {
        let engine = self.engine();
        let own = Origin::new(self.settings().cluster.clone(), key.clone());
        if engine.read::<Objects>(&own).is_some() {
            return vec![own];
        }
        let all = engine.members::<Objects>(&ObjectIndex::Kind(key.kind));
        all.iter().filter(|origin| origin.key == *key).cloned().collect()
    }
}

/// Reads `Kind/namespace/name`, or `Kind/name` of an object without a namespace.
pub(super) fn key_of(text: &str) -> Result<ObjectKey, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts[..] {
        [kind, namespace, name] => (kind, namespace, name),
        [kind, name] => (kind, "", name),
        _ => return Err(format!("{text:?}: expected Kind/namespace/name, such as VirtualService/shop/cart")),
    };
    let known = Kind::ALL.iter().find(|known| known.info().kind == kind);
    let kind = known.ok_or_else(|| format!("{text:?}: there is no kind {kind:?}"))?;
    Ok(ObjectKey::new(*kind, namespace, name))
}

/// Whether an endpoint reads the body of a request.
pub(super) fn reads_body(endpoint: &str) -> bool {
    endpoint == "what_if"
}

/// What is answered to a body that is too large.
pub(super) fn too_large() -> Answer {
    let text = format!("the change is larger than {MAX_CHANGE_BYTES} bytes; try out a part of it\n");
    Answer::text(StatusCode::PAYLOAD_TOO_LARGE, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_are_read() {
        let key = key_of("VirtualService/shop/cart").unwrap();
        assert_eq!((key.kind, &*key.namespace, &*key.name), (Kind::VirtualService, "shop", "cart"));
        assert_eq!(&*key_of("Namespace/shop").unwrap().namespace, "");
        for wrong in ["cart", "VirtualServise/shop/cart", "VirtualService/a/b/c", ""] {
            assert!(key_of(wrong).is_err(), "{wrong:?}");
        }
    }
}
