//! Vocabulary below everything else: pure values and text formats, no I/O, no async, nothing of ours underneath.

pub mod tree;
