//! The names clients may call a service by.

use std::net::IpAddr;

use crate::names;

/// How a table tells the ports of a host apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// It is for one port: what follows the host in a request does not matter.
    Ignored,
    /// It is for all ports, and this is one of them.
    Named(u32),
}

/// The name itself, and with its port if that matters.
pub(super) fn with_port(host: &str, ports: Ports) -> Vec<String> {
    let mut domains = vec![names::bracketed(host).into_owned()];
    if let Ports::Named(port) = ports {
        domains.push(names::domain(host, port));
    }
    domains
}

/// The shorter and longer forms of a host's name, as clients in the DNS domain `own` may write it.
pub(crate) fn alternatives(host: &str, ports: Ports, own: &str, absolute: bool) -> Vec<String> {
    let mut found = if absolute { absolute_name(host, ports) } else { Vec::new() };
    match own.split_once(".svc.") {
        Some((namespace, suffix)) => {
            // Shorter forms of names that are not Kubernetes' could be those of others.
            if host.ends_with(&format!(".svc.{suffix}")) {
                found
                    .extend(kubernetes_names(host, namespace).iter().flat_map(|name| with_port(name, ports)));
            }
        }
        None => found.extend(relative_names(host, own).iter().flat_map(|name| with_port(name, ports))),
    }
    found
}

/// The name with the root's dot. An address has none.
fn absolute_name(host: &str, ports: Ports) -> Vec<String> {
    let absolute = format!("{host}.");
    let bare = host.parse::<IpAddr>().is_err().then(|| absolute.clone());
    let with_port = match ports {
        Ports::Ignored => None,
        // Parity: an address gets this one.
        Ports::Named(port) => Some(names::domain(&absolute, port)),
    };
    bare.into_iter().chain(with_port).collect()
}

/// `service`, `service.namespace.svc`, `service.namespace` for neighbours, the latter two for others.
fn kubernetes_names(host: &str, own_namespace: &str) -> Vec<String> {
    let Some((qualified, _)) = host.split_once(".svc.") else { return Vec::new() };
    let Some((service, namespace)) = qualified.split_once('.') else { return Vec::new() };
    let (short, long) = (qualified.to_owned(), format!("{qualified}.svc"));
    if namespace == own_namespace { vec![service.to_owned(), long, short] } else { vec![short, long] }
}

/// Outside Kubernetes: what is left of the name without the domain it shares with the client.
fn relative_names(host: &str, own: &str) -> Vec<String> {
    let (host_parts, own_parts): (Vec<_>, Vec<_>) = (host.split('.').collect(), own.split('.').collect());
    let shared = host_parts.iter().rev().zip(own_parts.iter().rev()).take_while(|(a, b)| a == b).count();
    if shared == 0 {
        return Vec::new();
    }
    let (unique, common) = host_parts.split_at(host_parts.len() - shared);
    let unique_name = unique.join(".");
    // What is left has the namespace in it.
    let longer = (unique.len() == 2).then(|| format!("{unique_name}.{}", common[0]));
    std::iter::once(unique_name).chain(longer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(host: &str, own: &str) -> Vec<String> {
        alternatives(host, Ports::Ignored, own, false)
    }

    #[test]
    fn neighbours_may_leave_the_namespace_out() {
        let own = "ns.svc.cluster.local";
        assert_eq!(names("a.ns.svc.cluster.local", own), ["a", "a.ns.svc", "a.ns"]);
        assert_eq!(names("a.other.svc.cluster.local", own), ["a.other", "a.other.svc"]);
        assert_eq!(names("a.com", own), [""; 0]);
        assert_eq!(names("a.ns.svc.other.net", own), [""; 0]);
        assert_eq!(names("broken.svc.cluster.local", own), [""; 0]);
    }

    #[test]
    fn outside_kubernetes_the_shared_domain_may_be_left_out() {
        assert_eq!(names("foo.local.campus.net", "local.campus.net"), ["foo"]);
        assert_eq!(names("foo.local.campus.net", "remote.campus.net"), ["foo.local", "foo.local.campus"]);
        assert_eq!(names("foo.local.campus.net", "example.com"), [""; 0]);
        assert_eq!(names("foo.local.campus.net", ""), [""; 0]);
    }

    #[test]
    fn every_form_has_its_port_where_ports_matter() {
        let named = |host| alternatives(host, Ports::Named(80), "ns.svc.cluster.local", true);
        assert_eq!(
            named("a.b.svc.cluster.local"),
            ["a.b.svc.cluster.local.", "a.b.svc.cluster.local.:80", "a.b", "a.b:80", "a.b.svc", "a.b.svc:80"]
        );
        assert_eq!(named("1.2.3.4"), ["1.2.3.4.:80"]);
        assert_eq!(with_port("::1", Ports::Named(80)), ["[::1]", "[::1]:80"]);
    }
}
