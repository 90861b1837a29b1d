//! The values that templates compute with: JSON's value space, with Go's kinds kept apart.
//!
//! Go tells `int`, `int64` and `float64` apart, a nil slice from an empty one, and a `[]string` from a `[]interface {}`;
//! templates see the difference in comparisons, in which functions accept a value, and in error texts. Numbers that come
//! from YAML or JSON are `float64`, numbers written in a template are `int`.

mod convert;
mod function;
mod list;
mod map;
mod object;
mod slot;
mod text;

use std::borrow::Cow;
use std::sync::Arc;

use canopus_base::FastSet;
pub(crate) use function::FunctionBody;
pub use function::{
    FromArg, Function, Functions, Int64, IntoFunction, IntoResult, StringMap, Type, Variadic,
};
pub use list::{Elem, List};
pub use map::{InsertError, Map, MapKind};
pub use object::{Object, ObjectData};
pub(crate) use slot::{Slot, list_item, map_item};
pub use text::Str;
pub(crate) use text::runes;

/// A value in a template. [`Value::Nil`] is Go's nil interface.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// `nil`.
    #[default]
    Nil,
    /// `bool`.
    Bool(bool),
    /// A signed integer.
    Int(i64, IntKind),
    /// An unsigned integer.
    Uint(u64, UintKind),
    /// `float64`.
    Float(f64),
    /// `complex128`: only numbers like `2i` in a template give one.
    Complex(f64, f64),
    /// `string`.
    String(Str),
    /// `[]byte`.
    Bytes(Str),
    /// A slice.
    List(List),
    /// A map with string keys.
    Map(Map),
    /// A value with fields or methods.
    Object(Arc<dyn Object>),
}

/// Which signed integer type a value has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntKind {
    /// `int`: numbers in a template.
    Int,
    /// `int32`: most integers of Kubernetes objects.
    Int32,
    /// `int64`: results of sprig's arithmetic.
    Int64,
}

/// Which unsigned integer type a value has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UintKind {
    /// `uint8`: a byte of a string.
    Uint8,
    /// `uint32`.
    Uint32,
    /// `uint64`.
    Uint64,
}

/// Go's `reflect.Kind`, as far as values here have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Invalid,
    Bool,
    Int,
    Int32,
    Int64,
    Uint8,
    Uint32,
    Uint64,
    Float64,
    Complex128,
    String,
    Slice,
    Map,
    Struct,
    Pointer,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Uint8 => "uint8",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Float64 => "float64",
            Self::Complex128 => "complex128",
            Self::String => "string",
            Self::Slice => "slice",
            Self::Map => "map",
            Self::Struct => "struct",
            Self::Pointer => "ptr",
        }
    }
}

impl Value {
    /// An `int`.
    pub const fn int(int: i64) -> Self {
        Self::Int(int, IntKind::Int)
    }

    /// An `int64`.
    pub const fn int64(int: i64) -> Self {
        Self::Int(int, IntKind::Int64)
    }

    /// A `string`.
    pub fn string(text: impl Into<Str>) -> Self {
        Self::String(text.into())
    }

    /// A `[]interface {}`.
    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(items.into_iter().collect())
    }

    /// A `[]string`.
    pub fn strings<T: Into<Str>>(items: impl IntoIterator<Item = T>) -> Self {
        let items = items.into_iter().map(|item| Self::String(item.into())).collect();
        Self::List(List::typed(Elem::String, items))
    }

    /// A `map[string]interface {}`.
    pub fn map<K: Into<Str>, V: Into<Self>>(entries: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Map(entries.into_iter().collect())
    }

    /// A value with fields or methods.
    pub fn object(object: impl Object + 'static) -> Self {
        Self::Object(Arc::new(object))
    }

    /// Whether this is `nil`.
    pub const fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    /// The map, if this is one.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The slice, if this is one.
    pub fn as_list(&self) -> Option<&List> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }

    /// The string, if this is one.
    pub fn as_str(&self) -> Option<&Str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The type in Go's words, as `printf "%T"` gives it.
    pub fn type_name(&self) -> Cow<'static, str> {
        match self {
            Self::Nil => "<nil>".into(),
            Self::List(list) => list.type_name().into(),
            Self::Map(map) => map.type_name().into(),
            Self::Bytes(_) => "[]uint8".into(),
            Self::Object(object) => object.type_name(),
            scalar => scalar.kind().name().into(),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Nil => Kind::Invalid,
            Self::Bool(_) => Kind::Bool,
            Self::Int(_, IntKind::Int) => Kind::Int,
            Self::Int(_, IntKind::Int32) => Kind::Int32,
            Self::Int(_, IntKind::Int64) => Kind::Int64,
            Self::Uint(_, UintKind::Uint8) => Kind::Uint8,
            Self::Uint(_, UintKind::Uint32) => Kind::Uint32,
            Self::Uint(_, UintKind::Uint64) => Kind::Uint64,
            Self::Float(_) => Kind::Float64,
            Self::Complex(..) => Kind::Complex128,
            Self::String(_) => Kind::String,
            Self::Bytes(_) | Self::List(_) => Kind::Slice,
            Self::Map(_) => Kind::Map,
            Self::Object(object) => match object.data() {
                ObjectData::Struct if object.type_name().starts_with('*') => Kind::Pointer,
                ObjectData::Struct => Kind::Struct,
                ObjectData::Map(_) => Kind::Map,
                ObjectData::List(_) => Kind::Slice,
                ObjectData::String(_) => Kind::String,
                ObjectData::Int(_) => Kind::Int64,
            },
        }
    }

    /// The plain value an object of a named map, slice, string or integer type stands for; everything else is itself.
    pub(crate) fn underlying(&self) -> Cow<'_, Self> {
        let Self::Object(object) = self else { return Cow::Borrowed(self) };
        match object.data() {
            ObjectData::Struct => Cow::Borrowed(self),
            ObjectData::Map(map) => Cow::Owned(Self::Map(map)),
            ObjectData::List(list) => Cow::Owned(Self::List(list)),
            ObjectData::String(text) => Cow::Owned(Self::String(text)),
            ObjectData::Int(int) => Cow::Owned(Self::int64(int)),
        }
    }

    /// Whether `if` takes the value for true: it is not the zero value of its type.
    pub fn truth(&self) -> bool {
        match &*self.underlying() {
            Self::Nil => false,
            Self::Bool(truth) => *truth,
            Self::Int(int, _) => *int != 0,
            Self::Uint(int, _) => *int != 0,
            Self::Float(float) => *float != 0.0,
            Self::Complex(re, im) => *re != 0.0 || *im != 0.0,
            Self::String(text) | Self::Bytes(text) => !text.is_empty(),
            Self::List(list) => !list.is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::Object(object) => !object.is_nil(),
        }
    }

    /// Whether a map is this value or somewhere inside it. Each container is visited once.
    fn contains_map(&self, wanted: &Map) -> bool {
        let mut seen = FastSet::default();
        let mut pending = vec![self.clone()];
        while let Some(value) = pending.pop() {
            match value {
                Self::Map(map) if map.is_same(wanted) => return true,
                Self::Map(map) if map.address().is_some_and(|address| seen.insert(address)) => {
                    pending.extend(map.entries().into_iter().map(|(_, value)| value));
                }
                Self::List(list) if seen.insert(list.items().as_ptr() as usize) => {
                    pending.extend(list.items().iter().filter(|item| item.is_container()).cloned());
                }
                _ => {}
            }
        }
        false
    }

    fn is_container(&self) -> bool {
        matches!(self, Self::List(_) | Self::Map(_))
    }
}
