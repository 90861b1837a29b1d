//! Tests that look inside: the engine against a model, under load, and the invariants of its graph.

mod check;
mod memory;
mod minimal;
mod model;
mod random;
mod threads;
