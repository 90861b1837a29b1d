//! What the types of a mesh file cannot say: names, ports and references.

use std::collections::BTreeMap;
use std::path::Path;

use canopus_base::protocol::Protocol;
use canopus_base::tree::{Node, Pos};

use super::{Expectation, MeshFile, Port, Problem, Request, Step, Workload};

/// Ports that the proxy beside a program listens on.
const PROXY_PORTS: [u16; 9] = [15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090];

/// Most pods of a mesh: more would not fit its network, nor a machine.
const MOST_PODS: usize = 250;

/// Reports all problems of a file whose types are right.
pub(super) fn problems(file: &MeshFile, node: &Node) -> Vec<Problem> {
    let mut check = Check { node, problems: Vec::new() };
    check.names(file);
    check.workloads(file);
    check.gateways(file);
    check.externals(file);
    for (index, step) in file.tour.iter().enumerate() {
        check.step(file, &format!("tour[{index}]"), step);
    }
    check.problems
}

/// A name for a mesh from that of its directory.
pub(super) fn name_of_directory(directory: &Path) -> String {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let name = absolute.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let kept: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    match kept.trim_matches('-') {
        "" => "mesh".to_owned(),
        name => name.chars().take(20).collect::<String>().trim_end_matches('-').to_owned(),
    }
}

struct Check<'a> {
    node: &'a Node,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn report(&mut self, field: impl Into<String>, message: impl Into<String>) {
        let field = field.into();
        let at = position(self.node, &field);
        self.problems.push(Problem { at, field, message: message.into() });
    }

    fn name(&mut self, field: String, name: &str) {
        if !is_label(name) {
            let message = format!(
                "{name:?} is no name; use up to 40 lower-case letters, digits and `-`, a letter first"
            );
            self.report(field, message);
        }
    }

    fn namespace(&mut self, field: &str, namespace: Option<&str>) {
        if let Some(namespace) = namespace {
            self.name(format!("{field}.namespace"), namespace);
        }
    }

    fn names(&mut self, file: &MeshFile) {
        if !file.name.is_empty() {
            self.name("name".to_owned(), &file.name);
            if file.name.len() > 20 {
                self.report("name", "the name is too long; use at most 20 characters");
            }
        }
        self.name("namespace".to_owned(), &file.namespace);
        if file.config.is_absolute() || file.config.components().any(|part| part.as_os_str() == "..") {
            self.report("config", "name a directory inside the mesh's own, such as `config`");
        }
        let mut seen = BTreeMap::new();
        let workloads = file.workloads.iter().enumerate();
        let fields = workloads.map(|(index, workload)| (format!("workloads[{index}]"), &workload.name));
        let gateways = file.gateways.iter().enumerate();
        let fields =
            fields.chain(gateways.map(|(index, gateway)| (format!("gateways[{index}]"), &gateway.name)));
        for (field, name) in fields {
            self.name(format!("{field}.name"), name);
            if name == "canopusd" {
                self.report(format!("{field}.name"), "this is the control plane's name; use another");
            }
            if let Some(first) = seen.insert(name.clone(), field.clone()) {
                self.report(format!("{field}.name"), format!("{first} has this name too; use another"));
            }
        }
        let pods: usize =
            file.workloads.iter().map(|one| usize::from(one.replicas)).sum::<usize>() + file.gateways.len();
        if pods == 0 {
            self.report("workloads", "there is nothing to run; name at least one workload");
        }
        if pods > MOST_PODS {
            self.report("workloads", format!("{pods} replicas are too many; use at most {MOST_PODS}"));
        }
    }

    fn workloads(&mut self, file: &MeshFile) {
        let mut services: BTreeMap<(&str, &str), Vec<Port>> = BTreeMap::new();
        for (index, workload) in file.workloads.iter().enumerate() {
            let field = format!("workloads[{index}]");
            self.workload(&field, workload);
            let key = (workload.namespace.as_deref().unwrap_or(&file.namespace), workload.service_name());
            let ports = workload.all_ports();
            if workload.external.is_none()
                && let Some(first) = services.insert(key, ports.clone())
                && ports_of_service(&first) != ports_of_service(&ports)
            {
                let message = format!(
                    "another workload of the service {} has other ports; give both the same service ports, or set \
                     `service`",
                    key.1
                );
                self.report(field, message);
            }
        }
    }

    fn workload(&mut self, field: &str, workload: &Workload) {
        self.namespace(field, workload.namespace.as_deref());
        let names = [
            ("service", workload.service.as_deref()),
            ("serviceAccount", workload.service_account.as_deref()),
        ];
        for (key, name) in names {
            if let Some(name) = name {
                self.name(format!("{field}.{key}"), name);
            }
        }
        if let Some(version) = &workload.version
            && !is_value(version)
        {
            self.report(
                format!("{field}.version"),
                format!("{version:?} cannot be a label; write it as `v1`"),
            );
        }
        self.labels(field, &workload.labels);
        if workload.port.is_some() && !workload.ports.is_empty() {
            self.report(format!("{field}.port"), "`ports` is there too; use one of them");
        }
        if workload.port.is_none() && workload.protocol.is_some() {
            self.report(
                format!("{field}.protocol"),
                "this goes with `port`; name the protocol of each of `ports` there",
            );
        }
        if workload.command.is_none() && (!workload.sidecar || workload.all_ports().is_empty()) {
            self.report(
                format!("{field}.command"),
                "there is nothing to run; add `command`, or a `port` and no `sidecar: false` if somebody else starts the program",
            );
        }
        self.ports(field, workload);
        for key in workload.env.keys() {
            if key.is_empty() || key.contains(['=', '\0']) {
                self.report(format!("{field}.env"), format!("{key:?} cannot be the name of a variable"));
            }
        }
        if let Some(host) = &workload.external {
            if !is_host(host) {
                self.report(
                    format!("{field}.external"),
                    format!("{host:?} is no host name; use one such as api.example.com"),
                );
            }
            if workload.all_ports().is_empty() {
                self.report(
                    format!("{field}.external"),
                    "a service outside the mesh needs a port; add `port`",
                );
            }
        }
    }

    fn ports(&mut self, field: &str, workload: &Workload) {
        let place = |index: usize, key: &str| {
            let inner = workload.port.is_none().then(|| format!("{field}.ports[{index}]"));
            inner.map_or_else(|| format!("{field}.{key}"), |inner| format!("{inner}.{key}"))
        };
        let (mut numbers, mut targets) = (BTreeMap::new(), BTreeMap::new());
        for (index, port) in workload.all_ports().into_iter().enumerate() {
            let target = port.target_port.unwrap_or(port.port);
            let key = if port.target_port.is_some() { "targetPort" } else { "port" };
            if port.port == 0 || target == 0 {
                self.report(place(index, key), "0 is no port; use 1 to 65535");
            }
            if PROXY_PORTS.contains(&target) && workload.sidecar && workload.external.is_none() {
                let message = format!(
                    "the proxy beside the program listens on {target}; have the program listen elsewhere"
                );
                self.report(place(index, key), message);
            }
            if numbers.insert(port.port, index).is_some() || targets.insert(target, index).is_some() {
                self.report(
                    place(index, "port"),
                    "another port of the workload has this number; use each once",
                );
            }
            if let Some(protocol) = &port.protocol {
                self.protocol(place(index, "protocol"), protocol);
            }
            if let Some(name) = &port.name {
                self.name(place(index, "name"), name);
            }
        }
    }

    fn protocol(&mut self, field: String, protocol: &str) {
        if matches!(Protocol::parse(protocol), Protocol::Unsupported | Protocol::Udp | Protocol::HttpProxy) {
            let known = "HTTP, HTTP2, GRPC, TCP, TLS, HTTPS, MONGO, REDIS or MYSQL";
            self.report(field, format!("{protocol:?} is not known; use {known}"));
        }
    }

    fn labels(&mut self, field: &str, labels: &BTreeMap<String, String>) {
        for (key, value) in labels {
            let reserved = matches!(key.as_str(), "app" | "version");
            if reserved {
                let message = format!("the label {key} follows from `service` and `version`; set those");
                self.report(format!("{field}.labels"), message);
            } else if !is_key(key) || !is_value(value) {
                self.report(
                    format!("{field}.labels"),
                    format!("{key}: {value:?} cannot be a label in Kubernetes"),
                );
            }
        }
    }

    fn gateways(&mut self, file: &MeshFile) {
        let mut hosts = BTreeMap::new();
        for (index, gateway) in file.gateways.iter().enumerate() {
            let field = format!("gateways[{index}]");
            self.namespace(&field, gateway.namespace.as_deref());
            if gateway.labels.iter().any(|(key, value)| !is_key(key) || !is_value(value)) {
                self.report(format!("{field}.labels"), "a label has a key or value that Kubernetes refuses");
            }
            if gateway.ports.is_empty() {
                self.report(format!("{field}.ports"), "a gateway needs a port; add one such as `8080`");
            }
            for (number, port) in gateway.ports.iter().enumerate() {
                let place = format!("{field}.ports[{number}]");
                if port.host == 0 || port.gateway == 0 {
                    self.report(place.clone(), "0 is no port; use 1 to 65535");
                }
                if PROXY_PORTS.contains(&port.gateway) {
                    self.report(
                        place.clone(),
                        format!("the proxy itself listens on {}; use another", port.gateway),
                    );
                }
                if let Some(first) = hosts.insert(port.host, place.clone()) {
                    self.report(
                        place,
                        format!("{first} has the port {} of this machine; use another", port.host),
                    );
                }
            }
        }
    }

    fn externals(&mut self, file: &MeshFile) {
        for (index, external) in file.externals.iter().enumerate() {
            let field = format!("externals[{index}]");
            self.namespace(&field, external.namespace.as_deref());
            if !is_host(&external.host) {
                let message = format!("{:?} is no host name; use one such as db.example.com", external.host);
                self.report(format!("{field}.host"), message);
            }
            if external.port == 0 {
                self.report(format!("{field}.port"), "0 is no port; use 1 to 65535");
            }
            if let Some(protocol) = &external.protocol {
                self.protocol(format!("{field}.protocol"), protocol);
            }
            if let Some(address) = &external.address
                && !is_address(address)
            {
                self.report(
                    format!("{field}.address"),
                    format!("{address:?} is not HOST:PORT, such as localhost:5432"),
                );
            }
        }
    }

    fn step(&mut self, file: &MeshFile, field: &str, step: &Step) {
        self.name(format!("{field}.name"), &step.name);
        let is_program = |name: &str| file.workloads.iter().any(|workload| workload.name == name);
        if let Some(name) = &step.kill
            && name != "canopusd"
            && !is_program(name)
        {
            self.report(format!("{field}.kill"), format!("{name:?} is neither a workload nor canopusd"));
        }
        let mut requests: Vec<(String, &Request)> = Vec::new();
        requests.extend(step.under_load.as_ref().map(|request| (format!("{field}.underLoad"), request)));
        for (index, expectation) in step.expect.iter().enumerate() {
            let place = format!("{field}.expect[{index}]");
            match expectation {
                Expectation::Status { request, .. } => {
                    requests.push((format!("{place}.status.request"), request));
                }
                Expectation::Slow { request, .. } => {
                    requests.push((format!("{place}.slow.request"), request));
                }
                Expectation::Shares(shares) => {
                    requests.push((format!("{place}.shares.request"), &shares.request));
                }
                Expectation::RefusesPlaintext { workload } if !is_program(workload) => {
                    self.report(
                        format!("{place}.refusesPlaintext.workload"),
                        format!("{workload:?} is no workload"),
                    );
                }
                _ => {}
            }
        }
        for (place, request) in requests {
            if crate::url::Url::parse(&request.get).is_err() {
                let message = format!("{:?} is no URL; use one such as http://localhost:8080/", request.get);
                self.report(format!("{place}.get"), message);
            }
        }
    }
}

/// Where a field stands, or the closest thing around it that does.
fn position(node: &Node, field: &str) -> Pos {
    let pointer = field.replace('[', "/").replace(']', "").replace('.', "/");
    let mut path = format!("/{pointer}");
    loop {
        if let Some(found) = node.pointer(&path) {
            return found.at;
        }
        match path.rfind('/') {
            Some(end) => path.truncate(end),
            None => return node.at,
        }
    }
}

/// What clients of the service see of ports.
fn ports_of_service(ports: &[Port]) -> Vec<(u16, Option<&str>, Option<&str>)> {
    ports.iter().map(|port| (port.port, port.protocol.as_deref(), port.name.as_deref())).collect()
}

fn is_label(name: &str) -> bool {
    let characters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= 40
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(characters)
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').unwrap_or(("a", key));
    is_host(prefix) && !name.is_empty() && is_value(name)
}

fn is_value(value: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let rim = |c: char| c.is_ascii_alphanumeric();
    value.len() <= 63
        && value.chars().all(inner)
        && value.is_empty() | (value.starts_with(rim) && value.ends_with(rim))
}

fn is_host(host: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253 && host.split('.').all(label)
}

fn is_address(address: &str) -> bool {
    let split = address.rsplit_once(':');
    split.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0))
}
