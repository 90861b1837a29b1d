//! Faults that are put in on purpose.

use canopus_proto::envoy::extensions::filters::common::fault::v3::FaultDelay;
use canopus_proto::envoy::extensions::filters::common::fault::v3::fault_delay::FaultDelaySecifier;
use canopus_proto::envoy::extensions::filters::http::fault::v3::{FaultAbort, HttpFault, fault_abort};
use canopus_proto::envoy::r#type::v3::FractionalPercent;
use canopus_proto::envoy::r#type::v3::fractional_percent::DenominatorType;
use canopus_proto::istio::networking::v1alpha3::http_fault_injection::abort::ErrorType;
use canopus_proto::istio::networking::v1alpha3::http_fault_injection::delay::HttpDelayType;
use canopus_proto::istio::networking::v1alpha3::http_fault_injection::{Abort, Delay};
use canopus_proto::istio::networking::v1alpha3::{HttpFaultInjection, Percent};

/// gRPC's status codes by name, in the order of their numbers.
const GRPC_STATUS: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The faults of a route; kinds that Envoy does not have are left out.
pub(super) fn http_fault(fault: &HttpFaultInjection) -> HttpFault {
    HttpFault {
        delay: fault.delay.as_ref().and_then(delay),
        abort: fault.abort.as_ref().and_then(abort),
        ..Default::default()
    }
}

#[expect(deprecated, reason = "whole percents are the old way to say it")]
fn delay(delay: &Delay) -> Option<FaultDelay> {
    let Some(HttpDelayType::FixedDelay(duration)) = delay.http_delay_type else { return None };
    // Validation refuses negative percents.
    let whole = || whole_percent(delay.percent.cast_unsigned());
    Some(FaultDelay {
        percentage: Some(delay.percentage.as_ref().map_or_else(whole, percent)),
        fault_delay_secifier: Some(FaultDelaySecifier::FixedDelay(duration)),
    })
}

fn abort(abort: &Abort) -> Option<FaultAbort> {
    let error = match abort.error_type.as_ref()? {
        ErrorType::HttpStatus(status) => fault_abort::ErrorType::HttpStatus(status.cast_unsigned()),
        ErrorType::GrpcStatus(status) => fault_abort::ErrorType::GrpcStatus(grpc_status(status)),
        ErrorType::Http2Error(_) => return None,
    };
    Some(FaultAbort {
        percentage: abort.percentage.as_ref().map(percent),
        error_type: Some(error),
        ..Default::default()
    })
}

/// Validation refuses names that are none.
fn grpc_status(name: &str) -> u32 {
    (0..).zip(GRPC_STATUS).find(|(_, status)| *status == name).map_or(0, |(number, _)| number)
}

/// A percentage with four decimals.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "validation keeps percentages between 0 and 100; decimals beyond the fourth are dropped"
)]
pub(super) fn percent(percent: &Percent) -> FractionalPercent {
    FractionalPercent {
        numerator: (percent.value * 10_000.0) as u32,
        denominator: DenominatorType::Million as i32,
    }
}

/// A whole percentage.
pub(super) fn whole_percent(percent: u32) -> FractionalPercent {
    FractionalPercent { numerator: percent, denominator: DenominatorType::Hundred as i32 }
}
