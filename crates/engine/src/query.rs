//! Derived facts: functions of inputs and of other queries.
//!
//! There are two kinds. A [`Query`] is evaluated on demand: after a batch it is looked at only if something watched may rest
//! on what changed. An [`EagerQuery`] is brought up to date before anything else is looked at, and what rests on it is left
//! alone if its value is what it was. See the eager layer in the crate's documentation.

use crate::{Ctx, EagerCtx, Key};

/// A family of derived facts: a pure function of inputs and other queries.
pub trait Query: 'static {
    /// What provenance and errors call this family.
    const NAME: &'static str;
    /// Whether the family is part of the eager layer; an [`EagerQuery`] is, nothing else can be.
    #[doc(hidden)]
    const LAYER: Layer = Layer::LAZY;
    /// Names one fact of the family; the only argument of the function.
    type Key: Key;
    /// The result; a recomputed value equal to the old one stops the change from spreading.
    type Value: PartialEq + Send + Sync + 'static;

    /// Computes the value, reading only its key and what `ctx` gives.
    ///
    /// No clock, no randomness, no I/O: the engine decides from the recorded reads alone whether to run it again.
    fn run(ctx: &Ctx<'_>, key: &Self::Key) -> Self::Value;

    /// Whether a recomputed value is as good as the old one; override where something cheaper than `==` decides it,
    /// such as a fingerprint kept in the value.
    fn unchanged(old: &Self::Value, new: &Self::Value) -> bool {
        old == new
    }
}

/// A family of derived facts that is part of the eager layer: a pure function of inputs and other eager queries.
///
/// Meant for facts that much rests on and that changes to what they read mostly leave as they are: they keep a change from
/// marking everything above them. Every eager query is a [`Query`] too, and is read, watched and explained as one. It
/// cannot read queries of the other kind: its context does not offer them.
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
    /// What provenance and errors call this family.
    const NAME: &'static str;
    /// Names one fact of the family; the only argument of the function.
    type Key: Key;
    /// The result; if a recomputed value is equal to the old one, nothing that rests on it is looked at.
    type Value: PartialEq + Send + Sync + 'static;

    /// Computes the value; as [`Query::run`].
    fn run(ctx: &EagerCtx<'_>, key: &Self::Key) -> Self::Value;

    /// Whether a recomputed value is as good as the old one; as [`Query::unchanged`].
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

/// Which layer a family of queries is part of. Only this crate can name the eager one.
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
