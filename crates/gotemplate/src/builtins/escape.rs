//! `html`, `js`, `urlquery`.

use crate::gofmt::quote;
use crate::value::runes;

pub(super) fn html(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            0 => out.extend_from_slice("\u{fffd}".as_bytes()),
            b'"' => out.extend_from_slice(b"&#34;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            _ => out.push(byte),
        }
    }
    out
}

pub(super) fn js(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for (c, raw) in runes(text) {
        match c {
            '\\' => out.extend_from_slice(br"\\"),
            '\'' => out.extend_from_slice(br"\'"),
            '"' => out.extend_from_slice(br#"\""#),
            '<' | '>' | '&' | '=' | '\0'..='\u{1f}' => {
                out.extend_from_slice(format!("\\u{:04X}", u32::from(c)).as_bytes());
            }
            _ if c.is_ascii() || quote::is_printable(c) => out.extend_from_slice(raw),
            _ => out.extend_from_slice(format!("\\u{:04X}", u32::from(c)).as_bytes()),
        }
    }
    out
}

pub(super) fn url_query(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte),
            b' ' => out.push(b'+'),
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    out
}
