//! Labels.

use std::collections::BTreeMap;

use canopus_base::labels::{InvalidLabel, is_qualified_name_or_empty, validate_key};

use super::code::{Fault, codes};
use super::scope::Scope;
use crate::text::quoted;

codes! {
    BAD_KEY: error "label-key-invalid", "use a name of at most 63 letters, digits, -, _ and ., optionally after dns.name/";
    BAD_VALUE: error "label-value-invalid", "use letters, digits, -, _ and ., with a letter or digit at both ends";
}

/// Labels as Kubernetes has them. `name` is the field they are in.
pub fn check(name: &'static str, labels: &BTreeMap<String, String>, mut scope: Scope<'_>) {
    scope.each_entry(name, labels, |key, value, mut scope| {
        for fault in faults(key, value) {
            scope.add(fault);
        }
    });
}

/// What is wrong with one label.
pub fn faults(key: &str, value: &str) -> impl Iterator<Item = Fault> {
    let key = validate_key(key).err().map(|error| BAD_KEY.says(words(&error)).with_value(key).listed());
    let value = (!is_qualified_name_or_empty(value))
        .then(|| BAD_VALUE.says(format!("invalid tag value: {}", quoted(value))).with_value(value).listed());
    key.into_iter().chain(value)
}

fn words(error: &InvalidLabel) -> String {
    match error {
        InvalidLabel::Key { key } => format!("invalid tag key: {}", quoted(key)),
        InvalidLabel::LongPrefix { key } => {
            format!("invalid tag key: {} (DNS prefix is too long)", quoted(key))
        }
        InvalidLabel::LongName { key } => format!("invalid tag key: {} (name is too long)", quoted(key)),
        InvalidLabel::Value { value } => format!("invalid tag value: {}", quoted(value)),
    }
}
