//! From a change to the proxies it concerns, and the record of the way.
//!
//! A [`Dispatcher`] takes batches to the engine, asks which watched results are others now, and wakes exactly the sessions
//! that hold one of them. What it did is kept: the [`Ledger`] has each push with its cause, its recipients and their
//! acknowledgements; [`Connections`] has each proxy with what it was sent and what it accepted.
//!
//! Whoever wants to count or show any of it reads those two, or is told as it happens through an [`Observer`].

mod beacon;
mod cause;
mod connections;
mod dispatch;
mod ledger;
mod observer;
mod stamp;

pub use cause::{Cause, Reason};
pub use connections::{Accepted, Connection, ConnectionId, Connections, Message, Rejection, TypeStatus};
pub use dispatch::Dispatcher;
pub use ledger::{Fate, Ledger, ObjectState, Push, Recipient, TypeTotal};
pub use observer::{Observer, Revisions};
pub use stamp::Stamp;

pub(crate) use beacon::{Beacon, Light, Seat};

#[cfg(test)]
mod tests;
