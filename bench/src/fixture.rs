//! The mesh that both subjects are given.

use serde_json::{Value, json};

use crate::client::Role;

/// The namespace whose proxies see little, by a Sidecar.
pub(crate) const EDGE: &str = "edge";

/// The port of every service.
pub(crate) const PORT: u16 = 80;

/// How many services, in how many namespaces, for how many proxies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixture {
    /// Services, each with two endpoints.
    pub(crate) services: usize,
    /// Namespaces they are spread over.
    pub(crate) namespaces: usize,
    /// Proxies: one in a hundred lives in [`EDGE`], the others in the namespaces of the services.
    pub(crate) proxies: usize,
}

impl Fixture {
    /// How many proxies live in [`EDGE`].
    pub(crate) fn edge_proxies(&self) -> usize {
        (self.proxies / 100).max(1).min(self.proxies)
    }

    /// How many proxies see all services.
    pub(crate) fn wide_proxies(&self) -> usize {
        self.proxies - self.edge_proxies()
    }

    /// How many proxies see a service: those of [`EDGE`] see one namespace beside their own.
    pub(crate) fn viewers(&self, service: usize) -> usize {
        match self.namespace(service) == self.namespace(0) {
            true => self.proxies,
            false => self.wide_proxies(),
        }
    }

    /// Who the proxies are; those of [`EDGE`] come last.
    pub(crate) fn roles(&self) -> Vec<Role> {
        let wide = (0..self.wide_proxies()).map(|index| Role {
            index,
            namespace: self.namespace(index),
            app: "client".to_owned(),
        });
        let edge = (self.wide_proxies()..self.proxies).map(|index| Role {
            index,
            namespace: EDGE.to_owned(),
            app: "client".to_owned(),
        });
        wide.chain(edge).collect()
    }

    /// The namespace of a service.
    pub(crate) fn namespace(&self, service: usize) -> String {
        format!("team-{:03}", service % self.namespaces)
    }

    /// The host of a service.
    pub(crate) fn host(&self, service: usize) -> String {
        format!("{}.{}.svc.cluster.local", name(service), self.namespace(service))
    }

    /// What proxies call the cluster of a service.
    pub(crate) fn cluster(&self, service: usize) -> String {
        format!("outbound|{PORT}||{}", self.host(service))
    }

    /// Every object, with the collection it goes to, in an order in which they can be created.
    pub(crate) fn objects(&self) -> Vec<(String, Value)> {
        let own = (0..self.namespaces).map(|n| self.namespace(n));
        let namespaces = own.chain([EDGE.to_owned(), "istio-system".to_owned()]);
        let mut objects: Vec<_> = namespaces.map(|name| namespace(&name)).collect();
        for service in 0..self.services {
            objects.push(self.service(service));
            objects.push(self.slice(service));
        }
        objects.extend((0..self.services).step_by(10).map(|service| self.virtual_service(service)));
        objects.push((
            collection("Sidecar", EDGE),
            json!({
                "apiVersion": "networking.istio.io/v1",
                "kind": "Sidecar",
                "metadata": {"name": "default"},
                "spec": {"egress": [{"hosts": ["./*", format!("{}/*", self.namespace(0))]}]},
            }),
        ));
        objects.push((
            collection("VirtualService", EDGE),
            json!({
                "apiVersion": "networking.istio.io/v1",
                "kind": "VirtualService",
                "metadata": {"name": "narrow"},
                "spec": {"exportTo": ["."], "hosts": [self.host(0)], "http": self.routes(0, 5)},
            }),
        ));
        objects
    }

    fn service(&self, service: usize) -> (String, Value) {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name(service), "labels": {"app": name(service)}},
            "spec": {"ports": [{"name": "http", "port": PORT, "targetPort": 8080}]},
        });
        (collection("Service", &self.namespace(service)), object)
    }

    /// A service that is not part of the fixture, to be added and removed.
    pub(crate) fn extra_service(&self) -> [(String, Value); 2] {
        [self.service(self.services), self.slice(self.services)]
    }

    fn slice(&self, service: usize) -> (String, Value) {
        let object = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name(service), "labels": {"kubernetes.io/service-name": name(service)}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": endpoints(service, true),
        });
        (collection("EndpointSlice", &self.namespace(service)), object)
    }

    fn virtual_service(&self, service: usize) -> (String, Value) {
        let object = json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": "VirtualService",
            "metadata": {"name": name(service)},
            "spec": {"hosts": [self.host(service)], "http": self.routes(service, 5)},
        });
        (collection("VirtualService", &self.namespace(service)), object)
    }

    /// Routes to a service that give up after so many seconds.
    pub(crate) fn routes(&self, service: usize, timeout: usize) -> Value {
        json!([{
            "name": "main",
            "timeout": format!("{timeout}s"),
            "retries": {"attempts": 2, "perTryTimeout": "1s"},
            "route": [{"destination": {"host": self.host(service)}}],
        }])
    }

    /// Where a service is.
    pub(crate) fn service_path(&self, service: usize) -> String {
        format!("{}/{}", collection("Service", &self.namespace(service)), name(service))
    }

    /// Where the endpoints of a service are.
    pub(crate) fn slice_path(&self, service: usize) -> String {
        format!("{}/{}", collection("EndpointSlice", &self.namespace(service)), name(service))
    }

    /// Where the VirtualService of a service is; every tenth has one.
    pub(crate) fn virtual_service_path(&self, service: usize) -> String {
        format!("{}/{}", collection("VirtualService", &self.namespace(service)), name(service))
    }

    /// Where the VirtualService is that only proxies of [`EDGE`] see.
    pub(crate) fn narrow_path(&self) -> String {
        format!("{}/narrow", collection("VirtualService", EDGE))
    }
}

/// The two endpoints of a service, the second of which may not be ready.
pub(crate) fn endpoints(service: usize, second_is_ready: bool) -> Value {
    let address = |n: usize| {
        let at = service * 2 + n;
        format!("10.{}.{}.{}", 128 + at / 62_500, at / 250 % 250, at % 250 + 1)
    };
    json!([
        {"addresses": [address(0)], "conditions": {"ready": true}},
        {"addresses": [address(1)], "conditions": {"ready": second_is_ready}},
    ])
}

/// The path of the objects of a kind in a namespace.
pub(crate) fn collection(kind: &str, namespace: &str) -> String {
    let (group, plural) = match kind {
        "Service" => ("/api/v1", "services"),
        "EndpointSlice" => ("/apis/discovery.k8s.io/v1", "endpointslices"),
        "Sidecar" => ("/apis/networking.istio.io/v1", "sidecars"),
        "PeerAuthentication" => ("/apis/security.istio.io/v1", "peerauthentications"),
        _ => ("/apis/networking.istio.io/v1", "virtualservices"),
    };
    format!("{group}/namespaces/{namespace}/{plural}")
}

fn namespace(name: &str) -> (String, Value) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    ("/api/v1/namespaces".to_owned(), object)
}

fn name(service: usize) -> String {
    format!("svc-{service:05}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const FIXTURE: Fixture = Fixture { services: 30, namespaces: 4, proxies: 200 };

    #[test]
    fn one_proxy_in_a_hundred_sees_little() {
        let roles = FIXTURE.roles();
        assert_eq!(roles.len(), 200);
        assert_eq!(roles.iter().filter(|role| role.namespace == EDGE).count(), 2);
        assert!(roles.iter().enumerate().all(|(at, role)| role.index == at));
    }

    #[test]
    fn no_object_is_there_twice() {
        let objects = FIXTURE.objects();
        let paths: BTreeSet<_> =
            objects.iter().map(|(path, object)| (path, object["metadata"]["name"].as_str())).collect();
        assert_eq!(paths.len(), objects.len());
        assert_eq!(objects.len(), 6 + 2 * 30 + 3 + 2);
    }

    #[test]
    fn endpoints_of_services_differ() {
        let of = |service| endpoints(service, true)[1]["addresses"][0].as_str().unwrap().to_owned();
        let all: BTreeSet<_> = (0..50_000).map(of).collect();
        assert_eq!(all.len(), 50_000);
    }
}
