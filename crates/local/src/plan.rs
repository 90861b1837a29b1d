//! What a mesh file means on this machine: addresses, names, ports and environments, computed without touching anything.
//!
//! ```text
//!    host            canopusd's namespace           one namespace for each pod
//!  :8080 ─ forward ─ bridge 10.78.0.1/16 ─ veth ─── eth0 10.78.0.N ─ iptables ─ Envoy ─ program
//! ```
//!
//! Nothing of the network exists outside these namespaces, so no address can collide with one of the machine's. In loopback
//! mode there are no namespaces: proxies have loopback addresses of their own (127.78.0.N), by which the control plane tells
//! them apart, and programs have ports of 127.0.0.1.
//!
//! The same file and the same free ports give the same plan.

mod environment;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use canopus_base::hash::ContentHash;
use canopus_base::protocol::Protocol;
use serde::{Deserialize, Serialize};

use crate::mesh_file::{CommandLine, External, Gateway, MeshFile, Port, Restart, Workload};

/// The address of the control plane, and of the bridge.
pub const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);

/// How many bits of addresses in the network of pods are the network's.
pub const PREFIX_LENGTH: u8 = 16;

/// The group whose traffic is not captured.
pub const PROXY_GROUP: u32 = 1337;

/// The port of the control plane in its namespace.
const CONTROL_PLANE_PORT: u16 = 15012;

/// How pods are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// A network namespace for each, with captured traffic.
    Namespaces,
    /// Ports of the loopback address; programs call services at proxy ports that they are told of.
    Loopback,
}

/// All processes of the mesh, and where each runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the mesh.
    pub mesh: String,
    /// How pods are kept apart.
    pub mode: Mode,
    /// Network namespace of the control plane and the bridge.
    pub node_namespace: String,
    /// Where agents reach the control plane.
    pub control_plane: SocketAddr,
    /// Where the control plane answers questions.
    pub debug: SocketAddr,
    /// Gateways first, then workloads in the file's order.
    pub pods: Vec<Pod>,
    /// Services of the mesh.
    pub services: Vec<Service>,
    /// Services outside of it.
    pub externals: Vec<ExternalService>,
    /// Ports of this machine that lead to gateways.
    pub published: Vec<Published>,
}

/// A program with a proxy, a program alone, or a proxy alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Unique name.
    pub name: String,
    /// The workload or gateway it is a replica of.
    pub workload: String,
    /// Namespace of its objects.
    pub namespace: String,
    /// Service it belongs to; gateways and services outside the mesh have none.
    pub service: Option<String>,
    /// Service account.
    pub service_account: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Address.
    pub address: Ipv4Addr,
    /// Network namespace.
    pub network_namespace: String,
    /// Interface of the node that leads to it.
    pub link: String,
    /// The proxy.
    pub proxy: Option<Proxy>,
    /// The program.
    pub program: Option<Program>,
    /// Ports of the program.
    pub ports: Vec<PodPort>,
}

/// A proxy with its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// What it is to the mesh.
    pub role: Role,
    /// Envoy's admin interface.
    pub admin: u16,
    /// The agent's status.
    pub status: u16,
    /// Envoy's readiness.
    pub health: u16,
    /// Envoy's metrics.
    pub metrics: u16,
    /// In loopback mode: listeners for services that the program calls.
    pub outbound: Vec<Outbound>,
}

/// What a proxy is to the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Beside a program.
    Sidecar,
    /// In front of the mesh.
    Router,
}

/// A port of the proxy that leads to a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// Host name of the service.
    pub host: String,
    /// Namespace of the service.
    pub namespace: String,
    /// What the port speaks.
    pub protocol: Protocol,
    /// Port of the service, on which the proxy listens for it.
    pub port: u16,
}

/// A program.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Program and arguments.
    pub command: CommandLine,
    /// Working directory.
    pub directory: PathBuf,
    /// Variables.
    pub environment: BTreeMap<String, String>,
    /// When it is started again.
    pub restart: Restart,
}

/// A port of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPort {
    /// Name.
    pub name: String,
    /// Port of the service.
    pub port: u16,
    /// Port the program listens on.
    pub target: u16,
    /// What it speaks.
    pub protocol: Protocol,
    /// In loopback mode: port of the proxy that leads to the program.
    pub inbound: Option<u16>,
}

/// A service of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Address that stands for it.
    pub address: Ipv4Addr,
    /// Ports.
    pub ports: Vec<PodPort>,
}

/// A service outside the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalService {
    /// Name of its object.
    pub name: String,
    /// Namespace of its object.
    pub namespace: String,
    /// Host name.
    pub host: String,
    /// Address that stands for it.
    pub address: Ipv4Addr,
    /// Ports.
    pub ports: Vec<PodPort>,
    /// Where its traffic goes.
    pub endpoint: Ipv4Addr,
    /// `HOST:PORT` of this machine that connections to the endpoint are forwarded to.
    pub forward: Option<String>,
}

/// A port of this machine that leads to a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The port of this machine.
    pub host: u16,
    /// Where connections go.
    pub target: SocketAddr,
}

/// Gives out free ports of the loopback address.
pub type FreePorts<'a> = &'a mut dyn FnMut() -> u16;

impl Service {
    /// The name that all namespaces may use.
    pub fn host(&self) -> String {
        format!("{}.{}.svc.cluster.local", self.name, self.namespace)
    }
}

impl Plan {
    /// Plans the mesh of a file in a directory. `free` is asked in loopback mode, and for the control plane's debug port.
    pub fn new(file: &MeshFile, directory: &Path, mode: Mode, free: FreePorts<'_>) -> Self {
        let hash = ContentHash::compute(directory.as_os_str().as_encoded_bytes()).to_string();
        let prefix = format!("canopus-{}-{}", file.name, &hash[..6]);
        let mut planner =
            Planner { file, directory, mode, free, prefix, used: BTreeSet::new(), pods: Vec::new() };
        planner.used = planner.fixed_ports();
        for gateway in &file.gateways {
            planner.gateway(gateway);
        }
        for workload in &file.workloads {
            for replica in 1..=workload.replicas {
                planner.workload(workload, replica);
            }
        }
        planner.finish()
    }

    /// The pods whose programs somebody else starts.
    pub fn started_elsewhere(&self) -> impl Iterator<Item = &Pod> {
        let is_sidecar = |pod: &&Pod| pod.proxy.as_ref().is_some_and(|proxy| proxy.role == Role::Sidecar);
        self.pods.iter().filter(|pod| pod.program.is_none()).filter(is_sidecar)
    }

    /// The pods of a workload or gateway.
    pub fn pods_of<'a>(&'a self, workload: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.iter().filter(move |pod| pod.workload == workload || pod.name == workload)
    }
}

struct Planner<'a> {
    file: &'a MeshFile,
    directory: &'a Path,
    mode: Mode,
    free: FreePorts<'a>,
    prefix: String,
    /// Ports of the loopback address that are taken.
    used: BTreeSet<u16>,
    pods: Vec<Pod>,
}

impl Planner<'_> {
    /// Ports of gateways, which in loopback mode no program may have.
    fn fixed_ports(&self) -> BTreeSet<u16> {
        let ports = self.file.gateways.iter().flat_map(|gateway| &gateway.ports);
        ports.flat_map(|port| [port.host, port.gateway]).collect()
    }

    fn free_port(&mut self) -> u16 {
        loop {
            let port = (self.free)();
            if self.used.insert(port) {
                return port;
            }
        }
    }

    fn pod(&mut self, name: String, workload: &str, namespace: Option<&String>) -> Pod {
        let number = u8::try_from(self.pods.len() + 2).unwrap_or(u8::MAX);
        Pod {
            network_namespace: format!("{}-{name}", self.prefix),
            name,
            workload: workload.to_owned(),
            namespace: namespace.unwrap_or(&self.file.namespace).clone(),
            service: None,
            service_account: workload.to_owned(),
            labels: BTreeMap::new(),
            address: match self.mode {
                Mode::Namespaces => Ipv4Addr::new(10, 78, 0, number),
                Mode::Loopback => Ipv4Addr::new(127, 78, 0, number),
            },
            link: format!("veth{number}"),
            proxy: None,
            program: None,
            ports: Vec::new(),
        }
    }

    fn proxy(&mut self, role: Role) -> Proxy {
        let [admin, status, health, metrics] = match self.mode {
            Mode::Namespaces => [15000, 15020, 15021, 15090],
            Mode::Loopback => std::array::from_fn(|_| self.free_port()),
        };
        Proxy { role, admin, status, health, metrics, outbound: Vec::new() }
    }

    fn gateway(&mut self, gateway: &Gateway) {
        let mut pod = self.pod(gateway.name.clone(), &gateway.name, gateway.namespace.as_ref());
        pod.labels = canonical_labels(&gateway.name, None);
        pod.labels.insert("istio".to_owned(), gateway.name.clone());
        pod.labels.extend(gateway.labels.clone());
        pod.proxy = Some(self.proxy(Role::Router));
        self.pods.push(pod);
    }

    fn workload(&mut self, workload: &Workload, replica: u16) {
        let name = match workload.replicas {
            1 => workload.name.clone(),
            _ => format!("{}-{replica}", workload.name),
        };
        let service = workload.service_name();
        let mut pod = self.pod(name, &workload.name, workload.namespace.as_ref());
        pod.service = workload.external.is_none().then(|| service.to_owned());
        workload.service_account.as_deref().unwrap_or(service).clone_into(&mut pod.service_account);
        pod.labels = canonical_labels(service, workload.version.as_deref());
        pod.labels.extend(workload.labels.clone());
        pod.ports = self.ports(&workload.all_ports(), workload.sidecar && workload.external.is_none());
        if workload.sidecar && workload.external.is_none() {
            pod.proxy = Some(self.proxy(Role::Sidecar));
        } else if self.mode == Mode::Loopback {
            pod.address = Ipv4Addr::LOCALHOST;
        }
        pod.program = workload.command.as_ref().map(|command| Program {
            command: self.command(command),
            directory: workload
                .directory
                .as_ref()
                .map_or_else(|| self.directory.to_owned(), |own| self.directory.join(own)),
            environment: workload.env.clone(),
            restart: workload.restart,
        });
        self.pods.push(pod);
    }

    /// A program with a slash in its name is relative to the mesh's directory.
    fn command(&self, command: &CommandLine) -> CommandLine {
        let program = match command.program.contains('/') {
            true => self.directory.join(&command.program).to_string_lossy().into_owned(),
            false => command.program.clone(),
        };
        CommandLine { program, arguments: command.arguments.clone() }
    }

    fn ports(&mut self, ports: &[Port], has_proxy: bool) -> Vec<PodPort> {
        let mut planned = Vec::new();
        for port in ports {
            let wanted = port.target_port.unwrap_or(port.port);
            let (target, inbound) = match self.mode {
                Mode::Namespaces => (wanted, None),
                Mode::Loopback => {
                    let target = if self.used.insert(wanted) { wanted } else { self.free_port() };
                    (target, has_proxy.then(|| self.free_port()))
                }
            };
            planned.push(PodPort { target, inbound, ..service_port(port, "HTTP") });
        }
        planned
    }

    fn finish(mut self) -> Plan {
        let mut services = self.services();
        let mut externals = self.externals();
        if self.mode == Mode::Loopback {
            self.renumber(&mut services, &mut externals);
            self.outbound(&services, &externals);
        }
        environment::fill(&mut self.pods, &services, &externals, self.mode);
        let (control_plane, debug) = match self.mode {
            Mode::Namespaces => (
                SocketAddr::from((NODE_ADDRESS, CONTROL_PLANE_PORT)),
                SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            ),
            Mode::Loopback => {
                let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                (local(self.free_port()), local(self.free_port()))
            }
        };
        Plan {
            mesh: self.file.name.clone(),
            mode: self.mode,
            node_namespace: self.prefix.clone(),
            control_plane,
            debug,
            published: self.published(),
            services,
            externals,
            pods: self.pods,
        }
    }

    fn services(&self) -> Vec<Service> {
        let mut services: Vec<Service> = Vec::new();
        for pod in self.pods.iter().filter(|pod| !pod.ports.is_empty()) {
            let Some(name) = &pod.service else { continue };
            if services.iter().any(|service| service.name == *name && service.namespace == pod.namespace) {
                continue;
            }
            let address = Ipv4Addr::new(10, 96, 0, u8::try_from(services.len() + 10).unwrap_or(u8::MAX));
            let ports = pod.ports.clone();
            services.push(Service { name: name.clone(), namespace: pod.namespace.clone(), address, ports });
        }
        services
    }

    fn externals(&mut self) -> Vec<ExternalService> {
        let programs = self.file.workloads.iter().filter_map(|workload| {
            let host = workload.external.clone()?;
            let pod = self.pods.iter().find(|pod| pod.workload == workload.name)?;
            Some((workload.name.clone(), pod.namespace.clone(), host, pod.ports.clone(), pod.address, None))
        });
        let programs: Vec<_> = programs.collect();
        let mut listed = Vec::new();
        for external in &self.file.externals {
            let namespace = external.namespace.clone().unwrap_or_else(|| self.file.namespace.clone());
            let target = match self.mode {
                Mode::Namespaces => external.port,
                Mode::Loopback => self.free_port(),
            };
            let port = PodPort { target, ..external_port(external) };
            let endpoint = match self.mode {
                Mode::Namespaces => NODE_ADDRESS,
                Mode::Loopback => Ipv4Addr::LOCALHOST,
            };
            let forward =
                external.address.clone().unwrap_or_else(|| format!("{}:{}", external.host, external.port));
            listed.push((
                external.host.replace('.', "-"),
                namespace,
                external.host.clone(),
                vec![port],
                endpoint,
                Some(forward),
            ));
        }
        let all = programs.into_iter().chain(listed).enumerate();
        all.map(|(index, (name, namespace, host, ports, endpoint, forward))| ExternalService {
            name,
            namespace,
            host,
            address: Ipv4Addr::new(10, 97, 0, u8::try_from(index + 10).unwrap_or(u8::MAX)),
            ports,
            endpoint,
            forward,
        })
        .collect()
    }

    /// Gives the ports of services numbers that nobody else on this machine has. Proxies listen for a service on its own port, on
    /// addresses of their own; several services with one port, or a program that listens on it on all addresses, would be in the way.
    fn renumber(&mut self, services: &mut [Service], externals: &mut [ExternalService]) {
        let inside = services.iter_mut().flat_map(|service| &mut service.ports);
        let outside = externals.iter_mut().flat_map(|service| &mut service.ports);
        for port in inside.chain(outside) {
            port.port = self.free_port();
        }
    }

    /// Tells every proxy beside a program which services there are to call.
    fn outbound(&mut self, services: &[Service], externals: &[ExternalService]) {
        let inside =
            services.iter().map(|service| (service.host(), service.namespace.clone(), &service.ports));
        let outside =
            externals.iter().map(|service| (service.host.clone(), service.namespace.clone(), &service.ports));
        let callable: Vec<_> = inside.chain(outside).collect();
        for index in 0..self.pods.len() {
            let mut outbound = Vec::new();
            for (host, namespace, ports) in &callable {
                for port in *ports {
                    let (host, namespace) = (host.clone(), namespace.clone());
                    outbound.push(Outbound { host, namespace, protocol: port.protocol, port: port.port });
                }
            }
            if let Some(proxy) = self.pods[index].proxy.as_mut().filter(|proxy| proxy.role == Role::Sidecar) {
                proxy.outbound = outbound;
            }
        }
    }

    fn published(&self) -> Vec<Published> {
        let gateways = self.file.gateways.iter().zip(&self.pods);
        let ports =
            gateways.flat_map(|(gateway, pod)| gateway.ports.iter().map(move |port| (port, pod.address)));
        // In loopback mode gateways listen on ports of this machine themselves.
        ports
            .filter(|(port, _)| self.mode == Mode::Namespaces || port.host != port.gateway)
            .map(|(port, address)| Published {
                host: port.host,
                target: SocketAddr::from((address, port.gateway)),
            })
            .collect()
    }
}

fn canonical_labels(service: &str, version: Option<&str>) -> BTreeMap<String, String> {
    let labels = [("app", Some(service)), ("version", version)];
    labels.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect()
}

fn service_port(port: &Port, default_protocol: &str) -> PodPort {
    let protocol = port.protocol.as_deref().unwrap_or(default_protocol);
    let name = port.name.clone().unwrap_or_else(|| format!("{}-{}", protocol.to_lowercase(), port.port));
    PodPort { name, port: port.port, target: port.port, protocol: Protocol::parse(protocol), inbound: None }
}

fn external_port(external: &External) -> PodPort {
    let (port, protocol) = (external.port, external.protocol.clone());
    service_port(&Port { port, target_port: None, protocol, name: None }, "TCP")
}

#[cfg(test)]
mod tests;
