//! URLs as values: what expressions can ask of one.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use crate::url;

/// An absolute URL, or an absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::crd) struct Url {
    source: Box<str>,
    /// In lower case; empty for a path.
    pub(super) scheme: String,
    /// Without the brackets of an IPv6 address; empty for a path.
    pub(super) host_name: String,
    /// Empty if there is none.
    pub(super) port: String,
    path: String,
    query: String,
}

impl Url {
    pub(in crate::crd) fn parse(text: &str) -> Result<Self, url::UrlError> {
        // To a request a fragment is part of what is before it; it has to be right in either way.
        url::Url::parse_request(text)?;
        let parts = url::Url::parse(text)?;
        let (rest, _) = text.split_once('#').unwrap_or((text, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = match rest.split_once(':') {
            Some((scheme, rest)) if scheme.len() == parts.scheme.len() => match rest.strip_prefix("//") {
                Some(authority) => authority.find('/').map_or("", |at| &authority[at..]),
                // What follows a scheme without a slash is no path: `mailto:someone`.
                None if rest.starts_with('/') => rest,
                None => "",
            },
            _ => rest,
        };
        Ok(Self {
            source: text.into(),
            host_name: parts.host.to_owned(),
            port: parts.port.to_owned(),
            scheme: parts.scheme,
            path: path.to_owned(),
            query: query.to_owned(),
        })
    }

    /// The host with its port, if it has one.
    pub(super) fn host(&self) -> String {
        let name = &self.host_name;
        let name = if name.contains(':') { format!("[{name}]") } else { name.clone() };
        if self.port.is_empty() { name } else { format!("{name}:{}", self.port) }
    }

    /// The path with whatever has to be escaped escaped.
    pub(super) fn escaped_path(&self) -> String {
        let stands = |byte: u8| b"!$&'()*+,;=:@[]/%".contains(&byte) || is_unreserved(byte);
        if self.path.bytes().all(stands) {
            return self.path.clone();
        }
        let bytes = unescape(&self.path);
        let mut out = String::with_capacity(bytes.len());
        for byte in bytes {
            if b"$&+,/:;=@".contains(&byte) || is_unreserved(byte) {
                out.push(char::from(byte));
            } else {
                write!(out, "%{byte:02X}").expect("writing to a String cannot fail");
            }
        }
        out
    }

    /// The parameters with all their values, unescaped.
    pub(super) fn query_parameters(&self) -> BTreeMap<String, Vec<String>> {
        let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let text = |part: &str| String::from_utf8(unescape(&part.replace('+', " "))).ok();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(key), Some(value)) = (text(key), text(value)) {
                parameters.entry(key).or_default().push(value);
            }
        }
        parameters
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
}

/// The bytes a text with escapes stands for; what is no escape stands for itself.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        rest = match others {
            [high, low, after @ ..] if *first == b'%' => match (digit(high), digit(low)) {
                (Some(high), Some(low)) => {
                    out.push(high * 16 + low);
                    after
                }
                _ => {
                    out.push(*first);
                    others
                }
            },
            _ => {
                out.push(*first);
                others
            }
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_go_finds() {
        let url = Url::parse("HTTPS://user@Example.com:80/a b?k=1&k=2&x+y=%20#f").unwrap();
        assert_eq!((&*url.scheme, &*url.host(), &*url.host_name), ("https", "Example.com:80", "Example.com"));
        assert_eq!((&*url.port, &*url.escaped_path()), ("80", "/a%20b"));
        let expected = [("k", vec!["1", "2"]), ("x y", vec![" "])];
        let expected =
            expected.map(|(key, values)| (key.to_owned(), values.into_iter().map(str::to_owned).collect()));
        assert_eq!(url.query_parameters(), BTreeMap::from(expected));

        let url = Url::parse("http://[::1]:8080").unwrap();
        assert_eq!((&*url.host(), &*url.host_name, &*url.port), ("[::1]:8080", "::1", "8080"));
        assert_eq!(url.escaped_path(), "");

        let url = Url::parse("/a:b/%2f?c:d").unwrap();
        assert_eq!((&*url.scheme, &*url.host(), &*url.escaped_path()), ("", "", "/a:b/%2f"));
    }

    #[test]
    fn text_that_is_no_request_is_refused() {
        for text in ["", "a/b", "../a", "https://a:b:c/", "http://a b/", "/%zz", "http://a/#%"] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
