//! A value that many hold: one allocation, hashed once.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use canopus_engine::{Ctx, Key, Query};
use rustc_hash::FxBuildHasher;

/// A shared value. Comparing two is cheap where they are one allocation or differ; contents decide, never the hash alone.
pub struct Shared<T> {
    value: Arc<T>,
    hash: u64,
}

impl<T: Hash> Shared<T> {
    /// Shares a value.
    pub fn new(value: T) -> Self {
        Self { hash: FxBuildHasher.hash_one(&value), value: Arc::new(value) }
    }
}

/// Shares a value with everybody who has an equal one: the engine knows a key once, however often it is made.
pub(crate) fn intern<T: Key>(ctx: &Ctx<'_>, value: T) -> Shared<T> {
    ctx.get::<Interned<T>>(&Shared::new(value)).as_ref().clone()
}

/// A value as it was first made.
struct Interned<T>(PhantomData<T>);

impl<T: Key> Query for Interned<T> {
    const NAME: &'static str = "audience";
    type Key = Shared<T>;
    type Value = Shared<T>;

    fn run(_: &Ctx<'_>, value: &Shared<T>) -> Shared<T> {
        value.clone()
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), hash: self.hash }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.value, &other.value) || (self.hash == other.hash && self.value == other.value)
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
