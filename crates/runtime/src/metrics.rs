//! Metrics under Istio's exact names, in the text format of its `/metrics` endpoint.
//!
//! Every metric is declared in the [`catalogue`]; a declaration is the typed key to its values. What was never set is
//! not exported, as in Istio.
//!
//! ```
//! use canopus_runtime::metrics::{Registry, catalogue::PILOT_XDS_PUSHES};
//!
//! let registry = Registry::new();
//! let pushes = registry.family(PILOT_XDS_PUSHES);
//! assert_eq!(registry.encode(), "");
//! pushes.with(["cds"]).inc();
//! assert!(registry.encode().ends_with("# TYPE pilot_xds_pushes counter\npilot_xds_pushes{type=\"cds\"} 1\n"));
//! ```
//!
//! The values and the encoder are our own because dashboards compare text: the OpenMetrics libraries rename counters,
//! write `le="1.0"` where Istio's exporter writes `le="1"`, and end help texts with a full stop.

pub mod catalogue;
mod desc;
mod family;
mod process;
mod registry;
mod text;
mod value;

pub use desc::{Description, Instrument, Kind, Metric, Reading};
pub use family::Family;
pub use process::{register_build, register_process, register_uptime};
pub use registry::{Collected, Registry};
pub use text::CONTENT_TYPE;
pub use value::{Counter, Gauge, Histogram};

#[cfg(test)]
mod tests;
