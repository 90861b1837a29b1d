//! The rules of a workload with a sidecar.
//!
//! ```text
//!  inbound   PREROUTING ─► ISTIO_INBOUND ─► ISTIO_IN_REDIRECT (15006)      nat, REDIRECT
//!                                        └► ISTIO_DIVERT, ISTIO_TPROXY     mangle, TPROXY
//!  outbound  OUTPUT ─► ISTIO_OUTPUT ─► ISTIO_REDIRECT (15001)              nat
//!                                  ├─► ISTIO_OUTPUT_DNS (15053)
//!                                  └─► ISTIO_IN_REDIRECT: the proxy calls its own workload
//! ```
//!
//! `RETURN` in a chain of ours leaves a packet alone. Chain names and the order of rules are Istio's: support scripts
//! and other tools look for them.

mod dns;
mod tproxy;

pub(crate) use tproxy::OUTBOUND_MARK;

use super::{RuleProgram, RuleSet};
use crate::config::{
    CaptureConfig, Family, InboundPorts, InterceptionMode, OutboundRanges, Owner, OwnerGroups,
};

const NAT: &str = "nat";
const MANGLE: &str = "mangle";
const RAW: &str = "raw";

const PREROUTING: &str = "PREROUTING";
const OUTPUT: &str = "OUTPUT";

const ISTIO_INBOUND: &str = "ISTIO_INBOUND";
const ISTIO_IN_REDIRECT: &str = "ISTIO_IN_REDIRECT";
const ISTIO_REDIRECT: &str = "ISTIO_REDIRECT";
const ISTIO_OUTPUT: &str = "ISTIO_OUTPUT";
const ISTIO_OUTPUT_DNS: &str = "ISTIO_OUTPUT_DNS";
const ISTIO_DIVERT: &str = "ISTIO_DIVERT";
const ISTIO_TPROXY: &str = "ISTIO_TPROXY";
const ISTIO_DROP: &str = "ISTIO_DROP";

/// The program that captures a sidecar's traffic.
pub fn sidecar(config: &CaptureConfig) -> RuleProgram {
    RuleProgram::build(config.families(), |family| {
        let mut builder = Builder { config, family, rules: RuleSet::default() };
        builder.build();
        builder.rules
    })
}

/// A program with every rule outside of our own chains that an earlier run with other modes may have made.
pub fn superseded(config: &CaptureConfig) -> RuleProgram {
    sidecar(&CaptureConfig {
        interception_mode: InterceptionMode::Tproxy,
        drop_invalid: true,
        ..config.clone()
    })
}

/// Builds the rules of one family.
struct Builder<'a> {
    config: &'a CaptureConfig,
    family: Family,
    rules: RuleSet,
}

impl Builder<'_> {
    fn build(&mut self) {
        self.leave_excluded_interfaces();
        self.leave_virtual_interfaces();
        self.drop_invalid();
        self.targets();
        self.inbound();
        self.rules.append(NAT, OUTPUT, format!("-j {ISTIO_OUTPUT}"));
        self.leave_excluded_outbound_ports();
        self.leave_passthrough();
        for uid in &self.config.proxy_uids {
            self.proxy_owner("--uid-owner", uid, self.config.dns.is_some());
        }
        for gid in &self.config.proxy_gids {
            // Parity: only the rule for users lets DNS over TCP through; Istio never added it for groups.
            self.proxy_owner("--gid-owner", gid, false);
        }
        self.owner_groups();
        self.dns();
        self.leave_outbound_ranges();
        self.outbound_ports();
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
                self.rules.append(*table, PREROUTING, format!("-i {interface} -j RETURN"));
                self.rules.append(*table, OUTPUT, format!("-o {interface} -j RETURN"));
            }
        }
    }

    fn leave_virtual_interfaces(&mut self) {
        for interface in &self.config.virtual_interfaces {
            self.rules.insert(NAT, PREROUTING, 1, format!("-i {interface} -j RETURN"));
        }
    }

    /// Drops packets outside the window of their connection. Without this rule, the kernel answers them with a reset.
    fn drop_invalid(&mut self) {
        if self.config.drop_invalid {
            let jump = format!("-m conntrack --ctstate INVALID -j {ISTIO_DROP}");
            self.rules.append(MANGLE, PREROUTING, jump);
            self.rules.append(MANGLE, ISTIO_DROP, "-j DROP");
        }
    }

    /// The chains that redirect, and the tunnel port, which never is.
    fn targets(&mut self) {
        let CaptureConfig { inbound_tunnel_port, proxy_port, inbound_capture_port, .. } = self.config;
        self.rules.append(NAT, ISTIO_INBOUND, format!("-p tcp --dport {inbound_tunnel_port} -j RETURN"));
        self.rules.append(NAT, ISTIO_REDIRECT, format!("-p tcp -j REDIRECT --to-ports {proxy_port}"));
        let inbound = format!("-p tcp -j REDIRECT --to-ports {inbound_capture_port}");
        self.rules.append(NAT, ISTIO_IN_REDIRECT, inbound);
    }

    fn inbound(&mut self) {
        if self.config.inbound_ports == InboundPorts::None {
            return;
        }
        if self.config.is_tproxy() {
            self.tproxy_targets();
        }
        let table = if self.config.is_tproxy() { MANGLE } else { NAT };
        self.rules.append(table, PREROUTING, format!("-p tcp -j {ISTIO_INBOUND}"));
        match &self.config.inbound_ports {
            InboundPorts::None => {}
            InboundPorts::AllExcept(excluded) => {
                for port in excluded {
                    self.rules.append(table, ISTIO_INBOUND, format!("-p tcp --dport {port} -j RETURN"));
                }
                self.capture_inbound("-p tcp");
            }
            InboundPorts::Only(ports) => {
                for port in ports {
                    self.capture_inbound(&format!("-p tcp --dport {port}"));
                }
            }
        }
    }

    fn capture_inbound(&mut self, matches: &str) {
        if self.config.is_tproxy() {
            self.tproxy_inbound(matches);
        } else {
            self.rules.append(NAT, ISTIO_INBOUND, format!("{matches} -j {ISTIO_IN_REDIRECT}"));
        }
    }

    /// Excluded ports come before the proxy's own calls, so that they hold for those as well.
    fn leave_excluded_outbound_ports(&mut self) {
        for port in &self.config.outbound_ports_exclude {
            self.output(format!("-p tcp --dport {port} -j RETURN"));
            self.output(format!("-p udp --dport {port} -j RETURN"));
        }
    }

    /// Connections of the inbound passthrough cluster have an address of their own, and are for the application.
    fn leave_passthrough(&mut self) {
        self.output(format!("-o lo -s {} -j RETURN", self.family.passthrough_source()));
    }

    /// The proxy's own packets, told by their owner.
    fn proxy_owner(&mut self, owner: &str, id: &Owner, is_dns_exempt: bool) {
        let tunnel = self.config.inbound_tunnel_port;
        // The proxy calls the workload it stands beside through a service: back in as an inbound call. Not so its
        // queries to DNS servers, which go straight out.
        let ports = if is_dns_exempt {
            format!("-m multiport ! --dports 53,{tunnel}")
        } else {
            format!("! --dport {tunnel}")
        };
        let loopback = self.config.loopback(self.family);
        self.output(format!(
            "-o lo ! -d {loopback} -p tcp {ports} -m owner {owner} {id} -j {ISTIO_IN_REDIRECT}"
        ));
        // The application calls itself by its own address: leave that alone, unless loopback is asked for by name. A
        // DNS server may be on loopback, so queries have to stay in the chain for the rules further down.
        if !self.config.outbound_ranges.names_loopback() {
            let queries = if self.config.dns.is_some() { "-p tcp ! --dport 53 " } else { "" };
            self.output(format!("-o lo {queries}-m owner ! {owner} {id} -j RETURN"));
        }
        // Everything else the proxy sends leaves the machine as it is, or it would come back for ever.
        self.output(format!("-m owner {owner} {id} -j RETURN"));
    }

    fn owner_groups(&mut self) {
        match &self.config.owner_groups {
            OwnerGroups::AllExcept(groups) => {
                for group in groups {
                    self.output(format!("-m owner --gid-owner {group} -j RETURN"));
                }
            }
            OwnerGroups::Only(groups) => {
                let none_of: String =
                    groups.iter().map(|group| format!("-m owner ! --gid-owner {group} ")).collect();
                self.output(format!("{none_of}-j RETURN"));
            }
        }
    }

    /// Destinations that are left alone: loopback, which applications use to reach each other, and excluded ranges.
    fn leave_outbound_ranges(&mut self) {
        self.output(format!("-d {} -j RETURN", self.config.loopback(self.family)));
        for range in CaptureConfig::ranges_in_family(&self.config.outbound_ranges_exclude, self.family) {
            self.output(format!("-d {range} -j RETURN"));
        }
    }

    fn outbound_ports(&mut self) {
        for port in &self.config.outbound_ports_include {
            self.output(format!("-p tcp --dport {port} -j {ISTIO_REDIRECT}"));
        }
    }

    fn outbound_ranges(&mut self) {
        match &self.config.outbound_ranges {
            OutboundRanges::All => {
                self.output(format!("-j {ISTIO_REDIRECT}"));
                self.redirect_virtual_interfaces("");
            }
            OutboundRanges::Only(ranges) => {
                for range in CaptureConfig::ranges_in_family(ranges, self.family) {
                    self.redirect_virtual_interfaces(&format!("-d {range} "));
                    self.output(format!("-d {range} -j {ISTIO_REDIRECT}"));
                }
            }
        }
    }

    fn redirect_virtual_interfaces(&mut self, matches: &str) {
        for interface in &self.config.virtual_interfaces {
            self.rules.insert(NAT, PREROUTING, 1, format!("-i {interface} {matches}-j {ISTIO_REDIRECT}"));
        }
    }
}
