//! What may name an input, a bucket or a query.

use std::fmt::Debug;
use std::hash::Hash;

/// A value that can name something in the engine; implemented for every type that has the parts.
///
/// Keys are cloned into the engine once per distinct key and compared often: prefer small or shared
/// (`Arc<str>`-like) types.
pub trait Key: Clone + Eq + Hash + Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + Debug + Send + Sync + 'static> Key for T {}
