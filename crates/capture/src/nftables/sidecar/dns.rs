//! Capture of DNS queries; the zones are explained at its iptables twin.

use super::{Builder, INBOUND, NAT, OUTPUT, OUTPUT_DNS, PREROUTING, RAW, TCP, keyword};
use crate::DNS_PROXY_PORT;
use crate::config::{DnsCapture, Family};

impl Builder<'_> {
    pub(super) fn dns(&mut self) {
        let Some(dns) = &self.config.dns else { return };
        self.rules.append(RAW, OUTPUT, format!("counter jump {OUTPUT_DNS}"));
        self.output(format!("counter jump {OUTPUT_DNS}"));
        match dns {
            DnsCapture::All => {
                let to_agent = format!("counter redirect to :{DNS_PROXY_PORT}");
                self.rules.append(NAT, OUTPUT_DNS, format!("{TCP} tcp dport 53 {to_agent}"));
                self.rules.append(NAT, OUTPUT_DNS, format!("udp dport 53 {to_agent}"));
            }
            DnsCapture::Servers { .. } => {
                self.redirect_queries(dns, "tcp");
                self.redirect_queries(dns, "udp");
            }
        }
        self.agent_zones();
        self.rules.append(RAW, PREROUTING, format!("counter jump {INBOUND}"));
        self.application_zones(dns);
    }

    /// The servers of captured families, each with the keyword of its family.
    fn servers(&self, dns: &DnsCapture) -> Vec<(&'static str, String)> {
        let of_family = |family: &Family| {
            let keyword = keyword(*family);
            dns.servers(*family).into_iter().map(move |server| (keyword, server))
        };
        self.config.families().iter().flat_map(of_family).collect()
    }

    fn redirect_queries(&mut self, dns: &DnsCapture, protocol: &str) {
        for (keyword, server) in self.servers(dns) {
            let matches = format!("{keyword} daddr {server} {protocol} dport 53");
            self.rules.append(NAT, OUTPUT_DNS, format!("{matches} counter redirect to :{DNS_PROXY_PORT}"));
        }
    }

    fn agent_zones(&mut self) {
        let uids = self.config.proxy_uids.iter().map(|uid| format!("meta skuid {uid}"));
        let gids = self.config.proxy_gids.iter().map(|gid| format!("meta skgid {gid}"));
        for owner in uids.chain(gids) {
            self.rules.append(RAW, OUTPUT_DNS, format!("udp dport 53 {owner} counter ct zone set 1"));
            let answers = format!("udp sport {DNS_PROXY_PORT} {owner} counter ct zone set 2");
            self.rules.append(RAW, OUTPUT_DNS, answers);
        }
    }

    fn application_zones(&mut self, dns: &DnsCapture) {
        if *dns == DnsCapture::All {
            self.rules.append(RAW, OUTPUT_DNS, "udp dport 53 counter ct zone set 2");
            self.rules.append(RAW, INBOUND, "udp sport 53 counter ct zone set 1");
        }
        for (keyword, server) in self.servers(dns) {
            let queries = format!("udp dport 53 {keyword} daddr {server} counter ct zone set 2");
            self.rules.append(RAW, OUTPUT_DNS, queries);
            let answers = format!("udp sport 53 {keyword} saddr {server} counter ct zone set 1");
            self.rules.append(RAW, INBOUND, answers);
        }
    }
}
