//! What an admission review of a pod costs: `cargo xtask bench injection`.
//!
//! Pods are put into the mesh with the templates and values of the chart `canopusd`, as a cluster has them. The inputs are shaped like
//! those of Istio's own benchmarks: a pod of two containers with none, five and fifteen ProxyConfigs to choose from, and a pod with
//! 2,000 environment variables. `CANOPUS_INJECTOR_CONFIGMAP` names the file of a ConfigMap `istio-sidecar-injector` to measure with the
//! templates of another installation.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it has measured")]

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use canopus_admission::injection::webhook::{self, Request, Surroundings};
use canopus_admission::injection::{Config, Injector, Values};
use canopus_api::mesh_config::{self, ProxyTarget};
use canopus_api::{Object, Options, decode_documents};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, ProxyConfig};
use serde_json::{Value as Json, json};

/// How long each review is measured.
const MEASURED: Duration = Duration::from_secs(5);

/// Reviews before the first that counts.
const WARM_UP: usize = 100;

/// A cluster of which some ProxyConfigs are known.
struct Cluster {
    proxy_configs: Vec<Object>,
}

impl Cluster {
    /// Half of the objects are for the pod's namespace, and select others than the pod.
    fn with_proxy_configs(count: usize) -> Self {
        let object = |at| {
            let namespace = if at % 2 == 0 { "shop" } else { "elsewhere" };
            format!(
                "apiVersion: networking.istio.io/v1beta1\nkind: ProxyConfig\nmetadata: {{name: config-{at}, namespace: {namespace}}}\n\
                 spec: {{selector: {{matchLabels: {{app: other-{at}}}}}, concurrency: {at}, environmentVariables: {{A: b}}}}\n"
            )
        };
        let text: Vec<String> = (0..count).map(object).collect();
        let outcomes = decode_documents(text.join("---\n"), &Limits::default(), Options::watch());
        let proxy_configs: Vec<Object> =
            outcomes.into_iter().map(|outcome| outcome.expect("it can be read").value).collect();
        assert_eq!(proxy_configs.len(), count, "objects were read");
        Self { proxy_configs }
    }
}

impl Surroundings for Cluster {
    fn proxy_config(&self, mesh: &MeshConfig, target: ProxyTarget<'_>) -> Option<ProxyConfig> {
        if self.proxy_configs.is_empty() && target.annotation.is_none() {
            return None;
        }
        let configs = self.proxy_configs.iter().filter_map(|object| match object {
            Object::ProxyConfig(config) => Some(&**config),
            _ => None,
        });
        Some(mesh_config::effective_proxy_config(mesh, configs, target))
    }

    fn native_sidecars(&self, _: &str, _: &str) -> bool {
        true
    }

    fn namespace_annotations(&self, _: &str, _: &str) -> Option<BTreeMap<String, String>> {
        None
    }
}

fn parse(path: &Path) -> Json {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    yaml::parse_one(&text, &Limits::default()).expect("it is YAML").to_json()
}

/// Templates and values of an installation: `config` and `values`.
fn installation() -> (String, String) {
    #[expect(clippy::disallowed_methods, reason = "an input of the benchmark, not a setting of the product")]
    if let Ok(file) = std::env::var("CANOPUS_INJECTOR_CONFIGMAP") {
        let map = parse(Path::new(&file));
        let data = |key: &str| map["data"][key].as_str().unwrap_or_default().to_owned();
        return (data("config"), data("values"));
    }
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/charts/canopusd");
    let files = fs::read_dir(chart.join("files/injection")).expect("the chart has templates");
    let template = |file: fs::DirEntry| {
        let name = file.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
        (name, Json::String(fs::read_to_string(file.path()).expect("a template can be read")))
    };
    let templates: serde_json::Map<String, Json> = files.filter_map(Result::ok).map(template).collect();
    let values = parse(&chart.join("values.yaml"));
    let config = json!({"policy": "enabled", "templates": templates, "defaultTemplates": ["sidecar"]});
    // What the chart takes from its values into the ConfigMap.
    let values = json!({
        "global": values["global"],
        "sidecarInjectorWebhook": values["sidecarInjectorWebhook"],
        "revision": "",
        "pilot": {"cni": values["cni"], "env": {}},
        "gateways": values["gateways"],
    });
    (config.to_string(), values.to_string())
}

fn injector() -> Injector {
    let (config, values) = installation();
    let config = Config::read(&config, &BTreeMap::new()).expect("the configuration can be used");
    let values = Values::read(&values).expect("the values can be used");
    Injector::new(config, values, mesh_config::default_mesh_config(), "default")
}

/// A review of a pod with this many environment variables.
fn review(variables: usize) -> String {
    let environment: Vec<_> =
        (0..variables).map(|at| json!({"name": format!("NAME_{at}"), "value": "value"})).collect();
    let container = json!({
        "name": "app", "image": "example/app:1", "resources": {}, "env": environment,
        "ports": [{"containerPort": 8080, "protocol": "TCP", "name": "http"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "web-7d4b9c-", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {
            "initContainers": [{"name": "setup", "image": "example/setup:1", "resources": {}}],
            "containers": [container], "serviceAccountName": "default", "restartPolicy": "Always",
            "imagePullSecrets": [{"name": "registry"}], "volumes": [{"name": "cache", "emptyDir": {}}],
        },
    });
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "1", "namespace": "shop", "object": pod}})
        .to_string()
}

/// Answers one review for some seconds, on one thread, and tells how long that took.
fn measure(name: &str, injector: &Injector, cluster: &Cluster, body: &str) {
    let request = Request { path: "/inject", content_type: Some("application/json"), body: body.as_bytes() };
    let answer = webhook::answer(&request, injector, cluster);
    let answered: Node = serde_json::from_slice::<Json>(&answer.body).expect("it is JSON").into();
    let patch = answered.pointer("/response/patch");
    assert!(patch.is_some(), "{}", String::from_utf8_lossy(&answer.body));
    for _ in 0..WARM_UP {
        black_box(webhook::answer(black_box(&request), injector, cluster));
    }
    let mut times = Vec::new();
    let began = Instant::now();
    while began.elapsed() < MEASURED {
        let start = Instant::now();
        black_box(webhook::answer(black_box(&request), injector, cluster));
        times.push(start.elapsed());
    }
    times.sort();
    let total: Duration = times.iter().sum();
    let percentile =
        |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let (rate, kilobytes) = (times.len() as f64 / total.as_secs_f64(), answer.body.len() as f64 / 1e3);
    let (median, late) = (percentile(50), percentile(99));
    println!("{name:42} {kilobytes:>7.1} kB {rate:>12.0} {median:>10.3} ms {late:>8.3} ms");
}

fn main() {
    let injector = injector();
    println!("{:42} {:>10} {:>12} {:>13} {:>11}", "REVIEW", "ANSWER", "PER SECOND", "MEDIAN", "P99");
    let small = review(3);
    for count in [0, 5, 15] {
        let name = format!("a pod, {count} ProxyConfigs");
        measure(&name, &injector, &Cluster::with_proxy_configs(count), &small);
    }
    measure("a pod with 2,000 variables", &injector, &Cluster::with_proxy_configs(0), &review(2000));
}
