//! The words in which a client rejects a response.
//!
//! The words are text of the client's choosing: any UTF-8, and not necessarily an Envoy's. Both readers below cut the text at
//! characters only, never at counted bytes, and give up instead of guessing.

/// Failed checks that are kept of one rejection; Envoy nests a handful.
const MOST_STEPS: usize = 16;

/// What Envoy writes between the kind of a message and the field whose check failed.
const CHECK: &str = "ValidationError.";

/// Whether the words mention a resource by name, as a word of its own: names are often parts of other names.
pub fn mentions(words: &str, name: &str) -> bool {
    let opens = |before: &str| before.chars().next_back().is_none_or(|c| " ,;:'\"([".contains(c));
    let closes = |after: &str| after.chars().next().is_none_or(|c| " ,;:'\")]".contains(c));
    let around = |at| Some((words.get(..at)?, words.get(at + name.len()..)?));
    let mut found = words.match_indices(name).filter_map(|(at, _)| around(at));
    !name.is_empty() && found.any(|(before, after)| opens(before) && closes(after))
}

/// The path through the failed checks, such as `Cluster.ConnectTimeout`: Envoy names the check of each message on the way to
/// the field, from the outside in.
pub fn failed_field(words: &str) -> Option<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_path = |c: char| is_word(c) || c == '[' || c == ']';
    let mut rest = words;
    let mut steps = Vec::new();
    while let Some((before, after)) = rest.split_once(CHECK)
        && steps.len() < MOST_STEPS
    {
        let kind = before.rsplit(|c| !is_word(c)).next().unwrap_or_default();
        let field = after.split(|c| !is_path(c)).next().unwrap_or_default();
        steps.push(format!("{kind}.{field}"));
        rest = after;
    }
    (!steps.is_empty()).then(|| steps.join(" > "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn field_is_found_in_the_words_of_failed_checks() {
        let words = "Proto constraint validation failed (ClusterValidationError.ConnectTimeout: value must be greater than 0s): name: \"x\"";
        assert_eq!(failed_field(words).as_deref(), Some("Cluster.ConnectTimeout"));
        let nested = "(RouteConfigurationValidationError.VirtualHosts[0]: embedded message failed validation | caused by VirtualHostValidationError.Domains: empty)";
        assert_eq!(
            failed_field(nested).as_deref(),
            Some("RouteConfiguration.VirtualHosts[0] > VirtualHost.Domains")
        );
        assert_eq!(failed_field("Unknown cluster"), None);
    }

    #[test]
    fn characters_of_several_bytes_beside_a_check_are_no_part_of_it() {
        assert_eq!(failed_field("«ClusterValidationError.Name»").as_deref(), Some("Cluster.Name"));
        assert_eq!(failed_field("é ValidationError.é").as_deref(), Some("."));
        assert_eq!(failed_field("\u{10FFFF}ValidationError.\u{10FFFF}").as_deref(), Some("."));
        assert!(mentions("é 'é'", "é") && !mentions("éé", "é"));
    }

    #[test]
    fn endless_checks_are_cut_off() {
        let steps = failed_field(&"AValidationError.B ".repeat(1000)).unwrap();
        assert_eq!(steps.split(" > ").count(), MOST_STEPS);
    }

    proptest! {
        #[test]
        fn any_words_can_be_read(parts in prop::collection::vec(
            prop_oneof![Just("ValidationError.".to_owned()), "\\PC{0,3}", "[a-z\\[\\]' :é€🚀]{0,6}"], 0..12
        ), name in "\\PC{0,3}") {
            let words = parts.concat();
            let found = failed_field(&words);
            prop_assert_eq!(found.is_some(), words.contains(CHECK));
            if mentions(&words, &name) {
                prop_assert!(words.contains(&name));
            }
        }
    }
}
