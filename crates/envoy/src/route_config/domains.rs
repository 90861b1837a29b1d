//! The names clients may call a service by.

use std::net::IpAddr;

use crate::names;

/// How a table tells the ports of a host apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// The table is for one port: what follows the host in a request does not matter.
    Ignored,
    /// The table is for all ports, and this is one of them.
    Named(u32),
}

/// The shorter and longer forms of a host's name, as clients in the DNS domain `own` may write it.
pub(crate) fn alternatives(host: &str, ports: Ports, own: &str, absolute: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut forms = Forms::new(own, absolute);
    forms.alternatives(host, ports, &mut |form| found.push(form.to_owned()));
    found
}

/// Makes forms of names in one buffer, so that those that are not wanted cost nothing.
pub(super) struct Forms<'a> {
    clients: Clients<'a>,
    /// Whether the name with the root's dot is one of them.
    absolute: bool,
    text: String,
}

/// Where clients are.
enum Clients<'a> {
    /// In a namespace of Kubernetes, whose DNS domain is the second.
    Kubernetes(&'a str, &'a str),
    /// In some other DNS domain.
    Other(&'a str),
}

impl<'a> Forms<'a> {
    /// Forms for clients in the DNS domain `own`.
    pub(super) fn new(own: &'a str, absolute: bool) -> Self {
        let clients = match own.split_once(".svc.") {
            Some((namespace, domain)) => Clients::Kubernetes(namespace, domain),
            None => Clients::Other(own),
        };
        Self { clients, absolute, text: String::new() }
    }

    /// The name itself, and with its port if that matters.
    pub(super) fn with_port(&mut self, name: &[&str], ports: Ports, found: &mut impl FnMut(&str)) {
        let bracketed = name.iter().any(|part| part.contains(':'));
        let (before, after) = if bracketed { ("[", "]") } else { ("", "") };
        self.text.clear();
        self.text.push_str(before);
        name.iter().for_each(|part| self.text.push_str(part));
        self.text.push_str(after);
        found(&self.text);
        if let Ports::Named(port) = ports {
            self.text.push(':');
            self.text.push_str(itoa::Buffer::new().format(port));
            found(&self.text);
        }
    }

    /// The shorter and longer forms of a host's name.
    pub(super) fn alternatives(&mut self, host: &str, ports: Ports, found: &mut impl FnMut(&str)) {
        if self.absolute {
            self.absolute_name(host, ports, found);
        }
        match self.clients {
            Clients::Kubernetes(namespace, domain) => {
                // Shorter forms of names that are not Kubernetes' could be those of others.
                if host.strip_suffix(domain).is_some_and(|name| name.ends_with(".svc.")) {
                    self.kubernetes_names(host, namespace, ports, found);
                }
            }
            Clients::Other(own) => self.relative_names(host, own, ports, found),
        }
    }

    /// The name with the root's dot. An address has none.
    fn absolute_name(&mut self, host: &str, ports: Ports, found: &mut impl FnMut(&str)) {
        self.text.clear();
        self.text.push_str(host);
        self.text.push('.');
        if host.parse::<IpAddr>().is_err() {
            found(&self.text);
        }
        if let Ports::Named(port) = ports {
            // Parity: an address gets this one.
            found(&names::domain(&self.text, port));
        }
    }

    /// `service`, `service.namespace.svc`, `service.namespace` for neighbours, the latter two for others.
    fn kubernetes_names(&mut self, host: &str, own: &str, ports: Ports, found: &mut impl FnMut(&str)) {
        let Some((qualified, _)) = host.split_once(".svc.") else { return };
        let Some((service, namespace)) = qualified.split_once('.') else { return };
        if namespace == own {
            self.with_port(&[service], ports, found);
            self.with_port(&[qualified, ".svc"], ports, found);
            self.with_port(&[qualified], ports, found);
        } else {
            self.with_port(&[qualified], ports, found);
            self.with_port(&[qualified, ".svc"], ports, found);
        }
    }

    /// Outside Kubernetes: what is left of the name without the domain it shares with the client.
    fn relative_names(&mut self, host: &str, own: &str, ports: Ports, found: &mut impl FnMut(&str)) {
        let host_parts: Vec<_> = host.split('.').collect();
        let shared = host_parts.iter().rev().zip(own.rsplit('.')).take_while(|(a, b)| *a == b).count();
        if shared == 0 {
            return;
        }
        let (unique, common) = host_parts.split_at(host_parts.len() - shared);
        let unique_name = unique.join(".");
        self.with_port(&[&unique_name], ports, found);
        if unique.len() == 2 {
            // What is left has the namespace in it.
            self.with_port(&[&unique_name, ".", common[0]], ports, found);
        }
    }
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
        let mut found = Vec::new();
        Forms::new("", false).with_port(&["::1"], Ports::Named(80), &mut |form| found.push(form.to_owned()));
        assert_eq!(found, ["[::1]", "[::1]:80"]);
    }
}
