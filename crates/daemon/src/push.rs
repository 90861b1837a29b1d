//! From a change of the world to the proxies that it concerns.
//!
//! ```text
//! batch ──► Engine::apply ──► changed results ──► ChangeSignals ──► sessions to wake
//!               │                                                      │
//!               └────────────► Push, in the Ledger ◄─── sent, acknowledged, rejected
//! ```
//!
//! The [`Dispatcher`] applies a batch, raises the [`ChangeSignal`]s of the results that changed, and wakes the sessions that
//! subscribed to one of them; it does nothing else. A session then compares what its proxy has with what it should have; it is
//! not told what to send. [`Connections`] keeps each proxy with what it was sent and what it accepted. The [`Ledger`] is one of
//! the [`Observer`]s of both: it keeps each push with its cause, its recipients and their acknowledgements. Quarantine, metrics
//! and spans are others. The daemon's start-up puts them together (`discovery::push_path`).
//!
//! A few clients may be served from an [`Overlay`] instead of the present world; quarantine says who.
//!
//! Invariants: a push is in the ledger before its sessions are woken, since they may settle it at once; pushes are recorded
//! in the order of their revisions; a batch that changes no input is no push.

mod cause;
mod change_signal;
mod connections;
mod dispatcher;
mod ledger;
mod observer;
mod overlay;
mod stamp;

pub use cause::{Cause, Reason};
pub use connections::{Accepted, Connection, ConnectionId, Connections, Message, Rejection, TypeStatus};
pub use dispatcher::{Dispatched, Dispatcher};
pub use ledger::{Cost, Fate, Ledger, ObjectState, Push, Recipient, TypeTotal};
pub use observer::{AppliedBatch, Observer, Observers, Revisions};
pub use stamp::Stamp;

pub(crate) use change_signal::{ChangeSignal, Pending, Subscription};
pub(crate) use overlay::{Overlay, Replaced, batch as overlay_batch};

#[cfg(test)]
mod tests;
