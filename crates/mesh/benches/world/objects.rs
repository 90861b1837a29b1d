//! A mesh of a given size: for each service one Service, one EndpointSlice, two pods and one VirtualService, fifty services
//! to a namespace, and for each namespace five Sidecars that import the namespace and that of the control plane.

use std::collections::BTreeMap;

use canopus_api::istio::{Sidecar, VirtualService};
use canopus_api::kube::{
    Endpoint, EndpointConditions, EndpointPort, EndpointSlice, ObjectReference, Pod, PodIp, PodPhase,
    Service, ServicePort,
};
use canopus_api::value::IntOrString;
use canopus_api::{Kind, Object, ObjectKey, labels};
use canopus_engine::Batch;
use canopus_mesh::service::ServiceKey;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::networking::v1alpha3::{
    Destination, HttpRoute, HttpRouteDestination, IstioEgressListener, WorkloadSelector,
};

const SERVICES_PER_NAMESPACE: usize = 50;
pub(crate) const SIDECARS_PER_NAMESPACE: usize = 5;
const CLUSTER: &str = "Kubernetes";

/// What can be edited of a service.
#[derive(Clone)]
pub(crate) struct State {
    /// Whether it is there at all.
    pub(crate) exists: bool,
    /// Whether its first endpoint is ready.
    pub(crate) ready: bool,
    /// The value of a label of its first pod.
    pub(crate) version: usize,
    /// The timeout its VirtualService sets.
    pub(crate) timeout: i64,
    /// Whether it has a second port.
    pub(crate) second_port: bool,
    /// The value of an annotation that means nothing.
    pub(crate) annotation: usize,
    /// How often the API server has seen its VirtualService.
    pub(crate) seen: usize,
}

/// A mesh as its users would describe it.
pub(crate) struct Model {
    states: Vec<State>,
}

impl Model {
    pub(crate) fn new(services: usize) -> Self {
        let state = State {
            exists: true,
            ready: true,
            version: 0,
            timeout: 1,
            second_port: false,
            annotation: 0,
            seen: 0,
        };
        Self { states: vec![state; services] }
    }

    pub(crate) fn services(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn namespaces(&self) -> usize {
        self.services().div_ceil(SERVICES_PER_NAMESPACE)
    }

    pub(crate) fn state(&mut self, at: usize) -> &mut State {
        &mut self.states[at]
    }

    pub(crate) fn service_key(&self, at: usize) -> ServiceKey {
        ServiceKey::new(host(at), namespace(at))
    }

    pub(crate) fn sidecar_origin(&self, in_namespace: usize, at: usize) -> Origin {
        origin(Kind::Sidecar, &format!("team-{in_namespace}"), &format!("sidecar-{at}"))
    }

    /// All objects.
    pub(crate) fn batch(&self) -> Batch {
        let mut batch = Batch::new();
        batch.set::<Settings>((), MeshSettings::default());
        for at in 0..self.services() {
            self.set_service(&mut batch, at);
            self.set_slice(&mut batch, at);
            self.set_route(&mut batch, at);
            (0..2).for_each(|pod| self.set_pod(&mut batch, at, pod));
        }
        for in_namespace in 0..self.namespaces() {
            for at in 0..SIDECARS_PER_NAMESPACE {
                let key = self.sidecar_origin(in_namespace, at);
                set(&mut batch, sidecar(key.namespace(), key.name(), at));
            }
        }
        batch
    }

    pub(crate) fn set_service(&self, batch: &mut Batch, at: usize) {
        let state = &self.states[at];
        if !state.exists {
            batch.remove::<Objects>(&origin(Kind::Service, &namespace(at), &name(at)));
            return;
        }
        let mut service = Service::new(&namespace(at), &name(at), Default::default());
        service.meta.annotations.insert("example.com/note", state.annotation.to_string());
        service.spec.cluster_ip = address(10, at, 0).into();
        service.spec.selector.insert("app", name(at));
        let port = |number: u16| ServicePort {
            name: format!("http-{number}").into(),
            port: number,
            target_port: Some(IntOrString::Int(8080)),
            ..Default::default()
        };
        service.spec.ports.push(port(80));
        if state.second_port {
            service.spec.ports.push(port(8080));
        }
        set(batch, service);
    }

    pub(crate) fn set_slice(&self, batch: &mut Batch, at: usize) {
        let mut slice =
            EndpointSlice::new(&namespace(at), &format!("{}-slice", name(at)), Default::default());
        slice.meta.labels.insert(labels::KUBERNETES_SERVICE_NAME.name, name(at));
        slice.spec.ports.push(EndpointPort {
            name: "http-80".into(),
            port: Some(8080),
            ..Default::default()
        });
        slice.spec.endpoints = (0..2).map(|pod| self.endpoint(at, pod)).collect();
        set(batch, slice);
    }

    fn endpoint(&self, at: usize, pod: usize) -> Endpoint {
        let ready = pod > 0 || self.states[at].ready;
        Endpoint {
            addresses: vec![address(11 + pod, at, pod).into()],
            conditions: EndpointConditions {
                ready: Some(ready),
                serving: Some(ready),
                terminating: Some(false),
            },
            target_ref: Some(ObjectReference {
                kind: "Pod".into(),
                namespace: namespace(at).into(),
                name: pod_name(at, pod).into(),
            }),
            ..Default::default()
        }
    }

    pub(crate) fn set_pod(&self, batch: &mut Batch, at: usize, number: usize) {
        let mut pod = Pod::new(&namespace(at), &pod_name(at, number), Default::default());
        pod.meta.labels.insert("app", name(at));
        let version = if number == 0 { self.states[at].version } else { 0 };
        pod.meta.labels.insert("version", format!("v{version}"));
        pod.meta.labels.insert(labels::SECURITY_TLS_MODE.name, "istio");
        pod.spec.service_account_name = name(at).into();
        pod.spec.node_name = format!("node-{}", at % 100).into();
        pod.status.phase = PodPhase::Running;
        pod.status.pod_ip = address(11 + number, at, number).into();
        pod.status.pod_ips = vec![PodIp { ip: pod.status.pod_ip.clone() }];
        set(batch, pod);
    }

    pub(crate) fn set_route(&self, batch: &mut Batch, at: usize) {
        let state = &self.states[at];
        let mut route = VirtualService::new(&namespace(at), &name(at), Default::default());
        route.meta.resource_version = state.seen.to_string().into();
        route.spec.hosts = vec![host(at)];
        route.spec.http = vec![HttpRoute {
            timeout: Some(Duration { seconds: state.timeout, nanos: 0 }),
            route: vec![HttpRouteDestination {
                destination: Some(Destination { host: host(at), ..Default::default() }),
                ..Default::default()
            }],
            ..Default::default()
        }];
        set(batch, route);
    }
}

fn sidecar(namespace: &str, name: &str, at: usize) -> Sidecar {
    let mut sidecar = Sidecar::new(namespace, name, Default::default());
    sidecar.spec.workload_selector =
        Some(WorkloadSelector { labels: BTreeMap::from([("group".to_owned(), at.to_string())]) });
    sidecar.spec.egress = vec![IstioEgressListener {
        hosts: vec!["./*".to_owned(), "istio-system/*".to_owned()],
        ..Default::default()
    }];
    sidecar
}

fn set(batch: &mut Batch, object: impl Into<Object>) {
    let object = object.into();
    batch.set::<Objects>(Origin::new(CLUSTER, object.key()), object);
}

fn origin(kind: Kind, namespace: &str, name: &str) -> Origin {
    Origin::new(CLUSTER, ObjectKey::new(kind, namespace, name))
}

fn namespace(at: usize) -> String {
    format!("team-{}", at / SERVICES_PER_NAMESPACE)
}

fn name(at: usize) -> String {
    format!("service-{at}")
}

fn pod_name(at: usize, number: usize) -> String {
    format!("service-{at}-{number}")
}

fn host(at: usize) -> String {
    format!("{}.{}.svc.cluster.local", name(at), namespace(at))
}

fn address(first: usize, at: usize, last: usize) -> String {
    format!("{first}.{}.{}.{}", at / 16_384 + last, at / 128 % 128, at % 128 + 1)
}
