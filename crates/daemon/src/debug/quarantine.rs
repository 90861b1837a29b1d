//! What proxies reject, and what is held back for that.

use canopus_api::{Kind, Object};
use canopus_base::hash::ContentHash;
use canopus_engine::QueryError;
use canopus_mesh::diagnostic::{Diagnostic, Severity};
use canopus_mesh::world::Origin;
use canopus_xds::Code;
use serde_json::{Value, json};

use super::clients::stamp;
use super::pushes::name_of;
use super::{Answer, Debug, Question};
use crate::quarantine::{Contested, Hold, Nack};

/// What the owner of a held object can do.
const REMEDY: &str = "Correct the object, or the proxies: every change of it is tried, and so is the same again when they \
                      reconnect and now and then. To serve objects whatever proxies say, start the control plane with CANOPUS_QUARANTINE=false.";

impl Debug {
    /// The objects that are held, and the latest rejections; `object` (`Kind/namespace/name`) shows one with both its values.
    pub(super) fn quarantine(&self, question: &Question) -> Result<Answer, QueryError> {
        let quarantine = &self.quarantine;
        let wanted = question.parameters.get("object").filter(|name| !name.is_empty());
        let holds = quarantine.holds();
        let shown = holds.iter().filter(|(origin, _)| wanted.is_none_or(|name| name_of(origin) == name));
        let objects: Vec<Value> =
            shown.map(|(origin, hold)| hold_json(origin, hold, wanted.is_some())).collect();
        let nacks: Vec<Value> = quarantine.nacks().iter().map(|nack| nack_json(nack)).collect();
        let all = json!({
            "enabled": quarantine.is_enabled(),
            "objects": objects,
            "total": quarantine.total(),
            "panics": quarantine.panics(),
            "rejections": nacks,
        });
        Ok(Answer::json(question, &all))
    }

    /// What is wrong with the objects that are held, by proxies' own account.
    pub(super) fn held(&self) -> Vec<Diagnostic> {
        let holds = self.quarantine.holds();
        holds.iter().filter(|(_, hold)| hold.is_guilty).map(|(origin, hold)| diagnose(origin, hold)).collect()
    }
}

fn diagnose(origin: &Origin, hold: &Hold) -> Diagnostic {
    let served = if hold.served.is_some() { "what it said before is" } else { "nothing of it is" };
    let message =
        format!("proxies reject what follows from it, so {served} in force: {}", hold.grounds.nack.message);
    Diagnostic {
        object: origin.into(),
        severity: Severity::Error,
        code: "CAN0501",
        field: hold.grounds.nack.field().unwrap_or_default(),
        message,
        remedy: REMEDY.to_owned(),
    }
}

fn hold_json(origin: &Origin, hold: &Hold, whole: bool) -> Value {
    let Hold { wanted, served, since, is_guilty, grounds, members, tries, .. } = hold;
    json!({
        "object": name_of(origin),
        "cluster": &*origin.cluster,
        "state": if *is_guilty { "held" } else { "suspected" },
        "since": stamp(*since),
        "wanted": value_json(wanted, whole),
        "served": served.as_deref().map(|served| value_json(served, whole)),
        "reason": {
            "type": &*grounds.nack.type_url,
            "code": format!("{:?}", Code::from(grounds.nack.code)),
            "message": &*grounds.nack.message,
            "field": grounds.nack.field(),
        },
        "resources": resources_json(&grounds.resources),
        "proxies": grounds.proxies,
        "identities": members.identities.iter().map(|identity| &**identity).collect::<Vec<_>>(),
        "tries": tries,
        "remedy": REMEDY,
    })
}

/// What tells one value of an object from another. Of secrets nothing is shown that depends on what is in them.
fn value_json(object: &Object, whole: bool) -> Value {
    let meta = object.meta();
    let is_secret = object.kind() == Kind::Secret;
    let tree = (!is_secret).then(|| object.to_node().to_json());
    json!({
        "resourceVersion": &*meta.resource_version,
        "generation": meta.generation,
        "hash": tree.as_ref().map(|tree| ContentHash::compute(tree.to_string().as_bytes()).to_string()),
        "object": tree.filter(|_| whole),
    })
}

fn nack_json(nack: &Nack) -> Value {
    json!({
        "proxy": nack.proxy,
        "identity": nack.identity.as_deref(),
        "outcome": nack.outcome(),
        "type": &*nack.type_url,
        "nonce": &*nack.nonce,
        "revision": nack.revision,
        "acceptedRevision": nack.accepted,
        "time": stamp(nack.time),
        "code": format!("{:?}", Code::from(nack.code)),
        "message": &*nack.message,
        "resources": resources_json(&nack.resources),
    })
}

fn resources_json(resources: &[Contested]) -> Vec<Value> {
    let json = |one: &Contested| {
        json!({
            "name": &*one.name,
            "rejected": one.rejected.to_string(),
            "accepted": one.accepted.map(|version| version.to_string()),
        })
    };
    resources.iter().map(json).collect()
}
