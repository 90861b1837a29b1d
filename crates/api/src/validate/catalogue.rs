//! Every rule there is: for documentation, and for those who look a rule up by its name.

use super::{Code, host, metadata};

/// The rules of each module.
static MODULES: &[&[&Code]] = &[host::CODES, metadata::CODES];

/// All rules.
pub fn all() -> impl Iterator<Item = &'static Code> {
    MODULES.iter().flat_map(|codes| codes.iter().copied())
}

/// The rule of this name.
pub fn find(id: &str) -> Option<&'static Code> {
    all().find(|code| code.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_rule_has_a_name_of_its_own_and_a_remedy() {
        let mut names = BTreeSet::new();
        for code in all() {
            assert!(names.insert(code.id), "{code} twice");
            assert!(
                code.id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{code}"
            );
            assert!(!code.remedy.is_empty() && !code.remedy.ends_with('.'), "{code}");
            assert_eq!(find(code.id), Some(code));
        }
    }
}
