//! Vocabulary below everything else: pure values and text formats, no I/O, no async, nothing of ours underneath.
//!
//! Texts that users write are read here once and for all: [`yaml`] and [`json`] into a [`tree`] that knows its positions,
//! and the small formats inside it ([`duration`], [`quantity`], [`host`], [`labels`], [`net`], [`protocol`], [`regex`],
//! [`spiffe`]). Every reader takes any bytes without panicking and within bounded memory. [`hash`] names content.

pub mod duration;
mod float;
pub mod hash;
pub mod host;
pub mod json;
pub mod labels;
pub mod net;
pub mod protocol;
pub mod quantity;
pub mod regex;
pub mod spiffe;
pub mod tree;
pub mod yaml;

/// A hash map for keyed access only: its order means nothing and must never reach output.
pub type FastMap<K, V> = rustc_hash::FxHashMap<K, V>;

/// A hash set for membership tests only: its order means nothing and must never reach output.
pub type FastSet<T> = rustc_hash::FxHashSet<T>;
