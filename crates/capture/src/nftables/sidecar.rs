//! The rules of a workload with a sidecar, in the words of nftables.
//!
//! Chains and reasons are those of [`crate::iptables::sidecar`]; comments here are about what differs.

mod dns;
mod tproxy;

use super::keyword;
use super::transaction::{Chain, Hook, RuleList, Transaction};
use crate::config::{CaptureConfig, InboundPorts, OutboundRanges, Owner, OwnerGroups};

const NAT: &str = "istio-proxy-nat";
const MANGLE: &str = "istio-proxy-mangle";
const RAW: &str = "istio-proxy-raw";

const PREROUTING: &str = "prerouting";
const OUTPUT: &str = "output";

const INBOUND: &str = "istio-inbound";
const IN_REDIRECT: &str = "istio-in-redirect";
const REDIRECT: &str = "istio-redirect";
const ISTIO_OUTPUT: &str = "istio-output";
const OUTPUT_DNS: &str = "istio-output-dns";
const DIVERT: &str = "istio-divert";
const TPROXY: &str = "istio-tproxy";
const DROP: &str = "istio-drop";

const TCP: &str = "meta l4proto tcp";

pub(super) const fn entered(
    name: &'static str,
    kind: &'static str,
    hook: &'static str,
    priority: i32,
) -> Chain {
    Chain { name, hook: Some(Hook { kind, name: hook, priority }) }
}

pub(super) const fn own(name: &'static str) -> Chain {
    Chain { name, hook: None }
}

/// The tables, each with the chains it may have.
const TABLES: [(&str, &[Chain]); 3] = [
    (
        NAT,
        &[
            entered(PREROUTING, "nat", "prerouting", -100),
            entered(OUTPUT, "nat", "output", -100),
            own(INBOUND),
            own(REDIRECT),
            own(IN_REDIRECT),
            own(ISTIO_OUTPUT),
            own(OUTPUT_DNS),
        ],
    ),
    (
        MANGLE,
        &[
            entered(PREROUTING, "filter", "prerouting", -150),
            entered(OUTPUT, "route", "output", -150),
            own(DIVERT),
            own(TPROXY),
            own(INBOUND),
            own(DROP),
        ],
    ),
    (
        RAW,
        &[
            entered(PREROUTING, "filter", "prerouting", -300),
            entered(OUTPUT, "filter", "output", -300),
            own(INBOUND),
            own(OUTPUT_DNS),
        ],
    ),
];

/// The transaction that captures a sidecar's traffic.
pub fn sidecar(config: &CaptureConfig) -> Transaction {
    let mut builder = Builder { config, rules: RuleList::default() };
    builder.build();
    let mut transaction = Transaction::default();
    for (table, chains) in TABLES {
        transaction.replace_table(table, chains, &builder.rules);
    }
    transaction
}

/// The transaction that takes all of it away.
pub fn cleanup() -> Transaction {
    let mut transaction = Transaction::default();
    for (table, _) in TABLES {
        transaction.remove_table(table);
    }
    transaction
}

struct Builder<'a> {
    config: &'a CaptureConfig,
    rules: RuleList,
}

impl Builder<'_> {
    fn build(&mut self) {
        self.leave_excluded_interfaces();
        for interface in &self.config.virtual_interfaces {
            self.rules.insert(NAT, PREROUTING, 0, format!("iifname {} counter return", interface.nft()));
        }
        self.drop_invalid();
        self.targets();
        self.inbound();
        self.rules.append(NAT, OUTPUT, format!("counter jump {ISTIO_OUTPUT}"));
        self.leave_excluded_outbound_ports();
        self.leave_passthrough();
        for uid in &self.config.proxy_uids {
            self.proxy_owner("skuid", uid, self.config.dns.is_some());
        }
        for gid in &self.config.proxy_gids {
            self.proxy_owner("skgid", gid, false);
        }
        self.owner_groups();
        self.dns();
        self.leave_outbound_ranges();
        for port in &self.config.outbound_ports_include {
            self.output(format!("tcp dport {} counter jump {REDIRECT}", port.nft()));
        }
        self.outbound_ranges();
        self.tproxy_marks();
    }

    fn output(&mut self, spec: impl Into<String>) {
        self.rules.append(NAT, ISTIO_OUTPUT, spec);
    }

    fn leave_excluded_interfaces(&mut self) {
        let tables: &[&'static str] = if self.config.is_tproxy() { &[NAT, MANGLE] } else { &[NAT] };
        for table in tables {
            for interface in &self.config.excluded_interfaces {
                let name = interface.nft();
                self.rules.append(*table, PREROUTING, format!("iifname {name} counter return"));
                self.rules.append(*table, OUTPUT, format!("oifname {name} counter return"));
            }
        }
    }

    fn drop_invalid(&mut self) {
        if self.config.drop_invalid {
            self.rules.append(MANGLE, PREROUTING, format!("{TCP} ct state invalid counter jump {DROP}"));
            self.rules.append(MANGLE, DROP, "counter drop");
        }
    }

    fn targets(&mut self) {
        let CaptureConfig { inbound_tunnel_port, proxy_port, inbound_capture_port, .. } = self.config;
        self.rules.append(NAT, INBOUND, format!("{TCP} tcp dport {inbound_tunnel_port} counter return"));
        self.rules.append(NAT, REDIRECT, format!("{TCP} counter redirect to :{proxy_port}"));
        self.rules.append(NAT, IN_REDIRECT, format!("{TCP} counter redirect to :{inbound_capture_port}"));
    }

    fn inbound(&mut self) {
        if self.config.inbound_ports == InboundPorts::None {
            return;
        }
        if self.config.is_tproxy() {
            self.tproxy_targets();
        }
        let table = if self.config.is_tproxy() { MANGLE } else { NAT };
        self.rules.append(table, PREROUTING, format!("{TCP} counter jump {INBOUND}"));
        match &self.config.inbound_ports {
            InboundPorts::None => {}
            InboundPorts::AllExcept(excluded) => {
                for port in excluded {
                    self.rules.append(
                        table,
                        INBOUND,
                        format!("{TCP} tcp dport {} counter return", port.nft()),
                    );
                }
                self.capture_inbound("");
            }
            InboundPorts::Only(ports) => {
                for port in ports {
                    self.capture_inbound(&format!("tcp dport {} ", port.nft()));
                }
            }
        }
    }

    fn capture_inbound(&mut self, port: &str) {
        if self.config.is_tproxy() {
            self.tproxy_inbound(port);
        } else {
            self.rules.append(NAT, INBOUND, format!("{TCP} {port}counter jump {IN_REDIRECT}"));
        }
    }

    fn leave_excluded_outbound_ports(&mut self) {
        for port in &self.config.outbound_ports_exclude {
            self.output(format!("tcp dport {} counter return", port.nft()));
            self.output(format!("udp dport {} counter return", port.nft()));
        }
    }

    fn leave_passthrough(&mut self) {
        for family in self.config.families() {
            let (keyword, source) = (keyword(*family), family.passthrough_source());
            self.output(format!("oifname lo {keyword} saddr {source} counter return"));
        }
    }

    fn proxy_owner(&mut self, owner: &str, id: &Owner, is_dns_exempt: bool) {
        let tunnel = self.config.inbound_tunnel_port;
        let ports = if is_dns_exempt { format!("{{ 53, {tunnel} }}") } else { tunnel.to_string() };
        for family in self.config.families() {
            let (keyword, loopback) = (keyword(*family), self.config.loopback(*family));
            self.output(format!(
                "oifname lo {TCP} {keyword} daddr != {loopback} tcp dport != {ports} {owner} {id} counter jump \
                 {IN_REDIRECT}"
            ));
        }
        if !self.config.outbound_ranges.names_loopback() {
            let queries =
                if self.config.dns.is_some() { format!("{TCP} tcp dport != 53 ") } else { String::new() };
            self.output(format!("oifname lo {queries}{owner} != {id} counter return"));
        }
        self.output(format!("{owner} {id} counter return"));
    }

    fn owner_groups(&mut self) {
        match &self.config.owner_groups {
            OwnerGroups::AllExcept(groups) => {
                for group in groups {
                    self.output(format!("skgid {group} counter return"));
                }
            }
            OwnerGroups::Only(groups) => {
                let none_of: String = groups.iter().map(|group| format!("skgid != {group} ")).collect();
                self.output(format!("{none_of}counter return"));
            }
        }
    }

    fn leave_outbound_ranges(&mut self) {
        for family in self.config.families() {
            let (keyword, loopback) = (keyword(*family), self.config.loopback(*family));
            self.output(format!("{keyword} daddr {loopback} counter return"));
        }
        for family in self.config.families() {
            for range in CaptureConfig::ranges_in_family(&self.config.outbound_ranges_exclude, *family) {
                self.output(format!("{} daddr {range} counter return", keyword(*family)));
            }
        }
    }

    fn outbound_ranges(&mut self) {
        match &self.config.outbound_ranges {
            OutboundRanges::All => {
                self.output(format!("counter jump {REDIRECT}"));
                self.redirect_virtual_interfaces("");
            }
            OutboundRanges::Only(ranges) => {
                for family in self.config.families() {
                    for range in CaptureConfig::ranges_in_family(ranges, *family) {
                        let matches = format!("{} daddr {range} ", keyword(*family));
                        self.redirect_virtual_interfaces(&matches);
                        self.output(format!("{matches}counter jump {REDIRECT}"));
                    }
                }
            }
        }
    }

    fn redirect_virtual_interfaces(&mut self, matches: &str) {
        for interface in &self.config.virtual_interfaces {
            let spec = format!("iifname {} {matches}counter jump {REDIRECT}", interface.nft());
            self.rules.insert(NAT, PREROUTING, 0, spec);
        }
    }
}
