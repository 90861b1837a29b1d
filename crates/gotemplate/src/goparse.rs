//! Numbers read as Go's `strconv` reads them.

/// `strconv.ParseInt(text, base, 64)`; base 0 means that a prefix tells.
pub(crate) fn int(text: &str, base: u32) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let magnitude = uint(digits, base)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// `strconv.ParseUint(text, base, 64)`.
pub(crate) fn uint(text: &str, base: u32) -> Option<u64> {
    let (digits, radix) = if base == 0 { radix(text)? } else { (text.to_owned(), base) };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    u64::from_str_radix(&digits, radix).ok()
}

/// The digits of a literal without prefix and underscores, and their base.
fn radix(text: &str) -> Option<(String, u32)> {
    if text.contains('_') && !underscores_fit(text) {
        return None;
    }
    let plain = text.replace('_', "");
    let lower = plain.to_ascii_lowercase();
    let (prefix, radix) = match lower.get(..2) {
        Some("0x") => (2, 16),
        Some("0o") => (2, 8),
        Some("0b") => (2, 2),
        _ if lower.len() > 1 && lower.starts_with('0') => (1, 8),
        _ => (0, 10),
    };
    Some((plain[prefix..].to_owned(), radix))
}

/// Whether each underscore separates digits; one may follow the prefix.
fn underscores_fit(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let lower = text.to_ascii_lowercase();
    let prefixed = ["0x", "0o", "0b"].iter().any(|prefix| lower.starts_with(prefix));
    let hex = lower.starts_with("0x");
    let mut last = if prefixed { '0' } else { '^' };
    for c in lower[if prefixed { 2 } else { 0 }..].chars() {
        last = match c {
            '0'..='9' => '0',
            'a'..='f' if hex => '0',
            '_' if last == '0' => '_',
            '_' => return false,
            _ if last == '_' => return false,
            _ => '!',
        };
    }
    last != '_'
}

/// `strconv.ParseFloat(text, 64)`.
pub(crate) fn float(text: &str) -> Option<f64> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = unsigned.to_ascii_lowercase();
    let magnitude = match lower.as_str() {
        "inf" | "infinity" => f64::INFINITY,
        "nan" => f64::NAN,
        _ if lower.starts_with("0x") => hex_float(&lower)?,
        _ => decimal_float(&lower)?,
    };
    Some(if negative { -magnitude } else { magnitude })
}

fn decimal_float(text: &str) -> Option<f64> {
    if text.contains('_') && !underscores_fit(text) {
        return None;
    }
    let plain = text.replace('_', "");
    let numeric = plain.bytes().all(|byte| byte.is_ascii_digit() || b".e+-".contains(&byte));
    let float: f64 = if numeric { plain.parse().ok()? } else { return None };
    // Go reports what is out of range as an error.
    float.is_finite().then_some(float)
}

/// `0x1.8p3`: the exponent is not optional.
fn hex_float(text: &str) -> Option<f64> {
    if text.contains('_') && !underscores_fit(text) {
        return None;
    }
    let plain = text.replace('_', "");
    let (mantissa, exponent) = plain.strip_prefix("0x")?.split_once('p')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let value = digits.chars().fold(0.0, |sum, c| sum * 16.0 + f64::from(c.to_digit(16).unwrap_or(0)));
    let shift = exponent.saturating_sub(4 * i32::try_from(fraction.len()).ok()?);
    let float = value * 2f64.powi(shift);
    float.is_finite().then_some(float)
}
