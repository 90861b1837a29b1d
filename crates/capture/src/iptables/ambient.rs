//! The rules of a pod in ambient mode, and those of its node.

use super::{RuleProgram, RuleSet};
use crate::DNS_PROXY_PORT;
use crate::ambient::{
    AmbientConfig, CONNECTION_MARK, INBOUND_PLAINTEXT_PORT, INBOUND_PORT, MARK_MASK, OUTBOUND_PORT,
    PodOverrides, ZTUNNEL_MARK, loopback, probe_set,
};
use crate::config::Family;

const ISTIO_PRERT: &str = "ISTIO_PRERT";
const ISTIO_OUTPUT: &str = "ISTIO_OUTPUT";
const ISTIO_POSTRT: &str = "ISTIO_POSTRT";

/// The program for the network namespace of a pod.
pub fn ambient_pod(config: &AmbientConfig, pod: &PodOverrides) -> RuleProgram {
    RuleProgram::build(config.families(), |family| {
        let mut builder = Builder { config, pod, family, rules: RuleSet::default() };
        builder.jumps();
        builder.virtual_interfaces();
        builder.inbound();
        builder.outbound();
        builder.rules
    })
}

/// The program for the node: probes of the kubelet get a source address that pods let through.
pub fn ambient_host(config: &AmbientConfig) -> RuleProgram {
    RuleProgram::build(config.families(), |family| {
        let mut rules = RuleSet::default();
        rules.insert("nat", "POSTROUTING", 1, format!("-j {ISTIO_POSTRT}"));
        // A packet with a local socket is of the node itself; forwarded ones have none and stay as they are.
        let matches = format!("-m owner --socket-exists -p tcp -m set --match-set {} dst", probe_set(family));
        let source = config.probe_source(family);
        rules.append("nat", ISTIO_POSTRT, format!("{matches} -j SNAT --to-source {source}"));
        rules
    })
}

struct Builder<'a> {
    config: &'a AmbientConfig,
    pod: &'a PodOverrides,
    family: Family,
    rules: RuleSet,
}

impl Builder<'_> {
    fn jumps(&mut self) {
        self.rules.append("mangle", "PREROUTING", format!("-j {ISTIO_PRERT}"));
        self.rules.append("mangle", "OUTPUT", format!("-j {ISTIO_OUTPUT}"));
        self.rules.append("nat", "OUTPUT", format!("-j {ISTIO_OUTPUT}"));
        if self.config.captures_dns(self.pod) {
            self.rules.append("raw", "PREROUTING", format!("-j {ISTIO_PRERT}"));
            self.rules.append("raw", "OUTPUT", format!("-j {ISTIO_OUTPUT}"));
        }
        self.rules.append("nat", "PREROUTING", format!("-j {ISTIO_PRERT}"));
    }

    fn virtual_interfaces(&mut self) {
        for interface in &self.pod.virtual_interfaces {
            let redirect = format!("-i {interface} -p tcp -j REDIRECT --to-ports {OUTBOUND_PORT}");
            self.rules.append("nat", ISTIO_PRERT, redirect);
            self.rules.append("nat", ISTIO_PRERT, format!("-i {interface} -p tcp -j RETURN"));
        }
    }

    fn inbound(&mut self) {
        let (source, loopback) = (self.config.probe_source(self.family), loopback(self.family));
        let from_ztunnel = format!("-m mark --mark {ZTUNNEL_MARK}/{MARK_MASK}");
        let mark = format!("{from_ztunnel} -j CONNMARK --set-xmark {CONNECTION_MARK}/{MARK_MASK}");
        self.rules.append("mangle", ISTIO_PRERT, mark);
        if !self.pod.ingress_mode {
            self.rules.append("nat", ISTIO_PRERT, format!("-s {source} -p tcp -m tcp -j ACCEPT"));
        }
        self.rules.append("nat", ISTIO_OUTPUT, format!("-d {source} -p tcp -m tcp -j ACCEPT"));
        if !self.pod.ingress_mode {
            let matches = format!("! -d {loopback} -p tcp ! --dport {INBOUND_PORT} {NOT_FROM_ZTUNNEL}");
            let redirect = format!("{matches} -j REDIRECT --to-ports {INBOUND_PLAINTEXT_PORT}");
            self.rules.append("nat", ISTIO_PRERT, redirect);
        }
        let restore = "CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff";
        let known = format!("-m connmark --mark {CONNECTION_MARK}/{MARK_MASK}");
        self.rules.append("mangle", ISTIO_OUTPUT, format!("{known} -j {restore}"));
    }

    fn outbound(&mut self) {
        if self.config.captures_dns(self.pod) {
            self.dns();
        }
        let loopback = loopback(self.family);
        let known = format!("-p tcp -m mark --mark {CONNECTION_MARK}/{MARK_MASK}");
        self.rules.append("nat", ISTIO_OUTPUT, format!("{known} -j ACCEPT"));
        self.rules.append("nat", ISTIO_OUTPUT, format!("! -d {loopback} -o lo -j ACCEPT"));
        let matches = format!("! -d {loopback} -p tcp {NOT_FROM_ZTUNNEL}");
        self.rules.append("nat", ISTIO_OUTPUT, format!("{matches} -j REDIRECT --to-ports {OUTBOUND_PORT}"));
    }

    /// Captures queries, and tracks those between ztunnel and servers in a zone of their own so that they cannot be
    /// mistaken for those of the pod.
    fn dns(&mut self) {
        let loopback = loopback(self.family);
        let from_ztunnel = format!("-m mark --mark {ZTUNNEL_MARK}/{MARK_MASK}");
        let udp = format!("! -o lo -p udp {NOT_FROM_ZTUNNEL} -m udp --dport 53");
        self.rules.append("nat", ISTIO_OUTPUT, format!("{udp} -j REDIRECT --to-port {DNS_PROXY_PORT}"));
        let tcp = format!("! -d {loopback} -p tcp --dport 53 {NOT_FROM_ZTUNNEL}");
        self.rules.append("nat", ISTIO_OUTPUT, format!("{tcp} -j REDIRECT --to-ports {DNS_PROXY_PORT}"));
        let queries = format!("-p udp {from_ztunnel} -m udp --dport 53 -j CT --zone 1");
        self.rules.append("raw", ISTIO_OUTPUT, queries);
        let answers = format!("-p udp {NOT_FROM_ZTUNNEL} -m udp --sport 53 -j CT --zone 1");
        self.rules.append("raw", ISTIO_PRERT, answers);
    }
}

const NOT_FROM_ZTUNNEL: &str = "-m mark ! --mark 0x539/0xfff";
