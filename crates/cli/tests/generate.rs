//! `canopus generate` as people and scripts meet it.
#![expect(clippy::unwrap_used, reason = "a test that cannot run the program has failed")]

use std::fs;
use std::process::{Command, Output};

use canopus_testkit::Envoy;
use serde_json::Value;
use tempfile::TempDir;

const WORLD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: ingress-1, namespace: edge, labels: {istio: ingressgateway}}
spec: {serviceAccountName: ingress, nodeName: n1}
status: {phase: Running, podIP: 10.0.0.9, podIPs: [{ip: 10.0.0.9}]}
---
apiVersion: v1
kind: Service
metadata: {name: ingress, namespace: edge}
spec:
  clusterIP: 10.1.0.1
  selector: {istio: ingressgateway}
  ports: [{name: https, port: 443, targetPort: 8443}]
---
apiVersion: v1
kind: Secret
metadata: {name: cert, namespace: edge}
stringData: {tls.crt: chain, tls.key: very-private}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: web, namespace: edge}
spec:
  selector: {istio: ingressgateway}
  servers:
  - port: {number: 443, name: https, protocol: HTTPS}
    hosts: [a.example.com]
    tls: {mode: SIMPLE, credentialName: cert}
  - port: {number: 443, name: again, protocol: HTTPS}
    hosts: [a.example.com]
    tls: {mode: SIMPLE, credentialName: cert}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: edge}
spec:
  hosts: [a.example.com]
  gateways: [web]
  http: [{route: [{destination: {host: ingress, port: {number: 443}}}]}]
---
apiVersion: example.com/v1
kind: Unrelated
metadata: {name: other}
";

fn run(files: &[(&str, &str)], arguments: &[&str]) -> Output {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let program = env!("CARGO_BIN_EXE_canopus");
    Command::new(program).arg("generate").args(arguments).current_dir(folder.path()).output().unwrap()
}

fn gateway(more: &[&str]) -> Output {
    let arguments = [&["-f", "mesh.yaml", "--pod", "ingress-1.edge", "--type", "router"], more].concat();
    run(&[("mesh.yaml", WORLD)], &arguments)
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[test]
fn a_pod_of_the_files_gets_its_resources_by_type() {
    let output = gateway(&[]);
    let all = json(&output);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(names(&all["lds"]), ["0.0.0.0_8443"]);
    assert_eq!(names(&all["rds"]), ["https.443.https.web.edge"]);
    assert_eq!(names(&all["sds"]), ["kubernetes://cert"]);
    assert!(names(&all["cds"]).contains(&"outbound|443||ingress.edge.svc.cluster.local"));
    let listener = &all["lds"][0]["resource"];
    assert_eq!(listener["@type"], "type.googleapis.com/envoy.config.listener.v3.Listener");
    assert_eq!(listener["filterChains"][0]["filterChainMatch"]["serverNames"][0], "a.example.com");
}

#[test]
fn flags_describe_a_proxy_as_a_node_file_does() {
    let node = r#"{"id": "router~10.0.0.9~ingress-1.edge~edge.svc.cluster.local", "metadata": {
        "ISTIO_VERSION": "1.32.0", "NAME": "ingress-1", "NAMESPACE": "edge", "SERVICE_ACCOUNT": "ingress",
        "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": "10.0.0.9", "MESH_ID": "cluster.local", "NODE_NAME": "n1",
        "LABELS": {"istio": "ingressgateway"}}}"#;
    let files = [("mesh.yaml", WORLD), ("node.json", node)];
    let of_file = run(&files, &["-f", "mesh.yaml", "--proxy", "node.json"]);
    let of_pod = gateway(&[]);
    assert_eq!(of_file.status.code(), Some(0), "{of_file:?}");
    assert_eq!(json(&of_file), json(&of_pod));
    let of_flags = run(
        &files,
        &[
            "-f",
            "mesh.yaml",
            "-n",
            "edge",
            "--type",
            "router",
            "--name",
            "ingress-1",
            "--ip",
            "10.0.0.9",
            "--labels",
            "istio=ingressgateway",
            "--service-account",
            "ingress",
            "--metadata",
            "NODE_NAME=n1",
        ],
    );
    assert_eq!(json(&of_flags), json(&of_pod));
}

#[test]
fn canonical_output_of_one_type_is_a_sorted_list_without_versions() {
    let output = gateway(&["--types", "cds", "--canonical"]);
    let list = json(&output);
    let names = names(&list);
    assert!(names.is_sorted() && names.len() > 1, "{names:?}");
    assert!(list[0].get("version").is_none());
}

#[test]
fn private_keys_are_left_out_unless_they_are_asked_for() {
    let private = "dmVyeS1wcml2YXRl";
    let hidden = gateway(&["-o", "yaml"]);
    assert!(!String::from_utf8(hidden.stdout).unwrap().contains(private));
    let shown = gateway(&["-o", "yaml", "--show-secrets"]);
    assert!(String::from_utf8(shown.stdout).unwrap().contains(private));
}

#[test]
fn credentials_for_pulling_modules_are_left_out_unless_they_are_asked_for() {
    let plugin = "\
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: w, namespace: edge}
spec: {url: 'oci://registry.example.com/filter:1', imagePullSecret: pull}
---
apiVersion: v1
kind: Secret
metadata: {name: pull, namespace: edge}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: hush}
";
    let printed = |more: &[&str]| {
        let arguments =
            [&["-f", ".", "--pod", "ingress-1.edge", "--type", "router", "--types", "ecds"], more].concat();
        let output = run(&[("mesh.yaml", WORLD), ("plugin.yaml", plugin)], &arguments);
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(printed(&["--show-secrets"]).contains("hush"));
    let hidden = printed(&[]);
    assert!(!hidden.contains("hush") && hidden.contains("[redacted]"), "{hidden}");
}

#[test]
fn config_dump_has_envoys_shape() {
    let dump = json(&gateway(&["-o", "config_dump"]));
    let configs = dump["configs"].as_array().unwrap();
    let of = |name: &str| {
        let wanted = format!("type.googleapis.com/envoy.admin.v3.{name}");
        configs.iter().find(|config| config["@type"] == wanted).unwrap()
    };
    let listener = &of("ListenersConfigDump")["dynamicListeners"][0];
    assert_eq!(listener["name"], "0.0.0.0_8443");
    assert_eq!(listener["activeState"]["listener"]["name"], "0.0.0.0_8443");
    let routes = &of("RoutesConfigDump")["dynamicRouteConfigs"][0]["routeConfig"];
    assert_eq!(routes["virtualHosts"][0]["domains"][0], "a.example.com");
    assert_eq!(of("SecretsConfigDump")["dynamicActiveSecrets"][0]["name"], "kubernetes://cert");
}

#[test]
fn short_output_is_a_line_for_each_resource() {
    let text = String::from_utf8(gateway(&["-o", "short", "--types", "lds,sds"]).stdout).unwrap();
    let lines: Vec<_> =
        text.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>()).collect();
    assert_eq!(lines, [["TYPE", "NAME"], ["lds", "0.0.0.0_8443"], ["sds", "kubernetes://cert"]]);
}

#[test]
fn diagnostics_name_what_was_left_out() {
    let output = gateway(&["--diagnostics", "--types", "lds"]);
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(
        said.contains("Gateway edge/web server 1: another server of the port has the hosts a.example.com"),
        "{said}"
    );
    assert!(said.contains("error [IST0145] Gateway edge/web: spec.servers[1]: another server"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    assert!(gateway(&["--types", "lds"]).stderr.is_empty());
}

#[test]
fn unreadable_objects_are_named_and_the_rest_is_generated() {
    let broken =
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: bad}\nspec: {servers: 7}\n";
    let files = [("mesh.yaml", WORLD), ("bad.yaml", broken)];
    let output = run(&files, &["-f", ".", "--pod", "ingress-1.edge", "--type", "router", "--types", "lds"]);
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("bad.yaml") && said.contains("servers"), "{said}");
    assert_eq!(names(&json(&output)), ["0.0.0.0_8443"]);
}

#[test]
fn mesh_configuration_and_settings_take_effect() {
    let map = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: \"defaultConfig: {gatewayTopology: {numTrustedProxies: 2}}\"}
";
    let files = [("mesh.yaml", WORLD), ("config.yaml", map)];
    let output = run(
        &files,
        &[
            "-f",
            "mesh.yaml",
            "--pod",
            "ingress-1.edge",
            "--type",
            "router",
            "--types",
            "lds",
            "--mesh-config",
            "config.yaml",
            "--env",
            "PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT=3s",
        ],
    );
    let chain = &json(&output)[0]["resource"]["filterChains"][0];
    assert_eq!(chain["transportSocketConnectTimeout"], "3s");
    assert_eq!(chain["filters"][0]["typedConfig"]["xffNumTrustedHops"], 2);
}

#[test]
fn nonsense_on_the_command_line_is_told_apart_from_failure() {
    assert_eq!(run(&[], &["-f", "x", "--types", "xyz"]).status.code(), Some(64));
    assert_eq!(run(&[], &[]).status.code(), Some(64));
    let unknown_pod = run(&[("mesh.yaml", WORLD)], &["-f", "mesh.yaml", "--pod", "nobody"]);
    assert_eq!(unknown_pod.status.code(), Some(1));
    let said = String::from_utf8(unknown_pod.stderr).unwrap();
    assert_eq!(said, "Error: there is no pod nobody in namespace default\n");
}

#[tokio::test]
async fn real_envoy_accepts_the_file_made_for_it() {
    let info = Envoy::launch("{}").await.unwrap().ask("/server_info").await.unwrap();
    let files = [("mesh.yaml", WORLD), ("info.json", info.as_str())];
    let arguments = ["-f", "mesh.yaml", "-n", "edge", "--ip", "10.0.0.7", "-o", "bootstrap"];
    let of_istio = run(&files, &arguments);
    let stock = run(&files, &[&arguments[..], &["--server-info", "info.json"]].concat());
    assert_eq!(stock.status.code(), Some(0), "{stock:?}");
    Envoy::validate(&String::from_utf8(stock.stdout).unwrap()).await.unwrap();
    let refusal = Envoy::validate(&String::from_utf8(of_istio.stdout).unwrap()).await.unwrap_err();
    assert!(refusal.to_string().contains("istio"), "{refusal}");
}
