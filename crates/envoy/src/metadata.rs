//! Metadata of resources, written as encoded `google.protobuf.Struct`s at once: most resources have some, and as messages it
//! would take longer to make than much of the rest of them.

use crate::names;
use crate::pieces::Pieces;

/// What telemetry, tools and EnvoyFilters read.
pub(crate) const ISTIO: &str = "istio";

// The numbers of the fields.
const FILTER_METADATA: u32 = 1;
const STRUCT_FIELDS: u32 = 1;
const LIST_VALUES: u32 = 1;
const VALUE_STRING: u32 = 3;
const VALUE_BOOL: u32 = 4;
const VALUE_STRUCT: u32 = 5;
const VALUE_LIST: u32 = 6;
const ENTRY_KEY: u32 = 1;
const ENTRY_VALUE: u32 = 2;

/// Adds what a filter is told to metadata: the fields of a structure.
pub(crate) fn of_filter(metadata: &mut Pieces, name: &str, fields: impl FnOnce(&mut Pieces)) {
    entry(metadata, FILTER_METADATA, name, fields);
}

/// Adds a field to a structure.
pub(crate) fn field(structure: &mut Pieces, key: &str, value: impl FnOnce(&mut Pieces)) {
    entry(structure, STRUCT_FIELDS, key, value);
}

/// A value that is a text.
pub(crate) fn text(value: &mut Pieces, text: &str) {
    value.body(VALUE_STRING, text.as_bytes());
}

/// A value that is true.
pub(crate) fn yes(value: &mut Pieces) {
    value.flag(VALUE_BOOL);
}

/// A value that is a structure.
pub(crate) fn structure(value: &mut Pieces, fields: impl FnOnce(&mut Pieces)) {
    value.nested(VALUE_STRUCT, fields);
}

/// A value that is a list.
pub(crate) fn list<T>(value: &mut Pieces, items: impl IntoIterator<Item = T>, item: impl Fn(&mut Pieces, T)) {
    value.nested(VALUE_LIST, |list| {
        items.into_iter().for_each(|one| list.nested(LIST_VALUES, |value| item(value, one)));
    });
}

/// Metadata that names the networking object something comes from; `kind` is written `virtual-service`.
pub(crate) fn names_config(metadata: &mut Pieces, kind: &str, namespace: &str, name: &str) {
    let path = names::config_path_parts(kind, namespace, name);
    of_filter(metadata, ISTIO, |fields| {
        field(fields, "config", |value| value.joined(VALUE_STRING, &path));
    });
}

/// An entry of a map.
fn entry(map: &mut Pieces, number: u32, key: &str, value: impl FnOnce(&mut Pieces)) {
    map.nested(number, |entry| {
        entry.body(ENTRY_KEY, key.as_bytes());
        entry.nested(ENTRY_VALUE, value);
    });
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
