//! What `canopus what-if` says of a change, against what a running control plane pushes when the change is made; and what `diff`,
//! `cost`, `top` and `wait` say of it afterwards.
#![expect(clippy::unwrap_used, reason = "a test that cannot run the programs has failed")]

#[path = "support/plane.rs"]
mod plane;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_xds::client::AdsClient;
use canopus_xds::types::{CLUSTER, ENDPOINT, LISTENER, ROUTE};
use plane::Plane;
use serde_json::Value as Json;
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(20);
/// After this time without a message nothing more is expected.
const QUIET: Duration = Duration::from_millis(700);
const STEPS: u64 = 40;

const KINDS: [(&str, &str); 4] =
    [("listener", LISTENER), ("route", ROUTE), ("cluster", CLUSTER), ("endpoint", ENDPOINT)];
const PODS: [(&str, &str, &str); 2] = [("web", "shop", "10.0.0.1"), ("app", "bank", "10.0.0.2")];
const SERVICES: [(&str, &str); 3] = [("cart", "shop"), ("list", "bank"), ("vault", "shop")];

/// The object of a kind and a service with one of its contents.
fn object(kind: usize, service: usize, content: usize) -> String {
    let (name, namespace) = SERVICES[service];
    let host = format!("{name}.mesh");
    let (api, kind, spec) = match kind {
        0 => {
            let ports =
                ["{number: 80, name: http, protocol: HTTP}", "{number: 90, name: tcp, protocol: TCP}"];
            let ports = [ports[0].to_owned(), ports[1].to_owned(), ports.join(", ")];
            let spec = format!(
                "hosts: [{host}], addresses: [10.96.0.{}], resolution: STATIC, location: MESH_INTERNAL, ports: [{}], \
                 endpoints: [{{address: 10.0.9.{}, labels: {{version: v1}}}}]",
                service + 1,
                ports[content % 3],
                content / 3 + 1
            );
            ("networking.istio.io/v1", "ServiceEntry", spec)
        }
        1 => {
            let http = [
                format!("{{timeout: 1s, route: [{{destination: {{host: {host}}}}}]}}"),
                format!("{{match: [{{uri: {{prefix: /a}}}}], route: [{{destination: {{host: {host}}}}}]}}"),
                "{redirect: {uri: /away}}".to_owned(),
                format!("{{route: [{{destination: {{host: {host}, subset: v1}}}}]}}"),
            ];
            (
                "networking.istio.io/v1",
                "VirtualService",
                format!("hosts: [{host}], http: [{}]", http[content % 4]),
            )
        }
        2 => {
            let policy = [
                "trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}",
                "subsets: [{name: v1, labels: {version: v1}}]",
                "exportTo: ['.'], trafficPolicy: {tls: {mode: SIMPLE}}",
            ];
            ("networking.istio.io/v1", "DestinationRule", format!("host: {host}, {}", policy[content % 3]))
        }
        3 => {
            let hosts = ["'*/*'", "'./*'", "'bank/*'"][content % 3];
            ("networking.istio.io/v1", "Sidecar", format!("egress: [{{hosts: [{hosts}]}}]"))
        }
        4 => {
            let rules =
                ["{}", "{action: DENY, rules: [{to: [{operation: {paths: [/secret]}}]}]}", "{action: AUDIT}"];
            let spec = rules[content % 3].trim_matches(['{', '}']).to_owned();
            ("security.istio.io/v1", "AuthorizationPolicy", spec)
        }
        _ => {
            let mode = ["STRICT", "PERMISSIVE", "DISABLE"][content % 3];
            ("security.istio.io/v1", "PeerAuthentication", format!("mtls: {{mode: {mode}}}"))
        }
    };
    let name = if matches!(kind, "Sidecar" | "PeerAuthentication") { "default" } else { name };
    format!(
        "{{apiVersion: {api}, kind: {kind}, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{{spec}}}}}\n"
    )
}

/// The file that holds an object, whatever its content.
fn file_name(document: &str) -> String {
    let word = |key: &str| {
        let rest = document.split_once(key).map_or("", |(_, rest)| rest);
        rest.trim_start().split([',', '}']).next().unwrap_or_default().to_owned()
    };
    format!("{}-{}-{}.yaml", word("kind:"), word("name:"), word("namespace:"))
}

/// Who is asked what a change would do.
#[derive(Clone, Copy, Debug)]
enum Way {
    Files,
    ControlPlane,
}

struct Mesh {
    plane: Plane,
    clients: Vec<AdsClient>,
}

impl Mesh {
    async fn start() -> Result<Self> {
        let pod = |(name, namespace, address): (&str, &str, &str)| {
            let text = format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}-1, namespace: {namespace}, labels: {{app: \
                 {name}}}}}, spec: {{serviceAccountName: {name}, nodeName: n1}}, status: {{phase: Running, podIP: \
                 {address}, podIPs: [{{ip: {address}}}]}}}}\n"
            );
            (format!("pod-{name}.yaml"), text)
        };
        let mut files: Vec<(String, String)> = PODS.map(pod).into();
        files.push((file_name(&object(0, 0, 0)), object(0, 0, 0)));
        let plane = Plane::start(&files).await?;
        let mut clients = Vec::new();
        for (name, namespace, address) in PODS {
            clients.push(plane.sidecar(name, namespace, address).await?);
        }
        let mut mesh = Self { plane, clients };
        // What a proxy has at first comes in several messages.
        let nothing = vec![Changes::new(); PODS.len()];
        while mesh.gather(&nothing).await?.iter().any(|pushed| !pushed.is_empty()) {}
        ensure!(
            mesh.clients.iter().all(|client| client.follower().held(LISTENER).count() > 0),
            "nothing came"
        );
        Ok(mesh)
    }

    /// What every client is sent until all have what is expected and nothing more comes.
    async fn gather(&mut self, expected: &[Changes]) -> Result<Vec<Changes>> {
        let mut all = Vec::new();
        for (client, expected) in self.clients.iter_mut().zip(expected) {
            let (mut pushed, deadline) = (Changes::new(), Instant::now() + PATIENCE);
            loop {
                let is_missing =
                    expected.iter().any(|(key, change)| change.is_some() && !pushed.contains_key(key));
                let quiet = if is_missing { PATIENCE } else { QUIET };
                let step =
                    timeout(quiet.min(deadline.saturating_duration_since(Instant::now())), client.step());
                let Ok(step) = step.await else { break };
                let Some(update) = step? else { continue };
                let Some((kind, _)) = KINDS.iter().find(|(_, type_url)| *type_url == update.type_url) else {
                    continue;
                };
                for resource in &update.resources {
                    pushed.insert((*kind, resource.name.clone()), Some(resource.body.value.len()));
                }
                pushed.extend(update.removed.iter().map(|name| ((*kind, name.clone()), None)));
            }
            all.push(pushed);
        }
        Ok(all)
    }

    /// What a change would push, by the tool's account: of the files, or of the running control plane.
    fn foretold(&self, way: Way, change: &Path) -> Result<Vec<Changes>> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_canopus"));
        command.args(["what-if", "-o", "json", "--change"]).arg(change);
        match way {
            Way::Files => command.arg("--config").arg(self.plane.objects()),
            Way::ControlPlane => command.arg("--daemon").arg(self.plane.url()),
        };
        let output = command.output()?;
        let answer: Json = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        Ok(PODS.map(|(name, namespace, _)| of_proxy(&answer, &format!("{name}-1.{namespace}"))).into())
    }
}

/// Changed resources with their sizes; `None` if they go.
type Changes = BTreeMap<(&'static str, String), Option<usize>>;

fn of_proxy(answer: &Json, proxy: &str) -> Changes {
    let has = |one: &&Json| one["proxies"].as_array().unwrap().iter().any(|name| name == proxy);
    let listed = answer["changes"].as_array().unwrap().iter().filter(has);
    let changes = listed.flat_map(|one| one["changes"].as_array().unwrap());
    let change = |change: &Json| {
        let (kind, _) = KINDS.iter().find(|(kind, _)| change["resource"] == *kind)?;
        let size = change["bytesAfter"].as_u64().map(|size| usize::try_from(size).unwrap());
        Some(((*kind, change["name"].as_str()?.to_owned()), size))
    };
    changes.filter_map(change).collect()
}

/// A number below `sides` that depends on the step and the throw alone.
fn roll(step: u64, throw: u64, sides: u64) -> usize {
    let mut mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ throw.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((mixed ^ (mixed >> 31)) % sides).unwrap()
}

#[tokio::test]
async fn foretold_changes_are_those_that_are_pushed() -> Result<()> {
    let mut mesh = Mesh::start().await?;
    let (mut changed, mut kinds) = (0, BTreeSet::new());
    for step in 0..STEPS {
        let document = object(roll(step, 1, 6), roll(step, 2, 3), roll(step, 3, 6));
        let change = mesh.plane.directory.path().join("change.yaml");
        fs::write(&change, &document)?;
        let foretold = mesh.foretold(Way::Files, &change).with_context(|| document.clone())?;
        let tried_out = mesh.foretold(Way::ControlPlane, &change).with_context(|| document.clone())?;
        // Whoever reads the directory sees the file as a whole.
        fs::rename(&change, mesh.plane.objects().join(file_name(&document)))?;
        let pushed = mesh.gather(&foretold).await?;
        let ways = [(Way::Files, &foretold), (Way::ControlPlane, &tried_out)];
        let told = ways
            .iter()
            .flat_map(|(way, foretold)| PODS.iter().zip(*foretold).zip(&pushed).map(move |one| (way, one)));
        for (way, (((name, ..), foretold), pushed)) in told {
            // A proxy drops what its clusters and listeners no longer refer to without being told.
            let is_said = |key: &(&str, String)| matches!(key.0, "listener" | "cluster");
            let said: Changes = foretold
                .iter()
                .filter(|(key, size)| size.is_some() || is_said(key))
                .map(|(key, size)| (key.clone(), *size))
                .collect();
            // Until it has done so, it may be sent what became of them.
            let is_dropped = |key: &(&'static str, String)| foretold.get(key) == Some(&None) && !is_said(key);
            let heard: Changes = pushed
                .iter()
                .filter(|(key, size)| (size.is_some() && !is_dropped(key)) || is_said(key))
                .map(|(key, size)| (key.clone(), *size))
                .collect();
            ensure!(
                said == heard,
                "step {step}, {name}, by {way:?}: {document}\nforetold {said:#?}\npushed {heard:#?}\n{}",
                mesh.plane.process.log_end()
            );
            changed += said.len();
            kinds.extend(said.keys().map(|(kind, _)| *kind));
        }
    }
    ensure!(changed >= 100 && kinds.len() == KINDS.len(), "too little changes: {changed} of {kinds:?}");
    Ok(())
}

/// What a command says of a running control plane, as JSON.
fn asked(plane: &Plane, arguments: &[&str]) -> Result<Json> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopus"));
    let output = command.args(arguments).args(["--daemon", &plane.url(), "-o", "json"]).output()?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[tokio::test]
async fn change_that_was_made_is_told_with_what_it_changed_and_cost() -> Result<()> {
    let mut mesh = Mesh::start().await?;
    let top = asked(&mesh.plane, &["top"])?;
    let plane = &top["controlPlanes"][mesh.plane.url()];
    ensure!(plane["proxies"]["connected"] == PODS.len(), "{top:#}");
    let revision = plane["revision"].to_string();
    let document = object(1, 0, 1);
    let change = mesh.plane.directory.path().join("change.yaml");
    fs::write(&change, &document)?;
    let foretold = mesh.foretold(Way::ControlPlane, &change)?;
    fs::rename(&change, mesh.plane.objects().join(file_name(&document)))?;
    let pushed = mesh.gather(&foretold).await?;
    ensure!(pushed.iter().any(|pushed| !pushed.is_empty()), "nothing was pushed");

    let name = "VirtualService/shop/cart";
    let waited = Command::new(env!("CARGO_BIN_EXE_canopus"))
        .args(["wait", name, "--daemon", &mesh.plane.url()])
        .output()?;
    ensure!(waited.status.success(), "{}", String::from_utf8_lossy(&waited.stderr));
    let diff = asked(&mesh.plane, &["diff", "--at", &revision, "--proxies"])?;
    let told = &diff["objects"][0];
    ensure!(diff["isWhole"] == true && diff["objects"].as_array().unwrap().len() == 1, "{diff:#}");
    ensure!(told["object"] == name && told["change"] == "created" && told["before"].is_null(), "{diff:#}");
    ensure!(told["after"]["spec"]["hosts"][0] == "cart.mesh", "{diff:#}");
    let changed: Vec<Changes> =
        PODS.map(|(name, namespace, _)| of_proxy(&diff["impact"], &format!("{name}-1.{namespace}"))).into();
    ensure!(changed == foretold, "what it changed is not what was foretold: {diff:#}");
    let nothing = asked(&mesh.plane, &["diff", "--at", &revision, "--at", &revision])?;
    ensure!(nothing["objects"].as_array().unwrap().is_empty(), "{nothing:#}");
    let cost = asked(&mesh.plane, &["cost"])?;
    let costs = cost["objects"].as_array().unwrap().iter().find(|one| one["object"] == name);
    let costs = costs.with_context(|| cost.to_string())?;
    ensure!(costs["pushes"] == 1 && costs["bytes"].as_u64() > Some(0), "{cost:#}");
    Ok(())
}
