//! Descriptions of metrics, declared as constants so that a name, its type and its labels cannot drift apart.

use std::marker::PhantomData;

/// Kind of a metric, as the `TYPE` line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only rises.
    Counter,
    /// Last value set.
    Gauge,
    /// Observations counted in buckets.
    Histogram,
}

impl Kind {
    /// The word used in the exposition format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// What there is to know about a metric apart from its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Description {
    /// Name without the prefix a registry may add.
    pub name: &'static str,
    /// One sentence for the `HELP` line.
    pub help: &'static str,
    /// Kind.
    pub kind: Kind,
    /// Label names, sorted.
    pub labels: &'static [&'static str],
    /// Upper bounds of the buckets of a histogram, without the infinite one.
    pub buckets: &'static [f64],
}

/// A declared metric whose values are of type `M` and which has `N` labels.
///
/// A key to a [`Registry`](super::Registry), not a value: hand it over to get one.
#[derive(Debug)]
pub struct Metric<M, const N: usize> {
    description: Description,
    values: PhantomData<fn() -> M>,
}

impl<M: Instrument, const N: usize> Metric<M, N> {
    /// Declares a counter or a gauge.
    pub const fn new(name: &'static str, labels: &'static [&'static str; N], help: &'static str) -> Self {
        Metric::with_buckets(name, labels, help, &[])
    }

    /// Declares a histogram.
    pub const fn with_buckets(
        name: &'static str,
        labels: &'static [&'static str; N],
        help: &'static str,
        buckets: &'static [f64],
    ) -> Self {
        // Doc comments keep the space after their slashes.
        let help = help.trim_ascii();
        let description = Description { name, help, kind: M::KIND, labels, buckets };
        Metric { description, values: PhantomData }
    }

    /// What is declared.
    pub const fn description(&self) -> Description {
        self.description
    }
}

impl<M, const N: usize> Clone for Metric<M, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M, const N: usize> Copy for Metric<M, N> {}

/// A type of metric value: [`Counter`](super::Counter), [`Gauge`](super::Gauge) or
/// [`Histogram`](super::Histogram).
pub trait Instrument: Clone + Send + Sync + 'static {
    /// Kind of the metrics with such values.
    const KIND: Kind;

    /// A value nobody has set yet.
    fn unset(description: &Description) -> Self;

    /// The value to export, if there is one.
    fn read(&self) -> Option<Reading>;
}

/// A value as it is exported.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// Value of a counter or a gauge.
    Number(f64),
    /// Buckets of a histogram.
    Distribution {
        /// Observations per bucket, not accumulated, the infinite one last.
        counts: Vec<u64>,
        /// Sum of all observations.
        sum: f64,
    },
}

/// One value of a metric and the label values it has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) labels: Vec<Box<str>>,
    pub(super) reading: Reading,
}
