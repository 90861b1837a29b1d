use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::Batch;
use canopus_mesh::world::MeshSettings;
use serde_json::{Value as Json, json};

use super::*;

const CONFIG: &str = "\
policy: enabled
templates:
  sidecar: |
    spec:
      containers:
      - name: istio-proxy
        image: {{ .ProxyImage }}
";

struct Fixture {
    engine: Engine,
    readiness: Readiness,
    injection: Arc<Injection>,
    directory: tempfile::TempDir,
    _revision: watch::Sender<u64>,
    keeper: InjectionKeeper,
}

fn fixture() -> Fixture {
    let flags = Flags::defaults();
    let engine = Engine::new();
    let mut batch = Batch::new();
    batch.set::<Settings>((), MeshSettings::default());
    engine.apply(batch);
    let readiness = Readiness::new();
    let injection = Injection::new(engine.clone(), readiness.clone(), &flags).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (sender, receiver) = watch::channel(0);
    let keeper = InjectionKeeper::new(Arc::clone(&injection), directory.path().to_owned(), receiver, &flags);
    Fixture { engine, readiness, injection, directory, _revision: sender, keeper }
}

impl Fixture {
    fn write(&self, config: &str, tag: &str) {
        fs::write(self.directory.path().join("config"), config).unwrap();
        let values = json!({"global": {"hub": "hub", "tag": tag}});
        fs::write(self.directory.path().join("values"), values.to_string()).unwrap();
    }

    fn add(&self, objects: &str) {
        let mut batch = Batch::new();
        for outcome in decode_documents(objects, &Limits::default(), Options::watch()) {
            let object = outcome.unwrap().value;
            batch.set::<Objects>(Origin::new(Arc::clone(&self.injection.cluster), object.key()), object);
        }
        self.engine.apply(batch);
    }

    /// The patch for a pod, as text; the status if there is none.
    fn patch(&self) -> String {
        let pod =
            json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {"containers": [{"name": "app"}]}});
        let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "1", "object": pod}});
        let body = review.to_string();
        let request = webhook::Request {
            path: "/inject",
            content_type: Some("application/json"),
            body: body.as_bytes(),
        };
        let answer = self.injection.answer(&request);
        let response: Json = serde_json::from_slice(&answer.body).unwrap_or_default();
        match response["response"]["patch"].as_str() {
            None => answer.status.to_string(),
            Some(patch) => {
                use base64::Engine as _;
                String::from_utf8(base64::engine::general_purpose::STANDARD.decode(patch).unwrap()).unwrap()
            }
        }
    }
}

#[test]
fn pods_wait_until_there_is_a_configuration() {
    let fixture = fixture();
    assert_eq!(fixture.patch(), "503");
}

#[test]
fn the_last_good_configuration_stays_when_a_new_one_is_broken_or_gone() {
    let mut fixture = fixture();
    fixture.write(CONFIG, "one");
    fixture.keeper.look();
    assert!(fixture.patch().contains("hub/proxyv2:one"));
    fixture.write("templates: {sidecar: '{{ if }}'}", "two");
    fixture.keeper.look();
    assert!(fixture.patch().contains("hub/proxyv2:one"));
    fs::remove_file(fixture.directory.path().join("config")).unwrap();
    fixture.keeper.look();
    assert!(fixture.patch().contains("hub/proxyv2:one"));
    fixture.write(CONFIG, "three");
    fixture.keeper.look();
    assert!(fixture.patch().contains("hub/proxyv2:three"));
}

#[test]
fn the_config_map_counts_when_there_are_no_files() {
    let mut fixture = fixture();
    let config = serde_json::to_string(CONFIG).unwrap();
    fixture.add(&format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: istio-sidecar-injector, namespace: istio-system}}, \
         data: {{config: {config}, values: '{{\"global\": {{\"hub\": \"map\", \"tag\": \"1\"}}}}'}}}}"
    ));
    fixture.keeper.look();
    assert!(fixture.patch().contains("map/proxyv2:1"), "{}", fixture.patch());
}

#[test]
fn native_sidecars_depend_on_every_node_when_they_are_automatic() {
    let node = |name: &str, version: &str| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, status: {{nodeInfo: {{kubeletVersion: {version}}}}}}}\n---\n"
        )
    };
    let fixture = fixture();
    let own = Arc::clone(&fixture.injection.cluster);
    let is_native = |node: &str| fixture.injection.native_sidecars(&own, node);
    let loading = fixture.readiness.register("world");
    assert!(!is_native(""), "nothing is known yet");
    loading.ready();
    assert!(is_native(""), "there are no nodes");
    assert!(!fixture.injection.native_sidecars("elsewhere", ""), "nothing is known of that cluster");
    fixture.add(&node("new", "v1.33.1"));
    assert!(is_native(""));
    fixture.add(&node("old", "v1.28.0"));
    assert!(!is_native(""));
    assert!(is_native("new"));
    assert!(!is_native("old"));
}

#[test]
fn nothing_is_injected_when_it_is_switched_off() {
    let flags = Flags::read(&[("INJECT_ENABLED", "false")]);
    assert!(Injection::new(Engine::new(), Readiness::new(), &flags).is_none());
}
