//! Applies iptables programs: once, again without effect, or in the place of others.

use super::command::{CommandError, Runner};
use super::variant::{Tools, Variant};
use super::{ApplyError, Options, Outcome};
use crate::config::Family;
use crate::iptables::{Arguments, RuleProgram, RuleSet, SavedState, guardrails};

/// What is in the kernel, compared with a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Found {
    /// Rules or chains that may be of an earlier run.
    has_residue: bool,
    /// A rule differs from the program.
    differs: bool,
    /// A chain of the program that exists, by table and name.
    collision: Option<(&'static str, String)>,
}

/// Applies a program.
///
/// Rules that are there already are left alone. Rules of an earlier run that differ are replaced if the options say so;
/// otherwise they are in the way, and the error says that. `superseded` has rules outside of our own chains that an
/// earlier run may have made; they go with the rest when rules are removed.
pub fn apply_iptables(
    runner: &mut dyn Runner,
    tools: &Tools,
    program: &RuleProgram,
    superseded: &RuleProgram,
    options: &Options,
) -> Result<Outcome, ApplyError> {
    let mut session = Session { runner, tools, program, superseded };
    let found = session.verify();
    let is_drift = found.has_residue && found.differs;
    if options.cleanup_only {
        session.clean_up();
        return Ok(Outcome::Removed);
    }
    if is_drift && options.reconcile {
        return session.replace().map(|()| Outcome::Replaced);
    }
    if !found.differs && !options.force_apply {
        return Ok(Outcome::Unchanged);
    }
    // The restore would fail at a chain that exists, but legacy iptables commits the tables before that one.
    if let Some((table, chain)) = found.collision.filter(|_| !options.force_apply) {
        return Err(ApplyError::Drift { table, chain });
    }
    session.add()?;
    Ok(Outcome::Applied)
}

/// Puts a program in the place of whatever rules of ours there are, without stopping traffic meanwhile.
///
/// Rules of ours are those in chains of ours, and jumps to them. An empty program removes them.
pub fn replace_iptables(
    runner: &mut dyn Runner,
    tools: &Tools,
    program: &RuleProgram,
) -> Result<Outcome, ApplyError> {
    let none = RuleSet::default();
    let mut outcome = Outcome::Unchanged;
    for family in [Family::V4, Family::V6] {
        let Some(variant) = tools.variant(family) else { continue };
        let rules = program.rules(family).unwrap_or(&none);
        let found = SavedState::parse(&runner.run(&variant.save())?).leftovers();
        let input = rules.replacement(&found);
        if input.is_empty() {
            continue;
        }
        runner.run(&variant.restore(input))?;
        outcome = match (rules.rules().is_empty(), found.is_empty()) {
            (true, _) => Outcome::Removed,
            (false, true) => Outcome::Applied,
            (false, false) => Outcome::Replaced,
        };
    }
    Ok(outcome)
}

/// Logs the rules that are there now.
pub fn log_final_state(runner: &mut dyn Runner, tools: &Tools, program: &RuleProgram) {
    for family in [Family::V4, Family::V6] {
        let (Some(variant), Some(_)) = (tools.variant(family), program.rules(family)) else { continue };
        match runner.run(&variant.save()) {
            Ok(state) => tracing::info!("rules ({family:?}):\n{state}"),
            Err(error) => tracing::debug!("cannot list the rules ({family:?}): {error}"),
        }
    }
}

struct Session<'a> {
    runner: &'a mut dyn Runner,
    tools: &'a Tools,
    program: &'a RuleProgram,
    superseded: &'a RuleProgram,
}

impl<'a> Session<'a> {
    /// The families that are captured, with what is needed to work on each.
    fn captured(&self) -> Vec<(&'a Variant, &'a RuleSet, Family)> {
        let (tools, program) = (self.tools, self.program);
        let family = |family| Some((tools.variant(family)?, program.rules(family)?, family));
        [Family::V4, Family::V6].into_iter().filter_map(family).collect()
    }

    fn verify(&mut self) -> Found {
        let none = RuleSet::default();
        let mut found = Found::default();
        for family in [Family::V4, Family::V6] {
            let Some(variant) = self.tools.variant(family) else { continue };
            let rules = self.program.rules(family).unwrap_or(&none);
            let of_family = self.verify_family(variant, rules);
            let is_planned = !rules.rules().is_empty();
            // Rules of others in a family without a program are none of ours to judge.
            found.has_residue |= of_family.has_residue && is_planned;
            found.differs |= of_family.differs && is_planned;
            found.collision = found.collision.or(of_family.collision);
        }
        Found { differs: found.differs || !found.has_residue, ..found }
    }

    fn verify_family(&mut self, variant: &Variant, rules: &RuleSet) -> Found {
        let expected = SavedState::parse(&rules.restore());
        let state = match self.runner.run(&variant.save()) {
            Ok(text) => SavedState::parse(&text),
            Err(error) => {
                tracing::warn!("cannot list the rules, assuming there are none: {error}");
                SavedState::default()
            }
        };
        if state.is_empty() {
            return Found { differs: !expected.is_empty(), ..Found::default() };
        }
        let differs = state.differs_from(&expected) || !self.succeed(variant, &rules.checks());
        Found { has_residue: true, differs, collision: state.common_chain(&expected) }
    }

    /// Whether all calls succeed; stops at the first that does not.
    fn succeed(&mut self, variant: &Variant, calls: &[Arguments]) -> bool {
        calls.iter().all(|call| self.runner.run(&variant.command(call)).is_ok())
    }

    /// Runs calls that may fail because there is nothing to remove.
    fn attempt(&mut self, variant: &Variant, calls: &[Arguments]) {
        for call in calls {
            if let Err(error) = self.runner.run(&variant.command(call)) {
                tracing::debug!("nothing to remove: {error}");
            }
        }
    }

    fn require(&mut self, variant: &Variant, calls: &[Arguments]) -> Result<(), CommandError> {
        calls.iter().try_for_each(|call| self.runner.run(&variant.command(call)).map(drop))
    }

    fn add(&mut self) -> Result<(), CommandError> {
        for (variant, rules, family) in self.captured() {
            let call = variant.restore(rules.restore());
            let input = call.input.as_deref().unwrap_or_default().trim_end();
            tracing::info!("applying rules ({family:?}) with {}:\n{input}", call.program);
            self.runner.run(&call)?;
        }
        Ok(())
    }

    /// Removes rules of an earlier run and adds the wanted ones. In between nothing may pass: it would pass unproxied.
    fn replace(&mut self) -> Result<(), ApplyError> {
        tracing::info!("replacing rules of an earlier run; traffic stops until that is done");
        let result = self.raise_guardrails().and_then(|()| {
            self.clean_up();
            self.add()
        });
        self.lower_guardrails();
        Ok(result?)
    }

    fn raise_guardrails(&mut self) -> Result<(), CommandError> {
        // A run that was killed may have left its own.
        self.lower_guardrails();
        for (variant, _, _) in self.captured() {
            self.require(variant, &guardrails().commands())?;
        }
        Ok(())
    }

    fn lower_guardrails(&mut self) {
        for (variant, _, _) in self.captured() {
            self.attempt(variant, &guardrails().cleanup());
        }
    }

    fn clean_up(&mut self) {
        for (variant, rules, family) in self.captured() {
            self.attempt(variant, &rules.cleanup());
            if let Some(rules) = self.superseded.rules(family) {
                self.attempt(variant, &rules.cleanup());
            }
            self.remove_leftovers(variant);
        }
    }

    /// Removes chains of ours that an earlier run with other settings has made.
    fn remove_leftovers(&mut self, variant: &Variant) {
        let Ok(text) = self.runner.run(&variant.save()) else { return };
        let leftovers = SavedState::parse(&text).leftovers();
        if !leftovers.is_empty() {
            self.attempt(variant, &leftovers.cleanup());
        }
    }
}
