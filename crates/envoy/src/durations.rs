//! Durations as users write them.

use canopus_base::duration::Duration as Go;
use canopus_proto::google::protobuf::Duration;

/// Reads a Go duration; nothing where there is none or it cannot be read.
pub(crate) fn go(text: &str) -> Option<Duration> {
    let nanos = text.parse::<Go>().ok()?.as_nanos();
    const SECOND: i64 = 1_000_000_000;
    Some(Duration { seconds: nanos / SECOND, nanos: i32::try_from(nanos % SECOND).ok()? })
}
