//! Capture of DNS queries, and the separate connection tracking that makes it safe.
//!
//! Without zones, a query of the application and the agent's own query upstream can have the same addresses and ports
//! once the first is redirected, and connection tracking would mix up their answers. Zone 1 holds what passes between
//! agent and server, zone 2 what passes between application and agent.

use super::{Builder, ISTIO_INBOUND, ISTIO_OUTPUT_DNS, NAT, OUTPUT, PREROUTING, RAW};
use crate::DNS_PROXY_PORT;
use crate::config::DnsCapture;

impl Builder<'_> {
    pub(super) fn dns(&mut self) {
        let Some(dns) = &self.config.dns else { return };
        self.rules.append(RAW, OUTPUT, format!("-j {ISTIO_OUTPUT_DNS}"));
        if dns.covers(self.family) {
            self.output(format!("-j {ISTIO_OUTPUT_DNS}"));
        }
        // Parity: Istio writes the option for UDP without its last letter.
        self.redirect_queries(dns, "tcp", "--to-ports");
        self.redirect_queries(dns, "udp", "--to-port");
        self.agent_zones();
        self.application_zones(dns);
    }

    fn redirect_queries(&mut self, dns: &DnsCapture, protocol: &str, option: &str) {
        for server in destinations(dns.servers(self.family), dns) {
            let matches = format!("-p {protocol} --dport 53 {}", prefixed("-d", server));
            let spec = format!("{matches}-j REDIRECT {option} {DNS_PROXY_PORT}");
            self.rules.append(NAT, ISTIO_OUTPUT_DNS, spec);
        }
    }

    fn agent_zones(&mut self) {
        let uids = self.config.proxy_uids.iter().map(|uid| format!("--uid-owner {uid}"));
        let gids = self.config.proxy_gids.iter().map(|gid| format!("--gid-owner {gid}"));
        for owner in uids.chain(gids) {
            let upstream = format!("-p udp --dport 53 -m owner {owner} -j CT --zone 1");
            self.rules.append(RAW, ISTIO_OUTPUT_DNS, upstream);
            let answers = format!("-p udp --sport {DNS_PROXY_PORT} -m owner {owner} -j CT --zone 2");
            self.rules.append(RAW, ISTIO_OUTPUT_DNS, answers);
        }
    }

    fn application_zones(&mut self, dns: &DnsCapture) {
        if dns.covers(self.family) {
            self.rules.append(RAW, PREROUTING, format!("-j {ISTIO_INBOUND}"));
        }
        for server in destinations(dns.servers(self.family), dns) {
            let queries = format!("-p udp --dport 53 {}-j CT --zone 2", prefixed("-d", server.clone()));
            self.rules.append(RAW, ISTIO_OUTPUT_DNS, queries);
            let answers = format!("-p udp --sport 53 {}-j CT --zone 1", prefixed("-s", server));
            self.rules.append(RAW, ISTIO_INBOUND, answers);
        }
    }
}

/// The destinations of captured queries: each server, or once anything.
fn destinations(servers: Vec<String>, dns: &DnsCapture) -> Vec<Option<String>> {
    if *dns == DnsCapture::All { vec![None] } else { servers.into_iter().map(Some).collect() }
}

/// An option with its value and a blank; nothing without a value.
fn prefixed(option: &str, value: Option<String>) -> String {
    value.map(|value| format!("{option} {value} ")).unwrap_or_default()
}
