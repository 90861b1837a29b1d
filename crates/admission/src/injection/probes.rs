//! Probes and lifecycle hooks of applications, taken over by the agent.
//!
//! The kubelet has no certificate of the mesh, so with strict mutual TLS its probes would fail. They are pointed at the agent
//! instead, which asks the application on their behalf; what they were is kept in the proxy's environment.

use std::collections::BTreeMap;

use canopus_api::builtin;
use serde_json::{Map, Value as Json, json};

use super::pod::{self, CONTAINERS, INIT_CONTAINERS, PROXY};
use super::status::STATUS;

const REWRITE: &str = "sidecar.istio.io/rewriteAppHTTPProbers";
const STATUS_PORT: &str = "status.sidecar.istio.io/port";
pub(super) const PROBERS: &str = "ISTIO_KUBE_APP_PROBERS";

/// Where a container has probes, and the last part of the path that the agent serves each under.
const PROBES: [(&str, &str); 3] =
    [("readinessProbe", "readyz"), ("livenessProbe", "livez"), ("startupProbe", "startupz")];
const HOOKS: [(&str, &str); 2] = [("preStop", "prestopz"), ("postStart", "poststartz")];

/// The ways of probing, in the order they count.
const ACTIONS: [(&str, &str); 3] = [
    ("httpGet", "core/v1.HTTPGetAction"),
    ("tcpSocket", "core/v1.TCPSocketAction"),
    ("grpc", "core/v1.GRPCAction"),
];

/// Whether probes of a pod are rewritten, as its annotation or the values say.
pub(super) fn are_rewritten(pod: &Json, by_default: bool) -> bool {
    pod::find_in_pod(pod, PROXY).is_some()
        && pod::annotation(pod, REWRITE).and_then(pod::parse_bool).unwrap_or(by_default)
}

/// Points probes and hooks at the agent and tells it what they were.
pub(super) fn rewrite(pod: &mut Json, default_port: i32) {
    if let Some(probers) = describe(pod, default_port) {
        let was_injected = pod::annotation(pod, STATUS).is_some();
        if let Some(proxy) = pod::find_in_pod_mut(pod, PROXY) {
            record(pod::environment_mut(proxy), probers, was_injected);
        }
    }
    let port =
        pod::annotation(pod, STATUS_PORT).map_or(default_port, |port| port.parse().unwrap_or_default());
    for list in [CONTAINERS, INIT_CONTAINERS] {
        for container in pod::containers_mut(pod, list).into_iter().flatten() {
            if pod::name(container) != PROXY {
                redirect(container, port);
            }
        }
    }
}

/// Probes and hooks by the path that the agent serves each under, as JSON texts.
type Probers = BTreeMap<String, String>;

/// Describes the probes of a pod. Named ports become numbers; what names no port of its container, or points at the agent
/// already, is left out.
fn describe(pod: &Json, agent_port: i32) -> Option<Probers> {
    let mut probers = Probers::new();
    let containers = pod::containers(pod, INIT_CONTAINERS).iter().chain(pod::containers(pod, CONTAINERS));
    for container in containers.filter(|container| pod::name(container) != PROXY) {
        for (field, path, timeout) in handlers(container) {
            let Some((action, kind)) = ACTIONS.iter().find(|(action, _)| field.get(action).is_some()) else {
                continue;
            };
            // Hooks cannot speak gRPC.
            if *action == "grpc" && timeout.is_none() {
                continue;
            }
            let Some(mut handler) = field.get(action).cloned() else { continue };
            if *action != "grpc" && resolve_port(container, &mut handler, agent_port).is_none() {
                continue;
            }
            let mut text = format!("{{\"{action}\":");
            if let Some(kind) = builtin::struct_type(kind) {
                kind.write_json(&handler, &mut text);
            }
            if let Some(seconds) = timeout.filter(|seconds| *seconds != 0) {
                text.push_str(&format!(",\"timeoutSeconds\":{seconds}"));
            }
            text.push('}');
            probers.insert(path, text);
        }
    }
    (!probers.is_empty()).then_some(probers)
}

/// Probes with their timeouts, and hooks, each with its path.
fn handlers(container: &Json) -> Vec<(&Json, String, Option<i64>)> {
    let name = pod::name(container);
    let probes = PROBES.iter().filter_map(|(field, last)| {
        let probe = container.get(field).filter(|probe| !probe.is_null())?;
        let timeout = probe.get("timeoutSeconds").and_then(Json::as_i64).unwrap_or_default();
        Some((probe, format!("/app-health/{name}/{last}"), Some(timeout)))
    });
    let hooks = HOOKS.iter().filter_map(|(field, last)| {
        let hook = container.get("lifecycle")?.get(field).filter(|hook| !hook.is_null())?;
        Some((hook, format!("/app-lifecycle/{name}/{last}"), None))
    });
    probes.chain(hooks).collect()
}

fn resolve_port(container: &Json, handler: &mut Json, agent_port: i32) -> Option<()> {
    let port = handler.get_mut("port")?;
    match port {
        Json::String(wanted) => {
            let ports = container.get("ports").and_then(Json::as_array)?;
            let found =
                ports.iter().rfind(|port| !wanted.is_empty() && pod::name(port) == wanted.as_str())?;
            *port = found.get("containerPort").cloned().unwrap_or_else(|| json!(0));
        }
        port => {
            if port.as_i64() == Some(agent_port.into()) {
                return None;
            }
        }
    }
    Some(())
}

/// Adds the probers to the environment. When a pod is injected again, what was recorded first stays.
fn record(environment: &mut Vec<Json>, mut probers: Probers, was_injected: bool) {
    let present = environment.iter_mut().find(|variable| was_injected && pod::name(variable) == PROBERS);
    if let Some(present) = present {
        let text = present.get("value").and_then(Json::as_str).unwrap_or_default();
        let Ok(recorded) = serde_json::from_str::<Map<String, Json>>(text) else { return };
        for (path, prober) in recorded {
            probers.insert(path, write_prober(&prober));
        }
        *present = json!({"name": PROBERS, "value": join(&probers)});
    } else {
        environment.push(json!({"name": PROBERS, "value": join(&probers)}));
    }
}

fn write_prober(prober: &Json) -> String {
    let mut parts = Vec::new();
    for (action, kind) in ACTIONS {
        if let (Some(handler), Some(kind)) = (prober.get(action), builtin::struct_type(kind)) {
            let mut text = format!("\"{action}\":");
            kind.write_json(handler, &mut text);
            parts.push(text);
        }
    }
    if let Some(seconds) = prober.get("timeoutSeconds").and_then(Json::as_i64).filter(|seconds| *seconds != 0)
    {
        parts.push(format!("\"timeoutSeconds\":{seconds}"));
    }
    format!("{{{}}}", parts.join(","))
}

fn join(probers: &Probers) -> String {
    let entries = probers.iter().map(|(path, prober)| format!("{}:{prober}", Json::String(path.clone())));
    format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
}

/// Points the probes and hooks of a container at the agent.
fn redirect(container: &mut Json, port: i32) {
    let name = pod::name(container).to_owned();
    for (field, last) in PROBES {
        if let Some(probe) = container.get_mut(field) {
            point_at_agent(probe, &format!("/app-health/{name}/{last}"), port, true);
        }
    }
    let Some(lifecycle) = container.get_mut("lifecycle") else { return };
    for (field, last) in HOOKS {
        if let Some(hook) = lifecycle.get_mut(field) {
            point_at_agent(hook, &format!("/app-lifecycle/{name}/{last}"), port, false);
        }
    }
}

fn point_at_agent(handler: &mut Json, path: &str, port: i32, is_probe: bool) {
    let Json::Object(handler) = handler else { return };
    let replaced = |action: &str| action == "tcpSocket" || (is_probe && action == "grpc");
    if let Some(Json::Object(action)) = handler.get_mut("httpGet") {
        action.insert("path".to_owned(), json!(path));
        action.insert("port".to_owned(), json!(port));
        if action.get("scheme").and_then(Json::as_str) == Some("HTTPS") {
            // The agent asks the application over TLS; the kubelet asks the agent in the clear.
            action.insert("scheme".to_owned(), json!("HTTP"));
        }
    } else if let Some(action) =
        ["tcpSocket", "grpc"].into_iter().find(|action| replaced(action) && handler.contains_key(*action))
    {
        handler.remove(action);
        handler.insert("httpGet".to_owned(), json!({"path": path, "port": port}));
    }
}
