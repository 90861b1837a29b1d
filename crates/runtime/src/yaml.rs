//! The little YAML this crate prints: scalars that any reader takes for strings.

/// A string as a YAML scalar, quoted unless it is plainly a word.
pub(crate) fn scalar(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// Whether every YAML reader takes the bare text for this very string.
fn is_plain(text: &str) -> bool {
    let starts_with_letter = text.starts_with(|first: char| first.is_ascii_alphabetic());
    let harmless = |character: char| character.is_ascii_alphanumeric() || " ._/-".contains(character);
    let reserved = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    starts_with_letter
        && text.chars().all(harmless)
        && !text.ends_with(' ')
        && !reserved.iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_bare() {
        for text in ["unknown", "rustc 1.95.0", "v1.2.3", "istio.io/gateway-controller"] {
            assert_eq!(scalar(text), text);
        }
    }

    #[test]
    fn what_could_be_read_otherwise_is_quoted() {
        for text in ["", "1.20", "0x1", "true", "No", "null", "a: b", "a #b", "- a", "a\nb", "é", "a "] {
            assert_eq!(scalar(text), serde_json::to_string(text).unwrap());
        }
    }
}
