//! What a read was a read of.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{Input, Key, Query};

/// The kinds of thing a query can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubjectKind {
    /// One input, present or absent.
    Input,
    /// The keys in one bucket of an input family.
    Members,
    /// All keys of an input family.
    Keys,
    /// Another query.
    Query,
}

/// Something that can be read: an input, a bucket, all keys of a family, or a query.
#[derive(Clone)]
pub struct Subject(pub(crate) Arc<dyn Named>);

impl Subject {
    /// The kind of thing this is.
    pub fn kind(&self) -> SubjectKind {
        self.0.kind()
    }

    /// The `NAME` of the input or query family.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// The key, if this is an input of family `I`.
    pub fn input<I: Input>(&self) -> Option<&I::Key> {
        self.key_in::<Value<I>>()
    }

    /// The bucket, if this is a bucket of family `I`.
    pub fn members<I: Input>(&self) -> Option<&I::Index> {
        self.key_in::<Bucket<I>>()
    }

    /// The key, if this is a query of family `Q`.
    pub fn query<Q: Query>(&self) -> Option<&Q::Key> {
        self.key_in::<Memo<Q>>()
    }

    fn key_in<R: Role>(&self) -> Option<&R::Key> {
        self.0.as_any().downcast_ref::<Name<R>>().map(|name| &name.0)
    }
}

/// `name(key)` for inputs and queries, `name[bucket]` for buckets, `name[*]` for all keys.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            SubjectKind::Input | SubjectKind::Query => write!(f, "{}({:?})", self.name(), self.0.key()),
            SubjectKind::Members => write!(f, "{}[{:?}]", self.name(), self.0.key()),
            SubjectKind::Keys => write!(f, "{}[*]", self.name()),
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A family of subjects of one kind.
pub(crate) trait Role: 'static {
    type Key: Key;
    const KIND: SubjectKind;
    const NAME: &'static str;
}

macro_rules! role {
    ($role:ident<$param:ident: $bound:ident>, $key:ty, $kind:ident) => {
        pub(crate) struct $role<$param>(std::marker::PhantomData<fn() -> $param>);
        impl<$param: $bound> Role for $role<$param> {
            type Key = $key;
            const KIND: SubjectKind = SubjectKind::$kind;
            const NAME: &'static str = $param::NAME;
        }
    };
}
role!(Value<I: Input>, I::Key, Input);
role!(Bucket<I: Input>, I::Index, Members);
role!(All<I: Input>, (), Keys);
role!(Memo<Q: Query>, Q::Key, Query);

pub(crate) struct Name<R: Role>(pub(crate) R::Key);

pub(crate) trait Named: Send + Sync {
    fn kind(&self) -> SubjectKind;
    fn name(&self) -> &'static str;
    fn key(&self) -> &dyn fmt::Debug;
    fn as_any(&self) -> &dyn Any;
    fn same(&self, other: &dyn Named) -> bool;
}

impl<R: Role> Named for Name<R> {
    fn kind(&self) -> SubjectKind {
        R::KIND
    }
    fn name(&self) -> &'static str {
        R::NAME
    }
    fn key(&self) -> &dyn fmt::Debug {
        &self.0
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn same(&self, other: &dyn Named) -> bool {
        other.as_any().downcast_ref::<Self>().is_some_and(|other| other.0 == self.0)
    }
}
