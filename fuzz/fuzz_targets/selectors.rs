//! The small texts of configuration: selectors, durations, quantities, regular expressions, addresses.

#![no_main]

use canopus_base::duration::{Duration, ProtoDuration};
use canopus_base::labels::{Labels, Selector};
use canopus_base::quantity::Quantity;
use canopus_base::{net, regex};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(selector) = Selector::parse(text) {
        assert_eq!(Selector::parse(&selector.to_string()).as_ref(), Ok(&selector));
        selector.matches(&Labels::from_iter([("a", "b"), ("c", "5")]));
    }
    if let Ok(duration) = text.parse::<Duration>() {
        assert_eq!(duration.to_string().parse(), Ok(duration));
    }
    if let Ok(duration) = text.parse::<ProtoDuration>() {
        assert_eq!(duration.to_string().parse(), Ok(duration));
    }
    if let Ok(quantity) = text.parse::<Quantity>() {
        assert_eq!(quantity.to_string().parse().as_ref(), Ok(&quantity));
        assert_eq!(quantity.canonical().parse().as_ref(), Ok(&quantity));
    }
    let _ = regex::check(text);
    let _ = net::parse_prefix_or_ip(text);
    let _ = net::is_localhost_peer(text);
    let _ = net::validate_interface_names(text);
});
