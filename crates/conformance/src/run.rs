//! Choosing cases, running them in parallel, and keeping a panic in one from the others.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

use anyhow::{Context, bail};
use rayon::prelude::*;

use crate::better;
use crate::case::{Case, Outcome};
use crate::corpus::Corpus;
use crate::dump::Dump;
use crate::suites::{self, Suite};

/// Deep enough for any document the readers accept, in an unoptimised build.
const STACK: usize = 32 << 20;

/// What to run; empty lists mean everything.
#[derive(Default)]
pub(crate) struct Selection {
    pub(crate) suites: Vec<String>,
    pub(crate) cases: Vec<String>,
}

/// A suite and the cases of it to run.
pub(crate) struct Plan {
    pub(crate) suite: Box<dyn Suite>,
    pub(crate) cases: Vec<Case>,
    /// Whether `cases` are all there are.
    pub(crate) complete: bool,
    /// Why the cases could not be listed.
    pub(crate) problem: Option<String>,
}

/// A suite and what became of its cases, in the order of the data.
pub(crate) struct Score {
    pub(crate) suite: String,
    pub(crate) results: Vec<(String, Outcome)>,
    /// Printed beside the counts.
    pub(crate) note: String,
    /// Whether the line is beside the suites of the corpus rather than one of them.
    pub(crate) extra: bool,
    /// Whether all cases were run.
    pub(crate) complete: bool,
}

impl Score {
    pub(crate) fn passed(&self) -> usize {
        self.results.iter().filter(|(_, outcome)| outcome.is_pass()).count()
    }

    pub(crate) fn total(&self) -> usize {
        self.results.len()
    }

    /// How many cases differ from a stale recording.
    pub(crate) fn better(&self) -> usize {
        self.results.iter().filter(|(_, outcome)| outcome.is_better()).count()
    }

    /// How many cases could not be run here.
    pub(crate) fn missing(&self) -> usize {
        self.results.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Missing(_))).count()
    }

    /// The ids of the cases that did not pass.
    pub(crate) fn failed(&self) -> impl Iterator<Item = &str> {
        let failed = self.results.iter().filter(|(_, outcome)| !outcome.is_pass() && !outcome.is_better());
        failed.map(|(id, _)| id.as_str())
    }
}

/// The suites of the corpus that were asked for, and their cases.
pub(crate) fn plan(corpus: &Corpus, selection: &Selection) -> anyhow::Result<Vec<Plan>> {
    let mut suites = suites::all(corpus)?;
    for name in &selection.suites {
        if !suites.iter().any(|suite| suite.name() == name) {
            let known: Vec<_> = suites.iter().map(|suite| suite.name()).collect();
            bail!("no suite {name:?}; there are {}", known.join(", "));
        }
    }
    if !selection.suites.is_empty() {
        suites.retain(|suite| selection.suites.iter().any(|name| name == suite.name()));
    }
    Ok(suites.into_par_iter().map(|suite| plan_suite(suite, corpus, &selection.cases)).collect())
}

/// Data that cannot be read costs its own suite only.
fn plan_suite(suite: Box<dyn Suite>, corpus: &Corpus, wanted: &[String]) -> Plan {
    match suite.cases(corpus) {
        Ok(mut cases) => {
            let all = cases.len();
            choose(&mut cases, wanted);
            let complete = cases.len() == all;
            Plan { suite, cases, complete, problem: None }
        }
        Err(error) => Plan { suite, cases: Vec::new(), complete: true, problem: Some(format!("{error:#}")) },
    }
}

/// Keeps the cases with a wanted id; a text that is no case's id stands for all ids that contain it.
fn choose(cases: &mut Vec<Case>, wanted: &[String]) {
    if wanted.is_empty() {
        return;
    }
    let (exact, parts): (Vec<_>, Vec<_>) =
        wanted.iter().partition(|id| cases.iter().any(|case| case.id == **id));
    cases.retain(|case| {
        exact.iter().any(|id| **id == case.id) || parts.iter().any(|part| case.id.contains(part.as_str()))
    });
}

/// Runs all cases.
pub(crate) fn run(plans: &[Plan], dump: &Dump) -> anyhow::Result<Vec<Score>> {
    let pool = rayon::ThreadPoolBuilder::new().stack_size(STACK).build();
    let pool = pool.context("cannot start worker threads")?;
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|info| LAST_PANIC.set(Some(info.to_string()))));
    let scores = pool.install(|| plans.par_iter().map(|plan| run_suite(plan, dump)).collect());
    panic::set_hook(hook);
    Ok(scores)
}

fn run_suite(plan: &Plan, dump: &Dump) -> Score {
    let name = plan.suite.name();
    let dump = &dump.for_suite(name);
    let weighed = |case: &Case| better::weigh(name, &case.id, guarded(|| plan.suite.run(case, dump)));
    let results = plan.cases.par_iter().map(|case| (case.id.clone(), weighed(case))).collect::<Vec<_>>();
    Score {
        suite: plan.suite.name().to_owned(),
        note: plan.problem.clone().unwrap_or_else(|| note(plan.suite.as_ref(), &results)),
        results,
        extra: plan.suite.is_extra(),
        complete: plan.complete,
    }
}

/// What the suite says of itself, or why cases were not run.
fn note(suite: &dyn Suite, results: &[(String, Outcome)]) -> String {
    let skipped: Vec<_> = results
        .iter()
        .filter_map(|(_, outcome)| match outcome {
            Outcome::Skipped(reason) | Outcome::Missing(reason) => Some(*reason),
            _ => None,
        })
        .collect();
    match skipped.first() {
        None => suite.note(),
        Some(reason) if skipped.len() == results.len() => (*reason).to_owned(),
        Some(reason) => {
            let skipped = format!("{} with {reason}", skipped.len());
            [skipped, suite.note()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
        }
    }
}

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs one case; a panic in it is its failure.
fn guarded(run: impl FnOnce() -> Outcome) -> Outcome {
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let message = LAST_PANIC.take().unwrap_or_else(|| "panicked".to_owned());
        Outcome::error(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Arc;

    /// Fails case `b` and panics in case `c`.
    struct Moody;

    impl Suite for Moody {
        fn name(&self) -> &str {
            "moody"
        }

        fn cases(&self, corpus: &Corpus) -> anyhow::Result<Vec<Case>> {
            Ok(["a", "b", "c", "cc"].iter().map(|id| case(corpus, id)).collect())
        }

        fn run(&self, case: &Case, _: &Dump) -> Outcome {
            match case.id.as_str() {
                "b" => Outcome::error("no"),
                "c" => panic!("oh"),
                _ => Outcome::Pass,
            }
        }
    }

    fn case(corpus: &Corpus, id: &str) -> Case {
        Case {
            id: id.to_owned(),
            corpus: corpus.clone(),
            directory: Path::new("moody").into(),
            file: Path::new("").into(),
            entry: Default::default(),
            shared: Arc::default(),
        }
    }

    fn cases() -> (tempfile::TempDir, Vec<Case>) {
        let root = tempfile::tempdir().unwrap();
        let corpus = Corpus::open(root.path()).unwrap();
        let cases = Moody.cases(&corpus).unwrap();
        (root, cases)
    }

    #[test]
    fn panic_fails_its_own_case_only() {
        let (_root, cases) = cases();
        let plan = Plan { suite: Box::new(Moody), cases, complete: true, problem: None };
        let scores = run(&[plan], &Dump::new(None)).unwrap();
        assert_eq!((scores[0].passed(), scores[0].total()), (2, 4));
        assert_eq!(scores[0].failed().collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn suite_whose_data_cannot_be_read_says_so_and_others_run() {
        let root = tempfile::tempdir().unwrap();
        for (suite, cases) in [("a", "cases: [\n"), ("b", "cases: [{name: c}]\n")] {
            std::fs::create_dir(root.path().join(suite)).unwrap();
            std::fs::write(root.path().join(suite).join("cases.yaml"), cases).unwrap();
        }
        let plans = plan(&Corpus::open(root.path()).unwrap(), &Selection::default()).unwrap();
        let scores = run(&plans, &Dump::new(None)).unwrap();
        assert!(scores[0].note.starts_with("cannot list the cases of a: "), "{}", scores[0].note);
        assert_eq!((scores[1].passed(), scores[1].total()), (0, 1));
    }

    #[test]
    fn case_is_chosen_by_its_id_or_by_a_part_of_it() {
        let chosen = |wanted: &[&str]| {
            let (_root, mut cases) = cases();
            let wanted: Vec<_> = wanted.iter().map(|w| (*w).to_owned()).collect();
            choose(&mut cases, &wanted);
            cases.into_iter().map(|case| case.id).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&["c"]), ["c"]);
        assert_eq!(chosen(&["cc", "b"]), ["b", "cc"]);
        assert_eq!(chosen(&["x"]), [""; 0]);
        assert_eq!(chosen(&[]).len(), 4);
    }
}
