//! The programs of pods in ambient mode.

use anyhow::{Context, bail};
use canopus_base::tree::Node;
use canopus_capture::ambient::{AmbientConfig, PodOverrides};
use canopus_capture::apply::{Options, Recorder, Tools, apply_iptables, apply_nftables};
use canopus_capture::iptables::{self, RuleProgram};
use canopus_capture::nftables;

use super::{Filter, boolean, golden, texts};
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::text;
use crate::dump::Dump;
use crate::suites::Suite;

pub(in crate::suites) struct Ambient {
    filter: Filter,
}

impl Ambient {
    pub(in crate::suites) fn iptables() -> Self {
        Self { filter: Filter::Iptables }
    }

    pub(in crate::suites) fn nftables() -> Self {
        Self { filter: Filter::Nftables }
    }
}

impl Suite for Ambient {
    fn name(&self) -> &str {
        match self.filter {
            Filter::Iptables => "cni-iptables-ambient",
            Filter::Nftables => "cni-nftables-ambient",
        }
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case, self.filter).into()
    }
}

fn compare(case: &Case, filter: Filter) -> anyhow::Result<Vec<Difference>> {
    let (config, pod) = (config(case)?, overrides(case)?);
    let (mut recorder, options) = (Recorder::default(), Options::default());
    match filter {
        Filter::Iptables => {
            let program = iptables::ambient_pod(&config, &pod);
            apply_iptables(&mut recorder, &Tools::plain(), &program, &RuleProgram::default(), &options)?;
        }
        Filter::Nftables => {
            apply_nftables(&mut recorder, &nftables::ambient_pod(&config, &pod), &options)?;
        }
    }
    let got: Vec<_> = recorder.lines().iter().map(|line| single_blanks(line)).collect();
    let expected: Vec<_> = golden(case)?.lines().map(single_blanks).collect();
    Ok(text::difference(&expected.join("\n"), &got.join("\n")))
}

/// A line whose words are one blank apart. The packet filters read any number of blanks alike, and some expected lines
/// have two.
fn single_blanks(line: &str) -> String {
    line.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

fn config(case: &Case) -> anyhow::Result<AmbientConfig> {
    let defaults = case.shared.get("defaults").context("no defaults")?;
    let address = |key: &str| defaults.get(key).and_then(Node::as_str).context("no address");
    let mut config = AmbientConfig {
        probe_source_v4: address("HostProbeSNATAddress")?.parse()?,
        probe_source_v6: address("HostProbeV6SNATAddress")?.parse()?,
        ipv6: case.entry.get("ipv6").and_then(Node::as_bool).unwrap_or_default(),
        redirect_dns: false,
    };
    for entry in case.entry.get("config").and_then(Node::as_map).into_iter().flatten() {
        match &*entry.key {
            "RedirectDNS" => config.redirect_dns = boolean(&entry.node)?,
            key => bail!("unknown setting {key}"),
        }
    }
    Ok(config)
}

fn overrides(case: &Case) -> anyhow::Result<PodOverrides> {
    let mut pod = PodOverrides::default();
    for entry in case.entry.get("podOverrides").and_then(Node::as_map).into_iter().flatten() {
        match (&*entry.key, entry.node.as_str()) {
            ("IngressMode", _) => pod.ingress_mode = boolean(&entry.node)?,
            ("DNSProxy", Some("enabled")) => pod.dns_capture = Some(true),
            ("DNSProxy", Some("disabled")) => pod.dns_capture = Some(false),
            ("VirtualInterfaces", _) => {
                let names = texts(&entry.node)?;
                let names: Result<_, String> = names.iter().map(|name| name.parse()).collect();
                pod.virtual_interfaces = names.map_err(anyhow::Error::msg)?;
            }
            (key, _) => bail!("unknown override {key}"),
        }
    }
    Ok(pod)
}
