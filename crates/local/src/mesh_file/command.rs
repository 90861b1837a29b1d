//! Command lines and published ports, which have a short and a long notation.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use super::PublishedPort;

/// A program and its arguments: a list, or a text that is split at blanks as a shell would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The program: a name to look for on the path, or a path.
    pub program: String,
    /// Arguments of the program.
    pub arguments: Vec<String>,
}

impl CommandLine {
    /// The command of these words.
    pub fn from_words(words: impl IntoIterator<Item = String>) -> Option<Self> {
        let mut words = words.into_iter();
        let program = words.next().filter(|program| !program.is_empty())?;
        Some(Self { program, arguments: words.collect() })
    }
}

impl<'de> Deserialize<'de> for CommandLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = CommandLine;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a command as text or as a list of words")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<CommandLine, E> {
                let words = split(text).map_err(E::custom)?;
                CommandLine::from_words(words).ok_or_else(|| E::custom("the command has no program"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<CommandLine, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element::<String>()? {
                    words.push(word);
                }
                CommandLine::from_words(words).ok_or_else(|| de::Error::custom("the command has no program"))
            }
        }
        deserializer.deserialize_any(Words)
    }
}

/// Splits a text at blanks that are neither quoted nor escaped. Variables and patterns are not expanded.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if let Some(open) = quote {
        return Err(format!("the quote {open} is not closed"));
    }
    words.extend(word);
    Ok(words)
}

impl<'de> Deserialize<'de> for PublishedPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ports;
        impl Visitor<'_> for Ports {
            type Value = PublishedPort;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port, or HOST_PORT:GATEWAY_PORT")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<PublishedPort, E> {
                let port = u16::try_from(number).map_err(|_| E::custom("a port is a number up to 65535"))?;
                Ok(PublishedPort { host: port, gateway: port })
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<PublishedPort, E> {
                let port = |text: &str| {
                    text.parse()
                        .map_err(|_| E::custom("expected a port, or HOST_PORT:GATEWAY_PORT as 8080:80"))
                };
                let (host, gateway) = text.split_once(':').unwrap_or((text, text));
                Ok(PublishedPort { host: port(host)?, gateway: port(gateway)? })
            }
        }
        deserializer.deserialize_any(Ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_as_a_shell_would() {
        let split = |text| split(text).unwrap();
        assert_eq!(split("web --port 80"), ["web", "--port", "80"]);
        assert_eq!(
            split(r#"sh -c 'echo "a b"' c\ d "e\"f" '' "#),
            ["sh", "-c", "echo \"a b\"", "c d", "e\"f", ""]
        );
        assert!(split("  ").is_empty());
    }

    #[test]
    fn open_quote_is_an_error() {
        assert_eq!(split("a 'b").unwrap_err(), "the quote ' is not closed");
    }
}
