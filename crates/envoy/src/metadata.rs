//! Metadata of resources, written as encoded `google.protobuf.Struct`s at once: most resources have some, and as messages it
//! would take longer to make than much of the rest of them.
//!
//! Structures are nested deeply and their lengths come first, so lengths are reckoned before anything is written.

use crate::names;
use crate::pieces::{Pieces, field_size};

/// What telemetry, tools and EnvoyFilters read.
pub(crate) const ISTIO: &str = "istio";

// The numbers of the fields. Metadata is a map from filters to structures, and a structure one from keys to values.
const ENTRIES: u32 = 1;
const LIST_VALUES: u32 = 1;
const VALUE_STRING: u32 = 3;
const VALUE_BOOL: u32 = 4;
const VALUE_STRUCT: u32 = 5;
const VALUE_LIST: u32 = 6;
const ENTRY_KEY: u32 = 1;
const ENTRY_VALUE: u32 = 2;

/// How many bytes a value takes that is true.
pub(crate) const YES_SIZE: usize = 2;

/// Begins an entry of metadata or of a structure whose value takes `size` bytes, which whoever calls adds.
// Called so often for one resource that copies of it would not fit the cache of instructions.
#[inline(never)]
pub(crate) fn entry(map: &mut Pieces, key: &str, size: usize) {
    map.header(ENTRIES, field_size(key.len()) + field_size(size));
    map.body(ENTRY_KEY, key.as_bytes());
    map.header(ENTRY_VALUE, size);
}

/// How many bytes an entry takes.
pub(crate) fn entry_size(key: &str, size: usize) -> usize {
    field_size(field_size(key.len()) + field_size(size))
}

/// A value that is a text.
#[inline(never)]
pub(crate) fn text(value: &mut Pieces, text: &str) {
    value.body(VALUE_STRING, text.as_bytes());
}

/// How many bytes a value takes that is a text.
pub(crate) fn text_size(text: &str) -> usize {
    field_size(text.len())
}

/// A value that is true.
pub(crate) fn yes(value: &mut Pieces) {
    value.flag(VALUE_BOOL);
}

/// Begins a value that is a structure whose entries take `size` bytes, which whoever calls adds.
pub(crate) fn structure(value: &mut Pieces, size: usize) {
    value.header(VALUE_STRUCT, size);
}

/// Begins a value that is a list whose items take `size` bytes, which whoever calls adds.
pub(crate) fn list(value: &mut Pieces, size: usize) {
    value.header(VALUE_LIST, size);
}

/// Begins an item of a list whose value takes `size` bytes, which whoever calls adds.
pub(crate) fn item(list: &mut Pieces, size: usize) {
    list.header(LIST_VALUES, size);
}

/// Metadata that names the networking object something comes from; `kind` is written `virtual-service`.
pub(crate) fn names_config(metadata: &mut Pieces, kind: &str, namespace: &str, name: &str) {
    const KEY: &str = "config";
    let path = names::config_path_parts(kind, namespace, name);
    let value = field_size(path.iter().map(|part| part.len()).sum());
    entry(metadata, ISTIO, entry_size(KEY, value));
    entry(metadata, KEY, value);
    metadata.joined(VALUE_STRING, &path);
}

#[cfg(test)]
mod tests {
    use canopus_proto::Message;
    use canopus_proto::envoy::config::core::v3::Metadata;

    use super::*;

    #[test]
    fn what_is_written_is_what_a_message_would_say() {
        let mut written = Pieces::default();
        names_config(&mut written, "virtual-service", "shop", "cart");
        let said = names::config_metadata("virtual-service", "shop", "cart");
        assert_eq!(Metadata::decode(written.as_slice()).unwrap(), said);
        assert_eq!(written.into_vec(), said.encode_to_vec());
    }
}
