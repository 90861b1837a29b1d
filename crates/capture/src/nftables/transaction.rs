use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Where the kernel enters a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hook {
    /// `nat`, `filter` or `route`.
    pub kind: &'static str,
    /// `prerouting`, `output` or `postrouting`.
    pub name: &'static str,
    /// Priority of the chain within the hook; lower ones run first.
    pub priority: i32,
}

/// A chain that rules may be in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Name of the chain.
    pub name: &'static str,
    /// Where the kernel enters it; `None` for one that rules jump to.
    pub hook: Option<Hook>,
}

/// One step of a transaction. Tables are of the family `inet`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Makes a table if there is none.
    AddTable(Cow<'static, str>),
    /// Takes away the rules of a table.
    FlushTable(Cow<'static, str>),
    /// Takes away a table that is there.
    DeleteTable(Cow<'static, str>),
    /// Makes a chain if there is none.
    AddChain(Cow<'static, str>, Chain),
    /// Adds a rule at the end of its chain.
    AddRule(Rule),
    /// Adds a rule before the one with this index.
    InsertRule(Rule, usize),
}

/// A rule in its chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    table: Cow<'static, str>,
    chain: Cow<'static, str>,
    spec: String,
}

impl Rule {
    /// The chain it jumps to.
    fn jump(&self) -> Option<&str> {
        let mut words = self.spec.split(' ');
        words.find(|word| *word == "jump")?;
        words.next()
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddTable(table) => write!(f, "add table inet {table}"),
            Self::FlushTable(table) => write!(f, "flush table inet {table}"),
            Self::DeleteTable(table) => write!(f, "delete table inet {table}"),
            Self::AddChain(table, Chain { name, hook: None }) => write!(f, "add chain inet {table} {name}"),
            Self::AddChain(table, Chain { name, hook: Some(hook) }) => {
                let Hook { kind, name: point, priority } = hook;
                write!(
                    f,
                    "add chain inet {table} {name} {{ type {kind} hook {point} priority {priority} ; }}"
                )
            }
            Self::AddRule(Rule { table, chain, spec }) => write!(f, "add rule inet {table} {chain} {spec}"),
            Self::InsertRule(Rule { table, chain, spec }, index) => {
                write!(f, "insert rule inet {table} {chain} index {index} {spec}")
            }
        }
    }
}

/// Rules in the order they are made, before their tables are assembled.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleList {
    rules: Vec<(Rule, Option<usize>)>,
}

impl RuleList {
    /// Adds a rule at the end of its chain.
    pub fn append(
        &mut self,
        table: impl Into<Cow<'static, str>>,
        chain: impl Into<Cow<'static, str>>,
        spec: impl Into<String>,
    ) {
        self.rules.push((Rule { table: table.into(), chain: chain.into(), spec: spec.into() }, None));
    }

    /// Adds a rule before the one with this index, counted from 0.
    pub fn insert(
        &mut self,
        table: impl Into<Cow<'static, str>>,
        chain: impl Into<Cow<'static, str>>,
        index: usize,
        spec: impl Into<String>,
    ) {
        self.rules.push((Rule { table: table.into(), chain: chain.into(), spec: spec.into() }, Some(index)));
    }

    /// The rules of a table as operations.
    ///
    /// nftables knows no insertion at the end of a chain, or into an empty one; there it is an addition.
    pub fn operations<'a>(&'a self, table: &'a str) -> impl Iterator<Item = Operation> + 'a {
        let mut lengths: BTreeMap<&str, usize> = BTreeMap::new();
        self.rules.iter().filter(move |(rule, _)| rule.table == table).map(move |(rule, index)| {
            let length = lengths.entry(&rule.chain).or_default();
            let index = index.filter(|index| index < length);
            *length += 1;
            match index {
                Some(index) => Operation::InsertRule(rule.clone(), index),
                None => Operation::AddRule(rule.clone()),
            }
        })
    }

    /// The chains of a table that rules are in or jump to.
    fn used_chains(&self, table: &str) -> BTreeSet<&str> {
        let rules = self.rules.iter().map(|(rule, _)| rule).filter(|rule| rule.table == table);
        rules.flat_map(|rule| [Some(&*rule.chain), rule.jump()]).flatten().collect()
    }
}

/// Steps that the kernel takes all or none of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction {
    operations: Vec<Operation>,
}

impl Transaction {
    /// Replaces the contents of a table by its rules. Nothing if there are none.
    pub(crate) fn replace_table(&mut self, table: &'static str, chains: &[Chain], rules: &RuleList) {
        let used = rules.used_chains(table);
        if used.is_empty() {
            return;
        }
        self.operations.push(Operation::AddTable(table.into()));
        self.operations.push(Operation::FlushTable(table.into()));
        let chains = chains.iter().filter(|chain| used.contains(chain.name));
        self.operations.extend(chains.map(|chain| Operation::AddChain(table.into(), *chain)));
        self.operations.extend(rules.operations(table));
    }

    /// Takes a table away, whether it is there or not.
    pub(crate) fn remove_table(&mut self, table: &'static str) {
        // Deleting what is not there would fail; adding what is there does not.
        self.operations.push(Operation::AddTable(table.into()));
        self.operations.push(Operation::DeleteTable(table.into()));
    }

    /// Appends this transaction to an earlier one.
    #[must_use]
    pub(crate) fn after(self, mut earlier: Self) -> Self {
        earlier.operations.extend(self.operations);
        earlier
    }

    /// The steps.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

impl FromIterator<Operation> for Transaction {
    fn from_iter<T: IntoIterator<Item = Operation>>(operations: T) -> Self {
        Self { operations: operations.into_iter().collect() }
    }
}

impl fmt::Display for Transaction {
    /// The input of `nft -f`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operations.iter().try_for_each(|operation| writeln!(f, "{operation}"))
    }
}

/// The chains of a table with their rules, each in the kernel's order.
type Chains = Vec<(Chain, Vec<Rule>)>;

/// What tables hold after a transaction on an empty kernel, in the kernel's order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    tables: Vec<(Cow<'static, str>, Chains)>,
}

impl Listing {
    /// Takes the steps of a transaction.
    pub fn from_transaction(transaction: &Transaction) -> Self {
        let mut listing = Self::default();
        for operation in &transaction.operations {
            listing.take(operation);
        }
        listing
    }

    fn take(&mut self, operation: &Operation) {
        match operation {
            Operation::AddTable(table) if self.chains(table).is_none() => {
                self.tables.push((table.clone(), Vec::new()));
            }
            Operation::AddTable(_) => {}
            Operation::FlushTable(table) => {
                self.chains(table).into_iter().flatten().for_each(|(_, rules)| rules.clear());
            }
            Operation::DeleteTable(table) => self.tables.retain(|(name, _)| name != table),
            Operation::AddChain(table, chain) => {
                if let Some(chains) =
                    self.chains(table).filter(|chains| chains.iter().all(|(known, _)| known != chain))
                {
                    chains.push((*chain, Vec::new()));
                }
            }
            Operation::AddRule(rule) => {
                self.rules(rule).into_iter().for_each(|rules| rules.push(rule.clone()));
            }
            Operation::InsertRule(rule, index) => {
                let at = *index;
                self.rules(rule)
                    .into_iter()
                    .for_each(|rules| rules.insert(at.min(rules.len()), rule.clone()));
            }
        }
    }

    fn chains(&mut self, table: &str) -> Option<&mut Chains> {
        self.tables.iter_mut().find(|(name, _)| name == table).map(|(_, chains)| chains)
    }

    fn rules(&mut self, rule: &Rule) -> Option<&mut Vec<Rule>> {
        let chains = self.chains(&rule.table)?;
        chains.iter_mut().find(|(chain, _)| chain.name == rule.chain).map(|(_, rules)| rules)
    }

    /// Each chain, as table, chain and number of rules.
    pub fn counts(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        self.tables.iter().flat_map(|(table, chains)| {
            chains.iter().map(move |(chain, rules)| (&**table, chain.name, rules.len()))
        })
    }
}

impl fmt::Display for Listing {
    /// The additions that would make the same from nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (table, chains) in &self.tables {
            writeln!(f, "{}", Operation::AddTable(table.clone()))?;
            for (chain, _) in chains {
                writeln!(f, "{}", Operation::AddChain(table.clone(), *chain))?;
            }
            for rule in chains.iter().flat_map(|(_, rules)| rules) {
                writeln!(f, "{}", Operation::AddRule(rule.clone()))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAINS: [Chain; 3] = [
        Chain { name: "output", hook: Some(Hook { kind: "nat", name: "output", priority: -100 }) },
        Chain { name: "own", hook: None },
        Chain { name: "unused", hook: None },
    ];

    #[test]
    fn insertion_at_the_end_is_an_addition() {
        let mut rules = RuleList::default();
        rules.insert("t", "own", 0, "a");
        rules.insert("t", "own", 1, "b");
        rules.insert("t", "own", 0, "c");
        let mut transaction = Transaction::default();
        transaction.replace_table("t", &CHAINS, &rules);
        assert_eq!(
            transaction.to_string(),
            "add table inet t\nflush table inet t\nadd chain inet t own\nadd rule inet t own a\nadd rule inet t own b\n\
             insert rule inet t own index 0 c\n"
        );
        assert_eq!(
            Listing::from_transaction(&transaction).to_string(),
            "add table inet t\nadd chain inet t own\nadd rule inet t own c\nadd rule inet t own a\nadd rule inet t own b\n"
        );
    }

    #[test]
    fn chain_that_is_only_jumped_to_is_made_as_well() {
        let mut rules = RuleList::default();
        rules.append("t", "output", "counter jump own");
        let mut transaction = Transaction::default();
        transaction.replace_table("t", &CHAINS, &rules);
        assert!(transaction.to_string().contains("add chain inet t own\n"));
        assert!(transaction.to_string().contains("{ type nat hook output priority -100 ; }"));
    }

    #[test]
    fn removal_leaves_nothing_and_no_rules_are_no_steps() {
        let mut transaction = Transaction::default();
        transaction.remove_table("t");
        assert_eq!(Listing::from_transaction(&transaction), Listing::default());
        let mut nothing = Transaction::default();
        nothing.replace_table("t", &CHAINS, &RuleList::default());
        assert!(nothing.is_empty());
    }
}
