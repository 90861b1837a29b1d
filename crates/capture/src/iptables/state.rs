//! What `iptables-save` prints, as far as it concerns capture.
//!
//! Rules come back from the kernel in other words than they were given, so rules are only counted here; whether a rule
//! is there is asked with `iptables -C`.

use std::collections::BTreeMap;

use super::{Arguments, is_own_chain};

/// The tables capture has rules in.
const TABLES: [&str; 4] = ["filter", "nat", "mangle", "raw"];

/// Rules by table and chain. Of the chains without rules, only our own are in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SavedState {
    tables: BTreeMap<&'static str, BTreeMap<String, Vec<String>>>,
}

/// Chains and jumps of ours that are still there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leftovers {
    jumps: Vec<(&'static str, String)>,
    chains: Vec<(&'static str, String)>,
}

/// A word without the quotes that `iptables-save` may put around it.
fn unquoted(word: &str) -> &str {
    word.trim_matches(['\'', '"'])
}

/// The word behind one of `flags`.
fn behind<'a>(line: &'a str, flags: &[&str]) -> Option<&'a str> {
    let mut words = line.split_ascii_whitespace();
    words.find(|word| flags.contains(word))?;
    words.next().map(unquoted)
}

fn jump_target(line: &str) -> Option<&str> {
    behind(line, &["-j", "--jump"])
}

impl SavedState {
    /// Reads the output of `iptables-save`, or the input of `iptables-restore`.
    pub fn parse(text: &str) -> Self {
        let mut state = Self::default();
        let mut table = None;
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('*') {
                table = TABLES.into_iter().find(|known| *known == name.trim());
            } else if let Some(table) = table {
                state.read(table, line);
            }
        }
        state
    }

    fn read(&mut self, table: &'static str, line: &str) {
        let declared = line.strip_prefix(':').and_then(|rest| rest.split(' ').next());
        let made = declared.or_else(|| behind(line, &["-N", "--new"])).filter(|chain| is_own_chain(chain));
        if let Some(chain) = made {
            self.chain(table, chain);
        }
        if let Some(chain) = behind(line, &["-A", "--append", "-I", "--insert"]) {
            self.chain(table, chain).push(line.to_owned());
        }
    }

    fn chain(&mut self, table: &'static str, chain: &str) -> &mut Vec<String> {
        self.tables.entry(table).or_default().entry(chain.to_owned()).or_default()
    }

    /// Whether there is no rule and no chain of ours.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Whether a rule of any kind, or a chain that somebody made, is there.
    pub(crate) fn has_rules(text: &str) -> bool {
        // A table that was merely touched once is listed with its built-in chains, which have a policy; own chains
        // have `-` in its place.
        let is_made = |line: &str| line.starts_with(':') && line.split(' ').nth(1) == Some("-");
        text.lines().any(|line| line.starts_with("-A") || is_made(line))
    }

    /// Whether this state surely differs from the expected one: a chain is missing or too many, or one of ours has
    /// another number of rules.
    pub fn differs_from(&self, expected: &Self) -> bool {
        let rules = |state: &'_ Self, table, chain: &str| {
            state.tables.get(table).and_then(|chains| chains.get(chain)).map(Vec::len)
        };
        let missing = expected.each_chain().any(|(table, chain, wanted)| match rules(self, table, chain) {
            None => true,
            Some(found) => is_own_chain(chain) && found != wanted.len(),
        });
        let own = |(_, chain, _): &(_, &str, _)| is_own_chain(chain);
        missing
            || self.each_chain().filter(own).any(|(table, chain, _)| rules(expected, table, chain).is_none())
    }

    /// A chain of ours that both states have.
    pub(crate) fn common_chain(&self, other: &Self) -> Option<(&'static str, String)> {
        let is_in = |table, chain: &str| {
            other.tables.get(table).is_some_and(|chains: &BTreeMap<String, _>| chains.contains_key(chain))
        };
        let mut own = self.each_chain().filter(|(_, chain, _)| is_own_chain(chain));
        own.find(|(table, chain, _)| is_in(*table, chain)).map(|(table, chain, _)| (table, chain.to_owned()))
    }

    fn each_chain(&self) -> impl Iterator<Item = (&'static str, &str, &Vec<String>)> {
        self.tables
            .iter()
            .flat_map(|(table, chains)| chains.iter().map(|(chain, rules)| (*table, chain.as_str(), rules)))
    }

    /// Chains of ours and jumps to them.
    pub fn leftovers(&self) -> Leftovers {
        let mut found = Leftovers::default();
        for (table, chain, rules) in self.each_chain() {
            if is_own_chain(chain) {
                found.chains.push((table, chain.to_owned()));
            }
            let jumps = rules.iter().filter(|rule| jump_target(rule).is_some_and(is_own_chain));
            found.jumps.extend(jumps.map(|rule| (table, rule.clone())));
        }
        found
    }
}

impl Leftovers {
    /// Jumps to chains of ours from chains of others, each with its table.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let is_entry = |rule: &str| behind(rule, &["-A"]).is_some_and(|chain| !is_own_chain(chain));
        let jumps = self.jumps.iter().map(|(table, rule)| (*table, rule.as_str()));
        jumps.filter(move |(_, rule)| is_entry(rule))
    }

    /// Chains of ours, each with its table.
    pub(crate) fn chains(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.chains.iter().map(|(table, chain)| (*table, chain.as_str()))
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.jumps.is_empty() && self.chains.is_empty()
    }

    /// Calls that take them away: all jumps, then all rules, then all chains.
    pub fn cleanup(&self) -> Vec<Arguments> {
        let deletion = |(table, rule): &(&str, String)| {
            let words = rule.split_ascii_whitespace();
            let words = words.map(|word| if word == "-A" { "-D" } else { unquoted(word) });
            ["-t", table].into_iter().chain(words).map(str::to_owned).collect()
        };
        let on_chains = |verb: &'static str| {
            let call = move |(table, chain): &(&'static str, String)| {
                ["-t", *table, verb, chain.as_str()].map(str::to_owned).to_vec()
            };
            self.chains.iter().map(call)
        };
        self.jumps.iter().map(deletion).chain(on_chains("-F")).chain(on_chains("-X")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = "# Generated by iptables-save\n*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
        :ISTIO_OUTPUT - [0:0]\n:ISTIO_EMPTY - [0:0]\n:KUBE-SVC - [0:0]\n-A OUTPUT -j ISTIO_OUTPUT\n\
        -A ISTIO_OUTPUT -o lo -j RETURN\n-A KUBE-SVC -j RETURN\nCOMMIT\n*security\n:ISTIO_X - [0:0]\nCOMMIT\n";

    #[test]
    fn own_chains_count_even_when_empty_and_foreign_tables_do_not() {
        let state = SavedState::parse(SAVED);
        let chains: Vec<_> = state.each_chain().map(|(_, chain, rules)| (chain, rules.len())).collect();
        assert_eq!(chains, [("ISTIO_EMPTY", 0), ("ISTIO_OUTPUT", 1), ("KUBE-SVC", 1), ("OUTPUT", 1)]);
    }

    #[test]
    fn state_equals_the_restore_input_it_came_from() {
        let mut rules = super::super::RuleSet::default();
        rules.append("nat", "ISTIO_OUTPUT", "-o lo -j RETURN");
        rules.append("nat", "OUTPUT", "-j ISTIO_OUTPUT");
        let expected = SavedState::parse(&rules.restore());
        let without_empty = SavedState::parse(&SAVED.replace(":ISTIO_EMPTY - [0:0]\n", ""));
        assert!(!without_empty.differs_from(&expected));
        assert!(SavedState::parse(SAVED).differs_from(&expected), "a chain too many");
        rules.append("nat", "ISTIO_OUTPUT", "-j RETURN");
        assert!(without_empty.differs_from(&SavedState::parse(&rules.restore())), "a rule is missing");
    }

    #[test]
    fn leftovers_are_jumps_and_chains_of_ours_alone() {
        let calls: Vec<_> =
            SavedState::parse(SAVED).leftovers().cleanup().iter().map(|call| call.join(" ")).collect();
        assert_eq!(
            calls,
            [
                "-t nat -D OUTPUT -j ISTIO_OUTPUT",
                "-t nat -F ISTIO_EMPTY",
                "-t nat -F ISTIO_OUTPUT",
                "-t nat -X ISTIO_EMPTY",
                "-t nat -X ISTIO_OUTPUT",
            ]
        );
        assert!(SavedState::parse("*nat\n-A KUBE-SVC -j RETURN\nCOMMIT\n").leftovers().is_empty());
    }

    #[test]
    fn touched_table_is_no_table_with_rules() {
        let touched = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";
        assert!(!SavedState::has_rules(touched));
        assert!(SavedState::has_rules(SAVED));
    }
}
