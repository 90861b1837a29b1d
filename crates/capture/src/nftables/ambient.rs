//! The rules of a pod in ambient mode and those of its node, in the words of nftables.

use super::keyword;
use super::sidecar::{entered, own};
use super::transaction::{Chain, RuleList, Transaction};
use crate::DNS_PROXY_PORT;
use crate::ambient::{
    AmbientConfig, CONNECTION_MARK, INBOUND_PLAINTEXT_PORT, INBOUND_PORT, MARK_MASK, OUTBOUND_PORT,
    PodOverrides, ZTUNNEL_MARK, loopback, probe_set,
};
use crate::config::Owner;

const NAT: &str = "istio-ambient-nat";
const MANGLE: &str = "istio-ambient-mangle";
const RAW: &str = "istio-ambient-raw";

const PREROUTING: &str = "prerouting";
const OUTPUT: &str = "output";
const POSTROUTING: &str = "postrouting";
const ISTIO_PREROUTING: &str = "istio-prerouting";
const ISTIO_OUTPUT: &str = "istio-output";

const TCP: &str = "meta l4proto tcp";

/// The tables of a pod, each with the chains it may have.
const TABLES: [(&str, [Chain; 4]); 3] = [
    (NAT, chains("nat", "nat", -100)),
    (MANGLE, chains("filter", "route", -150)),
    (RAW, chains("filter", "filter", -300)),
];

const fn chains(inbound: &'static str, outbound: &'static str, priority: i32) -> [Chain; 4] {
    [
        entered(PREROUTING, inbound, "prerouting", priority),
        entered(OUTPUT, outbound, "output", priority),
        own(ISTIO_PREROUTING),
        own(ISTIO_OUTPUT),
    ]
}

/// The transaction for the network namespace of a pod.
pub fn ambient_pod(config: &AmbientConfig, pod: &PodOverrides) -> Transaction {
    let mut builder = Builder { config, pod, rules: RuleList::default() };
    builder.jumps();
    builder.virtual_interfaces();
    builder.inbound();
    builder.outbound();
    let mut transaction = Transaction::default();
    for (table, chains) in &TABLES {
        transaction.replace_table(table, chains, &builder.rules);
    }
    transaction
}

/// The transaction for the node: probes of the kubelet get a source address that pods let through.
///
/// nftables cannot match packets that have a local socket, so the kubelet is told by its user. The sets of pod addresses
/// are the caller's: they live in the same table and outlast a flush.
pub fn ambient_host(config: &AmbientConfig, kubelet: &Owner) -> Transaction {
    let mut rules = RuleList::default();
    for family in config.families() {
        let (keyword, set, source) = (keyword(*family), probe_set(*family), config.probe_source(*family));
        let matches = format!("{TCP} skuid {kubelet} {keyword} daddr @{set}");
        rules.append(NAT, POSTROUTING, format!("{matches} counter snat to {source}"));
    }
    let mut transaction = Transaction::default();
    transaction.replace_table(NAT, &[entered(POSTROUTING, "nat", "postrouting", 100)], &rules);
    transaction
}

/// The transaction that removes the tables of a pod, or that of the node with its sets of pod addresses.
pub fn ambient_cleanup() -> Transaction {
    let mut transaction = Transaction::default();
    for (table, _) in &TABLES {
        transaction.remove_table(table);
    }
    transaction
}

/// The node's table, in which the sets of pod addresses are.
pub const AMBIENT_HOST_TABLE: &str = NAT;

struct Builder<'a> {
    config: &'a AmbientConfig,
    pod: &'a PodOverrides,
    rules: RuleList,
}

impl Builder<'_> {
    fn jumps(&mut self) {
        self.rules.append(MANGLE, PREROUTING, format!("jump {ISTIO_PREROUTING}"));
        self.rules.append(MANGLE, OUTPUT, format!("jump {ISTIO_OUTPUT}"));
        self.rules.append(NAT, OUTPUT, format!("jump {ISTIO_OUTPUT}"));
        if self.config.captures_dns(self.pod) {
            self.rules.append(RAW, PREROUTING, format!("jump {ISTIO_PREROUTING}"));
            self.rules.append(RAW, OUTPUT, format!("jump {ISTIO_OUTPUT}"));
        }
        self.rules.append(NAT, PREROUTING, format!("jump {ISTIO_PREROUTING}"));
    }

    fn virtual_interfaces(&mut self) {
        for interface in &self.pod.virtual_interfaces {
            let matches = format!("iifname {} {TCP} counter", interface.nft());
            self.rules.append(NAT, ISTIO_PREROUTING, format!("{matches} redirect to :{OUTBOUND_PORT}"));
            self.rules.append(NAT, ISTIO_PREROUTING, format!("{matches} return"));
        }
    }

    fn inbound(&mut self) {
        let mark = format!("meta mark & {MARK_MASK} == {ZTUNNEL_MARK} counter");
        let connection = format!("ct mark set ct mark & 0xfffff000 | {CONNECTION_MARK}");
        self.rules.append(MANGLE, ISTIO_PREROUTING, format!("{mark} {connection}"));
        if !self.pod.ingress_mode {
            self.probes(ISTIO_PREROUTING, "saddr");
        }
        self.probes(ISTIO_OUTPUT, "daddr");
        if !self.pod.ingress_mode {
            for family in self.config.families() {
                let (keyword, loopback) = (keyword(*family), loopback(*family));
                let matches = format!("{keyword} daddr != {loopback} tcp dport != {INBOUND_PORT}");
                let target = format!("counter redirect to :{INBOUND_PLAINTEXT_PORT}");
                self.rules.append(NAT, ISTIO_PREROUTING, format!("{matches} {NOT_FROM_ZTUNNEL} {target}"));
            }
        }
        let known = format!("ct mark and {MARK_MASK} == {CONNECTION_MARK} counter meta mark set ct mark");
        self.rules.append(MANGLE, ISTIO_OUTPUT, known);
    }

    /// Probes of the kubelet, or the answers to them.
    fn probes(&mut self, chain: &'static str, end: &str) {
        for family in self.config.families() {
            let (keyword, source) = (keyword(*family), self.config.probe_source(*family));
            self.rules.append(NAT, chain, format!("{TCP} {keyword} {end} {source} counter accept"));
        }
    }

    fn outbound(&mut self) {
        if self.config.captures_dns(self.pod) {
            self.dns();
        }
        let known = format!("{TCP} mark and {MARK_MASK} == {CONNECTION_MARK} counter accept");
        self.rules.append(NAT, ISTIO_OUTPUT, known);
        for family in self.config.families() {
            let (keyword, loopback) = (keyword(*family), loopback(*family));
            self.rules.append(
                NAT,
                ISTIO_OUTPUT,
                format!("oifname lo {keyword} daddr != {loopback} counter accept"),
            );
        }
        for family in self.config.families() {
            let (keyword, loopback) = (keyword(*family), loopback(*family));
            let matches = format!("{TCP} {keyword} daddr != {loopback} {NOT_FROM_ZTUNNEL}");
            self.rules.append(NAT, ISTIO_OUTPUT, format!("{matches} counter redirect to :{OUTBOUND_PORT}"));
        }
    }

    fn dns(&mut self) {
        let to_ztunnel = format!("counter redirect to :{DNS_PROXY_PORT}");
        let udp = format!("oifname != lo {NOT_FROM_ZTUNNEL} udp dport 53 {to_ztunnel}");
        self.rules.append(NAT, ISTIO_OUTPUT, udp);
        for family in self.config.families() {
            let (keyword, loopback) = (keyword(*family), loopback(*family));
            let matches = format!("{keyword} daddr != {loopback} tcp dport 53 {NOT_FROM_ZTUNNEL}");
            self.rules.append(NAT, ISTIO_OUTPUT, format!("{matches} {to_ztunnel}"));
        }
        let queries =
            format!("udp dport 53 meta mark and {MARK_MASK} == {ZTUNNEL_MARK} counter ct zone set 1");
        self.rules.append(RAW, ISTIO_OUTPUT, queries);
        let answers = format!("udp sport 53 meta {NOT_FROM_ZTUNNEL} counter ct zone set 1");
        self.rules.append(RAW, ISTIO_PREROUTING, answers);
    }
}

const NOT_FROM_ZTUNNEL: &str = "mark and 0xfff != 0x539";
