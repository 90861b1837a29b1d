//! Base 64, base 32 and checksums.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::value::{Functions, Str};

pub(super) fn add_to(functions: &mut Functions) {
    functions
        .add("b64enc", |text: Str| base64(text.as_bytes()))
        .add("b64dec", |text: Str| decode_base64(text.as_bytes()))
        .add("b32enc", |text: Str| base32(text.as_bytes()))
        .add("b32dec", |text: Str| decode_base32(text.as_bytes()));
}

pub(super) fn add_hashes(functions: &mut Functions) {
    functions
        .add("sha1sum", |text: Str| hex(&digest::SHA1_FOR_LEGACY_USE_ONLY, &text))
        .add("sha256sum", |text: Str| hex(&digest::SHA256, &text))
        .add("sha512sum", |text: Str| hex(&digest::SHA512, &text))
        .add("adler32sum", |text: Str| adler32(text.as_bytes()).to_string());
}

fn hex(algorithm: &'static digest::Algorithm, text: &Str) -> String {
    let digest = digest::digest(algorithm, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65521;
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % MODULUS;
        (low, (high + low) % MODULUS)
    });
    high << 16 | low
}

pub(crate) fn base64(bytes: &[u8]) -> Vec<u8> {
    STANDARD.encode(bytes).into_bytes()
}

/// Parity: what cannot be decoded gives the error's text.
fn decode_base64(text: &[u8]) -> Vec<u8> {
    let text: Vec<u8> = text.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    STANDARD.decode(&text).unwrap_or_else(|_| {
        let at = bad_byte(&text, 4, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
        format!("illegal base64 data at input byte {at}").into_bytes()
    })
}

/// Where a decoder stops: at the first byte that does not fit, else at the group that is not whole.
fn bad_byte(text: &[u8], group: usize, fits: impl Fn(u8) -> bool) -> usize {
    let digits = text.iter().take_while(|byte| fits(**byte)).count();
    if digits == text.len() { digits - digits % group } else { digits }
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len().div_ceil(5) * 8);
    for group in bytes.chunks(5) {
        let bits =
            group.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte)) << (8 * (5 - group.len()));
        let digits = (group.len() * 8).div_ceil(5);
        for at in 0..8 {
            let digit = (bits >> (35 - 5 * at)) & 31;
            out.push(if at < digits { BASE32[usize::try_from(digit).unwrap_or(0)] } else { b'=' });
        }
    }
    out
}

fn decode_base32(text: &[u8]) -> Vec<u8> {
    let text: Vec<u8> = text.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let digits = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let value = |byte: u8| BASE32.iter().position(|digit| *digit == byte);
    let whole =
        text.len().is_multiple_of(8) && matches!(digits % 8, 0 | 2 | 4 | 5 | 7) && text.len() - digits < 8;
    let values: Option<Vec<usize>> = text[..digits].iter().map(|byte| value(*byte)).collect();
    let Some(values) = values.filter(|_| whole) else {
        let at = bad_byte(&text, 8, |byte| value(byte).is_some());
        return format!("illegal base32 data at input byte {at}").into_bytes();
    };
    let mut out = Vec::new();
    for group in values.chunks(8) {
        let bits =
            group.iter().fold(0u64, |bits, digit| bits << 5 | *digit as u64) << (5 * (8 - group.len()));
        out.extend_from_slice(&bits.to_be_bytes()[3..3 + group.len() * 5 / 8]);
    }
    out
}
