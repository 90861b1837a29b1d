//! The engine from outside.

mod basics;
mod faults;
mod world;
