use super::*;
use canopus_proto::envoy::r#type::matcher::v3::{ListMatcher, OrMatcher};

fn text() -> ValueMatcher {
    ValueMatcher { match_pattern: Some(ValuePattern::StringMatch(StringMatcher::default())) }
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
