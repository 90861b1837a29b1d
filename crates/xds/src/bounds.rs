//! What a request may weigh in memory, checked on its bytes before it is decoded.
//!
//! A few bytes on the wire can take a hundred times that in memory: an empty value of a list is two bytes, and a decoded one
//! some seventy. So the parts of a request that can hold very many small ones are measured and counted first. Whatever is
//! malformed is left to the decoder, which says so.

use canopus_proto::wire::{Tag, WireType, next_field};

/// The most values that the metadata and lists of a node may hold; Envoys have some 3,000, most of them extensions.
pub(crate) const MAX_NODE_VALUES: usize = 16_384;

/// The most details an error may have; Envoy gives none.
pub(crate) const MAX_DETAILS: usize = 16;

/// Values nested deeper than the decoder goes are not counted.
const MAX_DEPTH: usize = 128;

/// Checks a request, given its fields for the node and for the error, and the most bytes a node may take. Envoys with all
/// their extensions and a full set of labels say some 40 KiB.
pub(crate) fn check(request: &[u8], node: Tag, error: Tag, max_node: usize) -> Result<(), String> {
    let (mut bytes, mut values, mut details) = (0, 0, 0);
    for (tag, field) in Fields(request) {
        if tag == node {
            bytes += field.len();
            // Counting takes time for each level, so it is done for nodes of a proper size only.
            values += if bytes > max_node { 0 } else { count(field, 0) };
        } else if tag == error {
            details += Fields(field).count();
        }
    }
    if bytes > max_node {
        return Err(format!("node: {bytes} bytes, where {max_node} are the most"));
    }
    if values > MAX_NODE_VALUES {
        return Err(format!("node: more than {MAX_NODE_VALUES} values in metadata and lists"));
    }
    if details > MAX_DETAILS {
        return Err(format!("error_detail: more than {MAX_DETAILS} fields"));
    }
    Ok(())
}

/// How many fields there are in a message and the messages in it. Texts that read like messages count as such: that is more
/// than there are, at most one for two bytes of text.
fn count(message: &[u8], depth: usize) -> usize {
    let mut total = 0;
    for (_, field) in Fields(message) {
        total += 1;
        if depth < MAX_DEPTH && is_message(field) {
            total += count(field, depth + 1);
        }
    }
    total
}

/// Whether bytes are the fields of a message from the first to the last. No text with a space or a slash early on is.
fn is_message(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        if next_field(&mut rest).is_err() {
            return false;
        }
    }
    !bytes.is_empty()
}

/// The delimited fields of a message, up to where it is malformed.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (Tag, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (tag, bytes) = next_field(&mut self.0).ok()?;
            if tag.wire_type() == WireType::Delimited {
                return Some((tag, bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::Message;
    use canopus_proto::envoy::config::core::v3::{Extension, Node};
    use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
    use canopus_proto::fields::{delta_discovery_request, discovery_request};
    use canopus_proto::google::protobuf::value::Kind;
    use canopus_proto::google::protobuf::{ListValue, Struct, Value};
    use proptest::prelude::*;

    use super::*;

    const MAX_NODE: usize = 256 << 10;

    fn metadata(value: Value) -> Struct {
        Struct { fields: [("A".to_owned(), value)].into_iter().collect() }
    }

    fn check_delta(request: &[u8]) -> Result<(), String> {
        let (node, error) =
            (delta_discovery_request::NODE.tag(), delta_discovery_request::ERROR_DETAIL.tag());
        check(request, node, error, MAX_NODE)
    }

    fn checked(node: Node) -> Result<(), String> {
        let sotw = DiscoveryRequest { node: Some(node.clone()), ..Default::default() }.encode_to_vec();
        let delta = DeltaDiscoveryRequest { node: Some(node), ..Default::default() }.encode_to_vec();
        let (node, error) = (discovery_request::NODE.tag(), discovery_request::ERROR_DETAIL.tag());
        let result = check(&sotw, node, error, MAX_NODE);
        assert_eq!(check_delta(&delta), result);
        result
    }

    #[test]
    fn empty_values_are_counted_before_they_are_decoded() {
        let values = |count| Value {
            kind: Some(Kind::ListValue(ListValue { values: vec![Value::default(); count] })),
        };
        let node = |count| Node { metadata: Some(metadata(values(count))), ..Default::default() };
        assert_eq!(checked(node(16_000)), Ok(()));
        let error = checked(node(100_000)).unwrap_err();
        assert!(error.contains("16384 values"), "{error}");
    }

    #[test]
    fn node_is_measured() {
        let text = |length: usize| Value { kind: Some(Kind::StringValue("x ".repeat(length / 2))) };
        let node = |length| Node { metadata: Some(metadata(text(length))), ..Default::default() };
        assert_eq!(checked(node(200 << 10)), Ok(()));
        let error = checked(node(300 << 10)).unwrap_err();
        assert!(error.contains("262144 are the most"), "{error}");
    }

    #[test]
    fn envoy_with_all_its_extensions_is_welcome() {
        let extension = |number: usize| Extension {
            name: format!("envoy.filters.http.number_{number}"),
            category: "envoy.filters.http".into(),
            type_urls: vec![format!("envoy.extensions.filters.http.number_{number}.v3.Number")],
            ..Default::default()
        };
        let extensions = (0..1000).map(extension).collect();
        assert_eq!(checked(Node { extensions, ..Default::default() }), Ok(()));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_checked(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = check_delta(&bytes);
        }
    }
}
