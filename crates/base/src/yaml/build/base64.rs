//! Base64 with padding, as `!!binary` scalars have it.

/// Decodes a text, line breaks ignored; `None` if it is not base64.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    if !digits.len().is_multiple_of(4) {
        return None;
    }
    let last = digits.len().saturating_sub(4);
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    for (index, quad) in digits.chunks(4).enumerate() {
        let padding = quad.iter().rev().take_while(|b| **b == b'=').count();
        if padding > 2 || (padding > 0 && index * 4 != last) {
            return None;
        }
        let mut group = 0u32;
        for digit in &quad[..4 - padding] {
            group = group << 6 | sextet(*digit)?;
        }
        group <<= 6 * padding;
        bytes.extend_from_slice(&group.to_be_bytes()[1..4 - padding]);
    }
    Some(bytes)
}

fn sextet(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_and_line_breaks_are_understood() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("aGk=", b"hi"),
            ("aA==", b"h"),
            ("aGV5", b"hey"),
            ("aG\nV5\r\naA==", b"heyh"),
            ("/+8=", b"\xff\xef"),
        ] {
            assert_eq!(decode(text).as_deref(), Some(bytes), "{text:?}");
        }
        for bad in ["a", "aGk", "aGk==", "====", "a===", "aG=k", "aA==aA==", "aG k", "é==="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
