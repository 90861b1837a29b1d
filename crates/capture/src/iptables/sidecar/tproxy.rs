//! TPROXY: inbound packets are marked and routed to the loopback interface, where the proxy takes them as they are.

use super::{Builder, ISTIO_DIVERT, ISTIO_INBOUND, ISTIO_TPROXY, MANGLE, OUTPUT, PREROUTING};

/// The mark of packets from the proxy to its own workload by address, which are captured as inbound once more.
pub(crate) const OUTBOUND_MARK: u32 = 1338;

impl Builder<'_> {
    pub(super) fn tproxy_targets(&mut self) {
        let (mark, port) = (self.config.tproxy_mark, self.config.inbound_capture_port);
        let loopback = self.config.loopback(self.family);
        self.rules.append(MANGLE, ISTIO_DIVERT, format!("-j MARK --set-mark {mark}"));
        self.rules.append(MANGLE, ISTIO_DIVERT, "-j ACCEPT");
        let target = format!("TPROXY --tproxy-mark {mark}/0xffffffff --on-port {port}");
        self.rules.append(MANGLE, ISTIO_TPROXY, format!("! -d {loopback} -p tcp -j {target}"));
    }

    /// Packets of a connection that has a socket are routed to it; the others make one.
    pub(super) fn tproxy_inbound(&mut self, matches: &str) {
        let known = format!("{matches} -m conntrack --ctstate RELATED,ESTABLISHED -j {ISTIO_DIVERT}");
        self.rules.append(MANGLE, ISTIO_INBOUND, known);
        self.rules.append(MANGLE, ISTIO_INBOUND, format!("{matches} -j {ISTIO_TPROXY}"));
    }

    /// Marks that keep captured connections apart from those between proxy and workload.
    pub(super) fn tproxy_marks(&mut self) {
        if !self.config.is_tproxy() {
            return;
        }
        let mark = self.config.tproxy_mark;
        let source = self.family.passthrough_source();
        // The proxy marks its packets to the workload; the connection keeps that mark, for the answers.
        let save = format!("-p tcp -m mark --mark {mark} -j CONNMARK --save-mark");
        self.rules.append(MANGLE, PREROUTING, save);
        let own = format!("-p tcp -o lo -m mark --mark {mark} -j RETURN");
        self.rules.append(MANGLE, OUTPUT, own);
        self.mark_calls_to_own_workload();
        let restore = format!("-p tcp -m connmark --mark {mark} -j CONNMARK --restore-mark");
        self.rules.append(MANGLE, OUTPUT, restore);
        // Not captured again: packets with the mark, those of the passthrough cluster, and calls of the workload to
        // itself.
        let again = format!("-p tcp -m mark --mark {mark} -j RETURN");
        self.rules.insert(MANGLE, ISTIO_INBOUND, 1, again);
        let passthrough = format!("-p tcp -s {source} -i lo -j RETURN");
        self.rules.insert(MANGLE, ISTIO_INBOUND, 2, passthrough);
        let itself = format!("-p tcp -i lo -m mark ! --mark {OUTBOUND_MARK} -j RETURN");
        self.rules.insert(MANGLE, ISTIO_INBOUND, 3, itself);
    }

    fn mark_calls_to_own_workload(&mut self) {
        let loopback = self.config.loopback(self.family);
        let uids = self.config.proxy_uids.iter().map(|uid| format!("--uid-owner {uid}"));
        let gids = self.config.proxy_gids.iter().map(|gid| format!("--gid-owner {gid}"));
        for owner in uids.chain(gids) {
            let target = format!("MARK --set-mark {OUTBOUND_MARK}");
            let spec = format!("! -d {loopback} -p tcp -o lo -m owner {owner} -j {target}");
            self.rules.append(MANGLE, OUTPUT, spec);
        }
    }
}
