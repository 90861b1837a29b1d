//! Days as operators read them.

/// The day of a time in seconds since 1970.
pub(crate) fn day(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map_or_else(|| "a day far away".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}
