//! Queries: values derived from inputs and from other queries.
//!
//! There are two layers. A [`Query`] is lazy: after a batch it is marked if it depends on what changed, and evaluated only if
//! something watched needs it. An [`EagerQuery`] is brought up to date before any lazy query is marked. If its value is the
//! same as before, its readers are not even marked.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::sync::Arc;

use super::ctx::{Ctx, EagerCtx};
use crate::Key;
use crate::node::{Erased, NodeFamily, Subject, SubjectKind};

/// A family of queries: a pure function of inputs and other queries.
pub trait Query: 'static {
    /// Name of the family in provenance and errors.
    const NAME: &'static str;
    /// The layer of the family. Only implementing [`EagerQuery`] makes it the eager one.
    #[doc(hidden)]
    const LAYER: Layer = Layer::LAZY;
    /// Identifies one query of the family. The only argument of the function.
    type Key: Key;
    /// The result. If a new value equals the old one, readers are not evaluated again (early cut-off).
    type Value: PartialEq + Send + Sync + 'static;

    /// Computes the value from the key and from what it reads through `ctx`.
    ///
    /// No clock, no randomness, no I/O: the engine decides by the recorded reads alone whether to run it again.
    fn run(ctx: &Ctx<'_>, key: &Self::Key) -> Self::Value;

    /// Whether readers may keep the old value. Override it where something cheaper than `==` decides, such as a fingerprint
    /// kept in the value, or where values may differ in what nobody reads.
    fn unchanged(old: &Self::Value, new: &Self::Value) -> bool {
        old == new
    }
}

/// A family of queries in the eager layer: a pure function of inputs and other eager queries.
///
/// For values that have many dependents and mostly stay the same when something that they read changes: they keep the change
/// from marking everything above them. An eager query is a [`Query`] too, and is read and watched like one. It cannot read
/// lazy queries, because its context does not offer them:
///
/// ```compile_fail,E0277
/// use canopus_engine::{Ctx, EagerCtx, EagerQuery, Query};
///
/// struct Lazy;
/// impl Query for Lazy {
///     const NAME: &'static str = "lazy";
///     type Key = ();
///     type Value = u32;
///     fn run(_: &Ctx<'_>, (): &()) -> u32 {
///         1
///     }
/// }
///
/// struct Eager;
/// impl EagerQuery for Eager {
///     const NAME: &'static str = "eager";
///     type Key = ();
///     type Value = u32;
///     fn run(ctx: &EagerCtx<'_>, (): &()) -> u32 {
///         *ctx.get::<Lazy>(&()) // the trait `EagerQuery` is not implemented for `Lazy`
///     }
/// }
/// ```
pub trait EagerQuery: 'static {
    /// Name of the family in provenance and errors.
    const NAME: &'static str;
    /// Identifies one query of the family. The only argument of the function.
    type Key: Key;
    /// The result. If a new value equals the old one, readers are not marked.
    type Value: PartialEq + Send + Sync + 'static;

    /// Computes the value; see [`Query::run`].
    fn run(ctx: &EagerCtx<'_>, key: &Self::Key) -> Self::Value;

    /// Whether readers may keep the old value; see [`Query::unchanged`].
    fn unchanged(old: &Self::Value, new: &Self::Value) -> bool {
        old == new
    }
}

impl<Q: EagerQuery> Query for Q {
    const NAME: &'static str = <Q as EagerQuery>::NAME;
    const LAYER: Layer = Layer::EAGER;
    type Key = <Q as EagerQuery>::Key;
    type Value = <Q as EagerQuery>::Value;

    fn run(ctx: &Ctx<'_>, key: &Self::Key) -> Self::Value {
        <Q as EagerQuery>::run(ctx, key)
    }

    fn unchanged(old: &Self::Value, new: &Self::Value) -> bool {
        <Q as EagerQuery>::unchanged(old, new)
    }
}

/// The layer of a family of queries. Only this crate can name the eager one.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    is_eager: bool,
}

impl Layer {
    pub(crate) const LAZY: Self = Self { is_eager: false };
    pub(crate) const EAGER: Self = Self { is_eager: true };

    pub(crate) const fn is_eager(self) -> bool {
        self.is_eager
    }
}

/// The queries of type `Q`.
pub(crate) struct QueryNode<Q>(PhantomData<fn() -> Q>);

impl<Q: Query> NodeFamily for QueryNode<Q> {
    type Key = Q::Key;
    const KIND: SubjectKind = SubjectKind::Query;
    const NAME: &'static str = Q::NAME;
    const IS_EAGER: bool = Q::LAYER.is_eager();
    const VALUE_SIZE: Option<usize> = Some(size_of::<Q::Value>());

    fn evaluator() -> Option<&'static dyn Any> {
        Some(const { &Evaluator { family: TypeId::of::<Q>, run: run::<Q>, unchanged: unchanged::<Q> } })
    }
}

impl Subject {
    /// The key, if this is a query of family `Q`.
    pub fn query<Q: Query>(&self) -> Option<&Q::Key> {
        self.key_in::<QueryNode<Q>>()
    }
}

/// How queries of one family are evaluated, whatever their types.
pub(super) struct Evaluator {
    family: fn() -> TypeId,
    run: fn(&Subject, &Ctx<'_>) -> Erased,
    unchanged: fn(&Erased, &Erased) -> bool,
}

impl Evaluator {
    /// The evaluator of a query.
    pub(super) fn find(subject: &Subject) -> Option<&'static Self> {
        subject.evaluator()?.downcast_ref()
    }

    pub(super) fn family(&self) -> TypeId {
        (self.family)()
    }

    /// Runs the query. It must be of the family.
    pub(super) fn run(&self, query: &Subject, ctx: &Ctx<'_>) -> Erased {
        (self.run)(query, ctx)
    }

    /// Whether readers may keep the old value.
    pub(super) fn unchanged(&self, old: &Erased, new: &Erased) -> bool {
        (self.unchanged)(old, new)
    }
}

fn run<Q: Query>(query: &Subject, ctx: &Ctx<'_>) -> Erased {
    let key = query.query::<Q>().expect("an evaluator is found by its query");
    Arc::new(Q::run(ctx, key))
}

fn unchanged<Q: Query>(old: &Erased, new: &Erased) -> bool {
    let (old, new) = (old.downcast_ref::<Q::Value>(), new.downcast_ref::<Q::Value>());
    old.zip(new).is_some_and(|(old, new)| Q::unchanged(old, new))
}
