//! The variables that programs get: who they are, and where services are.
//!
//! Names are those of Kubernetes (`CART_SERVICE_HOST`, `CART_SERVICE_PORT`), so that a program finds its peers in the same way
//! in a cluster, here, and in loopback mode, where a service is a port of the proxy.

use std::collections::BTreeMap;

use super::{ExternalService, Mode, Pod, Role, Service};

pub(super) fn fill(pods: &mut [Pod], services: &[Service], externals: &[ExternalService], mode: Mode) {
    let gateways: Vec<(String, String)> = pods
        .iter()
        .filter(|pod| pod.proxy.as_ref().is_some_and(|proxy| proxy.role == Role::Router))
        .map(|pod| (variable(&pod.name, "HOST"), pod.address.to_string()))
        .collect();
    for pod in pods {
        let mut environment = BTreeMap::from([
            ("POD_NAME".to_owned(), pod.name.clone()),
            ("POD_NAMESPACE".to_owned(), pod.namespace.clone()),
            ("POD_IP".to_owned(), pod.address.to_string()),
        ]);
        environment.extend(gateways.iter().cloned());
        environment.extend(pod.labels.get("version").map(|version| ("VERSION".to_owned(), version.clone())));
        environment.extend(pod.ports.first().map(|port| ("PORT".to_owned(), port.target.to_string())));
        let reachable = match mode {
            Mode::Namespaces => by_name(services, externals),
            Mode::Loopback => by_port(pod, services, externals),
        };
        for (name, host, port) in reachable {
            environment.insert(variable(&name, "HOST"), host);
            environment.insert(variable(&name, "PORT"), port.to_string());
        }
        if let Some(program) = &mut pod.program {
            // What the file says counts over what is worked out.
            environment.append(&mut program.environment);
            program.environment = environment;
        }
    }
}

fn by_name(services: &[Service], externals: &[ExternalService]) -> Vec<(String, String, u16)> {
    let inside = services
        .iter()
        .filter_map(|service| Some((service.name.clone(), service.host(), service.ports.first()?.port)));
    let outside = externals.iter().filter_map(|service| {
        Some((service.name.clone(), service.host.clone(), service.ports.first()?.port))
    });
    inside.chain(outside).collect()
}

fn by_port(pod: &Pod, services: &[Service], externals: &[ExternalService]) -> Vec<(String, String, u16)> {
    let names: BTreeMap<String, &str> = services
        .iter()
        .map(|service| (service.host(), service.name.as_str()))
        .chain(externals.iter().map(|service| (service.host.clone(), service.name.as_str())))
        .collect();
    // Of several ports of a service the first counts, and the last insertion wins.
    let outbound: Vec<_> = pod.proxy.iter().flat_map(|proxy| &proxy.outbound).collect();
    let named = outbound.into_iter().rev().filter_map(|outbound| {
        let name = names.get(&outbound.host)?;
        Some(((*name).to_owned(), pod.address.to_string(), outbound.port))
    });
    named.collect()
}

fn variable(service: &str, suffix: &str) -> String {
    format!("{}_SERVICE_{suffix}", service.to_uppercase().replace(['-', '.'], "_"))
}
