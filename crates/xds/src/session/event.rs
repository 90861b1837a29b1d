//! What happens in a session, for status and metrics.

use std::sync::Arc;

use canopus_base::hash::ContentHash;

use crate::interest::Interest;
use crate::resource::ResourceSet;

/// The longest reason for a refusal that is passed on, in bytes; a client may write megabytes.
const LONGEST_REASON: usize = 8 * 1024;

/// An event of a session, for whoever keeps records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The client wants something else than before.
    Subscribed {
        /// The type.
        type_url: Arc<str>,
        /// The names the client is subscribed to now.
        interest: Interest,
    },
    /// A response was handed to the stream.
    Sent {
        /// The type.
        type_url: Arc<str>,
        /// Nonce of the response.
        nonce: Arc<str>,
        /// The version of the state it leads to.
        version: ContentHash,
        /// The revision of the world it shows.
        revision: u64,
        /// Whether it follows from a change of the world alone; otherwise the client had asked.
        pushed: bool,
        /// How many resources it carries.
        resources: usize,
        /// How many removed names it carries.
        removed: usize,
        /// The size of its resources.
        bytes: usize,
    },
    /// A client that reconnected has the current state already: nothing was sent.
    Current {
        /// The type.
        type_url: Arc<str>,
        /// The version it has.
        version: ContentHash,
        /// The revision of the world that is.
        revision: u64,
        /// The state that the client has.
        accepted: ResourceSet,
    },
    /// The client accepted a response.
    Acked {
        /// The type.
        type_url: Arc<str>,
        /// The nonce of the response.
        nonce: Arc<str>,
        /// The state that the client certainly has now.
        accepted: ResourceSet,
    },
    /// The client refused a response.
    Nacked {
        /// The type.
        type_url: Arc<str>,
        /// The nonce of the response.
        nonce: String,
        /// The gRPC code of the refusal.
        code: i32,
        /// The client's reason, shortened if it is very long.
        message: String,
        /// The state that the client certainly had before.
        accepted: ResourceSet,
        /// The state that the client would have, had it accepted everything it was sent.
        refused: ResourceSet,
    },
    /// A request answered a response that is not the last one.
    Expired {
        /// The type.
        type_url: Arc<str>,
        /// The nonce it carried.
        nonce: String,
    },
    /// The client made a statement about itself.
    Reported {
        /// The type of the statement.
        type_url: Arc<str>,
        /// The client's error, if it reported one.
        error: Option<String>,
    },
    /// The client has acknowledged everything that follows from this revision.
    Settled {
        /// The revision.
        revision: u64,
    },
}

/// The beginning of a client's reason, whole characters of it.
pub(super) fn reason(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST_REASON)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_cut_between_characters_when_it_is_too_long() {
        assert_eq!(reason("bad cluster"), "bad cluster");
        let long = "é".repeat(LONGEST_REASON);
        assert_eq!(reason(&format!("x{long}")).len(), LONGEST_REASON - 1);
    }
}
