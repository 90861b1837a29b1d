//! Istio's standard metrics, as proxies expose them: counted by who calls whom, compared over time.
//!
//! Rates and latencies are differences between two scrapes, so that a counter that starts anew (a proxy that was restarted)
//! shows as nothing for a moment and never as a negative rate.

mod exposition;
mod traffic;

pub use traffic::{Call, ServiceTraffic, Traffic};
pub(crate) use traffic::{Counters, Identities, Sample};
