//! Encoded messages, piece by piece.
//!
//! An encoded message is its fields one after the other, and every entry of a list is a field of its own. So what many
//! messages have in common is encoded once and copied, and a large message need not be in memory before it is encoded.

use canopus_proto::{Any, Message};

/// How numbers and truths are encoded.
const VARINT: u32 = 0;
/// How fields are encoded that have their length before them.
const LENGTH_DELIMITED: u32 = 2;
/// The most bytes that the number and the length of a field take.
const LONGEST_HEADER: usize = 10;
/// The field of a message of any type that is its value.
const ANY_VALUE: u32 = 2;
/// The fields of an entry of a map.
const ENTRY_KEY: u32 = 1;
const ENTRY_VALUE: u32 = 2;

/// Encoded fields of one message, which whoever adds them keeps in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pieces(Vec<u8>);

impl Pieces {
    /// Nothing yet, with room for so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// The fields that a message has.
    pub(crate) fn of(message: &impl Message) -> Self {
        Self(message.encode_to_vec())
    }

    /// Adds the fields that a message has.
    pub(crate) fn fields(&mut self, message: &impl Message) {
        message.encode_raw(&mut self.0);
    }

    /// Adds fields that are encoded already.
    pub(crate) fn append(&mut self, fields: &[u8]) {
        self.0.extend_from_slice(fields);
    }

    /// Adds a text; an empty one goes without saying.
    pub(crate) fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.body(field, text.as_bytes());
        }
    }

    /// Adds a text that is put together from parts.
    pub(crate) fn joined(&mut self, field: u32, parts: &[&str]) {
        self.header(field, parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| self.append(part.as_bytes()));
    }

    /// Adds a truth.
    pub(crate) fn flag(&mut self, field: u32) {
        self.value(field, 1);
    }

    /// Adds a number, or the number that stands for one of several things.
    pub(crate) fn value(&mut self, field: u32, value: u32) {
        self.number(field << 3 | VARINT);
        self.number(value);
    }

    /// Adds a message, or an entry of a list of messages.
    pub(crate) fn message(&mut self, field: u32, message: &impl Message) {
        self.number(field << 3 | LENGTH_DELIMITED);
        message.encode_length_delimited(&mut self.0).expect("a vector grows as needed");
    }

    /// Adds a message that is encoded already, or an entry of a list of messages or texts.
    pub(crate) fn body(&mut self, field: u32, body: &[u8]) {
        self.header(field, body.len());
        self.append(body);
    }

    /// Begins a message or text of so many bytes, which whoever calls adds.
    pub(crate) fn header(&mut self, field: u32, length: usize) {
        self.0.reserve(length + LONGEST_HEADER);
        self.number(field << 3 | LENGTH_DELIMITED);
        self.number(checked(length));
    }

    /// Adds a message whose fields are written in place.
    pub(crate) fn nested(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.nested_of(0, field, write);
    }

    /// Adds a message of about so many bytes whose fields are written in place. If its length takes as many bytes as that of
    /// what is expected, it need not be moved.
    pub(crate) fn nested_of(&mut self, expected: usize, field: u32, write: impl FnOnce(&mut Self)) {
        self.number(field << 3 | LENGTH_DELIMITED);
        let (start, kept) = (self.0.len(), varint_size(checked(expected)));
        self.0.resize(start + kept, 0);
        write(self);
        let end = self.0.len();
        let length = checked(end - start - kept);
        let needed = varint_size(length);
        if needed > kept {
            self.0.resize(end + needed - kept, 0);
        }
        if needed != kept {
            self.0.copy_within(start + kept..end, start + needed);
            self.0.truncate(start + needed + length as usize);
        }
        write_varint(&mut self.0[start..], length);
    }

    /// Adds the value of a message of any type, of about so many bytes, whose fields are written in place; none go without
    /// saying.
    pub(crate) fn value_of_any(&mut self, expected: usize, write: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.nested_of(expected, ANY_VALUE, write);
        if self.0[start..] == [(ANY_VALUE << 3 | LENGTH_DELIMITED) as u8, 0] {
            self.0.truncate(start);
        }
    }

    /// Adds an entry of a map from names to messages of any type.
    pub(crate) fn any_entry(&mut self, field: u32, name: &str, message: &Any) {
        self.nested(field, |entry| {
            entry.text(ENTRY_KEY, name);
            entry.message(ENTRY_VALUE, message);
        });
    }

    /// Makes room for so many more bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.0.reserve(bytes);
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Everything so far.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Everything.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        self.0
    }

    /// A number as protobuf writes it, seven bits to a byte.
    fn number(&mut self, mut number: u32) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

/// How many bytes a text or message of so many bytes takes in a field whose number is below 16.
pub(crate) fn field_size(length: usize) -> usize {
    1 + varint_size(checked(length)) + length
}

fn varint_size(number: u32) -> usize {
    (32 - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Writes a number over the bytes at the start of a slice.
fn write_varint(place: &mut [u8], mut number: u32) {
    for byte in place {
        *byte = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            break;
        }
        *byte |= 0x80;
    }
}

fn checked(length: usize) -> u32 {
    // Proxies refuse messages of a fraction of that.
    u32::try_from(length).expect("a message of less than 4 GiB")
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::config::route::v3::{Decorator, Route, RouteMatch, VirtualHost};

    use super::*;

    #[test]
    fn pieces_are_the_message_they_are_pieces_of() {
        let long = "x".repeat(300);
        let decorator = Decorator { operation: long.clone(), ..Default::default() };
        let route = Route {
            name: "r".into(),
            r#match: Some(RouteMatch::default()),
            decorator: Some(decorator.clone()),
            ..Default::default()
        };
        let mut pieces = Pieces::default();
        pieces.message(1, &RouteMatch::default());
        pieces.body(5, &decorator.encode_to_vec());
        pieces.text(14, "r");
        pieces.text(19, "");
        assert_eq!(pieces.as_slice(), route.encode_to_vec());

        let host =
            VirtualHost { name: long, routes: vec![route.clone(), route.clone()], ..Default::default() };
        let mut pieces = Pieces::of(&VirtualHost { name: host.name.clone(), ..Default::default() });
        pieces.message(3, &route);
        pieces.fields(&VirtualHost { routes: vec![route], ..Default::default() });
        assert_eq!(pieces.into_vec(), host.encode_to_vec());
    }

    #[test]
    fn text_of_parts_is_the_text_and_sizes_are_those_of_what_is_written() {
        for length in [1, 127, 128, 20_000] {
            let text = "x".repeat(length);
            let (mut whole, mut parts) = (Pieces::default(), Pieces::default());
            whole.text(1, &text);
            parts.joined(1, &["", &text[..length / 2], &text[length / 2..]]);
            assert_eq!(parts, whole);
            assert_eq!(whole.len(), field_size(length));
        }
    }

    #[test]
    fn entry_of_a_map_is_written_as_a_message_writes_it() {
        let config = Any::pack(&Decorator { operation: "x".repeat(200), ..Default::default() });
        let host = VirtualHost {
            typed_per_filter_config: [("filter".to_owned(), config.clone())].into(),
            ..Default::default()
        };
        let mut pieces = Pieces::default();
        pieces.any_entry(15, "filter", &config);
        assert_eq!(pieces.into_vec(), host.encode_to_vec());
    }

    #[test]
    fn nested_message_has_its_length_before_it_however_long_it_is() {
        for length in [0, 1, 125, 126, 127, 128, 20_000] {
            let decorator = Decorator { operation: "x".repeat(length), ..Default::default() };
            let route = Route { decorator: Some(decorator.clone()), ..Default::default() };
            for expected in [0, 200, 20_000] {
                let mut pieces = Pieces::default();
                pieces.nested_of(expected, 5, |pieces| pieces.text(1, &decorator.operation));
                assert_eq!(pieces.into_vec(), route.encode_to_vec(), "{length} bytes, {expected} expected");
            }
        }
    }
}
