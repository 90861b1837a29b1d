//! What an admission review of a pod costs.
//!
//! `CANOPUS_INJECTOR_CONFIGMAP` names the file of a ConfigMap `istio-sidecar-injector` to measure with the templates of a real
//! installation; without it, a template of its own is used.

use std::collections::BTreeMap;
use std::hint::black_box;

use canopus_admission::injection::webhook::{self, Request, Surroundings};
use canopus_admission::injection::{Config, Injector, Values};
use canopus_api::mesh_config::{self, ProxyTarget};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, ProxyConfig};
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;

struct NoCluster;

impl Surroundings for NoCluster {
    fn proxy_config(&self, _: &MeshConfig, _: ProxyTarget<'_>) -> Option<ProxyConfig> {
        None
    }

    fn native_sidecars(&self, _: &str, _: &str) -> bool {
        true
    }

    fn namespace_annotations(&self, _: &str, _: &str) -> Option<BTreeMap<String, String>> {
        None
    }
}

const TEMPLATE: &str = "\
metadata:
  labels:
    service.istio.io/canonical-name: {{ index .ObjectMeta.Labels `app` | default .DeploymentMeta.Name | quote }}
spec:
  initContainers:
  - name: istio-proxy
    image: {{ .ProxyImage }}
    restartPolicy: Always
    env:
    - name: PROXY_CONFIG
      value: |
             {{ protoToJSON .ProxyConfig }}
    {{- range $i := until 30 }}
    - name: VARIABLE_{{ $i }}
      value: {{ $i | quote }}
    {{- end }}
";

fn injector() -> Injector {
    #[expect(clippy::disallowed_methods, reason = "an input of the benchmark, not a setting of the product")]
    let file = std::env::var("CANOPUS_INJECTOR_CONFIGMAP");
    let (config, values) = match file {
        Ok(file) => {
            let text = std::fs::read_to_string(file).expect("the file can be read");
            let map = yaml::parse_one(&text, &Limits::default()).expect("it is YAML");
            let data = |key: &str| {
                map.get("data").and_then(|data| data.get(key)?.as_str()).unwrap_or_default().to_owned()
            };
            (data("config"), data("values"))
        }
        Err(_) => {
            let config = json!({"policy": "enabled", "templates": {"sidecar": TEMPLATE}});
            (config.to_string(), json!({"global": {"hub": "hub", "tag": "1"}}).to_string())
        }
    };
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
        "spec": {"containers": [container], "serviceAccountName": "default", "restartPolicy": "Always"},
    });
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "1", "namespace": "shop", "object": pod}})
        .to_string()
}

fn injection(criterion: &mut Criterion) {
    let injector = injector();
    for variables in [3, 2000] {
        let body = review(variables);
        let request =
            Request { path: "/inject", content_type: Some("application/json"), body: body.as_bytes() };
        let answer = webhook::answer(&request, &injector, &NoCluster);
        let answered: Node =
            serde_json::from_slice::<serde_json::Value>(&answer.body).expect("it is JSON").into();
        assert!(answered.pointer("/response/patch").is_some(), "{}", String::from_utf8_lossy(&answer.body));
        criterion.bench_function(&format!("review of a pod with {variables} variables"), |bencher| {
            bencher.iter(|| webhook::answer(black_box(&request), &injector, &NoCluster));
        });
    }
}

criterion_group!(benches, injection);
criterion_main!(benches);
