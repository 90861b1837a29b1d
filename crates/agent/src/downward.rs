//! Labels and annotations of the pod, as the downward API writes them: lines of `key="quoted value"`.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// The files may not be larger: Kubernetes limits annotations to 256 KiB, and quoting can double that.
const MAX_BYTES: u64 = 1 << 20;

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: the value of {key} is not a quoted Go string")]
pub struct QuoteError {
    line: usize,
    key: String,
}

/// Reads a file of the downward API. `None` if there is none.
pub fn read(path: &Path) -> io::Result<Option<BTreeMap<String, String>>> {
    match fs::metadata(path) {
        Ok(file) if file.len() > MAX_BYTES => {
            return Err(io::Error::other(format!("{} has more than {MAX_BYTES} bytes", path.display())));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    parse(&fs::read_to_string(path)?).map(Some).map_err(io::Error::other)
}

/// Reads the lines of such a file. Lines without `=` are skipped.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, QuoteError> {
    let mut values = BTreeMap::new();
    for (index, line) in text.split('\n').enumerate() {
        let Some((key, quoted)) = line.split_once('=') else { continue };
        let value = unquote(quoted).ok_or_else(|| QuoteError { line: index + 1, key: key.to_owned() })?;
        values.insert(key.to_owned(), value);
    }
    Ok(values)
}

/// What Go's `%q` quoted. The downward API writes nothing else.
fn unquote(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(next) = rest.next() {
        let mut push =
            |character: char| bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        match next {
            '"' => return None,
            '\\' => match rest.next()? {
                'a' => push('\x07'),
                'b' => push('\x08'),
                'f' => push('\x0c'),
                'n' => push('\n'),
                'r' => push('\r'),
                't' => push('\t'),
                'v' => push('\x0b'),
                'x' => bytes.push(u8::try_from(hex(&mut rest, 2)?).ok()?),
                'u' => push(char::from_u32(hex(&mut rest, 4)?)?),
                'U' => push(char::from_u32(hex(&mut rest, 8)?)?),
                plain @ ('\\' | '"' | '\'') => push(plain),
                _ => return None,
            },
            plain => push(plain),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn hex(rest: &mut std::str::Chars<'_>, digits: usize) -> Option<u32> {
    (0..digits).try_fold(0, |value, _| Some(value << 4 | rest.next()?.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_unquoted_as_go_quotes_them() {
        let text = "app=\"cart\"\nnote=\"a \\\"b\\\" \\n\\t\\u00e9\\x41 = c\"\n\nno value\n";
        let values = parse(text).unwrap();
        assert_eq!(values["app"], "cart");
        assert_eq!(values["note"], "a \"b\" \n\té\u{41} = c");
        assert_eq!(values.len(), 2);
    }

    #[test]
    fn line_and_key_are_named_when_a_value_is_not_quoted() {
        for broken in ["x=plain", "x=\"open", "x=\"a\"b\"", "x=\"\\q\"", "x=\"\\u12\""] {
            let error = parse(&format!("a=\"b\"\n{broken}")).unwrap_err();
            assert_eq!(error.to_string(), "line 2: the value of x is not a quoted Go string", "{broken}");
        }
    }
}
