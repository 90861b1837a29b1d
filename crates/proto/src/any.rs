//! Packing messages into `Any` and opening them again.

use bytes::Bytes;
use prost::{DecodeError, Message, Name};

use crate::Any;

/// Why an `Any` could not be opened.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AnyError {
    /// The `Any` holds another type than the caller expects.
    #[error("expected {expected}, found {found}")]
    Type {
        /// What the caller asked for.
        expected: String,
        /// What the `Any` says it holds.
        found: String,
    },
    /// The bytes are not a message of the named type.
    #[error("malformed {type_url}: {source}")]
    Malformed {
        /// The type it claims to be.
        type_url: String,
        /// What the decoder said.
        source: DecodeError,
    },
}

/// `type.googleapis.com/` followed by the message's full name.
pub fn type_url<M: Name>() -> String {
    M::type_url()
}

impl Any {
    /// Encodes `message` under its own type.
    pub fn pack<M: Message + Name>(message: &M) -> Self {
        Self { type_url: M::type_url(), value: Bytes::from(message.encode_to_vec()) }
    }

    /// The full name of the message inside: what follows the last slash of the type URL.
    pub fn message_name(&self) -> &str {
        self.type_url.rsplit('/').next().unwrap_or_default()
    }

    /// Whether a message of type `M` is inside.
    pub fn is<M: Name>(&self) -> bool {
        self.message_name() == M::full_name()
    }

    /// Decodes the message inside, which must be an `M`.
    pub fn unpack<M: Message + Name + Default>(&self) -> Result<M, AnyError> {
        if !self.is::<M>() {
            return Err(AnyError::Type { expected: M::full_name(), found: self.message_name().to_owned() });
        }
        M::decode(self.value.clone())
            .map_err(|source| AnyError::Malformed { type_url: self.type_url.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::config::core::v3::Node;

    #[test]
    fn unpack_returns_what_was_packed() {
        let node = Node { id: "sidecar~1.2.3.4~a.b~b.svc".into(), ..Default::default() };
        let any = Any::pack(&node);
        assert_eq!(any.type_url, "type.googleapis.com/envoy.config.core.v3.Node");
        assert_eq!(any.unpack::<Node>(), Ok(node));
    }

    #[test]
    fn unpack_names_both_types_when_they_differ() {
        let any = Any::pack(&Node::default());
        let error = any.unpack::<crate::envoy::config::core::v3::Address>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected envoy.config.core.v3.Address, found envoy.config.core.v3.Node"
        );
    }

    #[test]
    fn unpack_reports_malformed_when_bytes_are_not_a_message() {
        let any = Any { value: Bytes::from_static(&[0x0a, 0xff]), ..Any::pack(&Node::default()) };
        assert!(matches!(any.unpack::<Node>(), Err(AnyError::Malformed { .. })));
    }
}
