//! Sessions against a small world, message by message.

mod delta;
mod model;
mod order;
mod sotw;
mod world;
