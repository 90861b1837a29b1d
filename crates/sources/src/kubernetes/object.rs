//! Objects of an API server as events.

use canopus_api::{Kind, Object, ObjectKey, Options};
use canopus_base::tree::Node;

use super::watch::WatchEvent;
use crate::change::{Change, ProblemScope, SourcePart};

/// What is told of a kind, as events. Objects are decoded here; what nobody reads of them ends here.
pub(super) fn events(kind: Kind, told: Vec<WatchEvent>) -> Vec<Change> {
    let part = SourcePart::Kind(kind);
    let mut events = Vec::with_capacity(told.len());
    for told in told {
        match told {
            WatchEvent::Begin => events.push(Change::Begin(part)),
            WatchEvent::End => {
                events.push(Change::End(part));
                events.push(Change::Problems(ProblemScope::Part(part), Vec::new()));
            }
            WatchEvent::Live => events.push(Change::Live(part)),
            WatchEvent::Lost(reason) => events.push(Change::Lost(part, reason)),
            WatchEvent::Absent(reason) => events.push(Change::Absent(part, reason)),
            WatchEvent::Problem(problem) => {
                events.push(Change::Problems(ProblemScope::Part(part), vec![format!("{part}: {problem}")]));
            }
            WatchEvent::Object(node) => read(kind, &node, &mut events),
            WatchEvent::Unread(unread) => {
                let key = ObjectKey::new(kind, &unread.namespace, &unread.name);
                let problem =
                    format!("{key}: cannot be read: {}; what was known of it is kept", unread.reason);
                events.push(Change::Keep(key.clone()));
                events.push(Change::Problems(ProblemScope::Object(key), vec![problem]));
            }
            WatchEvent::Gone(node) => events.extend(key(kind, &node).map(Change::Remove)),
        }
    }
    events
}

fn read(kind: Kind, node: &Node, events: &mut Vec<Change>) {
    let Some(key) = key(kind, node) else {
        let part = SourcePart::Kind(kind);
        events.push(Change::Problems(
            ProblemScope::Part(part),
            vec![format!("{part}: an object without a name")],
        ));
        return;
    };
    match Object::decode_as(kind, node, Options::watch()) {
        Ok(decoded) => {
            events.push(Change::Set(decoded.value));
            if !decoded.ignored.is_empty() {
                let problems = decoded.ignored.iter().map(|problem| format!("{key}: {}", unplaced(problem)));
                let problems = problems.collect();
                events.push(Change::Problems(ProblemScope::Object(key), problems));
            }
        }
        Err(error) => {
            let problems = error.problems().iter().map(|problem| format!("{key}: {}", unplaced(problem)));
            let problems = problems.collect();
            events.push(Change::Keep(key.clone()));
            events.push(Change::Problems(ProblemScope::Object(key), problems));
        }
    }
}

/// A problem without line and column: they are places in the answer of a server, which nobody can look at.
fn unplaced(problem: &canopus_api::Problem) -> canopus_api::Problem {
    canopus_api::Problem { at: Default::default(), ..problem.clone() }
}

fn key(kind: Kind, node: &Node) -> Option<ObjectKey> {
    let text = |path| node.pointer(path).and_then(Node::as_str).unwrap_or_default();
    let name = text("/metadata/name");
    (!name.is_empty()).then(|| ObjectKey::new(kind, text("/metadata/namespace"), name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(kind: Kind, told: Vec<WatchEvent>) -> Vec<String> {
        let text = |event: Change| match event {
            Change::Set(object) => format!("set {}", object.key()),
            Change::Keep(key) => format!("keep {key}"),
            Change::Remove(key) => format!("remove {key}"),
            Change::Problems(_, problems) => problems.join("; "),
            other => format!("{other:?}"),
        };
        events(kind, told).into_iter().map(text).collect()
    }

    #[test]
    fn unreadable_object_is_kept_and_named() {
        let objects = [
            json!({"metadata": {"name": "good", "namespace": "a"}}),
            json!({"metadata": {"name": "odd", "namespace": "a"}, "spec": {"ports": "many"}}),
            json!({"metadata": {"name": "skewed", "namespace": "a", "creationTimestamp": "yesterday"}}),
            json!({"metadata": {"namespace": "a"}}),
            json!(7),
        ];
        let told = objects.into_iter().map(|object| WatchEvent::Object(object.into())).collect();
        let said = said(Kind::Service, told);
        assert_eq!(said[0], "set Service a/good");
        assert_eq!(said[1], "keep Service a/odd");
        assert!(said[2].starts_with("Service a/odd: spec.ports"), "{said:?}");
        assert!(!said[2].contains("line"), "{said:?}");
        assert_eq!(said[3], "keep Service a/skewed");
        assert!(said[4].contains("metadata.creationTimestamp"), "{said:?}");
        assert_eq!(said[5..], ["services: an object without a name"; 2]);
    }

    #[test]
    fn dead_weight_is_not_kept() {
        let service = json!({"metadata": {
            "name": "a", "namespace": "a", "managedFields": [{"manager": "kubectl"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"},
        }});
        let Change::Set(object) = events(Kind::Service, vec![WatchEvent::Object(service.into())]).remove(0)
        else {
            panic!("an object")
        };
        let text = object.to_node().to_json().to_string();
        assert!(
            text.contains("kept") && !text.contains("managed") && !text.contains("last-applied"),
            "{text}"
        );
    }
}
