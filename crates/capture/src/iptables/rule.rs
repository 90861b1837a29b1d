use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::{Leftovers, is_own_chain};

/// The arguments of one call of iptables.
pub type Arguments = Vec<String>;

/// Chains and targets that exist without being made.
const BUILT_IN: [&str; 8] =
    ["INPUT", "OUTPUT", "FORWARD", "PREROUTING", "POSTROUTING", "ACCEPT", "RETURN", "DROP"];

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    table: Cow<'static, str>,
    chain: Cow<'static, str>,
    /// Where it is inserted, counted from 1; `None` appends it.
    position: Option<u32>,
    /// Matches and target, separated by blanks.
    spec: String,
}

impl Rule {
    /// The rule with a verb, as a line of `iptables-restore`.
    fn line(&self) -> String {
        match self.position {
            None => format!("-A {} {}", self.chain, self.spec),
            Some(position) => format!("-I {} {position} {}", self.chain, self.spec),
        }
    }

    fn arguments(&self, verb: &str) -> Arguments {
        words(&format!("-t {} {verb} {} {}", self.table, self.chain, self.spec))
    }

    /// The chain the rule ends in, if it ends in a jump without options.
    fn last_jump(&self) -> Option<&str> {
        let (before, target) = self.spec.rsplit_once(' ').unwrap_or(("", &self.spec));
        before.split(' ').next_back().filter(|word| *word == "-j").map(|_| target)
    }

    fn jumps_to_own_chain(&self) -> bool {
        let mut words = self.spec.split_ascii_whitespace();
        words.any(|word| word == "-j") && words.next().is_some_and(is_own_chain)
    }
}

fn words(line: &str) -> Arguments {
    line.split_ascii_whitespace().map(str::to_owned).collect()
}

/// The rules of one family, in the order they are made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
}

impl RuleSet {
    /// Adds a rule at the end of its chain.
    pub fn append(
        &mut self,
        table: impl Into<Cow<'static, str>>,
        chain: impl Into<Cow<'static, str>>,
        spec: impl Into<String>,
    ) {
        self.rules.push(Rule { table: table.into(), chain: chain.into(), position: None, spec: spec.into() });
    }

    /// Adds a rule at a position of its chain, counted from 1.
    pub fn insert(
        &mut self,
        table: impl Into<Cow<'static, str>>,
        chain: impl Into<Cow<'static, str>>,
        position: u32,
        spec: impl Into<String>,
    ) {
        let position = Some(position);
        self.rules.push(Rule { table: table.into(), chain: chain.into(), position, spec: spec.into() });
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The chains that rules are in and that do not exist by themselves, in the order they are first used.
    fn made_chains<'a>(rules: impl Iterator<Item = &'a Rule>) -> Vec<(&'a str, &'a str)> {
        let mut seen = BTreeSet::new();
        rules
            .map(|rule| (&*rule.table, &*rule.chain))
            .filter(|(_, chain)| !BUILT_IN.contains(chain))
            .filter(|key| seen.insert(*key))
            .collect()
    }

    /// One call of iptables per chain and rule.
    pub fn commands(&self) -> Vec<Arguments> {
        let chains = Self::made_chains(self.rules.iter());
        let chains = chains.into_iter().map(|(table, chain)| words(&format!("-t {table} -N {chain}")));
        let rules = self.rules.iter().map(|rule| words(&format!("-t {} {}", rule.table, rule.line())));
        chains.chain(rules).collect()
    }

    /// The input of `iptables-restore --noflush` that puts these rules in the place of those that were found.
    ///
    /// The kernel takes all changes of a table at once, so that at no time packets meet half of them, and none has to be
    /// stopped meanwhile. Declaring a chain that exists empties it.
    pub fn replacement(&self, found: &Leftovers) -> String {
        let mut tables: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let wanted = Self::made_chains(self.rules.iter());
        for (table, chain) in &wanted {
            tables.entry(table).or_default().push(format!(":{chain} - [0:0]"));
        }
        let is_surplus = |entry: &(&str, &str)| !wanted.contains(entry);
        for (table, chain) in found.chains().filter(is_surplus) {
            tables.entry(table).or_default().push(format!(":{chain} - [0:0]"));
        }
        for (table, rule) in found.entries() {
            tables.entry(table).or_default().push(rule.replacen("-A", "-D", 1));
        }
        for rule in &self.rules {
            tables.entry(&rule.table).or_default().push(rule.line());
        }
        for (table, chain) in found.chains().filter(is_surplus) {
            tables.entry(table).or_default().push(format!("-X {chain}"));
        }
        let block = |(table, lines): (&str, Vec<String>)| format!("*{table}\n{}\nCOMMIT\n", lines.join("\n"));
        tables.into_iter().map(block).collect()
    }

    /// The input of `iptables-restore --noflush`: by table, chains before rules.
    pub fn restore(&self) -> String {
        let mut tables: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut chains = Self::made_chains(self.rules.iter());
        for rule in &self.rules {
            // A chain that is only jumped to has to exist as well.
            if let Some(target) = rule.last_jump().filter(|target| !BUILT_IN.contains(target))
                && !chains.contains(&(&*rule.table, target))
            {
                chains.push((&rule.table, target));
            }
        }
        for (table, chain) in chains {
            tables.entry(table).or_default().push(format!("-N {chain}"));
        }
        for rule in &self.rules {
            tables.entry(&rule.table).or_default().push(rule.line());
        }
        let block =
            |(table, lines): (&str, Vec<String>)| format!("* {table}\n{}\nCOMMIT\n", lines.join("\n"));
        tables.into_iter().map(block).collect()
    }

    /// Calls that each succeed if a rule is there.
    pub fn checks(&self) -> Vec<Arguments> {
        self.rules.iter().map(|rule| rule.arguments("-C")).collect()
    }

    /// Calls that take rules and chains away, the last made first.
    ///
    /// Rules within our own chains go with their chain, but for jumps between such chains: a chain that is jumped to
    /// cannot be deleted.
    pub fn cleanup(&self) -> Vec<Arguments> {
        let undo = |rule: &&Rule| !is_own_chain(&rule.chain) || rule.jumps_to_own_chain();
        let mut calls: Vec<_> =
            self.rules.iter().rev().filter(undo).map(|rule| rule.arguments("-D")).collect();
        for (table, chain) in Self::made_chains(self.rules.iter().rev()) {
            calls.push(words(&format!("-t {table} -F {chain}")));
            calls.push(words(&format!("-t {table} -X {chain}")));
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RuleSet {
        let mut rules = RuleSet::default();
        rules.append("nat", "ISTIO_A", "-p tcp -j REDIRECT --to-ports 1");
        rules.append("nat", "ISTIO_B", "-j ISTIO_A");
        rules.append("nat", "OUTPUT", "-j ISTIO_B");
        rules.insert("mangle", "PREROUTING", 1, "-i eth0 -j RETURN");
        rules.append("raw", "OUTPUT", "-j ISTIO_C");
        rules
    }

    fn joined(calls: &[Arguments]) -> Vec<String> {
        calls.iter().map(|call| call.join(" ")).collect()
    }

    #[test]
    fn restore_makes_chains_that_are_only_jumped_to() {
        assert_eq!(
            sample().restore(),
            "* mangle\n-I PREROUTING 1 -i eth0 -j RETURN\nCOMMIT\n\
             * nat\n-N ISTIO_A\n-N ISTIO_B\n-A ISTIO_A -p tcp -j REDIRECT --to-ports 1\n-A ISTIO_B -j ISTIO_A\n\
             -A OUTPUT -j ISTIO_B\nCOMMIT\n* raw\n-N ISTIO_C\n-A OUTPUT -j ISTIO_C\nCOMMIT\n"
        );
    }

    #[test]
    fn checks_lose_the_position_of_inserted_rules() {
        let checks = joined(&sample().checks());
        assert_eq!(checks[0], "-t nat -C ISTIO_A -p tcp -j REDIRECT --to-ports 1");
        assert_eq!(checks[3], "-t mangle -C PREROUTING -i eth0 -j RETURN");
    }

    #[test]
    fn cleanup_undoes_jumps_before_it_deletes_chains() {
        assert_eq!(
            joined(&sample().cleanup()),
            [
                "-t raw -D OUTPUT -j ISTIO_C",
                "-t mangle -D PREROUTING -i eth0 -j RETURN",
                "-t nat -D OUTPUT -j ISTIO_B",
                "-t nat -D ISTIO_B -j ISTIO_A",
                "-t nat -F ISTIO_B",
                "-t nat -X ISTIO_B",
                "-t nat -F ISTIO_A",
                "-t nat -X ISTIO_A",
            ]
        );
    }

    #[test]
    fn no_rules_are_no_text() {
        assert_eq!(RuleSet::default().restore(), "");
        assert!(RuleSet::default().commands().is_empty());
    }
}
