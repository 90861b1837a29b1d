//! Encoded messages, piece by piece.
//!
//! An encoded message is its fields one after the other, and every entry of a list is a field of its own. So what many
//! messages have in common is encoded once and copied, and a large message need not be in memory before it is encoded.

use canopus_proto::Message;

/// How numbers and truths are encoded.
const VARINT: u32 = 0;
/// How fields are encoded that have their length before them.
const LENGTH_DELIMITED: u32 = 2;

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

    /// Adds a truth.
    pub(crate) fn flag(&mut self, field: u32) {
        self.number(field << 3 | VARINT);
        self.number(1);
    }

    /// Adds a message, or an entry of a list of messages.
    pub(crate) fn message(&mut self, field: u32, message: &impl Message) {
        self.number(field << 3 | LENGTH_DELIMITED);
        message.encode_length_delimited(&mut self.0).expect("a vector grows as needed");
    }

    /// Adds a message that is encoded already, or an entry of a list of messages or texts.
    pub(crate) fn body(&mut self, field: u32, body: &[u8]) {
        self.number(field << 3 | LENGTH_DELIMITED);
        self.number(length(body));
        self.append(body);
    }

    /// Adds a message whose fields are written in place.
    pub(crate) fn nested(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.number(field << 3 | LENGTH_DELIMITED);
        let start = self.0.len();
        // Most are short enough for a length of one byte; the others are moved once their length is known.
        self.0.push(0);
        write(self);
        let length = length(&self.0[start + 1..]);
        match u8::try_from(length) {
            Ok(short) if short < 0x80 => self.0[start] = short,
            _ => {
                let mut long = Self::default();
                long.number(length);
                self.0.splice(start..=start, long.0);
            }
        }
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

fn length(body: &[u8]) -> u32 {
    // Proxies refuse messages of a fraction of that.
    u32::try_from(body.len()).expect("a message of less than 4 GiB")
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
    fn nested_message_has_its_length_before_it_however_long_it_is() {
        for length in [0, 1, 125, 126, 127, 128, 20_000] {
            let decorator = Decorator { operation: "x".repeat(length), ..Default::default() };
            let mut pieces = Pieces::default();
            pieces.nested(5, |pieces| pieces.text(1, &decorator.operation));
            let route = Route { decorator: Some(decorator), ..Default::default() };
            assert_eq!(pieces.into_vec(), route.encode_to_vec(), "{length} bytes");
        }
    }
}
