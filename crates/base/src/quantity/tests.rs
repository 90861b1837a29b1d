use proptest::prelude::*;

use super::*;

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn text_is_kept_or_made_canonical_as_kubernetes_does() {
    let cases = [
        ("0", "0"),
        ("-0", "0"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1."),
        ("1.5", "1500m"),
        ("1.500", "1.500"),
        ("100", "100"),
        ("0100", "0100"),
        ("+5", "+5"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("100000", "100k"),
        ("1000000", "1M"),
        ("100m", "100m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1e3", "1e3"),
        ("1000e3", "1e6"),
        ("1E3", "1E3"),
        ("12e-3", "12e-3"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1Ki", "1Ki"),
        ("1024Ki", "1Mi"),
        ("8Ki", "8Ki"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("0.0001Ki", "102400u"),
        ("1.5Ei", "1536Pi"),
        ("100Ei", "9223372036854775807"),
        ("-1Gi", "-1Gi"),
        ("1E", "1E"),
        ("-", "0"),
        (".", "0"),
    ];
    for (text, expected) in cases {
        assert_eq!(quantity(text).to_string(), expected, "{text}");
    }
}

#[test]
fn bad_text_is_refused() {
    for bad in ["", "1.2.3", "a", "1 ", " 1", "1Gb", "1i5x", "1,5", "½"] {
        assert_eq!(bad.parse::<Quantity>(), Err(InvalidQuantity::Form), "{bad}");
    }
    for bad in ["1K", "1e", "1ki", "1mi", "1kk", "1i", "1E+", "1m3", "1e99999999999"] {
        assert_eq!(bad.parse::<Quantity>(), Err(InvalidQuantity::Suffix), "{bad}");
    }
    for bad in ["1e30", "1e2147483647", "1000000000000000000000000000000000000000"] {
        assert_eq!(bad.parse::<Quantity>(), Err(InvalidQuantity::Range), "{bad}");
    }
}

#[test]
fn values_round_away_from_zero() {
    assert_eq!((quantity("1.1").value(), quantity("1.1").milli_value()), (2, 1100));
    assert_eq!((quantity("-1.1").value(), quantity("100u").milli_value()), (-2, 1));
    assert_eq!(quantity("1e20").value(), i64::MAX);
    assert_eq!(quantity("-1e20").value(), i64::MIN);
    assert_eq!(quantity("1Gi").as_f64(), 1_073_741_824.0);
}

#[test]
fn comparison_ignores_notation() {
    assert_eq!(quantity("1024"), quantity("1Ki"));
    assert!(quantity("1Gi") > quantity("1G"));
    assert!(quantity("-1") < quantity("1n"));
    assert_eq!(Quantity::from_millis(1500, Notation::DecimalSi), quantity("1.5"));
    assert_eq!(Quantity::from_units(2048, Notation::BinarySi).to_string(), "2Ki");
}

#[test]
fn json_may_hold_text_or_number() {
    for (json, expected) in [("\"1Gi\"", "1Gi"), ("\" 5 \"", "5"), ("2", "2"), ("0.25", "250m")] {
        let quantity: Quantity = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&quantity).unwrap(), format!("\"{expected}\""), "{json}");
    }
    assert!(serde_json::from_str::<Quantity>("true").is_err());
}

proptest! {
    #[test]
    fn canonical_text_reads_back_as_the_same_amount(text in "[-+]?[0-9]{1,10}(\\.[0-9]{0,12})?(n|u|m|k|M|G|Ki|Mi|Gi|Ti|e[-]?[0-9])?") {
        let read = quantity(&text);
        prop_assert_eq!(quantity(&read.canonical()), read.clone());
        prop_assert_eq!(quantity(&read.to_string()), read);
    }

    #[test]
    fn order_is_the_order_of_the_amounts(a in -1_000_000i64..1_000_000, b in -1_000_000i64..1_000_000) {
        let (left, right) = (quantity(&format!("{a}m")), quantity(&format!("{b}e-3")));
        prop_assert_eq!(left.cmp(&right), a.cmp(&b));
    }

    #[test]
    fn no_text_panics(text in "[-+.0-9eEinumkKMGTP]{0,16}") {
        let _ = text.parse::<Quantity>();
    }
}
