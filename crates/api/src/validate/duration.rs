//! Durations: positive, to the millisecond.

use canopus_base::duration::Duration;
use canopus_proto::google::protobuf::Duration as ProtoDuration;

use super::code::{Fault, codes};
use super::scope::Scope;

codes! {
    TOO_SHORT: error "duration-too-short", "give at least 1ms";
    TOO_PRECISE: error "duration-too-precise", "give a whole number of milliseconds";
    OUT_OF_RANGE: error "duration-out-of-range", "give between 1ms and 1h";
    NEGATIVE: error "duration-negative", "give a duration that is not below zero";
    NOT_SECONDS: error "duration-not-seconds", "give a whole number of seconds";
}

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The duration as Go has it: as near as 292 years allow.
pub fn to_std(duration: &ProtoDuration) -> Duration {
    let nanos = i128::from(duration.seconds) * 1_000_000_000 + i128::from(duration.nanos);
    let clamped = nanos.clamp(i64::MIN.into(), i64::MAX.into());
    Duration::from_nanos(i64::try_from(clamped).expect("it was clamped to this range"))
}

const fn is_multiple_of(duration: Duration, unit: Duration) -> bool {
    duration.as_nanos() % unit.as_nanos() == 0
}

fn milliseconds(duration: Duration) -> Result<(), Fault> {
    if is_multiple_of(duration, MILLISECOND) {
        return Ok(());
    }
    Err(TOO_PRECISE.says("only durations to ms precision are supported").with_value(duration))
}

/// At least a millisecond, and a whole number of them.
pub fn positive(duration: &ProtoDuration) -> Result<(), Fault> {
    let duration = to_std(duration);
    if duration < MILLISECOND {
        return Err(TOO_SHORT.says("duration must be greater than 1ms").with_value(duration));
    }
    milliseconds(duration)
}

/// Like [`positive`]; an absent duration is valid.
pub fn optional(duration: Option<&ProtoDuration>, mut scope: Scope<'_>) {
    if let Some(duration) = duration {
        scope.require(positive(duration));
    }
}

/// How long to wait for a connection: up to an hour.
pub fn connect_timeout(timeout: &ProtoDuration) -> Result<(), Fault> {
    positive(timeout)?;
    let timeout = to_std(timeout);
    if (MILLISECOND..=HOUR).contains(&timeout) {
        return Ok(());
    }
    let message = format!("time {timeout} must be >{MILLISECOND} and <{HOUR}");
    Err(OUT_OF_RANGE.says(message).with_value(timeout))
}

/// How long to look for the protocol of a connection; zero means as long as it takes.
pub fn protocol_detection_timeout(timeout: &ProtoDuration) -> Result<(), Fault> {
    milliseconds(to_std(timeout))
}

/// How long a proxy drains: whole seconds.
pub fn drain(duration: &ProtoDuration) -> Result<(), Fault> {
    // Istio makes a list of each of these, even of one.
    positive(duration)
        .map_err(|fault| fault.reworded(|message| format!("invalid drain duration: {message}")).listed())?;
    let duration = to_std(duration);
    if is_multiple_of(duration, SECOND) {
        return Ok(());
    }
    let message = "drain time only supports durations to seconds precision";
    Err(NOT_SECONDS.says(message).with_value(duration).listed())
}

/// How long a proxy may stay connected.
pub fn max_connection_age(age: Duration) -> Result<(), Fault> {
    if age.is_negative() {
        let message = format!(
            "invalid duration: {age}: --keepaliveMaxServerConnectionAge only accepts positive duration eg: 30m"
        );
        return Err(NEGATIVE.says(message).with_value(age));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(checked: Result<(), Fault>) -> String {
        checked.err().map(|fault| fault.to_string()).unwrap_or_default()
    }

    #[test]
    fn duration_beyond_what_go_holds_is_as_long_as_can_be() {
        let forever = ProtoDuration { seconds: i64::MAX, nanos: i32::MAX };
        assert_eq!(to_std(&forever), Duration::from_nanos(i64::MAX));
        let never = ProtoDuration { seconds: i64::MIN, nanos: i32::MIN };
        assert_eq!(to_std(&never), Duration::from_nanos(i64::MIN));
    }

    #[test]
    fn range_is_said_in_go_durations() {
        let hours = ProtoDuration::from_secs(2 * 3600);
        assert_eq!(said(connect_timeout(&hours)), "time 2h0m0s must be >1ms and <1h0m0s");
        assert_eq!(
            said(max_connection_age(Duration::from_secs(-1800))),
            "invalid duration: -30m0s: --keepaliveMaxServerConnectionAge only accepts positive duration eg: 30m"
        );
    }

    #[test]
    fn drain_takes_whole_seconds() {
        assert_eq!(said(drain(&ProtoDuration::from_secs(45))), "");
        let uneven = ProtoDuration { seconds: 1, nanos: 500_000_000 };
        assert_eq!(said(drain(&uneven)), "drain time only supports durations to seconds precision");
        let none = ProtoDuration::default();
        assert_eq!(said(drain(&none)), "invalid drain duration: duration must be greater than 1ms");
    }
}
