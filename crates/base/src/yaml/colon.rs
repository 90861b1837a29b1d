//! Colons at the end of a plain scalar in brackets.
//!
//! In `[2001:db8::]` the reader that Kubernetes uses sees an address, for a colon is a separator only before a blank. The
//! newer YAML of our parser sees a key without a value. So such colons are masked before parsing and put back in the
//! scalars that come out. Masking one too many (in a quoted text or comment) does no harm.

/// Stands for a masked colon: one character too, so that columns stay right, and one that no document has.
const MASK: char = '\u{e000}';

/// The text with such colons masked, if it has any.
pub(super) fn mask(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let closes = |at: usize| {
        let ends_scalar = matches!(bytes.get(at + 1), Some(b',' | b']' | b'}'));
        ends_scalar && at > 0 && !is_boundary(bytes[at - 1])
    };
    let mut masked = String::new();
    let mut kept = 0;
    for (at, _) in bytes.iter().enumerate().filter(|(at, byte)| **byte == b':' && closes(*at)) {
        masked.push_str(&text[kept..at]);
        masked.push(MASK);
        kept = at + 1;
    }
    if kept == 0 || text.contains(MASK) {
        return None;
    }
    masked.push_str(&text[kept..]);
    Some(masked)
}

/// Whether a byte before a colon shows that no plain scalar ends there.
fn is_boundary(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'\'' | b',' | b'[' | b']' | b'{' | b'}')
}

/// Puts masked colons back.
pub(super) fn unmask(text: &str) -> String {
    text.replace(MASK, ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colons_that_end_a_plain_scalar_are_masked() {
        for text in ["[fe80::]", "{a: x:, b: 1}", "[12:]", "é:]"] {
            let masked = mask(text).expect(text);
            assert_ne!(masked, text);
            assert_eq!(masked.chars().count(), text.chars().count());
            assert_eq!(unmask(&masked), text);
        }
        for text in ["{\"a\":}", "[a: ]", "[a:\n]", "a: b", ":]", "[\u{e000}:]", ""] {
            assert_eq!(mask(text), None, "{text}");
        }
    }
}
