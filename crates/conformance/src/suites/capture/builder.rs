//! The builders of rules, on rules that mean nothing.

use anyhow::{Context, bail};
use canopus_base::tree::Node;
use canopus_capture::iptables::{Arguments, RuleSet};
use canopus_capture::nftables::{Chain, Listing, Operation, RuleList, Transaction};

use super::{file, golden};
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::text;
use crate::dump::Dump;
use crate::suites::Suite;

pub(in crate::suites) struct IptablesBuilder;

impl Suite for IptablesBuilder {
    fn name(&self) -> &str {
        "iptables-builder"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        iptables(case).into()
    }
}

fn iptables(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let name = case.text("name").context("no name")?;
    let Some(steps) = case.entry.get("ops").and_then(Node::as_list) else {
        // The suite's note describes the steps of the one case that has none: they differ by family.
        let (v4, v6) = both_families();
        let mut found = iptables_texts(case, &format!("{name}-v4"), &v4)?;
        found.extend(iptables_texts(case, &format!("{name}-v6"), &v6)?);
        return Ok(found);
    };
    let mut rules = RuleSet::default();
    for step in steps {
        let spec = step.get("params").and_then(Node::as_str).context("no parameters")?;
        match (step.get("op").and_then(Node::as_str), step.get("position").and_then(Node::as_i64)) {
            (Some("append"), _) => rules.append("table", "chain", spec),
            (Some("insert"), Some(position)) => rules.insert("table", "chain", position.try_into()?, spec),
            _ => bail!("unknown step"),
        }
    }
    iptables_texts(case, name, &rules)
}

fn both_families() -> (RuleSet, RuleSet) {
    let (first, second) = ("-f foo -b bar", "-f foo -b baz");
    let mut v4 = RuleSet::default();
    v4.append("table", "chain", first);
    v4.insert("table", "chain", 2, first);
    v4.append("table", "chain", second);
    v4.append("nat", "PREROUTING", first);
    let mut v6 = RuleSet::default();
    v6.append("table", "chain", first);
    v6.insert("table", "chain", 2, first);
    v6.insert("table", "chain", 1, first);
    (v4, v6)
}

fn iptables_texts(case: &Case, name: &str, rules: &RuleSet) -> anyhow::Result<Vec<Difference>> {
    let commands: Vec<_> = rules.commands().iter().map(|call: &Arguments| call.join(" ")).collect();
    let mut found = text::difference(&file(case, &format!("{name}.golden"))?, &commands.join("\n"));
    found.extend(text::difference(&file(case, &format!("{name}-restore.golden"))?, &rules.restore()));
    Ok(found)
}

pub(in crate::suites) struct NftablesBuilder;

impl Suite for NftablesBuilder {
    fn name(&self) -> &str {
        "nftables-builder"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        nftables(case).into()
    }
}

const TABLE: &str = "inet-table";
const CHAIN: Chain = Chain { name: "test-chain", hook: None };

fn nftables(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let mut rules = RuleList::default();
    for step in case.entry.get("ops").and_then(Node::as_list).context("no steps")? {
        let words: Vec<_> = step.as_list().into_iter().flatten().filter_map(Node::as_str).collect();
        let [verb, spec] = words[..] else { bail!("not a verb and a rule") };
        // `append6` and `insert6` depend on IPv6, which is on.
        match verb.split_once('@') {
            None => rules.append(TABLE, CHAIN.name, spec),
            Some((_, index)) => rules.insert(TABLE, CHAIN.name, index.parse()?, spec),
        }
    }
    let start = [Operation::AddTable(TABLE.into()), Operation::AddChain(TABLE.into(), CHAIN)];
    let transaction: Transaction = start.into_iter().chain(rules.operations(TABLE)).collect();
    Ok(text::difference(&golden(case)?, &Listing::from_transaction(&transaction).to_string()))
}
