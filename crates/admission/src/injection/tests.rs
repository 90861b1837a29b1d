use std::collections::BTreeMap;

use canopus_api::mesh_config;
use serde_json::{Value as Json, json};

use super::*;

/// A template with everything that injection treats in its own way.
const SIDECAR: &str = r#"
{{- $containers := list }}
{{- range $index, $container := .Spec.Containers }}{{ if not (eq $container.Name "istio-proxy") }}{{ $containers = append $containers $container.Name }}{{end}}{{- end}}
metadata:
  labels:
    tls: {{ index .ObjectMeta.Labels `tls` | default "istio" | quote }}
  annotations:
    first: {{ index $containers 0 | quote }}
spec:
  initContainers:
  - name: istio-init
    image: init
    args: ["-u", "{{ .ProxyUID }}"]
{{- if not .NativeSidecars }}
  containers:
{{- end }}
  - name: istio-proxy
    image: {{ .ProxyImage | quote }}
    {{- if .NativeSidecars }}
    restartPolicy: Always
    {{- end }}
    env:
    - name: PROXY_CONFIG
      value: |
             {{ protoToJSON .ProxyConfig }}
    - name: PORTS
      value: |-
        [{{ range $i, $c := .Spec.Containers }}{{ range $j, $p := $c.Ports }}{{ structToJSON $p }}{{ end }}{{ end }}]
    - name: HOLD
      value: "{{ .ProxyConfig.HoldApplicationUntilProxyStarts.GetValue }}"
  volumes:
  - name: certs
    emptyDir: {}
"#;

fn config(sidecar: &str, rest: &str) -> Config {
    let text = format!("policy: enabled\n{rest}\ntemplates:\n  sidecar: {}\n", Json::from(sidecar));
    Config::read(&text, &BTreeMap::new()).unwrap()
}

fn injector_with(config: Config) -> Injector {
    let values = json!({"global": {"hub": "hub", "tag": "1", "network": "net"}, "sidecarInjectorWebhook": {"rewriteAppHTTPProbe": true}});
    let values = Values::read(&values.to_string()).unwrap();
    Injector::new(config, values, mesh_config::default_mesh_config(), "default")
}

fn injector() -> Injector {
    injector_with(config(SIDECAR, ""))
}

fn pod() -> Json {
    json!({
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "app:1", "ports": [{"containerPort": 80, "name": "http"}],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "timeoutSeconds": 2}}]},
    })
}

fn subject(pod: &Json) -> Subject<'_> {
    Subject {
        pod,
        owner: Owner::find(pod),
        proxy_config: None,
        namespace_annotations: None,
        native_sidecars: false,
        environment: BTreeMap::new(),
    }
}

fn names(pod: &Json, list: &str) -> Vec<String> {
    pod::containers(pod, list).iter().map(|container| pod::name(container).to_owned()).collect()
}

fn variable<'a>(pod: &'a Json, wanted: &str) -> &'a str {
    let proxy = pod::find_in_pod(pod, "istio-proxy").unwrap();
    let found = proxy["env"].as_array().unwrap().iter().find(|variable| variable["name"] == wanted);
    found.and_then(|variable| variable["value"].as_str()).unwrap_or_else(|| panic!("no {wanted} in {proxy}"))
}

#[test]
fn a_pod_gets_the_proxy_its_environment_and_its_marks() {
    let pod = pod();
    let injected = injector().inject(subject(&pod)).unwrap();
    assert_eq!(names(&injected, "containers"), ["app", "istio-proxy"]);
    assert_eq!(names(&injected, "initContainers"), ["istio-init"]);
    assert_eq!(variable(&injected, "PORTS"), r#"[{"name":"http","containerPort":80}]"#);
    assert_eq!(variable(&injected, "PROXY_CONFIG"), "{}\n");
    assert_eq!(variable(&injected, "HOLD"), "false");
    assert_eq!(variable(&injected, "ISTIO_META_NETWORK"), "net");
    assert_eq!(
        variable(&injected, "ISTIO_KUBE_APP_PROBERS"),
        r#"{"/app-health/app/readyz":{"httpGet":{"path":"/ready","port":80},"timeoutSeconds":2}}"#
    );
    let metadata = &injected["metadata"];
    assert_eq!(metadata["labels"], json!({"app": "web", "tls": "istio", "topology.istio.io/network": "net"}));
    assert_eq!(
        metadata["annotations"]["sidecar.istio.io/status"],
        r#"{"initContainers":["istio-init"],"containers":["istio-proxy"],"volumes":["certs"],"imagePullSecrets":null,"revision":"default"}"#
    );
    assert_eq!(metadata["annotations"]["prometheus.io/port"], "15020");
    let probe = &injected["spec"]["containers"][0]["readinessProbe"];
    assert_eq!(probe["httpGet"], json!({"path": "/app-health/app/readyz", "port": 15020}));
}

#[test]
fn injecting_again_changes_nothing() {
    let injector = injector();
    for native in [false, true] {
        for own in [
            None,
            Some(
                json!({"name": "istio-proxy", "image": "auto", "args": ["--x"], "securityContext": {"runAsUser": 7}}),
            ),
        ] {
            let mut pod = pod();
            if let Some(own) = &own {
                pod["spec"]["containers"].as_array_mut().unwrap().push(own.clone());
            }
            let once = injector.inject(Subject { native_sidecars: native, ..subject(&pod) }).unwrap();
            let twice = injector.inject(Subject { native_sidecars: native, ..subject(&once) }).unwrap();
            assert_eq!(once, twice, "native {native}, own container {}", own.is_some());
        }
    }
}

#[test]
fn what_the_user_sets_of_the_proxy_counts_more_than_the_template() {
    let mut pod = pod();
    let own =
        json!({"name": "istio-proxy", "image": "auto", "args": ["--x"], "securityContext": {"runAsUser": 7}});
    pod["spec"]["containers"].as_array_mut().unwrap().insert(0, own);
    let injected = injector().inject(subject(&pod)).unwrap();
    let proxy = pod::find_in_pod(&injected, "istio-proxy").unwrap();
    assert_eq!(proxy["image"], "hub/proxyv2:1");
    assert_eq!(proxy["args"], json!(["--x"]));
    assert_eq!(
        pod::annotation(&injected, "proxy.istio.io/overrides").unwrap(),
        r#"{"containers":[{"name":"istio-proxy","args":["--x"],"resources":{},"securityContext":{"runAsUser":7}}]}"#
    );
    assert_eq!(injected["spec"]["initContainers"][0]["args"], json!(["-u", "7"]));
}

#[test]
fn native_sidecars_start_before_other_init_containers() {
    let mut pod = pod();
    pod["spec"]["initContainers"] = json!([{"name": "setup"}]);
    let injected = injector().inject(Subject { native_sidecars: true, ..subject(&pod) }).unwrap();
    assert_eq!(names(&injected, "initContainers"), ["istio-init", "istio-proxy", "setup"]);
    assert_eq!(names(&injected, "containers"), ["app"]);
    let classic = injector().inject(subject(&pod)).unwrap();
    assert_eq!(names(&classic, "initContainers"), ["setup", "istio-init"]);
}

#[test]
fn the_patch_applies_to_what_was_sent_and_leaves_foreign_fields_alone() {
    let mut raw = pod();
    raw["spec"]["containers"][0]["fieldOfTheFuture"] = json!({"a": 1});
    let injector = injector();
    let patch = injector.patch(&raw, subject(&raw)).unwrap();
    let patched = apply_patch(&raw, &patch).unwrap();
    assert_eq!(patched["spec"]["containers"][0]["fieldOfTheFuture"], json!({"a": 1}));
    assert!(patched["spec"]["containers"][0].get("resources").is_none());
    assert_eq!(names(&patched, "containers"), ["app", "istio-proxy"]);
}

#[test]
fn annotations_that_cannot_be_used_are_all_named() {
    let mut pod = pod();
    pod["metadata"]["annotations"] = json!({"sidecar.istio.io/proxyCPU": "fifty", "traffic.sidecar.istio.io/excludeInboundPorts": "80,abc"});
    let error = injector().inject(subject(&pod)).unwrap_err().to_string();
    assert!(
        error.starts_with("failed to run injection template: 2 errors occurred:\n\t* invalid value 'fifty'"),
        "{error}"
    );
    assert!(error.contains("failed parsing port 'abc'"), "{error}");
}

#[test]
fn templates_that_loop_explode_or_make_no_pod_are_refused() {
    let refused = |template: &str| {
        let pod = pod();
        injector_with(config(template, "")).inject(subject(&pod)).unwrap_err().to_string()
    };
    let endless = refused("{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}");
    assert!(
        endless.contains("nest deeper") || endless.contains("exceeded maximum template depth"),
        "{endless}"
    );
    let explosion = refused("{{ range $i := until 10000 }}{{ range $j := until 10000 }}x{{ end }}{{ end }}");
    assert!(explosion.contains("more than"), "{explosion}");
    assert_eq!(
        refused("just a text"),
        "failed to run injection template: failed applying injection overlay: strategic merge: invalid JSON document"
    );
    let wrong = refused("spec: {containers: [{name: a, env: [{name: X, value: 1}]}]}");
    assert!(wrong.contains("spec.containers"), "{wrong}");
    assert!(
        refused("{{ .Spec.NoSuchField }}").contains("can't evaluate field NoSuchField in type v1.PodSpec")
    );
}

#[test]
fn a_broken_template_is_refused_with_its_name_and_line() {
    let text = "templates:\n  sidecar: |\n    a\n    {{ if }}\n";
    let error = Config::read(text, &BTreeMap::new()).unwrap_err().to_string();
    assert!(error.starts_with("template \"sidecar\": template: inject:2: missing value for if"), "{error}");
}

#[test]
fn pods_ask_for_templates_by_name_and_alias() {
    let text = "policy: enabled\naliases: {both: [a, b]}\ntemplates:\n  a: 'metadata: {labels: {a: x}}'\n  b: 'metadata: {labels: {b: x}}'\n";
    let injector = injector_with(Config::read(text, &BTreeMap::new()).unwrap());
    let mut pod = pod();
    pod["metadata"]["annotations"] = json!({"inject.istio.io/templates": "both"});
    let injected = injector.inject(subject(&pod)).unwrap();
    assert_eq!(pod::label(&injected, "a").zip(pod::label(&injected, "b")), Some(("x", "x")));
    pod["metadata"]["annotations"] = json!({"inject.istio.io/templates": "c"});
    let error = injector.inject(subject(&pod)).unwrap_err().to_string();
    assert_eq!(error, "failed to run injection template: requested template \"c\" not found; have a, b");
}

#[test]
fn labels_annotations_selectors_and_the_policy_decide_in_this_order() {
    let rules = "neverInjectSelector: [{matchLabels: {never: x}}]\nalwaysInjectSelector: [{matchExpressions: [{key: always, operator: Exists}]}]";
    let enabled = config("", rules);
    let disabled = Config { policy: Policy::Disabled, ..enabled.clone() };
    let decide = |config: &Config, labels: Json, annotations: Json| {
        config.is_required(&json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {}}))
    };
    assert!(decide(&enabled, json!({}), json!({})));
    assert!(!decide(&disabled, json!({}), json!({})));
    assert!(!decide(&enabled, json!({"never": "x"}), json!({})));
    assert!(decide(&enabled, json!({"never": "x", "sidecar.istio.io/inject": "true"}), json!({})));
    assert!(decide(&disabled, json!({"always": "y"}), json!({})));
    assert!(!decide(&disabled, json!({"always": "y", "never": "x"}), json!({})));
    assert!(!decide(
        &enabled,
        json!({"sidecar.istio.io/inject": "false"}),
        json!({"sidecar.istio.io/inject": "true"})
    ));
    assert!(decide(
        &enabled,
        json!({"sidecar.istio.io/inject": "perhaps"}),
        json!({"sidecar.istio.io/inject": "false"})
    ));
    let unknown = Config { policy: Policy::Unknown("off".to_owned()), ..enabled.clone() };
    assert!(!decide(&unknown, json!({"sidecar.istio.io/inject": "true"}), json!({})));
    assert!(!enabled.is_required(&json!({"metadata": {}, "spec": {"hostNetwork": true}})));
    assert!(!enabled.is_required(&json!({"metadata": {"namespace": "kube-system"}, "spec": {}})));
}
