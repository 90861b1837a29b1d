//! What people and machines read: the table, the differences, the list, the JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::case::Outcome;
use crate::run::{Plan, Score};

/// How many differences of one case are shown.
const SHOWN_DIFFERENCES: usize = 40;

/// The results as the JSON file has them.
#[derive(Serialize, Deserialize, Default)]
pub(crate) struct Results {
    pub(crate) suites: BTreeMap<String, SuiteResults>,
}

/// The results of one suite.
#[derive(Serialize, Deserialize, Default)]
pub(crate) struct SuiteResults {
    pub(crate) passed: usize,
    pub(crate) total: usize,
    /// The ids of the cases that did not pass.
    pub(crate) failed: Vec<String>,
    /// Cases whose recording is stale where we send the truth, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) better: BTreeMap<String, String>,
}

pub(crate) fn results(scores: &[Score]) -> Results {
    let suites = scores.iter().map(|score| {
        let results = SuiteResults {
            passed: score.passed(),
            total: score.total(),
            failed: score.failed().map(str::to_owned).collect(),
            better: better(score).map(|(id, reason)| (id.to_owned(), reason.to_owned())).collect(),
        };
        (score.suite.clone(), results)
    });
    Results { suites: suites.collect() }
}

/// The cases that are better than their recording, and why.
fn better(score: &Score) -> impl Iterator<Item = (&str, &'static str)> {
    score.results.iter().filter_map(|(id, outcome)| match outcome {
        Outcome::Better(reason) => Some((id.as_str(), *reason)),
        _ => None,
    })
}

pub(crate) fn json(scores: &[Score]) -> String {
    let text = serde_json::to_string_pretty(&results(scores));
    text.expect("results are strings and numbers") + "\n"
}

pub(crate) fn list(plans: &[Plan]) {
    for plan in plans {
        for case in &plan.cases {
            println!("{}: {}", plan.suite.name(), case.id);
        }
    }
}

pub(crate) fn differences(scores: &[Score]) {
    let mut text = String::new();
    for score in scores {
        for (id, outcome) in &score.results {
            describe(&score.suite, id, outcome, &mut text);
        }
    }
    print!("{text}");
}

fn describe(suite: &str, id: &str, outcome: &Outcome, text: &mut String) {
    let Outcome::Fail(differences) = outcome else { return };
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(format!("--- {suite}: {id}"));
    for difference in differences.iter().take(SHOWN_DIFFERENCES) {
        let path = if difference.path.is_empty() { "(whole)" } else { &difference.path };
        line(format!("  {path}"));
        line(format!("    expected: {}", indented(&difference.expected)));
        line(format!("    got:      {}", indented(&difference.got)));
    }
    if differences.len() > SHOWN_DIFFERENCES {
        line(format!("  and {} more", differences.len() - SHOWN_DIFFERENCES));
    }
}

fn indented(text: &str) -> String {
    text.replace('\n', "\n              ")
}

pub(crate) fn table(scores: &[Score], elapsed: Duration) {
    let colour = std::io::stdout().is_terminal();
    print!("{}", rendered(scores, colour));
    println!("{:.1} s", elapsed.as_secs_f64());
}

/// Counts by the first part of the cases' ids.
pub(crate) fn groups(scores: &[Score]) {
    for score in scores {
        let mut groups: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (id, outcome) in &score.results {
            let (passed, total) = groups.entry(id.split('/').next().unwrap_or(id)).or_default();
            *passed += usize::from(outcome.is_pass());
            *total += 1;
        }
        for (group, (passed, total)) in groups {
            println!("{}/{group}  {passed}  {total}", score.suite);
        }
    }
}

fn rendered(scores: &[Score], colour: bool) -> String {
    let widest = scores.iter().map(|score| score.suite.len()).max().unwrap_or_default();
    let width = widest.max("total".len());
    let mut text = format!("{:width$}  {:>6}  {:>6}\n", "suite", "passed", "total");
    for score in scores.iter().filter(|score| !score.extra) {
        row(&mut text, width, score, colour);
    }
    let counted = scores.iter().filter(|score| !score.extra);
    let (passed, total) = counted.fold((0, 0), |sum, score| (sum.0 + score.passed(), sum.1 + score.total()));
    _ = writeln!(text, "{:width$}  {passed:>6}  {total:>6}", "total");
    for score in scores.iter().filter(|score| score.extra) {
        row(&mut text, width, score, colour);
    }
    for score in scores {
        for (id, reason) in better(score) {
            _ = writeln!(text, "better: {} {id}: {reason}", score.suite);
        }
    }
    text
}

fn row(text: &mut String, width: usize, score: &Score, colour: bool) {
    let (passed, total) = (score.passed(), score.total());
    let better = (score.better() > 0).then(|| format!("{} better", score.better()));
    let notes = [better.unwrap_or_default(), score.note.clone()];
    let note = notes.into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>().join("; ");
    let line = if total == 0 {
        format!("{:width$}  {:>6}  {:>6}  {note}", score.suite, "-", "-")
    } else {
        format!("{:width$}  {passed:>6}  {total:>6}  {note}", score.suite)
    };
    let line = line.trim_end();
    match shade(passed, total).filter(|_| colour) {
        Some(code) => _ = writeln!(text, "\x1b[{code}m{line}\x1b[0m"),
        None => _ = writeln!(text, "{line}"),
    }
}

/// Green for all, yellow for some, red for none, faint for nothing to pass.
fn shade(passed: usize, total: usize) -> Option<u8> {
    Some(match (passed, total) {
        (_, 0) => 2,
        (0, _) => 31,
        (passed, total) if passed == total => 32,
        _ => 33,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Difference;

    fn score(suite: &str, outcomes: &[Outcome], extra: bool) -> Score {
        let ids = outcomes.iter().enumerate().map(|(index, _)| format!("case-{index}"));
        Score {
            suite: suite.to_owned(),
            results: ids.zip(outcomes.iter().cloned()).collect(),
            note: if outcomes.is_empty() { "3 inputs".into() } else { String::new() },
            extra,
            complete: true,
        }
    }

    fn board() -> Vec<Score> {
        vec![
            score("one", &[Outcome::Pass, Outcome::Skipped("later")], false),
            score("two", &[], false),
            score("more", &[Outcome::Pass], true),
        ]
    }

    #[test]
    fn total_counts_the_suites_of_the_corpus_alone() {
        let expected = "suite  passed   total\n\
                        one         1       2\n\
                        two         -       -  3 inputs\n\
                        total       1       2\n\
                        more        1       1\n";
        assert_eq!(rendered(&board(), false), expected);
    }

    #[test]
    fn better_cases_are_counted_apart_and_explained() {
        let scores = [score("one", &[Outcome::Pass, Outcome::Better("stale"), Outcome::error("no")], false)];
        let text = rendered(&scores, false);
        assert!(text.contains("one         1       3  1 better\n"), "{text}");
        assert!(text.ends_with("better: one case-1: stale\n"), "{text}");
        assert_eq!(results(&scores).suites["one"].failed, ["case-2"]);
    }

    #[test]
    fn colour_follows_the_share_that_passed() {
        assert!(rendered(&board(), true).contains("\x1b[33mone"));
        assert!(rendered(&board(), true).contains("\x1b[32mmore"));
    }

    #[test]
    fn json_has_counts_and_the_cases_that_did_not_pass() {
        let json: serde_json::Value = serde_json::from_str(&json(&board())).unwrap();
        let expected = serde_json::json!({"passed": 1, "total": 2, "failed": ["case-1"]});
        assert_eq!(json["suites"]["one"], expected);
    }

    #[test]
    fn difference_shows_path_expectation_and_outcome() {
        let mut text = String::new();
        let outcome = Outcome::Fail(vec![Difference::new("/a", "1", "2\n3")]);
        describe("s", "c", &outcome, &mut text);
        assert_eq!(text, "--- s: c\n  /a\n    expected: 1\n    got:      2\n              3\n");
    }
}
