//! The engine against a model of itself, and under load.

mod check;
mod memory;
mod minimal;
mod model;
mod random;
mod threads;
