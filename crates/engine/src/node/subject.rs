//! Subjects: what a query can read, whatever its type.
//!
//! A subject is an interned key together with its *family*: the inputs, the buckets or the keys of one input type, or the
//! queries of one query type. Families are types ([`NodeFamily`]); nodes of all families are handled through [`AnyKey`].

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::intern::Interned;
use crate::ids::NodeId;
use crate::{Input, Key};

/// The kinds of subject.
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
/// Subjects of one engine and its forks are equal if they have the same family and key.
#[derive(Clone)]
pub struct Subject(pub(crate) Arc<Interned<dyn AnyKey>>);

impl Subject {
    /// The kind of subject.
    pub fn kind(&self) -> SubjectKind {
        self.0.key.kind()
    }

    /// The `NAME` of the input or query family.
    pub fn name(&self) -> &'static str {
        self.0.key.name()
    }

    /// The key, if this is an input of family `I`.
    pub fn input<I: Input>(&self) -> Option<&I::Key> {
        self.key_in::<InputNode<I>>()
    }

    /// The index, if this is a bucket of family `I`.
    pub fn members<I: Input>(&self) -> Option<&I::Index> {
        self.key_in::<BucketNode<I>>()
    }

    pub(crate) fn id(&self) -> NodeId {
        self.0.id
    }

    /// The key, if this is a subject of family `F`.
    pub(crate) fn key_in<F: NodeFamily>(&self) -> Option<&F::Key> {
        let key: &dyn Any = &self.0.key;
        key.downcast_ref::<FamilyKey<F>>().map(|FamilyKey(key)| key)
    }

    /// Whether this is a query of the eager layer.
    pub(crate) fn is_eager(&self) -> bool {
        self.0.key.is_eager()
    }

    /// What evaluates it, if this is a query.
    pub(crate) fn evaluator(&self) -> Option<&'static dyn Any> {
        self.0.key.evaluator()
    }

    /// Memory of a value, without what it owns on the heap, if this is a query.
    pub(crate) fn value_size(&self) -> Option<usize> {
        self.0.key.value_size()
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

/// A family of nodes: one kind of subject of one input or query type.
pub(crate) trait NodeFamily: Sized + 'static {
    type Key: Key;
    const KIND: SubjectKind;
    const NAME: &'static str;
    /// Whether these are queries of the eager layer.
    const IS_EAGER: bool = false;

    /// Memory of a value, without what it owns on the heap, if these are queries.
    const VALUE_SIZE: Option<usize> = None;

    /// What evaluates a node of the family, if these are queries.
    fn evaluator() -> Option<&'static dyn Any> {
        None
    }
}

/// The inputs of type `I`.
pub(crate) struct InputNode<I>(PhantomData<fn() -> I>);
/// The buckets of input type `I`.
pub(crate) struct BucketNode<I>(PhantomData<fn() -> I>);
/// The set of all keys of input type `I`.
pub(crate) struct AllKeysNode<I>(PhantomData<fn() -> I>);

impl<I: Input> NodeFamily for InputNode<I> {
    type Key = I::Key;
    const KIND: SubjectKind = SubjectKind::Input;
    const NAME: &'static str = I::NAME;
}

impl<I: Input> NodeFamily for BucketNode<I> {
    type Key = I::Index;
    const KIND: SubjectKind = SubjectKind::Members;
    const NAME: &'static str = I::NAME;
}

impl<I: Input> NodeFamily for AllKeysNode<I> {
    type Key = ();
    const KIND: SubjectKind = SubjectKind::Keys;
    const NAME: &'static str = I::NAME;
}

/// A key whose type says which family it belongs to: two families may have equal key types.
pub(crate) struct FamilyKey<F: NodeFamily>(pub(crate) F::Key);

/// A [`FamilyKey`] of any family.
pub(crate) trait AnyKey: Any + Send + Sync {
    fn kind(&self) -> SubjectKind;
    fn name(&self) -> &'static str;
    fn debug_key(&self) -> &dyn fmt::Debug;
    fn is_eager(&self) -> bool;
    fn evaluator(&self) -> Option<&'static dyn Any>;
    fn value_size(&self) -> Option<usize>;
}

impl<F: NodeFamily> AnyKey for FamilyKey<F> {
    fn kind(&self) -> SubjectKind {
        F::KIND
    }
    fn name(&self) -> &'static str {
        F::NAME
    }
    fn debug_key(&self) -> &dyn fmt::Debug {
        &self.0
    }
    fn is_eager(&self) -> bool {
        F::IS_EAGER
    }
    fn evaluator(&self) -> Option<&'static dyn Any> {
        F::evaluator()
    }
    fn value_size(&self) -> Option<usize> {
        F::VALUE_SIZE
    }
}
