//! Rust types as Go parameter and result types.

use std::borrow::Cow;

use super::Function;
use crate::error::CallError;
use crate::limits::Budget;
use crate::value::{Elem, IntKind, List, Map, MapKind, Str, Value};

/// A Go parameter type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `interface {}`.
    Any,
    /// `bool`.
    Bool,
    /// `int`.
    Int,
    /// `int64`.
    Int64,
    /// `float64`.
    Float,
    /// `string`.
    String,
    /// `[]interface {}`.
    List,
    /// `[]string`.
    Strings,
    /// `map[string]interface {}`.
    Map,
    /// `map[string]string`.
    StringMap,
    /// A named type that only an [`Object`](crate::Object) has.
    Object(Cow<'static, str>),
    /// `reflect.Value`: any value, and the absence of one.
    Reflect,
}

impl Type {
    /// The type in Go's words.
    pub fn name(&self) -> &str {
        match self {
            Self::Any => "interface {}",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Int64 => "int64",
            Self::Float => "float64",
            Self::String => "string",
            Self::List => "[]interface {}",
            Self::Strings => "[]string",
            Self::Map => "map[string]interface {}",
            Self::StringMap => "map[string]string",
            Self::Object(name) => name,
            Self::Reflect => "reflect.Value",
        }
    }

    /// Whether `nil` is one of the type's values.
    pub(crate) fn can_be_nil(&self) -> bool {
        match self {
            Self::Any | Self::List | Self::Strings | Self::Map | Self::StringMap | Self::Reflect => true,
            Self::Object(name) => name.starts_with('*'),
            _ => false,
        }
    }

    /// The type's nil.
    pub(crate) fn zero(&self) -> Value {
        match self {
            Self::List => Value::List(List::nil(Elem::Any)),
            Self::Strings => Value::List(List::nil(Elem::String)),
            Self::Map => Value::Map(Map::nil(MapKind::Any)),
            Self::StringMap => Value::Map(Map::nil(MapKind::String)),
            _ => Value::Nil,
        }
    }

    /// Whether a value can be passed as it is.
    pub(crate) fn accepts(&self, value: &Value) -> bool {
        match self {
            Self::Any | Self::Reflect => true,
            Self::Bool => matches!(value, Value::Bool(_)),
            Self::Int => matches!(value, Value::Int(_, IntKind::Int)),
            Self::Int64 => matches!(value, Value::Int(_, IntKind::Int64)),
            Self::Float => matches!(value, Value::Float(_)),
            Self::String => matches!(value, Value::String(_)),
            Self::List => value.as_list().is_some_and(|list| list.elem() == Elem::Any),
            Self::Strings => value.as_list().is_some_and(|list| list.elem() == Elem::String),
            Self::Map => value.as_map().is_some_and(|map| map.kind() != MapKind::String),
            Self::StringMap => value.as_map().is_some_and(|map| map.kind() == MapKind::String),
            Self::Object(name) => matches!(value, Value::Object(object) if object.type_name() == *name),
        }
    }
}

/// A type that a closure may take as an argument.
pub trait FromArg: Sized {
    /// The Go type of the parameter.
    const TYPE: Type;

    /// Converts a value that [`FromArg::TYPE`] accepts.
    fn from_arg(value: Value) -> Self;
}

macro_rules! from_arg {
    ($($rust:ty = $type:ident, $pattern:pat => $convert:expr, else $default:expr;)*) => {$(
        impl FromArg for $rust {
            const TYPE: Type = Type::$type;

            fn from_arg(value: Value) -> Self {
                match value {
                    $pattern => $convert,
                    // The evaluator has checked the type.
                    _ => $default,
                }
            }
        }
    )*};
}

from_arg! {
    bool = Bool, Value::Bool(truth) => truth, else false;
    i64 = Int, Value::Int(int, _) => int, else 0;
    Int64 = Int64, Value::Int(int, _) => Self(int), else Self(0);
    f64 = Float, Value::Float(float) => float, else 0.0;
    Str = String, Value::String(text) => text, else Self::from("");
    String = String, Value::String(text) => text.to_text().into_owned(), else Self::new();
    List = List, Value::List(list) => list, else Self::nil(Elem::Any);
    Map = Map, Value::Map(map) => map, else Self::nil(MapKind::Any);
}

impl FromArg for Value {
    const TYPE: Type = Type::Any;

    fn from_arg(value: Value) -> Self {
        value
    }
}

/// A `map[string]string`, where a plain [`Map`] stands for `map[string]interface {}`.
#[derive(Clone, Debug)]
pub struct StringMap(pub Map);

impl FromArg for StringMap {
    const TYPE: Type = Type::StringMap;

    fn from_arg(value: Value) -> Self {
        match value {
            Value::Map(map) => Self(map),
            // The evaluator has checked the type.
            _ => Self(Map::nil(MapKind::String)),
        }
    }
}

impl StringMap {
    /// A map with these entries.
    pub fn new(entries: impl IntoIterator<Item = (Str, Str)>) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key, Value::String(value)));
        Self(Map::typed(MapKind::String, entries.collect()))
    }

    /// The entries, sorted by key.
    pub fn entries(&self) -> impl Iterator<Item = (Str, Str)> {
        self.0.entries().into_iter().filter_map(|(key, value)| match value {
            Value::String(text) => Some((key, text)),
            _ => None,
        })
    }
}

impl From<StringMap> for Value {
    fn from(map: StringMap) -> Self {
        Self::Map(map.0)
    }
}

/// An `int64`, where a plain `i64` stands for `int`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Int64(pub i64);

impl From<Int64> for Value {
    fn from(int: Int64) -> Self {
        Self::int64(int.0)
    }
}

impl From<Vec<Str>> for Value {
    fn from(items: Vec<Str>) -> Self {
        Self::strings(items)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::list(items)
    }
}

impl From<Vec<u8>> for Value {
    fn from(text: Vec<u8>) -> Self {
        Self::String(text.into())
    }
}

/// All remaining arguments; the last parameter of a closure may be one.
#[derive(Clone, Debug)]
pub struct Variadic<T>(pub Vec<T>);

/// What a closure may give back: anything that is a value, or a `Result` of one.
pub trait IntoResult {
    /// Converts the result.
    fn into_result(self) -> Result<Value, CallError>;
}

impl<T: Into<Value>> IntoResult for T {
    fn into_result(self) -> Result<Value, CallError> {
        Ok(self.into())
    }
}

impl<T: Into<Value>, E: Into<CallError>> IntoResult for Result<T, E> {
    fn into_result(self) -> Result<Value, CallError> {
        self.map(Into::into).map_err(Into::into)
    }
}

/// A closure that can be a template function: its parameters are [`FromArg`], the last one may be [`Variadic`], and it may
/// take a [`Budget`] first, to charge for work that its arguments make large.
pub trait IntoFunction<Marker> {
    /// Wraps the closure.
    fn into_function(self) -> Function;
}

/// Marks closures that take a budget.
#[derive(Debug)]
pub struct WithBudget;
/// Marks closures that take any number of arguments.
#[derive(Debug)]
pub struct WithRest;

macro_rules! into_function {
    ($($param:ident)*) => {
        impl<Body, Out: IntoResult, $($param: FromArg),*> IntoFunction<fn($($param),*) -> Out> for Body
        where
            Body: Fn($($param),*) -> Out + Send + Sync + 'static,
        {
            fn into_function(self) -> Function {
                Function::plain(vec![$($param::TYPE),*], false, move |_, args| {
                    let mut args = args.into_iter();
                    let _ = &mut args;
                    self($($param::from_arg(args.next().unwrap_or_default())),*).into_result()
                })
            }
        }

        impl<Body, Out: IntoResult, $($param: FromArg),*> IntoFunction<(WithBudget, fn($($param),*) -> Out)> for Body
        where
            Body: Fn(&Budget, $($param),*) -> Out + Send + Sync + 'static,
        {
            fn into_function(self) -> Function {
                Function::plain(vec![$($param::TYPE),*], false, move |budget, args| {
                    let mut args = args.into_iter();
                    let _ = &mut args;
                    self(budget, $($param::from_arg(args.next().unwrap_or_default())),*).into_result()
                })
            }
        }

        impl<Body, Out: IntoResult, $($param: FromArg,)* Rest: FromArg>
            IntoFunction<(WithRest, fn($($param,)* Rest) -> Out)> for Body
        where
            Body: Fn($($param,)* Variadic<Rest>) -> Out + Send + Sync + 'static,
        {
            fn into_function(self) -> Function {
                Function::plain(vec![$($param::TYPE,)* Rest::TYPE], true, move |_, args| {
                    #[allow(unused_mut, reason = "without parameters nothing is taken out")]
                    let mut args = args.into_iter();
                    $(
                        #[expect(non_snake_case, reason = "one variable per type parameter")]
                        let $param = $param::from_arg(args.next().unwrap_or_default());
                    )*
                    self($($param,)* Variadic(args.map(Rest::from_arg).collect())).into_result()
                })
            }
        }

        impl<Body, Out: IntoResult, $($param: FromArg,)* Rest: FromArg>
            IntoFunction<(WithBudget, WithRest, fn($($param,)* Rest) -> Out)> for Body
        where
            Body: Fn(&Budget, $($param,)* Variadic<Rest>) -> Out + Send + Sync + 'static,
        {
            fn into_function(self) -> Function {
                Function::plain(vec![$($param::TYPE,)* Rest::TYPE], true, move |budget, args| {
                    #[allow(unused_mut, reason = "without parameters nothing is taken out")]
                    let mut args = args.into_iter();
                    $(
                        #[expect(non_snake_case, reason = "one variable per type parameter")]
                        let $param = $param::from_arg(args.next().unwrap_or_default());
                    )*
                    self(budget, $($param,)* Variadic(args.map(Rest::from_arg).collect())).into_result()
                })
            }
        }
    };
}

into_function!();
into_function!(A);
into_function!(A B);
into_function!(A B C);
into_function!(A B C D);
into_function!(A B C D E);
