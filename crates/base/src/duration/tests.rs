use proptest::prelude::*;

use super::*;

fn nanos(text: &str) -> i64 {
    text.parse::<Duration>().unwrap().as_nanos()
}

#[test]
fn go_text_is_read_exactly() {
    let cases = [
        ("0", 0),
        ("+0", 0),
        ("5s", 5_000_000_000),
        ("1m30s", 90_000_000_000),
        ("-1.5h", -5_400_000_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("1us", 1_000),
        ("1\u{b5}s", 1_000),
        ("1\u{3bc}s", 1_000),
        ("1h1h", 7_200_000_000_000),
        ("0.1ns", 0),
        ("9223372036854775807ns", i64::MAX),
        ("-9223372036854775808ns", i64::MIN),
        ("0.9223372036854775807h", 3_320_413_933_267),
        ("0.3333333333333333333h", 1_200_000_000_000),
        ("39h9m14.425s", 140_954_425_000_000),
    ];
    for (text, expected) in cases {
        assert_eq!(nanos(text), expected, "{text}");
    }
}

#[test]
fn bad_go_text_is_refused_in_go_words() {
    let cases = [
        ("", "time: invalid duration \"\""),
        ("-", "time: invalid duration \"-\""),
        ("s", "time: invalid duration \"s\""),
        (".", "time: invalid duration \".\""),
        (".s", "time: invalid duration \".s\""),
        ("3", "time: missing unit in duration \"3\""),
        ("1h2", "time: missing unit in duration \"1h2\""),
        ("1d", "time: unknown unit \"d\" in duration \"1d\""),
        ("1 s", "time: unknown unit \" s\" in duration \"1 s\""),
        ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
        ("99999999999999999999s", "time: invalid duration \"99999999999999999999s\""),
        ("1\u{b5}", "time: unknown unit \"\\xc2\\xb5\" in duration \"1\\xc2\\xb5\""),
        ("--1s", "time: invalid duration \"--1s\""),
    ];
    for (text, message) in cases {
        assert_eq!(text.parse::<Duration>().unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn go_text_is_written_exactly() {
    let cases = [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1\u{b5}s"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (4 * MINUTE as i64 + 5_000_000_000, "4m5s"),
        (4 * MINUTE as i64 + 5_001_000_000, "4m5.001s"),
        (5 * HOUR as i64 + 6 * MINUTE as i64 + 7_001_000_000, "5h6m7.001s"),
        (HOUR as i64, "1h0m0s"),
        (i64::MAX, "2562047h47m16.854775807s"),
        (i64::MIN, "-2562047h47m16.854775808s"),
    ];
    for (nanos, text) in cases {
        assert_eq!(Duration::from_nanos(nanos).to_string(), text);
    }
}

#[test]
fn conversions_keep_to_the_range() {
    assert_eq!(Duration::from_secs(2), Duration::from_millis(2000));
    assert_eq!(Duration::from_secs(i64::MAX).as_nanos(), i64::MAX);
    assert_eq!(Duration::from_secs(-1).to_std(), None);
    assert_eq!(Duration::from_millis(5).to_std(), Some(time::Duration::from_millis(5)));
    assert!(Duration::try_from(time::Duration::MAX).is_err());
}

#[test]
fn proto_text_is_read_as_protojson_does() {
    let cases = [
        ("1s", 1, 0),
        ("0.1s", 0, 100_000_000),
        ("1.s", 1, 0),
        (".1s", 0, 100_000_000),
        (".s", 0, 0),
        ("+1s", 1, 0),
        ("-1.5s", -1, -500_000_000),
        ("-.1s", 0, -100_000_000),
        ("1.000000001s", 1, 1),
        ("315576000000.999999999s", 315_576_000_000, 999_999_999),
    ];
    for (text, seconds, nanos) in cases {
        let duration: ProtoDuration = text.parse().unwrap();
        assert_eq!((duration.seconds(), duration.nanos()), (seconds, nanos), "{text}");
    }
    for bad in [
        "",
        "s",
        "1",
        "-s",
        "01s",
        "00s",
        "1ms",
        "1m",
        "1.0000000001s",
        "1.5.s",
        "1e3s",
        " 1s",
        "- 1s",
        "+-1s",
    ] {
        assert!(matches!(bad.parse::<ProtoDuration>(), Err(InvalidProtoDuration::Form { .. })), "{bad}");
    }
    for far in ["315576000001s", "-315576000001s"] {
        assert!(matches!(far.parse::<ProtoDuration>(), Err(InvalidProtoDuration::TextRange { .. })), "{far}");
    }
}

#[test]
fn proto_fields_are_checked() {
    assert!(ProtoDuration::new(1, 999_999_999).is_ok());
    assert_eq!(ProtoDuration::new(i64::MIN, 0), Err(InvalidProtoDuration::Seconds { seconds: i64::MIN }));
    assert_eq!(
        ProtoDuration::new(0, 1_000_000_000),
        Err(InvalidProtoDuration::Nanos { nanos: 1_000_000_000 })
    );
    assert_eq!(ProtoDuration::new(0, i32::MIN), Err(InvalidProtoDuration::Nanos { nanos: i32::MIN }));
    assert_eq!(ProtoDuration::new(1, -1), Err(InvalidProtoDuration::Signs));
}

#[test]
fn proto_text_has_few_decimals() {
    for (seconds, nanos, text) in
        [(3, 0, "3s"), (1, 500_000_000, "1.500s"), (0, -1_000, "-0.000001s"), (-1, -1, "-1.000000001s")]
    {
        assert_eq!(ProtoDuration::new(seconds, nanos).unwrap().to_string(), text);
    }
}

proptest! {
    #[test]
    fn go_text_round_trips(nanos in any::<i64>(), shift in 0..63u32) {
        let duration = Duration::from_nanos(nanos >> shift);
        // Fractions go through a float, exact as long as the digits of the smallest unit fit its mantissa.
        prop_assert_eq!(duration.to_string().parse::<Duration>().unwrap(), duration);
    }

    #[test]
    fn proto_text_round_trips(nanos in any::<i64>()) {
        let duration = ProtoDuration::from(Duration::from_nanos(nanos));
        prop_assert_eq!(duration.to_string().parse::<ProtoDuration>().unwrap(), duration);
        prop_assert_eq!(duration.to_duration(), Duration::from_nanos(nanos));
    }

    #[test]
    fn no_text_panics(text in "[-+.0-9a-z\u{b5}]{0,12}") {
        let _ = text.parse::<Duration>();
        let _ = text.parse::<ProtoDuration>();
    }
}
