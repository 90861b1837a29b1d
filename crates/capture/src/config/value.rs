//! Values that may stand in a rule: each type's `FromStr` is the check that keeps rule texts well formed.

use std::fmt;
use std::str::FromStr;

use canopus_base::net::validate_interface_names;

/// The entries of a comma-separated list, without blanks around them and without empty ones.
pub(crate) fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// A port, or a range of ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// In the syntax of `nft`.
    pub(crate) fn nft(self) -> String {
        if self.first == self.last { self.first.to_string() } else { format!("{}-{}", self.first, self.last) }
    }
}

impl From<u16> for PortRange {
    fn from(port: u16) -> Self {
        Self { first: port, last: port }
    }
}

impl fmt::Display for PortRange {
    /// Written as iptables writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}:{}", self.first, self.last)
        }
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once(':').unwrap_or((text, text));
        let range = port(first).zip(port(last)).map(|(first, last)| Self { first, last });
        range
            .filter(|range| range.first <= range.last)
            .ok_or_else(|| format!("{text:?} is not a port (0 to 65535) or a range such as 8000:8099"))
    }
}

/// A port number in plain digits.
fn port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A user or group, by number or name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner(String);

impl Owner {
    /// A user or group by number.
    pub fn id(id: u32) -> Self {
        Self(id.to_string())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The longest user or group name that Linux tools create.
const OWNER_MAX: usize = 32;

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if is_plain && begins && text.len() <= OWNER_MAX {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("{text:?} is not a numeric id or a name of letters, digits, '_', '.' and '-'"))
        }
    }
}

/// A network interface, or all whose names begin alike (`veth+`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InterfaceName {
    name: String,
    is_prefix: bool,
}

impl InterfaceName {
    /// In the syntax of `nft`.
    pub(crate) fn nft(&self) -> String {
        format!("{}{}", self.name, if self.is_prefix { "*" } else { "" })
    }
}

impl fmt::Display for InterfaceName {
    /// Written as iptables writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.is_prefix { "+" } else { "" })
    }
}

impl FromStr for InterfaceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, is_prefix) = match text.strip_suffix('+') {
            Some(name) => (name, true),
            None => (text, false),
        };
        if name.is_empty() {
            return Err(format!("{text:?} names no interface"));
        }
        validate_interface_names(name).map_err(|error| error.to_string())?;
        Ok(Self { name: name.to_owned(), is_prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_or_ranges_and_each_language_has_its_own_hyphen() {
        let range: PortRange = "8000:8099".parse().unwrap();
        assert_eq!((range.to_string(), range.nft()), ("8000:8099".to_owned(), "8000-8099".to_owned()));
        assert_eq!("80".parse::<PortRange>().unwrap(), PortRange::from(80));
        for bad in ["", "*", "65536", "+80", "-1", "http", "90:80", "80 -j", "80\n", "1:2:3", ":80"] {
            assert!(bad.parse::<PortRange>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn owners_cannot_carry_options_or_line_breaks() {
        for good in ["1337", "istio-proxy", "java", "_apt", "a.b"] {
            assert_eq!(good.parse::<Owner>().unwrap().to_string(), good);
        }
        for bad in ["", "-j", "!", "a b", "a\nCOMMIT", "a;b", "\"", "{1", "é", &"a".repeat(33)] {
            assert!(bad.parse::<Owner>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn interface_prefixes_use_each_languages_wildcard() {
        let all: InterfaceName = "veth+".parse().unwrap();
        assert_eq!((all.to_string(), all.nft()), ("veth+".to_owned(), "veth*".to_owned()));
        for bad in ["", "+", "eth0 -j ACCEPT", "eth0\n-F", "eth0;", "*", "0123456789abcdef"] {
            assert!(bad.parse::<InterfaceName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lists_ignore_blanks_and_empty_entries() {
        assert_eq!(items(" 80, ,443,").collect::<Vec<_>>(), ["80", "443"]);
        assert_eq!(items("").count(), 0);
    }
}
