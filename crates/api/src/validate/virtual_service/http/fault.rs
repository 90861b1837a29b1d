//! Faults that are injected: delays and aborts.

use canopus_proto::istio::networking::v1alpha3::HttpFaultInjection;
use canopus_proto::istio::networking::v1alpha3::http_fault_injection::abort::ErrorType;
use canopus_proto::istio::networking::v1alpha3::http_fault_injection::delay::HttpDelayType;
use canopus_proto::istio::networking::v1alpha3::http_fault_injection::{Abort, Delay};

use crate::text::quoted;
use crate::validate::code::{Fault, codes};
use crate::validate::scope::Scope;
use crate::validate::{duration, percent};

codes! {
    EMPTY: error "fault-empty", "give abort or delay";
    HTTP2_ABORT: error "fault-http2-abort-unsupported", "use httpStatus or grpcStatus";
    NO_ERROR_TYPE: warning "fault-abort-without-status", "give httpStatus or grpcStatus";
    BAD_STATUS: error "http-status-out-of-range", "use a status from 200 to 599";
    BAD_GRPC_STATUS: error "fault-grpc-status-unknown", "use the name of a gRPC status such as UNAVAILABLE";
    EXPONENTIAL: error "fault-exponential-delay-unsupported", "use fixedDelay";
}

const GRPC_STATUSES: [&str; 17] = [
    "ABORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OK",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "UNKNOWN",
];

pub(super) fn check(fault: &HttpFaultInjection, mut scope: Scope<'_>) {
    if fault.abort.is_none() && fault.delay.is_none() {
        scope.add(EMPTY.says("HTTP fault injection must have an abort and/or a delay").listed());
    }
    // Parity: Istio drops the warnings of an abort.
    scope
        .optional("abort", fault.abort.as_ref(), |abort, scope| self::abort(abort, scope.without_warnings()));
    scope.optional("delay", fault.delay.as_ref(), delay);
}

/// Checks an abort.
pub fn abort(abort: &Abort, mut scope: Scope<'_>) {
    scope.optional("percentage", abort.percentage.as_ref(), |share, mut scope| {
        scope.require(percent::fraction(share));
    });
    match &abort.error_type {
        Some(ErrorType::GrpcStatus(status)) => scope.field("grpcStatus").require(grpc_status(status)),
        Some(ErrorType::Http2Error(_)) => {
            scope.field("http2Error").add(HTTP2_ABORT.says("HTTP/2 abort fault injection not supported yet"));
        }
        Some(ErrorType::HttpStatus(status)) => scope.field("httpStatus").require(http_status(*status)),
        None => scope.add(NO_ERROR_TYPE.says("abort configured, but error type not set")),
    }
}

/// A status that is an answer.
pub fn http_status(status: i32) -> Result<(), Fault> {
    // Parity: 600 passes, whatever the words say.
    if (200..=600).contains(&status) {
        return Ok(());
    }
    Err(BAD_STATUS.says(format!("HTTP status {status} is not in range 200-599")).with_value(status))
}

fn grpc_status(status: &str) -> Result<(), Fault> {
    if GRPC_STATUSES.binary_search(&status).is_ok() {
        return Ok(());
    }
    let message = format!(
        "gRPC status {} is not supported. See https://github.com/grpc/grpc/blob/master/doc/statuscodes.md for a list of \
         supported codes, for example 'NOT_FOUND'",
        quoted(status)
    );
    Err(BAD_GRPC_STATUS.says(message).with_value(status))
}

/// Checks a delay.
pub fn delay(delay: &Delay, mut scope: Scope<'_>) {
    scope.optional("percentage", delay.percentage.as_ref(), |share, mut scope| {
        scope.require(percent::fraction(share));
    });
    match &delay.http_delay_type {
        Some(HttpDelayType::FixedDelay(time)) => scope.field("fixedDelay").require(duration::positive(time)),
        Some(HttpDelayType::ExponentialDelay(time)) => {
            let mut scope = scope.field("exponentialDelay");
            scope.require(duration::positive(time));
            scope.add(EXPONENTIAL.says("exponentialDelay not supported yet").listed());
        }
        None => {}
    }
}
