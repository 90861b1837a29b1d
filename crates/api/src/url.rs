//! Addresses as Go's `net/url` reads them: objects that carry one were accepted by it, and users know its words.

use crate::text::quoted;

/// An address taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url<'a> {
    /// The scheme in lower case; empty if there is none.
    pub scheme: String,
    /// The host, without the brackets of an IPv6 address; empty if there is none.
    pub host: &'a str,
    /// The digits of the port; empty if there are none.
    pub port: &'a str,
}

/// Why a text is not an address; the words are Go's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("parse {}: {reason}", quoted(.text))]
pub struct UrlError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Which addresses are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Any, relative ones too.
    Reference,
    /// What can be asked of a server: an absolute address, or an absolute path.
    Request,
}

impl<'a> Url<'a> {
    /// Reads any address.
    pub fn parse(text: &'a str) -> Result<Self, UrlError> {
        let (address, fragment) = text.split_once('#').unwrap_or((text, ""));
        let url = read(address, Form::Reference).map_err(|reason| error(address, reason))?;
        escapes(fragment).map_err(|reason| error(text, reason))?;
        Ok(url)
    }

    /// Reads an absolute address, or an absolute path.
    pub fn parse_request(text: &'a str) -> Result<Self, UrlError> {
        read(text, Form::Request).map_err(|reason| error(text, reason))
    }
}

fn error(text: &str, reason: String) -> UrlError {
    UrlError { text: text.into(), reason }
}

fn read(text: &str, form: Form) -> Result<Url<'_>, String> {
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() && form == Form::Request {
        return Err("empty url".into());
    }
    let nothing = Url { scheme: String::new(), host: "", port: "" };
    if text == "*" {
        return Ok(nothing);
    }
    let (scheme, rest) = split_scheme(text)?;
    let scheme = scheme.to_ascii_lowercase();
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(Url { scheme, ..nothing });
        }
        if form == Form::Request {
            return Err("invalid URI for request".into());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".into());
        }
    }
    let relative = form == Form::Reference && !rest.starts_with("///");
    let authority = rest.strip_prefix("//").filter(|_| !scheme.is_empty() || relative);
    let Some(authority) = authority else {
        escapes(rest)?;
        return Ok(Url { scheme, ..nothing });
    };
    let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
    let (host, port) = split_authority(&scheme, authority)?;
    escapes(path)?;
    Ok(Url { scheme, host, port })
}

/// The scheme, empty if there is none, and what follows its colon.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let end = text.bytes().position(|b| !b.is_ascii_alphanumeric() && !b"+-.".contains(&b));
    match end.map(|end| text.split_at(end)) {
        Some(("", rest)) if rest.starts_with(':') => Err("missing protocol scheme".into()),
        Some((scheme, rest)) if rest.starts_with(':') && scheme.as_bytes()[0].is_ascii_alphabetic() => {
            Ok((scheme, &rest[1..]))
        }
        _ => Ok(("", text)),
    }
}

fn split_authority<'a>(scheme: &str, authority: &'a str) -> Result<(&'a str, &'a str), String> {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let parts = split_host(scheme, host)?;
    if !user.chars().all(is_user) {
        return Err("net/url: invalid userinfo".into());
    }
    escapes(user)?;
    Ok(parts)
}

/// The host without brackets, and the digits of the port.
fn split_host<'a>(scheme: &str, text: &'a str) -> Result<(&'a str, &'a str), String> {
    let Some(open) = text.rfind('[') else {
        let web = matches!(scheme, "http" | "https");
        let colon = if web { text.find(':') } else { text.rfind(':') };
        let (host, port) = text.split_at(colon.unwrap_or(text.len()));
        let port = port_digits(port)?;
        host_bytes(host)?;
        return Ok((host, port));
    };
    let Some((host, port)) = text.rsplit_once(']') else {
        return Err(if open > 0 { "invalid IP-literal" } else { "missing ']' in host" }.into());
    };
    if open > 0 {
        return Err("invalid IP-literal".into());
    }
    let port = port_digits(port)?;
    let host = &host[1..];
    host_bytes(host.split_once("%25").map_or(host, |(address, _)| address))?;
    if canopus_base::net::parse_ip(&host.replacen("%25", "%", 1)).is_ok_and(|ip| ip.is_ipv6()) {
        Ok((host, port))
    } else {
        Err(format!("invalid host: ParseAddr({}): unable to parse IP", quoted(host)))
    }
}

/// The digits after a colon.
fn port_digits(text: &str) -> Result<&str, String> {
    let digits = text.strip_prefix(':');
    match digits {
        None if text.is_empty() => Ok(""),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(digits),
        _ => Err(format!("invalid port {} after host", quoted(text))),
    }
}

/// In a host only what is not ASCII may be escaped, and a percent sign.
fn host_bytes(host: &str) -> Result<(), String> {
    for (at, byte) in host.bytes().enumerate() {
        if byte == b'%' {
            let escape = escape_at(host, at)?;
            if escape.as_bytes()[1] < b'8' && escape != "%25" {
                return Err(format!("invalid URL escape {}", quoted(escape)));
            }
        } else if byte.is_ascii() && !is_host_byte(byte) {
            return Err(format!("invalid character {} in host name", quoted(&char::from(byte).to_string())));
        }
    }
    Ok(())
}

/// Every `%` is followed by two hexadecimal digits.
fn escapes(text: &str) -> Result<(), String> {
    text.match_indices('%').try_for_each(|(at, _)| escape_at(text, at).map(drop))
}

fn escape_at(text: &str, at: usize) -> Result<&str, String> {
    match &text.as_bytes()[at..] {
        [_, a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => Ok(&text[at..at + 3]),
        _ => {
            let escape: String = text[at..].chars().take(3).collect();
            Err(format!("invalid URL escape {}", quoted(&escape)))
        }
    }
}

fn is_user(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c)
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, scheme: &str, host: &str, port: &str) {
        let expected = Url { scheme: scheme.into(), host, port };
        assert_eq!(Url::parse(text), Ok(expected), "{text}");
    }

    #[test]
    fn address_is_taken_apart() {
        check("http://a.example/x?y#z", "http", "a.example", "");
        check("HTTPS://u:p@a.example:81/", "https", "a.example", "81");
        check("http://[fd00::1]:81", "http", "fd00::1", "81");
        check("http://[fe80::1%25en0]/", "http", "fe80::1%25en0", "");
        check("oci:registry", "oci", "", "");
        check("/path", "", "", "");
        check("//host/path", "", "host", "");
        check("postgres://a:1,b:2/x", "postgres", "a:1,b", "2");
        check("*", "", "", "");
        check("", "", "", "");
    }

    #[test]
    fn refusal_is_in_go_words() {
        let said = |text| Url::parse(text).unwrap_err().to_string();
        assert_eq!(said("http://a:x"), r#"parse "http://a:x": invalid port ":x" after host"#);
        assert_eq!(said("http://a:1:2"), r#"parse "http://a:1:2": invalid port ":1:2" after host"#);
        assert_eq!(said("http://[::1"), r#"parse "http://[::1": missing ']' in host"#);
        assert_eq!(said("http://a[::1]"), r#"parse "http://a[::1]": invalid IP-literal"#);
        assert_eq!(said("http://a b"), r#"parse "http://a b": invalid character " " in host name"#);
        assert_eq!(said("http://a/%zz"), r#"parse "http://a/%zz": invalid URL escape "%zz""#);
        assert_eq!(said("http://a%41/"), r#"parse "http://a%41/": invalid URL escape "%41""#);
        assert_eq!(said("http://a#%"), r#"parse "http://a#%": invalid URL escape "%""#);
        assert_eq!(said(":a"), r#"parse ":a": missing protocol scheme"#);
        assert_eq!(said("a_b:c"), r#"parse "a_b:c": first path segment in URL cannot contain colon"#);
        assert_eq!(said("http://u\"@a"), r#"parse "http://u\"@a": net/url: invalid userinfo"#);
    }

    #[test]
    fn request_is_absolute() {
        let said = |text| Url::parse_request(text).map_err(|error| error.reason).err();
        assert_eq!(said("a.example/x").as_deref(), Some("invalid URI for request"));
        assert_eq!(said("").as_deref(), Some("empty url"));
        assert_eq!(said("/x"), None);
        assert_eq!(said("http://a.example"), None);
    }

    #[test]
    fn text_cut_anywhere_is_refused_or_read_but_never_panics() {
        let text = "http://ü:p@[fe80::1%25é]:80/%e4%b?#%ff";
        for (at, _) in text.char_indices() {
            _ = (Url::parse(&text[at..]), Url::parse(&text[..at]), Url::parse_request(&text[at..]));
        }
    }
}
