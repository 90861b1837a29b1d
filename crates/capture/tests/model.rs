//! Laws that hold for every configuration, on a model of the kernel's tables.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use canopus_capture::apply::{CommandError, Invocation, Options, Outcome, Runner, Tools, apply_iptables};
use canopus_capture::iptables::{RuleProgram, sidecar, superseded};
use canopus_capture::nftables::{self, Listing};
use canopus_capture::{
    CaptureConfig, DnsCapture, InboundPorts, InterceptionMode, OutboundRanges, Owner, OwnerGroups, PortRange,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// The tables of one family: chains with their rules, in order.
type Family = BTreeMap<(String, String), Vec<String>>;

/// A kernel that takes what iptables would give it, and refuses what the kernel refuses.
#[derive(Clone, Default, PartialEq, Debug)]
struct Kernel {
    v4: Family,
    v6: Family,
}

fn is_built_in(chain: &str) -> bool {
    ["INPUT", "OUTPUT", "FORWARD", "PREROUTING"].contains(&chain)
}

fn refused(reason: &str) -> CommandError {
    CommandError::Failed { line: String::new(), kind: "model".to_owned(), reason: reason.to_owned() }
}

/// Does what one line of arguments says.
fn step(family: &mut Family, table: &str, words: &[&str]) -> Result<(), CommandError> {
    let key = (table.to_owned(), words[1].to_owned());
    if is_built_in(words[1]) {
        family.entry(key.clone()).or_default();
    }
    if let Some(at) = words.iter().position(|word| *word == "-j") {
        let target = (table.to_owned(), words[at + 1].to_owned());
        let is_missing = target.1.starts_with("ISTIO_") && !family.contains_key(&target);
        if is_missing {
            return Err(refused("no such target"));
        }
    }
    let is_used = || family.values().flatten().any(|rule| rule.ends_with(&format!("-j {}", words[1])));
    match words[0] {
        "-N" if family.contains_key(&key) => return Err(refused("chain exists")),
        "-N" => drop(family.insert(key, Vec::new())),
        "-X" if family.get(&key).is_none_or(|rules| !rules.is_empty()) || is_used() => {
            return Err(refused("chain is in use"));
        }
        "-X" => drop(family.remove(&key)),
        verb => {
            let rules = family.get_mut(&key).ok_or_else(|| refused("no such chain"))?;
            let rule = words[2..].join(" ");
            match verb {
                "-F" => rules.clear(),
                "-A" => rules.push(rule),
                "-I" => {
                    let at: usize = words[2].parse().unwrap();
                    if at > rules.len() + 1 {
                        return Err(refused("index too big"));
                    }
                    rules.insert(at - 1, words[3..].join(" "));
                }
                "-C" if rules.contains(&rule) => {}
                "-D" => {
                    let at = rules
                        .iter()
                        .position(|known| *known == rule)
                        .ok_or_else(|| refused("no such rule"))?;
                    rules.remove(at);
                }
                _ => return Err(refused("no such rule")),
            }
        }
    }
    Ok(())
}

fn restore(family: &mut Family, input: &str) -> Result<(), CommandError> {
    let (mut copy, mut table) = (family.clone(), "");
    for line in input.lines() {
        match line.strip_prefix("* ") {
            Some(name) => table = name,
            None if line == "COMMIT" => {}
            None => step(&mut copy, table, &line.split(' ').collect::<Vec<_>>())?,
        }
    }
    *family = copy;
    Ok(())
}

fn save(family: &Family) -> String {
    let mut text = String::new();
    for table in ["filter", "mangle", "nat", "raw"] {
        text += &format!("*{table}\n");
        let chains = || family.iter().filter(|((of, _), _)| of == table);
        for ((_, chain), _) in chains() {
            text += &format!(":{chain} - [0:0]\n");
        }
        for ((_, chain), rules) in chains() {
            text.extend(rules.iter().map(|rule| format!("-A {chain} {rule}\n")));
        }
        text += "COMMIT\n";
    }
    text
}

impl Runner for Kernel {
    fn run(&mut self, call: &Invocation) -> Result<String, CommandError> {
        let family = if call.program.starts_with("ip6") { &mut self.v6 } else { &mut self.v4 };
        if call.program.ends_with("-save") {
            return Ok(save(family));
        }
        if let Some(input) = &call.input {
            restore(family, input)?;
        } else {
            let words: Vec<_> = call.arguments.iter().map(String::as_str).collect();
            step(family, words[1], &words[2..])?;
        }
        Ok(String::new())
    }
}

impl Kernel {
    fn apply(&mut self, config: &CaptureConfig, options: &Options) -> Result<Outcome, String> {
        let (program, superseded): (RuleProgram, _) = (sidecar(config), superseded(config));
        apply_iptables(self, &Tools::plain(), &program, &superseded, options)
            .map_err(|error| error.to_string())
    }

    /// The rules and the chains that are ours; built-in chains are always there.
    fn contents(&self) -> Vec<(&str, &str, &str, &[String])> {
        [("v4", &self.v4), ("v6", &self.v6)]
            .into_iter()
            .flat_map(|(name, family)| {
                family.iter().map(move |((table, chain), rules)| (name, &**table, &**chain, &**rules))
            })
            .filter(|(_, _, chain, rules)| !is_built_in(chain) || !rules.is_empty())
            .collect()
    }
}

fn port() -> impl Strategy<Value = PortRange> {
    (1u16..=u16::MAX, 0u16..3)
        .prop_map(|(first, more)| format!("{first}:{}", first.saturating_add(more)).parse().unwrap())
}

fn ports() -> impl Strategy<Value = Vec<PortRange>> {
    vec(port(), 0..3)
}

fn owners() -> impl Strategy<Value = Vec<Owner>> {
    vec((0u32..5).prop_map(Owner::id), 0..3)
}

fn range() -> impl Strategy<Value = canopus_base::net::IpNet> {
    prop_oneof![
        (any::<[u8; 4]>(), 0u8..=32)
            .prop_map(|(ip, bits)| canopus_base::net::IpNet::new(ip.into(), bits).unwrap()),
        (any::<[u8; 16]>(), 0u8..=128)
            .prop_map(|(ip, bits)| canopus_base::net::IpNet::new(ip.into(), bits).unwrap()),
    ]
}

fn interfaces() -> impl Strategy<Value = Vec<canopus_capture::InterfaceName>> {
    vec("[a-z][a-z0-9]{0,5}[+]?".prop_map(|name| name.parse().unwrap()), 0..3)
}

prop_compose! {
    fn inbound()(kind in 0..3, ports in ports()) -> InboundPorts {
        match kind {
            0 => InboundPorts::None,
            1 => InboundPorts::AllExcept(ports),
            _ => InboundPorts::Only(ports),
        }
    }
}

fn dns() -> impl Strategy<Value = Option<DnsCapture>> {
    let v4 = vec(any::<[u8; 4]>().prop_map(|ip| std::net::Ipv4Addr::from(ip).to_string()), 0..3);
    let v6 = vec(any::<[u8; 16]>().prop_map(|ip| std::net::Ipv6Addr::from(ip).to_string()), 0..3);
    option::of(prop_oneof![
        Just(DnsCapture::All),
        (v4, v6).prop_map(|(v4, v6)| DnsCapture::Servers { v4, v6 })
    ])
}

prop_compose! {
    fn config()(
        owners in (owners(), owners(), owners(), any::<bool>()),
        is_tproxy in any::<bool>(),
        inbound_ports in inbound(),
        ports in (ports(), ports()),
        ranges in (option::of(vec(range(), 0..4)), vec(range(), 0..4)),
        interfaces in (interfaces(), interfaces()),
        dns in dns(),
        flags in any::<(bool, bool)>(),
    ) -> CaptureConfig {
        let (proxy_uids, proxy_gids, groups, is_except) = owners;
        CaptureConfig {
            proxy_uids,
            proxy_gids,
            interception_mode: if is_tproxy { InterceptionMode::Tproxy } else { InterceptionMode::Redirect },
            inbound_ports,
            owner_groups: if is_except { OwnerGroups::AllExcept(groups) } else { OwnerGroups::Only(groups) },
            outbound_ports_include: ports.0,
            outbound_ports_exclude: ports.1,
            outbound_ranges: ranges.0.map_or(OutboundRanges::All, OutboundRanges::Only),
            outbound_ranges_exclude: ranges.1,
            virtual_interfaces: interfaces.0,
            excluded_interfaces: interfaces.1,
            dns,
            drop_invalid: flags.0,
            ipv6: flags.1,
            ..CaptureConfig::default()
        }
    }
}

const CLEANUP: Options = Options {
    reconcile: false,
    cleanup_only: true,
    force_apply: false,
    variant: canopus_capture::apply::VariantChoice::Detect,
    cni_mode: false,
    network_namespace: None,
    tools: None,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn second_run_changes_nothing(config in config()) {
        let mut kernel = Kernel::default();
        prop_assert_eq!(kernel.apply(&config, &Options::default()), Ok(Outcome::Applied));
        let first = kernel.clone();
        prop_assert_eq!(kernel.apply(&config, &Options::default()), Ok(Outcome::Unchanged));
        prop_assert_eq!(kernel, first);
    }

    #[test]
    fn cleanup_leaves_nothing(config in config()) {
        let mut kernel = Kernel::default();
        kernel.apply(&config, &Options::default()).unwrap();
        prop_assert_eq!(kernel.apply(&config, &CLEANUP), Ok(Outcome::Removed));
        prop_assert!(kernel.contents().is_empty(), "{:?}", kernel.contents());
    }

    #[test]
    fn reconciled_rules_are_those_of_a_fresh_kernel(old in config(), new in config()) {
        // Interfaces and owners outside of our chains can only be told from others by the settings that made them.
        let old = CaptureConfig {
            ipv6: new.ipv6,
            proxy_uids: new.proxy_uids.clone(),
            proxy_gids: new.proxy_gids.clone(),
            virtual_interfaces: new.virtual_interfaces.clone(),
            excluded_interfaces: new.excluded_interfaces.clone(),
            ..old
        };
        let mut fresh = Kernel::default();
        fresh.apply(&new, &Options::default()).unwrap();
        let mut kernel = Kernel::default();
        kernel.apply(&old, &Options::default()).unwrap();
        let outcome = kernel.apply(&new, &Options { reconcile: true, ..Options::default() }).unwrap();
        if outcome == Outcome::Replaced {
            prop_assert_eq!(kernel.contents(), fresh.contents());
        } else {
            prop_assert_eq!(outcome, Outcome::Unchanged);
        }
    }

    #[test]
    fn refused_run_changes_nothing(old in config(), new in config()) {
        let mut kernel = Kernel::default();
        kernel.apply(&old, &Options::default()).unwrap();
        let before = kernel.clone();
        if kernel.apply(&new, &Options::default()).is_err() {
            prop_assert_eq!(kernel.contents(), before.contents());
        }
    }

    #[test]
    fn every_nft_jump_has_a_chain_and_no_text_breaks_its_line(config in config()) {
        let transaction = nftables::sidecar(&config);
        let listing = Listing::from_transaction(&transaction);
        let chains: Vec<_> = listing.counts().map(|(table, chain, _)| (table.to_owned(), chain.to_owned())).collect();
        for line in transaction.to_string().lines() {
            prop_assert!(["add ", "flush ", "insert "].iter().any(|verb| line.starts_with(verb)), "{}", line);
            if let Some((before, target)) = line.rsplit_once(" jump ") {
                let table = before.split(' ').nth(3).unwrap().to_owned();
                prop_assert!(chains.contains(&(table, target.to_owned())), "{}", line);
            }
        }
    }
}
