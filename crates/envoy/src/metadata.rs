//! Metadata of resources, written in place: most resources have some, and as messages it would take longer to build than much
//! of the rest of them.
//!
//! Structures are nested deeply and their lengths come first, so lengths are computed before anything is written.

use canopus_proto::envoy::config::core::v3::Metadata;
use canopus_proto::fields::{metadata, structure, value};
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_proto::wire::{ProtoWriter, map_entry_size};

use crate::names;

/// The namespace that telemetry, tools and EnvoyFilters read.
pub(crate) const ISTIO: &str = "istio";

/// The bytes that the metadata of a filter takes, given those of its structure.
pub(crate) fn filter_size(filter: &str, structure: usize) -> usize {
    map_entry_size(metadata::FILTER_METADATA, filter, structure)
}

/// Writes the metadata of a filter: a structure of `size` bytes.
pub(crate) fn write_filter(
    metadata: &mut ProtoWriter<Metadata>,
    filter: &str,
    size: usize,
    write: impl FnOnce(&mut ProtoWriter<Struct>),
) {
    metadata.entry_of_exactly(metadata::FILTER_METADATA, filter, size, write);
}

/// The bytes that a key of a structure takes, given those of its value.
pub(crate) fn key_size(key: &str, value: usize) -> usize {
    map_entry_size(structure::FIELDS, key, value)
}

/// Writes a key of a structure, with a value of `size` bytes.
pub(crate) fn write_key(
    structure: &mut ProtoWriter<Struct>,
    key: &str,
    size: usize,
    write: impl FnOnce(&mut ProtoWriter<Value>),
) {
    structure.entry_of_exactly(structure::FIELDS, key, size, write);
}

/// Writes metadata that names the networking object something comes from; `kind` is written `virtual-service`.
pub(crate) fn write_config(metadata: &mut ProtoWriter<Metadata>, kind: &str, namespace: &str, name: &str) {
    const KEY: &str = "config";
    let path = names::config_path_parts(kind, namespace, name);
    let size = value::STRING_VALUE.text_size(path.iter().map(|part| part.len()).sum());
    write_filter(metadata, ISTIO, key_size(KEY, size), |structure| {
        write_key(structure, KEY, size, |value| value.string_of_parts(value::STRING_VALUE, &path));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_is_written_as_the_message_it_stands_for() {
        let mut written = ProtoWriter::default();
        write_config(&mut written, "virtual-service", "shop", "cart");
        let message = names::config_metadata("virtual-service", "shop", "cart");
        assert_eq!(written, ProtoWriter::from_message(&message));
    }
}
