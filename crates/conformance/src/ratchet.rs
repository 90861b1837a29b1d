//! The ratchet: counts of passed cases, kept in the repository, that may rise but not fall.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde::Deserialize;

use crate::corpus::Corpus;
use crate::report::{self, Results};
use crate::run::Score;

const HEADER: &str = "\
# Passed conformance cases per suite. A count may rise but not fall: `cargo xtask test` checks it,
# `cargo xtask conformance --ratchet update` raises it. The counts hold for the corpus of this fingerprint only.
";

/// How a rise is made permanent.
const HOW_TO_RAISE: &str = "cargo xtask conformance --ratchet update";

/// Where the counts are.
pub(crate) struct Ratchet {
    file: PathBuf,
    /// The results when the ratchet last held, for naming the cases that fell. Not in the repository.
    last_good: PathBuf,
}

/// The content of the file.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Counts {
    corpus: String,
    passed: BTreeMap<String, usize>,
}

/// A suite that passes fewer cases than it did.
#[derive(Debug, PartialEq)]
struct Fall {
    suite: String,
    before: usize,
    now: usize,
    /// The cases that passed before, as far as that is known.
    cases: Vec<String>,
}

impl Ratchet {
    pub(crate) fn in_repository(root: &Path) -> Self {
        Self {
            file: root.join("conformance.ratchet.toml"),
            last_good: root.join("target/conformance.last-good.json"),
        }
    }

    /// Holds the scores against the recorded counts.
    pub(crate) fn check(&self, corpus: &Corpus, scores: &[Score]) -> anyhow::Result<ExitCode> {
        let counts = self.read()?;
        if counts.corpus != corpus.fingerprint()?.to_string() {
            println!("ratchet: recorded for another corpus, not checked");
            return Ok(ExitCode::SUCCESS);
        }
        let falls = falls(&counts, scores, &self.last_good_results());
        if !falls.is_empty() {
            print!("{}", complaint(&falls));
            return Ok(ExitCode::FAILURE);
        }
        let risen = rises(&counts, scores);
        if risen.is_empty() {
            println!("ratchet: holds");
        } else {
            println!("ratchet: holds; higher now: {} (to keep it: {HOW_TO_RAISE})", risen.join(", "));
        }
        self.remember(scores)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Records the scores. Suites that were not run in full keep their count.
    pub(crate) fn update(&self, corpus: &Corpus, scores: &[Score]) -> anyhow::Result<ExitCode> {
        let fingerprint = corpus.fingerprint()?.to_string();
        let counts = updated(self.read()?, fingerprint, scores);
        crate::write(&self.file, &rendered(&counts))?;
        println!("ratchet: written to {}", self.file.display());
        self.remember(scores)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The recorded counts; none if there is no file.
    fn read(&self) -> anyhow::Result<Counts> {
        if !self.file.exists() {
            return Ok(Counts::default());
        }
        let text =
            fs::read_to_string(&self.file).with_context(|| format!("cannot read {}", self.file.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not a ratchet", self.file.display()))
    }

    fn last_good_results(&self) -> Results {
        let text = fs::read_to_string(&self.last_good).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn remember(&self, scores: &[Score]) -> anyhow::Result<()> {
        let mut results = self.last_good_results();
        let complete = scores.iter().filter(|score| score.complete);
        for score in complete {
            results.suites.extend(report::results(std::slice::from_ref(score)).suites);
        }
        let text = serde_json::to_string(&results)?;
        crate::write(&self.last_good, &text)
    }
}

fn falls(counts: &Counts, scores: &[Score], last_good: &Results) -> Vec<Fall> {
    let complete = scores.iter().filter(|score| score.complete);
    complete
        .filter_map(|score| {
            let before = *counts.passed.get(&score.suite)?;
            let now = score.passed();
            let cases = || match last_good.suites.get(&score.suite) {
                Some(good) => score
                    .failed()
                    .filter(|id| !good.failed.iter().any(|failed| failed == id))
                    .map(str::to_owned)
                    .collect(),
                None => Vec::new(),
            };
            (now + score.missing() < before).then(|| Fall {
                suite: score.suite.clone(),
                before,
                now,
                cases: cases(),
            })
        })
        .collect()
}

fn rises(counts: &Counts, scores: &[Score]) -> Vec<String> {
    let recorded = |score: &Score| counts.passed.get(&score.suite).copied().unwrap_or_default();
    let risen = scores.iter().filter(|score| score.complete && score.passed() > recorded(score));
    risen.map(|score| format!("{} {} → {}", score.suite, recorded(score), score.passed())).collect()
}

fn complaint(falls: &[Fall]) -> String {
    let mut text = String::new();
    for fall in falls {
        let Fall { suite, before, now, .. } = fall;
        text.push_str(&format!("ratchet: {suite} fell from {before} to {now} passed cases\n"));
        for case in &fall.cases {
            text.push_str(&format!("  passed before: {case}\n"));
        }
    }
    text.push_str(&format!(
        "see why: cargo xtask conformance --suite {} --diff; if the fall is right: {HOW_TO_RAISE}\n",
        falls[0].suite
    ));
    text
}

fn updated(mut counts: Counts, corpus: String, scores: &[Score]) -> Counts {
    if counts.corpus != corpus {
        counts = Counts { corpus, ..Counts::default() };
    }
    let complete = scores.iter().filter(|score| score.complete && score.total() > 0 && score.missing() == 0);
    counts.passed.extend(complete.map(|score| (score.suite.clone(), score.passed())));
    counts
}

fn rendered(counts: &Counts) -> String {
    let lines = counts.passed.iter().map(|(suite, passed)| format!("{suite} = {passed}\n"));
    format!("{HEADER}corpus = {:?}\n\n[passed]\n{}", counts.corpus, lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Outcome;

    fn score(suite: &str, passed: &[&str], failed: &[&str]) -> Score {
        let of = |ids: &[&str], outcome: Outcome| -> Vec<_> {
            ids.iter().map(|id| ((*id).to_owned(), outcome.clone())).collect()
        };
        Score {
            suite: suite.to_owned(),
            results: [of(passed, Outcome::Pass), of(failed, Outcome::error("no"))].concat(),
            note: String::new(),
            extra: false,
            complete: true,
        }
    }

    fn counts(passed: &[(&str, usize)]) -> Counts {
        Counts {
            corpus: "abc".into(),
            passed: passed.iter().map(|(suite, n)| ((*suite).to_owned(), *n)).collect(),
        }
    }

    struct Place {
        root: tempfile::TempDir,
        corpus: Corpus,
    }

    fn place() -> Place {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("corpus/s")).unwrap();
        fs::write(root.path().join("corpus/s/f"), "1").unwrap();
        let corpus = Corpus::open(&root.path().join("corpus")).unwrap();
        Place { root, corpus }
    }

    #[test]
    fn fall_names_suite_counts_and_cases() {
        let last_good = report::results(&[score("s", &["a", "b"], &["c"])]);
        let found = falls(&counts(&[("s", 2)]), &[score("s", &["a"], &["b", "c"])], &last_good);
        let expected = Fall { suite: "s".into(), before: 2, now: 1, cases: vec!["b".into()] };
        assert_eq!(found, [expected]);
        assert!(
            complaint(&found).starts_with("ratchet: s fell from 2 to 1 passed cases\n  passed before: b\n")
        );
        assert!(complaint(&found).contains("--ratchet update"));
    }

    #[test]
    fn equal_and_higher_counts_do_not_fall() {
        let now = [score("s", &["a", "b"], &[]), score("new", &["a"], &[])];
        assert_eq!(falls(&counts(&[("s", 2)]), &now, &Results::default()), []);
        assert_eq!(rises(&counts(&[("s", 1)]), &now), ["s 1 → 2", "new 0 → 1"]);
    }

    #[test]
    fn suite_run_in_part_is_neither_held_nor_recorded() {
        let part = Score { complete: false, ..score("s", &[], &["a"]) };
        assert_eq!(falls(&counts(&[("s", 2)]), std::slice::from_ref(&part), &Results::default()), []);
        assert_eq!(updated(counts(&[("s", 2)]), "abc".into(), &[part]), counts(&[("s", 2)]));
    }

    #[test]
    fn counts_of_another_corpus_are_dropped_on_update() {
        let now = updated(counts(&[("gone", 2)]), "def".into(), &[score("s", &["a"], &[])]);
        assert_eq!(now.corpus, "def");
        assert_eq!(now.passed.into_iter().collect::<Vec<_>>(), [("s".to_owned(), 1)]);
    }

    #[test]
    fn file_reads_back_as_it_was_written() {
        let counts = counts(&[("a-b", 1), ("s", 0)]);
        assert_eq!(toml::from_str::<Counts>(&rendered(&counts)).unwrap(), counts);
    }

    #[test]
    fn check_fails_after_a_fall_on_the_same_corpus_only() {
        let place = place();
        let ratchet = Ratchet::in_repository(place.root.path());
        let (good, bad) = ([score("s", &["a", "b"], &[])], [score("s", &["a"], &["b"])]);
        let code = |scores: &[Score]| format!("{:?}", ratchet.check(&place.corpus, scores).unwrap());
        let (success, failure) = (format!("{:?}", ExitCode::SUCCESS), format!("{:?}", ExitCode::FAILURE));

        ratchet.update(&place.corpus, &good).unwrap();
        assert_eq!(code(&good), success);
        assert_eq!(code(&bad), failure);

        fs::write(place.root.path().join("corpus/s/f"), "2").unwrap();
        assert_eq!(code(&bad), success);
    }
}
