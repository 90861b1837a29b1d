//! Asking a running control plane over its debug port.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;

/// How long a control plane may take to accept a connection, and to say something more.
const PATIENCE: Duration = Duration::from_secs(30);

/// More is not read: what is asked for can be narrowed.
const MAX_ANSWER_BYTES: u64 = 1 << 30;

/// The port of a control plane's plain HTTP server.
const DEFAULT_PORT: u16 = 8080;

/// The JSON that a control plane at `url` answers about `path`, such as `/debug/world`.
pub(crate) fn ask(url: &str, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Value> {
    let address = address(url)?;
    let query: Vec<String> =
        parameters.iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
    let answer = get(&address, &format!("{path}?{}", query.join("&")))
        .with_context(|| format!("cannot ask the control plane at {url}"))?;
    let (status, body) = parse(&answer).with_context(|| format!("{url} does not speak HTTP"))?;
    if status != 200 {
        bail!("the control plane at {url} answers {status}: {}", String::from_utf8_lossy(body).trim());
    }
    serde_json::from_slice(body).with_context(|| format!("{url}{path} is not JSON"))
}

/// `host:port` of a URL.
fn address(url: &str) -> anyhow::Result<String> {
    if url.starts_with("https://") {
        bail!("{url}: debug answers are served over plain HTTP, on port {DEFAULT_PORT}");
    }
    let host = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ', '\r', '\n']);
    if !is_host(host) {
        bail!("{url:?}: expected http://HOST[:PORT]");
    }
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Ok(if has_port { host.to_owned() } else { format!("{host}:{DEFAULT_PORT}") })
}

/// Everything that is answered. HTTP/1.0 ends with the connection, so there is nothing to take apart.
fn get(address: &str, target: &str) -> anyhow::Result<Vec<u8>> {
    let found = address.to_socket_addrs().with_context(|| format!("no address of {address}"))?;
    let mut failure = anyhow!("{address} has no address");
    for candidate in found {
        match TcpStream::connect_timeout(&candidate, PATIENCE) {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                let request =
                    format!("GET {target} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n");
                stream.write_all(request.as_bytes())?;
                let mut answer = Vec::new();
                stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
                return Ok(answer);
            }
            Err(error) => failure = error.into(),
        }
    }
    Err(failure)
}

/// The status of an answer, and its body.
fn parse(answer: &[u8]) -> anyhow::Result<(u16, &[u8])> {
    const END: &[u8] = b"\r\n\r\n";
    let end = answer.windows(END.len()).position(|window| window == END).context("the answer has no end")?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut words = head.split(' ');
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    let status = words.next().and_then(|status| status.get(..3)?.parse().ok()).filter(|_| is_http);
    Ok((status.context("the answer has no status")?, &answer[end + END.len()..]))
}

/// A text as the value of a query parameter.
pub(crate) fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_and_nothing_else() {
        assert_eq!(address("http://127.0.0.1:15014/").unwrap(), "127.0.0.1:15014");
        assert_eq!(address("istiod.istio-system").unwrap(), "istiod.istio-system:8080");
        assert_eq!(address("http://[::1]:8080").unwrap(), "[::1]:8080");
        for wrong in ["https://istiod:15017", "", "http://", "http://a/b", "http://a b", "a\r\nb"] {
            assert!(address(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn answers_are_a_status_and_a_body() {
        assert_eq!(parse(b"HTTP/1.0 200 OK\r\na: b\r\n\r\n{}").unwrap(), (200, &b"{}"[..]));
        assert_eq!(parse(b"HTTP/1.1 404\r\n\r\n").unwrap(), (404, &b""[..]));
        for wrong in [&b""[..], b"HTTP/1.0 200 OK\r\n", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 \xff\r\n\r\n"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn parameters_cannot_end_what_they_are_part_of() {
        assert_eq!(escaped("*.example.com&a=b c"), "%2A.example.com%26a%3Db%20c");
    }
}
