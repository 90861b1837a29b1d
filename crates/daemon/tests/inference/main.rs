//! Requests to an InferencePool as real traffic meets them: a stock Envoy asks an endpoint picker where each of them goes.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../../support/agent.rs"]
mod agent;
#[path = "../../support/local_mesh.rs"]
mod local_mesh;

mod picker;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_testkit::http::{self, Method, Response};
use canopus_testkit::{Authority, Echo, Echoed, Envoy, eventually, free_port};
use tempfile::TempDir;

use agent::Agent;
use local_mesh::LocalMesh;
use local_mesh::bootstrap::Bootstrap;
use picker::{MODEL, Picker};

const PATIENCE: Duration = Duration::from_secs(20);

const FILE: &str = "models.yaml";

/// A pool of two endpoints that answer and one that does not, behind a gateway. The Service with the endpoints is the one that
/// the control plane makes for the pool in a cluster.
const OBJECTS: &str = r#"
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: llm, namespace: demo}
spec:
  selector: {matchLabels: {app: llm}}
  targetPorts: [{number: FIRST}, {number: SECOND}, {number: DEAD}]
  endpointPickerRef: {name: picker, port: {number: 9002}, failureMode: FailClose}
---
apiVersion: v1
kind: Service
metadata:
  name: llm-ip-487b9104
  namespace: demo
  labels:
    istio.io/inferencepool-name: llm
    istio.io/inferencepool-extension-service: picker
    istio.io/inferencepool-extension-port: "9002"
    istio.io/inferencepool-extension-failure-mode: FailClose
    internal.istio.io/service-semantics: inferencepool
spec:
  clusterIP: None
  selector: {app: llm}
  ports:
  - {name: http-0, port: 54321, targetPort: FIRST}
  - {name: http-1, port: 54322, targetPort: SECOND}
  - {name: http-2, port: 54323, targetPort: DEAD}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: llm, namespace: demo, labels: {kubernetes.io/service-name: llm-ip-487b9104}}
addressType: IPv4
ports:
- {name: http-0, port: FIRST, protocol: TCP}
- {name: http-1, port: SECOND, protocol: TCP}
- {name: http-2, port: DEAD, protocol: TCP}
endpoints: [{addresses: [127.0.0.1], conditions: {ready: true}}]
---
apiVersion: v1
kind: Service
metadata: {name: picker, namespace: demo}
spec: {clusterIP: 10.96.0.10, selector: {app: picker}, ports: [{name: grpc, port: 9002, targetPort: PICKER}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: picker, namespace: demo, labels: {kubernetes.io/service-name: picker}}
addressType: IPv4
ports: [{name: grpc, port: PICKER, protocol: TCP}]
endpoints: [{addresses: [127.0.0.1], conditions: {ready: IS_READY}}]
---
apiVersion: v1
kind: Service
metadata: {name: public-istio, namespace: demo}
spec:
  clusterIP: 10.96.0.90
  selector: {gateway.networking.k8s.io/gateway-name: public}
  ports: [{name: http, port: GATEWAY}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: demo}
spec: {gatewayClassName: istio, listeners: [{name: http, port: GATEWAY, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: llm, namespace: demo}
spec:
  parentRefs: [{name: public}]
  rules: [{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: llm}]}]
"#;

/// A gateway before a pool of models.
struct Models {
    mesh: LocalMesh,
    envoy: Envoy,
    gateway: SocketAddr,
    picker: Option<Picker>,
    first: Echo,
    second: Echo,
    documents: String,
    _agent: Agent,
    _sockets: TempDir,
}

impl Models {
    async fn serve() -> Result<Self> {
        let (first, second) = (Echo::start("first").await?, Echo::start("second").await?);
        let (gateway, dead) = (SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)), free_port()?);
        let picker = Picker::start(BTreeMap::from([
            ("small", first.address().to_string()),
            ("large", second.address().to_string()),
            ("moved", format!("127.0.0.1:1,{}", second.address())),
            ("crashed", format!("127.0.0.1:{dead},{}", first.address())),
        ]))
        .await?;
        let ports = [
            ("FIRST", first.address().port()),
            ("SECOND", second.address().port()),
            ("DEAD", dead),
            ("PICKER", picker.address().port()),
            ("GATEWAY", gateway.port()),
        ];
        let documents = ports
            .iter()
            .fold(OBJECTS.to_owned(), |documents, (name, port)| documents.replace(name, &port.to_string()));
        let canopusd = Path::new(env!("CARGO_BIN_EXE_canopusd"));
        let enabled = [("ENABLE_GATEWAY_API_INFERENCE_EXTENSION", "true")];
        let mesh =
            LocalMesh::start_with(canopusd, FILE, &documents.replace("IS_READY", "true"), &enabled).await?;
        let metadata = "CLUSTER_ID: Kubernetes, SERVICE_ACCOUNT: public-istio, \
                        LABELS: {gateway.networking.k8s.io/gateway-name: public}";
        let (sockets, authority) = (tempfile::tempdir()?, Authority::new()?);
        let own = "spiffe://cluster.local/ns/demo/sa/public-istio";
        let agent = Agent::start(sockets.path(), "public", &authority, own)?;
        let bootstrap = Bootstrap {
            name: "public",
            metadata,
            xds: mesh.xds,
            agent: Some(agent.socket()),
            ..Bootstrap::default()
        };
        let envoy = Envoy::start(&bootstrap.yaml()).await?;
        let picker = Some(picker);
        let models =
            Self { mesh, envoy, gateway, picker, first, second, documents, _agent: agent, _sockets: sockets };
        eventually("the first answer", PATIENCE, async || models.ask("small").await?.ok()).await?;
        Ok(models)
    }

    async fn ask(&self, model: &str) -> Result<Response> {
        let body = format!(r#"{{"model": "{model}", "prompt": "why?"}}"#);
        http::request(Method::POST, self.gateway, "/v1/completions").body(body).send().await
    }

    /// Who answers a request for a model; the request arrives whole, and the picker sees its response.
    async fn answered_by(&self, model: &str) -> Result<String> {
        let response = self.ask(model).await?;
        let told = response.headers.get(MODEL).cloned();
        let echoed = Echoed::from_body(&response.ok()?)?;
        ensure!(told.is_some_and(|told| told == model), "the picker did not see the response");
        ensure!(echoed.body.contains(r#""prompt": "why?""#), "{}", echoed.body);
        Ok(echoed.upstream)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn picker_chooses_the_endpoint_by_what_the_body_says() -> Result<()> {
    let models = Models::serve().await?;
    let before = models.picker.iter().flat_map(Picker::served).count();
    for _ in 0..3 {
        assert_eq!(models.answered_by("small").await?, "first");
        assert_eq!(models.answered_by("large").await?, "second");
    }
    // Its first choice is not in the pool, or does not answer: the next one is taken.
    assert_eq!(models.answered_by("moved").await?, "second");
    assert_eq!(models.answered_by("crashed").await?, "first");
    let refused = models.ask("huge").await?;
    assert_eq!((refused.status.as_u16(), refused.body.as_str()), (429, "no room for \"huge\""));

    let (first, second) = (models.first.address().to_string(), models.second.address().to_string());
    let served: Vec<String> = models.picker.iter().flat_map(Picker::served).skip(before).collect();
    let turns = [&first, &second, &first, &second, &first, &second, &second, &first];
    assert_eq!(served.iter().collect::<Vec<_>>(), turns);
    assert_eq!(models.envoy.rejections().await?, BTreeMap::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_fail_or_go_anywhere_without_a_picker_as_the_pool_says() -> Result<()> {
    let mut models = Models::serve().await?;
    models.picker = None;
    eventually("a failure", PATIENCE, async || {
        let response = models.ask("small").await?;
        ensure!(response.status.is_server_error(), "{response:?}");
        Ok(())
    })
    .await?;
    // Envoy lets no request pass whose body it has begun to stream to a picker that does not answer: its endpoint has to be gone.
    let without_picker = models.documents.replace("IS_READY", "false");
    models.mesh.write(FILE, &without_picker.replace("FailClose", "FailOpen"))?;
    let mut answered = BTreeSet::new();
    eventually("answers of all endpoints", PATIENCE, async || {
        answered.insert(Echoed::from_body(&models.ask("small").await?.ok()?)?.upstream);
        ensure!(answered.len() == 2, "only {answered:?}");
        Ok(())
    })
    .await?;
    // The endpoint that answers nobody is not what makes requests fail: those are tried again.
    for _ in 0..6 {
        models.ask("small").await?.ok()?;
    }
    models.mesh.write(FILE, &without_picker)?;
    eventually("a failure", PATIENCE, async || {
        let response = models.ask("small").await?;
        ensure!(response.status.is_server_error(), "{response:?}");
        Ok(())
    })
    .await?;
    assert_eq!(models.envoy.rejections().await?, BTreeMap::new());
    Ok(())
}
