//! The mesh that both subjects are given: services, workloads, and the proxies that connect.
//!
//! A real fleet has Deployments with several pods on nodes in three zones, a tenth of the proxies are ingress gateways, a
//! twentieth waypoints, and every pod, node and account is in the API server. A uniform one has proxies that all say the same
//! of themselves and no pods. Everything follows from the numbers of a [`Fixture`]: the same numbers are the same mesh.

mod objects;
mod place;
mod pod;
mod workload;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use objects::{collection, gateway_api_definitions};
pub(crate) use place::{KubeNode, ZONES, time};
pub(crate) use pod::Pod;
pub(crate) use workload::{CANARY, INGRESS, Workload, WorkloadKind};

use crate::client::Role;

/// The namespace whose proxies see little, by a Sidecar.
pub(crate) const EDGE: &str = "edge";

/// The port of every service.
pub(crate) const PORT: u16 = 80;

/// Deployments of gateways, and of waypoints, at the most.
const MOST_GATEWAYS: usize = 5;

/// Which proxies there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FleetKind {
    /// Sidecars, gateways and waypoints of many workloads, which say of themselves what injected ones do.
    #[default]
    Real,
    /// Sidecars that all say the same of themselves.
    Uniform,
}

/// How many services, in how many namespaces, for which proxies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixture {
    /// Which proxies there are.
    pub(crate) fleet: FleetKind,
    /// Services, each with endpoints.
    pub(crate) services: usize,
    /// Namespaces they are spread over.
    pub(crate) namespaces: usize,
    /// Proxies: one in a hundred lives in [`EDGE`].
    pub(crate) proxies: usize,
    /// Deployments with sidecars, each behind the service of its number; only in a real fleet.
    pub(crate) workloads: usize,
    /// Kubernetes nodes; only for a real fleet.
    pub(crate) nodes: usize,
}

impl Fixture {
    /// How many proxies live in [`EDGE`].
    pub(crate) fn edge_proxies(&self) -> usize {
        (self.proxies / 100).max(1).min(self.proxies)
    }

    /// How many proxies are ingress gateways.
    pub(crate) fn gateways(&self) -> usize {
        if self.is_real() { self.proxies / 10 } else { 0 }
    }

    /// How many proxies are waypoints.
    pub(crate) fn waypoints(&self) -> usize {
        if self.is_real() { self.proxies / 20 } else { 0 }
    }

    /// How many sidecars see all services.
    pub(crate) fn wide_sidecars(&self) -> usize {
        self.proxies - self.edge_proxies() - self.gateways() - self.waypoints()
    }

    /// How many proxies are sidecars.
    pub(crate) fn sidecars(&self) -> usize {
        self.wide_sidecars() + self.edge_proxies()
    }

    /// Whether proxies have pods.
    pub(crate) fn is_real(&self) -> bool {
        self.fleet == FleetKind::Real
    }

    /// How many proxies have the cluster of a service. Those of [`EDGE`] see one namespace beside their own, and waypoints
    /// know services by other clusters.
    pub(crate) fn viewers(&self, service: usize) -> usize {
        let all = self.wide_sidecars() + self.gateways();
        match self.namespace(service) == self.namespace(0) {
            true => all + self.edge_proxies(),
            false => all,
        }
    }

    /// Whether the proxy at a place in the fleet has the cluster of a service.
    pub(crate) fn sees(&self, index: usize, service: usize) -> bool {
        let edge = self.proxies - self.edge_proxies();
        if index >= edge {
            return self.namespace(service) == self.namespace(0);
        }
        index < self.wide_sidecars() + self.gateways()
    }

    /// The roles of all proxies: sidecars, gateways, waypoints, and those of [`EDGE`] last.
    pub(crate) fn roles(&self) -> Vec<Role> {
        match self.fleet {
            FleetKind::Real => self.pods().iter().enumerate().map(|(index, pod)| pod.role(index)).collect(),
            FleetKind::Uniform => (0..self.proxies).map(|index| self.plain_role(index)).collect(),
        }
    }

    fn plain_role(&self, index: usize) -> Role {
        match index < self.wide_sidecars() {
            true => Role::plain(index, &self.namespace(index), "client"),
            false => Role::plain(index, EDGE, "client"),
        }
    }

    /// The pods of the proxies of a real fleet, in the order of the fleet.
    pub(crate) fn pods(&self) -> Vec<Pod> {
        let kinds = [
            (WorkloadKind::Sidecar, self.workloads, self.wide_sidecars()),
            (WorkloadKind::Gateway, gateway_workloads(self.gateways()), self.gateways()),
            (WorkloadKind::Waypoint, gateway_workloads(self.waypoints()), self.waypoints()),
            (WorkloadKind::Edge, 1, self.edge_proxies()),
        ];
        let of_kind = kinds.into_iter().flat_map(|(kind, workloads, pods)| {
            (0..pods).map(move |at| (kind, at % workloads, at / workloads))
        });
        of_kind
            .enumerate()
            .map(|(place, (kind, index, replica))| {
                let workload = self.workload(kind, index);
                Pod { workload, replica, generation: 0, place, nodes: self.nodes }
            })
            .collect()
    }

    /// Places in the fleet: one proxy of each workload (a tenth of a uniform fleet, and all of [`EDGE`]), and the others.
    pub(crate) fn first_and_others(&self) -> (Vec<usize>, Vec<usize>) {
        if self.is_real() {
            let pods = self.pods();
            return (0..self.proxies).partition(|index| pods[*index].replica == 0);
        }
        let edge = self.wide_sidecars();
        let tenth = (self.proxies / 10).clamp(1, edge);
        (0..self.proxies).partition(|index| *index < tenth || *index >= edge)
    }

    /// A workload of a kind.
    pub(crate) fn workload(&self, kind: WorkloadKind, index: usize) -> Workload {
        let namespace = match kind {
            WorkloadKind::Edge => EDGE.to_owned(),
            WorkloadKind::Gateway => INGRESS.to_owned(),
            _ => self.namespace(index),
        };
        Workload { kind, index, namespace }
    }

    /// Places in the fleet of the sidecars of a workload.
    pub(crate) fn seats(&self, workload: usize) -> Vec<usize> {
        (workload..self.wide_sidecars()).step_by(self.workloads.max(1)).collect()
    }

    /// The pods behind a service of a real fleet.
    pub(crate) fn backing(&self, service: usize) -> Vec<Pod> {
        if service < self.workloads {
            let workload = self.workload(WorkloadKind::Sidecar, service);
            let seats = self.seats(service).into_iter().enumerate();
            let pod = |(replica, place)| Pod {
                workload: workload.clone(),
                replica,
                generation: 0,
                place,
                nodes: self.nodes,
            };
            return seats.map(pod).collect();
        }
        let workload = self.workload(WorkloadKind::Plain, service);
        let pod = |replica| Pod {
            workload: workload.clone(),
            replica,
            generation: 0,
            place: 2 * service + replica,
            nodes: self.nodes,
        };
        (0..2).map(pod).collect()
    }

    /// Every pod of a real fleet, with and without a proxy.
    pub(crate) fn all_pods(&self) -> Vec<Pod> {
        if !self.is_real() {
            return Vec::new();
        }
        let plain = (self.workloads..self.services).flat_map(|service| self.backing(service));
        self.pods().into_iter().chain(plain).collect()
    }

    /// The endpoints of a service, of which the second (the first of only one) may not be ready.
    pub(crate) fn endpoints(&self, service: usize, second_is_ready: bool) -> Value {
        if !self.is_real() || service >= self.services {
            return bare_endpoints(service, second_is_ready);
        }
        let pods = self.backing(service);
        let second = 1.min(pods.len() - 1);
        let endpoints = pods.iter().enumerate();
        endpoints.map(|(at, pod)| pod.endpoint(at != second || second_is_ready)).collect()
    }

    /// The namespace of a service.
    pub(crate) fn namespace(&self, service: usize) -> String {
        format!("team-{:03}", service % self.namespaces)
    }

    /// The host of a service.
    pub(crate) fn host(&self, service: usize) -> String {
        format!("{}.{}.svc.cluster.local", service_name(service), self.namespace(service))
    }

    /// What proxies call the cluster of a service.
    pub(crate) fn cluster(&self, service: usize) -> String {
        format!("outbound|{PORT}||{}", self.host(service))
    }

    /// Where an object of the name of a service is.
    fn path(&self, kind: &str, service: usize) -> String {
        format!("{}/{}", collection(kind, &self.namespace(service)), service_name(service))
    }

    /// Where a service is.
    pub(crate) fn service_path(&self, service: usize) -> String {
        self.path("Service", service)
    }

    /// Where the endpoints of a service are.
    pub(crate) fn slice_path(&self, service: usize) -> String {
        self.path("EndpointSlice", service)
    }

    /// Where the VirtualService of a service is; every tenth has one.
    pub(crate) fn virtual_service_path(&self, service: usize) -> String {
        self.path("VirtualService", service)
    }

    /// Where the VirtualService is that only proxies of [`EDGE`] see.
    pub(crate) fn narrow_path(&self) -> String {
        format!("{}/narrow", collection("VirtualService", EDGE))
    }
}

/// How many Deployments so many gateways, or waypoints, are of.
fn gateway_workloads(proxies: usize) -> usize {
    (proxies / 4).clamp(1, MOST_GATEWAYS)
}

/// Two endpoints that no pods are behind, the second of which may not be ready.
fn bare_endpoints(service: usize, second_is_ready: bool) -> Value {
    let address = |n: usize| {
        let at = service * 2 + n;
        format!("10.{}.{}.{}", 128 + at / 62_500, at / 250 % 250, at % 250 + 1)
    };
    json!([
        {"addresses": [address(0)], "conditions": {"ready": true}},
        {"addresses": [address(1)], "conditions": {"ready": second_is_ready}},
    ])
}

fn service_name(service: usize) -> String {
    format!("svc-{service:05}")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// A small mesh with proxies that are alike.
    pub(crate) const UNIFORM: Fixture = Fixture {
        fleet: FleetKind::Uniform,
        services: 30,
        namespaces: 4,
        proxies: 200,
        workloads: 0,
        nodes: 0,
    };

    /// A small mesh as they are.
    pub(crate) const REAL: Fixture = Fixture { fleet: FleetKind::Real, workloads: 20, nodes: 10, ..UNIFORM };

    #[test]
    fn one_proxy_in_a_hundred_sees_little() {
        for fixture in [UNIFORM, REAL] {
            let roles = fixture.roles();
            assert_eq!(roles.len(), 200);
            assert_eq!(roles.iter().filter(|role| role.namespace == EDGE).count(), 2);
            assert!(roles.iter().enumerate().all(|(at, role)| role.index == at));
        }
    }

    #[test]
    fn real_fleet_has_gateways_and_waypoints() {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        let roles = REAL.roles();
        for role in &roles {
            *kinds.entry(role.node.id.split('~').next().unwrap()).or_default() += 1;
        }
        assert_eq!(kinds, BTreeMap::from([("router", 20), ("sidecar", 170), ("waypoint", 10)]));
    }

    #[test]
    fn those_counted_as_viewers_are_those_that_see() {
        for (fixture, service) in [(UNIFORM, 0), (UNIFORM, 1), (REAL, 0), (REAL, 1), (REAL, 4)] {
            let seeing = (0..fixture.proxies).filter(|index| fixture.sees(*index, service)).count();
            assert_eq!(seeing, fixture.viewers(service), "{service} of {fixture:?}");
        }
    }

    #[test]
    fn no_object_is_there_twice() {
        for (fixture, count) in [
            (UNIFORM, 6 + 2 * 30 + 3 + 2),
            (REAL, 7 + 10 + 38 + 220 + 5 * 3 + 1 + 2 * 3 + 3 + 2 * 30 + 3 + 2),
        ] {
            let objects = fixture.objects();
            let paths: BTreeSet<_> =
                objects.iter().map(|(path, object)| (path, object["metadata"]["name"].as_str())).collect();
            assert_eq!(paths.len(), objects.len());
            assert_eq!(objects.len(), count);
        }
    }

    #[test]
    fn no_two_pods_share_a_name_or_an_address() {
        let restarted = REAL.backing(3).into_iter().map(|pod| pod.restarted(1));
        let pods: Vec<_> = REAL.all_pods().into_iter().chain(restarted).collect();
        let addresses: BTreeSet<_> = pods.iter().map(Pod::address).collect();
        let names: BTreeSet<_> = pods.iter().map(Pod::name).collect();
        assert_eq!((addresses.len(), names.len()), (pods.len(), pods.len()));
    }

    #[test]
    fn pods_behind_a_service_are_those_of_the_fleet() {
        let fleet = REAL.pods();
        for service in 0..REAL.workloads {
            let behind = REAL.backing(service);
            assert!(!behind.is_empty());
            assert!(behind.iter().all(|pod| fleet[pod.place] == *pod));
        }
    }

    #[test]
    fn pods_of_a_workload_are_in_several_zones() {
        let zones: BTreeSet<_> = REAL.backing(0).iter().map(|pod| pod.node().zone()).collect();
        assert_eq!(zones.len(), ZONES);
    }

    #[test]
    fn endpoints_of_services_differ() {
        let of = |service| bare_endpoints(service, true)[1]["addresses"][0].as_str().unwrap().to_owned();
        let all: BTreeSet<_> = (0..50_000).map(of).collect();
        assert_eq!(all.len(), 50_000);
    }
}
