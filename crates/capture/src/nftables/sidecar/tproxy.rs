//! TPROXY; the marks are explained at its iptables twin.

use super::{Builder, DIVERT, INBOUND, MANGLE, OUTPUT, PREROUTING, TCP, TPROXY, keyword};
use crate::iptables::OUTBOUND_MARK;

impl Builder<'_> {
    pub(super) fn tproxy_targets(&mut self) {
        let (mark, port) = (self.config.tproxy_mark, self.config.inbound_capture_port);
        self.rules.append(MANGLE, DIVERT, format!("counter meta mark set {mark}"));
        self.rules.append(MANGLE, DIVERT, "counter accept");
        for family in self.config.families() {
            let (keyword, loopback) = (keyword(*family), self.config.loopback(*family));
            self.rules.append(
                MANGLE,
                TPROXY,
                format!(
                    "{TCP} {keyword} daddr != {loopback} tproxy {keyword} to :{port} meta mark set {mark} counter \
                     accept"
                ),
            );
        }
    }

    pub(super) fn tproxy_inbound(&mut self, port: &str) {
        let known = format!("{TCP} ct state related,established {port}counter jump {DIVERT}");
        self.rules.append(MANGLE, INBOUND, known);
        self.rules.append(MANGLE, INBOUND, format!("{TCP} {port}counter jump {TPROXY}"));
    }

    pub(super) fn tproxy_marks(&mut self) {
        if !self.config.is_tproxy() {
            return;
        }
        let mark = self.config.tproxy_mark;
        self.rules.append(MANGLE, PREROUTING, format!("{TCP} mark {mark} counter ct mark set mark"));
        self.rules.append(MANGLE, OUTPUT, format!("oifname lo {TCP} mark {mark} counter return"));
        self.mark_calls_to_own_workload();
        self.rules.append(MANGLE, OUTPUT, format!("{TCP} ct mark {mark} counter meta mark set ct mark"));
        self.rules.insert(MANGLE, INBOUND, 0, format!("{TCP} mark {mark} counter return"));
        for family in self.config.families() {
            let (keyword, source) = (keyword(*family), family.passthrough_source());
            let spec = format!("iifname lo {TCP} {keyword} saddr {source} counter return");
            self.rules.insert(MANGLE, INBOUND, 1, spec);
        }
        let itself = format!("iifname lo {TCP} mark != {OUTBOUND_MARK} counter return");
        self.rules.insert(MANGLE, INBOUND, 2, itself);
    }

    fn mark_calls_to_own_workload(&mut self) {
        let uids = self.config.proxy_uids.iter().map(|uid| format!("skuid {uid}"));
        let gids = self.config.proxy_gids.iter().map(|gid| format!("skgid {gid}"));
        for owner in uids.chain(gids) {
            for family in self.config.families() {
                let (keyword, loopback) = (keyword(*family), self.config.loopback(*family));
                let matches = format!("oifname lo {TCP} {keyword} daddr != {loopback} {owner}");
                self.rules.append(MANGLE, OUTPUT, format!("{matches} counter meta mark set {OUTBOUND_MARK}"));
            }
        }
    }
}
