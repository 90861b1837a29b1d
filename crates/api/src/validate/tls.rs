//! TLS, of servers and of clients.

mod client;
mod server;

pub use client::client;
pub use server::{is_cipher_suite, server};

pub(super) use client::CODES as CLIENT_CODES;
pub(super) use server::CODES as SERVER_CODES;
