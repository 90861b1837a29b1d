//! Matching of host names is symmetric, covering implies matching, and the order of specificity is an order.

#![no_main]

use canopus_base::host;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|names: (&str, &str, &str)| {
    let (a, b, c) = names;
    assert_eq!(host::matches(a, b), host::matches(b, a));
    assert!(!host::subset_of(a, b) || host::matches(a, b));
    assert!(!(host::subset_of(a, b) && host::subset_of(b, c)) || host::subset_of(a, c));
    assert_eq!(host::by_specificity(a, b), host::by_specificity(b, a).reverse());
    assert!(!(host::subset_of(a, b) && a != b) || host::by_specificity(a, b).is_lt());
    let common = host::intersection(&[a.into(), c.into()], &[b.into()]);
    assert!(common.iter().all(|name| name.subset_of(b)));
});
