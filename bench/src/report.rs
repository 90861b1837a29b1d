//! All figures of a run, and how they are shown.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::budget;
use crate::figure::{Figure, Unit, show};
use crate::fixture::{Fixture, FleetKind};
use crate::gate::Verdict;
use crate::options::Options;
use crate::row::Row;
use crate::scenario::Scenario;
use crate::statistics::{median, median_ratio};
use crate::subject::Subject;

/// The figures of one scenario, of one subject, in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// What was played.
    pub(crate) scenario: Scenario,
    /// Against whom.
    pub(crate) subject: Subject,
    /// When.
    pub(crate) round: usize,
    /// What was measured.
    pub(crate) figures: Vec<Figure>,
}

/// Whether both subjects told their proxies the same, after one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Judged {
    scenario: Scenario,
    round: usize,
    verdict: Verdict,
}

/// All results of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    #[serde(default)]
    fleet: FleetKind,
    proxies: usize,
    services: usize,
    namespaces: usize,
    #[serde(default)]
    workloads: usize,
    #[serde(default)]
    nodes: usize,
    /// How proxies spoke, and what settings the peer had.
    variant: String,
    measurements: Vec<Measurement>,
    verdicts: Vec<Judged>,
}

impl Report {
    /// A report with nothing in it.
    pub(crate) fn new(fixture: Fixture, options: &Options) -> Self {
        let words = [
            Some(if options.sotw { "state-of-the-world xDS" } else { "delta xDS" }),
            Some(if options.tls { "TLS" } else { "plaintext" }),
            options.tuned.then_some("peer tuned"),
        ];
        Self {
            fleet: fixture.fleet,
            proxies: fixture.proxies,
            workloads: fixture.workloads,
            nodes: fixture.nodes,
            services: fixture.services,
            namespaces: fixture.namespaces,
            variant: words.into_iter().flatten().collect::<Vec<_>>().join(", "),
            measurements: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    /// Adds figures.
    pub(crate) fn add(&mut self, measurement: Measurement) {
        self.measurements.push(measurement);
    }

    /// Adds what came of comparing what both subjects told their proxies.
    pub(crate) fn judge(&mut self, scenario: Scenario, round: usize, verdict: Verdict) {
        self.verdicts.push(Judged { scenario, round, verdict });
    }

    /// Reads a report that was written before.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no report", file.display()))
    }

    /// Writes it for [`Report::read`].
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        std::fs::write(file, self.json()?).with_context(|| format!("writing {}", file.display()))
    }

    /// For programs.
    pub(crate) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// For a terminal.
    pub(crate) fn table(&self) -> String {
        let rows: Vec<[String; 5]> = self.rows().iter().map(cells).collect();
        let mut widths = HEAD.map(|cell| cell.chars().count());
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = format!("{}\n\n", self.heading());
        for row in [HEAD.map(str::to_owned)].iter().chain(&rows) {
            let padded = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            let line = padded.collect::<Vec<_>>().join("  ");
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text + &self.budgets() + &self.gate()
    }

    /// For a document.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("{}\n\n| {} |\n|---|---|---|---|---|\n", self.heading(), HEAD.join(" | "));
        for row in self.rows() {
            let _ = writeln!(text, "| {} |", cells(&row).join(" | "));
        }
        text + &self.budgets() + &self.gate()
    }

    /// Which budgets are met; they are of a real fleet.
    fn budgets(&self) -> String {
        if self.fleet != FleetKind::Real {
            return String::new();
        }
        let mut text = budget::lines(&self.rows());
        if !text.is_empty() && (self.proxies, self.services) != (budget::PROXIES, budget::SERVICES) {
            let (proxies, services) = (budget::PROXIES, budget::SERVICES);
            let _ = writeln!(text, "\n(They are for {proxies} proxies and {services} services.)");
        }
        text
    }

    /// What was run.
    pub(crate) fn heading(&self) -> String {
        let Self { proxies, services, namespaces, variant, .. } = self;
        let rounds = self.measurements.iter().map(|it| it.round + 1).max().unwrap_or_default();
        let rounds = if rounds == 1 { "one round".to_owned() } else { format!("medians of {rounds} rounds") };
        let proxies = match self.fleet {
            FleetKind::Uniform => format!("{proxies} proxies that are alike"),
            FleetKind::Real => {
                format!(
                    "{proxies} proxies of a real fleet ({} workloads on {} nodes)",
                    self.workloads, self.nodes
                )
            }
        };
        let namespaces =
            if *namespaces == 1 { "one namespace".to_owned() } else { format!("{namespaces} namespaces") };
        format!("{proxies}, {services} services in {namespaces}, {variant}; {rounds}")
    }

    /// Every figure, by scenario, in the order they were measured.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut keys: Vec<(Scenario, &str, Unit)> = Vec::new();
        for measurement in &self.measurements {
            for figure in &measurement.figures {
                let key = (measurement.scenario, figure.name.as_str(), figure.unit);
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        keys.sort_by_key(|(scenario, ..)| *scenario);
        keys.into_iter().map(|key| self.row(key)).collect()
    }

    fn row(&self, (scenario, name, unit): (Scenario, &str, Unit)) -> Row {
        let values = |subject: Subject| {
            let measured =
                self.measurements.iter().filter(|it| it.scenario == scenario && it.subject == subject);
            let figures = measured.flat_map(|it| &it.figures).filter(|figure| figure.name == name);
            figures.map(|figure| figure.value).collect::<Vec<_>>()
        };
        let (ours, theirs) = (values(Subject::Canopusd), values(Subject::Peer));
        let shown = |values: &[f64]| median(values).map(|value| show(value, unit));
        Row {
            scenario,
            name: name.to_owned(),
            value: median(&ours),
            unit,
            ours: shown(&ours),
            theirs: shown(&theirs),
            ratio: median_ratio(&ours, &theirs),
        }
    }

    /// What came of comparing, with every difference named once.
    fn gate(&self) -> String {
        let mut text = String::new();
        for Judged { scenario, round, verdict } in &self.verdicts {
            let passed = if verdict.passed() { "passed" } else { "FAILED" };
            let _ = write!(text, "\n{passed}, {} round {}: {}", scenario.title(), round + 1, verdict.line());
        }
        text
    }
}

const HEAD: [&str; 5] = ["scenario", "figure", "canopusd", "peer", "ratio"];

fn cells(row: &Row) -> [String; 5] {
    let ratio = row.ratio.map(|ratio| match ratio {
        ..10.0 => format!("{ratio:.1} ×"),
        _ => format!("{ratio:.0} ×"),
    });
    let or_nothing = |cell: &Option<String>| cell.clone().unwrap_or_default();
    let scenario = row.scenario.title().to_owned();
    [scenario, row.name.clone(), or_nothing(&row.ours), or_nothing(&row.theirs), or_nothing(&ratio)]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::*;
    use crate::fixture::tests::UNIFORM;

    fn report() -> Report {
        let mut report = Report::new(UNIFORM, &Options::parse_from(["canopus-bench"]));
        for (round, subject, seconds) in [
            (0, Subject::Canopusd, 1),
            (0, Subject::Peer, 30),
            (1, Subject::Canopusd, 3),
            (1, Subject::Peer, 30),
        ] {
            let figures = vec![Figure::time("last proxy", Duration::from_secs(seconds))];
            report.add(Measurement { scenario: Scenario::S2, subject, round, figures });
        }
        report
    }

    #[test]
    fn rounds_are_shown_by_their_medians() {
        let [row] = report().rows().try_into().unwrap();
        assert_eq!((row.ours.as_deref(), row.theirs.as_deref()), (Some("2.00 s"), Some("30.0 s")));
        assert_eq!(row.ratio, Some(20.0));
    }

    #[test]
    fn markdown_has_a_line_for_each_figure() {
        let text = report().markdown();
        assert!(text.starts_with(
            "200 proxies that are alike, 30 services in 4 namespaces, delta xDS, plaintext; medians of 2 rounds"
        ));
        assert!(text.ends_with("| S2 cold connect | last proxy | 2.00 s | 30.0 s | 20 × |\n"), "{text}");
    }

    #[test]
    fn written_report_reads_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report.json");
        report().write(&file).unwrap();
        assert_eq!(Report::read(&file).unwrap().table(), report().table());
    }

    #[test]
    fn peer_that_did_not_run_leaves_its_cells_empty() {
        let mut report = report();
        report.measurements.retain(|it| it.subject == Subject::Canopusd);
        assert_eq!(report.rows()[0].ratio, None);
        assert!(report.markdown().ends_with("| last proxy | 2.00 s |  |  |\n"));
    }
}
