//! The order of keys in written YAML: by text, but numbers within it by value, and letters after everything else.

use std::cmp::Ordering;

/// Compares two keys: `a2` before `a10`, `_a` before `a`.
pub(super) fn natural(a: &str, b: &str) -> Ordering {
    let (left, right): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    match left.iter().zip(&right).position(|(l, r)| l != r) {
        Some(at) => differing(&left, &right, at),
        None => left.len().cmp(&right.len()),
    }
}

/// Compares from the first character that differs.
fn differing(left: &[char], right: &[char], at: usize) -> Ordering {
    let (l, r) = (left[at], right[at]);
    match (l.is_alphabetic(), r.is_alphabetic()) {
        (true, true) => return l.cmp(&r),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // Zeros count only behind a digit that is not zero itself: then they make the number larger.
    let inside_number = (l == '0' || r == '0')
        && left[..at].iter().rev().take_while(|c| c.is_ascii_digit()).any(|c| *c != '0');
    let start = i64::from(inside_number);
    let (l_number, l_digits) = number(&left[at..], start);
    let (r_number, r_digits) = number(&right[at..], start);
    l_number.cmp(&r_number).then(l_digits.cmp(&r_digits)).then(l.cmp(&r))
}

/// The number that the leading digits make behind `start`, and how many there are.
fn number(text: &[char], start: i64) -> (i64, usize) {
    let digits = text.iter().map_while(|c| c.to_digit(10));
    digits.fold((start, 0), |(number, count), digit| {
        (number.wrapping_mul(10).wrapping_add(digit.into()), count + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_sort_by_value_and_letters_last() {
        let sorted = [
            "", "-", "_a", "1", "2", "10", "A", "Z", "a", "a-b", "a1", "a2", "a02", "a10", "a100", "aB",
            "ab", "é",
        ];
        for (at, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                assert_eq!(natural(a, b), at.cmp(&other), "{a} {b}");
            }
        }
    }
}
