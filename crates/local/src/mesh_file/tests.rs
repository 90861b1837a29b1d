use super::*;

const SHOP: &str = "
name: shop
namespace: shop
certificateLifetime: 1m
gateways:
- name: edge
  labels: {istio: ingressgateway}
  ports: [8080, '8443:443']
workloads:
- name: web
  command: [web, --port, '8080']
  port: 8080
- name: reviews-v1
  service: reviews
  version: v1
  command: reviews --version 'v 1'
  ports:
  - {port: 80, targetPort: 9080, protocol: HTTP}
  - {port: 7000, protocol: TCP, name: tcp-admin}
  replicas: 2
  restart: never
externals:
- {host: db.example.com, port: 5432, address: 'localhost:5432'}
tour:
- name: deny
  title: Nobody may call.
  apply: tour/deny.yaml
  expect:
  - status: {request: {get: 'http://localhost:8080/'}, status: 403}
  - shares: {request: {get: 'http://localhost:8080/'}, header: x-version, percent: {v1: 90, v2: 10}}
";

fn messages(text: &str) -> Vec<String> {
    MeshFile::parse(text.as_bytes()).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn file_is_read_with_its_short_notations() {
    let file = MeshFile::parse(SHOP.as_bytes()).unwrap();
    assert_eq!(file.gateways[0].ports[1], PublishedPort { host: 8443, gateway: 443 });
    let [web, reviews] = file.workloads.as_slice() else { panic!("two workloads") };
    assert_eq!(web.all_ports()[0].port, 8080);
    assert!(web.sidecar && web.restart == Restart::OnFailure && web.replicas == 1);
    assert_eq!(reviews.command.as_ref().unwrap().arguments, ["--version", "v 1"]);
    assert_eq!(reviews.service_name(), "reviews");
    let Expectation::Shares(shares) = &file.tour[0].expect[1] else { panic!("shares") };
    assert_eq!((shares.percent["v1"], shares.tolerance), (90.0, 5.0));
}

#[test]
fn syntax_error_names_line_and_column() {
    let found = messages("workloads:\n- name: [web\n");
    assert!(found[0].starts_with("3:1: ") || found[0].starts_with("2:"), "{found:?}");
}

#[test]
fn unknown_field_is_named_with_its_line() {
    let found = messages("workloads:\n- name: web\n  command: web\n  prot: 8080\n");
    assert!(found[0].starts_with("4:3: workloads[0].prot: unknown field"), "{found:?}");
}

#[test]
fn wrong_values_are_all_named_with_line_field_and_remedy() {
    let text = "
workloads:
- name: Web
  command: web
  port: 0
- name: cart
  command: cart
  port: 15001
  protocol: grcp
- name: cart
  command: cart
gateways:
- name: edge
  ports: [8080, '8080:80']
";
    let found = messages(text);
    let expected = [
        "3:9: workloads[0].name: \"Web\" is no name; use up to 40",
        "10:9: workloads[2].name: workloads[1] has this name too; use another",
        "5:9: workloads[0].port: 0 is no port; use 1 to 65535",
        "8:9: workloads[1].port: the proxy beside the program listens on 15001; have the program listen elsewhere",
        "9:13: workloads[1].protocol: \"grcp\" is not known; use HTTP,",
        "10:3: workloads[2]: another workload of the service cart has other ports; ",
        "14:17: gateways[0].ports[1]: gateways[0].ports[0] has the port 8080 of this machine; use another",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn workload_without_a_command_needs_a_port_and_a_proxy() {
    let file = MeshFile::parse(b"workloads: [{name: web, port: 80}]").unwrap();
    assert_eq!(file.workloads[0].command, None);
    for text in ["workloads: [{name: web}]", "workloads: [{name: web, port: 80, sidecar: false}]"] {
        let found = messages(text);
        assert!(
            found[0].contains("workloads[0].command: there is nothing to run; add `command`"),
            "{found:?}"
        );
    }
}

#[test]
fn empty_file_says_what_to_write() {
    assert_eq!(messages(""), ["0:0: workloads: there is nothing to run; name at least one workload"]);
}

#[test]
fn directory_gives_a_name_that_is_one() {
    for (directory, name) in [
        ("/srv/My Shop", "my-shop"),
        ("/srv/__", "mesh"),
        ("/srv/a-very-long-name-of-things", "a-very-long-name-of"),
    ] {
        assert_eq!(check::name_of_directory(Path::new(directory)), name);
    }
}
