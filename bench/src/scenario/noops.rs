use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::figure::Figure;
use crate::fixture::{Fixture, KubeNode, Pod, collection, time};
use crate::stage::{PATIENCE, PAUSE, Stage};

/// Changes a second.
const RATE: u32 = 100;

/// Where Kubernetes keeps the beats of nodes.
const LEASES: &str = "kube-node-lease";

/// A kind of change that changes nothing for proxies.
struct Noop {
    what: &'static str,
    /// Played only with pods and nodes.
    is_of_pods: bool,
    /// The change of this number: where, and what.
    change: fn(&Fixture, &[Pod], usize) -> (String, Value),
}

const NOOPS: [Noop; 9] = [
    Noop {
        what: "annotation of a Service",
        is_of_pods: false,
        change: |fixture, _, n| {
            (fixture.service_path(n % fixture.services), annotation("example.com/scaled", n))
        },
    },
    Noop {
        what: "label of a VirtualService",
        is_of_pods: false,
        change: |fixture, _, n| {
            (route_path(fixture, n), json!({"metadata": {"labels": {"example.com/synced": n.to_string()}}}))
        },
    },
    Noop {
        what: "status of a VirtualService",
        is_of_pods: false,
        change: |fixture, _, n| {
            let path = format!("{}/status", route_path(fixture, n));
            (path, json!({"status": {"conditions": [{"type": "Reconciled", "message": n.to_string()}]}}))
        },
    },
    Noop {
        what: "trigger time of an EndpointSlice",
        is_of_pods: false,
        change: |fixture, _, n| {
            let name = "endpoints.kubernetes.io/last-change-trigger-time";
            let patch = json!({"metadata": {"annotations": {name: time(n)}}});
            (fixture.slice_path(n % fixture.services), patch)
        },
    },
    Noop {
        what: "managed fields of a Service",
        is_of_pods: false,
        // A manager comes to own a field, and owns it no longer; the field stays as it is.
        change: |fixture, _, n| {
            let path =
                format!("{}?fieldManager=bench&force=true", fixture.service_path(n / 2 % fixture.services));
            let name = fixture.service_path(n / 2 % fixture.services);
            let name = name.rsplit('/').next().unwrap_or_default();
            let labels = if n % 2 == 0 { json!({"app": name}) } else { json!({}) };
            (
                path,
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels}}),
            )
        },
    },
    Noop {
        what: "heartbeat of a Node",
        is_of_pods: true,
        change: |fixture, _, n| {
            let node = KubeNode(n % fixture.nodes);
            (format!("/api/v1/nodes/{}/status", node.name()), json!({"status": node.status(true, n)}))
        },
    },
    Noop {
        what: "renewed Lease",
        is_of_pods: true,
        change: |fixture, _, n| {
            let path = format!("{}/{}", collection("Lease", LEASES), KubeNode(n % fixture.nodes).name());
            (path, json!({"spec": {"renewTime": time(n).replace('Z', ".000000Z")}}))
        },
    },
    Noop {
        what: "probe time of a Pod",
        is_of_pods: true,
        change: |_, pods, n| {
            let pod = &pods[n % pods.len()];
            let mut status = pod.status();
            for condition in status["status"]["conditions"].as_array_mut().into_iter().flatten() {
                condition["lastProbeTime"] = time(n).into();
            }
            (format!("{}/status", pod_path(pod)), status)
        },
    },
    Noop {
        what: "annotation of a Pod",
        is_of_pods: true,
        change: |_, pods, n| (pod_path(&pods[n % pods.len()]), annotation("example.com/scraped", n)),
    },
];

/// Objects change in ways that change nothing for proxies, one kind of change after another.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.connected().await?;
    let fixture = stage.world.fixture;
    let pods = fixture.all_pods();
    if fixture.is_real() {
        stage.world.api.create_all((0..fixture.nodes).map(|n| lease(KubeNode(n)))).await?;
    }
    let idle = idle_cores(stage).await?;
    let mut figures = vec![Figure::count("cores of the subject when nothing happens", idle)];
    let (mut messages, mut bytes, mut newest) = (0, 0, 0);
    for noop in NOOPS.iter().filter(|noop| fixture.is_real() || !noop.is_of_pods) {
        // What the last kind left to do is not counted for this one.
        stage.fleet()?.quiet(PAUSE, PATIENCE).await?;
        let mark = stage.mark()?;
        let mut ticks = interval(Duration::from_secs(1) / RATE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // An even number first: managed fields change in pairs.
        let first = stage.world.numbers(stage.scale.noops + 2).next_multiple_of(2);
        for n in first..first + stage.scale.noops {
            ticks.tick().await;
            let (path, body) = (noop.change)(&fixture, &pods, n);
            let version = stage.world.api.change(&path, &body).await?;
            ensure!(version > newest, "{}: the API server found nothing to change at {path}", noop.what);
            newest = version;
        }
        sleep(PAUSE).await;
        let spent = stage.since(&mark)?;
        let busy = spent.cpu.saturating_sub(spent.time.mul_f64(idle));
        figures.push(Figure::cpu(
            format!("{}, processor time of the subject, each", noop.what),
            busy / stage.scale.noops as u32,
        ));
        messages += spent.received.messages();
        bytes += spent.received.bytes;
    }
    figures.push(Figure::count("responses in all", messages as f64));
    figures.push(Figure::bytes("received in all", bytes));
    Ok(figures)
}

/// How much of a core the subject uses when nothing happens.
async fn idle_cores(stage: &mut Stage<'_>) -> Result<f64> {
    stage.fleet()?.quiet(PAUSE, PATIENCE).await?;
    let mark = stage.mark()?;
    sleep(2 * PAUSE).await;
    let spent = stage.since(&mark)?;
    Ok(spent.cpu.as_secs_f64() / spent.time.as_secs_f64())
}

fn annotation(name: &str, n: usize) -> Value {
    json!({"metadata": {"annotations": {name: n.to_string()}}})
}

/// Every tenth service has a VirtualService.
fn route_path(fixture: &Fixture, n: usize) -> String {
    let routes = fixture.services.div_ceil(10);
    fixture.virtual_service_path(n % routes * 10)
}

fn pod_path(pod: &Pod) -> String {
    format!("{}/{}", collection("Pod", &pod.workload.namespace), pod.name())
}

fn lease(node: KubeNode) -> (String, Value) {
    let object = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node.name()},
        "spec": {"holderIdentity": node.name(), "leaseDurationSeconds": 40},
    });
    (collection("Lease", LEASES), object)
}
