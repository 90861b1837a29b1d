//! URLs, taken apart and put together as Go's `net/url` does.

use crate::error::CallError;
use crate::gofmt::quote;
use crate::value::{Functions, Map, Value};

pub(super) fn add_to(functions: &mut Functions) {
    functions.add("urlParse", |text: String| {
        let url = Url::parse(&text).map_err(|error| {
            let shown = quote::quoted(text.as_bytes());
            CallError::from(format!("unable to parse url: parse {shown}: {error}"))
        })?;
        Ok::<_, CallError>(url.to_map())
    });
    functions.add("urlJoin", |parts: Map| Url::from_map(&parts).map(|url| url.text()));
}

#[derive(Default)]
struct Url {
    scheme: String,
    opaque: String,
    user: Option<String>,
    host: String,
    path: String,
    query: String,
    fragment: String,
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = Self { fragment: unescape(fragment)?, ..Self::default() };
        let (scheme, rest) = split_scheme(rest)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        url.query = query.to_owned();
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                url.opaque = rest.to_owned();
                return Ok(url);
            }
            let first = rest.split('/').next().unwrap_or_default();
            if first.contains(':') {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let mut path = rest;
        if let Some(after) =
            rest.strip_prefix("//").filter(|after| !url.scheme.is_empty() || !after.starts_with('/'))
        {
            let slash = after.find('/').unwrap_or(after.len());
            url.authority(&after[..slash])?;
            path = &after[slash..];
        }
        url.path = unescape(path)?;
        Ok(url)
    }

    fn authority(&mut self, authority: &str) -> Result<(), String> {
        let host = match authority.rsplit_once('@') {
            None => authority,
            Some((user, host)) => {
                let valid = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
                if !user.chars().all(valid) {
                    return Err("net/url: invalid userinfo".to_owned());
                }
                self.user = Some(user.to_owned());
                host
            }
        };
        let port = host.rsplit_once(']').map_or(host, |(_, rest)| rest).split_once(':');
        if let Some((_, port)) = port
            && !port.bytes().all(|byte| byte.is_ascii_digit())
        {
            let shown = quote::quoted(format!(":{port}").as_bytes());
            return Err(format!("invalid port {shown} after host"));
        }
        self.host = unescape(host)?;
        Ok(())
    }

    fn hostname(&self) -> &str {
        let port = match self.host.rfind(':') {
            Some(colon) if self.host[colon + 1..].bytes().all(|byte| byte.is_ascii_digit()) => colon,
            _ => self.host.len(),
        };
        let host = &self.host[..port];
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    fn to_map(&self) -> Map {
        [
            ("scheme", self.scheme.as_str()),
            ("host", &self.host),
            ("hostname", self.hostname()),
            ("path", &self.path),
            ("query", &self.query),
            ("opaque", &self.opaque),
            ("fragment", &self.fragment),
            ("userinfo", self.user.as_deref().unwrap_or_default()),
        ]
        .into_iter()
        .collect()
    }

    fn from_map(parts: &Map) -> Result<Self, CallError> {
        let part = |key: &str| match parts.get(key) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.to_text().into_owned()),
            Some(other) => {
                let kind = other.kind().name();
                Err(CallError::from(format!(
                    "unable to parse {key} key, must be of type string, but {kind} found"
                )))
            }
        };
        let user = part("userinfo")?;
        Ok(Self {
            scheme: part("scheme")?,
            host: part("host")?,
            path: part("path")?,
            query: part("query")?,
            opaque: part("opaque")?,
            fragment: part("fragment")?,
            user: (!user.is_empty()).then_some(user),
        })
    }

    fn text(&self) -> String {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.push_str(&self.scheme);
            out.push(':');
        }
        if !self.opaque.is_empty() {
            out.push_str(&self.opaque);
        } else {
            if !self.scheme.is_empty() || !self.host.is_empty() || self.user.is_some() {
                if !self.host.is_empty() || !self.path.is_empty() || self.user.is_some() {
                    out.push_str("//");
                }
                if let Some(user) = &self.user {
                    out.push_str(user);
                    out.push('@');
                }
                out.push_str(&escape(&self.host, "-._~!$&'()*+,;=:[]<>\""));
            }
            let path = escape(&self.path, "-._~$&+,/:;=@!'()*");
            if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
                out.push('/');
            }
            if out.is_empty() && path.split('/').next().is_some_and(|first| first.contains(':')) {
                out.push_str("./");
            }
            out.push_str(&path);
        }
        if !self.query.is_empty() {
            out.push('?');
            out.push_str(&self.query);
        }
        if !self.fragment.is_empty() {
            out.push('#');
            out.push_str(&escape(&self.fragment, "-._~$&+,/:;=?@!()*'"));
        }
        out
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            let shown = [b"%", tail.get(..2).unwrap_or(tail)].concat();
            return Err(format!("invalid URL escape {}", quote::quoted(&shown)));
        };
        out.push(byte);
        rest = &tail[2..];
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn escape(text: &str, plain: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || (c.is_ascii() && plain.contains(c)) {
            out.push(c);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
