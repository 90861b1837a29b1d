//! The server with real streams over loopback, and with none at all.

mod abuse;
mod conversation;
mod ending;
mod pressure;
mod toy;
