//! Responses, scanned as they arrive.
//!
//! A response is a list of resources in an envelope. The scanner finds where each field of the envelope begins and ends and
//! hands it over as soon as it is there; what is inside a resource it does not look at. At most one field is kept in memory.

use canopus_proto::fields::{
    any, cluster, delta_discovery_response as delta, discovery_response as sotw, resource,
};
use canopus_proto::wire::{self, Tag, WireError, read_header};
use canopus_xds::session::Protocol;

/// Size of what precedes each gRPC message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The name of a resource, which is the same field in every type that proxies ask for.
const RESOURCE_NAME: Tag = cluster::NAME.tag();

/// Buffers up to this size are kept for the next field.
const KEPT: usize = 64 * 1024;

/// A field of the envelope.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The version of the server's state.
    Version(&'a str),
    /// A resource.
    Resource(Entry<'a>),
    /// The type of the response.
    TypeUrl(&'a str),
    /// The nonce to answer with.
    Nonce(&'a str),
    /// The name of a resource that does not exist.
    Removed(&'a str),
    /// The response is complete.
    End,
}

/// A resource in its envelope.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Name of the resource.
    pub name: &'a str,
    /// Version of the resource; empty in state-of-the-world responses.
    pub version: &'a str,
    /// Type URL of the resource.
    pub type_url: &'a str,
    /// The encoded resource.
    pub body: &'a [u8],
}

/// The bytes are not gRPC messages of the protocol.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(&'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed response: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Scans the bytes of one stream.
#[derive(Debug)]
pub struct Scanner {
    protocol: Protocol,
    /// Bytes of the current message that have not been taken.
    left: usize,
    /// The beginning of a field whose end has not come yet.
    partial: Vec<u8>,
}

impl Scanner {
    /// A scanner at the beginning of a stream.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, left: 0, partial: Vec::new() }
    }

    /// Takes the next bytes of the stream and hands over what they complete.
    pub fn feed(&mut self, mut chunk: &[u8], take: &mut impl FnMut(Piece<'_>)) -> Result<(), Malformed> {
        while !chunk.is_empty() {
            if self.partial.is_empty()
                && let Some(size) = self.measure(chunk)?
                && let Some((unit, rest)) = chunk.split_at_checked(size)
            {
                chunk = rest;
                self.unit(unit, take)?;
                continue;
            }
            chunk = self.gather(chunk, take)?;
        }
        Ok(())
    }

    /// Takes some of a chunk to the beginning that is kept; what is left of the chunk.
    fn gather<'a>(
        &mut self,
        chunk: &'a [u8],
        take: &mut impl FnMut(Piece<'_>),
    ) -> Result<&'a [u8], Malformed> {
        let missing = match self.measure(&self.partial)? {
            Some(size) => size - self.partial.len(),
            None => 1,
        };
        let (part, rest) = chunk.split_at(missing.min(chunk.len()));
        self.partial.extend_from_slice(part);
        if self.measure(&self.partial)? == Some(self.partial.len()) {
            let mut unit = std::mem::take(&mut self.partial);
            self.unit(&unit, take)?;
            if unit.capacity() <= KEPT {
                unit.clear();
                self.partial = unit;
            }
        }
        Ok(rest)
    }

    /// The size of what comes next, the prefix of a message or a field, if its first bytes tell.
    fn measure(&self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        if self.left == 0 {
            return Ok(Some(PREFIX));
        }
        let mut rest = bytes;
        let Some(size) = skip(&mut rest)?.map(|value| bytes.len() - rest.len() + value) else {
            return Ok(None);
        };
        if size > self.left {
            return Err(Malformed("a field is longer than its message"));
        }
        Ok(Some(size))
    }

    fn unit(&mut self, unit: &[u8], take: &mut impl FnMut(Piece<'_>)) -> Result<(), Malformed> {
        if self.left == 0 {
            let [0, length @ ..] = unit else { return Err(Malformed("compressed")) };
            let length = length.try_into().map_err(|_| Malformed("a short prefix"))?;
            self.left = u32::from_be_bytes(length) as usize;
        } else {
            self.left -= unit.len();
            self.field(unit, take)?;
        }
        if self.left == 0 {
            take(Piece::End);
        }
        Ok(())
    }

    fn field(&self, unit: &[u8], take: &mut impl FnMut(Piece<'_>)) -> Result<(), Malformed> {
        let mut rest = unit;
        let (tag, value) = next_field(&mut rest)?;
        let (version, resources, type_url, nonce) = match self.protocol {
            Protocol::Sotw => {
                (sotw::VERSION_INFO.tag(), sotw::RESOURCES.tag(), sotw::TYPE_URL.tag(), sotw::NONCE.tag())
            }
            Protocol::Delta => (
                delta::SYSTEM_VERSION_INFO.tag(),
                delta::RESOURCES.tag(),
                delta::TYPE_URL.tag(),
                delta::NONCE.tag(),
            ),
        };
        if tag == version {
            take(Piece::Version(text(value)?));
        } else if tag == resources {
            take(Piece::Resource(match self.protocol {
                Protocol::Sotw => sotw_entry(value)?,
                Protocol::Delta => delta_entry(value)?,
            }));
        } else if tag == type_url {
            take(Piece::TypeUrl(text(value)?));
        } else if tag == nonce {
            take(Piece::Nonce(text(value)?));
        } else if self.protocol == Protocol::Delta && tag == delta::REMOVED_RESOURCES.tag() {
            take(Piece::Removed(text(value)?));
        }
        Ok(())
    }
}

/// An `Any`, with a resource that begins with its name.
fn sotw_entry(any: &[u8]) -> Result<Entry<'_>, Malformed> {
    let mut entry = Entry::default();
    open_any(any, &mut entry)?;
    let mut body = entry.body;
    let (tag, name) = next_field(&mut body)?;
    if tag == RESOURCE_NAME {
        entry.name = text(name)?;
    }
    Ok(entry)
}

fn delta_entry(mut bytes: &[u8]) -> Result<Entry<'_>, Malformed> {
    let mut entry = Entry::default();
    while !bytes.is_empty() {
        let (tag, value) = next_field(&mut bytes)?;
        if tag == resource::VERSION.tag() {
            entry.version = text(value)?;
        } else if tag == resource::RESOURCE.tag() {
            open_any(value, &mut entry)?;
        } else if tag == resource::NAME.tag() {
            entry.name = text(value)?;
        }
    }
    Ok(entry)
}

fn open_any<'a>(mut bytes: &'a [u8], entry: &mut Entry<'a>) -> Result<(), Malformed> {
    while !bytes.is_empty() {
        let (tag, value) = next_field(&mut bytes)?;
        if tag == any::TYPE_URL.tag() {
            entry.type_url = text(value)?;
        } else if tag == any::VALUE.tag() {
            entry.body = value;
        }
    }
    Ok(())
}

/// Steps over a field that is wholly there.
fn next_field<'a>(bytes: &mut &'a [u8]) -> Result<(Tag, &'a [u8]), Malformed> {
    wire::next_field(bytes).map_err(|error| match error {
        WireError::Truncated => Malformed("a field without an end"),
        WireError::Malformed => Malformed("an unknown wire type"),
    })
}

/// Steps over the beginning of a field; the size of what follows, if enough is there to tell.
fn skip(bytes: &mut &[u8]) -> Result<Option<usize>, Malformed> {
    match read_header(bytes) {
        // No gRPC message is longer.
        Ok(header) if u32::try_from(header.length).is_err() => {
            Err(Malformed("a length beyond that of any message"))
        }
        Ok(header) => Ok(Some(header.length)),
        Err(WireError::Truncated) => Ok(None),
        Err(WireError::Malformed) => Err(Malformed("an unknown wire type")),
    }
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed("a text that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::config::cluster::v3::Cluster;
    use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource};
    use canopus_proto::{Any, Message};
    use canopus_xds::types::CLUSTER;
    use proptest::prelude::*;

    use super::*;

    fn framed(message: &impl Message) -> Vec<u8> {
        let body = message.encode_to_vec();
        let mut bytes = vec![0];
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn cluster(name: &str) -> Any {
        Any::pack(&Cluster { name: name.into(), alt_stat_name: "x".repeat(300), ..Default::default() })
    }

    fn delta() -> Vec<u8> {
        let resource = |name: &str| Resource {
            name: name.into(),
            version: "7".into(),
            resource: Some(cluster(name)),
            ..Default::default()
        };
        framed(&DeltaDiscoveryResponse {
            system_version_info: "1".into(),
            resources: vec![resource("a"), resource("b")],
            type_url: CLUSTER.into(),
            nonce: "n".into(),
            removed_resources: vec!["c".into()],
            ..Default::default()
        })
    }

    fn sotw() -> Vec<u8> {
        framed(&DiscoveryResponse {
            version_info: "1".into(),
            resources: vec![cluster("a"), cluster("b")],
            type_url: CLUSTER.into(),
            nonce: "n".into(),
            ..Default::default()
        })
    }

    /// What a scanner says to bytes that come in chunks of this size.
    fn scanned(protocol: Protocol, bytes: &[u8], size: usize) -> Result<Vec<String>, Malformed> {
        let mut scanner = Scanner::new(protocol);
        let mut said = Vec::new();
        for chunk in bytes.chunks(size) {
            scanner.feed(chunk, &mut |piece| {
                said.push(match piece {
                    Piece::Resource(entry) => {
                        assert_eq!(entry.type_url, CLUSTER);
                        let body = Cluster::decode(entry.body).unwrap();
                        format!("{} {} {}", entry.name, entry.version, body.name)
                    }
                    other => format!("{other:?}"),
                });
            })?;
        }
        Ok(said)
    }

    #[test]
    fn delta_response_is_taken_apart_however_it_arrives() {
        let bytes = [delta(), delta()].concat();
        let rest = [r#"TypeUrl(""#, CLUSTER, r#"")"#].concat();
        let expected =
            [r#"Version("1")"#, "a 7 a", "b 7 b", &rest, r#"Nonce("n")"#, r#"Removed("c")"#, "End"];
        for size in [1, 2, 7, 100, 311, 4096] {
            let said = scanned(Protocol::Delta, &bytes, size).unwrap();
            assert_eq!(said, [expected, expected].concat(), "in chunks of {size}");
        }
    }

    #[test]
    fn state_of_the_world_response_names_its_resources_inside() {
        for size in [1, 13, 4096] {
            let said = scanned(Protocol::Sotw, &sotw(), size).unwrap();
            assert_eq!(said[1..3], ["a  a", "b  b"]);
            assert_eq!(said.last().unwrap(), "End");
        }
    }

    #[test]
    fn empty_message_is_a_response_too() {
        assert_eq!(scanned(Protocol::Delta, &[0; 5], 2).unwrap(), ["End"]);
    }

    #[test]
    fn compressed_message_is_refused() {
        assert!(scanned(Protocol::Delta, &[1, 0, 0, 0, 1, 0], 6).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_scanned_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), size in 1usize..50) {
            let mut scanner = Scanner::new(Protocol::Delta);
            for chunk in bytes.chunks(size) {
                if scanner.feed(chunk, &mut |_| {}).is_err() {
                    break;
                }
            }
        }
    }
}
