//! The part of an address behind the question mark.

/// Parameters in the order they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads `key=value&key`; what is not properly encoded stands for itself.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        });
        Self(decoded.collect())
    }

    /// The first value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str())
    }

    /// Whether a key was given, with or without a value.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Whether a key was given with some value, whatever it is.
    pub fn says(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !value.is_empty())
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let escaped =
            escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        rest = after;
        match (first, escaped) {
            (_, Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'+', None) => bytes.push(b' '),
            (other, None) => bytes.push(*other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_as_browsers_write_them() {
        let read = Parameters::parse("proxyID=a%2Eb&pretty&&empty=&sum=1+2&broken=%zz%4");
        assert_eq!(read.get("proxyID"), Some("a.b"));
        assert!(read.has("pretty") && !read.says("pretty") && !read.says("empty") && !read.has("none"));
        assert_eq!(read.get("sum"), Some("1 2"));
        assert_eq!(read.get("broken"), Some("%zz%4"));
    }
}
