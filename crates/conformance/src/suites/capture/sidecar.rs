//! The programs of sidecars, from the settings that Istio's tool has.

use anyhow::{Context, bail};
use canopus_base::tree::Node;
use canopus_capture::apply::{Recorder, Tools, apply_nftables};
use canopus_capture::{CommandLine, HostFacts, nftables};

use super::{Filter, boolean, golden, scalar, texts};
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::text;
use crate::dump::Dump;
use crate::suites::Suite;

pub(in crate::suites) struct Sidecar {
    filter: Filter,
}

impl Sidecar {
    pub(in crate::suites) fn iptables() -> Self {
        Self { filter: Filter::Iptables }
    }

    pub(in crate::suites) fn nftables() -> Self {
        Self { filter: Filter::Nftables }
    }
}

impl Suite for Sidecar {
    fn name(&self) -> &str {
        match self.filter {
            Filter::Iptables => "iptables-sidecar",
            Filter::Nftables => "nftables-sidecar",
        }
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case, self.filter).into()
    }
}

fn compare(case: &Case, filter: Filter) -> anyhow::Result<Vec<Difference>> {
    let settings = settings(case)?;
    let mut recorder = Recorder::default();
    match filter {
        Filter::Iptables => {
            settings.apply_iptables(&mut recorder, &Tools::plain())?;
        }
        Filter::Nftables => {
            apply_nftables(&mut recorder, &nftables::sidecar(&settings.capture), &settings.options)?;
        }
    }
    Ok(text::difference(&golden(case)?, &recorder.lines().join("\n")))
}

fn settings(case: &Case) -> anyhow::Result<canopus_capture::Settings> {
    let (mut line, mut facts, mut ipv6) = (CommandLine::default(), HostFacts::default(), false);
    let defaults = case.shared.get("defaults").context("no defaults")?;
    let config = case.entry.get("config").context("no config")?;
    for entry in [defaults, config].into_iter().filter_map(Node::as_map).flatten() {
        match &*entry.key {
            "everythingElse" => {}
            "EnableIPv6" => ipv6 = boolean(&entry.node)?,
            "DNSServersV4" | "DNSServersV6" => facts.nameservers.extend(texts(&entry.node)?),
            key => set(&mut line, key, &entry.node).with_context(|| key.to_owned())?,
        }
    }
    // The family of its first address is how the tool knows whether IPv6 is in use.
    let address = if ipv6 { "fd00::2" } else { "10.0.0.2" };
    facts.addresses = vec![address.parse()?];
    Ok(line.settle(&facts)?)
}

/// Sets one field of Istio's configuration.
fn set(line: &mut CommandLine, key: &str, node: &Node) -> anyhow::Result<()> {
    let text = Some(scalar(node)?);
    match key {
        "ProxyPort" => line.envoy_port = text,
        "InboundCapturePort" => line.inbound_capture_port = text,
        "InboundTunnelPort" => line.inbound_tunnel_port = text,
        "ProxyUID" => line.proxy_uid = text,
        "ProxyGID" => line.proxy_gid = text,
        "InboundInterceptionMode" => line.istio_inbound_interception_mode = text,
        "InboundTProxyMark" => line.istio_inbound_tproxy_mark = text,
        "InboundTProxyRouteTable" => line.istio_inbound_tproxy_route_table = text,
        "InboundPortsInclude" => line.istio_inbound_ports = text,
        "InboundPortsExclude" => line.istio_local_exclude_ports = text,
        "OwnerGroupsInclude" => line.owner_groups = text,
        "OwnerGroupsExclude" => line.owner_groups_exclude = text,
        "OutboundPortsInclude" => line.istio_outbound_ports = text,
        "OutboundPortsExclude" => line.istio_local_outbound_ports_exclude = text,
        "OutboundIPRangesInclude" => line.istio_service_cidr = text,
        "OutboundIPRangesExclude" => line.istio_service_exclude_cidr = text,
        "RerouteVirtualInterfaces" => line.kube_virt_interfaces = text,
        "ExcludeInterfaces" => line.istio_exclude_interfaces = text,
        "HostIPv4LoopbackCidr" => line.ipv4_loopback_cidr = text,
        "DryRun" => line.dry_run = Some(boolean(node)?),
        "RedirectDNS" => line.redirect_dns = Some(boolean(node)?),
        "DropInvalid" => line.drop_invalid = Some(boolean(node)?),
        "CaptureAllDNS" => line.capture_all_dns = Some(boolean(node)?),
        "DualStack" => line.dual_stack = Some(boolean(node)?),
        "Reconcile" => line.reconcile = Some(boolean(node)?),
        "CleanupOnly" => line.cleanup_only = Some(boolean(node)?),
        "ForceApply" => line.force_apply = Some(boolean(node)?),
        _ => bail!("unknown setting"),
    }
    Ok(())
}
