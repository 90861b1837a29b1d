//! The engine from outside.

mod basics;
mod world;
