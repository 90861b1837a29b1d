//! Keys of inputs, buckets and queries.

use std::fmt::Debug;
use std::hash::Hash;

/// A key of an input, a bucket or a query. Implemented for every type that meets the bounds.
///
/// The engine clones a key once while it is known and compares it often: prefer small or shared (`Arc<str>`-like) types.
pub trait Key: Clone + Eq + Hash + Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + Debug + Send + Sync + 'static> Key for T {}
