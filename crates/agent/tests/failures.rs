//! What the agent says and does when it cannot start, or its Envoy cannot run. There is no real Envoy and no control plane.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/container.rs"]
mod container;

use std::fs;
use std::net::TcpListener;

use container::Container;
use serde_json::json;

#[test]
fn agent_ends_with_envoys_code_and_last_lines_after_the_restarts_it_was_given() {
    let mut container = Container::new("echo 'the reason is here' >&2; exit 3", &[]);
    container.set("CANOPUS_ENVOY_RESTARTS", "1");
    let end = container.run();
    end.says(3, &["the last lines it wrote", "Envoy is started again in"]);
    assert!(end.log.matches("the reason is here").count() >= 2, "{}", end.log);
}

#[test]
fn missing_envoy_is_named_with_the_remedy() {
    let container = Container::new("", &[("binaryPath", json!("/no/such/envoy"))]);
    container.run().says(127, &["/no/such/envoy", "binaryPath"]);
}

#[test]
fn port_in_use_is_named_with_the_remedy() {
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let container = Container::new("sleep 60", &[("statusPort", json!(port))]);
    container.run().says(1, &[&format!("status port {port}"), "in use", "statusPort"]);

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut container = Container::new("sleep 60", &[]);
    container.set("ISTIO_META_DNS_CAPTURE", "true");
    container.set("DNS_PROXY_ADDR", &address);
    container.run().says(1, &["DNS_PROXY_ADDR", &address, "in use"]);
}

#[test]
fn template_that_cannot_be_rendered_names_its_file_and_line() {
    for (text, words) in [
        ("{\n \"a\": {{ .nodeID\n}", ["bootstrap:3", "template.json"]),
        ("{\n \"a\": {{ .nodeID }}\n}", ["not JSON", "line 2"]),
    ] {
        let mut container = Container::new("sleep 60", &[]);
        let path = container.path().join("template.json");
        fs::write(&path, text).unwrap();
        container.set("ISTIO_BOOTSTRAP", path.to_str().unwrap());
        container.run().says(1, &words);
    }
    let mut container = Container::new("sleep 60", &[]);
    container.set("ISTIO_BOOTSTRAP", "/no/such/template");
    container.run().says(1, &["ISTIO_BOOTSTRAP", "/no/such/template"]);
}

#[test]
fn template_takes_the_place_of_the_bootstrap() {
    let mut container = Container::new("cat \"$2\"; exit 0", &[]);
    let path = container.path().join("template.yaml");
    fs::write(&path, "id: {{ .nodeID }}\nport: {{ .config.ProxyAdminPort }}\n").unwrap();
    container.set("ISTIO_BOOTSTRAP", path.to_str().unwrap());
    container.run().says(0, &["id: sidecar~127.0.0.1~cart-1.shop~shop.svc.cluster.local"]);

    // A flag wins over the field that names the same thing.
    let mut container =
        Container::new("cat \"$2\"; exit 0", &[("proxyBootstrapTemplatePath", json!("/no/such"))]);
    let path = container.write("template.json", "{\"id\": \"{{ .nodeID }}\"}");
    container.flag(&format!("--templateFile={}", path.display()));
    container.run().says(0, &[r#""sidecar~127.0.0.1~cart-1.shop~shop.svc.cluster.local""#]);
}

#[test]
fn override_that_is_broken_is_reported_and_left_out() {
    let mut container = Container::new("echo \"arguments: $*\"; exit 0", &[]);
    let path = container.path().join("override.yaml");
    fs::write(&path, "admin: [").unwrap();
    container.set("ISTIO_BOOTSTRAP_OVERRIDE", path.to_str().unwrap());
    let end = container.run();
    end.says(0, &["ISTIO_BOOTSTRAP_OVERRIDE", "override.yaml", "left out"]);
    assert!(!end.log.contains("--config-yaml"), "{}", end.log);
}

#[test]
fn state_that_cannot_be_kept_stops_nothing() {
    let mut container = Container::new("exit 0", &[]);
    container.set("CANOPUS_STATE_DIRECTORY", "/proc/no/such/place");
    container.run().says(0, &["CANOPUS_STATE_DIRECTORY", "/proc/no/such/place"]);
}

#[test]
fn settings_that_cannot_be_used_name_the_variable() {
    for (name, text) in [
        ("BLOCKED_CIDRS_IN_WASM_FETCH", "ten"),
        ("CA_PROVIDER", "Nobody"),
        ("ECC_SIGNATURE_ALGORITHM", "Rot13"),
        ("CA_ADDR", "nowhere"),
        ("CREDENTIAL_FETCHER_TYPE", "GoogleComputeEngine"),
        ("ISTIO_KUBE_APP_PROBERS", "{"),
    ] {
        let mut container = Container::new("sleep 60", &[]);
        container.set(name, text);
        container.run().says(1, &[name]);
    }
}
