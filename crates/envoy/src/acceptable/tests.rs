use super::keys::are_usable;
use super::*;
use canopus_proto::envoy::r#type::matcher::v3::{ListMatcher, OrMatcher};

fn text() -> ValueMatcher {
    ValueMatcher { match_pattern: Some(ValuePattern::StringMatch(StringMatcher::default())) }
}

#[test]
fn keys_are_usable_if_one_of_them_is() {
    let modulus = "A".repeat(86) + "E";
    let good = format!(r#"{{"kty":"RSA","e":"AQAB","n":"{modulus}"}}"#);
    let short = r#"{"kty":"RSA","e":"AQAB","n":"abc"}"#;
    assert!(are_usable(&format!(r#"{{"keys":[{short},{good}]}}"#)));
    assert!(!are_usable(&format!(r#"{{"keys":[{short}]}}"#)));
    assert!(are_usable(UNKNOWN_KEYS));
    for useless in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":{}}"#, r#"{"keys":[{"kty":"EC","crv":"P-1"}]}"#] {
        assert!(!are_usable(useless), "{useless}");
    }
}

#[test]
fn claim_without_a_text_becomes_one_with_any_text_wherever_it_stands() {
    let one_of = ListMatcher { match_pattern: Some(ListPattern::OneOf(Box::new(text()))) };
    let list = ValueMatcher { match_pattern: Some(ValuePattern::ListMatch(Box::new(one_of))) };
    let either = OrMatcher { value_matchers: vec![list, text()] };
    let mut value = ValueMatcher { match_pattern: Some(ValuePattern::OrMatch(either)) };
    state(&mut value);
    let said = format!("{value:?}");
    assert_eq!(said.matches(".*").count(), 2, "{said}");
}

#[test]
fn first_of_chains_with_equal_matches_stays() {
    let admitted = |mut chains: DistinctChains| {
        [1, 2, 1].map(|port| chains.admits(Some(&Match { port, ..Default::default() })))
    };
    assert_eq!(admitted(DistinctChains { seen: Some(BTreeSet::new()) }), [true, true, false]);
    assert_eq!(admitted(DistinctChains { seen: None }), [true; 3]);
}
