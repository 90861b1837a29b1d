//! How often a subject generated what it had generated already, as it says itself.
//!
//! The one figure that does not come from outside: only the subject knows how often its generators ran. A subject that does not
//! tell has no such figures.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use canopus_testkit::http;
use serde::Deserialize;

use crate::figure::Figure;

/// Runs of the generators of each family of resources since the process started, and distinct results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waste {
    families: BTreeMap<String, Runs>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Runs {
    runs: u64,
    distinct: u64,
}

#[derive(Deserialize)]
struct Answer {
    families: Vec<Family>,
}

#[derive(Deserialize)]
struct Family {
    family: String,
    runs: u64,
    distinct: u64,
}

impl Waste {
    /// Asks a subject; `None` if it does not tell.
    pub(crate) async fn ask(address: SocketAddr) -> Option<Self> {
        let answer = http::get(address, "/debug/wastez").await.ok()?;
        answer.status.is_success().then(|| Self::parse(&answer.body)).flatten()
    }

    fn parse(text: &str) -> Option<Self> {
        let answer: Answer = serde_json::from_str(text).ok()?;
        let runs = |family: Family| {
            let Family { family, runs, distinct } = family;
            (family, Runs { runs, distinct })
        };
        Some(Self { families: answer.families.into_iter().map(runs).collect() })
    }

    /// What was run since an earlier moment of the same process.
    pub(crate) fn since(mut self, earlier: &Self) -> Self {
        for (family, runs) in &mut self.families {
            let before = earlier.families.get(family).copied().unwrap_or_default();
            runs.runs = runs.runs.saturating_sub(before.runs);
            runs.distinct = runs.distinct.saturating_sub(before.distinct);
        }
        self
    }

    /// A figure for each family that ran; where nothing new came of it, the runs alone.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let ran = self.families.iter().filter(|(_, runs)| runs.runs > 0);
        ran.flat_map(|(family, Runs { runs, distinct })| {
            let all = Figure::count(format!("generator runs, {family}"), *runs as f64);
            let waste = (*distinct > 0)
                .then(|| Figure::count(format!("waste, {family}"), *runs as f64 / *distinct as f64));
            [Some(all), waste]
        })
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(clusters: (u64, u64), routes: (u64, u64)) -> Waste {
        let family = |(name, (runs, distinct)): (&str, (u64, u64))| {
            format!(r#"{{"family":"{name}","runs":{runs},"distinct":{distinct},"waste":1.0}}"#)
        };
        let families = [("clusters", clusters), ("routes", routes)].map(family).join(",");
        Waste::parse(&format!(r#"{{"families":[{families}]}}"#)).unwrap()
    }

    #[test]
    fn only_what_ran_in_between_counts() {
        let between = told((30, 15), (5, 4)).since(&told((10, 5), (5, 4)));
        let figures = between.figures();
        let figure =
            |name: &str| figures.iter().find(|figure| figure.name == name).map(|figure| figure.value);
        assert_eq!(figure("generator runs, clusters"), Some(20.0));
        assert_eq!(figure("waste, clusters"), Some(2.0));
        assert_eq!(figure("waste, routes"), None);
    }

    #[test]
    fn runs_without_anything_new_have_no_ratio() {
        let figures = told((3, 0), (0, 0)).figures();
        assert_eq!(figures, [Figure::count("generator runs, clusters", 3.0)]);
    }

    #[test]
    fn answer_of_another_shape_tells_nothing() {
        assert_eq!(Waste::parse("404 page not found"), None);
    }
}
