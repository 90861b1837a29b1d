//! The questions that a session asks about the world, and how one is refused.

use std::fmt;

pub use tonic::Code;

use crate::interest::Interest;
use crate::resource::ResourceSet;
use crate::types::Kind;

/// Why a stream is ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// The gRPC code the client sees.
    pub code: Code,
    /// The text the client sees.
    pub message: String,
}

impl Refusal {
    /// A refusal with this code and text.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl From<Refusal> for tonic::Status {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code, refusal.message)
    }
}

/// The world as a session sees it.
pub trait Source {
    /// What requests of this type mean.
    fn kind(&self, type_url: &str) -> Kind {
        Kind::for_type(type_url)
    }

    /// The resources the client gets of this type for this interest.
    fn resources(&self, type_url: &str, interest: &Interest) -> Result<ResourceSet, Refusal>;

    /// The control plane's name for itself, if it is to be given with this type.
    fn identifier(&self, _type_url: &str) -> Option<String> {
        None
    }
}
