//! The charts of `manifests/charts` under the real Helm and API server: Helm finds nothing to complain of and renders what we render, and
//! the API server takes that.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use canopus_base::tree::Limits;
use canopus_base::yaml;
use canopus_install::{ChartRelease, load_chart};
use canopus_testkit::{KubeApi, helm};
use serde_json::{Value, json};

const CHARTS: [&str; 6] = ["base", "canopusd", "cni", "ztunnel", "gateway", "default"];

fn chart(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/charts").join(name)
}

/// The objects of a text, in an order of their own.
fn objects(text: &str) -> Result<Vec<Value>> {
    let documents = yaml::parse_all(text, &Limits::default()).into_iter();
    let mut objects = documents.map(|document| Ok(document?.node.to_json())).collect::<Result<Vec<_>>>()?;
    objects.retain(|object| object["kind"].is_string());
    objects.sort_by_key(|object| format!("{} {}", object["kind"], object["metadata"]["name"]));
    Ok(objects)
}

/// Charts with values that switch on different corners of them.
fn renderings() -> Vec<(&'static str, Value)> {
    vec![
        ("base", json!({})),
        ("canopusd", json!({})),
        (
            "canopusd",
            json!({"revision": "canary", "revisionTags": ["prod"], "autoscaleMin": 2, "global": {"logAsJson": true}}),
        ),
        (
            "canopusd",
            json!({"serviceMonitor": {"enabled": true}, "dashboards": {"enabled": true}, "global": {"networkPolicy": {"enabled": true}}}),
        ),
        (
            "canopusd",
            json!({"profile": "ambient", "pilot": {"env": {"A": "b", "PILOT_ENABLE_ANALYSIS": "true"}}, "operator": {"enabled": true}}),
        ),
        ("cni", json!({})),
        ("cni", json!({"profile": "ambient"})),
        ("cni", json!({"ambient": {"enabled": true}, "repair": {"repairPods": false, "deletePods": true}})),
        ("ztunnel", json!({})),
        (
            "ztunnel",
            json!({
                "revision": "canary", "platform": "openshift", "resourceQuotas": {"enabled": true}, "peerCaCrl": {"enabled": true},
                "global": {"networkPolicy": {"enabled": true}, "hub": "example.com/mesh"}, "annotations": {"a": "b"},
                "resources": {"limits": {"cpu": 2}}, "env": {"RUST_LOG": "debug"}, "imagePullSecrets": ["registry"]
            }),
        ),
        ("gateway", json!({})),
        (
            "gateway",
            json!({"kind": "DaemonSet", "networkGateway": "west", "podDisruptionBudget": {"minAvailable": 1}}),
        ),
        ("default", json!({"revision": "canary"})),
    ]
}

/// What we render a chart to.
fn render(name: &str, values: &Value) -> Result<Vec<Value>> {
    let release = ChartRelease::new("mesh", "istio-system");
    let files = release.render(&load_chart(&chart(name))?, values).context(name.to_owned())?;
    let texts = files.into_iter().filter(|(path, _)| path.ends_with(".yaml")).map(|(_, text)| text);
    objects(&texts.collect::<Vec<_>>().join("\n---\n"))
}

#[tokio::test]
async fn real_helm_lints_and_renders_charts_as_we_do() -> Result<()> {
    for name in CHARTS {
        let report = helm(&["lint", "--strict", &chart(name).display().to_string()]).await?;
        ensure!(!report.contains("WARNING") && !report.contains("ERROR"), "{report}");
    }
    for (name, values) in renderings() {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), values.to_string())?;
        let (directory, values_file) = (chart(name).display().to_string(), file.path().display().to_string());
        let arguments = [
            "template",
            "mesh",
            &directory,
            "-n",
            "istio-system",
            "-f",
            &values_file,
            "--kube-version",
            "1.32.0",
        ];
        let theirs = objects(&helm(&arguments).await?)?;
        let ours = render(name, &values)?;
        for (ours, theirs) in ours.iter().zip(&theirs) {
            ensure!(ours == theirs, "{name} with {values}: ours\n{ours:#}\nHelm's\n{theirs:#}");
        }
        ensure!(
            ours.len() == theirs.len(),
            "{name} with {values}: {} and {} objects",
            ours.len(),
            theirs.len()
        );
    }
    Ok(())
}

/// Values of a wrong type are refused before anything is rendered.
#[tokio::test]
async fn real_helm_refuses_values_of_a_wrong_type() -> Result<()> {
    for (name, path, value) in [
        ("base", "base", "text"),
        ("canopusd", "autoscaleMin", "many"),
        ("cni", "terminationGracePeriodSeconds", "long"),
        ("ztunnel", "logAsJson", "sometimes"),
        ("gateway", "replicaCount", "many"),
        ("default", "istiodRemote", "text"),
    ] {
        let directory = chart(name).display().to_string();
        let template = ["template", "mesh", &directory, "--set", &format!("{path}={value}")];
        let Err(error) = helm(&template).await else {
            anyhow::bail!("{name} was rendered with {path}={value}");
        };
        ensure!(format!("{error:#}").contains(&format!("/{path}")), "{name}: {error:#}");
    }
    Ok(())
}

/// Objects that the API server takes, without a field that it does not know: a dry run of all that the charts can render.
#[tokio::test]
async fn real_api_server_takes_what_charts_render() -> Result<()> {
    let kube = KubeApi::start().await?;
    kube.kubectl(&["create", "namespace", "istio-system"]).await?;
    for (name, values) in renderings() {
        let mut items = render(name, &values)?;
        // The definition of this kind comes with Prometheus' operator.
        items.retain(|object| object["kind"] != "ServiceMonitor");
        ensure!(!items.is_empty(), "{name} with {values} renders nothing");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), list.to_string())?;
        let from = format!("--filename={}", file.path().display());
        let apply = ["apply", "--server-side", "--dry-run=server", "--validate=strict", &from];
        let said = kube.kubectl(&apply).await.with_context(|| format!("{name} with {values}"))?;
        ensure!(
            said.lines().count() == items.len(),
            "{name} with {values}: {} objects, but\n{said}",
            items.len()
        );
    }
    Ok(())
}
