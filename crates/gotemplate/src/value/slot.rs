//! Results of expressions, which tell a missing value from a nil one.

use super::{Elem, List, MapKind, Value};

/// The result of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// A missing key, which has no value.
    Invalid,
    /// A value of known type; never nil.
    Typed(Value),
    /// The content of an `interface {}`, which may be nil.
    Interface(Value),
}

impl Slot {
    /// The value inside, nil if there is none.
    pub(crate) fn value(&self) -> &Value {
        match self {
            Self::Invalid => &Value::Nil,
            Self::Typed(value) | Self::Interface(value) => value,
        }
    }

    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Invalid => Value::Nil,
            Self::Typed(value) | Self::Interface(value) => value,
        }
    }

    /// A result whose interface, if it is one, is taken off: nil becomes the absence of a value.
    pub(crate) fn concrete(value: Value) -> Self {
        if value.is_nil() { Self::Invalid } else { Self::Typed(value) }
    }

    /// An element of a slice or map of the given element type.
    fn element(value: Value, of_interfaces: bool) -> Self {
        if of_interfaces { Self::Interface(value) } else { Self::concrete(value) }
    }
}

/// Whether the elements of a slice are of type `interface {}`.
pub(crate) fn list_item(list: &List, value: Value) -> Slot {
    Slot::element(value, list.elem() == Elem::Any)
}

/// Whether the elements of a map are of type `interface {}`.
pub(crate) fn map_item(kind: MapKind, value: Value) -> Slot {
    Slot::element(value, kind != MapKind::String)
}
