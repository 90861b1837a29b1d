//! Figures and their units.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::statistics::percentile;

/// What a figure counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    /// Seconds of wall-clock time.
    Seconds,
    /// Seconds of processor time.
    CpuSeconds,
    /// Bytes.
    Bytes,
    /// How often something happened, or how many there are.
    Count,
}

/// One measured value. Less is better, whatever it counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) name: String,
    /// The value, in the unit.
    pub(crate) value: f64,
    /// The unit.
    pub(crate) unit: Unit,
}

impl Figure {
    /// A span of time.
    pub(crate) fn time(name: impl Into<String>, value: Duration) -> Self {
        Self { name: name.into(), value: value.as_secs_f64(), unit: Unit::Seconds }
    }

    /// Processor time.
    pub(crate) fn cpu(name: impl Into<String>, value: Duration) -> Self {
        Self { name: name.into(), value: value.as_secs_f64(), unit: Unit::CpuSeconds }
    }

    /// A number of bytes.
    pub(crate) fn bytes(name: impl Into<String>, value: u64) -> Self {
        Self { name: name.into(), value: value as f64, unit: Unit::Bytes }
    }

    /// A figure that counts.
    pub(crate) fn count(name: impl Into<String>, value: impl Into<f64>) -> Self {
        Self { name: name.into(), value: value.into(), unit: Unit::Count }
    }

    /// The median and the 99th percentile of some times.
    pub(crate) fn times(name: &str, values: &[Duration]) -> Vec<Self> {
        let seconds: Vec<f64> = values.iter().map(Duration::as_secs_f64).collect();
        let figure = |percent: f64| {
            let value = percentile(&seconds, percent)?;
            Some(Self { name: format!("{name}, p{percent}"), value, unit: Unit::Seconds })
        };
        [50.0, 99.0].into_iter().filter_map(figure).collect()
    }

    /// The value as people read it.
    pub(crate) fn shown(&self) -> String {
        show(self.value, self.unit)
    }
}

/// A value as people read it.
pub(crate) fn show(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Seconds => show_time(value, ""),
        Unit::CpuSeconds => show_time(value, " CPU"),
        Unit::Bytes => match value {
            ..1e3 => format!("{value:.0} B"),
            ..1e6 => format!("{:.1} kB", value / 1e3),
            ..1e9 => format!("{:.1} MB", value / 1e6),
            _ => format!("{:.2} GB", value / 1e9),
        },
        Unit::Count if value.fract() == 0.0 => format!("{value:.0}"),
        Unit::Count => format!("{value:.2}"),
    }
}

fn show_time(seconds: f64, suffix: &str) -> String {
    match seconds {
        ..1e-3 => format!("{:.0} µs{suffix}", seconds * 1e6),
        ..0.1 => format!("{:.1} ms{suffix}", seconds * 1e3),
        ..1.0 => format!("{:.0} ms{suffix}", seconds * 1e3),
        ..10.0 => format!("{seconds:.2} s{suffix}"),
        _ => format!("{seconds:.1} s{suffix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_in_units_that_fit() {
        assert_eq!(show(0.000_25, Unit::Seconds), "250 µs");
        assert_eq!(show(0.025, Unit::Seconds), "25.0 ms");
        assert_eq!(show(71.2, Unit::CpuSeconds), "71.2 s CPU");
        assert_eq!(show(1.8e6, Unit::Bytes), "1.8 MB");
        assert_eq!(show(3.0, Unit::Count), "3");
        assert_eq!(show(0.5, Unit::Count), "0.50");
    }

    #[test]
    fn times_have_a_middle_and_a_tail() {
        let values: Vec<Duration> = (1..=100).map(Duration::from_secs).collect();
        let figures = Figure::times("delay", &values);
        assert_eq!(figures[0], Figure::time("delay, p50", Duration::from_secs(50)));
        assert_eq!(figures[1], Figure::time("delay, p99", Duration::from_secs(99)));
    }
}
