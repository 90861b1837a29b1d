//! Which lines of a log `istioctl bug-report` keeps.

use anyhow::Context as _;
use canopus_cli::bug_report::lines_between;
use jiff::Timestamp;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::{Difference, text};
use crate::dump::Dump;

pub(super) struct BugReport;

impl Suite for BugReport {
    fn name(&self) -> &str {
        "istioctl-bug-report"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let file = |key: &str| -> anyhow::Result<String> {
        let path = case.text(key).with_context(|| format!("no {key}"))?;
        Ok(String::from_utf8(case.corpus.bytes(&case.path(path))?)?)
    };
    // A time that is not given is no bound.
    let time = |key: &str, bound: Timestamp| case.text(key).map_or(Ok(bound), str::parse);
    let (start, end) = (time("start", Timestamp::MIN)?, time("end", Timestamp::MAX)?);
    Ok(text::difference(&file("golden")?, &lines_between(&file("input")?, start, end)))
}
