//! Messages that users do not want to see: by flag, or by an annotation of the object.

use crate::message::Message;

/// A code that is not reported for objects of some names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppression {
    /// The code.
    pub code: String,
    /// The objects, as `Kind namespace/name`; `*` stands for any characters.
    pub objects: String,
}

impl Suppression {
    /// Reads `CODE=OBJECTS`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('=');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(code), Some(objects), None) => {
                Some(Self { code: code.to_owned(), objects: objects.to_owned() })
            }
            _ => None,
        }
    }

    /// Whether the message is of this code and about one of these objects.
    pub fn covers(&self, message: &Message) -> bool {
        let Some(origin) = &message.origin else { return false };
        self.code == message.code && glob(&self.objects, &origin.friendly_name())
    }
}

/// Whether the object's own annotation suppresses the message.
pub(crate) fn is_suppressed_by_object(message: &Message) -> bool {
    let Some(origin) = &message.origin else { return false };
    !origin.suppressed_codes.is_empty()
        && origin.suppressed_codes.split(',').any(|code| code == "*" || code == message.code)
}

/// Whether a text fits a pattern in which `*` stands for any characters.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_stands_for_any_characters_anywhere() {
        for (pattern, text, fits) in [
            ("VirtualService *", "VirtualService shop/v", true),
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "acb", false),
            ("a*b*c", "a-b-b-c", true),
            ("Pod shop/v", "Pod shop/v1", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn suppression_needs_exactly_one_equals_sign() {
        assert!(Suppression::parse("nonsense").is_none());
        assert!(Suppression::parse("a=b=c").is_none());
        assert_eq!(Suppression::parse("IST0101=Pod *").unwrap().objects, "Pod *");
    }
}
