//! The values of one metric, one per combination of label values.

use std::sync::Arc;

use parking_lot::RwLock;

use super::desc::{Description, Instrument, Series};

/// Series one metric may have; label values can come from outside, memory must not follow them without end.
const MAX_SERIES: usize = 10_000;

/// Values of a metric with `N` labels; clones share them.
#[derive(Clone)]
pub struct Family<M, const N: usize> {
    shared: Arc<Shared<M, N>>,
}

struct Shared<M, const N: usize> {
    description: Description,
    /// Sorted by label values, so that a look-up needs no owned key.
    series: RwLock<Vec<([Box<str>; N], M)>>,
}

impl<M: Instrument, const N: usize> Family<M, N> {
    pub(super) fn new(description: Description) -> Self {
        Family { shared: Arc::new(Shared { description, series: RwLock::default() }) }
    }

    /// The value with these label values, given in the order in which the labels are declared.
    ///
    /// Keep it where it is used often. A metric that has very many series already returns a value that is not exported.
    pub fn with(&self, labels: [&str; N]) -> M {
        let series = self.shared.series.read();
        if let Ok(index) = search(&series, &labels) {
            return series[index].1.clone();
        }
        drop(series);
        let mut series = self.shared.series.write();
        match search(&series, &labels) {
            Ok(index) => series[index].1.clone(),
            Err(_) if series.len() >= MAX_SERIES => self.unset(),
            Err(index) => {
                let value = self.unset();
                series.insert(index, (labels.map(Box::from), value.clone()));
                value
            }
        }
    }

    /// Stops exporting the value with these label values.
    pub fn remove(&self, labels: [&str; N]) {
        let mut series = self.shared.series.write();
        if let Ok(index) = search(&series, &labels) {
            series.remove(index);
        }
    }

    fn unset(&self) -> M {
        M::unset(&self.shared.description)
    }
}

fn search<M, const N: usize>(series: &[([Box<str>; N], M)], labels: &[&str; N]) -> Result<usize, usize> {
    series.binary_search_by(|(known, _)| known.iter().map(AsRef::as_ref).cmp(labels.iter().copied()))
}

/// A family whose types the registry need not know.
pub(super) trait AnyFamily: Send + Sync {
    /// The series that have a value, in order of label values.
    fn read(&self) -> Vec<Series>;
}

impl<M: Instrument, const N: usize> AnyFamily for Family<M, N> {
    fn read(&self) -> Vec<Series> {
        let series = self.shared.series.read();
        let read = |(labels, value): &([Box<str>; N], M)| {
            value.read().map(|reading| Series { labels: labels.to_vec(), reading })
        };
        series.iter().filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::desc::{Metric, Reading};
    use super::super::value::Counter;
    use super::*;

    fn family() -> Family<Counter, 2> {
        const METRIC: Metric<Counter, 2> = Metric::new("events", &["event", "type"], "");
        Family::new(METRIC.description())
    }

    #[test]
    fn equal_labels_share_a_value() {
        let family = family();
        family.with(["add", "Pods"]).inc();
        family.with(["add", "Pods"]).inc();
        family.with(["add", "Nodes"]).inc();
        let expected = [(["add", "Nodes"], 1.0), (["add", "Pods"], 2.0)].map(|(labels, value)| Series {
            labels: labels.map(Box::from).to_vec(),
            reading: Reading::Number(value),
        });
        assert_eq!(family.read(), expected);
    }

    #[test]
    fn series_without_a_value_is_not_read() {
        let family = family();
        let _kept = family.with(["add", "Pods"]);
        assert_eq!(family.read(), []);
    }

    #[test]
    fn removed_series_is_gone_and_starts_anew() {
        let family = family();
        family.with(["add", "Pods"]).inc();
        family.remove(["add", "Pods"]);
        family.remove(["add", "Pods"]);
        assert_eq!(family.read(), []);
        assert_eq!(family.with(["add", "Pods"]).get(), 0.0);
    }

    #[test]
    fn stops_growing_at_the_limit() {
        let family = family();
        for number in 0..MAX_SERIES + 10 {
            family.with(["add", &number.to_string()]).inc();
        }
        assert_eq!(family.read().len(), MAX_SERIES);
        assert_eq!(family.with(["add", "0"]).get(), 1.0);
    }
}
