//! How far the rotation of the root is, for operators: metrics and, in a cluster, Events of the Secret that holds the root.
//!
//! The name of an Event has the number of the step in it, so every replica may write it and the first one has done so.

use canopus_identity::rotation::{Phase, State};
use canopus_runtime::metrics::Registry;
use canopus_runtime::metrics::catalogue::{CANOPUS_ROOT_ROTATION_PHASE, CANOPUS_ROOT_ROTATION_STEPS_TOTAL};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{debug, warn};

use super::RootSecret;
use crate::day::day;

/// Registers metrics for the phase and the steps.
pub(super) fn register(rotation: watch::Receiver<Option<State>>, registry: &Registry) {
    registry.collect(move |collected| {
        let Some(state) = rotation.borrow().clone() else { return };
        let current = state.phase.label();
        for phase in Phase::LABELS {
            collected.push(CANOPUS_ROOT_ROTATION_PHASE, [phase], if phase == current { 1.0 } else { 0.0 });
        }
        collected.push(CANOPUS_ROOT_ROTATION_STEPS_TOTAL, [], state.steps as f64);
    });
}

/// Writes an Event for each step, for ever.
pub(super) async fn write_events(mut rotation: watch::Receiver<Option<State>>, secret: RootSecret) {
    let mut known: Option<u64> = None;
    loop {
        let state = rotation.borrow_and_update().clone();
        if let Some(state) = state {
            // A replica that starts during a rotation may replace one that died before it wrote the Event.
            let is_news = known.map_or(state.phase != Phase::Stable, |steps| steps != state.steps);
            if is_news {
                write(&secret, &state).await;
            }
            known = Some(state.steps);
        }
        if rotation.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

async fn write(secret: &RootSecret, state: &State) {
    let path = format!("/api/v1/namespaces/{}/events", secret.namespace);
    let event = event(&secret.namespace, secret.name, state, Timestamp::now());
    match secret.cluster.create_at(&path, &event).await {
        Ok(()) => {}
        Err(error) if error.is_conflict() => debug!("another replica has written the event"),
        Err(error) => warn!(%error, "the event of a step of the root's rotation cannot be written"),
    }
}

fn event(namespace: &str, secret: &str, state: &State, now: Timestamp) -> Value {
    let (reason, message) = match &state.phase {
        Phase::Stable if state.requested => ("RootRotationRequested", "a rotation was asked for".to_owned()),
        Phase::Stable => {
            ("RootRotationComplete", format!("only root {} is trusted from now on", short(&state.issuer)))
        }
        Phase::Distributing { next, .. } => (
            "RootDistributing",
            format!("root {} is handed out; {} still issues", short(next), short(&state.issuer)),
        ),
        Phase::Retiring { old, until } => {
            let old = old.iter().map(|id| short(id)).collect::<Vec<_>>().join(", ");
            let (issuer, until) = (short(&state.issuer), day(*until));
            ("RootRetiring", format!("root {issuer} issues; {old} is trusted until {until}"))
        }
    };
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{secret}.root-rotation-{}", state.steps), "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Secret", "namespace": namespace, "name": secret},
        "type": "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": "canopusd"},
        "count": 1,
        "firstTimestamp": time,
        "lastTimestamp": time,
    })
}

/// Enough of a digest to tell roots apart, as `canopus ca status` shows it.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use canopus_identity::rotation::Root;

    use super::*;

    fn state() -> State {
        State::new(Root { id: "5f0c3a9d11be0000".to_owned(), not_before: 0, not_after: 1 << 40 })
    }

    #[test]
    fn event_says_what_issues_and_what_is_trusted() {
        let mut state = state();
        let told = |state: &State| {
            let event = event("istio-system", "istio-ca-secret", state, Timestamp::UNIX_EPOCH);
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&event["metadata"]["name"]), text(&event["reason"]), text(&event["message"]))
        };
        let (name, reason, _) = told(&state.with_request());
        assert_eq!(
            (name.as_str(), reason.as_str()),
            ("istio-ca-secret.root-rotation-1", "RootRotationRequested")
        );
        state.phase = Phase::Distributing { next: "9b1e77c0aa420000".to_owned(), since: 0 };
        assert_eq!(told(&state).2, "root 9b1e77c0aa42 is handed out; 5f0c3a9d11be still issues");
        state.phase = Phase::Retiring { old: vec!["9b1e77c0aa420000".to_owned()], until: 86400 };
        assert_eq!(
            told(&state).2,
            "root 5f0c3a9d11be issues; 9b1e77c0aa42 is trusted until 1970-01-02 00:00 UTC"
        );
    }

    #[test]
    fn metrics_tell_the_phase_and_the_steps() {
        let registry = Registry::new();
        let (sender, rotation) = watch::channel(None);
        register(rotation, &registry);
        assert!(!registry.encode().contains("canopus_root_rotation"));
        sender.send_replace(Some(state().with_request()));
        let text = registry.encode();
        for line in [
            r#"canopus_root_rotation_phase{phase="stable"} 1"#,
            r#"canopus_root_rotation_phase{phase="retiring"} 0"#,
            "canopus_root_rotation_steps_total 1",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
