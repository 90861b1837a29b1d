//! gRPC calls, under the names by which servers written in Go count them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use canopus_runtime::metrics::catalogue::{
    GRPC_SERVER_HANDLED_TOTAL, GRPC_SERVER_HANDLING_SECONDS, GRPC_SERVER_MSG_RECEIVED_TOTAL,
    GRPC_SERVER_MSG_SENT_TOTAL, GRPC_SERVER_STARTED_TOTAL, PILOT_XDS_RECV_MAX,
};
use canopus_runtime::metrics::{Counter, Family, Histogram, Registry};
use canopus_xds::Code;

const STREAM: &str = "bidi_stream";

/// The methods that can be called: service, name, and who sends how many messages.
const METHODS: [(&str, &str, &str); 10] = [
    ("envoy.service.discovery.v3.AggregatedDiscoveryService", "DeltaAggregatedResources", STREAM),
    ("envoy.service.discovery.v3.AggregatedDiscoveryService", "StreamAggregatedResources", STREAM),
    ("envoy.service.secret.v3.SecretDiscoveryService", "DeltaSecrets", STREAM),
    ("envoy.service.secret.v3.SecretDiscoveryService", "StreamSecrets", STREAM),
    ("grpc.health.v1.Health", "Check", "unary"),
    ("grpc.health.v1.Health", "List", "unary"),
    ("grpc.health.v1.Health", "Watch", "server_stream"),
    ("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo", STREAM),
    ("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo", STREAM),
    ("istio.v1.auth.IstioCertificateService", "CreateCertificate", "unary"),
];

/// Counts calls and their messages.
pub struct CallMetrics {
    started: Family<Counter, 3>,
    handled: Family<Counter, 4>,
    received: Family<Counter, 3>,
    sent: Family<Counter, 3>,
    seconds: Family<Histogram, 3>,
    /// Bytes of the largest message that was received.
    largest: Arc<AtomicU64>,
}

impl CallMetrics {
    /// Counts in this registry.
    pub fn new(registry: &Registry) -> Self {
        let largest = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&largest);
        registry.collect(move |collected| {
            let bytes = seen.load(Ordering::Relaxed);
            if bytes > 0 {
                collected.push(PILOT_XDS_RECV_MAX, [], bytes as f64);
            }
        });
        Self {
            started: registry.family(GRPC_SERVER_STARTED_TOTAL),
            handled: registry.family(GRPC_SERVER_HANDLED_TOTAL),
            received: registry.family(GRPC_SERVER_MSG_RECEIVED_TOTAL),
            sent: registry.family(GRPC_SERVER_MSG_SENT_TOTAL),
            seconds: registry.family(GRPC_SERVER_HANDLING_SECONDS),
            largest,
        }
    }

    /// A call of a method begins; `None` if there is no such method, and so nothing that could be counted.
    pub(crate) fn begin(self: &Arc<Self>, path: &str) -> Option<Call> {
        let (service, name) = path.strip_prefix('/')?.split_once('/')?;
        let method = METHODS.iter().find(|method| method.0 == service && method.1 == name)?;
        let labels = [method.1, method.0, method.2];
        self.started.with(labels).inc();
        Some(Call {
            received: self.received.with(labels),
            sent: self.sent.with(labels),
            metrics: Arc::clone(self),
            labels,
            begun: Instant::now(),
        })
    }
}

/// A call that is under way, with what its messages are counted by.
pub(crate) struct Call {
    metrics: Arc<CallMetrics>,
    labels: [&'static str; 3],
    begun: Instant,
    received: Counter,
    sent: Counter,
}

impl Call {
    /// A message of this size has been received.
    pub(crate) fn received(&self, bytes: u32) {
        self.received.inc();
        self.metrics.largest.fetch_max(bytes.into(), Ordering::Relaxed);
    }

    /// A message is being sent.
    pub(crate) fn sent(&self) {
        self.sent.inc();
    }

    /// The call has ended.
    pub(crate) fn ended(&self, code: Code) {
        let [method, service, kind] = self.labels;
        self.metrics.handled.with([code_name(code), method, service, kind]).inc();
        self.metrics.seconds.with(self.labels).observe_duration(self.begun.elapsed());
    }
}

/// A code as gRPC for Go spells it.
pub(super) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_of_no_method_is_not_counted() {
        let registry = Registry::new();
        let metrics = Arc::new(CallMetrics::new(&registry));
        for path in ["", "/", "/grpc.health.v1.Health", "/grpc.health.v1.Health/Nonsense", "/a/b"] {
            assert!(metrics.begin(path).is_none(), "{path}");
        }
        assert_eq!(registry.encode(), "");
    }

    #[test]
    fn largest_message_is_remembered() {
        let registry = Registry::new();
        let call = Arc::new(CallMetrics::new(&registry)).begin("/grpc.health.v1.Health/Check").unwrap();
        for bytes in [10, 300, 20] {
            call.received(bytes);
        }
        assert!(registry.encode().contains("\npilot_xds_recv_max 300\n"));
    }
}
