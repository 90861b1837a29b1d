//! Settings of an engine.

use std::thread;

/// How much of the machine an engine uses.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads that evaluate at once, including the caller's.
    pub threads: usize,
    /// Memos to keep that nobody watches, in case they are asked for again.
    pub idle: usize,
}

impl Default for Options {
    /// Uses as many threads as the machine runs at once, and keeps a thousand idle memos.
    fn default() -> Self {
        Self { threads: thread::available_parallelism().map_or(1, usize::from), idle: 1000 }
    }
}
