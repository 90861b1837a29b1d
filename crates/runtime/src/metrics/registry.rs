//! Where a process keeps its metrics.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::desc::{Description, Instrument, Metric, Reading, Series};
use super::family::{AnyFamily, Family};
use super::text::Exported;

/// The metrics of a process; clones share them.
///
/// A metric exists once it is asked for and is exported once it has a value.
#[derive(Clone, Default)]
pub struct Registry {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    prefix: &'static str,
    families: Mutex<BTreeMap<&'static str, Registered>>,
    collectors: Mutex<Vec<Collector>>,
}

struct Registered {
    description: Description,
    typed: Box<dyn Any + Send + Sync>,
    family: Box<dyn AnyFamily>,
}

type Collector = Box<dyn Fn(&mut Collected) + Send + Sync>;

impl Registry {
    /// A registry that exports names as they are declared.
    pub fn new() -> Self {
        Registry::default()
    }

    /// A registry that puts a prefix before each name, as the agent does with `istio_agent_`.
    pub fn with_prefix(prefix: &'static str) -> Self {
        Registry { shared: Arc::new(Shared { prefix, ..Shared::default() }) }
    }

    /// The values of a metric by label values; asking again gives the same values.
    pub fn family<M: Instrument, const N: usize>(&self, metric: Metric<M, N>) -> Family<M, N> {
        let description = metric.description();
        let mut families = self.shared.families.lock();
        let registered = families.entry(description.name).or_insert_with(|| {
            let family = Family::<M, N>::new(description);
            Registered { description, typed: Box::new(family.clone()), family: Box::new(family) }
        });
        match registered.typed.downcast_ref::<Family<M, N>>() {
            Some(family) => family.clone(),
            None => {
                tracing::error!("metric {} is declared twice, differently", description.name);
                Family::new(description)
            }
        }
    }

    /// The value of a metric without labels.
    pub fn value<M: Instrument>(&self, metric: Metric<M, 0>) -> M {
        self.family(metric).with([])
    }

    /// Adds a function that gives values at each scrape.
    pub fn collect(&self, collector: impl Fn(&mut Collected) + Send + Sync + 'static) {
        self.shared.collectors.lock().push(Box::new(collector));
    }

    /// All metrics with a value, in the text format of [`CONTENT_TYPE`](super::CONTENT_TYPE).
    pub fn encode(&self) -> String {
        let mut exported = self.collected();
        for (name, registered) in self.shared.families.lock().iter() {
            let series = registered.family.read();
            if !series.is_empty() {
                exported.entry(name).or_insert((registered.description, Vec::new())).1.extend(series);
            }
        }
        let mut text = String::new();
        for (name, (description, mut series)) in exported {
            series.sort_by(|left, right| left.labels.cmp(&right.labels));
            let name = format!("{}{name}", self.shared.prefix);
            Exported { name, description, series }.write(&mut text);
        }
        text
    }

    fn collected(&self) -> BTreeMap<&'static str, (Description, Vec<Series>)> {
        let mut collected = Collected::default();
        for collector in self.shared.collectors.lock().iter() {
            collector(&mut collected);
        }
        collected.families
    }
}

/// Receives the values of a function given to [`Registry::collect`].
#[derive(Default)]
pub struct Collected {
    families: BTreeMap<&'static str, (Description, Vec<Series>)>,
}

impl Collected {
    /// Gives the value of a counter or gauge with these label values.
    pub fn push<M: Instrument, const N: usize>(
        &mut self,
        metric: Metric<M, N>,
        labels: [&str; N],
        value: f64,
    ) {
        let description = metric.description();
        let (_, series) = self.families.entry(description.name).or_insert((description, Vec::new()));
        series.push(Series { labels: labels.map(Box::from).to_vec(), reading: Reading::Number(value) });
    }
}
