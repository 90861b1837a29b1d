//! Templates of the built-in charts, by the commands that people use: what the chart installs injects pods.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use canopus_base::tree::Limits;
use canopus_base::yaml;
use serde_json::{Value, json};

fn canopus(arguments: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_canopus")).args(arguments).output()?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn objects(text: &str) -> Result<Vec<Value>> {
    yaml::parse_all(text.as_bytes(), &Limits::default())
        .into_iter()
        .map(|document| Ok(document?.node.to_json()))
        .collect()
}

/// Writes the injector's configuration as the built-in chart has it.
fn install_templates(directory: &Path) -> Result<()> {
    let installed = objects(&canopus(&["manifest", "generate", "--set", "profile=minimal"])?)?;
    let data = |name: &str| {
        let is_wanted = |object: &&Value| object["kind"] == "ConfigMap" && object["metadata"]["name"] == name;
        installed.iter().find(is_wanted).map(|object| object["data"].clone()).context(name.to_owned())
    };
    let (injector, mesh) = (data("istio-sidecar-injector")?, data("istio")?);
    for (file, text) in
        [("config", &injector["config"]), ("values", &injector["values"]), ("mesh", &mesh["mesh"])]
    {
        std::fs::write(directory.join(file), text.as_str().context(file)?)?;
    }
    Ok(())
}

fn inject(directory: &Path, template: &str) -> Result<Value> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shop", "namespace": "default", "annotations": {"inject.istio.io/templates": template}},
        "spec": {"containers": [{"name": "shop", "image": "shop:1", "env": [{"name": "OWN", "value": "kept"}]}]},
    });
    let path = |name: &str| directory.join(name).display().to_string();
    std::fs::write(path("pod.json"), pod.to_string())?;
    let printed = canopus(&[
        "kube-inject",
        "--filename",
        &path("pod.json"),
        "--injectConfigFile",
        &path("config"),
        "--valuesFile",
        &path("values"),
        "--meshConfigFile",
        &path("mesh"),
    ])?;
    objects(&printed)?.into_iter().next().context("nothing is printed")
}

fn named<'a>(pod: &'a Value, list: &str, name: &str) -> &'a Value {
    let found = pod["spec"][list].as_array().into_iter().flatten().find(|item| item["name"] == name);
    found.unwrap_or(&Value::Null)
}

fn variable<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    container["env"].as_array()?.iter().find(|variable| variable["name"] == name)?["value"].as_str()
}

#[test]
fn applications_whose_library_speaks_xds_get_an_agent_or_a_bootstrap() -> Result<()> {
    let directory = tempfile::tempdir()?;
    install_templates(directory.path())?;

    let pod = inject(directory.path(), "grpc-agent")?;
    let (agent, shop) = (named(&pod, "containers", "istio-proxy"), named(&pod, "containers", "shop"));
    assert_eq!(variable(agent, "DISABLE_ENVOY"), Some("true"), "{pod}");
    assert_eq!(variable(agent, "ISTIO_META_GENERATOR"), Some("grpc"));
    assert_eq!(agent["readinessProbe"]["httpGet"]["port"], 15020);
    assert_eq!(variable(shop, "OWN"), Some("kept"), "{shop}");
    assert_eq!(shop["image"], "shop:1");
    // The application reads what the agent writes.
    let bootstrap = variable(agent, "GRPC_XDS_BOOTSTRAP");
    assert!(bootstrap.is_some_and(|path| path.starts_with("/etc/istio/proxy/")), "{agent}");
    assert_eq!(variable(shop, "GRPC_XDS_BOOTSTRAP"), bootstrap);
    for container in [agent, shop] {
        let mounts = container["volumeMounts"].as_array().context("no mounts")?;
        assert!(
            mounts.contains(&json!({"name": "istio-xds", "mountPath": "/etc/istio/proxy"})),
            "{container}"
        );
    }
    assert_eq!(named(&pod, "initContainers", "istio-init"), &Value::Null, "nothing is captured");

    let pod = inject(directory.path(), "grpc-simple")?;
    let init = named(&pod, "initContainers", "grpc-bootstrap-init");
    let script = init["command"][2].as_str().context("no script")?;
    assert!(script.contains("\"server_uri\": \"dns:///istiod.istio-system.svc:15010\""), "{script}");
    let shop = named(&pod, "containers", "shop");
    assert_eq!(variable(shop, "GRPC_XDS_BOOTSTRAP"), Some("/var/lib/grpc/data/bootstrap.json"), "{shop}");
    assert_eq!(named(&pod, "containers", "istio-proxy"), &Value::Null);
    Ok(())
}
