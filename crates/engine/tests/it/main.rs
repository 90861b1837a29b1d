//! The engine from outside.

mod basics;
mod cells;
mod faults;
