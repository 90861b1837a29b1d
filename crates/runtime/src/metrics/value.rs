//! Metric values: shared, lock-free, and unset until first used, because Istio exports nothing that never had a value.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::desc::{Description, Instrument, Kind, Reading};

/// Bits of a number nobody has set: a NaN no computation yields.
const UNSET: u64 = u64::MAX;

/// A number that is shared between threads and may be unset.
#[derive(Clone)]
struct Cell(Arc<AtomicU64>);

impl Cell {
    fn unset() -> Self {
        Cell(Arc::new(AtomicU64::new(UNSET)))
    }

    fn get(&self) -> Option<f64> {
        let bits = self.0.load(Ordering::Relaxed);
        (bits != UNSET).then(|| f64::from_bits(bits))
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    fn add(&self, delta: f64) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| {
            let current = if bits == UNSET { 0.0 } else { f64::from_bits(bits) };
            Some((current + delta).to_bits())
        });
    }
}

/// A value that only rises; clones share it.
#[derive(Clone)]
pub struct Counter(Cell);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.inc_by(1);
    }

    /// Adds a number of events; zero makes the counter appear with what it has.
    pub fn inc_by(&self, events: u64) {
        self.0.add(events as f64);
    }

    /// What was counted so far.
    pub fn get(&self) -> f64 {
        self.0.get().unwrap_or_default()
    }
}

impl Instrument for Counter {
    const KIND: Kind = Kind::Counter;

    fn unset(_: &Description) -> Self {
        Counter(Cell::unset())
    }

    fn read(&self) -> Option<Reading> {
        self.0.get().map(Reading::Number)
    }
}

/// The last value set; clones share it.
#[derive(Clone)]
pub struct Gauge(Cell);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: f64) {
        self.0.set(value);
    }

    /// Sets the value to a count of things.
    pub fn set_count(&self, count: usize) {
        self.set(count as f64);
    }

    /// Adds to the value, counting from zero if it was unset.
    pub fn add(&self, delta: f64) {
        self.0.add(delta);
    }

    /// The value; zero if unset.
    pub fn get(&self) -> f64 {
        self.0.get().unwrap_or_default()
    }
}

impl Instrument for Gauge {
    const KIND: Kind = Kind::Gauge;

    fn unset(_: &Description) -> Self {
        Gauge(Cell::unset())
    }

    fn read(&self) -> Option<Reading> {
        self.0.get().map(Reading::Number)
    }
}

/// Observations counted in buckets; clones share them.
#[derive(Clone)]
pub struct Histogram(Arc<Buckets>);

struct Buckets {
    bounds: &'static [f64],
    counts: Vec<AtomicU64>,
    sum: Cell,
}

impl Histogram {
    /// Counts one observation; what is not a number is ignored.
    pub fn observe(&self, value: f64) {
        if value.is_nan() {
            return;
        }
        let bucket = self.0.bounds.partition_point(|bound| *bound < value);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum.add(value);
    }

    /// Counts a length of time in seconds.
    pub fn observe_duration(&self, elapsed: Duration) {
        self.observe(elapsed.as_secs_f64());
    }

    /// Number of observations.
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl Instrument for Histogram {
    const KIND: Kind = Kind::Histogram;

    fn unset(description: &Description) -> Self {
        let bounds = description.buckets;
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram(Arc::new(Buckets { bounds, counts, sum: Cell::unset() }))
    }

    fn read(&self) -> Option<Reading> {
        let sum = self.0.sum.get()?;
        let counts = self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Some(Reading::Distribution { counts, sum })
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.0.get()).finish()
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.0.get()).finish()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram").field("count", &self.count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::desc::Metric;
    use super::*;

    const BOUNDS: Metric<Histogram, 0> = Metric::with_buckets("h", &[], "", &[0.1, 1.0, 5.0]);

    fn histogram() -> Histogram {
        Histogram::unset(&BOUNDS.description())
    }

    fn counts(histogram: &Histogram) -> Vec<u64> {
        match histogram.read() {
            Some(Reading::Distribution { counts, .. }) => counts,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_are_unset_until_first_used() {
        let description = BOUNDS.description();
        assert_eq!(Counter::unset(&description).read(), None);
        assert_eq!(Gauge::unset(&description).read(), None);
        assert_eq!(histogram().read(), None);
    }

    #[test]
    fn counter_appears_when_zero_is_added() {
        let counter = Counter::unset(&BOUNDS.description());
        counter.inc_by(0);
        assert_eq!(counter.read(), Some(Reading::Number(0.0)));
        counter.inc();
        assert_eq!(counter.get(), 1.0);
    }

    #[test]
    fn observation_on_a_bound_belongs_to_its_bucket() {
        let histogram = histogram();
        histogram.observe(1.0);
        histogram.observe_duration(Duration::from_secs(6));
        histogram.observe(f64::NAN);
        assert_eq!(counts(&histogram), [0, 1, 0, 1]);
    }

    #[test]
    fn no_increment_is_lost_between_threads() {
        let counter = Counter::unset(&BOUNDS.description());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| counter.inc()));
            }
        });
        assert_eq!(counter.get(), 4000.0);
    }

    proptest! {
        #[test]
        fn every_number_lands_in_the_first_bucket_that_holds_it(value in any::<f64>()) {
            let histogram = histogram();
            histogram.observe(value);
            prop_assume!(!value.is_nan());
            let expected = [0.1, 1.0, 5.0, f64::INFINITY].iter().position(|bound| value <= *bound);
            prop_assert_eq!(counts(&histogram).iter().position(|count| *count == 1), expected);
        }
    }
}
