//! What a read is a read of.

use std::any::{Any, TypeId};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::intern::{Interned, NodeId};
use crate::value::Erased;
use crate::{Ctx, Input, Key, Query};

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
///
/// Subjects of one engine and its forks are equal if they name the same thing.
#[derive(Clone)]
pub struct Subject(pub(crate) Arc<Interned<dyn AnyKey>>);

impl Subject {
    /// The kind of thing this is.
    pub fn kind(&self) -> SubjectKind {
        self.0.key.kind()
    }

    /// The `NAME` of the input or query family.
    pub fn name(&self) -> &'static str {
        self.0.key.name()
    }

    /// The key, if this is an input of family `I`.
    pub fn input<I: Input>(&self) -> Option<&I::Key> {
        self.key_as::<Value<I>>()
    }

    /// The bucket, if this is a bucket of family `I`.
    pub fn members<I: Input>(&self) -> Option<&I::Index> {
        self.key_as::<Bucket<I>>()
    }

    /// The key, if this is a query of family `Q`.
    pub fn query<Q: Query>(&self) -> Option<&Q::Key> {
        self.key_as::<Memo<Q>>()
    }

    pub(crate) fn id(&self) -> NodeId {
        self.0.id
    }

    pub(crate) fn key_as<R: Role>(&self) -> Option<&R::Key> {
        let key: &dyn Any = &self.0.key;
        key.downcast_ref::<Keyed<R>>().map(|Keyed(key)| key)
    }

    /// Whether this is a query of the eager layer.
    pub(crate) fn is_eager(&self) -> bool {
        self.0.key.is_eager()
    }

    /// The way to run it, if this is a query.
    pub(crate) fn as_query(&self) -> Option<&dyn AnyQuery> {
        self.0.key.as_query()
    }
}

impl PartialEq for Subject {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Subject {}

/// `name(key)` for inputs and queries, `name[bucket]` for buckets, `name[*]` for all keys.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            SubjectKind::Input | SubjectKind::Query => {
                write!(f, "{}({:?})", self.name(), self.0.key.debug_key())
            }
            SubjectKind::Members => write!(f, "{}[{:?}]", self.name(), self.0.key.debug_key()),
            SubjectKind::Keys => write!(f, "{}[*]", self.name()),
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A family of subjects: one kind of one input or query type.
pub(crate) trait Role: Sized + 'static {
    type Key: Key;
    const KIND: SubjectKind;
    const NAME: &'static str;

    /// Whether it is a family of eager queries.
    const IS_EAGER: bool = false;

    /// The way to run it, for families of queries.
    fn as_query(_: &Keyed<Self>) -> Option<&dyn AnyQuery> {
        None
    }
}

/// Inputs of family `I`.
pub(crate) struct Value<I>(PhantomData<fn() -> I>);
/// Buckets of family `I`.
pub(crate) struct Bucket<I>(PhantomData<fn() -> I>);
/// All keys of family `I`.
pub(crate) struct All<I>(PhantomData<fn() -> I>);
/// Queries of family `Q`.
pub(crate) struct Memo<Q>(PhantomData<fn() -> Q>);

impl<I: Input> Role for Value<I> {
    type Key = I::Key;
    const KIND: SubjectKind = SubjectKind::Input;
    const NAME: &'static str = I::NAME;
}

impl<I: Input> Role for Bucket<I> {
    type Key = I::Index;
    const KIND: SubjectKind = SubjectKind::Members;
    const NAME: &'static str = I::NAME;
}

impl<I: Input> Role for All<I> {
    type Key = ();
    const KIND: SubjectKind = SubjectKind::Keys;
    const NAME: &'static str = I::NAME;
}

impl<Q: Query> Role for Memo<Q> {
    type Key = Q::Key;
    const KIND: SubjectKind = SubjectKind::Query;
    const NAME: &'static str = Q::NAME;
    const IS_EAGER: bool = Q::LAYER.is_eager();

    fn as_query(key: &Keyed<Self>) -> Option<&dyn AnyQuery> {
        Some(key)
    }
}

/// A key and what it is a key of.
pub(crate) struct Keyed<R: Role>(pub(crate) R::Key);

/// A key of any family.
pub(crate) trait AnyKey: Any + Send + Sync {
    fn kind(&self) -> SubjectKind;
    fn name(&self) -> &'static str;
    fn debug_key(&self) -> &dyn fmt::Debug;
    fn is_eager(&self) -> bool;
    fn as_query(&self) -> Option<&dyn AnyQuery>;
}

impl<R: Role> AnyKey for Keyed<R> {
    fn kind(&self) -> SubjectKind {
        R::KIND
    }
    fn name(&self) -> &'static str {
        R::NAME
    }
    fn debug_key(&self) -> &dyn fmt::Debug {
        &self.0
    }
    fn is_eager(&self) -> bool {
        R::IS_EAGER
    }
    fn as_query(&self) -> Option<&dyn AnyQuery> {
        R::as_query(self)
    }
}

/// The key of a query of any family.
pub(crate) trait AnyQuery {
    fn family(&self) -> TypeId;
    fn run(&self, ctx: &Ctx<'_>) -> Erased;
    fn unchanged(&self, old: &Erased, new: &Erased) -> bool;
    /// Memory a value takes, without what it owns.
    fn value_size(&self) -> usize;
}

impl<Q: Query> AnyQuery for Keyed<Memo<Q>> {
    fn family(&self) -> TypeId {
        TypeId::of::<Q>()
    }
    fn run(&self, ctx: &Ctx<'_>) -> Erased {
        Arc::new(Q::run(ctx, &self.0))
    }
    fn unchanged(&self, old: &Erased, new: &Erased) -> bool {
        let (old, new) = (old.downcast_ref::<Q::Value>(), new.downcast_ref::<Q::Value>());
        old.zip(new).is_some_and(|(old, new)| Q::unchanged(old, new))
    }
    fn value_size(&self) -> usize {
        size_of::<Q::Value>()
    }
}
