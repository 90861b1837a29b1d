//! `canopus world` as people and scripts meet it.
#![expect(clippy::unwrap_used, reason = "a test that cannot run the program has failed")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use tempfile::TempDir;

const WORLD: &str = "\
apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: books}
spec: {clusterIP: 10.1.0.1, selector: {app: reviews}, ports: [{name: http, port: 9080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: reviews-1, namespace: books, labels: {app: reviews}}
spec: {serviceAccountName: reader, nodeName: n1}
status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: reviews-x, namespace: books, labels: {kubernetes.io/service-name: reviews}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: reviews-1, namespace: books}}]
ports: [{name: http, port: 9080, protocol: TCP}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: far}
spec: {hosts: [api.example.com], resolution: DNS, location: MESH_EXTERNAL, ports: [{number: 443, name: tls, protocol: TLS}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: books}
spec: {hosts: [reviews], http: [{route: [{destination: {host: reviews, subset: v1}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: books}
spec: {host: reviews, subsets: [{name: v1, labels: {version: v1}}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: books}
spec: {mtls: {mode: STRICT}}
";

const TABLE: &str = "\
SERVICE                           NAMESPACE   REGISTRY     RESOLUTION   ADDRESSES   PORTS       ENDPOINTS   OBJECTS
api.example.com                   far         External     DNS          -           443/TLS     1           ServiceEntry/outside.far
reviews.books.svc.cluster.local   books       Kubernetes   STATIC       10.1.0.1    9080/HTTP   1           Service/reviews.books

ENDPOINT              SERVICE                           PORT   HEALTH    LOCALITY   NETWORK   IDENTITY                                    OBJECT
api.example.com:443   api.example.com                   tls    UNKNOWN   -          -         -                                           ServiceEntry/outside.far
10.0.0.1:9080         reviews.books.svc.cluster.local   http   HEALTHY   r/z        -         spiffe://cluster.local/ns/books/sa/reader   Pod/reviews-1.books

SCOPE             OF                                OBJECTS
Sidecar           -                                 -
Other hosts       allowed                           -
VirtualService    reviews.books.svc.cluster.local   VirtualService/reviews.books
DestinationRule   reviews.books.svc.cluster.local   DestinationRule/reviews.books
Host              api.example.com                   -
Host              reviews.books.svc.cluster.local   -

POLICY                  OBJECTS
Mutual TLS              STRICT
AuthorizationPolicy     -
EnvoyFilter             -
PeerAuthentication      PeerAuthentication/strict.books
ProxyConfig             -
RequestAuthentication   -
Sidecar                 -
Telemetry               -
TrafficExtension        -
WasmPlugin              -
";

fn run(arguments: &[&str]) -> Output {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("mesh.yaml"), WORLD).unwrap();
    let program = env!("CARGO_BIN_EXE_canopus");
    let arguments = [&["world", "-f", "mesh.yaml"], arguments].concat();
    Command::new(program).args(arguments).current_dir(folder.path()).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["-o", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn table_has_a_section_for_each_sort_of_fact() {
    let output = run(&["--pod", "reviews-1.books"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), TABLE);
}

#[test]
fn services_are_chosen_by_host_and_namespace() {
    let hosts = |arguments: &[&str]| {
        let world = json(arguments);
        let services = world["services"].as_array().unwrap().clone();
        services.iter().map(|service| service["host"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(hosts(&["--service", "reviews"]), ["reviews.books.svc.cluster.local"]);
    assert_eq!(hosts(&["--service", "*.example.com"]), ["api.example.com"]);
    assert_eq!(hosts(&["-n", "far"]), ["api.example.com"]);
}

#[test]
fn each_fact_names_the_objects_behind_it() {
    let world = json(&["--service", "reviews"]);
    let service = &world["services"][0];
    assert_eq!(service["definedBy"][0]["kind"], "Service");
    let behind = service["endpointObjects"].as_array().unwrap();
    let kinds: Vec<_> = behind.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["EndpointSlice", "Node", "Pod", "Service"]);
    assert_eq!(service["endpoints"][0]["object"]["name"], "reviews-1");
    assert!(world.get("proxy").is_none());
}

#[test]
fn dependents_are_told_when_they_are_asked_for() {
    let arguments = ["--pod", "reviews-1.books", "--service", "reviews"];
    assert!(json(&arguments)["services"][0].get("dependents").is_none());
    let world = json(&[&arguments[..], &["--dependents"]].concat());
    let dependents = world["services"][0]["dependents"].as_array().unwrap();
    let of = |query: &str| dependents.iter().find(|affected| affected["query"] == query);
    assert_eq!(of("clusters").unwrap()["count"], 1);
    assert!(of("scopes").is_some() && of("endpoints").is_some());
}

#[test]
fn service_that_is_not_there_is_said_to_be_missing() {
    let output = run(&["--service", "nobody", "-n", "books"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "Error: there is no service nobody in namespace books\n"
    );
}

#[test]
fn yaml_says_the_same_as_json() {
    let output = run(&["-o", "yaml", "--service", "reviews"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("host: reviews.books.svc.cluster.local"), "{text}");
}

/// A control plane that answers one question; it gives back what was asked for.
fn control_plane(status: &'static str, body: String) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let lines: Vec<String> =
            BufReader::new(&stream).lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        write!(stream, "HTTP/1.0 {status}\r\ncontent-type: application/json\r\n\r\n{body}").unwrap();
        lines[0].clone()
    });
    (url, answering)
}

fn ask(url: &str, arguments: &[&str]) -> Output {
    let arguments = [&["world", "--daemon", url], arguments].concat();
    Command::new(env!("CARGO_BIN_EXE_canopus")).args(arguments).output().unwrap()
}

#[test]
fn running_control_plane_is_shown_as_files_are() {
    let answer = json(&["--pod", "reviews-1.books"]).to_string();
    let (url, asked) = control_plane("200 OK", answer);
    let output = ask(&url, &["--pod", "reviews-1.books", "--dependents"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), TABLE);
    assert_eq!(asked.join().unwrap(), "GET /debug/world?proxyID=reviews-1.books&dependents=true HTTP/1.1");
}

#[test]
fn refusal_of_a_control_plane_is_passed_on() {
    let (url, asked) = control_plane("404 Not Found", "Proxy not connected to this Pilot instance".into());
    let output = ask(&url, &["--pod", "nobody", "-n", "books", "--service", "*.com"]);
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("answers 404: Proxy not connected"), "{words}");
    let asked = asked.join().unwrap();
    assert_eq!(asked, "GET /debug/world?service=%2A.com&namespace=books&proxyID=nobody.books HTTP/1.1");
}

#[test]
fn control_plane_is_asked_about_connected_proxies_alone() {
    let output = ask("http://127.0.0.1:1", &["--labels", "app=a"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("name a connected proxy with --pod"));
}
