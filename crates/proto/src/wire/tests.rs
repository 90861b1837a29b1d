use proptest::prelude::*;
use prost::{Message, Name};
use prost_reflect::{Cardinality, Kind};

use super::fields::{decorator, route, route_action, route_match, string_matcher, virtual_host};
use super::*;
use crate::Any;
use crate::descriptors;
use crate::envoy::config::route::v3::virtual_host::TlsRequirementType;
use crate::envoy::config::route::v3::{Decorator, Route, RouteAction, RouteMatch, VirtualHost};
use crate::envoy::r#type::matcher::v3::StringMatcher;

/// A constant of [`fields`], for comparison with the descriptors.
pub(super) struct Declared {
    message: String,
    field: &'static str,
    tag: Tag,
    omits_default: bool,
    kind: String,
}

impl Declared {
    pub(super) fn new<M: Name, K: DescribedKind, P: Presence>(
        field: &'static str,
        constant: Field<M, K, P>,
    ) -> Self {
        let (message, tag) = (M::full_name(), constant.tag());
        Self { message, field, tag, omits_default: P::OMITS_DEFAULT, kind: K::describe() }
    }
}

/// What a kind says about fields, in the words of a descriptor.
pub(super) trait DescribedKind {
    fn describe() -> String;
}

macro_rules! described {
    ($($kind:ty => $words:literal),*) => {
        $(impl DescribedKind for $kind {
            fn describe() -> String {
                $words.to_owned()
            }
        })*
    };
}

described!(Text => "string", Binary => "bytes", Bool => "bool", Unsigned => "uint32", Other => "other");

impl<E> DescribedKind for Enumeration<E> {
    fn describe() -> String {
        // Generated enums do not know what they are called; that the number fits is the compiler's to check.
        "enum".to_owned()
    }
}

impl<N: Name> DescribedKind for Nested<N> {
    fn describe() -> String {
        N::full_name()
    }
}

impl<V: DescribedKind> DescribedKind for Map<V> {
    fn describe() -> String {
        format!("map of {}", V::describe())
    }
}

fn described(kind: &Kind) -> String {
    match kind {
        Kind::String => "string".to_owned(),
        Kind::Bytes => "bytes".to_owned(),
        Kind::Bool => "bool".to_owned(),
        Kind::Uint32 => "uint32".to_owned(),
        Kind::Enum(_) => "enum".to_owned(),
        Kind::Message(message) if message.is_map_entry() => {
            format!("map of {}", described(&message.map_entry_value_field().kind()))
        }
        Kind::Message(message) => message.full_name().to_owned(),
        _ => "other".to_owned(),
    }
}

fn wire_type(kind: &Kind) -> WireType {
    match kind.wire_type() as u32 {
        0 => WireType::Varint,
        1 => WireType::Fixed64,
        2 => WireType::Delimited,
        5 => WireType::Fixed32,
        other => panic!("wire type {other}"),
    }
}

#[test]
fn every_constant_is_what_the_descriptor_of_its_message_says() {
    let all = fields::all();
    for constant in &all {
        let name = format!("{}.{}", constant.message, constant.field);
        let message = descriptors::message(&constant.message).unwrap();
        let field = message.get_field_by_name(constant.field).unwrap_or_else(|| panic!("{name} is unknown"));
        assert_eq!(constant.tag.number(), field.number(), "{name}");
        let (layout, kind) = match field.is_packed() {
            true => (WireType::Delimited, "other".to_owned()),
            false => (wire_type(&field.kind()), described(&field.kind())),
        };
        assert_eq!((constant.tag.wire_type(), &constant.kind), (layout, &kind), "{name}");
        let has_default = field.cardinality() != Cardinality::Repeated && !field.supports_presence();
        assert_eq!(constant.omits_default, has_default, "{name}");
    }
    assert!(all.len() > 500, "{} constants", all.len());
}

#[test]
fn type_urls_are_those_of_the_messages() {
    assert_eq!(Route::TYPE_URL, Route::type_url());
    assert_eq!(StringMatcher::TYPE_URL, StringMatcher::type_url());
}

#[test]
fn written_message_equals_the_encoded_one() {
    let long = "x".repeat(300);
    let decorated = Decorator { operation: long.clone(), ..Default::default() };
    let message = Route {
        name: "r".into(),
        r#match: Some(RouteMatch::default()),
        decorator: Some(decorated.clone()),
        ..Default::default()
    };
    let mut written = ProtoWriter::default();
    written.message(route::MATCH, &RouteMatch::default());
    written.encoded(route::DECORATOR, &Encoded::new(&decorated));
    written.string(route::NAME, "r");
    written.string(route::STAT_PREFIX, "");
    assert_eq!(written.as_slice(), message.encode_to_vec());

    let config = Any::pack(&decorated);
    let host = VirtualHost {
        name: long.clone(),
        domains: vec![String::new(), "b".into()],
        routes: vec![message.clone(), message.clone()],
        require_tls: TlsRequirementType::All as i32,
        include_request_attempt_count: true,
        typed_per_filter_config: [(String::new(), config.clone()), ("filter".to_owned(), config.clone())]
            .into(),
        ..Default::default()
    };
    let mut written =
        ProtoWriter::from_message(&VirtualHost { name: host.name.clone(), ..Default::default() });
    host.domains.iter().for_each(|domain| written.string(virtual_host::DOMAINS, domain));
    written.message(virtual_host::ROUTES, &message);
    written.append_message(&VirtualHost { routes: vec![message], ..Default::default() });
    written.enumeration(virtual_host::REQUIRE_TLS, TlsRequirementType::All);
    written.bool(virtual_host::INCLUDE_REQUEST_ATTEMPT_COUNT, true);
    written.bool(virtual_host::INCLUDE_ATTEMPT_COUNT_IN_RESPONSE, false);
    written.entry(virtual_host::TYPED_PER_FILTER_CONFIG, "", &config);
    written.encoded_entry(virtual_host::TYPED_PER_FILTER_CONFIG, "filter", &Encoded::new(&config));
    assert_eq!(written.clone().into_vec(), host.encode_to_vec());
    assert_eq!(written.finish(), Encoded::new(&host));
}

#[test]
fn defaults_are_written_where_they_mean_something() {
    let action = RouteAction {
        cluster_specifier: Some(crate::envoy::config::route::v3::route_action::ClusterSpecifier::Cluster(
            String::new(),
        )),
        ..Default::default()
    };
    let mut written = ProtoWriter::default();
    written.string(route_action::CLUSTER, "");
    written.string(route_action::PREFIX_REWRITE, "");
    assert_eq!(written.into_vec(), action.encode_to_vec());
}

#[test]
fn string_of_parts_is_the_string_and_sizes_are_those_of_what_is_written() {
    for length in [0, 1, 127, 128, 20_000] {
        let text = "x".repeat(length);
        let (mut whole, mut parts) = (ProtoWriter::default(), ProtoWriter::default());
        whole.string(route::NAME, &text);
        parts.string_of_parts(route::NAME, &["", &text[..length / 2], &text[length / 2..]]);
        assert_eq!(parts, whole);
        assert_eq!(whole.len(), route::NAME.text_size(length));

        let mut prefix = ProtoWriter::default();
        prefix.string(route_match::PREFIX, &text);
        assert_eq!(prefix.len(), route_match::PREFIX.text_size(length));
    }
}

#[test]
fn nested_message_has_its_length_before_it_however_long_it_is() {
    for length in [0, 1, 123, 124, 125, 126, 127, 128, 20_000] {
        let decorated = Decorator { operation: "x".repeat(length), ..Default::default() };
        let message = Route { decorator: Some(decorated.clone()), ..Default::default() };
        let write =
            |inner: &mut ProtoWriter<Decorator>| inner.string(decorator::OPERATION, &decorated.operation);
        for expected in [0, 200, 20_000] {
            let mut written = ProtoWriter::default();
            written.nested_of_about(route::DECORATOR, expected, write);
            assert_eq!(written.into_vec(), message.encode_to_vec(), "{length} bytes, {expected} expected");
        }
        let mut written = ProtoWriter::default();
        written.nested_of_exactly(route::DECORATOR, decorated.encoded_len(), write);
        assert_eq!(written.into_vec(), message.encode_to_vec(), "exactly {length} bytes");

        let packed = Any::pack(&decorated);
        for expected in [0, 200] {
            let mut written = ProtoWriter::default();
            written.pack_of_about(expected, write);
            assert_eq!(written.into_vec(), packed.encode_to_vec(), "{length} bytes packed");
        }
        let mut written = ProtoWriter::default();
        written.pack(&decorated);
        assert_eq!(written.into_vec(), packed.encode_to_vec());
        if length > 0 {
            let mut written = ProtoWriter::default();
            written.pack_of_exactly(decorated.encoded_len(), write);
            assert_eq!(written.len(), packed_size::<Decorator>(decorated.encoded_len()));
            assert_eq!(written.into_vec(), packed.encode_to_vec());
        }
    }
}

#[test]
fn entry_takes_the_size_that_is_foretold() {
    for (key, length) in [("", 1), ("filter", 1), ("filter", 300)] {
        let value = Any { type_url: "x".repeat(length), ..Default::default() };
        let message = VirtualHost {
            typed_per_filter_config: [(key.to_owned(), value.clone())].into(),
            ..Default::default()
        };
        let field = virtual_host::TYPED_PER_FILTER_CONFIG;
        let write = |inner: &mut ProtoWriter<Any>| inner.string(fields::any::TYPE_URL, &value.type_url);
        let (mut exact, mut nested) = (ProtoWriter::default(), ProtoWriter::default());
        exact.entry_of_exactly(field, key, value.encoded_len(), write);
        nested.nested_entry(field, key, write);
        assert_eq!(exact.len(), map_entry_size(field, key, value.encoded_len()));
        assert_eq!(exact.as_slice(), message.encode_to_vec());
        assert_eq!(nested.into_vec(), message.encode_to_vec());
    }
}

#[test]
fn fields_are_read_one_by_one_until_the_message_ends() {
    let message = StringMatcher { ignore_case: true, ..Default::default() };
    let mut written = ProtoWriter::from_message(&message);
    written.string(string_matcher::EXACT, "text");
    let mut rest = written.as_slice();
    assert_eq!(next_field(&mut rest), Ok((string_matcher::IGNORE_CASE.tag(), &b""[..])));
    assert_eq!(next_field(&mut rest), Ok((string_matcher::EXACT.tag(), &b"text"[..])));
    assert_eq!(next_field(&mut rest), Err(WireError::Truncated));
    for end in 1..written.len() {
        let mut rest = &written.as_slice()[..end];
        let result = next_field(&mut rest).and_then(|_| next_field(&mut rest));
        assert_eq!(result, Err(WireError::Truncated), "{end} bytes");
    }
    for malformed in
        [&[0xff; 11][..], b"\x03", b"\x06\x00", b"\x00\x00", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"]
    {
        assert_eq!(next_field(&mut &malformed[..]), Err(WireError::Malformed), "{malformed:?}");
    }
}

proptest! {
    #[test]
    fn varint_is_read_as_it_was_written(value: u64) {
        let mut bytes = Vec::new();
        prost::encoding::encode_varint(value, &mut bytes);
        prop_assert_eq!(read_varint(&mut bytes.as_slice()), Ok(value));
    }

    #[test]
    fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut rest = bytes.as_slice();
        while next_field(&mut rest).is_ok() {}
    }
}
