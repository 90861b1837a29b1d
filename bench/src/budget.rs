//! What figures of a real fleet should be, and whether they are.

use std::fmt::Write as _;

use crate::figure::{Unit, show};
use crate::row::Row;
use crate::scenario::Scenario;

/// The fleet and the services that budgets are for.
pub(crate) const PROXIES: usize = 1000;
/// Services that budgets are for.
pub(crate) const SERVICES: usize = 1000;

/// A bound of a figure.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Ours is this at the most.
    AtMost(f64),
    /// The peer's is at least so many times ours.
    Ahead(f64),
}

/// A bound of all figures of a scenario whose names begin and end so.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// The scenario; every one if there is none.
    scenario: Option<Scenario>,
    beginning: &'static str,
    ending: &'static str,
    limit: Limit,
}

const fn of(scenario: Scenario, name: &'static str, limit: Limit) -> Budget {
    Budget { scenario: Some(scenario), beginning: name, ending: name, limit }
}

use Limit::{Ahead, AtMost};
use Scenario::{S2, S3, S4, S5, S6, S7, S10, S13, S14};

const BUDGETS: [Budget; 28] = [
    of(S2, "last proxy has all it asked for", AtMost(5.0)),
    of(S2, "processor time of the subject", AtMost(4.0)),
    of(S2, "peak memory, times the settled", AtMost(1.3)),
    of(S2, "processor time of the subject", Ahead(10.0)),
    of(S3, "each further proxy", AtMost(120e3)),
    of(S3, "each proxy, all it brings divided", Ahead(10.0)),
    of(S3, "each further proxy", Ahead(10.0)),
    of(S4, "write to last ACK, p99, times the floor", AtMost(2.0)),
    of(S4, "processor time of the subject, each change", AtMost(25e-3)),
    of(S4, "processor time of the subject, each proxy", AtMost(20e-6)),
    of(S4, "write to last ACK, p99", Ahead(5.0)),
    of(S4, "processor time of the subject, each change", Ahead(10.0)),
    of(S5, "50 a second, processor time of the subject, each change", Ahead(2.0)),
    of(S5, "200 a second, processor time of the subject, each change", Ahead(2.0)),
    of(S6, "seen by all, processor time of the subject, each edit", AtMost(0.5)),
    of(S6, "seen by all, write to last ACK, p99", Ahead(5.0)),
    of(S6, "seen by all, processor time of the subject, each edit", Ahead(10.0)),
    of(S7, "processor time of the subject, each change", AtMost(0.6)),
    of(S7, "service added, write to last ACK, p99", Ahead(5.0)),
    of(S7, "processor time of the subject, each change", Ahead(10.0)),
    of(S10, "CDS responses to others, each pod", AtMost(0.0)),
    of(S10, "LDS responses to others, each pod", AtMost(0.0)),
    of(S10, "RDS responses to others, each pod", AtMost(0.0)),
    Budget {
        scenario: Some(S13),
        beginning: "",
        ending: "processor time of the subject, each",
        limit: AtMost(200e-6),
    },
    of(S13, "responses in all", AtMost(0.0)),
    of(S14, "each further session, plaintext", AtMost(30e3)),
    of(S14, "each further session, TLS", AtMost(55e3)),
    Budget { scenario: None, beginning: "waste, ", ending: "", limit: AtMost(1.1) },
];

impl Budget {
    fn is_of(&self, row: &Row) -> bool {
        let is_named = if self.beginning == self.ending {
            row.name == self.beginning
        } else {
            row.name.starts_with(self.beginning) && row.name.ends_with(self.ending)
        };
        is_named && self.scenario.is_none_or(|scenario| scenario == row.scenario)
    }

    /// Whether a figure keeps to it, and in words; `None` if it was not measured.
    fn judge(&self, row: &Row) -> Option<(bool, String)> {
        let what = format!("{}: {}", row.scenario.title(), row.name);
        match self.limit {
            AtMost(limit) => {
                let value = row.value?;
                let bound = match row.unit {
                    Unit::Count if limit == 0.0 => "none".to_owned(),
                    unit => format!("at most {}", show(limit, unit)),
                };
                Some((value <= limit, format!("{what}: {}, {bound}", show(value, row.unit))))
            }
            Ahead(limit) => {
                let ratio = row.ratio?;
                Some((
                    ratio >= limit,
                    format!("{what}: the peer takes {ratio:.1} times as much, at least {limit}"),
                ))
            }
        }
    }
}

/// A line for each budget of which there is a figure, those that are missed first.
pub(crate) fn lines(rows: &[Row]) -> String {
    let judged = BUDGETS
        .iter()
        .flat_map(|budget| rows.iter().filter(|row| budget.is_of(row)).filter_map(|row| budget.judge(row)));
    let (met, missed): (Vec<_>, Vec<_>) = judged.partition(|(met, _)| *met);
    let mut text = String::new();
    for (met, line) in missed.iter().chain(&met) {
        let _ = write!(text, "\n- {}: {line}", if *met { "met" } else { "MISSED" });
    }
    if text.is_empty() {
        return text;
    }
    let in_all = met.len() + missed.len();
    format!("\nBudgets met: {} of {in_all} that were measured\n{text}\n", met.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scenario: Scenario, name: &str, value: f64, unit: Unit, ratio: Option<f64>) -> Row {
        Row { scenario, name: name.into(), value: Some(value), unit, ours: None, theirs: None, ratio }
    }

    #[test]
    fn missed_budgets_come_first() {
        let text = lines(&[
            row(S3, "each further proxy", 100e3, Unit::Bytes, Some(4.0)),
            row(S3, "with all proxies", 1e9, Unit::Bytes, None),
        ]);
        let missed = "- MISSED: S3 memory: each further proxy: the peer takes 4.0 times as much, at least 10";
        let met = "- met: S3 memory: each further proxy: 100.0 kB, at most 120.0 kB";
        assert_eq!(text, format!("\nBudgets met: 1 of 2 that were measured\n\n{missed}\n{met}\n"));
    }

    #[test]
    fn every_kind_of_no_op_and_every_family_has_a_budget() {
        let text = lines(&[
            row(S13, "renewed Lease, processor time of the subject, each", 1e-3, Unit::CpuSeconds, None),
            row(S6, "waste, routes", 1.05, Unit::Count, None),
        ]);
        assert!(text.contains("MISSED: S13 no-ops: renewed Lease"), "{text}");
        assert!(text.contains("met: S6 VirtualService: waste, routes: 1.05, at most 1.10"), "{text}");
    }

    #[test]
    fn nothing_is_said_where_nothing_was_measured() {
        assert_eq!(lines(&[]), "");
    }
}
